"""Reductions over axes: sum, prod, max, and the place of the maximum. The reduced axes disappear.

`axes` are sorted, non-negative and distinct.
"""

from __future__ import annotations

import math
from functools import lru_cache
from functools import reduce as combine
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import div, eq, mul, scale, where
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


_FEW = 64  # so many operands a map may have


def _in_few_places(builder: Any, x: Any, axes: tuple) -> list | None:
    """The parts of a strided array at each place along axes, if they are few: they are read where they lie.

    A map of them works off neighbours in one go, where reductions of a few numbers each come one after the other.
    """
    extents = [x.shape[a] for a in axes]
    if x.base is x or x.dtype.kind == "c" or not 0 < math.prod(extents) <= _FEW:
        return None
    whole = [slice(0, n, 1) for n in x.shape]
    places = (dict(zip(axes, place, strict=True)) for place in np.ndindex(*extents))
    return [builder.slice(x, [place.get(i, part) for i, part in enumerate(whole)]) for place in places]


def _largest(e: Any, *xs: Any) -> Any:
    return combine(e.maximum, xs)


def _max_lower(builder: Any, x: Any, axes: tuple) -> Any:
    parts = _in_few_places(builder, x, axes)
    return builder.reduce(x, axes, "max") if parts is None else builder.map(_largest, parts, x.dtype)


def _argmax(x: Any, axes: tuple) -> Any:
    if len(axes) == 1:
        return np.argmax(x, axes[0])
    return np.argmax(_flattened(x, axes), -1)


def _argmax_infer(x: ArrayType, axes: tuple) -> ArrayType:
    kept = kept_shape(x.shape, axes)
    if any(x.shape[a] == 0 for a in axes) and 0 not in kept:
        raise ValueError("attempt to get argmax of an empty sequence")
    return ArrayType(kept, np.intp)


def _place_if_largest(e: Any, x: Any, largest: Any, place: Any) -> Any:
    wins = e.compare("eq", x, largest)
    if x.dtype.kind in "fc":
        wins = e.bit_or(wins, e.compare("ne", x, x))
    return e.select(wins, place, e.constant(np.iinfo(place.dtype).min, place))


def _negative(e: Any, x: Any) -> Any:
    return e.neg(x)


def _first_place(e: Any, *xs: Any) -> Any:
    # How many come before the first that is the largest. Sums of bits, because a choice may become a jump.
    largest, lost, place = _largest(e, *xs), None, e.constant(0, _PLACE)
    for x in xs[:-1]:
        smaller = e.compare("ne", x, largest)
        if x.dtype.kind == "f":
            smaller = e.bit_and(smaller, e.compare("eq", x, x))
        lost = smaller if lost is None else e.bit_and(lost, smaller)
        place = e.add(place, e.convert(lost, _PLACE))
    return place


_PLACE = np.dtype(np.int32)


def places_along(shape: tuple[Any, ...], axes: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The numbers of places along sorted axes, the last one counting fastest, to broadcast with an array."""
    own = [n if i in axes else 1 for i, n in enumerate(shape)]
    return np.arange(math.prod(own), dtype=dtype).reshape(own)


def _argmax_lower(builder: Any, x: Any, axes: tuple) -> Any:
    # Two sweeps over a row: its maximum, then the first place that has it: the largest of the places counted down.
    index = np.dtype(np.intp)
    if 0 in kept_shape(x.shape, axes):
        return builder.reduce(builder.convert(x, index), axes, "max")
    parts = _in_few_places(builder, x, axes)
    if parts is not None:
        return builder.convert(builder.map(_first_place, parts, _PLACE), index)
    kind = np.dtype(np.int32 if x.dtype.itemsize <= 4 and x.type.size < 1 << 31 else np.int64)
    places = builder.constant(-places_along(x.shape, axes, kind))
    largest = builder.reshape(builder.reduce(x, axes, "max"), flat_shape(x.shape, axes))
    found = builder.reduce(builder.map(_place_if_largest, [x, largest, places], kind), axes, "max")
    return builder.convert(builder.map(_negative, [found], kind), index)


# The first place of the maximum along axes, numbered as if they were one; NaN counts as the largest.
argmax: Primitive = Primitive(
    "argmax",
    _argmax,
    _argmax_infer,
    jvp=lambda primals, tangents, axes: (argmax(*primals, axes=axes), None),
    batch=lambda size, args, batched, axes: argmax(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=lambda types, params: [None],
    lower=_argmax_lower,
    cost=reduction("calls"),
)


def _first_max_jvp(primals: tuple, tangents: tuple, axes: tuple) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    shape, kind = shape_of(x), type_of(x).dtype
    if math.prod(shape[a] for a in axes) > 1 / np.finfo(kind).eps:  # more places than it has integers
        kind = np.dtype(np.int64)
    # Places are numbers of the tangent's dtype: a comparison of integers that chooses a float may become a jump.
    place = convert(argmax(x, axes=axes), dtype=kind)
    chosen = eq(beside(place, shape, axes), places_along(shape, axes, kind))
    return first_max(x, axes=axes), sum(where(chosen, t, np.zeros((), type_of(t).dtype)[()]), axes=axes)


# The maximum, whose derivative goes to the first place that has it: that of pooling.
first_max: Primitive = Primitive(
    "first_max",
    lambda x, axes: np.maximum.reduce(x, axes),
    _max_infer,
    jvp=_first_max_jvp,
    batch=lambda size, args, batched, axes: first_max(args[0], axes=tuple(a + 1 for a in axes)),
    pattern=_reduce_pattern,
    lower=_max_lower,
    piecewise_linear=True,
    impossible={"transpose": "it isn't linear"},
    cost=reduction("calls"),
)

from wonderland.ops import cumulative  # noqa: E402  (mutual: products differentiate to cumulative products)
