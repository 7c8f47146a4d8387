"""Products of windows with a number for each tap and channel (depthwise convolutions): the node and its kernels.

x has axes of rows, taps and channels, and its channels are next to each other in memory. Either

    out[row, c] = sum over taps of x[row, tap, c] * y[tap, c]      ("weigh"), or
    out[piece, tap, c] = sum over the rows of a piece of x[row, tap, c] * y[row, c]      ("correlate").

A vector of channels at a time: the weights of all taps, or the sums of some, stay in registers while rows pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from wonderland.compile import ir
from wonderland.compile.gemm_tile import NAMES, Elements, Tile, ceil_div, fma, tile
from wonderland.compile.kernel import MOST_CHUNKS, PARALLEL_NANOSECONDS, Kernel
from wonderland.compile.nodes import STEP, Node, Whole
from wonderland.compile.orders import inverse
from wonderland.core.types import ArrayType

MOST_TAPS = 32
SUMS = 10  # taps whose sums are in registers at a time
PIECES = 16  # of the rows, each with its own sums, whatever the number of threads
NANOSECONDS = 0.08  # of a multiply-add


class TapAxis(NamedTuple):
    """An extent, and the strides of x and y."""

    extent: int
    x: int
    y: int


class TapParts(NamedTuple):
    """What the axes are; rows from the outside in."""

    rows: list[TapAxis]
    taps: list[TapAxis]
    channels: TapAxis

    @property
    def row_count(self) -> int:
        return math.prod(a.extent for a in self.rows)

    @property
    def tap_count(self) -> int:
        return math.prod(a.extent for a in self.taps)


def lower(builder: Any, x: Node, y: Node, start: int) -> Node | None:
    """The sum of x * y, of one shape, over the axes from `start` on; None if it isn't of this kind."""
    if x.dtype.itemsize not in NAMES or x.dtype.kind != "f" or not (x.in_memory and y.in_memory):
        return None
    axes = [*map(TapAxis, x.shape, x.layout[1], y.layout[1])]
    kept = [i for i in range(start) if axes[i].extent != 1]
    summed = [i for i in range(start, len(axes)) if axes[i].extent != 1]
    last = [i for i in kept if axes[i].x == 1 and axes[i].y]
    if len(last) != 1 or not summed or axes[last[0]].extent < tile(NAMES[x.dtype.itemsize]).lanes:
        return None
    others = [i for i in kept if i != last[0]]
    weigh = all(axes[i].y == 0 for i in others) and math.prod(axes[i].extent for i in summed) <= MOST_TAPS
    rows, taps = (others, summed) if weigh else (summed, others)
    if not weigh and any(axes[i].y for i in others):
        return None
    rows = sorted(rows, key=lambda i: -abs(axes[i].x))
    parts = TapParts([axes[i] for i in rows], [axes[i] for i in taps], axes[last[0]])
    if parts.tap_count > MOST_TAPS or not parts.rows or (not weigh and parts.channels.y != 1):
        return None
    if weigh:  # weights as (tap, channel), next to each other
        y = _weights(builder, y, taps, last[0])
    left = [*(rows if weigh else taps), last[0]]
    made: Node = builder.keep(Taps(x, y, parts, weigh))
    if not weigh:
        made = builder.reduce(made, (0,), "add")
    made = builder.reshape(made, [axes[i].extent for i in left])
    return builder.reshape(builder.transpose(made, inverse(left)), x.shape[:start])


def _weights(builder: Any, y: Node, taps: Sequence[int], channels: int) -> Node:
    order = (*taps, channels)
    rest = [i for i in range(len(y.shape)) if i not in order]
    y = builder.transpose(y, (*rest, *order))
    y = builder.slice(y, (*[0] * len(rest), *(slice(0, n, 1) for n in y.shape[len(rest) :])))
    return builder.memory(y)


class Taps(Whole):
    """x and y as they lie; the result is contiguous."""

    def __init__(self, x: Node, y: Node, parts: TapParts, weigh: bool):
        self.x, self.y, self.parts, self.weigh = x, y, parts, weigh
        rows, channels = [a.extent for a in parts.rows], parts.channels.extent
        self.grain: int = ceil_div(parts.row_count, min(PIECES, parts.row_count))
        pieces = ceil_div(parts.row_count, self.grain)
        shape = (*rows, channels) if weigh else (pieces, *(a.extent for a in parts.taps), channels)
        super().__init__(ArrayType(shape, x.dtype))

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.x.base, self.y.base)

    @property
    def nanoseconds(self) -> float:
        return STEP + NANOSECONDS * self.parts.row_count * self.parts.tap_count * self.parts.channels.extent

    def plan(self, plan: Any, position: int) -> None:
        plan.own(self)
        plan.add_kernel(TapsKernel(self, plan.memory))

    def __str__(self) -> str:
        what = "weighed" if self.weigh else "correlated"
        return f"{self.parts.tap_count} taps {what} {self.type}"


