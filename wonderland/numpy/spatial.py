"""What functions of images and sequences do with their arguments: one number for all axes or one for each, paddings.

The axes along which windows move are the *spatial* ones: behind the channels' axis (`channels="first"`), or before it
(`channels="last"`). Axes before both, if there are any, number images.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.types import shape_of, type_of
from wonderland.numpy.arrange import pad
from wonderland.ops.index import scatter_slice
from wonderland.ops.shape import broadcast
from wonderland.ops.windows import fold, window_count, window_extent, windows

Pairs = tuple[tuple[int, int], ...]


def per_axis(value: Any, rank: int, name: str, least: int = 1) -> tuple[int, ...]:
    """One integer for each spatial axis."""
    numbers = tuple(value) if np.ndim(value) else (value,) * rank
    if len(numbers) != rank:
        raise ValueError(f"{name}={value!r}: expected one integer or {rank}, one for each spatial axis")
    try:
        numbers = tuple(map(operator.index, numbers))
    except TypeError as error:
        raise TypeError(f"{name}={value!r}: expected integers of at least {least}") from error
    if any(n < least for n in numbers):
        raise ValueError(f"{name}={value!r}: expected integers of at least {least}")
    return numbers


def padding_pairs(padding: Any, rank: int) -> Pairs:
    """For each spatial axis how many elements come before and after it."""
    sides = list(padding) if isinstance(padding, (tuple, list, np.ndarray)) else [padding] * rank
    if len(sides) != rank:
        raise ValueError(
            f"padding={padding!r}: expected one integer, or for each of the {rank} spatial axes an integer or a pair "
            "(before, after)"
        )
    return tuple(per_axis(side, 2, "padding", 0) for side in sides)  # type: ignore[misc]


def spatial_axes(ndim: int, rank: int, channels: str, what: str) -> tuple[tuple[int, ...], int]:
    """The spatial axes, and the axis of channels; -1 if there is none."""
    if channels not in ("first", "last"):
        raise ValueError(f"channels is 'first' or 'last', not {channels!r}")
    start = ndim - rank - (channels == "last")
    if start < 0:
        raise ValueError(f"{what} has {ndim} axes, too few for {rank} spatial ones")
    axes = tuple(range(start, start + rank))
    return axes, start - 1 if channels == "first" else ndim - 1


def padded(x: Any, axes: Sequence[int], pairs: Pairs, fill: Any = 0, dilation: Sequence[int] = ()) -> Any:
    """`fill` around the spatial axes, and between the elements of a dilated one."""
    shape, steps = list(shape_of(x)), dilation or (1,) * len(axes)
    if not any(map(any, pairs)) and all(d == 1 for d in steps):
        return x
    index = [slice(0, n, 1) for n in shape]
    for a, (before, after), d in zip(axes, pairs, steps, strict=True):
        extent = window_extent(shape[a], d)
        index[a] = slice(before, before + extent, d)
        shape[a] = before + extent + after
    around = broadcast(np.asarray(fill, type_of(x).dtype)[()], shape=tuple(shape))
    return scatter_slice(around, x, index=tuple(index), mode="set")


_MODES = {"circular": "wrap", "reflect": "reflect", "replicate": "edge"}


def padded_by(mode: str, x: Any, axes: Sequence[int], pairs: Pairs) -> Any:
    """The spatial axes with paddings of their own elements."""
    if mode not in _MODES:
        raise ValueError(f"padding_mode is one of {', '.join(map(repr, ('zeros', *_MODES)))}, not {mode!r}")
    widths = [(0, 0)] * len(shape_of(x))
    for a, pair in zip(axes, pairs, strict=True):
        widths[a] = pair
    return pad(x, widths, _MODES[mode])


class Windows(NamedTuple):
    """Windows along axes, as the operators take them."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: Pairs  # zeros

    def of(self, x: Any) -> Any:
        """The windows of an array, in new last axes; at least one has to fit."""
        for a, size, stride, dilation, pair in zip(*self, strict=True):
            n = shape_of(x)[a] + pair[0] + pair[1]
            if not window_count(n, size, stride, dilation):
                raise ValueError(
                    f"windows of {size} elements (dilation {dilation}, so {window_extent(size, dilation)} long) don't "
                    f"fit into axis {a} of {n} elements, padding included: more padding, or smaller windows"
                )
        return windows(x, **self._asdict())

    def folded(self, w: Any, shape: tuple[int, ...]) -> Any:
        """The transpose: windows are summed into an array of a shape."""
        return fold(w, **self._asdict(), shape=shape)
