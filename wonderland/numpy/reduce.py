"""NumPy's reductions on traced arrays: sums, products, means, extrema, and the ufunc methods that reduce."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from wonderland.core.level import Traced
from wonderland.core.tracer import UFUNCS, Tracer
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import np
from wonderland.numpy.shape import broadcast_to, normalize_axes, normalize_axis, one_axis, reduced_axes, reshape_value
from wonderland.ops import elementwise as ops
from wonderland.ops import reduce
from wonderland.ops.index import gather, scatter
from wonderland.ops.shape import convert

_MISSING = np._NoValue


def is_ready(a: Any) -> bool:
    """Is it a traced array of floating-point numbers? Those are by far the most, and nothing is to be converted."""
    return isinstance(a, Traced) and a.shape != () and a.dtype.kind in "fc"


def operand(a: Any) -> Any:
    """What a function that isn't elementwise computes with: lists are arrays, Python scalars are NumPy's."""
    if is_ready(a):
        return a
    if isinstance(a, (list, tuple)):
        a = as_value(a)
    return as_dtype(a, type_of(a).dtype) if type_of(a).weak else a


def as_dtype(a: Any, dtype: Any) -> Any:
    """Converted, if need be; Python scalars become NumPy's."""
    kind = type_of(a)
    return a if kind.dtype == dtype and not kind.weak else convert(a, dtype=np.dtype(dtype))


def accumulating(a: Any, dtype: Any) -> Any:
    """The operand in the dtype in which NumPy sums and multiplies: small integers in 64 bits."""
    if dtype is None and is_ready(a):
        return a
    if isinstance(a, (list, tuple)):
        a = operand(a)
    kind = type_of(a)
    if dtype is None:
        if kind.dtype.kind in "fc":
            return a if not kind.weak else as_dtype(a, kind.dtype)
        dtype = np.result_type(kind.dtype, np.uint64 if kind.dtype.kind == "u" else np.int64)
    return as_dtype(a, dtype)


def inexact(a: Any, dtype: Any = None) -> Any:
    """The operand in the dtype in which NumPy takes means: integers in float64."""
    if dtype is None and is_ready(a):
        return a
    return as_dtype(a, np.float64 if dtype is None and type_of(a).dtype.kind in "biu" else dtype or type_of(a).dtype)


def given(option: Any) -> bool:
    """Was an option given that NumPy defaults to its placeholder?"""
    return option is not _MISSING and option is not None


def known(x: Any) -> Any:
    """The plain value of an operand for checks, or None where it has none."""
    while isinstance(x, Traced):
        x = getattr(x, "primal", None)
    return x


def no_out(out: Any, name: str) -> None:
    """Refuse the `out=` of a method (that of a function is dealt with before)."""
    if out is not None:
        raise TypeError(f"the method {name} of traced arrays takes no out=; write out[...] = x.{name}(...)")


def kept(out: Any, shape: tuple[Any, ...], axes: tuple[int, ...], keepdims: Any) -> Any:
    """A reduced value, with the reduced axes put back as ones if asked for."""
    if keepdims is _MISSING or not keepdims:
        return out
    return reshape_value(out, reduce.flat_shape(shape, axes))


def fits(shape: tuple[Any, ...], goal: tuple[Any, ...]) -> bool:
    """Can an array of one shape be broadcast to the other?"""
    return len(shape) <= len(goal) and builtins.all(m in (1, n) for m, n in zip(shape[::-1], goal[::-1], strict=False))


def mask_of(where: Any, shape: tuple[Any, ...]) -> Any:
    """The option `where=` as a boolean array of a shape, or None if it is True."""
    if where is True or where is _MISSING:
        return None
    where = operand(where)
    if not fits(shape_of(where), shape):
        raise ValueError(f"where= of shape {shape_of(where)} can't be broadcast to the array's shape, {shape}")
    return broadcast_to(where if type_of(where).dtype == bool else ops.ne(where, 0), shape)


