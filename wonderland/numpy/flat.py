"""The elements of a traced array in C's order: `x.flat`, `x.fill`, `item in x`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wonderland.core.tracer import PROPERTIES, Tracer, set_on_class
from wonderland.core.types import type_of
from wonderland.numpy.dispatch import writing_method
from wonderland.numpy.index import Key, setitem
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import np
from wonderland.numpy.shape import flat_view, reshape_value
from wonderland.ops.index import gather


def repeated(value: Any, size: int) -> Any:
    """A flat value of `size` elements, again and again from the start: how `put` and `x.flat[i] = v` read theirs."""
    value = as_value(value)
    count = type_of(value).size
    flat = reshape_value(value, (count,))
    if count == size:
        return flat
    if count == 0:
        raise ValueError("can't write from an empty array")
    return gather(flat, np.arange(size) % count, axes=(0,))


class Flat:
    """`x.flat`: the elements in C's order, to iterate over, read and write."""

    __slots__ = ("base",)

    def __init__(self, base: Tracer):
        self.base: Tracer = base

    def __iter__(self) -> Iterator[Any]:
        return iter(flat_view(self.base))

    def __len__(self) -> int:
        return self.base.size

    def __getitem__(self, index: Any) -> Tracer:
        return Tracer(flat_view(self.base)[index]._get())

    def __setitem__(self, index: Any, value: Any) -> None:
        flat = flat_view(self.base)
        key = Key(flat.shape, index)
        count = int(np.prod(key.result_shape())) if key.mask is None else 1
        value = as_value(value)
        if type_of(value).size > 1:
            value = reshape_value(repeated(value, count), key.result_shape())
        setitem(flat, index, reshape_value(value, ()) if type_of(value).size == 1 else value)

    def copy(self) -> Tracer:
        """As NumPy's: a flat copy."""
        return self[:]


PROPERTIES["flat"] = Flat
writing_method("fill", lambda self, value: setitem(self, ..., value))


def contains(self: Tracer, item: Any) -> bool:
    """`item in x`: is any element equal to it?"""
    return bool(np.any(self == item))


set_on_class("__contains__", contains)
