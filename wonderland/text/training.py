"""Training of byte pair encoding: counted pieces come in, merges go out, the most frequent pair first.

All pieces lie in one array of symbols, linked to their neighbours. A pair has a slot: its two symbols, how often it
occurs, and the first of the positions where it does, which are linked as well. So a merge visits the places where it
happens and nothing else, and changes the counts of the pairs beside them. Slots are found by a hash table, and the most
frequent one by a heap: counts in it may be too large, as they fall, and are renewed when they come to the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wonderland.compile.typed import typed


def learn(
    pieces: Mapping[bytes, int], vocabulary: dict[bytes, int], size: int, min_count: int, first: int
) -> list[tuple[int, int]]:
    """Merge pairs until the vocabulary, which has the bytes and is extended, has `size` tokens; the merges, in order.

    The pair with the highest count is next; of equal ones that with the smaller left id, then the smaller right id. It
    ends earlier if no pair occurs `min_count` times. New ids count on from `first`.
    """
    tokens = {number: token for token, number in vocabulary.items()}
    merges: list[tuple[int, int]] = []
    corpus = Corpus([*pieces], [*pieces.values()], vocabulary)
    while len(vocabulary) < size:
        corpus.make_room(2 * len(tokens) + 2)
        slot = corpus.best(min_count)
        if slot < 0:
            break
        left, right = corpus.pair(slot)
        token = tokens[left] + tokens[right]
        new = vocabulary.setdefault(token, first + len(merges))
        known = new in tokens  # the same bytes by another pair: their counts are joined
        tokens[new] = token
        corpus.merge(slot, new)
        merges.append((left, right))
        if known:
            first -= 1
            corpus.build(len(corpus.slots) // 4)
    return merges


class Corpus:
    """The pieces as symbols, and the pairs in them."""

    def __init__(self, pieces: Sequence[bytes], counts: Sequence[int], vocabulary: Mapping[bytes, int]):
        ids = np.array([vocabulary[bytes([value])] for value in range(256)])
        self.symbols: np.ndarray = ids[np.frombuffer(b"".join(pieces), np.uint8)]
        lengths = np.array([len(piece) for piece in pieces], np.int64)
        lengths, times = lengths[lengths > 0], np.array(counts, np.int64)[lengths > 0]
        self.weights: np.ndarray = np.repeat(times, lengths)
        count = len(self.symbols)
        self.after: np.ndarray = np.arange(1, count + 1)
        self.before: np.ndarray = np.arange(-1, count - 1)
        ends = np.cumsum(lengths)
        self.after[ends - 1] = -1
        self.before[ends - lengths] = -1
        self.of: np.ndarray = np.empty(count, np.int64)  # the slot of the pair that begins at a position, -1: none
        self.later: np.ndarray = np.empty(count, np.int64)  # the positions of a pair, linked in both directions
        self.earlier: np.ndarray = np.empty(count, np.int64)
        self.build(2**12)

    def build(self, capacity: int) -> None:
        """Count all pairs, with place for so many of them; for more, if there isn't place for these."""
        while True:
            self.slots: np.ndarray = np.empty(4 * capacity, np.int64)  # left, right, count, first position of each
            self.table: np.ndarray = np.full(2 * capacity, -1)
            self.heap: np.ndarray = np.empty(2 * capacity, np.int64)  # count and slot of each
            self.used = count_pairs(*self._arrays)
            if self.used >= 0:
                break
            capacity *= 2
        self.waiting = wait(self.heap, 0, self.slots, 0, self.used)

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return (
            self.symbols, self.weights, self.after, self.before, self.of, self.later, self.earlier, self.slots,
            self.table,
        )  # fmt: skip

    def make_room(self, more: int) -> None:
        """So many new pairs have slots; those that don't occur any more lose theirs first."""
        capacity = len(self.slots) // 4
        if self.used + more > capacity:
            alive = np.count_nonzero(self.slots[2 : 4 * self.used : 4])
            while capacity < 2 * (alive + more):
                capacity *= 2
            self.build(capacity)

    def best(self, least: int) -> int:
        """The slot of the next pair, -1 if none occurs so often; it leaves the heap."""
        if not self.waiting:
            return -1
        self.waiting = renew_first(self.heap, self.waiting, self.slots)
        if not self.waiting or self.heap[0] < least:
            return -1
        slot = int(self.heap[1])
        self.waiting = drop_largest(self.heap, self.waiting, self.slots)
        return slot

    def pair(self, slot: int) -> tuple[int, int]:
        """The two symbols."""
        left, right = self.slots[4 * slot : 4 * slot + 2].tolist()
        return left, right

    def merge(self, slot: int, new: int) -> None:
        """Merge a pair wherever it is."""
        before = self.used
        self.used = merge_all(*self._arrays, slot, new, before)
        self.waiting = wait(self.heap, self.waiting, self.slots, before, self.used)


# Pairs and their positions


@typed
def slot_of(slots, table, left, right, used):
    """The slot of a pair, or `used`, which becomes its slot."""
    mask = len(table) - 1
    place = (left * 0x1E3779B97F4A7C15 + right * 0x2545F4914F6CDD1D) >> 32 & mask
    while table[place] >= 0:
        slot = table[place]
        if slots[4 * slot] == left and slots[4 * slot + 1] == right:
            return slot
        place = (place + 1) & mask
    table[place] = used
    slots[4 * used] = left
    slots[4 * used + 1] = right
    slots[4 * used + 2] = 0
    slots[4 * used + 3] = -1
    return used


