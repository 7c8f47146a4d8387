"""NumPy's weighted means, medians and quantiles on traced arrays, and the functions that pass over NaN.

Order statistics are read from the sorted array, so their derivative goes to the elements between which they lie. What
NaN-functions leave out has a derivative of exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy import reduce
from wonderland.numpy.dispatch import implements
from wonderland.numpy.missing import np
from wonderland.numpy.reduce import (
    as_dtype,
    flip_order,
    given,
    inexact,
    known,
    mask_of,
    operand,
    place_of_maximum,
    root,
)
from wonderland.numpy.shape import broadcast_to, normalize_axes, reduced_axes, reshape_value, transpose_value
from wonderland.ops import elementwise as ops
from wonderland.ops.cumulative import cumsum, take_along
from wonderland.ops.index import gather
from wonderland.ops.sort import argsort, sort

_MISSING = np._NoValue

# Weighted means ------------------------------------------------------------------------------------------------------


def _fitting_weights(weights: Any, shape: tuple, axis: Any) -> Any:
    """Weights brought to a shape that broadcasts with the array's: as large, or along the axes only."""
    weights = operand(weights)
    if shape_of(weights) == shape:
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = [a % len(shape) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if shape_of(weights) != tuple(shape[a] for a in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    weights = transpose_value(weights, tuple(int(i) for i in np.argsort(axes)))
    return reshape_value(weights, tuple(n if i in axes else 1 for i, n in enumerate(shape)))


@implements(np.average)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = _MISSING
) -> Any:  # fmt: skip
    a = operand(a)
    axes = normalize_axes(axis, len(shape_of(a)))
    if weights is None:
        result = reduce.mean(a, axis=axes, keepdims=keepdims)
        count = type_of(result).dtype.type(math.prod(shape_of(a)[i] for i in axes))
        return (result, broadcast_to(count, shape_of(result))) if returned else result
    weights = _fitting_weights(weights, shape_of(a), axis)
    dtype = promote(type_of(inexact(a)), type_of(weights))[0]
    scale = reduce.sum(weights, axis=axes, dtype=dtype, keepdims=keepdims)
    plain = known(scale)
    if plain is not None and np.any(plain == 0):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    weighted = ops.mul(as_dtype(a, dtype), as_dtype(weights, dtype))
    result = ops.div(reduce.sum(weighted, axis=axes, keepdims=keepdims), scale)
    return (result, broadcast_to(scale, shape_of(result))) if returned else result


# Order statistics ----------------------------------------------------------------------------------------------------


def _rows(a: Any, axes: tuple[int, ...]) -> Any:
    """The axes of a statistic as one, behind the others."""
    rest = tuple(i for i in range(len(shape_of(a))) if i not in axes)
    a = transpose_value(a, (*rest, *axes))
    return reshape_value(a, (*shape_of(a)[: len(rest)], math.prod(shape_of(a)[len(rest) :])))


def _pick(rows: Any, places: Any, each: bool) -> Any:
    """Elements of all rows at the same places; or, if `each`, at places whose last axes number the rows."""
    rank = len(shape_of(rows)) - 1
    if not each:
        return gather(rows, places, axes=(rank,))
    grids = [np.arange(n).reshape([n if i == j else 1 for j in range(rank)]) for i, n in enumerate(shape_of(rows)[:-1])]
    return gather(rows, *grids, places, axes=tuple(range(rank + 1)))


def _spoilt(result: Any, rows: Any) -> Any:
    """NaN where there is one in the (sorted) row: it comes last."""
    if type_of(rows).dtype.kind not in "fc" or not shape_of(rows)[-1]:
        return result
    last = gather(rows, np.intp(shape_of(rows)[-1] - 1), axes=(len(shape_of(rows)) - 1,))
    return ops.where(ops.ne(last, last), type_of(result).dtype.type(np.nan), result)


def _counts(rows: Any) -> Any:
    """How many numbers there are in each row."""
    return reduce.sum(ops.eq(rows, rows), axis=-1)


def _floor(x: Any) -> Any:
    """The whole part, an index."""
    whole = as_dtype(x, np.intp)
    return ops.sub(whole, as_dtype(ops.lt(x, whole), np.intp))


def _beyond(x: Any, whole: Any) -> Any:
    """What is beyond the whole part, in x's dtype."""
    return ops.sub(x, as_dtype(whole, type_of(x).dtype))


def _put_back(result: Any, shape: tuple, axes: tuple[int, ...], keepdims: Any, extra: tuple = ()) -> Any:
    """The reduced axes as ones, behind the axes of the quantiles."""
    if keepdims is _MISSING or not keepdims:
        return result
    return reshape_value(result, (*extra, *(1 if i in axes else n for i, n in enumerate(shape))))


def _median(a: Any, axis: Any, keepdims: Any, passing: bool) -> Any:
    a = inexact(operand(a))
    shape, axes = shape_of(a), normalize_axes(axis, len(shape_of(a)))
    rows = _rows(a, axes)
    extent = shape_of(rows)[-1]
    if extent == 0:
        return reduce.mean(a, axis=axes, keepdims=keepdims)
    rows = sort(rows, axis=len(shape_of(rows)) - 1)
    count = _counts(rows) if passing else np.intp(extent)
    # Of no numbers at all: the first element, which is NaN.
    low = ops.maximum(_floor(ops.mul(ops.sub(count, 1), 0.5)), np.intp(0))
    high = _floor(ops.mul(count, 0.5))
    result = ops.mul(0.5, ops.add(_pick(rows, low, passing), _pick(rows, high, passing)))
    return _put_back(result if passing else _spoilt(result, rows), shape, axes, keepdims)


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    reduce.no_out(out, "median")
    return _median(a, axis, keepdims, False)


@implements(np.nanmedian)
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = _MISSING
) -> Any:  # fmt: skip
    reduce.no_out(out, "nanmedian")
    return _median(a, axis, keepdims, True)


