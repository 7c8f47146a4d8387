"""Numerical analysis on traced arrays: finite differences, quadrature, interpolation, covariance, maps along axes.

Written in NumPy, on tracers (see `composed`). Decisions that NumPy takes by looking at values (are the points equally
spaced?) are taken only where they change nothing but rounding, so that shapes and Programs don't depend on values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.core.tracer import Tracer
from wonderland.numpy import polynomials as _polynomials  # noqa: F401  (registers its functions)
from wonderland.numpy.composed import composed, fresh
from wonderland.numpy.construct import asarray
from wonderland.numpy.dispatch import has_tracer, namespace
from wonderland.numpy.missing import np
from wonderland.numpy.shape import normalize_axes, normalize_axis


def _is_traced(x: Any) -> bool:
    return isinstance(x, Tracer)


def _part(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """`x[start:stop]` along an axis."""
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop),)]


def _steps(x: Any, axis: int) -> Any:
    return _part(x, axis, 1, None) - _part(x, axis, None, -1)


def _along(values: Any, axis: int, rank: int) -> Any:
    """A 1-d array laid along one axis of `rank`."""
    return values.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))


def _float(x: Any) -> Any:
    """In floating point: integers become float64."""
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


@composed(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """NumPy's `trapezoid`, on traced arrays too."""
    y = asarray(y)
    axis = normalize_axis(axis, y.ndim)
    if x is not None:
        x = asarray(x)
        dx = _along(_steps(x, 0), axis, y.ndim) if x.ndim == 1 else _steps(x, axis)
    return np.sum(dx * (_part(y, axis, 1, None) + _part(y, axis, None, -1)) / 2.0, axis=axis)


# Finite differences --------------------------------------------------------------------------------------------------


@composed(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """NumPy's `gradient`, on traced arrays too: central differences inside, one-sided ones at the edges."""
    f = asarray(f)
    axes = normalize_axes(axis, f.ndim) if axis is None else tuple(
        normalize_axis(a, f.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))
    )  # fmt: skip
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    f = _float(f)
    out = []
    for a, h in zip(axes, _spacings(f, varargs, axes), strict=True):
        if f.shape[a] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are "
                f"required: axis {a} of shape {f.shape} has {f.shape[a]}"
            )
        out.append(_gradient(f, a, h, edge_order).astype(f.dtype))
    return out[0] if len(axes) == 1 else tuple(out)


def _spacings(f: Any, given: tuple, axes: tuple[int, ...]) -> list:
    """For each axis a step, or the steps between its points."""
    if len(given) == 0:
        return [1.0] * len(axes)
    if len(given) == 1 and np.ndim(given[0]) == 0:
        return [given[0]] * len(axes)
    if len(given) != len(axes):
        raise TypeError(f"invalid number of arguments: {len(given)} spacings for {len(axes)} axes")
    out = []
    for h, a in zip(given, axes, strict=True):
        if np.ndim(h) == 0:
            out.append(h)
            continue
        points = _float(asarray(h))
        if points.ndim != 1:
            raise ValueError("distances must be either scalars or 1d")
        if len(points) != f.shape[a]:
            raise ValueError(
                f"when 1d, distances must match the length of the corresponding dimension: {len(points)} points for "
                f"axis {a} of shape {f.shape}"
            )
        steps = _steps(points, 0)
        equal = not _is_traced(steps) and bool(np.all(steps == steps[0]))
        out.append(steps[0] if equal else steps)
    return out


def _gradient(f: Any, axis: int, h: Any, edge_order: int) -> Any:
    def at(start: int | None, stop: int | None) -> Any:
        return _part(f, axis, start, stop)

    uniform = np.ndim(h) == 0
    left, right = (h, h) if uniform else (_along(h[:-1], axis, f.ndim), _along(h[1:], axis, f.ndim))
    if uniform:
        inside = (at(2, None) - at(None, -2)) / (2.0 * h)
    else:
        a = -right / (left * (left + right))
        b = (right - left) / (left * right)
        c = left / (right * (left + right))
        inside = a * at(None, -2) + b * at(1, -1) + c * at(2, None)
    first, second = (h, h) if uniform else (h[0], h[min(1, len(h) - 1)])
    last, before = (h, h) if uniform else (h[-1], h[max(-2, -len(h))])
    if edge_order == 1:
        low = (at(1, 2) - at(0, 1)) / first
        high = (at(-1, None) - at(-2, -1)) / last
    else:
        low = _edge(first, second, at(0, 1), at(1, 2), at(2, 3))
        high = -_edge(last, before, at(-1, None), at(-2, -1), at(-3, -2))
    return np.concatenate([low, inside, high], axis=axis)


