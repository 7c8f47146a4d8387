"""What a function gets at without being given it: its closure, the globals it names, and what they hold.

A search, for warnings: shallow, and of no more objects than take a fraction of a millisecond.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from wonderland.transform.closures import Place, parts

_DEPTH = 4  # of objects in objects: model.layers[0].w
_MOST = 2000  # objects looked at
_LIBRARIES = {"numpy", "scipy", "wonderland", "builtins", *sys.stdlib_module_names} - {"__main__"}


def found(f: Any) -> Iterator[tuple[Place, Any]]:
    """Places that `f` can get at, and the values there, nearest first."""
    queue: list[tuple[Any, str, int]] = [(f, "", 0)]
    seen: set[int] = set()
    for thing, name, depth in queue:
        if id(thing) in seen or len(seen) > _MOST:
            continue
        seen.add(id(thing))
        below = depth + (_library(thing) != "wonderland")  # a transformed function is as near as the function itself
        for place, value in (*parts(thing, name), *_globals(thing)):
            yield place, value
            if depth < _DEPTH and not isinstance(value, (np.ndarray, np.generic, str, int, float, bool, type(None))):
                queue.append((value, place[2], below))


def _globals(f: Any) -> Iterator[tuple[Place, Any]]:
    """What a function of the user's names, also in its inner functions and in modules."""
    if not isinstance(f, FunctionType) or _library(f) in _LIBRARIES:
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


def _library(thing: Any) -> str:
    return (getattr(thing, "__module__", None) or "").split(".")[0]


def _names(code: CodeType) -> list[str]:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return list(dict.fromkeys((*code.co_names, *(name for c in inner for name in _names(c)))))
