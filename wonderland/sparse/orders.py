"""In which order a greedy colouring takes the vertices: an order's name and a graph come in, a permutation goes out.

A graph is `indptr, indices` of its symmetric pattern, as `graphs.raw` has them. Columns of a matrix (`indptr, indices`
of its rows, then of its columns) are neighbours if some row has entries in both; for rows swap the two.

| order | each next vertex has |
|---|---|
| `natural` | the next index |
| `random` | a random place, by `seed` |
| `largest_first` | the most neighbours; ties: the smallest index |
| `dynamic_largest_first` | the most neighbours among those still to come |
| `incidence_degree` | the most neighbours among those already taken |
| `smallest_last` | chosen from the last place to the first: the fewest neighbours among those still to be placed |
| `perfect_elimination` | the most neighbours among those already taken, too: maximum cardinality search |

`perfect_elimination` is a perfect elimination order backwards if the graph is chordal (a forest, a band, a tree of
cliques): greedy distance-1 colouring then needs no more colours than the largest clique has vertices. The search that
finds it is the incidence degree order.

Ties of the last four: the vertex whose count changed last, before any has the smallest index. They take time
proportional to vertices and neighbours (with bucket queues: Matula and Beck, Smallest-last ordering, 1983; Gebremedhin
and others, ColPack, 2013).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.compile.typed import typed
from wonderland.core.errors import ArgumentError

# By counts of neighbours: what a neighbour's count changes by when a vertex is taken, and whether the largest is next.
DYNAMIC = {
    "smallest_last": (-1, False),
    "dynamic_largest_first": (-1, True),
    "incidence_degree": (1, True),
    "perfect_elimination": (1, True),
}
ORDERS = ("natural", "random", "largest_first", *DYNAMIC)


def order_vertices(order: Any, indptr: np.ndarray, indices: np.ndarray, seed: int = 0) -> np.ndarray:
    """The vertices of an undirected graph in this order: a name of `ORDERS`, or a permutation to be checked."""
    n = len(indptr) - 1
    if not isinstance(order, str) or order in ("natural", "random"):
        return _free_order(order, n, seed)
    degrees = np.zeros(n, np.int64)
    count_neighbors(indptr, indices, degrees)
    if order == "largest_first":
        return np.argsort(-degrees, kind="stable")
    queue = _Queue(order, degrees)
    order_by_neighbors(indptr, indices, *queue.arguments)
    return queue.permutation()


def order_columns(
    order: Any, row_ptr: np.ndarray, row_ind: np.ndarray, col_ptr: np.ndarray, col_ind: np.ndarray, seed: int = 0
) -> np.ndarray:
    """The columns of a matrix in this order; for its rows pass the columns' arrays first."""
    rows_and_columns = row_ptr, row_ind, col_ptr, col_ind
    n = len(col_ptr) - 1
    if not isinstance(order, str) or order in ("natural", "random"):
        return _free_order(order, n, seed)
    degrees, seen = np.zeros(n, np.int64), np.full(n, -1)
    count_columns(*rows_and_columns, degrees, seen)
    if order == "largest_first":
        return np.argsort(-degrees, kind="stable")
    queue = _Queue(order, degrees)
    seen.fill(-1)
    order_by_columns(*rows_and_columns, *queue.arguments, seen)
    return queue.permutation()


def _free_order(order: Any, n: int, seed: int) -> np.ndarray:
    """An order that doesn't look at the graph."""
    if isinstance(order, str):
        return np.arange(n) if order == "natural" else np.random.default_rng(seed).permutation(n)
    given = np.asarray(order)
    if given.dtype.kind not in "iu" or given.shape != (n,) or not np.array_equal(np.sort(given), np.arange(n)):
        what = f"{given.dtype}{list(given.shape)}"
        raise ArgumentError(f"order: {what} is no permutation of the {n} vertices. Write np.random.permutation({n}), "
                            f"or a name: {', '.join(ORDERS)}")  # fmt: skip
    return given.astype(np.int64)


