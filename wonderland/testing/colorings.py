"""What the colourings of matrices have to be, by their definitions: slow and plain, for small patterns.

Each `..._fault` takes a pattern (dense or sparse) and colours, -1 for what is in no product, and returns what is wrong
with them in words, or None. `check_coloring` asks everything there is to ask of a `wl.sparse.Coloring`.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse

Graph = dict[Any, set]  # the neighbours of each vertex
Colors = dict[Any, Any]  # the colour of each vertex, None for the neutral one


def columns_fault(pattern: Any, colors: Any) -> str | None:
    """Columns with entries have a colour, and no two columns of one colour have entries in the same row."""
    return _orthogonal_fault(_dense(pattern), colors, "column", "row")


def rows_fault(pattern: Any, colors: Any) -> str | None:
    """Rows with entries have a colour, and no two rows of one colour have entries in the same column."""
    return _orthogonal_fault(_dense(pattern).T, colors, "row", "column")


def distance_fault(graph: Any, colors: Any, distance: int = 1) -> str | None:
    """Every vertex has a colour, and two vertices joined by at most `distance` edges have different ones."""
    a = _dense(graph)
    if len(colors) != len(a):
        return f"{len(colors)} colours for {len(a)} vertices"
    if len(a) and min(colors) < 0:
        return f"vertex {int(np.argmin(colors))} has no colour"
    for v in range(len(a)):
        reached = {v}
        for steps in range(1, distance + 1):
            reached |= {int(w) for u in reached for w in np.flatnonzero(a[u])}
            for w in reached - {v}:
                if colors[v] == colors[w]:
                    return f"vertices {v} and {w}, {steps} apart, both have colour {colors[v]}"
    return None


def star_fault(pattern: Any, colors: Any) -> str | None:
    """Neighbours differ, and every path on four vertices has at least three colours."""
    return _symmetric_fault(pattern, colors, _path_fault)


def acyclic_fault(pattern: Any, colors: Any) -> str | None:
    """Neighbours differ, and every cycle has at least three colours."""
    return _symmetric_fault(pattern, colors, _cycle_fault)


def star_bicoloring_fault(pattern: Any, row_colors: Any, column_colors: Any) -> str | None:
    """The colours of rows and columns are a star colouring of the graph that has an edge for each entry."""
    return _bicoloring_fault(pattern, row_colors, column_colors, _path_fault)


def acyclic_bicoloring_fault(pattern: Any, row_colors: Any, column_colors: Any) -> str | None:
    """The colours of rows and columns are an acyclic colouring of the graph that has an edge for each entry."""
    return _bicoloring_fault(pattern, row_colors, column_colors, _cycle_fault)


def direct_fault(
    pattern: Any, row_colors: Any = None, column_colors: Any = None, symmetric: bool = False
) -> str | None:
    """Every entry is the only one in some number of the products."""
    sums = _sums(pattern, row_colors, column_colors, symmetric)
    missing = _entries(pattern, symmetric) - {entry for terms in sums if len(terms) == 1 for entry in terms}
    return f"entry {min(missing)} stands alone in no product" if missing else None


def substitution_fault(
    pattern: Any, row_colors: Any = None, column_colors: Any = None, symmetric: bool = False
) -> str | None:
    """Every entry is the only one in some number of the products, once others that are known are subtracted."""
    sums = _sums(pattern, row_colors, column_colors, symmetric)
    unknown = _entries(pattern, symmetric)
    while known := {entry for terms in sums if len(terms & unknown) == 1 for entry in terms & unknown}:
        unknown -= known
    return f"entry {min(unknown)} doesn't follow from the products" if unknown else None


def check_coloring(coloring: Any, seed: int = 0) -> None:
    """Raise an AssertionError that says what is wrong with a colouring; its definition, products and decompression."""
    fault = _coloring_fault(coloring, np.random.default_rng(seed))
    if fault:
        raise AssertionError(f"{coloring!r}: {fault}\n{_dense(coloring.pattern).astype(int)}\n{coloring.colors}")


def _coloring_fault(coloring: Any, generator: np.random.Generator) -> str | None:
    rows, columns = coloring.row_colors, coloring.column_colors
    for colors in (rows, columns):
        if colors is not None and set(range(1 + max(colors, default=-1))) - set(colors.tolist()):
            return "there are gaps between the colours"
    if coloring.num_colors != sum(1 + max(colors, default=-1) for colors in (rows, columns) if colors is not None):
        return "num_colors isn't the number of colours"
    fault = definition_fault(coloring, rows, columns) or recovery_fault(coloring, rows, columns)
    return fault or _round_trip_fault(coloring, generator)


def definition_fault(coloring: Any, rows: Any, columns: Any) -> str | None:
    """These colours are, for a colouring's pattern, of its kind."""
    direct = coloring.decompression == "direct"
    if coloring.partition == "column":
        return columns_fault(coloring.pattern, columns)
    if coloring.partition == "row":
        return rows_fault(coloring.pattern, rows)
    if coloring.partition == "symmetric":
        return (star_fault if direct else acyclic_fault)(coloring.pattern, columns)
    return (star_bicoloring_fault if direct else acyclic_bicoloring_fault)(coloring.pattern, rows, columns)


def recovery_fault(coloring: Any, rows: Any, columns: Any) -> str | None:
    """With these colours all entries of a colouring's pattern can be read, in its way."""
    direct = coloring.decompression == "direct" or coloring.partition in ("column", "row")
    fault = direct_fault if direct else substitution_fault
    return fault(coloring.pattern, rows, columns, coloring.partition == "symmetric")


