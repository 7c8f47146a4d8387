"""The arguments of a jitted function: which of them its options mean, static ones, and what changed from call to call.

Options name arguments by position or by name. A static argument is held by the structure of a call's arguments, so
calls with other static values differ as calls with other trees do.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import register_node
from wonderland.core.statics import contents, typed
from wonderland.core.types import ArrayType

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
Types = Sequence[ArrayType]


def chosen(f: Callable, option: str, numbers: Iterable[Any], names: Iterable[str]) -> tuple[set[int], set[str]]:
    """The positions and names of chosen arguments, each by both where it has both; refuses those that `f` doesn't take.

    Negative positions count from the end of the positional parameters; if there are `*args`, from that of a call's.
    """
    try:
        found, called = {operator.index(n) for n in numbers}, set(names)
    except TypeError as error:
        raise ArgumentError(f"{option} takes positions: {error}") from None
    if any(not isinstance(name, str) for name in called):
        raise ArgumentError(f"{option} takes names of arguments, got {', '.join(map(repr, called))}")
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # builtins have none to look at
        return found, called
    positional = [p.name for p in parameters if p.kind in POSITIONAL]
    kinds = {p.kind for p in parameters}
    count = len(positional)
    if Parameter.VAR_POSITIONAL not in kinds:
        _refuse(f, option, [n for n in found if not -count <= n < count], parameters)
        found = {n % count for n in found}
    if Parameter.VAR_KEYWORD not in kinds:
        known = {p.name for p in parameters if p.kind is not Parameter.VAR_POSITIONAL}
        _refuse(f, option, [n for n in called if n not in known], parameters)
    called |= {positional[n] for n in found if 0 <= n < count}
    return found | {positional.index(name) for name in called if name in positional}, called


def _refuse(f: Callable, option: str, wrong: list, parameters: Iterable[Parameter]) -> None:
    if wrong:
        name = getattr(f, "__name__", type(f).__name__)
        taken = [f"{p.name} ({i})" if p.kind in POSITIONAL else p.name for i, p in enumerate(parameters)]
        raise ArgumentError(
            f"{option} has {', '.join(map(repr, sorted(wrong)))}, which {name} doesn't take. It takes "
            f"{', '.join(taken) or 'nothing'}."
        )


@dataclass(frozen=True)
class Static:
    """A static argument: a tree without leaves, equal to another one of the same value and type (by `tree.typed`)."""

    value: Any


register_node(Static, lambda node: ((), node), lambda static, children: static.value)


def snapshot(value: Any) -> Any:
    """A value with copies of the containers in it, which may be changed in place."""
    if isinstance(value, dict):
        copied = copy.copy(value)
        copied.update([(key, snapshot(item)) for key, item in value.items()])
        return copied
    if isinstance(value, (list, set)):
        copied = copy.copy(value)
        copied.clear()
        (copied.extend if isinstance(copied, list) else copied.update)(map(snapshot, value))
        return copied
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return value._make(map(snapshot, value))  # type: ignore[attr-defined]
    held = contents(value)
    if held is not None:
        copied = copy.copy(value)
        for name, item in held.items():
            object.__setattr__(copied, name, snapshot(item))
        return copied
    return tuple(map(snapshot, value)) if type(value) is tuple else value


def kept(structure: tree.Structure) -> tree.Structure:
    """A structure to compare later ones with: static arguments, and attributes of objects, as they are now."""
    return tree.Structure(structure.kind, snapshot(structure.static), tuple(map(kept, structure.children)))


def changes(f: Callable, old: tuple[tree.Structure, Types], new: tuple[tree.Structure, Types]) -> tuple[list[str], str]:
    """What differs between the arguments of two calls of `f`, and what to do about it."""
    was, now = _parts(f, *old), _parts(f, *new)
    found: list[str] = []
    advice = "Call it with the same arguments each time."
    for name in {**was, **now}:
        (before, first), (after, second) = was.get(name, (None, ())), now.get(name, (None, ()))
        if before is None or after is None:
            found.append(f"{name} {'is new' if before is None else 'is left out'}")
        elif before != after and isinstance(before.static, Static) and isinstance(after.static, Static):
            found.append(f"static {name} was {_short(before.static.value)}, now {_short(after.static.value)}")
            advice = "Each value of a static argument is a compilation: leave it traced, if it can be."
        elif before != after:
            found.append(f"{name} {difference(before, after)}")
            advice = "Keep the structure: the same keys, attributes and lengths of lists."
        for i, (one, other) in enumerate(zip(first, second, strict=False) if before == after else ()):
            if one != other:
                found.append(f"{name}{f' (leaf {i})' if len(first) > 1 else ''} was {one}, now {other}")
                shapes = one.shape != other.shape
                advice = "Pad arguments to a few fixed shapes." if shapes else "Convert arguments to one dtype."
    unseen = "what differs is the order of the keys in a dict, or that arrays without axes were numbers"
    return found or [unseen], advice


def difference(old: tree.Structure, new: tree.Structure) -> str:
    """What differs between two structures: "was ..., now ...", of the first attribute of an object where it is that."""
    return next(_attributes(old, new), f"was {_short(old)}, now {_short(new)}")


def _attributes(old: tree.Structure, new: tree.Structure) -> Iterator[str]:
    """The static attributes of objects in two structures that differ, as long as classes are the same."""
    if old.kind is not new.kind or old.kind is None:
        return
    if old.kind.mutable:
        name, was, now = old.static[0].__name__, dict(old.static[2]), dict(new.static[2])
        for key in {**was, **now}:
            if typed(was.get(key)) != typed(now.get(key)):
                yield f"has another {name}.{key}: was {_short(was.get(key))}, now {_short(now.get(key))}"
        if getattr(old.static, "frozen", None) != getattr(new.static, "frozen", None):
            yield f"has other frozen parameters in its {name}"
    for one, other in zip(old.children, new.children, strict=False):
        yield from _attributes(one, other)


def takes_any_keywords(f: Callable) -> bool:
    """Does `f` have `**kwargs`, and so sees the order of keywords?"""
    try:
        return any(p.kind is Parameter.VAR_KEYWORD for p in inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return True


def without_axes(owners: Sequence[Any], types: Types) -> tuple[tuple[int, bool], ...]:
    """The leaves of shape () that may be arrays or NumPy's numbers, and whether they are arrays.

    Compiled code takes one for the other. Code that writes in place doesn't: `y = x; y += 1` changes an array x.
    """
    places = [i for i, type in enumerate(types) if not type.shape and not type.weak]
    return tuple([(i, isinstance(owners[i], np.ndarray)) for i in places])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _parts(f: Callable, structure: tree.Structure, types: Types) -> dict[str, tuple[tree.Structure, list[ArrayType]]]:
    """The structure and types of each argument, by what it is called in messages."""
    try:
        names = [p.name for p in inspect.signature(f).parameters.values() if p.kind in POSITIONAL]
    except (TypeError, ValueError):
        names = []
    positional, keywords = structure.children
    count, rest = len(positional.children), iter(types)
    called = [*map(repr, names[:count]), *range(len(names), count), *map(repr, keywords.static[1])]
    parts = zip(called, (*positional.children, *keywords.children), strict=True)
    return {f"argument {name}": (part, [next(rest) for _ in range(part.leaf_count)]) for name, part in parts}
