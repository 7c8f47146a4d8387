"""Windows of an array, and windows that are summed into one: the `lower` rules of `windows` and `fold`.

Windows are a view, of the array with zeros around it. To sum up windows is to read them: element P of the padded array
is in the windows q at their tap t with P = q stride + t dilation. For the elements of one *phase*, P modulo the
stride, these are windows again: the taps t, t + step, ... of the places q, q - 1, .... So if what is summed up is
a product of something with places and something with taps, as in the derivative of a convolution, it is for each phase
a product of windows; the product itself, as large as all windows, is never made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from wonderland.compile.contractions import Axes
from wonderland.compile.gemm_tile import ceil_div
from wonderland.compile.members import IndexedPlaces, Scatter
from wonderland.compile.nodes import Empty, Node, Number, normal
from wonderland.compile.orders import inverse, of_memory
from wonderland.core.types import ArrayType
from wonderland.ops.dot import free_axes
from wonderland.ops.windows import padded_shape, window_layout

MANY_PHASES, LONG_RUN = 16, 8
LINE, SAME_SET = 64, 1024  # bytes of a cache line, and of a step after which pixels of a window crowd each other out

Pairs = Sequence[tuple[int, int]]


def pad(builder: Any, x: Node, axes: Sequence[int], padding: Pairs) -> Node:
    """An array with zeros around it, in the order in which it lies in memory; less than none cuts elements off."""
    if 0 in x.shape:
        return Number(ArrayType(padded_shape(x.shape, axes, padding), x.dtype), 0)
    if not any(map(any, padding)):
        return x
    pairs = [(0, 0)] * len(x.shape)
    for a, pair in zip(axes, padding, strict=True):
        pairs[a] = pair
    kept = [slice(max(-low, 0), n - max(-high, 0), 1) for n, (low, high) in zip(x.shape, pairs, strict=True)]
    x = builder.slice(x, kept)
    pairs = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if not any(map(any, pairs)):
        return x
    strides = x.layout[1]
    order = sorted(range(len(strides)), key=lambda i: -abs(strides[i]) if x.shape[i] != 1 else -math.inf)
    wide = tuple(x.shape[i] + sum(pairs[i]) for i in order)
    whole = [slice(0, n, 1) for n in wide]
    made = builder.keep(Empty(ArrayType((*wide[:-1], wide[-1] + _gap(wide[-1], x.dtype.itemsize)), x.dtype)))
    inside = [slice(pairs[i][0], pairs[i][0] + x.shape[i], 1) for i in order]
    for axis, middle in enumerate(inside):  # zeros on each side, outside of what is there already
        for side in (slice(0, middle.start, 1), slice(middle.stop, wide[axis], 1)):
            index = [*inside[:axis], side, *whole[axis + 1 :]]
            zeros = Number(ArrayType(tuple(i.stop - i.start for i in index), x.dtype), 0)
            made = builder.scatter_slice(made, zeros, index, "set")
    made = builder.scatter_slice(made, builder.transpose(x, order), inside, "set")
    return builder.transpose(builder.slice(made, whole), inverse(order))


def _gap(extent: int, itemsize: int) -> int:
    """Elements between neighbouring pixels, whose channels would otherwise share the few lines of one set of L1."""
    return LINE // itemsize if extent * itemsize % SAME_SET == 0 else 0


def lower(
    builder: Any, x: Node, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    padding: Pairs,
) -> Node:  # fmt: skip
    """Windows of an array with zeros around it."""
    x = pad(builder, x, axes, padding)
    offset, steps = x.layout
    shape, steps = window_layout(x.shape, steps, axes, sizes, strides, dilations)
    return builder.view(x, shape, offset, steps)


class Phase(NamedTuple):
    """Along one axis: the elements start, start + stride, ..., `extent` of them.

    The first of them is in window `place` at tap `first`, in window place - back at tap first + step, and so on:
    `taps` of them, as far as there are such windows.
    """

    start: int
    stride: int
    extent: int
    place: int
    back: int
    first: int
    step: int
    taps: int


def _phases(n: int, size: int, stride: int, dilation: int, low: int) -> Iterator[Phase]:
    """The phases of an axis of n elements that are in any window, `low` zeros before them."""
    shared = math.gcd(stride, dilation)
    for start in range(min(stride, n)):
        residue = (low + start) % stride
        first = next((t for t in range(size) if t * dilation % stride == residue), None)
        if first is not None:
            step, place = stride // shared, (low + start - first * dilation) // stride
            extent, taps = ceil_div(n - start, stride), ceil_div(size - first, step)
            yield Phase(start, stride, extent, place, dilation // shared, first, step, taps)


def fold(
    builder: Any, w: Node, shape: Sequence[int], axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int], padding: Pairs,
) -> Node:  # fmt: skip
    """Windows (places at `axes`, their elements in the last axes) are summed into an array of this shape."""
    type = ArrayType(tuple(shape), w.dtype)
    if 0 in w.shape or 0 in type.shape:
        return Number(type, 0)
    rank = len(shape)
    by_product = _factors(w, rank, axes) if w.base.product is not None else None
    runs = [*map(_runs, sizes, strides, dilations)]
    if by_product is not None:
        phases = [
            [*_phases(shape[a], size, stride, dilation, low)]
            for a, size, stride, dilation, (low, _) in zip(axes, sizes, strides, dilations, padding, strict=True)
        ]
        # With large strides, as of patches, code for all phases takes seconds to compile, and windows, which hardly
        # overlap, little memory.
        if math.prod(map(len, phases)) <= MANY_PHASES or math.prod(map(len, runs)) > MANY_PHASES:
            return _fold_product(builder, type, axes, phases, by_product)
    return _fold_windows(builder, w, type, axes, sizes, strides, dilations, padding, runs)


def _runs(size: int, stride: int, dilation: int) -> list[slice]:
    """The taps of an axis in parts in which windows don't overlap: all of them, or long ones, or each by itself."""
    length = ceil_div(stride, dilation)
    length = length if length >= min(size, LONG_RUN) else 1
    return [slice(t, min(t + length, size), 1) for t in range(0, size, length)]


