"""The Batch level: every value carries a batch at axis 0, and an operation on one is an operation on all."""

from __future__ import annotations

from typing import Any

from wonderland.core.level import Level, Traced
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, Params, type_of
from wonderland.ops.shape import broadcast


class BatchedValue(Traced):
    """An array whose axis 0 is the batch; its type is that of one element."""

    __slots__ = ("array",)

    def __init__(self, level: Level, array: Any):
        self.level = level
        self.array: Any = array

    @property
    def type(self) -> ArrayType:
        whole = type_of(self.array)
        return ArrayType(whole.shape[1:], whole.dtype)

    def __repr__(self) -> str:
        return f"Batched({self.array!r})"


class Batch(Level):
    """`vmap`: `size` runs of a function at once."""

    __slots__ = ("size",)
    once = True
    name = "a batched function (vmap)"

    def __init__(self, size: Any):
        self.size: Any = size

    def split(self, value: Any) -> tuple[Any, bool]:
        if type(value) is BatchedValue and value.level is self:
            return value.array, True
        return value, False

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: Params) -> Any:
        arrays, batched = zip(*map(self.split, args), strict=True)
        if primitive.batch is None:
            why = primitive.impossible.get("batch", "it has no batch rule")
            raise TypeError(f"{primitive.name} can't be batched: {why}")
        out = primitive.batch(self.size, arrays, batched, **params)
        if primitive.multiple:
            outs, flags = out
            return tuple(BatchedValue(self, o) if f else o for o, f in zip(outs, flags, strict=True))
        return BatchedValue(self, out)


def materialize(size: Any, array: Any, batched: bool) -> Any:
    """A value with a batch axis, made by repetition where it had none."""
    return array if batched else broadcast(array, shape=(size, *type_of(array).shape))