class _Queue:
    """Vertices in buckets by their count of neighbours: doubly linked lists, one per count."""

    def __init__(self, order: str, degrees: np.ndarray):
        if order not in DYNAMIC:
            raise ArgumentError(f"order is {', '.join(ORDERS)} or a permutation, not {order!r}")
        n = len(degrees)
        self.change, self.largest = DYNAMIC[order]
        self.taken = np.zeros(n, np.int64)
        heads = np.full(int(degrees.max(initial=0)) + 1, -1)
        if self.change > 0:
            degrees = np.zeros(n, np.int64)
        following, previous = np.full(n, -1), np.full(n, -1)
        self.arguments = degrees, self.change, self.largest, heads, following, previous, self.taken

    def permutation(self) -> np.ndarray:
        return self.taken if self.largest else self.taken[::-1].copy()


@typed
def count_neighbors(indptr, indices, degrees):
    """Neighbours of each vertex; it is none of its own."""
    for v in range(len(degrees)):
        for i in range(indptr[v], indptr[v + 1]):
            if indices[i] != v:
                degrees[v] += 1


@typed
def count_columns(row_ptr, row_ind, col_ptr, col_ind, degrees, seen):
    """Columns that share a row with each column."""
    for v in range(len(degrees)):
        seen[v] = v
        for i in range(col_ptr[v], col_ptr[v + 1]):
            row = col_ind[i]
            for j in range(row_ptr[row], row_ptr[row + 1]):
                w = row_ind[j]
                if seen[w] != v:
                    seen[w] = v
                    degrees[v] += 1


@typed
def put(v, degree, heads, following, previous):
    """Put a vertex at the head of a bucket."""
    first = heads[degree]
    following[v] = first
    previous[v] = -1
    if first >= 0:
        previous[first] = v
    heads[degree] = v


@typed
def drop(v, degree, heads, following, previous):
    """Take a vertex out of its bucket."""
    after = following[v]
    before = previous[v]
    if before >= 0:
        following[before] = after
    else:
        heads[degree] = after
    if after >= 0:
        previous[after] = before


@typed
def fill(degrees, heads, following, previous):
    """Put all vertices into their buckets, the smallest index at the head."""
    for v in range(len(degrees) - 1, -1, -1):
        put(v, degrees[v], heads, following, previous)


@typed
def take(place, degree, largest, degrees, heads, following, previous, taken):
    """Take the vertex with the largest or smallest count, which was `degree` one vertex earlier; its count."""
    if largest:
        degree = min(degree + 1, len(heads) - 1)
        while heads[degree] < 0:
            degree -= 1
    else:
        degree = max(degree - 1, 0)
        while heads[degree] < 0:
            degree += 1
    u = heads[degree]
    drop(u, degree, heads, following, previous)
    degrees[u] = -1
    taken[place] = u
    return degree


@typed
def move(v, change, degrees, heads, following, previous):
    """A neighbour was taken: into the next bucket, unless it is taken itself."""
    if degrees[v] >= 0:
        drop(v, degrees[v], heads, following, previous)
        degrees[v] += change
        put(v, degrees[v], heads, following, previous)


@typed
def order_by_neighbors(indptr, indices, degrees, change, largest, heads, following, previous, taken):
    """Take vertices one by one, by the counts of their neighbours in a graph."""
    fill(degrees, heads, following, previous)
    degree = len(heads) - 1 if largest else 0
    for place in range(len(taken)):
        degree = take(place, degree, largest, degrees, heads, following, previous, taken)
        u = taken[place]
        for i in range(indptr[u], indptr[u + 1]):
            move(indices[i], change, degrees, heads, following, previous)


@typed
def order_by_columns(
    row_ptr, row_ind, col_ptr, col_ind, degrees, change, largest, heads, following, previous, taken, seen
):
    """Take columns one by one, by the counts of columns that share a row with them."""
    fill(degrees, heads, following, previous)
    degree = len(heads) - 1 if largest else 0
    for place in range(len(taken)):
        degree = take(place, degree, largest, degrees, heads, following, previous, taken)
        u = taken[place]
        for i in range(col_ptr[u], col_ptr[u + 1]):
            row = col_ind[i]
            for j in range(row_ptr[row], row_ptr[row + 1]):
                w = row_ind[j]
                if seen[w] != u:
                    seen[w] = u
                    move(w, change, degrees, heads, following, previous)