def _reduced(
    primitive: Callable, join: Callable, unit: Any, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any
) -> Any:
    """A reduction with an identity: what `where` leaves out counts as that, and `initial` joins in."""
    shape = shape_of(a)
    axes = reduced_axes(axis, len(shape))
    if where is not True and where is not _MISSING:
        a = ops.where(mask_of(where, shape), a, type_of(a).dtype.type(unit))
    out = primitive(a, axes=axes) if axes else a
    if given(initial):
        out = join(out, as_dtype(initial, type_of(a).dtype))
    return kept(out, shape, axes, keepdims)


@implements(np.sum, method="sum")
def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING,
    where: Any = True,
) -> Any:  # fmt: skip
    no_out(out, "sum")
    if axis is None and dtype is None and not keepdims and initial is _MISSING and where is True and is_ready(a):
        return reduce.sum(a, axes=tuple(range(len(a.shape))))  # the sum of everything, without detours
    return _reduced(reduce.sum, ops.add, 0, accumulating(a, dtype), axis, keepdims, initial, where)


@implements(np.prod, method="prod")
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING,
    where: Any = True,
) -> Any:  # fmt: skip
    no_out(out, "prod")
    return _reduced(reduce.prod, ops.mul, 1, accumulating(a, dtype), axis, keepdims, initial, where)


def counted(shape: tuple[Any, ...], axes: tuple[int, ...], where: Any, keepdims: Any, dtype: Any) -> Any:
    """How many elements a mean is over: a Python number, or with a mask an array of the result's shape."""
    mask = mask_of(where, shape)
    if mask is None:
        return float(math.prod(shape[i] for i in axes))
    return as_dtype(sum(mask, axis=axes, keepdims=keepdims), np.zeros((), dtype).real.dtype)


@implements(np.mean, method="mean")
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    no_out(out, "mean")
    a = operand(a)
    small = dtype is None and a.dtype == np.float16  # summed in float32
    a = inexact(a, np.float32 if small else dtype)
    shape = shape_of(a)
    axes = normalize_axes(axis, len(shape))
    total = _reduced(reduce.sum, ops.add, 0, a, axes, keepdims, _MISSING, where)
    out = ops.div(total, counted(shape, axes, where, keepdims, a.dtype))
    goal = np.dtype(np.float16) if small else a.dtype
    return out if out.dtype is goal and goal.kind in "fc" else as_dtype(out, goal)


@implements(np.var, method="var")
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = _MISSING, correction: Any = _MISSING,
) -> Any:  # fmt: skip
    no_out(out, "var")
    if correction is not _MISSING:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    a = inexact(operand(a), dtype)
    axes = normalize_axes(axis, len(shape_of(a)))
    count = counted(shape_of(a), axes, where, keepdims, type_of(a).dtype)
    centre = _mean(a, axis=axes, keepdims=True, where=where) if mean is _MISSING else mean
    squares = absolute_square(ops.sub(a, centre))
    total = sum(squares, axis=axes, keepdims=keepdims, where=where)
    # Not below zero: with too few elements the variance is infinite or NaN, as NumPy's.
    if isinstance(count, float) and not isinstance(ddof, Traced):
        freedom = builtins.max(count - ddof, 0.0)
    else:
        freedom = ops.maximum(ops.sub(count, ddof), 0.0)
    return as_dtype(ops.div(total, freedom), type_of(total).dtype)


_mean = mean


def absolute_square(x: Any) -> Any:
    """|x|^2, real."""
    return ops.real(ops.mul(x, ops.conj(x))) if type_of(x).dtype.kind == "c" else ops.mul(x, x)


def root(variance: Any) -> Any:
    """The square root of a variance; its derivative at zero is zero, as the norm's (of the deviations) is."""
    nothing = ops.eq(variance, 0)
    number = type_of(variance).dtype.type
    return ops.where(nothing, number(0), ops.sqrt(ops.where(nothing, number(1), variance)))


