"""Modules that a compiled function closes over: while it is recorded, their arrays are hidden inputs of it.

Without this an expression of weights alone would be computed by NumPy, once, and be a constant of the compiled code.
Attributes are read through a hook, which `Module` has only while something is recorded: it costs nothing otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.compile.captured import Seen, on_recording
from wonderland.core.kinds import kind_of
from wonderland.core.program import Record
from wonderland.core.tracer import Tracer


class _Recordings(threading.local):
    def __init__(self) -> None:
        # With the handles of arrays, and the Modules that were read, by id.
        self.levels: list[tuple[Record, dict[int, tuple[Any, Tracer]], dict[int, Any]]] = []


_recordings = _Recordings()
_lock = threading.Lock()
_count = 0  # of recordings, in all threads


def hooked(cls: Any, layout_of: Callable[[Any], Any]) -> None:
    """Have attributes of a class read as hidden inputs while a function is recorded that closes over the object.

    The layouts of such objects are part of what is compiled: the function is told of them.
    """

    @contextmanager
    def reading(level: Record, seen: Seen) -> Iterator[None]:
        global _count
        with _lock:
            _count += 1
            if _count == 1:
                cls.__getattribute__ = _read
        modules: dict[int, Any] = {}
        _recordings.levels.append((level, {}, modules))
        try:
            yield
        finally:
            _recordings.levels.pop()
            seen += [(module, layout_of) for module in modules.values()]
            with _lock:
                _count -= 1
                if _count == 0:
                    del cls.__getattribute__

    on_recording(reading)


def _read(module: Any, name: str) -> Any:
    value = object.__getattribute__(module, name)
    if name[:2] == "__" or not _recordings.levels:
        return value
    book = object.__getattribute__(module, "__dict__").get("_wl")
    if book is None:
        return value
    level, _, modules = _recordings.levels[-1]
    if book.born < level.depth:
        modules[id(module)] = module
    return as_input(value, book.born) if isinstance(value, (np.ndarray, list, tuple, dict)) else value


@contextmanager
def unwatched() -> Iterator[None]:
    """What is read in here is for a message, and no part of what is compiled."""
    levels, _recordings.levels = _recordings.levels, []
    try:
        yield
    finally:
        _recordings.levels = levels


def is_recording() -> bool:
    """Is a function being recorded, in this thread, to be compiled?"""
    return bool(_count and _recordings.levels)


def as_input(value: Any, born: int) -> Any:
    """An array of a Module, or a container of arrays, as the function that is being recorded sees it."""
    if not _recordings.levels:
        return value
    level, handles, _ = _recordings.levels[-1]
    if born >= level.depth:
        return value  # the Module was made by the function itself
    return _mapped(value, lambda array: _handle(array, level, handles, born))


def _handle(array: np.ndarray, level: Record, handles: dict[int, tuple[Any, Tracer]], born: int) -> Any:
    if not array.flags.writeable:
        return array  # a constant
    if id(array) not in handles:
        handle = Tracer(level.atom(array))
        handle._array = not array.shape
        handle._born = born  # so that writing to it raises
        handles[id(array)] = array, handle
    return handles[id(array)][1]


def _mapped(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    kind = kind_of(value)
    if kind is None or kind.mutable:
        return value
    children, static = kind.flatten(value)
    new = [_mapped(child, change) for child in children]
    return value if all(a is b for a, b in zip(new, children, strict=True)) else kind.unflatten(static, new)
