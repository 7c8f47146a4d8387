"""Reductions over axes: sum and max. `axes` are sorted, non-negative and distinct; the reduced axes disappear."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import div, eq, mul
from wonderland.ops.shape import broadcast, convert, reshape


def kept_shape(shape: tuple, axes: tuple[int, ...]) -> tuple:
    """The shape without the reduced axes."""
    return tuple(extent for i, extent in enumerate(shape) if i not in axes)


def spread(value: Any, shape: tuple, axes: tuple[int, ...]) -> Any:
    """Repeat a reduced value over the axes that were reduced: the transpose of a sum."""
    value = reshape(value, shape=tuple(1 if i in axes else extent for i, extent in enumerate(shape)))
    return broadcast(value, shape=shape)


def _reduce_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    (x,), axes = types, params["axes"]
    kept = kept_shape(x.shape, axes)
    rows = np.arange(int(np.prod(kept))).reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
    return [(np.broadcast_to(rows, x.shape).ravel(), np.arange(x.size))]


def _sum_transpose(ct: Any, x: Linear, axes: tuple) -> tuple:
    return (spread(ct, x.shape, axes),)


sum = Primitive(
    "sum",
    lambda x, axes: np.sum(x, axis=axes, dtype=type_of(x).dtype),
    lambda x, axes: ArrayType(kept_shape(x.shape, axes), x.dtype),
    linear=(0,),
    transpose=_sum_transpose,
    batch=lambda size, args, batched, axes: sum(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=_reduce_pattern,
    lower=lambda builder, x, axes: builder.reduce(x, axes, "add"),
    zero_preserving=True,
)


def _max_infer(x: ArrayType, axes: tuple) -> ArrayType:
    if any(x.shape[a] == 0 for a in axes):
        raise ValueError(f"zero-size array (shape {x.shape}) to reduction operation maximum which has no identity")
    return ArrayType(kept_shape(x.shape, axes), x.dtype)


def _max_jvp(primals: tuple, tangents: tuple, axes: tuple) -> tuple[Any, Any]:
    # The derivative goes to the maximum, shared equally at ties.
    (x,), (t,) = primals, tangents
    out = max(x, axes=axes)
    dtype = type_of(x).dtype
    winners = convert(eq(x, spread(out, shape_of(x), axes)), dtype=dtype)
    weights = div(winners, spread(sum(winners, axes=axes), shape_of(x), axes))
    return out, sum(mul(t, weights), axes=axes)


max = Primitive(
    "max",
    lambda x, axes: np.max(x, axis=axes),
    _max_infer,
    jvp=_max_jvp,
    batch=lambda size, args, batched, axes: max(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=_reduce_pattern,
    lower=lambda builder, x, axes: builder.reduce(x, axes, "max"),
    zero_preserving=True,
    monotone=True,
    impossible={"transpose": "it isn't linear"},
)
