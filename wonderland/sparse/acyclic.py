"""Acyclic colouring: neighbours differ, and every cycle has at least three colours.

Each pair of colours then spans disjoint trees, and a symmetric matrix follows from its products by substitution, each
tree from the leaves to the middle. The greedy algorithm is that of Gebremedhin, Tarafdar, Manne and Pothen (2007), *New
acyclic and star coloring algorithms with application to computing Hessians*, algorithm 3.1, with the trees in disjoint
sets and, as in `star`, one edge for each colour around a vertex.
"""

from __future__ import annotations

import numpy as np

from wonderland.compile.typed import typed
from wonderland.sparse.distance import smallest
from wonderland.sparse.graphs import Graph
from wonderland.sparse.star import edge_to, link


@typed
def _root(parent, t):
    """The root of the disjoint set of t, halving the path to it."""
    while parent[t] != t:
        parent[t] = parent[parent[t]]
        t = parent[t]
    return t


@typed
def _color_trees(
    indptr, indices, mate, order, split, sides, colors, forbidden, first_of, first, head, after, tree, parent, visitor
):
    """Greedy acyclic colouring; an edge is named by its position.

    `head[w]`, `after[k]` list edges k from w, one for each colour of w's coloured neighbours, and `tree[k]` is the
    two-coloured tree of such an edge: all edges from w to that colour are in it. `visitor[t]` is the last vertex that
    found a neighbour in tree t.
    """
    trees = 0
    for i in range(len(order)):
        v = order[i]
        for k in range(indptr[v], indptr[v + 1]):
            c = colors[indices[k]]
            if c >= 0:
                forbidden[c] = v
        for k in range(indptr[v], indptr[v + 1]):
            w = indices[k]
            if colors[w] < 0:
                continue
            edge = head[w]
            while edge >= 0:
                c = colors[indices[edge]]
                if forbidden[c] != v:
                    t = _root(parent, tree[edge])
                    if visitor[t] == v:  # two neighbours of v in one tree: v of colour c would close a cycle
                        forbidden[c] = v
                    visitor[t] = v
                edge = after[edge]
        color = smallest(forbidden, v, 1 if v >= split else 0, sides)
        colors[v] = color
        for k in range(indptr[v], indptr[v + 1]):
            w = indices[k]
            c = colors[w]
            if c < 0:
                continue
            new = first_of[c] != v
            if new:
                first_of[c] = v
                first[c] = k
            edge = edge_to(color, w, indices, colors, head, after)
            if edge >= 0:
                t = _root(parent, tree[edge])
                if not new:
                    parent[t] = _root(parent, tree[first[c]])
            elif not new:
                t = tree[first[c]]
            else:
                t = trees
                parent[t] = t
                visitor[t] = -1
                trees += 1
            if new:
                tree[k] = t
                link(k, v, head, after)
            if edge < 0:
                tree[mate[k]] = t
                link(mate[k], w, head, after)


def color_acyclic(graph: Graph, order: np.ndarray) -> np.ndarray:
    """An acyclic colouring, each vertex of `order` taking the smallest permitted colour of its palette."""
    n, positions = graph.size, len(graph.indices)
    palette = graph.sides * (n + 1)
    colors, forbidden = np.full(n, -1), np.full(palette, -1)
    first_of, first = np.full(palette, -1), np.empty(palette, np.int64)
    head = np.full(n, -1)
    after, tree, parent, visitor = (np.empty(positions, np.int64) for _ in range(4))
    _color_trees(
        graph.indptr, graph.indices, graph.mate, order, graph.split, graph.sides,
        colors, forbidden, first_of, first, head, after, tree, parent, visitor,
    )  # fmt: skip
    return colors
