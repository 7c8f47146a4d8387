"""Sliding windows, convolution and polynomials on traced arrays.

A convolution of n with m <= n elements is one `dot` with the n x m matrix of windows, which is a view: it takes n m
multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonderland.core.tracer import Tracer
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.composed import composed
from wonderland.numpy.construct import asarray
from wonderland.numpy.dispatch import implements, make_view, on_handles
from wonderland.numpy.join import concatenate
from wonderland.numpy.missing import np
from wonderland.numpy.products import as_value, take_index
from wonderland.numpy.shape import normalize_axis, reshape_value
from wonderland.ops import elementwise as ops
from wonderland.ops.dot import dot
from wonderland.ops.windows import windows


def sliding_windows(x: Any, sizes: Sequence[int], axes: Sequence[int]) -> Any:
    """All windows of these sizes along distinct axes, in new last axes."""
    ones = (1,) * len(axes)
    none = ((0, 0),) * len(axes)
    return windows(x, axes=tuple(axes), sizes=tuple(sizes), strides=ones, dilations=ones, padding=none)


@on_handles(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Tracer, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tracer:
    """NumPy's `sliding_window_view`: a read-only view, which sees later writes to its base."""
    if writeable:
        raise TypeError(
            "sliding_window_view of a traced array is read-only: windows overlap; write to the array itself"
        )
    sizes = tuple(window_shape) if isinstance(window_shape, (tuple, list)) else (window_shape,)
    if any(size < 0 for size in sizes):
        raise ValueError("`window_shape` cannot contain negative values")
    if axis is None:
        axes = tuple(range(x.ndim))
    else:
        axes = tuple(normalize_axis(a, x.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(sizes) != len(axes):
        what = "for all dimensions of `x`" if axis is None else "and axis must have the same length"
        raise ValueError(f"window_shape {sizes} must be given {what}: there are {len(axes)} axes")
    left = list(x.shape)
    for size, a in zip(sizes, axes, strict=True):
        if left[a] < size:
            raise ValueError(f"window shape cannot be larger than input array shape: {sizes} and {x.shape}")
        left[a] -= size - 1

    def get(value: Any) -> Any:
        if len({*axes}) == len(axes):
            return sliding_windows(value, sizes, axes)
        for size, a in zip(sizes, axes, strict=True):  # windows of windows
            value = sliding_windows(value, (size,), (a,))
        return value

    def put(box: list, new: Any) -> Any:
        raise ValueError("assignment destination is read-only: sliding windows overlap; write to the array itself")

    return make_view(x, get, put)


# Convolution ---------------------------------------------------------------------------------------------------------

_MODES = {0: "valid", 1: "same", 2: "full"}


def _correlated(a: Any, v: Any, mode: Any) -> Any:
    """The convolution of a with the shorter v, cut as NumPy cuts it (v is reversed already for a correlation)."""
    mode = _MODES.get(mode, mode)
    if mode not in _MODES.values():
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    m = shape_of(v)[0]
    before, after = {"valid": (0, 0), "same": (m // 2, m - m // 2 - 1), "full": (m - 1, m - 1)}[mode]
    if before or after:
        zeros = [np.zeros(count, type_of(a).dtype) for count in (before, after)]
        a = concatenate([zeros[0], a, zeros[1]])
    return dot(sliding_windows(a, (m,), (0,)), _reversed(v), contract=((1,), (0,)), batch=((), ()))


def _sequence(x: Any, name: str) -> Any:
    x = as_value(x)
    if len(shape_of(x)) > 1:
        raise ValueError(
            f"object too deep for desired array: {name} has shape {shape_of(x)}, and must have 1 dimension"
        )
    return reshape_value(x, (type_of(x).size,))


def _reversed(x: Any) -> Any:
    n = shape_of(x)[0]
    return take_index(x, 0, slice(n - 1, None, -1)) if n > 1 else x


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    a, v = _sequence(a, "a"), _sequence(v, "v")
    if shape_of(v)[0] > shape_of(a)[0]:
        a, v = v, a
    for x, name in ((a, "a"), (v, "v")):
        if not shape_of(x)[0]:
            raise ValueError(f"{name} cannot be empty")
    return _correlated(a, v, mode)


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    a, v = _sequence(a, "a"), _sequence(v, "v")
    for x, name in ((a, "first"), (v, "second")):
        if not shape_of(x)[0]:
            raise ValueError(f"{name} array argument cannot be empty")
    v = ops.conjugate(v)
    if shape_of(v)[0] > shape_of(a)[0]:
        return _reversed(_correlated(v, _reversed(a), mode))
    return _correlated(a, _reversed(v), mode)


# Polynomials: coefficients from the highest power to the constant -----------------------------------------------------


def _coefficients(p: Any) -> Any:
    p = asarray(p)
    return p.reshape(1) if p.ndim == 0 else p


@composed(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """NumPy's `polyval`: Horner's rule."""
    p, x = _coefficients(p), asarray(x)
    y = np.zeros_like(x)
    for i in range(len(p)):
        y = y * x + p[i]
    return y


def _padded(a1: Any, a2: Any) -> tuple[Any, Any]:
    a1, a2 = _coefficients(a1), _coefficients(a2)
    short = max(len(a1), len(a2))
    return tuple(np.concatenate([np.zeros(short - len(a), a.dtype), a]) for a in (a1, a2))  # type: ignore[return-value]


@composed(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    """NumPy's `polyadd`, on traced arrays too."""
    a1, a2 = _padded(a1, a2)
    return a1 + a2


@composed(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    """NumPy's `polysub`, on traced arrays too."""
    a1, a2 = _padded(a1, a2)
    return a1 - a2


@composed(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    """NumPy's `polymul`; leading zeros are kept, because a shape can't depend on traced values."""
    return np.convolve(_coefficients(a1), _coefficients(a2))


@composed(np.polyder)
def polyder(p: Any, m: int = 1) -> Any:
    """NumPy's `polyder`, on traced arrays too."""
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    p = asarray(p)
    for _ in range(m):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1) if len(p) else p
    return p


@composed(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """NumPy's `polyint`, on traced arrays too."""
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = asarray(0.0 if k is None else k)
    if constants.size == 1 and m > 1:
        constants = constants.reshape(1) * np.ones(m, int)
    constants = constants.reshape(-1)
    if len(constants) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    p = asarray(p)
    for i in range(m):
        p = np.concatenate([p / np.arange(len(p), 0, -1), constants[i : i + 1]])
    return p


@composed(np.poly)
def poly(seq_of_zeros: Any) -> Any:
    """NumPy's `poly`: the coefficients of the polynomial with these roots (complex roots give complex coefficients)."""
    roots = _coefficients(seq_of_zeros)
    if roots.ndim == 2 and roots.shape[0] == roots.shape[1]:
        roots = np.linalg.eigvals(roots)
    if roots.ndim != 1:
        raise ValueError(f"input must be 1d or non-empty square 2d array, got shape {roots.shape}")
    roots = roots.astype(np.mintypecode(roots.dtype.char))  # integers become floats
    out = np.ones(1, roots.dtype)
    for i in range(len(roots)):
        out = np.convolve(out, np.stack([np.ones((), roots.dtype), -roots[i]]))
    return out


@composed(np.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """NumPy's `vander`: powers of x as columns."""
    x = asarray(x)
    if x.ndim != 1:
        raise ValueError(f"x must be a one-dimensional array or sequence, got shape {x.shape}")
    x = x.astype(np.promote_types(x.dtype, int))
    columns = [np.ones_like(x)]
    for _ in range((len(x) if N is None else N) - 1):
        columns.append(columns[-1] * x)
    if N == 0 or (N is None and not len(x)):
        return np.zeros((len(x), 0), x.dtype)
    return np.stack(columns if increasing else columns[::-1], axis=1)


@composed(np.polyfit)
def polyfit(
    x: Any, y: Any, deg: Any, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """NumPy's `polyfit`: the coefficients of the least-squares fit, differentiable in points, values and weights."""
    if full or cov:
        raise TypeError("np.polyfit on traced arrays returns the coefficients only: no full= and no cov=")
    order = int(deg) + 1
    x, y = asarray(x) + 0.0, asarray(y) + 0.0
    if order < 1:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError(f"expected 1D vector for x, got shape {x.shape}")
    if x.size == 0:
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
        raise TypeError(f"expected x and y to have same length, and y one or two dimensions: {x.shape} and {y.shape}")
    left = vander(x, order)
    if w is not None:
        w = asarray(w) + 0.0
        if w.shape != x.shape:
            raise TypeError(f"expected w and y to have the same length: {w.shape} and {y.shape}")
        left, y = left * w[:, None], y * (w[:, None] if y.ndim == 2 else w)
    scale = np.sqrt(np.sum(left * left, axis=0))
    rcond = len(x) * np.finfo(x.dtype).eps if rcond is None else rcond
    out = np.linalg.lstsq(left / scale, y, rcond)[0]
    return out / (scale[:, None] if y.ndim == 2 else scale)