# Where the quantile q of n sorted numbers lies, counted from 0: n q + alpha + q (1 - alpha - beta) - 1, by the names of
# Hyndman and Fan (1996). The others choose an element: see `_chosen`.
_CONTINUOUS = {
    "linear": (1.0, 1.0), "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
_CHOOSING = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
METHODS = (*_CONTINUOUS, *_CHOOSING, "averaged_inverted_cdf", "midpoint")


def _chosen(n: Any, q: Any, method: str) -> Any:
    """The place of the element that a discontinuous method takes."""
    if method in ("inverted_cdf", "closest_observation"):
        place = ops.sub(ops.mul(n, q), 1.0 if method == "inverted_cdf" else 1.5)
        low = _floor(place)
        stays = ops.eq(place, low)
        if method == "closest_observation":  # the even order statistic, of which the first has the number 1
            stays = ops.bitwise_and(stays, ops.ne(ops.bitwise_and(low, 1), 0))
        return ops.where(stays, low, ops.add(low, 1))
    place = ops.mul(ops.sub(n, 1.0), q)
    low = _floor(place)
    above = _beyond(place, low)
    if method == "lower":
        return low
    if method == "higher":
        return ops.add(low, as_dtype(ops.gt(above, 0.0), np.intp))
    # Nearest: of two that are as near, the even one.
    up = ops.bitwise_or(ops.gt(above, 0.5), ops.bitwise_and(ops.eq(above, 0.5), ops.ne(ops.bitwise_and(low, 1), 0)))
    return ops.add(low, as_dtype(up, np.intp))


def _between(n: Any, q: Any, method: str) -> tuple[Any, Any, Any]:
    """The places of the two elements between which a quantile lies, and the part of the way between them."""
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        place = ops.mul(ops.sub(n, 1.0), q)
        if method != "linear":
            place = ops.sub(ops.add(ops.mul(n, q), ops.add(alpha, ops.mul(q, 1.0 - alpha - beta))), 1.0)
    else:
        place = ops.sub(ops.mul(n, q), 1.0) if method == "averaged_inverted_cdf" else ops.mul(ops.sub(n, 1.0), q)
    low = _floor(place)
    way = _beyond(place, low)
    if method == "averaged_inverted_cdf":
        way = ops.where(ops.eq(way, 0.0), as_dtype(0.5, type_of(q).dtype), as_dtype(1.0, type_of(q).dtype))
    elif method == "midpoint":
        way = ops.where(ops.eq(way, 0.0), as_dtype(0.0, type_of(q).dtype), as_dtype(0.5, type_of(q).dtype))
    return low, ops.add(low, 1), way


def _quantile(
    a: Any, q: Any, axis: Any, method: str, keepdims: Any, weights: Any, passing: bool, out: Any, hundred: bool = False
) -> Any:
    """Quantiles of all rows at once; `passing` over NaN."""
    name = "percentile" if hundred else "quantile"
    reduce.no_out(out, name)
    a, weak = operand(a), type_of(q).weak if not isinstance(q, (list, tuple)) else False
    if type_of(a).dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if method not in METHODS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join(METHODS)}")
    q = operand(q)
    plain = known(q)
    if plain is not None and not np.all((plain >= 0) & (plain <= (100 if hundred else 1))):
        raise ValueError(
            "Percentiles must be in the range [0, 100]" if hundred else "Quantiles must be in the range [0, 1]"
        )
    method = "lower" if method == "linear" and type_of(q).dtype.kind in "biu" and not hundred else method
    q = ops.div(q, 100.0) if hundred else inexact(q)
    shape, axes = shape_of(a), normalize_axes(axis, len(shape_of(a)))
    rows = _rows(a, axes)
    if not shape_of(rows)[-1]:
        if passing:
            return reduce.mean(a, axis=axes, keepdims=keepdims)
        raise IndexError(f"np.{name} of an empty array (shape {shape})")
    if weights is not None:
        if method != "inverted_cdf":
            raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
        weights = broadcast_to(_fitting_weights(weights, shape, axis), shape)
        rows, result = _weighted(rows, q, _rows(weights, axes), passing)
    else:
        rows = sort(rows, axis=len(shape_of(rows)) - 1)
        result = _of_rows(rows, q, method, weak, passing)
    return _put_back(result if passing else _spoilt(result, rows), shape, axes, keepdims, shape_of(q))


