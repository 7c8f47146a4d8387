"""Memory: buffers, and the arena that those which aren't in use together share."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from wonderland.compile.nodes import Constant, Node
from wonderland.compile.sites import Sites

END = 1 << 60
ALIGNMENT = 64  # bytes


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: where it is (`place`, `data`), how large, and from when to when it is in use."""

    place: str  # slot, arena, slice, heap, address
    bytes: int = 0
    data: Any = None
    offset: int = 0  # in the arena; or the address
    first: int = END
    last: int = -1

    def touch(self, position: int) -> None:
        """It is in use at a position, and so is the memory that it is a slice of."""
        self.first, self.last = min(self.first, position), max(self.last, position)
        if self.place == "slice":
            self.data[0].touch(position)

    @property
    def root(self) -> Buffer:
        """The memory that a slice is part of."""
        return self.data[0].root if self.place == "slice" else self


class Memory(dict[Any, Any]):
    """The buffer of each stored node; constants are where they are."""

    def __missing__(self, node: Node) -> Buffer:
        if not isinstance(node, Constant):
            raise KeyError(node)
        self[node] = buffer = Buffer("address", offset=node.array.__array_interface__["data"][0])
        return buffer


class MemoryPlan:
    """What the native code does, and in which memory: `steps`, `buffers`, and `cells` at the head of the arena."""

    def __init__(self) -> None:
        self.sites: Sites = Sites()  # the places where it can fail
        self.memory: Memory = Memory()
        self.buffers: list[Buffer] = []
        self.cells: int = 8  # 64-bit words; the first is the error word
        self.heaps: list[Buffer] = []
        self.position = 0
        self.steps: list[Any] = []
        self.kernels: list[Any] = []
        self.final: list[Any] = []  # copies to what a run that fails leaves alone
        self.results: list[tuple[Buffer, int]] = []  # of dynamic length: where they are, and the slots they go to
        self.work: float = 0.0

    @property
    def constants(self) -> list[Any]:
        """The arrays whose addresses are in use."""
        return [node.array for node in self.memory if isinstance(node, Constant)]

    def arena(self, size: int) -> Buffer:
        buffer = Buffer("arena", size)
        self.buffers.append(buffer)
        return buffer

    def cell(self, count: int = 1) -> int:
        self.cells += count
        return self.cells - count

    def heap(self) -> Buffer:
        """Memory of a length that only the run knows: cells for pointer, length, capacity."""
        buffer = Buffer("heap", 0, self.cell(3))
        self.heaps.append(buffer)
        return buffer

    def place_buffers(self) -> int:
        """Give every arena buffer its offset; returns the bytes of the arena."""
        holes = Holes(round_up(self.cells * 8, ALIGNMENT))
        active: list[tuple[int, int, int]] = []  # (last use, offset, bytes), the next to die first
        for buffer in sorted((b for b in self.buffers if b.last >= 0), key=lambda b: b.first):
            size = round_up(max(buffer.bytes, 1), ALIGNMENT)
            while active and active[0][0] < buffer.first:
                holes.give(*heappop(active)[1:])
            buffer.offset = holes.take(size)
            heappush(active, (buffer.last, buffer.offset, size))
        return holes.top

    def __str__(self) -> str:
        rows = [f"{'offset':>12} {'bytes':>12}  in use"]
        for buffer in sorted(self.buffers, key=lambda b: (b.offset, b.first)):
            if buffer.last >= 0:
                rows.append(f"{buffer.offset:>12,} {buffer.bytes:>12,}  {buffer.first} to {buffer.last}")
        return "\n".join(rows)


def round_up(n: int, to: int) -> int:
    """The next multiple of `to`."""
    return -(-n // to) * to


class Holes:
    """The free parts of memory from `top` on downwards; what doesn't fit into one of them raises `top`.

    They are kept by size and by their ends, so that a place is found and given back in logarithmic time: a program may
    have tens of thousands of buffers.
    """

    def __init__(self, top: int):
        self.top = top
        self._by_size: list[tuple[int, int]] = []  # (bytes, offset), sorted
        self._starts: dict[int, int] = {}  # offset -> bytes
        self._ends: dict[int, int] = {}  # end -> offset

    def take(self, size: int) -> int:
        """The offset of `size` free bytes: in the smallest hole that has room, or at the top."""
        i = bisect_left(self._by_size, (size, 0))
        if i < len(self._by_size):
            room, offset = self._by_size[i]
            self._remove(offset, room)
            if room > size:
                self._add(offset + size, room - size)
            return offset
        offset = self._ends.get(self.top, self.top)  # grow the hole at the end
        if offset != self.top:
            self._remove(offset, self._starts[offset])
        self.top: int = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Memory that is free again; it grows together with the holes beside it."""
        after = self._starts.get(offset + size)
        if after is not None:
            self._remove(offset + size, after)
            size += after
        before = self._ends.get(offset)
        if before is not None:
            self._remove(before, offset - before)
            offset, size = before, size + offset - before
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._starts[offset] = size
        self._ends[offset + size] = offset

    def _remove(self, offset: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        del self._starts[offset], self._ends[offset + size]
