"""scipy.signal's convolutions on traced arrays. SciPy has no hook for them: write `wonderland.scipy.signal.convolve`.

A convolution of n with k elements is a product of n windows with the k elements reversed, or of two spectra.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.signal

from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy.arrange import pad
from wonderland.numpy.convolution import fast_length, fewer_by_transforms
from wonderland.numpy.dispatch import implements
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import complete
from wonderland.numpy.polynomials import sliding_windows
from wonderland.numpy.reduce import as_dtype
from wonderland.ops.dot import dot
from wonderland.ops.elementwise import conjugate, mul
from wonderland.ops.index import slice as part

scipy = complete(scipy, ("signal",))

_BOUNDARIES = {
    "fill": "constant", "pad": "constant", "wrap": "wrap", "circular": "wrap", "symm": "symmetric",
    "symmetric": "symmetric",
}  # fmt: skip


def _operands(in1: Any, in2: Any) -> tuple[Any, Any]:
    """Both in the dtype of the result: so are the spectra, and what is put around in1."""
    in1, in2 = as_value(in1), as_value(in2)
    dtype = promote(type_of(in1), type_of(in2))[0]
    in1, in2 = as_dtype(in1, dtype), as_dtype(in2, dtype)
    if len(shape_of(in1)) != len(shape_of(in2)):
        raise ValueError(
            f"in1 and in2 should have the same dimensionality: they have shapes {shape_of(in1)} and {shape_of(in2)}"
        )
    return in1, in2


def _reversed(x: Any) -> Any:
    return part(x, index=tuple(slice(n - 1, None, -1) if n else slice(0, 0, 1) for n in shape_of(x)))


def _sides(y: Any, mode: str) -> list[tuple[int, int]]:
    """How much is put around an array, along each axis, to convolve it with y: so much that nothing is cut off."""
    if mode == "same":
        return [(k - 1 - (k - 1) // 2, (k - 1) // 2) for k in shape_of(y)]
    return [(k - 1, k - 1) if mode == "full" else (0, 0) for k in shape_of(y)]


def _ordered(in1: Any, in2: Any, mode: str) -> tuple[Any, Any]:
    """The operand that has windows first: for "valid" it is at least as large along all axes."""
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"acceptable mode flags are 'valid', 'same', or 'full', not {mode!r}")
    m, n = shape_of(in1), shape_of(in2)
    if mode == "valid" and not all(a >= b for a, b in zip(m, n, strict=True)):
        if not all(a <= b for a, b in zip(m, n, strict=True)):
            raise ValueError(
                "For 'valid' mode, one must be at least as large as the other in every dimension: they have shapes "
                f"{m} and {n}"
            )
        return in2, in1
    return in1, in2


def _product(x: Any, y: Any) -> Any:
    """All windows of x, each times y reversed."""
    rank = len(shape_of(x))
    axes = tuple(range(rank))
    seen = sliding_windows(x, shape_of(y), axes)
    return dot(seen, _reversed(y), contract=(tuple(range(rank, 2 * rank)), axes), batch=((), ()))


def _by_transforms(x: Any, y: Any, mode: str) -> Any:
    shapes = list(zip(shape_of(x), shape_of(y), strict=True))
    axes, lengths = tuple(range(len(shapes))), [fast_length(n + k - 1) for n, k in shapes]
    real = type_of(x).dtype.kind == "f"
    forth, back = (np.fft.rfftn, np.fft.irfftn) if real else (np.fft.fftn, np.fft.ifftn)
    out = unwrap(back(forth(Tracer(x), lengths, axes) * forth(Tracer(y), lengths, axes), lengths, axes))
    sides = _sides(y, mode)
    starts = [k - 1 - before for (_, k), (before, _) in zip(shapes, sides, strict=True)]
    extents = [n + before + after - k + 1 for (n, k), (before, after) in zip(shapes, sides, strict=True)]
    return part(out, index=tuple(slice(s, s + n, 1) for s, n in zip(starts, extents, strict=True)))


@implements(scipy.signal.convolve)
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """Along all axes; `method` is "direct", "fft" (direct for integers, which stay exact), or "auto"."""
    in1, in2 = _ordered(*_operands(in1, in2), mode)
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"Acceptable method flags are 'auto', 'direct', or 'fft', not {method!r}")
    m, n = shape_of(in1), shape_of(in2)
    if not m:
        return mul(in1, in2)
    if 0 in (*m, *n):
        return np.array([])
    if type_of(in1).dtype.kind in "fc" and method != "direct":
        length = math.prod(a + b for a, b in zip(m, n, strict=True))
        if method == "fft" or fewer_by_transforms(length, 3, math.prod(n) * length, 1):
            return _by_transforms(in1, in2, mode)
    if mode == "full" and math.prod(n) > math.prod(m):
        in1, in2, m, n = in2, in1, n, m
    return _product(pad(in1, _sides(in2, mode)), in2)


@implements(scipy.signal.correlate)
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """The convolution with in2 reversed and conjugated."""
    in1, in2 = _operands(in1, in2)
    return convolve(in1, conjugate(_reversed(in2)), mode, method)


def _two_axes(in1: Any, in2: Any, name: str) -> tuple[Any, Any]:
    in1, in2 = _operands(in1, in2)
    if len(shape_of(in1)) != 2:
        raise ValueError(f"{name} inputs must both be 2-D arrays: they have shapes {shape_of(in1)}, {shape_of(in2)}")
    return in1, in2


@implements(scipy.signal.convolve2d)
def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    """Along two axes, with `fillvalue` around in1, or in1 repeated ("wrap") or mirrored ("symm")."""
    in1, in2 = _ordered(*_two_axes(in1, in2, "convolve2d"), mode)
    return _within(in1, in2, _sides(in2, mode), boundary, fillvalue)


def _within(in1: Any, in2: Any, sides: list[tuple[int, int]], boundary: str, fillvalue: Any) -> Any:
    if boundary not in _BOUNDARIES:
        raise ValueError(f"Acceptable boundary flags are 'fill', 'wrap' and 'symm', not {boundary!r}")
    around = _BOUNDARIES[boundary]
    options = {"constant_values": fillvalue} if around == "constant" else {}
    return _product(pad(in1, sides, around, **options), in2)


@implements(scipy.signal.correlate2d)
def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    """As `convolve2d`, with in2 reversed and conjugated."""
    in1, in2 = _two_axes(in1, in2, "correlate2d")
    if _ordered(in1, in2, mode)[0] is in2:  # as SciPy does it, which conjugates the smaller one
        return _product(_reversed(in2), conjugate(in1))
    sides = [(before, after) for after, before in _sides(in2, mode)]  # SciPy's centre, of even extents, is another one
    return _within(in1, conjugate(_reversed(in2)), sides, boundary, fillvalue)
