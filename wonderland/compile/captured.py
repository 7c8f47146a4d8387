"""What a function gets at without being given it: its closure, the globals it names, and what they hold.

A search, for warnings: shallow, and of no more objects than take a fraction of a millisecond.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from wonderland.core import tree

_DEPTH = 4  # of objects in objects: model.layers[0].w; what transformations put around a function doesn't count
_MOST = 2000  # objects looked at
_LIBRARIES = {"numpy", "scipy", "wonderland", "builtins", *sys.stdlib_module_names} - {"__main__"}

Holder = CellType | dict | list
Place = tuple[Holder | None, Any, str]  # the holder of a value, if it can change, the key there, how the user writes it


def found(f: Any) -> Iterator[tuple[Place, Any]]:
    """Places that `f` can get at, and the values there, nearest first."""
    queue: list[tuple[Any, str, int]] = [(f, "", 0)]
    seen: set[int] = set()
    for thing, name, depth in queue:
        if id(thing) in seen or len(seen) > _MOST:
            continue
        seen.add(id(thing))
        inner = depth + (not _wrapper(thing))
        for place, value in _held(thing, name):
            yield place, value
            if inner <= _DEPTH and not isinstance(value, (np.ndarray, np.generic, str, int, float, bool, type(None))):
                queue.append((value, place[2], inner))


def _held(thing: Any, name: str) -> Iterator[tuple[Place, Any]]:
    if isinstance(thing, FunctionType):
        yield from _of_function(thing)
    elif isinstance(thing, MethodType):
        yield (None, 0, name), thing.__func__
        yield (None, 0, "self"), thing.__self__
    elif isinstance(thing, functools.partial):
        for value in (thing.func, *thing.args, *thing.keywords.values()):
            yield (None, 0, name), value
    elif isinstance(thing, dict):
        for key, value in list(thing.items())[:_MOST]:
            yield (thing, key, f"{name}[{key!r}]"), value
    elif isinstance(thing, (list, tuple)):
        for i, value in enumerate(thing[:_MOST]):
            yield (thing if isinstance(thing, list) else None, i, f"{name}[{i}]"), value
    elif not isinstance(thing, (type, ModuleType)):
        attributes = getattr(thing, "__dict__", None) or {}
        known = isinstance(thing, SimpleNamespace) or tree.kind_of(thing) is not None
        if known or _library(type(thing)) not in _LIBRARIES:
            for key, value in list(attributes.items()):
                yield (attributes, key, f"{name}.{key}"), value
        elif "__wrapped__" in attributes:  # a jitted function
            yield (None, 0, name), attributes["__wrapped__"]


def _of_function(f: FunctionType) -> Iterator[tuple[Place, Any]]:
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield (cell, None, name), cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
        yield (None, 0, f.__name__), value
    if _defined_in(f) in _LIBRARIES:
        return
    names = _names(f.__code__)
    for name in names:
        value = f.__globals__.get(name)
        if value is None:
            continue
        yield (f.__globals__, name, name), value
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in _LIBRARIES:
            for attribute in names:
                if attribute in vars(value):
                    yield (vars(value), attribute, f"{name}.{attribute}"), vars(value)[attribute]


def _wrapper(thing: Any) -> bool:
    """A function that was made by a library, around another one: by `wl.grad`, `functools.partial`, ..."""
    made = isinstance(thing, FunctionType) and _defined_in(thing) in _LIBRARIES
    return made or isinstance(thing, functools.partial)


def _defined_in(f: FunctionType) -> str:
    return f.__globals__.get("__name__", "").split(".")[0]  # its __module__ may be that of the function it wraps


def _library(thing: Any) -> str:
    return (getattr(thing, "__module__", None) or "").split(".")[0]


def _names(code: CodeType) -> list[str]:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return list(dict.fromkeys((*code.co_names, *(name for c in inner for name in _names(c)))))
