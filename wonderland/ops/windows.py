"""Sliding windows: `windows` sees an array as overlapping windows, `fold` sums windows back into an array.

Along axis `axes[i]` a window has `sizes[i]` elements that are `dilations[i]` apart, and windows begin `strides[i]` apart.
The axis becomes the number of windows that fit, and the axes of the windows come last, in the order of `axes` (which are
non-negative and distinct). Both are linear, and each is the other's transpose. A convolution is windows and a `dot`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from wonderland.core.level import freeze
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of
from wonderland.ops.shape import moved_pattern
from wonderland.ops.work import Work, count, view, work

Integers = tuple[int, ...]


def window_extent(size: int, dilation: int) -> int:
    """How many elements there are from the first to the last one of a window."""
    return max((size - 1) * dilation + 1, 0)


def window_count(extent: int, size: int, stride: int = 1, dilation: int = 1) -> int:
    """How many windows fit into an axis."""
    return max((extent - window_extent(size, dilation)) // stride + 1, 0)


def window_layout(
    shape: Integers, steps: Integers, axes: Integers, sizes: Integers, strides: Integers, dilations: Integers
) -> tuple[Integers, Integers]:
    """Shape and steps of the windows of an array of this shape whose elements are `steps` apart in memory."""
    places, strided = list(shape), list(steps)
    for a, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        places[a] = window_count(shape[a], size, stride, dilation)
        strided[a] = steps[a] * stride
    inner = (steps[a] * dilation for a, dilation in zip(axes, dilations, strict=True))
    return (*places, *sizes), (*strided, *inner)


def _infer(x: ArrayType, axes: tuple, sizes: tuple, strides: tuple, dilations: tuple) -> ArrayType:
    return ArrayType(window_layout(x.shape, x.shape, axes, sizes, strides, dilations)[0], x.dtype)


def _windows(x: Any, **params: tuple) -> Any:
    # Not by `as_strided`, whose results don't tell whose memory they are: a residual of such an array is copied.
    x = np.asarray(x)
    memory = x.transpose(sorted(range(x.ndim), key=lambda i: -x.strides[i]))
    if not memory.flags.c_contiguous:
        memory = x = freeze(x.copy())
    shape, steps = window_layout(x.shape, x.strides, **params)
    out = np.ndarray(shape, x.dtype, memory, 0, steps) if 0 not in shape else np.empty(shape, x.dtype)
    out.flags.writeable = False  # windows share elements
    return out


def _lower(builder: Any, x: Any, **params: tuple) -> Any:
    offset, steps = x.layout
    shape, steps = window_layout(x.shape, steps, **params)
    return builder.view(x, shape, offset, steps)


def _shifted(axes: tuple) -> tuple:
    return tuple(a + 1 for a in axes)


windows: Primitive = Primitive(
    "windows",
    _windows,
    _infer,
    linear=(0,),
    balanced=True,
    transpose=lambda ct, x, **params: (fold(ct, **params, shape=x.shape),),
    batch=lambda size, args, batched, axes, **rest: windows(args[0], axes=_shifted(axes), **rest),
    lower=_lower,
    cost=view,
)
windows.pattern = moved_pattern(windows)


def _fold(w: Any, shape: tuple, **params: tuple) -> Any:
    out = np.zeros(shape, w.dtype)
    places, steps = window_layout(shape, out.strides, **params)
    seen = as_strided(out, places, steps)
    rank, axes = len(shape), params["axes"]
    apart = (
        places[a] <= 1 or stride >= window_extent(size, dilation)
        for a, size, stride, dilation in zip(axes, params["sizes"], params["strides"], params["dilations"], strict=True)
    )  # fmt: skip
    if all(apart):
        seen[...] = w
        return out
    # One element of every window at a time, or one window at a time: neither of them has an element of `out` twice.
    ahead, behind = math.prod(places[a] for a in axes), math.prod(places[rank:])
    chosen = axes if ahead < behind else tuple(range(rank, len(places)))
    rest = tuple(i for i in range(len(places)) if i not in chosen)
    seen, w = seen.transpose(chosen + rest), w.transpose(chosen + rest)
    for place in np.ndindex(seen.shape[: len(chosen)]):
        seen[place] += w[place]
    return out


def _fold_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    shape = params["shape"]
    rest = {name: value for name, value in params.items() if name != "shape"}
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return [(_windows(numbers, **rest).ravel(), np.arange(types[0].size))]


def _fold_cost(types: tuple, outs: tuple, params: dict) -> Work:
    return work(outs[0], additions=max(count(types[0]) - count(outs[0]), 0))


fold: Primitive = Primitive(
    "fold",
    _fold,
    lambda w, shape, **params: ArrayType(shape, w.dtype),
    linear=(0,),
    balanced=True,
    transpose=lambda ct, w, shape, **params: (windows(ct, **params),),
    batch=lambda size, args, batched, axes, shape, **rest: fold(
        args[0], axes=_shifted(axes), **rest, shape=(shape_of(args[0])[0], *shape)
    ),
    pattern=_fold_pattern,
    lower=lambda builder, w, shape, **params: builder.fold(w, shape, **params),
    cost=_fold_cost,
)
