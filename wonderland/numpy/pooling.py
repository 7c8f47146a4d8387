"""Pooling, patches and resizing of images and sequences, as PyTorch means them: windows, and what is made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.arrange import along
from wonderland.numpy.join import as_value
from wonderland.numpy.reduce import accumulating, as_dtype, inexact
from wonderland.numpy.shape import integers, reshape_value, transpose_value
from wonderland.numpy.spatial import Pairs, Windows, padded, padding_pairs, per_axis, spatial_axes
from wonderland.ops.elementwise import add, mul
from wonderland.ops.reduce import first_max, sum
from wonderland.ops.windows import window_count, window_extent


def max_pool(
    x: Any, size: Any = None, stride: Any = None, padding: Any = 0, dilation: Any = 1, *, ceil_mode: bool = False,
    channels: str = "first",
) -> Any:  # fmt: skip
    """The maximum of each window, as `max_pool1d`, `max_pool2d`, `max_pool3d` of PyTorch.

    `size` is one integer for all spatial axes of (batch, channels, *spatial), or one for each (then there may be other
    leading axes, or none); without it a window is a whole image, and the result has extent 1 along them. `stride` is
    `size` if it isn't given. `padding`, of at most half a window, is smaller than any number. With `ceil_mode` a last
    window may reach over the end. The derivative goes to the first maximum of a window; NaN is larger than any number.
    """
    pooling = _Pooling(x, size, stride, padding, dilation, ceil_mode, channels)
    kind = pooling.dtype.kind
    if kind == "c":
        raise TypeError(f"max_pool: numbers of dtype {pooling.dtype} have no order")
    lowest = -np.inf if kind == "f" else False if kind == "b" else np.iinfo(pooling.dtype).min
    return handles([first_max(pooling.windows(lowest), axes=pooling.inner)])[0]


def sum_pool(
    x: Any, size: Any = None, stride: Any = None, padding: Any = 0, dilation: Any = 1, *, ceil_mode: bool = False,
    channels: str = "first",
) -> Any:  # fmt: skip
    """The sum of each window; the arguments are those of `max_pool`, the padding is zeros.

    Bools and small integers are summed in 64 bits, as `np.sum` does.
    """
    pooling = _Pooling(accumulating(as_value(x), None), size, stride, padding, dilation, ceil_mode, channels)
    return handles([sum(pooling.windows(0), axes=pooling.inner)])[0]


def mean_pool(
    x: Any, size: Any = None, stride: Any = None, padding: Any = 0, dilation: Any = 1, *, ceil_mode: bool = False,
    count_include_pad: bool = True, channels: str = "first",
) -> Any:  # fmt: skip
    """The mean of each window, as `avg_pool1d`, `avg_pool2d`, `avg_pool3d` of PyTorch.

    The arguments are those of `max_pool`, the padding is zeros. It counts as elements of a window, unless
    `count_include_pad=False`; what is beyond it, at the end in `ceil_mode`, doesn't. Bools and integers have means in
    float64, as `np.mean` gives them.
    """
    x = inexact(as_value(x))
    small = type_of(x).dtype == np.float16  # summed in float32, as `np.mean` does
    x = as_dtype(x, np.float32) if small else x
    pooling = _Pooling(x, size, stride, padding, dilation, ceil_mode, channels)
    total = sum(pooling.windows(0), axes=pooling.inner)
    out = mul(total, (1 / pooling.counts(count_include_pad)).astype(pooling.dtype)[()])
    return handles([as_dtype(out, np.float16) if small else out])[0]


class _Pooling:
    """Windows of an array, by the arguments that all pooling functions have."""

    def __init__(self, x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, channels: str):
        self.x: Any = as_value(x)
        shape, self.dtype = shape_of(self.x), type_of(self.x).dtype
        rank = _rank(size, self.x)
        self.axes, _ = spatial_axes(len(shape), rank, channels, f"x of shape {shape}")
        self.extents: tuple[int, ...] = tuple(shape[a] for a in self.axes)
        self.sizes: tuple[int, ...] = per_axis(self.extents if size is None else size, rank, "size")
        self.strides: tuple[int, ...] = self.sizes if stride is None else per_axis(stride, rank, "stride")
        self.dilations: tuple[int, ...] = per_axis(dilation, rank, "dilation")
        self.pairs: Pairs = padding_pairs(padding, rank)
        reach = [window_extent(k, d) for k, d in zip(self.sizes, self.dilations, strict=True)]
        for pair, extent in zip(self.pairs, reach, strict=True):
            if 2 * max(pair) > extent:
                raise ValueError(f"padding={padding!r} is more than half of a window, which is {extent} long")
        self.beyond: list[int] = [0] * rank  # how far the last windows reach over the padded end
        if ceil_mode:
            self.beyond = list(map(_beyond, self.extents, self.pairs, reach, self.strides))
        self.inner: tuple[int, ...] = tuple(range(len(shape), len(shape) + rank))

    def windows(self, fill: Any) -> Any:
        """The windows of the padded array, in the last axes."""
        pairs = tuple((before, after + more) for (before, after), more in zip(self.pairs, self.beyond, strict=True))
        x = self.x
        if fill:
            x, pairs = padded(x, self.axes, pairs, fill), ((0, 0),) * len(pairs)
        return Windows(self.axes, self.sizes, self.strides, self.dilations, pairs).of(x)

    def counts(self, with_padding: bool) -> Any:
        """How many elements each window has, to broadcast with the windows' places; one number if it is the same."""
        total, last = np.ones(()), len(shape_of(self.x)) - 1
        for i, axis in enumerate(self.axes):
            there = np.pad(np.ones(self.extents[i]), self.pairs[i], constant_values=float(with_padding))
            sides = ((self.sizes[i],), (self.strides[i],), (self.dilations[i],), ((0, self.beyond[i]),))
            found = Windows((0,), *sides).of(there).sum(-1)
            total = total * np.maximum(found, 1).reshape(-1, *(1,) * (last - axis))
        return total.flat[0] if (total == total.flat[0]).all() else total


