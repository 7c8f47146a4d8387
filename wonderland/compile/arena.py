"""Places in an arena: sizes in the order of their first use come in, offsets go out.

`Holes` keeps the free parts between the used ones, by size and by their ends, so that a place is found and given back
in logarithmic time: a program may have tens of thousands of buffers.
"""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGNMENT = 64


def round_up(n: int, to: int) -> int:
    """The next multiple of `to`."""
    return -(-n // to) * to


class Holes:
    """The free parts of memory from `top` on downwards; what doesn't fit into one of them raises `top`."""

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
