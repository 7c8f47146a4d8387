"""What a function gets at without being given it: its closure, the globals it names, and what they hold.

A search, for warnings: shallow, and of no more objects than take a fraction of a millisecond. `Places` warns of arrays
that aren't any more where a compiled function found them: it keeps an array by reference and sees what is written into
it, but not that `model.w = other` puts another one in its place. So the places are looked at now and then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from wonderland.core.program import Record
from wonderland.core.tracebacks import warn_user
from wonderland.transform.closures import Part, parts
from wonderland.transform.surprises import ReboundArrayWarning

Seen = list[tuple[Any, Callable[[Any], Any]]]  # objects, and what tells of each whether it is as it was
_watchers: list[Callable[[Record, Seen], AbstractContextManager[Any]]] = []
_DEPTH = 4  # of objects in objects: model.layers[0].w
_MOST = 2000  # objects looked at
_EACH, _THEN_EVERY = 16, 16  # calls that are looked at, and then one of so many: counting alone takes 0.04 us a call
_NEVER = 1 << 62
_LIBRARIES = {"numpy", "scipy", "wonderland", "builtins", *sys.stdlib_module_names} - {"__main__"}


def found(f: Any) -> Iterator[tuple[str, Part]]:
    """What `f` can get at, how the user writes it, and where it is, nearest first."""
    return (way[-1] for way in _ways(f))


def _ways(f: Any) -> Iterator[tuple[tuple[str, Part], ...]]:
    """For all that `f` can get at: how it is written and where it is, after the same of each thing on the way to it."""
    queue: list[tuple[Any, str, int, tuple[tuple[str, Part], ...]]] = [(f, "", 0, ())]
    seen: set[int] = set()
    for thing, name, depth, above in queue:
        if id(thing) in seen or len(seen) > _MOST:
            continue
        seen.add(id(thing))
        below = depth + (_library(thing) != "wonderland")  # a transformed function is as near as the function itself
        labelled = [(_label(thing, name, part[1]), part) for part in parts(thing)]
        for label, part in (*labelled, *_globals(thing)):
            way = (*above, (label, part))
            yield way
            plain = isinstance(part[2], (np.ndarray, np.generic, str, int, float, bool, type(None)))
            if depth < _DEPTH and not plain:
                queue.append((part[2], label, below, way))


def _label(thing: Any, name: str, key: Any) -> str:
    if key is None:
        return name
    if isinstance(thing, (dict, list, tuple, set, frozenset)):
        return f"{name}[{key!r}]"
    return str(key) if isinstance(thing, (FunctionType, MethodType)) else f"{name}.{key}"


def _globals(f: Any) -> Iterator[tuple[str, Part]]:
    """What a function of the user's names, also in its inner functions and in modules."""
    if not isinstance(f, FunctionType) or _library(f) in _LIBRARIES:
        return
    names = _names(f.__code__)
    for name in names:
        value = f.__globals__.get(name)
        if value is None:
            continue
        yield name, (f.__globals__, name, value)
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in _LIBRARIES:
            for attribute in names:
                if attribute in vars(value):
                    yield f"{name}.{attribute}", (vars(value), attribute, vars(value)[attribute])


def _library(thing: Any) -> str:
    return (getattr(thing, "__module__", None) or "").split(".")[0]


def _names(code: CodeType) -> list[str]:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return list(dict.fromkeys((*code.co_names, *(name for c in inner for name in _names(c)))))


def on_recording(watcher: Callable[[Record, Seen], AbstractContextManager[Any]]) -> None:
    """Have a context around every recording of a function that is compiled, which may say what objects it read."""
    _watchers.append(watcher)


@contextmanager
def recording(level: Record) -> Iterator[Seen]:
    """While the function is recorded at this level; then the list has the objects that it read without being given."""
    seen: Seen = []
    with ExitStack() as stack:
        for watcher in _watchers:
            stack.enter_context(watcher(level, seen))
        yield seen


class Places:
    """Where a function found the arrays that it captured, and what else it read of captured objects."""

    def __init__(self, f: Callable, values: Sequence[Any], name: str, objects: Seen | None = None):
        self.name: str = name
        self.looks: int = 0
        self.watched: list[tuple[Callable[[Any], Any], Any, Any, str]] = []  # read(key) is the value; how it is written
        objects = objects or []
        wanted = {id(a) for value in values for a in _with_bases(value)} | {id(thing) for thing, _ in objects}
        labels: dict[int, str] = {}
        for *above, last in _ways(f) if wanted else ():
            if id(last[1][2]) not in wanted:
                continue
            # A list may be replaced as a whole, and the array stays in the old one.
            for label, (holder, key, value) in (*(p for p in above if isinstance(p[1][2], (list, tuple, dict))), last):
                if holder is None or id(value) in labels:
                    continue
                wanted.discard(id(value))
                labels[id(value)] = label
                if isinstance(holder, CellType):
                    self.watched.append((holder.__getattribute__, "cell_contents", value, label))
                else:
                    self.watched.append((holder.__getitem__, key, value, label))
        for thing, state in objects:
            self.watched.append((state, thing, state(thing), labels.get(id(thing), f"a {type(thing).__name__}")))

    def watching(self, finish: Callable | None) -> Callable | None:
        """`finish`, which makes the result of a native call, with a look at the places."""
        if not self.watched:
            return finish
        left = 1

        def looked(out: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:  # not ==: calls race
                left = self.check()
            return out if finish is None else finish(out)

        return looked

    def check(self) -> int:
        """Warn, once, if a place holds another array (not if it is gone); returns when to look again, in calls."""
        for read, key, array, label in self.watched:
            try:
                now = read(key)
            except (LookupError, ValueError):
                now = None
            if now is not array:
                self.watched = []
                if not isinstance(array, np.ndarray):
                    warn_user(
                        f"{self.name} was compiled with the attributes that {label} had then (mode, numbers, layers) "
                        f"and goes on with them. They are others now: make it an argument of {self.name}, or compile "
                        "a method of it, wl.jit(model).",
                        ReboundArrayWarning,
                    )
                elif now is not None:
                    warn_user(
                        f"{self.name} was compiled with the array that {label} was then. It is another one now, which "
                        f"the compiled code doesn't see: write into the array, {label}[...] = new, or make it an "
                        f"argument of {self.name}.",
                        ReboundArrayWarning,
                    )
                return _NEVER
        self.looks += 1
        return 1 if self.looks < _EACH else _THEN_EVERY


def _with_bases(value: Any) -> list:
    """An array and those that it is a view of."""
    out = []
    while isinstance(value, np.ndarray):
        out.append(value)
        value = value.base
    return out
