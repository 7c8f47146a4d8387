"""Patterns and their graphs: what colourings are made on.

Anything like a matrix comes in, a canonical boolean CSR array goes out; a `Graph` is the undirected graph of a
symmetric pattern, in the raw index arrays that typed loops read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from wonderland.compile.typed import typed
from wonderland.core.errors import ArgumentError

Pattern = Any  # a sparse.csr_array of booleans, as `canonical` makes it


class Graph(NamedTuple):
    """An undirected graph without loops: the neighbours of v are indices[indptr[v]:indptr[v + 1]]."""

    indptr: np.ndarray
    indices: np.ndarray
    mate: np.ndarray  # the position of (w, v) for each position of (v, w)
    vertex: np.ndarray  # v for each position of (v, w)
    entry: np.ndarray  # the place in the pattern of each position
    split: int  # vertices from here on have a palette of their own (rows of a bicolouring); without: their number

    @property
    def size(self) -> int:
        """The number of vertices."""
        return len(self.indptr) - 1

    @property
    def sides(self) -> int:
        """The number of palettes."""
        return 1 if self.split == self.size else 2


def canonical(pattern: Any, what: str = "pattern") -> Pattern:
    """A new boolean CSR array with sorted indices: true where an entry is stored (sparse) or isn't zero (dense)."""
    if not sparse.issparse(pattern):
        try:
            pattern = np.asarray(pattern)
        except ValueError as error:  # rows of different lengths
            raise ArgumentError(f"the {what} must be a matrix, not {type(pattern).__name__}: {error}") from None
        if pattern.dtype.kind not in "biufc":
            raise ArgumentError(
                f"the {what} must be a scipy.sparse array or a NumPy array of numbers or booleans, not of dtype "
                f"{pattern.dtype}"
            )
    if pattern.ndim != 2:
        raise ArgumentError(f"the {what} must be a matrix (2-D), not an array of shape {tuple(pattern.shape)}")
    csr = sparse.csr_array(pattern)
    result = sparse.csr_array((np.ones(len(csr.indices), bool), csr.indices, csr.indptr), shape=csr.shape, copy=True)
    result.sum_duplicates()
    result.data = np.ones(result.nnz, bool)
    return result


def raw(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """`indptr, indices` of a CSR or CSC array, as loops take them."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


@typed
def _mates(indptr, indices, ahead, mate):
    """Pair (i, j) with (j, i) in sorted rows; the first row that has no partner for an entry, or -1.

    Rows are visited in order, so the entries of row j are asked for in order too: `ahead[j]` is the next one.
    """
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            partner = ahead[j]
            if partner >= indptr[j + 1] or indices[partner] != i:
                return i
            mate[k] = partner
            ahead[j] = partner + 1
    return -1


def symmetric_graph(pattern: Pattern, what: str = "a symmetric colouring") -> Graph:
    """The graph of the off-diagonal entries of a symmetric pattern."""
    n, columns = pattern.shape
    if n != columns:
        raise ArgumentError(
            f"{what} needs a square pattern, not one of shape {pattern.shape}; for a rectangular matrix write "
            'partition="column", "row" or "bidirectional"'
        )
    indptr, indices = raw(pattern)
    vertex = np.repeat(np.arange(n), np.diff(indptr))
    entry = np.flatnonzero(indices != vertex)
    loops = np.bincount(vertex[indices == vertex], minlength=n)
    indptr = indptr - np.concatenate([[0], np.cumsum(loops)])
    indices, vertex = indices[entry], vertex[entry]
    mate = np.empty(len(indices), np.int64)
    fault = _mates(indptr, indices, indptr[:-1].copy(), mate)
    if fault >= 0:
        i, j = _unpaired(pattern)
        raise ArgumentError(
            f"{what} needs a symmetric pattern, but there is an entry ({i}, {j}) and none at ({j}, {i}); write "
            'partition="column" for a matrix that isn\'t symmetric, or give pattern + pattern.T'
        )
    return Graph(indptr, indices, mate, vertex, entry, n)


def _unpaired(pattern: Pattern) -> tuple[int, int]:
    """The first entry (i, j) of a pattern without an entry (j, i)."""
    i, j = (pattern.astype(np.int8) - pattern.T.astype(np.int8) > 0).nonzero()
    return int(i[0]), int(j[0])