@typed
def enter(symbols, weights, after, of, later, earlier, slots, table, i, used):
    """Enter the pair that begins at i; how many slots are in use then."""
    slot = slot_of(slots, table, symbols[i], symbols[after[i]], used)
    slots[4 * slot + 2] += weights[i]
    first = slots[4 * slot + 3]
    of[i] = slot
    earlier[i] = -1
    later[i] = first
    if first >= 0:
        earlier[first] = i
    slots[4 * slot + 3] = i
    return max(used, slot + 1)


@typed
def leave(weights, of, later, earlier, slots, i):
    """Take the pair that begins at i out, if there is one."""
    slot = of[i]
    if slot >= 0:
        slots[4 * slot + 2] -= weights[i]
        if later[i] >= 0:
            earlier[later[i]] = earlier[i]
        if earlier[i] >= 0:
            later[earlier[i]] = later[i]
        else:
            slots[4 * slot + 3] = later[i]
        of[i] = -1


@typed
def count_pairs(symbols, weights, after, before, of, later, earlier, slots, table):
    """Enter all pairs; how many different ones there are, -1 if there are too many."""
    used = 0
    for i in range(len(symbols)):
        of[i] = -1
        if symbols[i] >= 0 and after[i] >= 0:
            if 4 * used >= len(slots):
                return -1
            used = enter(symbols, weights, after, of, later, earlier, slots, table, i, used)
    return used


@typed
def merge_at(symbols, weights, after, before, of, later, earlier, slots, table, i, new, used):
    """Merge the pair that begins at i."""
    gone = after[i]
    left = before[i]
    right = after[gone]
    leave(weights, of, later, earlier, slots, i)
    leave(weights, of, later, earlier, slots, gone)
    symbols[i] = new
    symbols[gone] = -1
    after[i] = right
    if left >= 0:
        leave(weights, of, later, earlier, slots, left)
        used = enter(symbols, weights, after, of, later, earlier, slots, table, left, used)
    if right >= 0:
        before[right] = i
        used = enter(symbols, weights, after, of, later, earlier, slots, table, i, used)
    return used


@typed
def merge_all(symbols, weights, after, before, of, later, earlier, slots, table, slot, new, used):
    """Merge the pair of a slot wherever it is; how many slots are in use then."""
    left = slots[4 * slot]
    right = slots[4 * slot + 1]
    while slots[4 * slot + 3] >= 0:
        i = slots[4 * slot + 3]
        if left == right:  # a run of the same symbol is merged from its beginning, all of it
            while before[i] >= 0 and symbols[before[i]] == left:
                i = before[i]
        while i >= 0 and of[i] == slot:
            used = merge_at(symbols, weights, after, before, of, later, earlier, slots, table, i, new, used)
            i = after[i]
    return used


# The heap: counts with slots, the next pair first


@typed
def precedes(slots, count, slot, other_count, other):
    """Is a pair merged before another one?"""
    if count != other_count:
        return 1 if count > other_count else 0
    if slots[4 * slot] != slots[4 * other]:
        return 1 if slots[4 * slot] < slots[4 * other] else 0
    return 1 if slots[4 * slot + 1] < slots[4 * other + 1] else 0


@typed
def wait(heap, size, slots, start, stop):
    """Put the slots from start to stop into the heap; its new size."""
    for slot in range(start, stop):
        count = slots[4 * slot + 2]
        if count > 0:
            i = size
            parent = (i - 1) >> 1
            while i > 0 and precedes(slots, count, slot, heap[2 * parent], heap[2 * parent + 1]) != 0:
                heap[2 * i] = heap[2 * parent]
                heap[2 * i + 1] = heap[2 * parent + 1]
                i = parent
                parent = (i - 1) >> 1
            heap[2 * i] = count
            heap[2 * i + 1] = slot
            size += 1
    return size


@typed
def sink(heap, size, slots, count, slot):
    """Put a pair into the place of the first one, and then where it belongs."""
    i = 0
    child = 1
    while child < size:
        if child + 1 < size:
            if precedes(slots, heap[2 * child + 2], heap[2 * child + 3], heap[2 * child], heap[2 * child + 1]):
                child += 1
        if precedes(slots, count, slot, heap[2 * child], heap[2 * child + 1]):
            break
        heap[2 * i] = heap[2 * child]
        heap[2 * i + 1] = heap[2 * child + 1]
        i = child
        child = 2 * i + 1
    heap[2 * i] = count
    heap[2 * i + 1] = slot


@typed
def drop_largest(heap, size, slots):
    """Take the first pair away; the new size."""
    size -= 1
    if size > 0:
        sink(heap, size, slots, heap[2 * size], heap[2 * size + 1])
    return size


@typed
def renew_first(heap, size, slots):
    """Renew the counts at the top until that of the first pair is right; the new size."""
    while size > 0:
        slot = heap[1]
        count = slots[4 * slot + 2]
        if count == heap[0]:
            return size
        if count > 0:
            sink(heap, size, slots, count, slot)
        else:
            size = drop_largest(heap, size, slots)
    return size
