"""Star colouring: neighbours differ, and every path on four vertices has at least three colours.

Each pair of colours then spans disjoint stars, and every entry of a symmetric matrix can be read from a product: the
entry of a spoke v and its hub h stands alone in row v of the product with h's colour. The greedy algorithm is that of
Gebremedhin, Tarafdar, Manne and Pothen (2007), *New acyclic and star coloring algorithms with application to computing
Hessians*, algorithm 4.1; here every vertex keeps a list with one edge for each colour of its neighbours, so that
the cost per edge is the number of colours around a vertex rather than its degree, and a dense row costs no more than
its entries.
"""

from __future__ import annotations

import numpy as np

from wonderland.compile.typed import typed
from wonderland.sparse.distance import smallest
from wonderland.sparse.graphs import Graph


@typed
def edge_to(color, w, indices, colors, head, after):
    """The edge that w lists to a neighbour of this colour, or -1."""
    edge = head[w]
    while edge >= 0 and colors[indices[edge]] != color:
        edge = after[edge]
    return edge


@typed
def link(edge, w, head, after):
    """Put an edge at the head of w's list."""
    after[edge] = head[w]
    head[w] = edge


@typed
def _forbid_around(w, v, indices, colors, forbidden, head, after):
    """Forbid v the colours of the coloured neighbours of w."""
    k = head[w]
    while k >= 0:
        forbidden[colors[indices[k]]] = v
        k = after[k]


@typed
def _color_stars(
    indptr, indices, mate, order, split, sides, colors, forbidden, first_of, first, treated, head, after, star, hub
):
    """Greedy star colouring; an edge is named by its position.

    `head[w]`, `after[k]` list edges k from w, one for each colour of w's coloured neighbours; `star[k]` is the star of
    such an edge and `hub[s]` the centre of a star, -1 while it has a single edge. `first[c]` is the first edge from v
    to colour c, valid where `first_of[c]` is v.
    """
    stars = 0
    for i in range(len(order)):
        v = order[i]
        for k in range(indptr[v], indptr[v + 1]):
            w = indices[k]
            c = colors[w]
            if c < 0:
                continue
            forbidden[c] = v
            if first_of[c] == v:  # v is between q and w of one colour: no neighbour of theirs may have v's
                q = indices[first[c]]
                if treated[q] != v:
                    treated[q] = v
                    _forbid_around(q, v, indices, colors, forbidden, head, after)
                _forbid_around(w, v, indices, colors, forbidden, head, after)
                treated[w] = v
            else:
                first_of[c] = v
                first[c] = k
                edge = head[w]
                while edge >= 0:  # w is a spoke of a star around x: v with x's colour would make a path of four
                    h = hub[star[edge]]
                    if h >= 0 and h != w:
                        forbidden[colors[indices[edge]]] = v
                    edge = after[edge]
        color = smallest(forbidden, v, 1 if v >= split else 0, sides)
        colors[v] = color
        for k in range(indptr[v], indptr[v + 1]):
            w = indices[k]
            c = colors[w]
            if c < 0:
                continue
            edge = edge_to(color, w, indices, colors, head, after)
            if edge >= 0:
                s = star[edge]
                hub[s] = w
            elif first[c] != k:
                s = star[first[c]]
                hub[s] = v
            else:
                s = stars
                hub[s] = -1
                stars += 1
            if first[c] == k:
                star[k] = s
                link(k, v, head, after)
            if edge < 0:
                star[mate[k]] = s
                link(mate[k], w, head, after)


def color_star(graph: Graph, order: np.ndarray) -> np.ndarray:
    """A star colouring, each vertex of `order` taking the smallest permitted colour of its palette."""
    n, positions = graph.size, len(graph.indices)
    palette = graph.sides * (n + 1)
    colors, forbidden = np.full(n, -1), np.full(palette, -1)
    first_of, first = np.full(palette, -1), np.empty(palette, np.int64)
    treated, head = np.full(n, -1), np.full(n, -1)
    after, star, hub = (np.empty(positions, np.int64) for _ in range(3))
    _color_stars(
        graph.indptr, graph.indices, graph.mate, order, graph.split, graph.sides,
        colors, forbidden, first_of, first, treated, head, after, star, hub,
    )  # fmt: skip
    return colors
