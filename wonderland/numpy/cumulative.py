"""NumPy's cumulative sums, products and extrema on traced arrays, and the differences that undo them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.join import concatenate
from wonderland.numpy.missing import np
from wonderland.numpy.reduce import accumulating, as_dtype, flip_order, no_out, operand, ufunc_method
from wonderland.numpy.shape import broadcast_to, normalize_axis, one_axis, reshape_value
from wonderland.ops import cumulative
from wonderland.ops import elementwise as ops
from wonderland.ops.index import slice as part


def between(a: Any, axis: int, start: int, stop: int) -> Any:
    """The elements from `start` to `stop` along an axis."""
    whole = [slice(0, n, 1) for n in shape_of(a)]
    whole[axis] = slice(start, max(start, stop), 1)
    return part(a, index=tuple(whole))


def _along(primitive: Callable, a: Any, axis: Any) -> Any:
    """A cumulative operation along an axis, or over the flattened array."""
    a, axis = one_axis(a, axis)
    return primitive(a, axis=axis, reverse=False)


@implements(np.cumsum, method="cumsum")
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    no_out(out, "cumsum")
    return _along(cumulative.cumsum, accumulating(a, dtype), axis)


@implements(np.cumprod, method="cumprod")
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    no_out(out, "cumprod")
    return _along(cumulative.cumprod, accumulating(a, dtype), axis)


def _numbers(a: Any, unit: Any) -> Any:
    """NaN counts as the identity; the derivative there is zero."""
    a = operand(a)
    return a if type_of(a).dtype.kind not in "fc" else ops.where(ops.ne(a, a), type_of(a).dtype.type(unit), a)


@implements(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return cumsum(_numbers(a, 0), axis, dtype, out)


@implements(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return cumprod(_numbers(a, 1), axis, dtype, out)


def _standard(primitive: Callable, unit: int, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    """The array API's cumulative functions: an axis, and the identity in front if asked for."""
    x = accumulating(x, dtype)
    x = x if shape_of(x) else reshape_value(x, (1,))
    rank = len(shape_of(x))
    if axis is None:
        if rank > 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    axis = normalize_axis(axis, rank)
    out = primitive(x, axis=axis, reverse=False)
    if not include_initial:
        return out
    first = np.full([1 if i == axis else n for i, n in enumerate(shape_of(x))], unit, type_of(x).dtype)
    return concatenate([first, out], axis)


@implements(np.cumulative_sum)
def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    no_out(out, "cumulative_sum")
    return _standard(cumulative.cumsum, 0, x, axis, dtype, include_initial)


@implements(np.cumulative_prod)
def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    no_out(out, "cumulative_prod")
    return _standard(cumulative.cumprod, 1, x, axis, dtype, include_initial)


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    a = operand(a)
    if not shape_of(a):
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis(axis, len(shape_of(a)))
    ends = [_end(x, shape_of(a), axis) for x in (prepend, append)]
    if any(e is not None for e in ends):
        a = concatenate([x for x in (ends[0], a, ends[1]) if x is not None], axis)
    subtract = ops.ne if type_of(a).dtype == bool else ops.sub
    for _ in range(n):
        extent = shape_of(a)[axis]
        a = subtract(between(a, axis, 1, extent), between(a, axis, 0, max(extent - 1, 0)))
    return a


def _end(x: Any, shape: tuple, axis: int) -> Any:
    """What is put before or after the array: a number stands for one slice of them."""
    if x is np._NoValue:
        return None
    x = operand(x)
    return x if shape_of(x) else broadcast_to(x, tuple(1 if i == axis else n for i, n in enumerate(shape)))


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    ary = operand(ary)
    parts = [diff(reshape_value(ary, (type_of(ary).size,)))]
    for name, x in (("to_begin", to_begin), ("to_end", to_end)):
        if x is None:
            continue
        kind = type_of(operand(x))
        if not kind.weak and not np.can_cast(kind.dtype, type_of(ary).dtype, "same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule.")
        x = as_dtype(reshape_value(operand(x), (kind.size,)), type_of(ary).dtype)
        parts = [x, *parts] if name == "to_begin" else [*parts, x]
    return concatenate(parts, 0) if len(parts) > 1 else parts[0]


# np.add.accumulate and its like --------------------------------------------------------------------------------------


def _cummin(a: Any, axis: int, reverse: bool) -> Any:
    return flip_order(cumulative.cummax(flip_order(a), axis=axis, reverse=reverse))


def _cumulative_logaddexp(a: Any, axis: int, reverse: bool) -> Any:
    """By doubling: after step d each element holds the last 2 d ones. Shifting by one maximum would underflow."""
    extent, step = shape_of(a)[axis], 1
    while step < extent:
        later, earlier = between(a, axis, step, extent), between(a, axis, 0, extent - step)
        joined = unwrap(np.logaddexp(Tracer(later), Tracer(earlier)))  # type: ignore[arg-type]
        a = concatenate([between(a, axis, 0, step), joined], axis)
        step *= 2
    return a


def _ufunc_accumulate(ufunc: np.ufunc, primitive: Callable, sums: bool = False) -> None:
    @ufunc_method(ufunc, "accumulate")
    def accumulate(array: Any, axis: int = 0, dtype: Any = None) -> Any:
        a = accumulating(array, dtype) if sums else operand(array)
        if not shape_of(a):
            raise TypeError("cannot accumulate on a scalar")
        return _along(primitive, a if dtype is None else as_dtype(a, dtype), axis)


_ufunc_accumulate(np.add, cumulative.cumsum, sums=True)
_ufunc_accumulate(np.multiply, cumulative.cumprod, sums=True)
_ufunc_accumulate(np.maximum, cumulative.cummax)
_ufunc_accumulate(np.minimum, _cummin)
_ufunc_accumulate(np.logaddexp, _cumulative_logaddexp)
