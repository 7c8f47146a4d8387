"""Pooling layers: the maximum, mean or sum of windows, of a given number of regions, of all places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.tracer import unwrap
from wonderland.nn.arguments import array
from wonderland.nn.module import Module
from wonderland.nn.placing import placed, wrong_shape
from wonderland.numpy.pooling import max_pool, mean_pool, sum_pool
from wonderland.numpy.spatial import padding_pairs, per_axis
from wonderland.ops.reduce import first_max

Sizes = int | Sequence[int]


class _Pool(Module):
    """Windows of the spatial axes, which are the last, or before the channels."""

    rank: int = 0

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        *,
        channels_last: bool = False,
    ):
        self._begin(kernel_size, stride, padding, dilation, ceil_mode, channels_last)

    def _begin(
        self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, channels_last: bool
    ) -> None:
        rank = self.rank
        with placed(self):
            self.kernel_size: Any = per_axis(kernel_size, rank, "kernel_size")
            self.stride: Any = self.kernel_size if stride is None else per_axis(stride, rank, "stride")
            self.padding: Any = padding_pairs(padding, rank)
            self.dilation: Any = per_axis(dilation, rank, "dilation")
        self.ceil_mode: bool
        self.channels_last: bool
        self.ceil_mode, self.channels_last = bool(ceil_mode), bool(channels_last)

    def __call__(self, x: Any) -> Any:
        x = image(self, x)
        channels = "last" if self.channels_last else "first"
        sizes = self.kernel_size, self.stride, self.padding, self.dilation
        with placed(self):
            return self._pooled(x, sizes, {"ceil_mode": self.ceil_mode, "channels": channels})

    def _pooled(self, x: Any, sizes: tuple[Any, ...], options: dict[str, Any]) -> Any:
        raise NotImplementedError


def image(layer: Any, x: Any) -> Any:
    """The input of a layer that has `rank` spatial axes."""
    x = array(x)
    if x.ndim < layer.rank + layer.channels_last:
        spatial = ", ".join(("length",) if layer.rank == 1 else ("depth", "height", "width")[-layer.rank :])
        raise wrong_shape(layer, f"(..., {spatial}, channels)" if layer.channels_last else f"(..., {spatial})", x.shape)
    return x


class _MaxPool(_Pool):
    def _pooled(self, x: Any, sizes: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return max_pool(x, *sizes, **options)


class MaxPool1d(_MaxPool):
    """The maximum of each window: (..., n) becomes (..., m), as PyTorch's; the derivative goes to the first maximum.

    `stride` is `kernel_size` if it isn't given. m = (n + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1.
    With `ceil_mode` a last window may reach over the end. `channels_last=True` takes (..., n, channels).
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The maximum of each window of images: (..., h, w) becomes (..., h', w'). Arguments as of `MaxPool1d`."""

    rank = 2


class MaxPool3d(_MaxPool):
    """The maximum of each window of volumes: (..., d, h, w) becomes (..., d', h', w'). Arguments as of `MaxPool1d`."""

    rank = 3


class _SumPool(_Pool):
    def _pooled(self, x: Any, sizes: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return sum_pool(x, *sizes, **options)


class SumPool1d(_SumPool):
    """The sum of each window: (..., n) becomes (..., m). Arguments as of `MaxPool1d`; padding is zeros."""

    rank = 1


class SumPool2d(_SumPool):
    """The sum of each window of images: (..., h, w) becomes (..., h', w')."""

    rank = 2


class SumPool3d(_SumPool):
    """The sum of each window of volumes: (..., d, h, w) becomes (..., d', h', w')."""

    rank = 3


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        channels_last: bool = False,
    ):
        self._begin(kernel_size, stride, padding, 1, ceil_mode, channels_last)
        self.count_include_pad: bool = bool(count_include_pad)

    def _pooled(self, x: Any, sizes: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return mean_pool(x, *sizes, count_include_pad=self.count_include_pad, **options)


class AvgPool1d(_AvgPool):
    """The mean of each window: (..., n) becomes (..., m), as PyTorch's.

    The padding is zeros, which count as elements of a window, unless `count_include_pad=False`.
    """

    rank = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of images: (..., h, w) becomes (..., h', w'). Arguments as of `AvgPool1d`."""

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes: (..., d, h, w) becomes (..., d', h', w'). Arguments as of `AvgPool1d`."""

    rank = 3


# As many regions as asked for ----------------------------------------------------------------------------------------


class _AdaptivePool(Module):
    rank: int = 0

    def __init__(self, output_size: int | Sequence[int | None] | None, *, channels_last: bool = False):
        sizes = tuple(output_size) if isinstance(output_size, (list, tuple)) else (output_size,) * self.rank
        if len(sizes) != self.rank:
            raise ValueError(f"{type(self).__name__}: output_size={output_size!r} is one integer, or {self.rank}")
        with placed(self):
            self.output_size: Any = tuple(None if n is None else per_axis(n, 1, "output_size")[0] for n in sizes)
        self.channels_last: bool = bool(channels_last)

    def __call__(self, x: Any) -> Any:
        x = image(self, x)
        first = x.ndim - self.rank - self.channels_last
        for i, goal in enumerate(self.output_size):
            n = x.shape[first + i]
            if goal is not None and goal != n:
                if n == 0:
                    raise wrong_shape(self, "that isn't empty", x.shape)
                x = self._along(x, first + i, n, goal)
        return x

    def _along(self, x: Any, axis: int, n: int, goal: int) -> Any:
        raise NotImplementedError


def _regions(n: int, goal: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the regions of an axis begin and end: from floor(i n / goal) up to ceil((i + 1) n / goal)."""
    i = np.arange(goal)
    return i * n // goal, -(-(i + 1) * n // goal)


class _AdaptiveAvgPool(_AdaptivePool):
    def _along(self, x: Any, axis: int, n: int, goal: int) -> Any:
        if n % goal == 0:
            return np.mean(x.reshape(*x.shape[:axis], goal, n // goal, *x.shape[axis + 1 :]), axis=axis + 1)
        begin, end = _regions(n, goal)
        at = np.arange(n)[:, None]
        dtype = x.dtype if x.dtype.kind in "fc" else np.float64
        share = ((at >= begin) & (at < end)) / (end - begin)  # (n, goal): each region's mean is a column
        return np.moveaxis(np.moveaxis(x, axis, -1) @ share.astype(dtype), -1, axis)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` regions: (..., n) becomes (..., output_size), as PyTorch's.

    Region i is from floor(i n / output_size) up to ceil((i + 1) n / output_size); None leaves an axis as it is.
    """

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of as many regions of images: (..., h, w) becomes (..., *output_size)."""

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of as many regions of volumes: (..., d, h, w) becomes (..., *output_size)."""

    rank = 3


class _AdaptiveMaxPool(_AdaptivePool):
    def _along(self, x: Any, axis: int, n: int, goal: int) -> Any:
        begin, end = _regions(n, goal)
        at = np.minimum(begin[:, None] + np.arange(int(np.max(end - begin))), end[:, None] - 1)  # the last, again
        windows = np.take(x, at, axis=axis)
        return handles([first_max(unwrap(windows), axes=(axis + 1,))])[0]


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of `output_size` regions: (..., n) becomes (..., output_size); regions as of `AdaptiveAvgPool1d`."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of as many regions of images: (..., h, w) becomes (..., *output_size)."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of as many regions of volumes: (..., d, h, w) becomes (..., *output_size)."""

    rank = 3


# Of all places -------------------------------------------------------------------------------------------------------


class _GlobalPool(Module):
    """All spatial axes at once, which aren't there any more."""

    def __init__(self, rank: int = 2, *, channels_last: bool = False):
        with placed(self):
            self.rank: Any
            (self.rank,) = per_axis(rank, 1, "rank")
        self.channels_last: bool = bool(channels_last)

    def _axes(self) -> tuple[int, ...]:
        return tuple(range(-self.rank - self.channels_last, -int(self.channels_last)))


class GlobalAvgPool(_GlobalPool):
    """The mean over `rank` spatial axes: (..., channels, h, w) becomes (..., channels)."""

    def __call__(self, x: Any) -> Any:
        return np.mean(image(self, x), axis=self._axes())


class GlobalSumPool(_GlobalPool):
    """The sum over `rank` spatial axes: (..., channels, h, w) becomes (..., channels)."""

    def __call__(self, x: Any) -> Any:
        return np.sum(image(self, x), axis=self._axes())


class GlobalMaxPool(_GlobalPool):
    """The maximum over `rank` spatial axes: (..., channels, h, w) becomes (..., channels). Ties share derivatives."""

    def __call__(self, x: Any) -> Any:
        return np.max(image(self, x), axis=self._axes())
