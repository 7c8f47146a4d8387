"""Copies that transpose: the node and its kernel.

Memory that is contiguous along one axis is copied to memory that is contiguous along another. A loop nest would touch a
line of the cache for every element on one side, and lines that lie powers of two apart push each other out. Here square
blocks go through registers, two by two, so that lines are used up at once.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from wonderland.compile import ir
from wonderland.compile.gemm_tile import NAMES, Elements, Tile, begin, ceil_div, tile
from wonderland.compile.kernel import CHUNK_NANOSECONDS, MOST_CHUNKS, PARALLEL_NANOSECONDS, Kernel
from wonderland.compile.nodes import STEP, Node, Whole, contiguous_strides, joined_axes
from wonderland.core.types import ArrayType

NANOSECONDS = 0.4  # for an element
LEAST = 4096  # elements that are worth a kernel of its own


class Axis(NamedTuple):
    """An extent, and the strides of the source and of the copy."""

    extent: int
    source: int
    to: int


class Moves(NamedTuple):
    """What a copy is made of: the axis that is contiguous in the copy, the one that is in the source, the others."""

    inner: Axis
    across: Axis
    others: list[Axis]


def moves(node: Node) -> Moves | None:
    """How to copy a view by blocks, if that is a way."""
    if node.dtype.itemsize not in NAMES or node.dtype.kind == "c" or node.base is node or node.type.size < LEAST:
        return None
    axes = [Axis(*axis) for axis in joined_axes(node.shape, node.layout[1], contiguous_strides(node.shape))]
    across = [a for a in axes[:-1] if a.source == 1]
    lanes = tile(NAMES[node.dtype.itemsize]).lanes  # elements of any type are moved as floats of their size
    if not across or axes[-1].source in (0, 1) or min(across[0].extent, axes[-1].extent) < lanes:
        return None
    return Moves(axes[-1], across[0], [a for a in axes[:-1] if a is not across[0]])


class Transposed(Whole):
    """A view in memory of its own."""

    def __init__(self, node: Node, moves: Moves):
        super().__init__(ArrayType(node.shape, node.dtype))
        self.view: Node = node
        self.moves: Moves = moves

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.view.base,)

    @property
    def nanoseconds(self) -> float:
        return STEP + NANOSECONDS * self.type.size

    def plan(self, plan: Any, position: int) -> None:
        plan.own(self)
        plan.add_kernel(TransposeKernel(self, plan.memory))


@cache
def _block(t: Tile) -> ir.Function:
    """One block through registers. It is called, as LLVM takes long for so many shuffles."""
    f, (here, step, there, row) = begin(t, f"transpose_{t.dtype}", "here* step there* row")
    for lane, vector in enumerate(t.transpose([here.at(step * lane).vector() for lane in range(t.lanes)])):
        there.at(row * lane).store(vector)
    return f


class TransposeKernel(Kernel):
    """Strips of the axis that is contiguous in the source, each as wide as two blocks, for each place of the others."""

    def __init__(self, node: Transposed, memory: Any):
        super().__init__()
        self.node: Transposed = node
        self.tile: Tile = tile(NAMES[node.dtype.itemsize])
        offset = node.view.layout[0] * node.dtype.itemsize
        self.params = [(memory[node], 0), (memory[node.view.base], offset)]
        self.written = {memory[node]}
        inner, across, others = node.moves
        self.width, self.height = (self._blocks(axis) * self.tile.lanes for axis in (across, inner))
        strips = ceil_div(across.extent, self.width)
        total = strips * math.prod(a.extent for a in others)
        self.work = NANOSECONDS * node.type.size
        wanted = 1 if self.work < PARALLEL_NANOSECONDS else min(MOST_CHUNKS, max(2, int(self.work / CHUNK_NANOSECONDS)))
        self.share_work(total, ceil_div(total, min(total, wanted)))
        axes = [number for axis in others for number in axis]
        self.table += [inner.extent, inner.source, across.extent, across.to, strips, *axes]

    def _blocks(self, axis: Axis) -> int:
        return 2 if axis.extent >= 2 * self.tile.lanes else 1

    def write(self) -> ir.Function:
        f, t = self.function("noinline"), self.tile
        out, source, table, begin, end = f.parameters
        read = [f.load(ir.LONG, f.element(ir.LONG, table, 3 + i)) for i in range(5 + 3 * len(self.node.moves.others))]
        (extent, step, breadth, row, strips), others = read[:5], read[5:]
        with f.loop(begin, end) as number:
            rest, strip = number // strips, number % strips
            first = f.min(strip * self.width, breadth - self.width)
            to, place = row * first, first
            for i in reversed(range(0, len(others), 3)):
                count, away, toward = others[i : i + 3]
                rest, index = (rest // count, rest % count) if i else (rest, rest)
                to, place = to + index * toward, place + index * away
            with f.loop(0, extent, self.height) as start:
                i = f.min(start, extent - self.height)
                here, there = Elements(t, source).at(place + i * step), Elements(t, out).at(to + i)
                for down in range(0, self.height, t.lanes):
                    for across in range(0, self.width, t.lanes):
                        f.call(_block(t), here.at(step * down).at(across), step, there.at(row * across).at(down), row)
        f.ret()
        return f

    def describe(self) -> str:
        inner, across, others = self.node.moves
        count = math.prod(a.extent for a in others)
        parallel = ", parallel" if self.table[0] > 1 else ""
        return f"transposing {f'{count} of ' if others else ''}[{across.extent}, {inner.extent}]{parallel}"
