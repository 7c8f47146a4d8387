"""Greedy colourings by distance: a graph and an order of its vertices come in, colours 0, 1, ... go out.

Each vertex in turn gets the smallest colour that none of the vertices near it has. Near are: neighbours (`distance1`),
neighbours and theirs (`distance2`), columns that share a row (`partial_distance2`). In the last, columns of one colour
are structurally orthogonal: their sum still shows every entry, so one product with it gives them all.

Graphs are `indptr, indices` of the symmetric pattern (its diagonal doesn't matter); matrices those of the rows, then of
the columns. Orders come from `orders`.
"""

from __future__ import annotations

import numpy as np

from wonderland.compile.typed import Typed, typed


def distance1(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Colours of an undirected graph's vertices such that neighbours have different ones."""
    return _colors(color_neighbors, indptr, indices, order)


def distance2(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Colours of an undirected graph's vertices such that neighbours, and neighbours of one vertex, differ."""
    return _colors(color_neighborhoods, indptr, indices, order)


def partial_distance2(
    row_ptr: np.ndarray, row_ind: np.ndarray, col_ptr: np.ndarray, col_ind: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Colours of a matrix' columns such that those with entries in one row differ; for rows pass columns first."""
    m, n = len(row_ptr) - 1, len(col_ptr) - 1
    colors, forbidden = np.full(n, -1), np.full(n, -1)
    used, count, low = np.empty(len(row_ind), np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    color_columns(row_ptr, col_ptr, col_ind, order, colors, forbidden, used, count, low)
    return colors


def _colors(loop: Typed, indptr: np.ndarray, indices: np.ndarray, order: np.ndarray) -> np.ndarray:
    n = len(indptr) - 1
    colors, forbidden = np.full(n, -1), np.full(n, -1)
    loop(indptr, indices, order, colors, forbidden)
    return colors


@typed
def smallest(forbidden, v, color, step):
    """The first colour of color, color + step, ... that isn't forbidden for a vertex."""
    while forbidden[color] == v:
        color += step
    return color


@typed
def color_neighbors(indptr, indices, order, colors, forbidden):
    """`distance1`; `forbidden[c]` is the last vertex that can't have colour c."""
    for place in range(len(order)):
        v = order[place]
        for i in range(indptr[v], indptr[v + 1]):
            if colors[indices[i]] >= 0:
                forbidden[colors[indices[i]]] = v
        colors[v] = smallest(forbidden, v, 0, 1)


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
        colors[v] = smallest(forbidden, v, 0, 1)


@typed
def color_columns(row_ptr, col_ptr, col_ind, order, colors, forbidden, used, count, low):
    """`partial_distance2`. Rows list the colours of their columns, but those below the first that is free in a row.

    So a dense row, whose columns need all colours 0, 1, 2, ..., isn't gone through again for each of its columns.
    """
    for place in range(len(order)):
        v = order[place]
        color = 0
        for i in range(col_ptr[v], col_ptr[v + 1]):
            row = col_ind[i]
            forbid(row, row_ptr[row], v, forbidden, used, count, low)
            color = max(color, low[row])
        color = smallest(forbidden, v, color, 1)
        colors[v] = color
        for i in range(col_ptr[v], col_ptr[v + 1]):
            row = col_ind[i]
            used[row_ptr[row] + count[row]] = color
            count[row] += 1


@typed
def forbid(row, start, v, forbidden, used, count, low):
    """Forbid a vertex the colours that a row lists; those found to be below its first free one leave the list."""
    kept = start
    for j in range(start, start + count[row]):
        color = used[j]
        if color == low[row]:
            low[row] += 1
        elif color > low[row]:
            forbidden[color] = v
            used[kept] = color
            kept += 1
    count[row] = kept - start
