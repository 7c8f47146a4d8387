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
from wonderland.compile.members import IndexedPlaces, Scatter
from wonderland.compile.nodes import Empty, Node, Number, normal
from wonderland.compile.orders import inverse, of_memory
from wonderland.core.types import ArrayType

Pairs = Sequence[tuple[int, int]]


def pad(builder: Any, x: Node, axes: Sequence[int], padding: Pairs) -> Node:
    """An array with zeros around it, in the order in which it lies in memory; less than none cuts elements off."""
    if not any(map(any, padding)) or 0 in x.shape:
        widths = dict(zip(axes, padding, strict=True))
        return (
            x
            if 0 not in x.shape
            else Number(ArrayType(tuple(n + sum(widths.get(i, ())) for i, n in enumerate(x.shape)), x.dtype), 0)
        )
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
    made, whole = builder.keep(Empty(ArrayType(wide, x.dtype))), [slice(0, n, 1) for n in wide]
    inside = [slice(pairs[i][0], pairs[i][0] + x.shape[i], 1) for i in order]
    for axis, middle in enumerate(inside):  # zeros on each side, outside of what is there already
        for side in (slice(0, middle.start, 1), slice(middle.stop, wide[axis], 1)):
            index = [*inside[:axis], side, *whole[axis + 1 :]]
            zeros = Number(ArrayType(tuple(len(range(i.start, i.stop)) for i in index), x.dtype), 0)
            made = builder.scatter_slice(made, zeros, index, "set")
    made = builder.scatter_slice(made, builder.transpose(x, order), inside, "set")
    return builder.transpose(made, inverse(order))


