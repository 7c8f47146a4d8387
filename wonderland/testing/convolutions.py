"""Convolution and pooling by their definitions, one number of the result after the other: slow, and plainly right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Integers = Sequence[int]


def conv_by_definition(
    x: Any, w: Any, stride: Integers, padding: Sequence[tuple[int, int]], dilation: Integers, groups: int = 1
) -> Any:
    """`conv` of x (batch, in, *spatial) and w (out, in / groups, *kernel), with zeros outside of x."""
    extents, sizes = x.shape[2:], w.shape[2:]
    out = np.zeros((x.shape[0], w.shape[0], *places(extents, sizes, stride, padding, dilation)), np.result_type(x, w))
    inner, share = w.shape[1], w.shape[0] // groups
    for image, channel, *place in np.ndindex(*out.shape):
        total = 0
        for i, *tap in np.ndindex(inner, *sizes):
            at = _element(place, tap, stride, padding, dilation)
            if all(0 <= p < n for p, n in zip(at, extents, strict=True)):
                total = total + x[(image, channel // share * inner + i, *at)] * w[(channel, i, *tap)]
        out[(image, channel, *place)] = total
    return out


def pool_by_definition(
    reduce: Callable, x: Any, size: Integers, stride: Integers, padding: Sequence[tuple[int, int]], dilation: Integers
) -> Any:
    """`reduce` of the elements that are in a window and in x (batch, channels, *spatial)."""
    extents = x.shape[2:]
    out = np.zeros((*x.shape[:2], *places(extents, size, stride, padding, dilation)), x.dtype)
    for image, channel, *place in np.ndindex(*out.shape):
        window = (_element(place, tap, stride, padding, dilation) for tap in np.ndindex(*size))
        inside = [at for at in window if all(0 <= p < n for p, n in zip(at, extents, strict=True))]
        out[(image, channel, *place)] = reduce(np.array([x[(image, channel, *at)] for at in inside]))
    return out


def places(
    extents: Integers, sizes: Integers, stride: Integers, padding: Sequence[tuple[int, int]], dilation: Integers
) -> tuple[int, ...]:
    """How many windows there are along each axis."""
    counts = []
    for n, k, s, (before, after), d in zip(extents, sizes, stride, padding, dilation, strict=True):
        counts.append(len(range(-before, n + after - (k - 1) * d, s)))
    return tuple(counts)


def _element(place: Integers, tap: Integers, stride: Integers, padding: Any, dilation: Integers) -> tuple[int, ...]:
    """Which element is at a tap of the window at a place."""
    each = zip(place, tap, stride, padding, dilation, strict=True)
    return tuple(p * s + t * d - before for p, t, s, (before, _), d in each)
