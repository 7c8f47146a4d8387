"""Sliding windows: `windows` sees an array as overlapping windows, `fold` sums windows back into an array.

Along axis `axes[i]` a window has `sizes[i]` elements that are `dilations[i]` apart, and windows begin `strides[i]`
apart, on the array with zeros around it, `padding[i]` before and after. The axis becomes the number of windows that
fit, and the axes of the windows come last, in the order of `axes` (which are non-negative and distinct). Both are
linear, and each is the other's transpose. A convolution is windows and a `dot`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from wonderland.core.level import freeze
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of
from wonderland.ops.work import Work, count, view, work

Integers = tuple[int, ...]


def window_extent(size: int, dilation: int) -> int:
    """How many elements there are from the first to the last one of a window."""
    return max((size - 1) * dilation + 1, 0)


def window_count(extent: int, size: int, stride: int = 1, dilation: int = 1) -> int:
    """How many windows fit into an axis."""
    return max((extent - window_extent(size, dilation)) // stride + 1, 0)


def padded_shape(shape: Integers, axes: Sequence[int], padding: Sequence[tuple[int, int]]) -> Integers:
    """The shape with zeros around it."""
    wide = list(shape)
    for a, pair in zip(axes, padding, strict=True):
        wide[a] += sum(pair)
    return tuple(wide)


def window_layout(
    shape: Integers, steps: Integers, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Integers, Integers]:  # fmt: skip
    """Shape and steps of the windows of an array of this (padded) shape whose elements are `steps` apart in memory.

    Along an axis of one window, or of one element, no step is taken: a huge one wouldn't be a number of bytes.
    """
    places, strided, inner = list(shape), list(steps), []
    for a, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        places[a] = window_count(shape[a], size, stride, dilation)
        strided[a] = steps[a] * stride if places[a] > 1 else steps[a]
        inner.append(steps[a] * dilation if size > 1 else steps[a])
    return (*places, *sizes), (*strided, *inner)


def _infer(x: ArrayType, axes: tuple, padding: tuple, **params: tuple) -> ArrayType:
    wide = padded_shape(x.shape, axes, padding)
    return ArrayType(window_layout(wide, wide, axes, **params)[0], x.dtype)


def _inside(shape: tuple, axes: tuple, padding: tuple) -> tuple[slice, ...]:
    """Where an array is among its zeros."""
    index = [slice(None)] * len(shape)
    for a, (before, _) in zip(axes, padding, strict=True):
        index[a] = slice(before, before + shape[a])
    return tuple(index)


def _windows(x: Any, axes: tuple, padding: tuple, **params: tuple) -> Any:
    # Not by `as_strided`, whose results don't tell whose memory they are: a residual of such an array is copied.
    x = np.asarray(x)
    if any(map(any, padding)):
        wide = np.zeros(padded_shape(x.shape, axes, padding), x.dtype)
        wide[_inside(x.shape, axes, padding)] = x
        x = freeze(wide)
    memory = x.transpose(sorted(range(x.ndim), key=lambda i: -x.strides[i]))
    if not memory.flags.c_contiguous:
        memory = x = freeze(x.copy())
    shape, steps = window_layout(x.shape, x.strides, axes, **params)
    out = np.ndarray(shape, x.dtype, memory, 0, steps) if 0 not in shape else np.empty(shape, x.dtype)
    out.flags.writeable = False  # windows share elements
    return out


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
    pattern=lambda types, params: _windows_pattern(types, params),
    lower=lambda builder, x, **params: builder.windows(x, **params),
    cost=view,
)


def _fold(w: Any, shape: tuple, axes: tuple, padding: tuple, **params: tuple) -> Any:
    wide = np.zeros(padded_shape(shape, axes, padding), w.dtype)
    out = wide[_inside(shape, axes, padding)]
    places, steps = window_layout(wide.shape, wide.strides, axes, **params)
    seen, rank = as_strided(wide, places, steps), len(shape)
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


def _windows_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    source = _windows(np.arange(1, types[0].size + 1).reshape(types[0].shape), **params).ravel()
    read = np.flatnonzero(source)  # the others are zeros around the array
    return [(read, source[read] - 1)]


def _fold_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    rest = {name: value for name, value in params.items() if name != "shape"}
    ((read, written),) = _windows_pattern((ArrayType(params["shape"], types[0].dtype),), rest)
    return [(written, read)]


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
