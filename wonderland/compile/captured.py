"""What a function gets at without being given it: its closure, the globals it names, and what they hold.

A search, for warnings: shallow, and of no more objects than take a fraction of a millisecond.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from wonderland.transform.closures import Part, parts

_DEPTH = 4  # of objects in objects: model.layers[0].w
_MOST = 2000  # objects looked at
_LIBRARIES = {"numpy", "scipy", "wonderland", "builtins", *sys.stdlib_module_names} - {"__main__"}


def found(f: Any) -> Iterator[tuple[str, Part]]:
    """What `f` can get at, how the user writes it, and where it is, nearest first."""
    queue: list[tuple[Any, str, int]] = [(f, "", 0)]
    seen: set[int] = set()
    for thing, name, depth in queue:
        if id(thing) in seen or len(seen) > _MOST:
            continue
        seen.add(id(thing))
        below = depth + (_library(thing) != "wonderland")  # a transformed function is as near as the function itself
        labelled = [(_label(thing, name, part[1]), part) for part in parts(thing)]
        for label, part in (*labelled, *_globals(thing)):
            yield label, part
            plain = isinstance(part[2], (np.ndarray, np.generic, str, int, float, bool, type(None)))
            if depth < _DEPTH and not plain:
                queue.append((part[2], label, below))


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