def _fold_windows(
    builder: Any, w: Node, type: ArrayType, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int], padding: Pairs, runs: list[list[slice]],
) -> Node:  # fmt: skip
    """Windows that lie in memory: one pass if they don't overlap, otherwise one for each part in which they don't."""
    wide, inside = padded_shape(type.shape, axes, padding), [slice(0, n, 1) for n in type.shape]
    for a, (low, _) in zip(axes, padding, strict=True):
        inside[a] = slice(low, low + type.shape[a], 1)
    rank, order = len(wide), of_memory(w) or tuple(range(len(w.shape)))
    own = [i for i in order if i < rank]  # the result is in the order of the windows
    apart = math.prod(map(len, runs)) == 1
    covered = all(wide[a] == size * w.shape[a] for a, size in zip(axes, sizes, strict=True))
    place = ArrayType(tuple(wide[i] for i in own), type.dtype)
    target = builder.keep(Empty(place)) if apart and covered else builder.memory(Number(place, 0))

    def summed(target: Node, taps: Sequence[slice], mode: str) -> Node:
        view = builder.transpose(target, inverse(own))
        view = lower(builder, view, axes, sizes, strides, dilations, ((0, 0),) * len(axes))
        index = (*(slice(0, n, 1) for n in w.shape[:rank]), *taps)
        view, update = (builder.slice(node, index) for node in (view, w))
        view, update = (builder.transpose(node, order) for node in (view, update))
        layout = view.layout[0], normal(view.shape, view.layout[1])
        return builder.keep(Scatter(target, update, IndexedPlaces(layout), mode))

    for taps in product(*runs):
        target = summed(target, taps, "set" if apart else "add")
    return builder.slice(builder.transpose(target, inverse(own)), inside)


class Factors(NamedTuple):
    """A product of an array with places and one with taps; which axes they are, and where each axis of windows is."""

    x: Node  # with the places
    y: Node  # with the taps
    contract: Axes
    batch: Axes
    places: list[int]  # axes of x
    taps: list[int | None]  # axes of y; None for windows of one element
    result: list[int | None]  # for each axis of the fold's result: that of the product, None where the extent is 1


