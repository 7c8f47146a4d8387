"""Reductions over axes: sum, prod, max, and the place of the maximum. The reduced axes disappear.

`axes` are sorted, non-negative and distinct.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import div, eq, mul, scale
from wonderland.ops.shape import broadcast, convert, reshape, transpose
from wonderland.ops.work import reduction


@lru_cache(4096)
def kept_shape(shape: tuple[Any, ...], axes: tuple[int, ...]) -> tuple[Any, ...]:
    """The shape without the reduced axes."""
    return tuple(extent for i, extent in enumerate(shape) if i not in axes)


@lru_cache(4096)
def flat_shape(shape: tuple[Any, ...], axes: tuple[int, ...]) -> tuple[Any, ...]:
    """The shape with ones for the reduced axes."""
    return tuple(1 if i in axes else extent for i, extent in enumerate(shape))


def beside(value: Any, shape: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
    """A reduced value with ones for the axes that were reduced, so that it broadcasts with what it was made of."""
    return reshape(value, shape=flat_shape(shape, axes)) if shape_of(value) != () else value


def spread(value: Any, shape: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
    """Repeat a reduced value over the axes that were reduced: the transpose of a sum."""
    return broadcast(beside(value, shape, axes), shape=shape)


def _reduce_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    (x,), axes = types, params["axes"]
    kept = kept_shape(x.shape, axes)
    rows = np.arange(int(np.prod(kept))).reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
    return [(np.broadcast_to(rows, x.shape).ravel(), np.arange(x.size))]


def _sum_transpose(ct: Any, x: Linear, axes: tuple) -> tuple:
    return (spread(ct, x.shape, axes),)


sum: Primitive = Primitive(
    "sum",
    lambda x, axes: np.add.reduce(x, axes, x.dtype if type(x) is np.ndarray else type_of(x).dtype),
    lambda x, axes: ArrayType(kept_shape(x.shape, axes), x.dtype),
    linear=(0,),
    balanced=True,
    transpose=_sum_transpose,
    batch=lambda size, args, batched, axes: sum(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=_reduce_pattern,
    lower=lambda builder, x, axes: builder.reduce(x, axes, "add"),
    cost=reduction("additions"),
)


def _prod_jvp(primals: tuple, tangents: tuple, axes: tuple) -> tuple[Any, Any]:
    # The derivative with respect to a factor is the product of the others: of those before it and those after it. No
    # division by the factor, so zeros are nothing special.
    (x,), (t,) = primals, tangents
    out = prod(x, axes=axes)
    x, t = _flattened(x, axes), _flattened(t, axes)
    last = len(shape_of(x)) - 1
    before = cumulative.shifted(cumulative.cumprod(x, axis=last, reverse=False), last, 1)
    after = cumulative.shifted(cumulative.cumprod(x, axis=last, reverse=True), last, 1, reverse=True)
    return out, sum(scale(t, mul(before, after), x), axes=(last,))


def _flattened(x: Any, axes: tuple) -> Any:
    """The reduced axes as one, behind the kept ones."""
    rest = tuple(i for i in range(len(shape_of(x))) if i not in axes)
    shape = kept_shape(shape_of(x), axes)
    order = (*rest, *axes)
    x = x if order == tuple(range(len(order))) else transpose(x, permutation=order)
    return reshape(x, shape=(*shape, math.prod(shape_of(x)[len(rest) :])))


prod: Primitive = Primitive(
    "prod",
    lambda x, axes: np.multiply.reduce(x, axes, type_of(x).dtype),
    lambda x, axes: ArrayType(kept_shape(x.shape, axes), x.dtype),
    jvp=_prod_jvp,
    batch=lambda size, args, batched, axes: prod(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=_reduce_pattern,
    lower=lambda builder, x, axes: builder.reduce(x, axes, "mul"),
    cost=reduction("multiplications"),
)


def _max_infer(x: ArrayType, axes: tuple) -> ArrayType:
    if any(x.shape[a] == 0 for a in axes):
        raise ValueError(f"zero-size array to reduction operation maximum which has no identity (shape {x.shape})")
    return ArrayType(kept_shape(x.shape, axes), x.dtype)


def _max_jvp(primals: tuple, tangents: tuple, axes: tuple) -> tuple[Any, Any]:
    # The derivative goes to the maximum, shared equally at ties.
    (x,), (t,) = primals, tangents
    out = max(x, axes=axes)
    shape = shape_of(x)
    winners = convert(eq(x, beside(out, shape, axes)), dtype=type_of(x).dtype)
    weights = div(winners, beside(sum(winners, axes=axes), shape, axes))
    return out, sum(scale(t, weights, x), axes=axes)


max: Primitive = Primitive(
    "max",
    lambda x, axes: np.maximum.reduce(x, axes),
    _max_infer,
    jvp=_max_jvp,
    batch=lambda size, args, batched, axes: max(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=_reduce_pattern,
    lower=lambda builder, x, axes: builder.reduce(x, axes, "max"),
    piecewise_linear=True,
    impossible={"transpose": "it isn't linear"},
    cost=reduction("calls"),
)


def _argmax_infer(x: ArrayType, axis: int) -> ArrayType:
    if x.shape[axis] == 0 and 0 not in kept_shape(x.shape, (axis,)):
        raise ValueError("attempt to get argmax of an empty sequence")
    return ArrayType(kept_shape(x.shape, (axis,)), np.intp)


def _place_if_largest(e: Any, x: Any, largest: Any, place: Any) -> Any:
    wins = e.compare("eq", x, largest)
    if x.dtype.kind in "fc":
        wins = e.bit_or(wins, e.compare("ne", x, x))
    return e.select(wins, place, e.constant(np.iinfo(place.dtype).min, place))


def _argmax_lower(builder: Any, x: Any, axis: int) -> Any:
    # Two sweeps over a row: its maximum, then the first place that has it: the largest of the places counted down.
    kept = kept_shape(x.shape, (axis,))
    if 0 in kept:
        return builder.reduce(builder.convert(x, np.dtype(np.intp)), (axis,), "max")
    extent = x.shape[axis]
    shape = tuple(extent if i == axis else 1 for i in range(len(x.shape)))
    kind = np.dtype(np.int32 if x.dtype.itemsize <= 4 and extent < 1 << 31 else np.int64)
    places = builder.constant(-np.arange(extent, dtype=kind).reshape(shape))
    largest = builder.reduce(x, (axis,), "max")
    largest = builder.reshape(largest, tuple(1 if i == axis else n for i, n in enumerate(x.shape)))
    found = builder.reduce(builder.map(_place_if_largest, [x, largest, places], kind), (axis,), "max")
    return builder.convert(builder.map(_negative, [found], kind), np.dtype(np.intp))


def _negative(e: Any, x: Any) -> Any:
    return e.neg(x)


# The first place of the maximum along an axis; NaN counts as the largest.
argmax: Primitive = Primitive(
    "argmax",
    lambda x, axis: np.argmax(x, axis),
    _argmax_infer,
    jvp=lambda primals, tangents, axis: (argmax(*primals, axis=axis), None),
    batch=lambda size, args, batched, axis: argmax(args[0], axis=axis + 1),
    pattern=lambda types, params: [None],
    lower=_argmax_lower,
    cost=reduction("calls"),
)

from wonderland.ops import cumulative  # noqa: E402  (mutual: products differentiate to cumulative products)
