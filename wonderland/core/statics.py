"""Static values: what isn't an array is part of the structure of a tree, and compared by type and value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


def typed(value: Any) -> Any:
    """A key that tells 1, 1.0 and True apart, and 0.0 from -0.0, also inside containers; a NaN is like another one."""
    if isinstance(value, (tuple, list, dict)):
        return type(value), tuple(map(typed, value.items() if isinstance(value, dict) else value))
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(typed, value))
    if isinstance(value, slice):
        return slice, typed((value.start, value.stop, value.step))
    held = contents(value)
    if held is not None:
        return type(value), typed(held)
    if isinstance(value, np.ndarray):
        return type(value), _Same(value)
    return type(value), repr(value) if isinstance(value, (float, complex, np.inexact)) else value


class _Same:
    """An array that something static holds: it is equal to itself alone, and no static value by itself."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return hash(self.array)  # which raises


def contents(value: Any) -> dict[str, Any] | None:
    """What a record holds, by name, if that is how it compares: a dataclass or a SimpleNamespace. None for others."""
    cls = type(value)
    if cls is SimpleNamespace:
        return vars(value)
    fields = getattr(cls, "__dataclass_fields__", None)
    if fields is None or cls is type or not cls.__dataclass_params__.eq:
        return None
    return {name: getattr(value, name) for name, field in fields.items() if field.compare and hasattr(value, name)}


def is_fixed(value: Any) -> bool:
    """Is a static value the same as long as it is the same object? (Of other objects than containers it is assumed.)"""
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_fixed, value))
    held = contents(value)
    if held is not None:
        frozen = getattr(getattr(value, "__dataclass_params__", None), "frozen", False)
        return frozen and all(map(is_fixed, held.values()))
    return not isinstance(value, (list, dict, set))
