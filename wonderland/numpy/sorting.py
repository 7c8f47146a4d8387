"""NumPy's sorting, searching and counting on traced arrays.

Partitions are sorted in full, which is one of the orders that NumPy allows itself. Places and counts are integers and
have no derivative; sorted values and weighted counts have one.
"""

from __future__ import annotations

from typing import Any

from wonderland.core.tracer import Tracer, concrete
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy.cumulative import diff
from wonderland.numpy.dispatch import implements, writing_method
from wonderland.numpy.missing import np
from wonderland.numpy.reduce import as_dtype, inexact, operand
from wonderland.numpy.reduce import known as value_of
from wonderland.numpy.reduce import max as maximum
from wonderland.numpy.reduce import min as minimum
from wonderland.numpy.reduce import sum as total
from wonderland.numpy.shape import broadcast_to, normalize_axis, one_axis, reshape_value
from wonderland.ops import elementwise as ops
from wonderland.ops import sort as order
from wonderland.ops.cumulative import take_along
from wonderland.ops.index import gather, scatter
from wonderland.ops.index import slice as part
from wonderland.ops.shape import convert

_KINDS = ("quicksort", "mergesort", "heapsort", "stable", "q", "m", "h", "s")


def _sortable(a: Any, axis: Any, kind: Any, fields: Any) -> tuple[Any, int]:
    """The operand, flattened if there is no axis, and the axis."""
    if fields is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")
    a = operand(a)
    if axis is None:
        return reshape_value(a, (type_of(a).size,)), 0
    return a, normalize_axis(axis, len(shape_of(a)))


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    a, axis = _sortable(a, axis, kind, order)
    return _sort(a, axis=axis)


_sort, _argsort = order.sort, order.argsort


@implements(np.argsort, method="argsort")
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    if not shape_of(operand(a)):  # NumPy's answer for a number, whatever the axis
        a = reshape_value(operand(a), (1,))
    a, axis = _sortable(a, axis, kind, order)
    return _argsort(a, axis=axis)


def _check_kth(kth: Any, extent: int) -> None:
    for k in np.atleast_1d(np.asarray(kth)):
        if k.dtype.kind not in "iu":
            raise TypeError("Partition index must be integer")
        if not -extent <= k < extent:
            raise ValueError(f"kth(={k + extent if k < 0 else k}) out of bounds ({extent})")


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    a, axis = _sortable(a, axis, None, order)
    _check_kth(kth, shape_of(a)[axis])
    return _sort(a, axis=axis)


@implements(np.argpartition, method="argpartition")
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    a, axis = _sortable(*one_axis(operand(a), axis), None, order)
    _check_kth(kth, shape_of(a)[axis])
    return _argsort(a, axis=axis)