def _factors(w: Node, rank: int, axes: Sequence[int]) -> Factors | None:
    """What windows are a product of, if their places come from one factor and their taps from the other."""
    x, y, contract, batch, (offset, strides) = w.base.product
    if w.layout[0] != offset:
        return None
    free = [free_axes(len(n.shape), *used) for n, *used in zip((x, y), contract, batch, strict=True)]
    # For each axis of the product which factor it is from (-1: from both), and which axis of that; then for those of w.
    owners = [(-1, i) for i in batch[0]] + [(0, i) for i in free[0]] + [(1, i) for i in free[1]]
    extents = [(x, y)[max(side, 0)].shape[i] for side, i in owners]
    found = {(s, n): i for i, (s, n) in enumerate(zip(strides, extents, strict=True)) if n != 1}
    numbers = [found.get((s, n)) for n, s in zip(w.shape, w.layout[1], strict=True)]
    if any(i is None and n != 1 for i, n in zip(numbers, w.shape, strict=True)):
        return None
    owned = [None if i is None else owners[i] for i in numbers]
    places, taps = [owner for a in axes if (owner := owned[a]) is not None], owned[rank:]
    sides = {side for side, _ in places}
    if len(places) < len(axes) or sides not in ({0}, {1}):
        return None
    (side,) = sides
    if any(tap is not None and tap[0] != 1 - side for tap in taps):
        return None
    order = [*range(len(owners))]
    if side == 1:  # the product with its factors exchanged
        b, r = len(batch[0]), len(free[0])
        order = [*range(b), *range(b + r, len(owners)), *range(b, b + r)]
        x, y, contract, batch = y, x, contract[::-1], batch[::-1]
    result = [None if i is None else order.index(i) for i in numbers[:rank]]
    at = [i for _, i in places]
    return Factors(x, y, contract, batch, at, [None if tap is None else tap[1] for tap in taps], result)


def _fold_product(
    builder: Any, type: ArrayType, axes: Sequence[int], phases: list[list[Phase]], factors: Factors
) -> Node:
    """For each phase a product of windows of x, with zeros around it, and of the taps of y that are in it."""
    if not all(phases):
        return Number(type, 0)
    padding = [_beyond(own, factors.x.shape[i]) for own, i in zip(phases, factors.places, strict=True)]
    x = pad(builder, factors.x, factors.places, padding)
    made = [(parts, _phase(builder, x, padding, parts, factors)) for parts in product(*phases)]
    if len(made) == 1 and all(p.stride == 1 for p in made[0][0]):
        return builder.reshape(made[0][1], type.shape)
    target = Number(type, 0)
    for parts, node in made:
        index = [slice(0, n, 1) for n in type.shape]
        for a, p in zip(axes, parts, strict=True):
            index[a] = slice(p.start, type.shape[a], p.stride)
        update = builder.reshape(node, [len(range(i.start, i.stop, i.step)) for i in index])
        target = builder.scatter_slice(target, update, index, "set")
    return target


def _beyond(phases: Sequence[Phase], n: int) -> tuple[int, int]:
    """How far the windows of an axis of n places reach over its ends."""
    first = min(p.place - (p.taps - 1) * p.back for p in phases)
    return max(-first, 0), max(max(p.place + p.extent for p in phases) - n, 0)


def _phase(builder: Any, x: Node, padding: Pairs, parts: Sequence[Phase], factors: Factors) -> Node:
    """The elements of one phase: the axes of the result that aren't 1, in its order, and then others of extent 1."""
    offset, strides = x.layout
    shape, y, contract = [*x.shape], factors.y, ([*factors.contract[0]], [*factors.contract[1]])
    steps, windows, taken = [], [], [slice(0, n, 1) for n in y.shape]
    for axis, tap, p, (low, _) in zip(factors.places, factors.taps, parts, padding, strict=True):
        shape[axis] = p.extent
        offset += (p.place + low) * strides[axis]
        if tap is not None:
            contract[0].append(len(x.shape) + len(windows))
            contract[1].append(tap)
            windows.append(p.taps)
            steps.append(-p.back * strides[axis])
            taken[tap] = slice(p.first, y.shape[tap], p.step)
    x = builder.view(x, (*shape, *windows), offset, (*strides, *steps))
    y = builder.slice(y, taken)
    made = builder.dot(x, y, tuple(map(tuple, contract)), factors.batch)
    # Axes of the product are numbered with those of the taps, which are gone now.
    of_x = len(factors.x.shape) - len(factors.contract[0])
    free_y = free_axes(len(y.shape), factors.contract[1], factors.batch[1])
    left = [*range(of_x), *(of_x + k for k, i in enumerate(free_y) if i not in factors.taps)]
    order = [left.index(i) for i in factors.result if i is not None]
    return builder.transpose(made, (*order, *(i for i in range(len(made.shape)) if i not in order)))
