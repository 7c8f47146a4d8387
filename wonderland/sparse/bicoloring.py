"""Bicolouring: rows and columns of a matrix get colours together, those of [[0, A'], [A, 0]].

Every entry is then found in a product with columns or in one with rows, so that a few dense rows and a few dense
columns cost a few products only. Rows and columns are coloured from palettes of their own, as a product with columns is
never one with rows.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from wonderland.sparse.graphs import Graph, Pattern, raw


def bipartite_graph(pattern: Pattern) -> Graph:
    """The graph of rows and columns: column j is vertex j, row i is vertex n + i."""
    m, n = pattern.shape
    nnz = pattern.nnz
    row_ptr, columns = raw(pattern)
    numbered = sparse.csr_array((np.arange(nnz), columns, row_ptr), shape=(m, n)).tocsc()
    column_ptr, rows = raw(numbered)
    entry = np.concatenate([numbered.data, np.arange(nnz)])
    mate = np.empty(2 * nnz, np.int64)
    mate[:nnz] = nnz + numbered.data
    mate[nnz + numbered.data] = np.arange(nnz)
    indptr = np.concatenate([column_ptr, nnz + row_ptr[1:]])
    indices = np.concatenate([rows + n, columns])
    vertex = np.repeat(np.arange(n + m), np.diff(indptr))
    return Graph(indptr, indices, mate, vertex, entry, n)


def smallest_first(graph: Graph) -> np.ndarray:
    """Rows and columns by their number of entries.

    Once the sparse ones have colours, a dense row or column differs from them and stays alone, which is what makes a
    bicolouring pay; a dense row that comes first takes the colour of sparse ones instead.
    """
    return np.argsort(np.diff(graph.indptr), kind="stable")