def _sort_in_place(self: Tracer, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    self._replace(sort(self._get(), axis, kind, order))


def _partition_in_place(self: Tracer, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
    self._replace(partition(self._get(), kth, axis, kind, order))


writing_method("sort", _sort_in_place)
writing_method("partition", _partition_in_place)


@implements(np.sort_complex)
def sort_complex(a: Any) -> Any:
    out = sort(a, -1)
    kind = type_of(out).dtype
    return out if kind.kind == "c" else as_dtype(out, np.complex64 if kind.char in "bhBH" else np.complex128)


@implements(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Any:
    """By the last key, ties by the one before it, and so on: sorted stably by each, the last one last."""
    rows = list(keys) if isinstance(keys, (list, tuple)) else [_row(keys, i) for i in range(shape_of(keys)[0])]
    if not rows:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    rows = [operand(row) for row in rows]
    axis = normalize_axis(axis, len(shape_of(rows[0])))
    places = _argsort(rows[0], axis=axis)
    for row in rows[1:]:
        if shape_of(row) != shape_of(rows[0]):
            raise ValueError("all keys need to be the same shape")
        places = take_along(places, _argsort(take_along(row, places, axis), axis=axis), axis)
    return places


def _row(keys: Any, i: int) -> Any:
    return part(keys, index=(i, *(slice(0, n, 1) for n in shape_of(keys)[1:])))


@implements(np.searchsorted, method="searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    a, v = operand(a), operand(v)
    if len(shape_of(a)) != 1:
        raise ValueError("object too deep for desired array")
    if side not in ("left", "right"):
        raise ValueError(f"search side must be one of 'left' or 'right' (got {side!r})")
    if sorter is not None:
        sorter = operand(sorter)
        if shape_of(sorter) != shape_of(a):
            raise ValueError("sorter.size must equal len(a)")
        a = gather(a, sorter, axes=(0,))
    return order.searchsorted(a, v, side=side, rows=0)


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    x, bins = operand(x), operand(bins)
    if type_of(x).dtype.kind == "c":
        raise TypeError("x may not be complex")
    if len(shape_of(bins)) != 1:
        raise ValueError("object of too small depth for desired array")
    known, count, side = value_of(bins), shape_of(bins)[0], "left" if right else "right"
    steps = None if known is None else np.diff(known)
    if steps is not None and not (np.all(steps >= 0) or np.all(steps <= 0)):
        raise ValueError("bins must be monotonically increasing or decreasing")
    if count < 2 or (steps is not None and np.all(steps >= 0)):
        return order.searchsorted(bins, x, side=side, rows=0)
    backwards = part(bins, index=(slice(count - 1, None, -1),))
    falling = ops.sub(count, order.searchsorted(backwards, x, side=side, rows=0))
    if steps is not None:
        return falling
    ends = [part(bins, index=(i,)) for i in (0, count - 1)]
    return ops.where(ops.le(*ends), order.searchsorted(bins, x, side=side, rows=0), falling)


def _counted(places: Any, inside: Any, weights: Any, length: int) -> Any:
    """How many (or what weight) at each place; what isn't inside counts nothing."""
    if inside is not None:
        zero = type_of(weights).dtype.type(0)
        places, weights = ops.where(inside, places, 0), ops.where(inside, weights, zero)
    return scatter(np.zeros(length, type_of(weights).dtype), places, weights, axes=(0,), mode="add")


@implements(np.bincount)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    x = operand(x)
    if len(shape_of(x)) != 1:
        raise ValueError("object too deep for desired array" if shape_of(x) else "object of too small depth")
    if type_of(x).dtype.kind not in "biu":
        raise TypeError(f"Cannot cast array data from {type_of(x).dtype!r} to dtype('int64') according to rule 'safe'")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    known = np.asarray(concrete(x, "np.bincount (the length of its result depends on values)"))
    if known.size and known.min() < 0:
        raise ValueError("'list' argument must have no negative elements")
    length = max(int(known.max(initial=-1)) + 1, minlength)
    if weights is None:
        return np.bincount(known, minlength=minlength)
    weights = as_dtype(operand(weights), np.float64)
    if shape_of(weights) != shape_of(x):
        raise ValueError("The weights and list don't have the same length.")
    return _counted(known.astype(np.intp), None, weights, length)


def _edges(a: Any, bins: Any, span: Any, weights: Any) -> Any:
    """The borders of a histogram's bins, a vector."""
    if isinstance(bins, str):
        if weights is not None:
            raise TypeError("Automated estimation of the number of bins is not supported for weighted data")
        plain = concrete(a, f"the number of bins chosen by {bins!r}")
        bins = len(np.histogram_bin_edges(plain, bins, span)) - 1
    bins = operand(bins)
    if len(shape_of(bins)) == 1:
        known = value_of(bins)
        if known is not None and np.any(known[:-1] > known[1:]):
            raise ValueError("`bins` must increase monotonically, when an array")
        return bins
    if shape_of(bins):
        raise ValueError("`bins` must be 1d, when an array")
    count = int(concrete(bins, "the number of bins").__index__())
    if count < 1:
        raise ValueError("`bins` must be positive, when an integer")
    first, last = span or ((minimum(a), maximum(a)) if type_of(a).size else (0.0, 1.0))
    dtype = promote(type_of(inexact(a)), type_of(first), type_of(last))[0]
    first, last = as_dtype(first, dtype), as_dtype(last, dtype)
    same = ops.eq(first, last)
    first, last = ops.where(same, ops.sub(first, 0.5), first), ops.where(same, ops.add(last, 0.5), last)
    steps = np.arange(count + 1, dtype=type_of(first).dtype)
    inner = ops.add(ops.mul(steps, ops.div(ops.sub(last, first), float(count))), first)
    return ops.where(steps == count, last, inner)


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    a = operand(a)
    return _edges(reshape_value(a, (type_of(a).size,)), bins, range, weights)


@implements(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Any, Any]:
    a = operand(a)
    if weights is not None:
        weights = operand(weights)
        if shape_of(weights) != shape_of(a):
            raise ValueError("weights should have the same shape as a.")
        weights = reshape_value(weights, (type_of(a).size,))
    a = reshape_value(a, (type_of(a).size,))
    edges = _edges(a, bins, range, weights)
    count = shape_of(edges)[0] - 1
    first, last = (part(edges, index=(i,)) for i in (0, count))
    inside = ops.bitwise_and(ops.ge(a, first), ops.le(a, last))
    # The last bin is closed: what lies on the last border belongs to it.
    places = ops.minimum(ops.sub(order.searchsorted(edges, a, side="right", rows=0), 1), count - 1)
    each = broadcast_to(np.ones((), np.intp), shape_of(a)) if weights is None else weights
    counts = _counted(places, inside, each, count)
    if not density:
        return counts, edges
    widths = inexact(diff(edges))
    return ops.div(ops.div(convert(counts, dtype=np.dtype(float)), widths), total(counts)), edges