class TapsKernel(Kernel):
    """Work is cut by rows of all but the innermost axis, or by pieces."""

    def __init__(self, node: Taps, memory: Any):
        super().__init__()
        self.node: Taps = node
        self.tile: Tile = tile(NAMES[node.dtype.itemsize])
        offsets = [n.layout[0] * node.dtype.itemsize for n in (node.x, node.y)]
        self.params = [(memory[node], 0), (memory[node.x.base], offsets[0]), (memory[node.y.base], offsets[1])]
        self.written = {memory[node]}
        self.work = node.nanoseconds
        shared = self.work >= PARALLEL_NANOSECONDS
        rows, inner = node.parts.rows[:-1], node.parts.rows[-1]
        if node.weigh:
            total = math.prod(a.extent for a in rows)
            self.share_work(total, ceil_div(total, min(total, MOST_CHUNKS)) if shared else total)
        else:
            self.share_work(node.shape[0], 1 if shared else node.shape[0])
        axes = [number for axis in rows for number in axis]
        self.table += [node.parts.channels.extent, *inner, node.parts.row_count, node.grain, *axes]

    def write(self) -> ir.Function:
        f = self.function("noinline")
        out, x, y, table, begin, end = f.parameters
        self.f, (self.out, self.x, self.y) = f, (Elements(self.tile, p) for p in (out, x, y))
        count = 6 + 3 * (len(self.node.parts.rows) - 1)
        numbers = [f.load(ir.LONG, f.element(ir.LONG, table, 3 + i)) for i in range(count)]
        self.channels, self.extent, self.step, self.y_step, self.total, self.grain, *self.outer = numbers
        with f.loop(begin, end) as number, f.loop(0, self.channels, self.tile.lanes) as start:
            channel = f.min(start, self.channels - self.tile.lanes)
            (self._weigh if self.node.weigh else self._correlate)(number, channel)
        f.ret()
        return f

    def _taps(self) -> list[int]:
        """Where the taps are in x: parts of the code, for they are the same for any number of rows."""
        taps = self.node.parts.taps
        return [
            sum(i * axis.x for i, axis in zip(place, taps, strict=True))
            for place in product(*(range(a.extent) for a in taps))
        ]

    def _row(self, number: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where a row of the outer axes begins, in x and in y."""
        x = y = self.f.constant(0)
        for i in reversed(range(0, len(self.outer), 3)):
            extent, x_step, y_step = self.outer[i : i + 3]
            number, index = (number // extent, number % extent) if i else (number, number)
            x, y = x + index * x_step, y + index * y_step
        return x, y

    def _weigh(self, number: ir.Value, channel: ir.Value) -> None:
        f, places = self.f, self._taps()
        weights = [self.y.at(channel + tap * self.channels).vector() for tap in range(len(places))]
        source = self.x.at(self._row(number)[0] + channel)
        to = self.out.at(number * self.extent * self.channels + channel)
        with f.loop(0, self.extent) as i:
            here = source.at(i * self.step)
            total = here.vector(places[0]) * weights[0]
            for place, weight in zip(places[1:], weights[1:], strict=True):
                total = fma(here.vector(place), weight, total)
            to.at(i * self.channels).store(total)

    def _correlate(self, piece: ir.Value, channel: ir.Value) -> None:
        """Rows of a piece are numbered through; the innermost axis may begin and end within it."""
        f, places = self.f, self._taps()
        to = self.out.at(piece * (len(places) * self.channels) + channel)
        first = piece * self.grain
        stop = f.min(first + self.grain, self.total)
        for group in range(0, len(places), SUMS):
            chosen = places[group : group + SUMS]
            sums = [f.variable(0, self.tile.vector) for _ in chosen]
            at = f.variable(first)
            with f.again_while(lambda at=at: at.get() < stop):
                now = at.get()
                number, inside = now // self.extent, now % self.extent
                run = f.min(self.extent - inside, stop - now)
                x_row, y_row = self._row(number)
                source = self.x.at(x_row + inside * self.step + channel)
                other = self.y.at(y_row + inside * self.y_step + channel)
                with f.loop(0, run) as i:
                    here, factor = source.at(i * self.step), other.at(i * self.y_step).vector()
                    for place, cell in zip(chosen, sums, strict=True):
                        cell.set(fma(here.vector(place), factor, cell.get()))
                at.set(now + run)
            for tap, cell in enumerate(sums, group):
                to.at(tap * self.channels).store(cell.get())

    def describe(self) -> str:
        return f"{self.node}{', parallel' if self.table[0] > 1 else ''}"