def _beyond(n: int, pair: tuple[int, int], reach: int, stride: int) -> int:
    """How far the last window reaches over the end, if it begins in the array or in the padding before it."""
    total = n + pair[0] + pair[1]
    more = -(total - reach) % stride
    last = total + more - reach  # where the last window begins
    return more if last < n + pair[0] else 0


# Patches -------------------------------------------------------------------------------------------------------------


def unfold(x: Any, size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The windows of images as columns: (batch, channels, *spatial) to (batch, channels * window, places), as PyTorch.

    `size` is one integer for all spatial axes, or one for each (then the batch may be missing).
    """
    x = as_value(x)
    shape = shape_of(x)
    rank = _rank(size, x)
    axes, channel = spatial_axes(len(shape), rank, "first", f"x of shape {shape}")
    if channel < 0:
        raise ValueError(f"x has shape {shape}; expected (batch, channels, *spatial)")
    windows = _windows(axes, size, stride, dilation, padding)
    out = windows.of(x)
    inner = tuple(range(len(shape), len(shape) + rank))
    out = transpose_value(out, (*range(channel + 1), *inner, *axes))
    places = math.prod(shape_of(out)[-rank:])
    return handles([reshape_value(out, (*shape[:channel], shape[channel] * math.prod(windows.sizes), places))])[0]


def fold(x: Any, shape: Any, size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The transpose of `unfold`: columns are windows, which are summed into images of a spatial shape; as PyTorch.

    (batch, channels * window, places) becomes (batch, channels, *shape); the batch may be missing.
    """
    x, extents = as_value(x), integers(shape)
    rank, given = len(extents), shape_of(x)
    lead = len(given) - 1
    windows = _windows(tuple(range(lead, lead + rank)), size, stride, dilation, padding)
    sizes, count = windows.sizes, math.prod(windows.sizes)
    if lead < 1 or given[-2] % count:
        raise ValueError(f"x has shape {given}; expected (batch, channels * {count}, places)")
    whole = [n + before + after for n, (before, after) in zip(extents, windows.padding, strict=True)]
    places = tuple(map(window_count, whole, sizes, windows.strides, windows.dilations))
    if math.prod(places) != given[-1]:
        raise ValueError(f"x of shape {given} has {given[-1]} places; images of shape {extents} have {places} windows")
    head = (*given[:-2], given[-2] // count)
    x = reshape_value(x, (*head, *sizes, *places))
    x = transpose_value(x, (*range(lead), *range(lead + rank, lead + 2 * rank), *range(lead, lead + rank)))
    return handles([windows.folded(x, (*head, *extents))])[0]


def _windows(axes: tuple[int, ...], size: Any, stride: Any, dilation: Any, padding: Any) -> Windows:
    rank = len(axes)
    steps = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    return Windows(axes, per_axis(size, rank, "size"), *steps, padding_pairs(padding, rank))


def _rank(given: Any, x: Any) -> int:
    """How many spatial axes there are: one for each number that is given, or all of (batch, channels, *spatial)."""
    rank = len(given) if np.ndim(given) else len(shape_of(x)) - 2
    if rank < 1:
        raise ValueError(
            f"x has shape {shape_of(x)}; expected (batch, channels, *spatial). For arrays without a batch give one "
            "size for each spatial axis: (2, 2)"
        )
    return rank


# Resizing ------------------------------------------------------------------------------------------------------------


def resize(x: Any, shape: Any, method: str = "nearest", align_corners: bool = False, *, channels: str = "first") -> Any:
    """Images in another spatial shape, as PyTorch's `interpolate`: the nearest elements, or linear in each axis.

    `shape` is one integer for all spatial axes of (batch, channels, *spatial), or one for each (then there may be other
    leading axes, or none). With `align_corners` (of "linear") the first and last elements stay what they are; otherwise
    elements are areas, whose corners stay. "nearest" takes the element at or before a place, as PyTorch does.
    """
    x = as_value(x)
    if method not in ("nearest", "linear"):
        raise ValueError(f"method is 'nearest' or 'linear', not {method!r}")
    if align_corners and method == "nearest":
        raise ValueError("align_corners=True is for method='linear'")
    rank = _rank(shape, x)
    axes, _ = spatial_axes(len(shape_of(x)), rank, channels, f"x of shape {shape_of(x)}")
    for axis, goal in zip(axes, per_axis(shape, rank, "shape"), strict=True):
        n = shape_of(x)[axis]
        if n == 0:
            raise ValueError(f"axis {axis} of x, of shape {shape_of(x)}, has no elements to resize")
        if method == "nearest":
            x = along(x, np.arange(goal) * n // goal, axis)
        elif goal != n:
            x = _interpolated(x, axis, n, goal, align_corners)
    return handles([x])[0]


def _interpolated(x: Any, axis: int, n: int, goal: int, align_corners: bool) -> Any:
    if align_corners:
        places = np.arange(goal) * ((n - 1) / max(goal - 1, 1))
    else:
        places = np.clip((np.arange(goal) + 0.5) * (n / goal) - 0.5, 0, n - 1)
    dtype = type_of(x).dtype
    before = np.minimum(places.astype(int), max(n - 2, 0))
    weight = (places - before).astype(dtype if dtype.kind in "fc" else float)
    weight = weight.reshape(-1, *(1,) * (len(shape_of(x)) - 1 - axis))
    left, right = along(x, before, axis), along(x, np.minimum(before + 1, n - 1), axis)
    return add(mul(left, 1 - weight), mul(right, weight))
