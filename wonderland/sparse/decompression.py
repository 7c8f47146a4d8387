"""Decompression: where each entry of a matrix is found in its compressed products.

Colours come in; a *reading* goes out: for each entry in turn the place in the products where its value stands once what
was read before is subtracted. Of a graph, each vertex v and each colour c around it has one number in the products: row
v of the product with colour c, which is the sum of the entries (v, w) with w of colour c. These sums are the nodes of a
forest with the entries as edges (a tree for each two-coloured tree), and a leaf is a sum of one entry. Reading leaves
first, layer after layer, meets in the middle of each tree, so that the chains of subtractions are as short as they can
be. In a star colouring every entry is read at a leaf and nothing is subtracted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.compile.typed import typed
from wonderland.core.errors import ArgumentError
from wonderland.sparse.graphs import Graph


class Reading(NamedTuple):
    """A substitution: values[first[i]] = values[second[i]] = flat[source[i]], subtracted at target[i] (or -1)."""

    source: np.ndarray
    target: np.ndarray
    first: np.ndarray
    second: np.ndarray


@typed
def _sums(indptr, indices, colors, last_of, last, node, terms, total):
    """Number the sums: node[k] is the one that edge k is a term of; `terms` and `total` count and add its edges.

    An edge to a vertex without a colour is in no product: its node has terms that are never read, so is never a leaf.
    """
    nodes = 0
    for v in range(len(indptr) - 1):
        for k in range(indptr[v], indptr[v + 1]):
            c = colors[indices[k]]
            if c < 0:
                node[k] = nodes
                terms[nodes] = 3
                total[nodes] = 0
                nodes += 1
                continue
            if last_of[c] != v:
                last_of[c] = v
                last[c] = nodes
                terms[nodes] = 0
                total[nodes] = 0
                nodes += 1
            node[k] = last[c]
            terms[last[c]] += 1
            total[last[c]] += k
    return nodes


@typed
def _leaves_first(nodes, node, mate, terms, total, queue, steps):
    """The edges in the order of reading, each from its leaf; how many there are (cycles are never reached)."""
    count = 0
    tail = 0
    for a in range(nodes):
        if terms[a] == 1:
            queue[tail] = a
            tail += 1
    head = 0
    while head < tail:
        a = queue[head]
        head += 1
        if terms[a] == 1:
            k = total[a]
            steps[count] = k
            count += 1
            terms[a] = 0
            b = node[mate[k]]
            terms[b] -= 1
            total[b] -= mate[k]
            if terms[b] == 1:
                queue[tail] = b
                tail += 1
    return count


def read_order(graph: Graph, colors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges v-w in the order of reading, as positions (v, w) with v the leaf; and for all positions: is it a sum of
    one entry? Edges on a cycle of two colours can't be read and are left out.
    """
    positions = len(graph.indices)
    palette = 1 + int(colors.max(initial=-1))
    node, terms, total, queue = (np.empty(positions, np.int64) for _ in range(4))
    last_of, last = np.full(palette, -1), np.empty(palette, np.int64)
    nodes = _sums(graph.indptr, graph.indices, colors, last_of, last, node, terms, total)
    alone = terms[node] == 1
    steps = np.empty(positions // 2, np.int64)
    count = _leaves_first(nodes, node, graph.mate, terms, total, queue, steps)
    return steps[:count], alone


def drop_colors(
    graph: Graph, colors: np.ndarray, steps: np.ndarray, alone: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Colours that no entry is read from become -1, the others are renumbered; with the steps to match.

    An edge that is a tree of its own can be read from either end: those of colours needed anyway (by the vertices
    `kept` and by larger trees) come first, then greedily the colours that settle most of the remaining edges.
    """
    palette = 1 + int(colors.max(initial=-1))
    used = np.zeros(palette, bool)
    used[colors[kept]] = True
    single = alone[steps] & alone[graph.mate[steps]]
    used[colors[graph.indices[steps[~single]]]] = True
    pairs = colors[graph.vertex[steps[single]]] * palette + colors[graph.indices[steps[single]]]
    pairs, counts = np.unique(pairs, return_counts=True)
    pairs = np.stack(np.divmod(pairs, max(palette, 1)))
    while True:
        open_pairs = ~used[pairs].any(axis=0)
        if not open_pairs.any():
            break
        pairs, counts = pairs[:, open_pairs], counts[open_pairs]
        used[np.bincount(pairs.ravel(), np.tile(counts, 2)).argmax()] = True
    steps = np.where(used[colors[graph.indices[steps]]], steps, graph.mate[steps])
    renumbered = np.where(used, 0, -1)
    for side in range(graph.sides):  # palettes alternate: 0, 2, ... and 1, 3, ...
        own = np.arange(side, palette, graph.sides)
        own = own[used[own]]
        renumbered[own] = side + graph.sides * np.arange(len(own))
    return np.where(colors < 0, -1, np.append(renumbered, -1)[colors]), steps


@typed
def _substitute(work, source, target, first, second, values):
    """Read every entry in turn; `work` is the flat products, which lose what has been read."""
    for i in range(len(source)):
        value = work[source[i]]
        values[first[i]] = value
        values[second[i]] = value
        if target[i] >= 0:
            work[target[i]] -= value


_SUBSTITUTED = {"b": np.int64, "i": np.int64, "u": np.int64, "f": np.float64, "c": np.complex128}


def substitute(reading: Reading, flat: Any, nnz: int) -> np.ndarray:
    """The values of all entries from the flat products, in single precision where they are."""
    number_type = _SUBSTITUTED.get(flat.dtype.kind)
    if number_type is None or flat.dtype.itemsize > np.dtype(number_type).itemsize:
        raise ArgumentError(
            "decompression by substitution takes integers, floats and complex numbers of at most double precision, "
            f"not {flat.dtype}"
        )
    if number_type is np.complex128:
        values = np.empty(nnz, flat.dtype)
        values.real, values.imag = (substitute(reading, part, nnz) for part in (flat.real, flat.imag))
        return values
    if number_type is np.float64 and flat.dtype.itemsize <= 4:
        number_type = np.float32
    values = np.empty(nnz, number_type)
    _substitute(np.array(flat, number_type), *reading, values)
    return values
