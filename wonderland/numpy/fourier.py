"""np.fft's functions on traced arrays, built of three primitives. Loaded when one of them meets a tracer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import np
from wonderland.numpy.shape import normalize_axis
from wonderland.ops import elementwise as ops
from wonderland.ops import fft as transforms
from wonderland.ops.index import scatter_slice
from wonderland.ops.index import slice as part
from wonderland.ops.shape import convert


def _norm(norm: Any) -> str:
    norm = "backward" if norm is None else norm
    if norm not in transforms.OTHER_SIDE:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return norm


def _array(a: Any, real: bool = False) -> Any:
    """An operand in the dtype that NumPy transforms: float32 and complex64 stay single, integers become double."""
    a = as_value(a)
    dtype = type_of(a).dtype
    spectrum: np.dtype = np.fft.fft(np.zeros(1, dtype)).dtype
    goal = np.dtype(spectrum.char.lower()) if real else spectrum
    if real and dtype.kind == "c":
        raise TypeError(f"the real transform of a complex array (dtype {dtype}); use np.fft.fft, or .real first")
    return a if dtype == goal else convert(a, dtype=goal)


def _resized(a: Any, axis: int, n: int) -> Any:
    """Cut off or filled up with zeros, to n elements along an axis."""
    shape = shape_of(a)
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    if n == shape[axis]:
        return a
    kept = tuple(slice(0, min(n, extent) if i == axis else extent, 1) for i, extent in enumerate(shape))
    if n < shape[axis]:
        return part(a, index=kept)
    zeros = np.zeros((*shape[:axis], n, *shape[axis + 1 :]), type_of(a).dtype)
    return scatter_slice(zeros, a, index=kept, mode="set")


def _sizes(a: Any, s: Any, axes: Any) -> tuple[list[int], list[int]]:
    """Sizes and axes of a transform along several axes, filled in as NumPy does."""
    shape = shape_of(a)
    rank = len(shape)
    if axes is None:
        axes = range(rank) if s is None else range(-len(s), 0)
    axes = [normalize_axis(i, rank) for i in axes]
    if s is None:
        return [shape[i] for i in axes], axes
    if len(s) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    return [shape[i] if n == -1 else int(n) for n, i in zip(s, axes, strict=True)], axes


def _transformed(a: Any, axes: Sequence[int], inverse: bool, norm: Any) -> Any:
    return transforms.fft(a, axes=tuple(axes), inverse=inverse, norm=_norm(norm)) if axes else a


def _along_one(inverse: bool) -> Callable:
    def transform(a: Any, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
        a = _array(a)
        axis = normalize_axis(axis, len(shape_of(a)))
        return _transformed(_resized(a, axis, shape_of(a)[axis] if n is None else n), (axis,), inverse, norm)

    return transform


def _along_several(inverse: bool, default: Any) -> Callable:
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = _array(a)
        sizes, axes = _sizes(a, s, axes)
        for axis in reversed(range(len(axes))):  # the last axis first, which matters when one is named twice
            a = _transformed(_resized(a, axes[axis], sizes[axis]), (axes[axis],), inverse, norm)
        return a

    return transform


for _inverse, _names in ((False, ("fft", "fft2", "fftn")), (True, ("ifft", "ifft2", "ifftn"))):
    implements(getattr(np.fft, _names[0]))(_along_one(_inverse))
    implements(getattr(np.fft, _names[1]))(_along_several(_inverse, (-2, -1)))
    implements(getattr(np.fft, _names[2]))(_along_several(_inverse, None))


@implements(np.fft.rfft)
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
    a = _array(a, real=True)
    axis = normalize_axis(axis, len(shape_of(a)))
    return transforms.rfft(_resized(a, axis, shape_of(a)[axis] if n is None else n), axis=axis, norm=_norm(norm))


@implements(np.fft.irfft)
def irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    a = _array(a)
    axis = normalize_axis(axis, len(shape_of(a)))
    n = 2 * (shape_of(a)[axis] - 1) if n is None else n
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    return transforms.irfft(_resized(a, axis, n // 2 + 1), axis=axis, n=n, norm=_norm(norm))


@implements(np.fft.hfft)
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
    return irfft(ops.conjugate(a), n, axis, transforms.OTHER_SIDE[_norm(norm)])


@implements(np.fft.ihfft)
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
    return ops.conjugate(rfft(a, n, axis, transforms.OTHER_SIDE[_norm(norm)]))


def _real_along_several(default: Any) -> Callable:
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = _array(a, real=True)
        sizes, axes = _sizes(a, s, axes)
        a = rfft(a, sizes[-1], axes[-1], norm)
        for n, axis in zip(sizes[:-1], axes[:-1], strict=True):
            a = _transformed(_resized(a, axis, n), (axis,), False, norm)
        return a

    return transform


def _inverse_real_along_several(default: Any) -> Callable:
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = _array(a)
        sizes, axes = _sizes(a, s, axes)
        if s is None or s[-1] == -1:
            sizes[-1] = 2 * (shape_of(a)[axes[-1]] - 1)
        for n, axis in zip(sizes[:-1], axes[:-1], strict=True):
            a = _transformed(_resized(a, axis, n), (axis,), True, norm)
        return irfft(a, sizes[-1], axes[-1], norm)

    return transform


implements(np.fft.rfft2)(_real_along_several((-2, -1)))
implements(np.fft.rfftn)(_real_along_several(None))
implements(np.fft.irfft2)(_inverse_real_along_several((-2, -1)))
implements(np.fft.irfftn)(_inverse_real_along_several(None))


def _rolled(x: Any, axis: int, shift: int) -> Any:
    """The elements moved round by `shift` along an axis."""
    shape = shape_of(x)
    n = shape[axis]
    if not n or not shift % n:
        return x
    along = lambda start, stop: tuple(
        slice(start, stop, 1) if i == axis else slice(0, extent, 1) for i, extent in enumerate(shape)
    )
    shift %= n
    out = np.zeros(shape, type_of(x).dtype)
    out = scatter_slice(out, part(x, index=along(0, n - shift)), index=along(shift, n), mode="set")
    return scatter_slice(out, part(x, index=along(n - shift, n)), index=along(0, shift), mode="set")


def _shifted(x: Any, axes: Any, back: bool) -> Any:
    x = as_value(x)
    rank = len(shape_of(x))
    axes = range(rank) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
    for axis in (normalize_axis(i, rank) for i in axes):
        half = shape_of(x)[axis] // 2
        x = _rolled(x, axis, -half if back else half)
    return x


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    return _shifted(x, axes, back=False)


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Any:
    return _shifted(x, axes, back=True)