@implements(np.std, method="std")
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = _MISSING, correction: Any = _MISSING,
) -> Any:  # fmt: skip
    no_out(out, "std")
    return root(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


def extremum(a: Any, axis: Any, keepdims: Any, initial: Any, where: Any, name: str) -> Any:
    """The maximum of an array. Without an identity of its own it needs `initial` for what there is not."""
    a = operand(a)
    shape = shape_of(a)
    axes = reduced_axes(axis, len(shape))
    mask = mask_of(where, shape)
    if not given(initial):
        if mask is not None:
            raise ValueError(
                f"reduction operation '{name}' does not have an identity, so to use a where mask one has to specify "
                "'initial'"
            )
        return kept(reduce.max(a, axes=axes), shape, axes, keepdims) if axes else a
    initial = as_dtype(initial, type_of(a).dtype)
    out = broadcast_to(initial, reduce.kept_shape(shape, axes))
    if math.prod(shape):
        a = a if mask is None else ops.where(mask, a, initial)
        out = ops.maximum(reduce.max(a, axes=axes) if axes else a, initial)
    return kept(out, shape, axes, keepdims)


def flip_order(a: Any) -> Any:
    """An operation that reverses the order and is its own inverse, so that minima are maxima."""
    return ops.neg(a) if type_of(a).dtype.kind in "fc" else ops.invert(a)


@implements(np.max, np.amax, method="max")
def max(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING, where: Any = True
) -> Any:
    no_out(out, "max")
    return extremum(a, axis, keepdims, initial, where, "maximum")


@implements(np.min, np.amin, method="min")
def min(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _MISSING, where: Any = True
) -> Any:
    no_out(out, "min")
    a = operand(a)
    initial = flip_order(as_dtype(initial, type_of(a).dtype)) if given(initial) else initial
    return flip_order(extremum(flip_order(a), axis, keepdims, initial, where, "minimum"))


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    no_out(out, "ptp")
    return ops.sub(max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims))


@implements(np.any, method="any")
def any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    no_out(out, "any")
    return ops.gt(sum(ops.ne(operand(a), 0), axis=axis, keepdims=keepdims, where=where), 0)


@implements(np.all, method="all")
def all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    no_out(out, "all")
    return ops.eq(sum(ops.eq(operand(a), 0), axis=axis, keepdims=keepdims, where=where), 0)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    return sum(ops.ne(operand(a), 0), axis=axis, keepdims=keepdims)


def place_of_maximum(a: Any, axis: Any, keepdims: Any, name: str = "argmax") -> Any:
    """The first place of the maximum, along an axis or in the flattened array."""
    shape = shape_of(a)
    a, where = one_axis(a, axis)
    axes = reduced_axes(axis, len(shape))
    if shape_of(a)[where] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    return kept(reduce.argmax(a, axes=(where,)), shape, axes, keepdims)


@implements(np.argmax, method="argmax")
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    no_out(out, "argmax")
    return place_of_maximum(operand(a), axis, keepdims)


@implements(np.argmin, method="argmin")
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    no_out(out, "argmin")
    return place_of_maximum(flip_order(operand(a)), axis, keepdims, "argmin")


# Methods of ufuncs ---------------------------------------------------------------------------------------------------


def ufunc_method(ufunc: np.ufunc, name: str) -> Callable:
    """Register a function of values as a method of a ufunc: np.add.reduce, np.multiply.accumulate."""

    def register(f: Callable) -> Callable:
        def method(*args: Any, **kwargs: Any) -> Any:
            if len(args) > 1:
                kwargs.pop("indices", None)  # NumPy hands reduceat's indices= over twice
            values = [a._get() if isinstance(a, Tracer) else a for a in args]
            options = {k: v._get() if isinstance(v, Tracer) else v for k, v in kwargs.items()}
            return Tracer(f(*values, **options))

        UFUNCS[ufunc, name] = method
        return f

    return register


def ufunc_reduce(ufunc: np.ufunc, f: Callable) -> None:
    """Register a reduction as a ufunc's, which is along axis 0 if nothing else is said."""

    def reduction(array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False, **options: Any) -> Any:
        array = operand(array) if dtype is None else as_dtype(array, dtype)
        return f(array, axis=axis, keepdims=keepdims, **options)

    ufunc_method(ufunc, "reduce")(reduction)


