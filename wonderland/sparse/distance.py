"""Greedy colourings by distance: a graph and an order of its vertices come in, colours 0, 1, ... go out.

Each vertex in turn gets the smallest colour that none of the vertices near it has. Near are: neighbours (`distance1`),
neighbours and theirs (`distance2`), columns that share a row (`partial_distance2`). In the last, columns of one colour
are structurally orthogonal: their sum still shows every entry, so one product with it gives them all.

Graphs are `indptr, indices` of the symmetric pattern (its diagonal doesn't matter); matrices those of the rows, then of
the columns. Orders come from `orders`.
"""

from __future__ import annotations

import numpy as np

from wonderland.compile.typed import typed
from wonderland.sparse.orders import indexes


def distance1(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Colours of an undirected graph's vertices such that neighbours have different ones."""
    return _colors(color_neighbors, len(indptr) - 1, indptr, indices, order)


def distance2(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Colours of an undirected graph's vertices such that neighbours, and neighbours of one vertex, differ."""
    return _colors(color_neighborhoods, len(indptr) - 1, indptr, indices, order)


def partial_distance2(
    row_ptr: np.ndarray, row_ind: np.ndarray, col_ptr: np.ndarray, col_ind: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Colours of a matrix' columns such that those with entries in one row differ; for rows pass columns first."""
    return _colors(color_columns, len(col_ptr) - 1, row_ptr, row_ind, col_ptr, col_ind, order)


def _colors(loop, n: int, *arrays: np.ndarray) -> np.ndarray:
    colors, forbidden = np.full(n, -1), np.full(n, -1)
    loop(*indexes(*arrays), colors, forbidden)
    return colors


@typed
def smallest(forbidden, v):
    """The smallest colour that isn't forbidden for a vertex."""
    color = 0
    while forbidden[color] == v:
        color += 1
    return color


@typed
def color_neighbors(indptr, indices, order, colors, forbidden):
    """`distance1`; `forbidden[c]` is the last vertex that can't have colour c."""
    for place in range(len(order)):
        v = order[place]
        for i in range(indptr[v], indptr[v + 1]):
            if colors[indices[i]] >= 0:
                forbidden[colors[indices[i]]] = v
        colors[v] = smallest(forbidden, v)


@typed
def color_neighborhoods(indptr, indices, order, colors, forbidden):
    """`distance2`."""
    for place in range(len(order)):
        v = order[place]
        for i in range(indptr[v], indptr[v + 1]):
            u = indices[i]
            if colors[u] >= 0:
                forbidden[colors[u]] = v
            for j in range(indptr[u], indptr[u + 1]):
                if colors[indices[j]] >= 0:
                    forbidden[colors[indices[j]]] = v
        colors[v] = smallest(forbidden, v)


@typed
def color_columns(row_ptr, row_ind, col_ptr, col_ind, order, colors, forbidden):
    """`partial_distance2`."""
    for place in range(len(order)):
        v = order[place]
        for i in range(col_ptr[v], col_ptr[v + 1]):
            row = col_ind[i]
            for j in range(row_ptr[row], row_ptr[row + 1]):
                if colors[row_ind[j]] >= 0:
                    forbidden[colors[row_ind[j]]] = v
        colors[v] = smallest(forbidden, v)