def _round_trip_fault(coloring: Any, generator: np.random.Generator) -> str | None:
    matrix = np.where(_dense(coloring.pattern), generator.integers(-(10**6), 10**6, coloring.shape), 0)
    if coloring.partition == "symmetric":
        matrix = np.tril(matrix) + np.tril(matrix, -1).T
    compressed = coloring.compress(matrix)
    found = coloring.decompress(compressed)
    kept = np.array_equal(found.indptr, coloring.pattern.indptr)
    if not kept or not np.array_equal(found.indices, coloring.pattern.indices):
        return "decompression doesn't give the pattern's entries"
    if not np.array_equal(found.toarray(), matrix):
        return f"decompression gives\n{found.toarray()}\nof\n{matrix}"
    flat = np.concatenate([np.ravel(part) for part in (compressed if isinstance(compressed, tuple) else (compressed,))])
    if coloring.sources is not None and not np.array_equal(flat[coloring.sources], found.data):
        return "sources don't give the values"
    return None


def _dense(pattern: Any) -> np.ndarray:
    """A boolean array; stored zeros of a sparse one count."""
    if sparse.issparse(pattern):
        pattern = pattern.astype(bool)
        pattern.data[:] = True
        return pattern.toarray()
    return np.asarray(pattern) != 0


def _orthogonal_fault(a: np.ndarray, colors: Any, column: str, row: str) -> str | None:
    if len(colors) != a.shape[1]:
        return f"{len(colors)} colours for {a.shape[1]} {column}s"
    for j in range(a.shape[1]):
        if a[:, j].any() and colors[j] < 0:
            return f"{column} {j} has entries and no colour"
    for j, k in combinations(range(a.shape[1]), 2):
        shared = np.flatnonzero(a[:, j] & a[:, k])
        if colors[j] == colors[k] and len(shared):
            return f"{column}s {j} and {k} of colour {colors[j]} both have an entry in {row} {shared[0]}"
    return None


def _symmetric_fault(pattern: Any, colors: Any, fault: Any) -> str | None:
    a = _dense(pattern)
    if len(colors) != len(a):
        return f"{len(colors)} colours for {len(a)} columns"
    if not np.array_equal(a, a.T):
        return "the pattern isn't symmetric"
    for v in range(len(a)):
        if a[v, v] and colors[v] < 0:
            return f"column {v} has an entry on the diagonal and no colour"
    graph = {v: {int(w) for w in np.flatnonzero(a[v])} - {v} for v in range(len(a))}
    labels = {v: None if colors[v] < 0 else int(colors[v]) for v in graph}
    return _neighbor_fault(graph, labels) or fault(graph, labels)


def _bicoloring_fault(pattern: Any, row_colors: Any, column_colors: Any, fault: Any) -> str | None:
    a = _dense(pattern)
    if (len(row_colors), len(column_colors)) != a.shape:
        return f"{len(row_colors)} and {len(column_colors)} colours for a matrix of shape {a.shape}"
    graph: Graph = {("row", i): {("column", int(j)) for j in np.flatnonzero(a[i])} for i in range(a.shape[0])}
    graph |= {("column", j): {("row", int(i)) for i in np.flatnonzero(a[:, j])} for j in range(a.shape[1])}
    colors = {"row": row_colors, "column": column_colors}
    labels = {(k, i): None if colors[k][i] < 0 else (k, int(colors[k][i])) for k, i in graph}
    return _neighbor_fault(graph, labels) or fault(graph, labels)


def _neighbor_fault(graph: Graph, colors: Colors) -> str | None:
    """Neighbours differ; those of a neutral vertex are read in its row, so they have colours, all different."""
    for v, neighbors in graph.items():
        for w in neighbors:
            if colors[v] == colors[w]:
                return f"{v} and {w} are neighbours of one colour ({colors[v]})"
        if colors[v] is None:
            color, count = max(Counter(colors[w] for w in neighbors).items(), key=lambda item: item[1], default=(0, 0))
            if count > 1:
                return f"{v} has no colour and {count} neighbours of colour {color}"
    return None


def _path_fault(graph: Graph, colors: Colors) -> str | None:
    for b in graph:
        for c in graph[b]:
            for a in graph[b] - {c}:
                for d in graph[c] - {a, b}:
                    if len({colors[v] for v in (a, b, c, d)}) < 3:
                        return f"the path {a}, {b}, {c}, {d} has two colours"
    return None


def _cycle_fault(graph: Graph, colors: Colors) -> str | None:
    """What two colours leave of the graph: vertices with fewer than two neighbours are on no cycle, and may go."""
    for pair in combinations(set(colors.values()), 2):
        left = {v for v in graph if colors[v] in pair}
        while ends := {v for v in left if len(graph[v] & left) < 2}:
            left -= ends
        if left:
            return f"there is a cycle of two colours in {sorted(left)}"
    return None


def _entries(pattern: Any, symmetric: bool) -> set:
    """The unknowns: (i, j) for each entry; of a symmetric matrix those with i <= j."""
    return {(int(i), int(j)) for i, j in zip(*np.nonzero(_dense(pattern))) if i <= j or not symmetric}


def _sums(pattern: Any, row_colors: Any, column_colors: Any, symmetric: bool) -> list[set]:
    """The unknowns that each number of the products is a sum of."""
    a = _dense(pattern)
    sums = []
    for matrix, colors, transposed in ((a, column_colors, False), (a.T, row_colors, True)):
        if colors is None:
            continue
        for color in range(1 + max(colors, default=-1)):
            for i in range(len(matrix)):
                entries = [(i, j) for j in range(matrix.shape[1]) if matrix[i, j] and colors[j] == color]
                entries = [(j, i) if transposed or (symmetric and j < i) else (i, j) for i, j in entries]
                sums.append(set(entries))
    return sums