def lower(
    builder: Any, x: Node, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    padding: Pairs,
) -> Node:  # fmt: skip
    """Windows of an array with zeros around it."""
    x = pad(builder, x, axes, padding)
    offset, steps = x.layout
    shape, moved = list(x.shape), list(steps)
    for a, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        shape[a] = max((shape[a] - max((size - 1) * dilation + 1, 0)) // stride + 1, 0)
        moved[a] *= stride
    taps = [steps[a] * dilation for a, dilation in zip(axes, dilations, strict=True)]
    return builder.view(x, (*shape, *sizes), offset, (*moved, *taps))


class Phase(NamedTuple):
    """Along one axis: the elements start, start + stride, ..., `count` of them.

    The first of them is in window `place` at tap `first`, in window place - back at tap first + step, and so on:
    `taps` of them, as far as there are such windows.
    """

    start: int
    stride: int
    count: int
    place: int
    back: int
    first: int
    step: int
    taps: int


def _phases(extent: int, size: int, stride: int, dilation: int, padding: tuple[int, int]) -> Iterator[Phase]:
    """The phases of an axis whose elements are in any window."""
    low, shared = padding[0], math.gcd(stride, dilation)
    for start in range(min(stride, extent)):
        residue = (low + start) % stride
        first = next((t for t in range(size) if t * dilation % stride == residue), None)
        if first is not None:
            step, place = stride // shared, (low + start - first * dilation) // stride
            count, taps = -(-(extent - start) // stride), -(-(size - first) // step)
            yield Phase(start, stride, count, place, dilation // shared, first, step, taps)


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
    if by_product is not None:
        phases = [
            [*_phases(shape[a], *numbers)]
            for a, *numbers in zip(axes, sizes, strides, dilations, padding, strict=True)
        ]  # fmt: skip
        return _fold_product(builder, type, axes, phases, by_product)
    return _fold_windows(builder, w, type, axes, [*zip(sizes, strides, dilations, padding, strict=True)])


def _fold_windows(builder: Any, w: Node, type: ArrayType, axes: Sequence[int], numbers: Sequence[Any]) -> Node:
    """Windows that lie in memory: one pass if they don't overlap, otherwise one for each tap."""
    wide, inside = [*type.shape], [slice(0, n, 1) for n in type.shape]
    for a, (*_, (low, high)) in zip(axes, numbers, strict=True):
        wide[a] += low + high
        inside[a] = slice(low, low + type.shape[a], 1)
    sizes, strides, dilations, _ = zip(*numbers, strict=True)
    rank, order = len(wide), of_memory(w) or tuple(range(len(w.shape)))
    own = [i for i in order if i < rank]  # the result is in the order of the windows
    apart = all((size - 1) * dilation < stride for size, stride, dilation, _ in numbers)
    covered = all(wide[a] == size * w.shape[a] for a, size in zip(axes, sizes, strict=True))
    place = ArrayType(tuple(wide[i] for i in own), type.dtype)
    target = builder.keep(Empty(place)) if apart and covered else builder.memory(Number(place, 0))

    def summed(target: Node, update: Node, tap: Sequence[Any], mode: str) -> Node:
        view = builder.transpose(target, inverse(own))
        view = lower(builder, view, axes, sizes, strides, dilations, ((0, 0),) * len(axes))
        index = (*(slice(0, n, 1) for n in w.shape[:rank]), *tap)
        view, update = (builder.slice(node, index) for node in (view, update))
        around = [i for i in order if i < len(view.shape)]
        view, update = (builder.transpose(node, around) for node in (view, update))
        layout = view.layout[0], normal(view.shape, view.layout[1])
        return builder.keep(Scatter(target, update, IndexedPlaces(layout), mode))

    if apart:
        target = summed(target, w, [slice(0, n, 1) for n in sizes], "set")
    else:
        for tap in product(*map(range, sizes)):
            target = summed(target, w, tap, "add")
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
    free = [[i for i in range(len(n.shape)) if i not in (*c, *b)] for n, c, b in zip((x, y), contract, batch)]
    owners = [(None, i) for i in batch[0]] + [(0, i) for i in free[0]] + [(1, i) for i in free[1]]
    extents = [(x, y)[owner or 0].shape[i] for owner, i in owners]
    found: dict[tuple[int, int], int] = {(s, n): i for i, (s, n) in enumerate(zip(strides, extents)) if n != 1}
    places = [found.get((s, n)) for n, s in zip(w.shape, w.layout[1], strict=True)]
    if any(i is None and n != 1 for i, n in zip(places, w.shape, strict=True)):
        return None
    known = [owners[places[a]] if places[a] is not None else None for a in axes]  # type: ignore[index]
    inner = [None if i is None else owners[i] for i in places[rank:]]
    sides = {None if side is None else side[0] for side in known}
    if sides not in ({0}, {1}):
        return None
    (side,) = sides
    if any(tap is not None and tap[0] != 1 - side for tap in inner):  # type: ignore[operator]
        return None
    order = [*range(len(owners))]
    if side == 1:  # the product with its factors exchanged
        b, r = len(batch[0]), len(free[0])
        order = [*range(b), *range(b + r, len(owners)), *range(b, b + r)]
        x, y, contract, batch = y, x, contract[::-1], batch[::-1]
    result = [None if i is None else order.index(i) for i in places[:rank]]
    at = [i for _, i in known]  # type: ignore[misc]
    return Factors(x, y, contract, batch, at, [None if tap is None else tap[1] for tap in inner], result)


def _fold_product(
    builder: Any, type: ArrayType, axes: Sequence[int], phases: list[list[Phase]], factors: Factors
) -> Node:
    """For each phase a product of windows of x, with zeros around it, and of the taps of y that are in it."""
    x, extents = factors.x, [factors.x.shape[i] for i in factors.places]
    padding = [
        (max(-min(p.place - (p.taps - 1) * p.back for p in own), 0), max(max(p.place + p.count for p in own) - n, 0))
        for own, n in zip(phases, extents, strict=True)
        if own
    ]  # fmt: skip
    if len(padding) < len(phases):
        return Number(type, 0)
    x = pad(builder, x, factors.places, padding)
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


def _phase(builder: Any, x: Node, padding: Pairs, parts: Sequence[Phase], factors: Factors) -> Node:
    """The elements of one phase, axes of extent 1 left out."""
    offset, strides = x.layout
    shape, y, contract = [*x.shape], factors.y, ([*factors.contract[0]], [*factors.contract[1]])
    steps, windows, taken = [], [], [slice(0, n, 1) for n in y.shape]
    for axis, tap, p, (low, _) in zip(factors.places, factors.taps, parts, padding, strict=True):
        shape[axis] = p.count
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
    b, free_y = (
        len(factors.batch[0]),
        [i for i in range(len(y.shape)) if i not in (*factors.contract[1], *factors.batch[1])],
    )
    free_x = len(factors.x.shape) - b - len(factors.contract[0])
    left = [*range(b + free_x), *(b + free_x + k for k, i in enumerate(free_y) if i not in factors.taps)]
    order = [left.index(i) for i in factors.result if i is not None]
    return _permuted(builder, made, order)


def _permuted(builder: Any, node: Node, order: list[int]) -> Node:
    """Some axes in a new order; the others have extent 1, and come last."""
    return builder.transpose(node, (*order, *(i for i in range(len(node.shape)) if i not in order)))
