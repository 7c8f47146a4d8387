"""Index sets, shared: what each element of a value reads, as the number of its set in a table of distinct sets.

Moving elements about moves numbers and leaves the table alone; all elements of a broadcast sum refer to one set. Tables
hold them as a boolean CSR array (sets x columns) or, where that is less work, as bits. `union` makes the sets of a
result from those of its operands: equal unions are made once, a set that contains the others is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

_FEW = 1 << 17  # rows that are always compared with each other
_BITS = 1 << 27  # at most that many bits at once


class SetTable:
    """Distinct sets, none of them empty: rows of a boolean CSR array, or of bits in words; made of each other."""

    __slots__ = ("_csr", "_rows", "_words", "shape")

    def __init__(self, count: int, columns: int, rows: tuple[Any, ...] | None = None, words: np.ndarray | None = None):
        self.shape: tuple[int, int] = count, columns
        self._rows, self._words, self._csr = rows, words, None

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each set starts and ends, and the columns."""
        if self._rows is None:
            csr = _from_bits(self.words, self.shape[1])
            self._rows = csr.indptr, csr.indices
        return self._rows

    @property
    def csr(self) -> Any:
        """A boolean CSR array (sets x columns)."""
        if self._csr is None:
            ends, columns = self.rows
            self._csr = sparse.csr_array((np.ones(len(columns), bool), columns, ends), shape=self.shape)
        return self._csr

    @property
    def words(self) -> np.ndarray:
        """The sets as bits in 64-bit words."""
        if self._words is None:
            packed = np.packbits(self.csr.toarray(), axis=1)
            bits = np.zeros((self.shape[0], -(-self.shape[1] // 64) * 8), np.uint8)
            bits[:, : packed.shape[1]] = packed
            self._words = bits.view(np.uint64)
        return self._words

    @property
    def is_bits(self) -> bool:
        """Are there only bits?"""
        return self._rows is None

    @property
    def lengths(self) -> np.ndarray:
        """How many columns each set has."""
        if self.is_bits:
            return np.bitwise_count(self.words).sum(1, dtype=np.int64)
        ends = self.rows[0].astype(np.int64)
        return ends[1:] - ends[:-1]

    def __getitem__(self, sets: np.ndarray) -> SetTable:
        if self.is_bits:
            return SetTable(len(sets), self.shape[1], words=self.words[sets])
        ends, columns = self.rows
        starts, lengths = ends[sets], ends[sets + 1] - ends[sets]
        new = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - new[:-1], lengths) + np.arange(new[-1])
        return SetTable(len(sets), self.shape[1], (new, columns[places]))

    @staticmethod
    def of(csr: Any) -> SetTable:
        """The rows of a boolean CSR array, none of them empty."""
        return SetTable(csr.shape[0], csr.shape[1], (csr.indptr, csr.indices))

    @staticmethod
    def stacked(tables: Sequence[SetTable]) -> SetTable:
        """One table after the other."""
        count, columns = sum(t.shape[0] for t in tables), tables[0].shape[1]
        if len(tables) == 1:
            return tables[0]
        if any(t.is_bits for t in tables) and count * columns <= _BITS:
            return SetTable(count, columns, words=np.concatenate([t.words for t in tables]))
        ends, start = [np.zeros(1, np.int64)], 0
        for t in tables:
            ends.append(t.rows[0][1:] + start)
            start += len(t.rows[1])
        return SetTable(count, columns, (np.concatenate(ends), np.concatenate([t.rows[1] for t in tables])))


Term = tuple[np.ndarray | None, np.ndarray, SetTable]  # elements (None: each, in order), the numbers of their sets


class Sets:
    """Element i reads the columns in row `index[i]` of the table, or nothing where that is -1."""

    __slots__ = ("index", "table")

    index: np.ndarray
    table: SetTable

    def __init__(self, index: np.ndarray, table: SetTable):
        self.index, self.table = index, table

    def __getitem__(self, part: slice) -> Sets:
        return Sets(self.index[part], self.table)

    def alone(self) -> Sets:
        """The same without sets that only others refer to."""
        (index,), table = together([(self.index, self.table)])
        return Sets(index, table)

    def entries(self) -> int:
        """How many columns the elements read, all in all."""
        return int(self.table.lengths[self.index[self.index >= 0]].sum())

    def matrix(self) -> Any:
        """A boolean CSR array (elements x columns), canonical."""
        (count, width), (ends, columns) = self.table.shape, self.table.rows
        ends = np.append(ends, ends[-1])  # one more row, empty
        table = sparse.csr_array((np.ones(len(columns), bool), columns, ends), shape=(count + 1, width))
        out = table[np.where(self.index < 0, count, self.index)]
        out.sort_indices()
        return out


def identity(sizes: Sequence[int]) -> list[Sets]:
    """Values whose elements are the columns: each reads itself."""
    total = sum(sizes)
    table = SetTable(total, total, (np.arange(total + 1, dtype=np.int32), np.arange(total, dtype=np.int32)))
    ends = np.cumsum([0, *sizes])
    return [Sets(np.arange(a, b), table) for a, b in pairwise(ends)]


def union(size: int, terms: Sequence[Term]) -> Sets | None:
    """A value of so many elements that reads what the terms say: element `rows[k]` reads set `ids[k]` of the table."""
    terms = [t for t in terms if t[1].size and t[1].max() >= 0]
    if not terms or not size:
        return None
    if size == 1 and len(terms) < 8 and all(t[1].size == 1 and not t[2].is_bits for t in terms):
        return _of_one(terms)
    numbers, table = together([(ids, table) for _, ids, table in terms])
    ordered: list[Any] = [_in_order(size, rows, ids) for (rows, _, _), ids in zip(terms, numbers, strict=True)]
    if any(ids is None for ids in ordered):
        rows = np.concatenate([np.arange(size) if rows is None else rows for rows, _, _ in terms])
        ids = np.concatenate(numbers)
        rows, ids = rows[ids >= 0], ids[ids >= 0]
        reads = sparse.csr_array((np.ones(len(ids), bool), (rows, ids)), shape=(size, table.shape[0]))
    else:
        index = ordered[0]
        for ids in ordered[1:]:
            if np.any((index != ids) & (index >= 0) & (ids >= 0)):
                break
            index = np.where(index < 0, ids, index)
        else:
            return Sets(index, table)
        many = np.stack(ordered, 1)
        there = many >= 0
        indptr = np.concatenate([[0], np.cumsum(there.sum(1))])
        reads = sparse.csr_array((np.ones(indptr[-1], bool), many[there], indptr), shape=(size, table.shape[0]))
    reads.sum_duplicates()
    return _united(reads, table)


def _of_one(terms: Sequence[Term]) -> Sets:
    """`union` for numbers, which programs of many have many of."""
    parts = []
    for _, (number,), table in terms:
        ends, columns = table.rows
        parts.append(columns[ends[number] : ends[number + 1]])
    columns = parts[0] if len(parts) == 1 else _different(np.concatenate(parts))
    return Sets(np.zeros(1, np.intp), SetTable(1, terms[0][2].shape[1], (np.array([0, len(columns)]), columns)))


def concatenate(values: Sequence[tuple[Sets | None, int]]) -> Sets | None:
    """Values with their sizes, one after the other."""
    given = [s for s, _ in values if s is not None]
    if not given:
        return None
    numbers, table = together([(s.index, s.table) for s in given])
    rest = iter(numbers)
    return Sets(np.concatenate([np.full(n, -1) if s is None else next(rest) for s, n in values]), table)


def separate(whole: Sets | None, sizes: Sequence[int]) -> list[Sets | None]:
    """`concatenate` undone: values of these sizes, None for one that reads nothing."""
    if whole is None:
        return [None] * len(sizes)
    parts = [whole[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))]
    return [s if np.any(s.index >= 0) else None for s in parts]


def together(parts: Sequence[tuple[np.ndarray, SetTable]]) -> tuple[list[np.ndarray], SetTable]:
    """Numbers of sets in several tables as numbers in one, without sets that few refer to."""
    groups: dict[int, list[int]] = {}
    for i, (_, table) in enumerate(parts):
        groups.setdefault(id(table), []).append(i)
    numbers: list[Any] = [ids for ids, _ in parts]
    tables, start = [], 0
    for members in groups.values():
        table = parts[members[0]][1]
        if table.shape[0] > 2 * sum(numbers[i].size for i in members):
            used = _different(np.concatenate([numbers[i] for i in members]))
            for i in members:
                numbers[i] = np.where(numbers[i] < 0, -1, np.searchsorted(used, numbers[i]))
            table = table[used]
        if start:
            for i in members:
                numbers[i] = np.where(numbers[i] < 0, -1, numbers[i] + start)
        start += table.shape[0]
        tables.append(table)
    return numbers, SetTable.stacked(tables)


def _different(numbers: np.ndarray) -> np.ndarray:
    """The non-negative numbers there are, sorted."""
    ordered = np.sort(numbers)  # which takes a tenth of the time of np.unique
    return ordered[np.diff(ordered, prepend=-1) > 0]


def _in_order(size: int, rows: np.ndarray | None, ids: np.ndarray) -> np.ndarray | None:
    """One set (or none) for each element, if no element has several."""
    if rows is None:
        return ids
    if len(rows) > size:
        return None
    if len(rows) == size and rows[0] == 0 and np.all(np.diff(rows) == 1):
        return ids
    if np.bincount(rows, minlength=1).max() > 1:
        return None
    out = np.full(size, -1)
    out[rows] = ids
    return out


def _united(reads: Any, table: SetTable) -> Sets:
    """The unions of sets of a table that the rows of a canonical matrix (elements x sets) name."""
    counts = np.diff(reads.indptr)
    index = np.full(len(counts), -1)
    if counts.max() <= 1:
        index[counts == 1] = reads.indices
        return Sets(index, table)
    full = np.flatnonzero(counts)
    reads = reads if len(full) == len(counts) else reads[full]
    first, inverse = _distinct(reads, table.shape[0])
    reads = reads if first is None else reads[first]
    alone = _containing(reads, table)
    if alone is None:
        numbers, out = np.arange(reads.shape[0]), _unions(reads, table)
    else:  # those that a set contains come first
        kept, places = np.unique(alone[alone >= 0], return_inverse=True)
        numbers, rest = np.empty(reads.shape[0], np.intp), np.flatnonzero(alone < 0)
        numbers[alone >= 0] = places
        numbers[rest] = len(kept) + np.arange(len(rest))
        out = table[kept]
        if len(rest):
            out = SetTable.stacked([out, _unions(reads[rest], table)])
    index[full] = numbers if inverse is None else numbers[inverse]
    return Sets(index, out)


def _distinct(reads: Any, count: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Which rows (none of them empty) there are, and which of those each is; None where nearly all differ."""
    weights = np.random.default_rng(0).integers(1 << 63, size=count, dtype=np.uint64)
    starts = reads.indptr[:-1]
    hashes = np.add.reduceat(weights[reads.indices], starts)
    if len(hashes) > _FEW and len(np.unique(hashes[:: len(hashes) // 4096])) > 3072:
        return None, None
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == len(hashes):
        return None, None
    lengths, like = np.diff(reads.indptr), first[inverse]
    same = np.array_equal(lengths, lengths[like])
    if same:  # equal hashes are all but never an accident; never is better
        places = np.repeat(starts[like] - starts, lengths) + np.arange(len(reads.indices))
        same = np.array_equal(reads.indices, reads.indices[places])
    return (first, inverse) if same else (None, None)


def _containing(reads: Any, table: SetTable) -> np.ndarray | None:
    """For each row the set among its own that contains the others, or -1; looked for where unions would be large."""
    lengths = table.lengths
    own = lengths[reads.indices]
    if own.sum() < (1 << 20) + 4 * (lengths.sum() + reads.nnz):
        return None
    starts, count = reads.indptr[:-1], table.shape[0]
    largest = np.maximum.reduceat(own * count + reads.indices, starts) % count
    order = np.argsort(largest, kind="stable")
    groups = np.flatnonzero(np.diff(largest[order], prepend=-1))
    if len(groups) > 1 << 12:
        return None
    out = np.full(len(largest), -1)
    csr, mask, inside = table.csr, np.zeros(table.shape[1], bool), np.zeros(count, bool)
    for rows in np.split(order, groups[1:]):
        part = reads[rows]
        sets = _different(part.indices)
        members, large = csr[sets], csr.indices[slice(*csr.indptr[largest[rows[0]] + np.arange(2)])]
        mask[large] = True
        inside[sets] = np.logical_and.reduceat(mask[members.indices], members.indptr[:-1])
        out[rows] = np.where(np.logical_and.reduceat(inside[part.indices], part.indptr[:-1]), largest[rows], -1)
        mask[large] = False
    return out if np.any(out >= 0) else None


def product(reads: Any, matrix: Any) -> Any:
    """The boolean product of two CSR arrays."""
    lengths = np.diff(reads.indptr)
    rows = np.flatnonzero(lengths)
    part = _unions(reads[rows], SetTable.of(matrix)).csr
    lengths[rows] = np.diff(part.indptr)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return sparse.csr_array((part.data, part.indices, ends), shape=(reads.shape[0], matrix.shape[1]))


def _unions(reads: Any, table: SetTable) -> SetTable:
    """For each row (none of them empty) the union of the sets that it names; by bits where that is less work."""
    (count, columns), rows = table.shape, reads.shape[0]
    terms = int(table.lengths[reads.indices].sum())
    if terms * 64 < reads.nnz * columns or max(count, rows) * columns > _BITS or terms < 4096:
        return SetTable.of(reads @ table.csr)
    words = table.words
    step = max(1, _BITS // max(64 * words.shape[1], 1))  # entries of `reads` at once
    out, row = np.empty((rows, words.shape[1]), np.uint64), 0
    while row < rows:
        stop = max(row + 1, int(np.searchsorted(reads.indptr, reads.indptr[row] + step, "right")) - 1)
        part = words[reads.indices[reads.indptr[row] : reads.indptr[stop]]]
        np.bitwise_or.reduceat(part, reads.indptr[row:stop] - reads.indptr[row], axis=0, out=out[row:stop])
        row = stop
    return SetTable(rows, columns, words=out)


def _from_bits(words: np.ndarray, columns: int) -> Any:
    full = np.unpackbits(words.view(np.uint8), axis=1, count=columns).view(bool)
    lengths = np.bitwise_count(words).sum(1, dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    small = np.int32 if full.size < 1 << 31 else np.int64
    indices = np.flatnonzero(full).astype(small) - np.repeat(np.arange(len(full), dtype=small) * columns, lengths)
    return sparse.csr_array((np.ones(ends[-1], bool), indices, ends.astype(small)), shape=full.shape)
