"""Discrete Fourier transforms: `fft` of complex arrays along axes, `rfft` and `irfft` of real ones along one axis.

All are linear. The transpose of a transform is the transform in the other direction, with the normalisation on the
other side; in the half spectrum of real input, elements that stand for two (a frequency and its negative) count twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import mul
from wonderland.ops.pattern import as_type, blocks
from wonderland.ops.shape import convert
from wonderland.ops.work import transform

OTHER_SIDE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}  # of the normalisation


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a spectrum."""
    return np.result_type(dtype, np.complex64)


def _axes_pattern(primitive: Primitive) -> Any:
    """Each output element depends on all elements that differ from it along the transformed axes only."""

    def pattern(types: tuple[ArrayType, ...], params: dict) -> list:
        (x,) = types
        out = primitive.infer(as_type(x), **params)
        axes = set(params["axes"]) if "axes" in params else {params["axis"]}
        rank = x.ndim
        rest = tuple(i for i in range(rank) if i not in axes)
        order = (*rest, *sorted(axes))
        count = int(np.prod([x.shape[i] for i in rest]))
        m, n = out.size // max(count, 1), x.size // max(count, 1)
        rows = np.arange(out.size).reshape(out.shape).transpose(order).reshape(count, m)
        columns = np.arange(x.size).reshape(x.shape).transpose(order).reshape(count, n)
        return [blocks(rows, columns)]

    return pattern


def _checked(shape: tuple, axes: tuple[int, ...]) -> None:
    for axis in axes:
        if shape[axis] < 1:
            raise ValueError(f"Invalid number of FFT data points ({shape[axis]}) specified.")


def _fft_type(x: ArrayType, axes: tuple, inverse: bool, norm: str) -> ArrayType:
    _checked(x.shape, axes)
    return ArrayType(x.shape, x.dtype)


def _fft(x: Any, axes: tuple, inverse: bool, norm: Any) -> Any:
    return (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm)


# Complex to complex along several axes.
fft: Primitive = Primitive(
    "fft",
    _fft,
    _fft_type,
    linear=(0,),
    transpose=lambda ct, x, axes, inverse, norm: (fft(ct, axes=axes, inverse=not inverse, norm=OTHER_SIDE[norm]),),
    batch=lambda size, args, batched, axes, inverse, norm: fft(
        args[0], axes=tuple(a + 1 for a in axes), inverse=inverse, norm=norm
    ),
    cost=transform(lambda params: params["axes"]),
)
fft.pattern = _axes_pattern(fft)


def _doubled(spectrum: Any, axis: int, n: int, factor: float) -> Any:
    """The half spectrum of n real numbers, with the elements that stand for two frequencies multiplied."""
    shape = shape_of(spectrum)
    weights = np.full(shape[axis], factor, np.finfo(type_of(spectrum).dtype).dtype)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return mul(spectrum, weights.reshape([-1 if i == axis else 1 for i in range(len(shape))]))


def _replaced(shape: tuple, axis: int, extent: int) -> tuple:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _rfft_type(x: ArrayType, axis: int, norm: str) -> ArrayType:
    _checked(x.shape, (axis,))
    return ArrayType(_replaced(x.shape, axis, x.shape[axis] // 2 + 1), complex_dtype(x.dtype))


def _rfft_transpose(ct: Any, x: Linear, axis: int, norm: str) -> tuple:
    n = x.shape[axis]
    return (irfft(_doubled(ct, axis, n, 0.5), axis=axis, n=n, norm=OTHER_SIDE[norm]),)


# Real to the half spectrum of non-negative frequencies.
rfft: Primitive = Primitive(
    "rfft",
    lambda x, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
    _rfft_type,
    linear=(0,),
    transpose=_rfft_transpose,
    batch=lambda size, args, batched, axis, norm: rfft(args[0], axis=axis + 1, norm=norm),
    cost=transform(lambda params: (params["axis"],)),
)
rfft.pattern = _axes_pattern(rfft)


def _irfft_type(x: ArrayType, axis: int, n: int, norm: str) -> ArrayType:
    _checked((n,), (0,))
    if x.shape[axis] != n // 2 + 1:
        raise ValueError(f"irfft: a spectrum of {n} real numbers has {n // 2 + 1} elements, not {x.shape[axis]}")
    return ArrayType(_replaced(x.shape, axis, n), np.finfo(x.dtype).dtype)


def _irfft_transpose(ct: Any, x: Linear, axis: int, n: int, norm: str) -> tuple:
    out = _doubled(rfft(ct, axis=axis, norm=OTHER_SIDE[norm]), axis, n, 2.0)
    return (out if type_of(out).dtype == x.dtype else convert(out, dtype=x.dtype),)


# Its inverse: the half spectrum of n real numbers, of which the first (and for even n the last) element is taken real.
irfft: Primitive = Primitive(
    "irfft",
    lambda x, axis, n, norm: np.fft.irfft(x, n, axis=axis, norm=norm),
    _irfft_type,
    linear=(0,),
    transpose=_irfft_transpose,
    batch=lambda size, args, batched, axis, n, norm: irfft(args[0], axis=axis + 1, n=n, norm=norm),
    cost=transform(lambda params: (params["axis"],)),
)
irfft.pattern = _axes_pattern(irfft)