def _of_rows(rows: Any, q: Any, method: str, weak: bool, passing: bool) -> Any:
    """Quantiles of sorted rows."""
    rank = len(shape_of(rows)) - 1
    n: Any = float(shape_of(rows)[-1])
    if passing:
        n, q = as_dtype(_counts(rows), type_of(q).dtype), reshape_value(q, shape_of(q) + (1,) * rank)
    top = ops.maximum(ops.sub(as_dtype(n, np.intp), 1), 0)
    fitted = lambda place: ops.minimum(ops.maximum(place, 0), top)
    if method in _CHOOSING:
        return _pick(rows, fitted(_chosen(n, q, method)), passing)
    low, high, way = _between(n, q, method)
    low, high = fitted(low), fitted(high)
    if not passing:
        way = reshape_value(way, shape_of(way) + (1,) * rank)
    if weak:
        way = as_dtype(way, type_of(inexact(rows)).dtype)
    first, second = _pick(rows, low, passing), _pick(rows, high, passing)
    step = ops.sub(second, first)
    # From the nearer end, so that the end itself comes out exactly.
    return ops.where(
        ops.ge(way, 0.5), ops.sub(second, ops.mul(step, ops.sub(1.0, way))), ops.add(first, ops.mul(step, way))
    )


def _weighted(rows: Any, q: Any, weights: Any, passing: bool) -> tuple[Any, Any]:
    """The first element up to which the weights make up the part q; and the sorted rows."""
    plain = known(weights)
    if plain is not None and np.any(plain < 0):
        raise ValueError("Weights must be non-negative.")
    last = len(shape_of(rows)) - 1
    order = argsort(rows, axis=last)
    rows, weights = take_along(rows, order, last), as_dtype(take_along(weights, order, last), np.float64)
    if passing:
        weights = ops.where(ops.eq(rows, rows), weights, 0.0)
    share = ops.stop_gradient(cumsum(weights, axis=last, reverse=False))
    share = ops.div(share, reduce.max(share, axis=-1, keepdims=True))
    plain = known(share)
    if plain is not None and not passing and np.any(np.isnan(plain)):
        raise ValueError("Weights included NaN, inf or were all zero.")
    share = as_dtype(share, type_of(q).dtype)
    share = ops.where(ops.eq(share, 0.0), -1.0, share)  # an element without weight is never the first
    places = reduce.sum(ops.lt(share, reshape_value(q, shape_of(q) + (1,) * (last + 1))), axis=-1)
    return rows, _pick(rows, ops.minimum(places, shape_of(rows)[-1] - 1), True)


def _quantile_function(original: Callable, passing: bool, hundred: bool) -> Callable:
    @implements(original)
    def function(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: Any = None,
    ) -> Any:  # fmt: skip
        return _quantile(a, q, axis, method, keepdims, weights, passing, out, hundred)

    return function


