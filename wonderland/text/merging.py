"""The merges of byte pair encoding: pieces as ids of their bytes come in, the ids of their tokens go out.

In each piece the pair of neighbours with the lowest rank is merged, the leftmost of equal ones, until none has a rank.
The pairs that have one are in a hash table; those of a piece wait in a heap, so that a piece of n bytes takes about
n log n steps whatever is in it.
"""

from __future__ import annotations

import numpy as np

from wonderland.compile.typed import typed


class PairTable:
    """The pairs that are merged: their ranks, and the ids of what they become."""

    def __init__(self, left: np.ndarray, right: np.ndarray, ranks: np.ndarray, ids: np.ndarray):
        size = 16
        while size < 2 * len(left):
            size *= 2
        self.mask: int = size - 1
        self.table: np.ndarray = np.full(4 * size, -1)  # left, right, rank, id of each place
        self.twice: int = fill(self.table, self.mask, left, right, ranks, ids)  # a pair that is there twice, or -1

    def merge(self, symbols: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Merge in each piece, symbols[bounds[i] : bounds[i + 1]]; what is left is in front, and has these bounds."""
        count = len(symbols)
        work = [np.empty(count, np.int64) for _ in range(3)]
        heap = np.empty(3 * count, np.int64)
        ends = bounds.copy()
        merge_pieces(symbols, bounds, self.table, self.mask, *work, heap, ends)
        return ends


@typed
def place_of(table, mask, left, right):
    """Where a pair is in the table, or the free place where it belongs."""
    place = (left * 0x1E3779B97F4A7C15 + right * 0x2545F4914F6CDD1D) >> 32 & mask
    while table[4 * place] >= 0 and (table[4 * place] != left or table[4 * place + 1] != right):
        place = (place + 1) & mask
    return place


@typed
def fill(table, mask, left, right, ranks, ids):
    """Enter all pairs; the number of the first that is there already, or -1."""
    for i in range(len(left)):
        place = place_of(table, mask, left[i], right[i])
        if table[4 * place] >= 0:
            return i
        table[4 * place] = left[i]
        table[4 * place + 1] = right[i]
        table[4 * place + 2] = ranks[i]
        table[4 * place + 3] = ids[i]
    return -1


@typed
def push(heap, size, key):
    """Put a key into a heap that has the smallest first; its new size."""
    i = size
    parent = (i - 1) >> 1
    while i > 0 and heap[parent] > key:
        heap[i] = heap[parent]
        i = parent
        parent = (i - 1) >> 1
    heap[i] = key
    return size + 1


@typed
def drop_first(heap, size):
    """Take the smallest key away; its new size."""
    size -= 1
    key = heap[size]
    i = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[i] = heap[child]
        i = child
        child = 2 * i + 1
    heap[i] = key
    return size


@typed
def look(symbols, after, places, i, end, table, mask, heap, size):
    """Find the pair that begins at i, note its place in the table (-1: none), and let it wait in the heap."""
    places[i] = -1
    if after[i] < end:
        place = place_of(table, mask, symbols[i], symbols[after[i]])
        if table[4 * place] >= 0:
            places[i] = place
            # Ranks are less than 2^31, positions less than 2^32: a key orders by rank, then by position.
            size = push(heap, size, table[4 * place + 2] * 4294967296 + i)
    return size


@typed
def merge_pieces(symbols, bounds, table, mask, after, before, places, heap, ends):
    """Merge in each piece, and move what is left to the front."""
    written = 0
    for piece in range(len(bounds) - 1):
        start = bounds[piece]
        end = bounds[piece + 1]
        size = 0
        for i in range(start, end):
            after[i] = i + 1
            before[i] = i - 1
            size = look(symbols, after, places, i, end, table, mask, heap, size)
        while size > 0:
            i = heap[0] & 4294967295
            rank = heap[0] >> 32
            size = drop_first(heap, size)
            # What waits may be out of date: one of the two was merged meanwhile.
            if places[i] >= 0 and table[4 * places[i] + 2] == rank:
                gone = after[i]
                symbols[i] = table[4 * places[i] + 3]
                places[gone] = -1
                after[i] = after[gone]
                if after[i] < end:
                    before[after[i]] = i
                size = look(symbols, after, places, i, end, table, mask, heap, size)
                if before[i] >= start:
                    size = look(symbols, after, places, before[i], end, table, mask, heap, size)
        ends[piece] = written
        i = start
        while i < end:
            symbols[written] = symbols[i]
            written += 1
            i = after[i]
    ends[len(bounds) - 1] = written