def _edge(h: Any, k: Any, f0: Any, f1: Any, f2: Any) -> Any:
    """The one-sided derivative of second order, from values at distances 0, h and h + k."""
    return -(2 * h + k) / (h * (h + k)) * f0 + (h + k) / (h * k) * f1 - h / (k * (h + k)) * f2


@composed(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """NumPy's `unwrap`: jumps of more than half a period are taken out. The derivative is the identity."""
    p = asarray(p)
    if p.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis(axis, p.ndim)
    d = _steps(p, axis)
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(d.dtype, period.dtype if _is_traced(period) else period)
    integers = dtype.kind in "iu"
    high = period // 2 if integers else period / 2
    wrapped = np.mod(d + high, period) - high
    if not integers or period % 2 == 0:  # a jump of exactly half a period keeps its sign
        wrapped = np.where((wrapped == -high) & (d > 0), high, wrapped)
    correction = np.where(np.abs(d) < discont, 0, wrapped - d)
    rest = _part(p, axis, 1, None) + np.cumsum(correction, axis=axis)
    return np.concatenate([_part(p, axis, 0, 1), rest], axis=axis).astype(dtype)


# Interpolation -------------------------------------------------------------------------------------------------------


@composed(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """NumPy's `interp`, differentiable in x, xp and fp.

    At a point of `xp` the derivative with respect to x is that of the piece on its right, at the last point that of the
    piece on its left; outside it is 0.
    """
    x, xp, fp = asarray(x).astype(np.float64), asarray(xp).astype(np.float64), asarray(fp)
    fp = fp.astype(np.complex128 if fp.dtype.kind == "c" else np.float64)
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError(f"Data points must be 1-D sequences, got shapes {xp.shape} and {fp.shape}")
    if xp.shape != fp.shape:
        raise ValueError(f"fp and xp are not of the same length: {fp.shape[0]} and {xp.shape[0]}")
    if xp.size == 0:
        raise ValueError("array of sample points is empty")
    if period is not None:
        if not _is_traced(period) and period == 0:
            raise ValueError("period must be a non-zero value")
        period, left, right = abs(period), None, None
        x, xp = x % period, xp % period
        order = np.argsort(xp)
        xp, fp = _take(xp, order), _take(fp, order)
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    if len(xp) == 1:
        inside = fp[0] + 0 * x
    else:
        place = np.minimum(np.maximum(np.searchsorted(xp, x, side="right") - 1, 0), len(xp) - 2)
        x0, y0, x1, y1 = _take(xp, place), _take(fp, place), _take(xp, place + 1), _take(fp, place + 1)
        empty = x0 == x1  # only at the very end: elsewhere the search goes past such a piece
        weight = np.where(empty, 1.0, (x - x0) / np.where(empty, 1.0, x1 - x0))
        inside = y0 + weight * (y1 - y0)
    low, high = fp[0] if left is None else left, fp[-1] if right is None else right
    return np.where(x < xp[0], low, np.where(x > xp[-1], high, inside))


def _take(a: Any, indices: Any) -> Any:
    return namespace["take"](a, indices)


# Covariance ----------------------------------------------------------------------------------------------------------


@composed(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """NumPy's `cov`, on traced arrays too."""
    m = asarray(m)
    if m.ndim > 2:
        raise ValueError(f"m has more than 2 dimensions: shape {m.shape}")
    arrays = [m] if y is None else [m, asarray(y)]
    if arrays[-1].ndim > 2:
        raise ValueError(f"y has more than 2 dimensions: shape {arrays[-1].shape}")
    kind = np.dtype(dtype) if dtype is not None else np.result_type(*(a.dtype for a in arrays), np.float64)
    rows = []
    for i, a in enumerate(arrays):
        a = a.astype(kind).reshape((1, -1) if a.ndim < 2 else a.shape)
        columns = not rowvar and (m.ndim != 1 if i == 0 else a.shape[0] != 1)
        rows.append(a.T if columns else a)
    x = rows[0] if y is None else np.concatenate(rows, axis=0)
    if ddof is None:
        ddof = 0 if bias else 1
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            given = asarray(given).astype(np.float64)
            if given.shape != (x.shape[1],):
                raise ValueError(f"cov: weights of shape {given.shape} for {x.shape[1]} observations")
            weights = given if weights is None else weights * given
    if weights is None:
        centred, count = x - np.mean(x, axis=1, keepdims=True), max(x.shape[1] - ddof, 0)
        scaled = centred
    else:
        total = np.sum(weights)
        centred = x - np.sum(x * weights, axis=1, keepdims=True) / total
        scaled = centred * weights
        extra = 0.0 if ddof == 0 else ddof if aweights is None else ddof * np.sum(weights * aweights) / total
        count = total - extra
    return np.squeeze(scaled @ np.conj(centred.T) / count)


@composed(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """NumPy's `corrcoef`, on traced arrays too."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    places = np.arange(c.shape[0])
    deviations = np.sqrt(np.real(c[places, places]))
    c = c / deviations[:, None] / deviations[None, :]
    if c.dtype.kind == "c":
        return np.clip(np.real(c), -1, 1) + 1j * np.clip(np.imag(c), -1, 1)
    return np.clip(c, -1, 1)


# Functions along axes ------------------------------------------------------------------------------------------------


@composed(np.apply_along_axis)
def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """NumPy's `apply_along_axis`: a call for each 1-d slice. (`wl.vmap(func1d)` calls once, for all of them.)"""
    arr = asarray(arr)
    axis = normalize_axis(axis, arr.ndim)
    moved = np.moveaxis(arr, axis, -1)
    heads = moved.shape[:-1]
    if 0 in heads:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    results = [asarray(func1d(moved[place], *args, **kwargs)) for place in np.ndindex(heads)]
    out = np.stack(results).reshape(heads + results[0].shape)
    rank = results[0].ndim
    return np.moveaxis(out, tuple(range(len(heads), len(heads) + rank)), tuple(range(axis, axis + rank)))


@composed(np.apply_over_axes)
def apply_over_axes(func: Callable, a: Any, axes: Any) -> Any:
    """NumPy's `apply_over_axes`: a reduction over one axis after the other, keeping them."""
    value = asarray(a)
    rank = value.ndim
    for axis in axes if isinstance(axes, (tuple, list, np.ndarray)) else (axes,):
        axis = normalize_axis(axis, rank)
        result = func(value, axis)
        value = result if result.ndim == rank else np.expand_dims(result, axis)
        if value.ndim != rank:
            raise ValueError("function is not returning an array of the correct shape")
    return value


def vectorize(
    pyfunc: Any = None,
    otypes: Any = None,
    doc: str | None = None,
    excluded: Any = None,
    cache: bool = False,
    signature: str | None = None,
) -> Callable:
    """NumPy's `vectorize`, on traced arrays too: a call for each element. (`wl.vmap` calls once, for all of them.)

    NumPy offers no hook into its own class, which asks for plain arrays: this one is in `wonderland.numpy` only.
    """
    if pyfunc is None:  # a decorator with options
        return lambda f: vectorize(f, otypes, doc, excluded, cache, signature)
    plain = np.vectorize(pyfunc, otypes, doc, excluded, cache, signature)

    def function(*args: Any, **kwargs: Any) -> Any:
        if not has_tracer(args) and not has_tracer(tuple(kwargs.values())):
            return plain(*args, **kwargs)
        if excluded or signature or kwargs:
            raise TypeError(
                "np.vectorize on traced arrays takes no excluded=, signature= or keyword arguments: use wl.vmap, whose "
                "in_axes say which arguments are mapped"
            )
        arrays = [asarray(a) for a in args]
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        columns = [np.broadcast_to(a, shape).reshape(-1) for a in arrays]
        if not columns[0].size:
            raise ValueError("cannot call `vectorize` on size 0 inputs of traced arrays: the result's type is unknown")
        rows = [pyfunc(*(c[i] for c in columns)) for i in range(columns[0].size)]
        several = isinstance(rows[0], tuple)
        parts = zip(*rows, strict=True) if several else [rows]
        outs = [np.stack([asarray(r) for r in part]).reshape(shape) for part in parts]
        if otypes is not None:
            outs = [o.astype(t) for o, t in zip(outs, otypes, strict=True)]
        return fresh(tuple(outs) if several else outs[0])

    function.__name__, function.__doc__ = getattr(pyfunc, "__name__", "vectorized"), doc or pyfunc.__doc__
    return function


namespace["vectorize"] = vectorize