quantile: Callable[..., Any] = _quantile_function(np.quantile, passing=False, hundred=False)
percentile: Callable[..., Any] = _quantile_function(np.percentile, passing=False, hundred=True)
nanquantile: Callable[..., Any] = _quantile_function(np.nanquantile, passing=True, hundred=False)
nanpercentile: Callable[..., Any] = _quantile_function(np.nanpercentile, passing=True, hundred=True)

# Passing over NaN ----------------------------------------------------------------------------------------------------


def _numbers(a: Any, where: Any, fill: Any) -> tuple[Any, Any]:
    """The array with `fill` for NaN, and where to look: `where=` and not NaN."""
    a = operand(a)
    if type_of(a).dtype.kind not in "fc":
        return a, where
    mask, number = mask_of(where, shape_of(a)), ops.eq(a, a)
    a = ops.where(number, a, type_of(a).dtype.type(fill))
    return a, number if mask is None else ops.bitwise_and(mask, number)


@implements(np.nansum)
def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:  # fmt: skip
    return reduce.sum(_numbers(a, where, 0)[0], axis, dtype, out, keepdims, initial, where)


@implements(np.nanprod)
def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:  # fmt: skip
    return reduce.prod(_numbers(a, where, 1)[0], axis, dtype, out, keepdims, initial, where)


@implements(np.nanmean)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = _MISSING
) -> Any:  # fmt: skip
    a, where = _numbers(a, where, 0)
    axis = axis if where is _MISSING else reduced_axes(axis, len(shape_of(a)))  # of integers it is `mean`
    return reduce.mean(a, axis, dtype, out, keepdims, where=where)


@implements(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = _MISSING, mean: Any = _MISSING, correction: Any = _MISSING,
) -> Any:  # fmt: skip
    whole = type_of(operand(a)).dtype.kind not in "fc"
    a, where = _numbers(a, where, 0)
    axis = axis if whole else reduced_axes(axis, len(shape_of(a)))
    result = reduce.var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    if whole:
        return result
    # Too few numbers: NaN, where `var` may say infinity.
    freedom = ops.sub(reduce.sum(where, axis=axis, keepdims=keepdims), ddof if correction is _MISSING else correction)
    return ops.where(ops.le(freedom, 0), type_of(result).dtype.type(np.nan), result)


@implements(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = _MISSING, mean: Any = _MISSING, correction: Any = _MISSING,
) -> Any:  # fmt: skip
    return root(nanvar(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction))


def _nan_maximum(a: Any, axis: Any, keepdims: Any, initial: Any, where: Any, name: str) -> Any:
    filled, number = _numbers(a, where, -np.inf)
    result = reduce.extremum(filled, axis, keepdims, initial, where, name)
    if type_of(a).dtype.kind not in "fc" or given(initial):
        return result
    found = reduce.any(number, axis=axis, keepdims=keepdims)
    return ops.where(found, result, type_of(result).dtype.type(np.nan))


@implements(np.nanmax)
def nanmax(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING, where: Any = _MISSING
) -> Any:
    reduce.no_out(out, "nanmax")
    return _nan_maximum(operand(a), axis, keepdims, initial, where, "fmax")


@implements(np.nanmin)
def nanmin(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING, where: Any = _MISSING
) -> Any:
    reduce.no_out(out, "nanmin")
    a = operand(a)
    initial = flip_order(as_dtype(initial, type_of(a).dtype)) if given(initial) else initial
    return flip_order(_nan_maximum(flip_order(a), axis, keepdims, initial, where, "fmin"))


def _nan_place(a: Any, axis: Any, keepdims: Any, name: str) -> Any:
    filled, number = _numbers(a, True, -np.inf)
    if number is not True and type_of(a).size:
        found = known(reduce.any(number, axis=axis))
        if found is not None and not np.all(found):
            raise ValueError("All-NaN slice encountered")
    return place_of_maximum(filled, axis, keepdims, name)


@implements(np.nanargmax)
def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    reduce.no_out(out, "nanargmax")
    return _nan_place(operand(a), axis, keepdims, "argmax")


@implements(np.nanargmin)
def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    reduce.no_out(out, "nanargmin")
    return _nan_place(flip_order(operand(a)), axis, keepdims, "argmin")


reduce.ufunc_reduce(np.fmax, nanmax)
reduce.ufunc_reduce(np.fmin, nanmin)