def _logical(f: Callable, join: Callable) -> Callable:
    """`any` and `all` know no initial value; the ufuncs do."""

    def reduction(a: Any, axis: Any, keepdims: Any, initial: Any = _MISSING, where: Any = True) -> Any:
        result = f(a, axis=axis, keepdims=keepdims, where=where)
        return join(result, ops.ne(operand(initial), 0)) if given(initial) else result

    return reduction


def _parity(a: Any, axis: Any, keepdims: Any, initial: Any = _MISSING, where: Any = True) -> Any:
    count = sum(ops.ne(a, 0), axis=axis, keepdims=keepdims, where=where)
    odd = ops.ne(ops.bitwise_and(count, 1), 0)
    return ops.bitwise_xor(odd, ops.ne(operand(initial), 0)) if given(initial) else odd


def log_sum_exp(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = _MISSING, where: Any = True) -> Any:
    """The logarithm of a sum of exponentials, shifted by the maximum so that none overflows."""
    a = inexact(operand(a))
    mask = mask_of(where, shape_of(a))
    a = a if mask is None else ops.where(mask, a, -np.inf)
    axes = reduced_axes(axis, len(shape_of(a)))
    top = ops.stop_gradient(max(a, axis=axes, keepdims=True, initial=initial if given(initial) else -np.inf))
    top = ops.where(ops.eq(ops.sub(top, top), 0), top, type_of(a).dtype.type(0))  # infinities shift nothing
    total = sum(ops.exp(ops.sub(a, top)), axis=axes, keepdims=True)
    if given(initial):
        total = ops.add(total, ops.exp(ops.sub(as_dtype(initial, type_of(a).dtype), top)))
    out = ops.add(top, ops.log(total))
    return out if keepdims else reshape_value(out, reduce.kept_shape(shape_of(a), axes))


for _ufunc, _function in (
    (np.add, sum), (np.multiply, prod), (np.maximum, max), (np.minimum, min), (np.logaddexp, log_sum_exp),
    (np.logical_or, _logical(any, ops.bitwise_or)), (np.logical_and, _logical(all, ops.bitwise_and)),
    (np.logical_xor, _parity),
):  # fmt: skip
    ufunc_reduce(_ufunc, _function)


@ufunc_method(np.add, "reduceat")
def _add_reduceat(array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """The sum from each index up to the next one; the element itself where that isn't larger."""
    if not isinstance(indices, (np.ndarray, list, tuple)):
        raise TypeError("np.add.reduceat takes indices that are known: a plain array or list of integers")
    a = accumulating(array, dtype)
    axis = normalize_axis(axis, len(shape_of(a)))
    starts, extent = np.asarray(indices), shape_of(a)[axis]
    for start in starts[(starts < 0) | (starts >= extent)][:1]:
        raise IndexError(f"index {start} out-of-bounds in add.reduceat [0, {extent})")
    stops = np.maximum(np.append(starts[1:], extent), starts + 1)
    sources = np.concatenate([np.arange(i, j) for i, j in zip(starts, stops)] or [np.zeros(0, int)])
    segments = np.repeat(np.arange(len(starts)), stops - starts)
    rows = gather(a, sources, axes=(axis,))
    shape = tuple(len(starts) if i == axis else n for i, n in enumerate(shape_of(a)))
    return scatter(np.zeros(shape, type_of(a).dtype), segments, rows, axes=(axis,), mode="add")


def _outer(ufunc: np.ufunc) -> Callable:
    def outer(a: Any, b: Any, **kwargs: Any) -> Any:
        a, b = (x if isinstance(x, Tracer) else np.asarray(x) for x in (a, b))
        return ufunc(a.reshape(a.shape + (1,) * b.ndim), b, **kwargs)

    return outer


for _ufunc in [f for f in vars(np).values() if isinstance(f, np.ufunc) and f.signature is None]:
    if _ufunc.nin == 2 and _ufunc.nout == 1:
        UFUNCS[_ufunc, "outer"] = _outer(_ufunc)

from wonderland.numpy import cumulative as _cumulative  # noqa: E402, F401  (these register their functions)
from wonderland.numpy import sorting as _sorting  # noqa: E402, F401
from wonderland.numpy import statistics as _statistics  # noqa: E402, F401
