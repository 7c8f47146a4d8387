"""Colourings of matrices: which columns and rows share a product with the matrix, and how its entries are read back.

A pattern comes in; a `Coloring` goes out, with colours, seeds and everything that decompression needs, so that it is
prepared once and applied many times. Columns of one colour have no row in common (partial distance-2 colouring), and
rows likewise; a symmetric matrix, whose entries can be read on either side of the diagonal, needs a star colouring
(direct) or an acyclic one (substitution); a bicolouring is such a colouring of rows and columns together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.tracebacks import edges
from wonderland.sparse.acyclic import color_acyclic
from wonderland.sparse.bicoloring import bipartite_graph, smallest_first
from wonderland.sparse.decompression import Reading, drop_colors, read_order, substitute
from wonderland.sparse.distance import distance1, distance2, partial_distance2
from wonderland.sparse.graphs import Graph, Pattern, canonical, raw, symmetric_graph
from wonderland.sparse.orders import order_columns, order_vertices
from wonderland.sparse.star import color_star

PARTITIONS = ("column", "row", "symmetric", "bidirectional")
DECOMPRESSIONS = ("direct", "substitution")


@edges
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coloring:
    """Colours of the columns and rows of a matrix, and what decompression needs; made by `wl.sparse.color`.

    A colour of -1 means that the column or row is in no product. Compressed products have one row per colour: the
    product with the columns of colour c is (A @ seed), of length m, that with the rows of colour c is (seed @ A), of
    length n.
    """

    pattern: Pattern
    partition: str
    decompression: str
    order: Any
    row_colors: np.ndarray | None
    column_colors: np.ndarray | None
    sources: np.ndarray | None
    reading: Reading | None

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n) of the matrix."""
        return self.pattern.shape

    @property
    def nnz(self) -> int:
        """The number of entries of the pattern."""
        return self.pattern.nnz

    @property
    def num_column_colors(self) -> int:
        """The number of products with columns."""
        return _count(self.column_colors)

    @property
    def num_row_colors(self) -> int:
        """The number of products with rows."""
        return _count(self.row_colors)

    @property
    def num_colors(self) -> int:
        """The number of all products together."""
        return self.num_column_colors + self.num_row_colors

    @property
    def colors(self) -> Any:
        """The colours of columns or of rows; of a bicolouring the pair (row_colors, column_colors)."""
        if self.partition == "bidirectional":
            return self.row_colors, self.column_colors
        return self.row_colors if self.column_colors is None else self.column_colors

    @property
    def groups(self) -> Any:
        """For each colour an array of its columns or rows; of a bicolouring the pair (row groups, column groups)."""
        if self.partition == "bidirectional":
            return _groups(self.row_colors), _groups(self.column_colors)
        return _groups(self.colors)

    def column_seeds(self, dtype: Any = float) -> np.ndarray:
        """For each colour of columns a row of zeros and ones: what to multiply the matrix by."""
        return _seeds(self.column_colors, self.shape[1]).toarray().astype(dtype)

    def row_seeds(self, dtype: Any = float) -> np.ndarray:
        """For each colour of rows a row of zeros and ones: what to multiply the transposed matrix by."""
        return _seeds(self.row_colors, self.shape[0]).toarray().astype(dtype)

    def compress(self, matrix: Any) -> Any:
        """The products of a matrix with the seeds, one a row; of a bicolouring the pair (with columns, with rows)."""
        if not sparse.issparse(matrix):
            matrix = np.asarray(matrix)
        if matrix.shape != self.shape:
            raise ArgumentError(f"compress: this colouring is for matrices of shape {self.shape}, not {matrix.shape}")
        if matrix.dtype == bool:
            matrix = matrix.astype(np.int64)
        parts = []
        if self.column_colors is not None:
            parts.append(_seeds(self.column_colors, self.shape[1], matrix.dtype) @ matrix.T)
        if self.row_colors is not None:
            parts.append(_seeds(self.row_colors, self.shape[0], matrix.dtype) @ matrix)
        parts = [part.toarray() if sparse.issparse(part) else part for part in parts]
        return tuple(parts) if self.partition == "bidirectional" else parts[0]

    def values(self, flat: Any) -> np.ndarray:
        """The entries in CSR order of the pattern, from the products raveled one after the other, columns first."""
        flat = np.asarray(flat)
        size = self.num_column_colors * self.shape[0] + self.num_row_colors * self.shape[1]
        if flat.shape != (size,):
            raise ArgumentError(
                f"values: the raveled products of {self!r} are an array of shape {(size,)}, not {flat.shape}"
            )
        if self.reading is None:
            return flat[self.sources]
        return substitute(self.reading, flat, self.nnz)

    def decompress(self, compressed: Any, format: str = "csr") -> Any:
        """The sparse array whose products with the seeds are `compressed`; it has exactly the pattern's entries."""
        if format not in ("csr", "csc", "coo"):
            raise ArgumentError(f'decompress: format must be "csr", "csc" or "coo", not {format!r}')
        m, n = self.shape
        shapes = []
        if self.column_colors is not None:
            shapes.append((self.num_column_colors, m))
        if self.row_colors is not None:
            shapes.append((self.num_row_colors, n))
        if self.partition != "bidirectional":
            compressed = (compressed,)
        elif not isinstance(compressed, (tuple, list)) or len(compressed) != 2:
            raise ArgumentError(
                "decompress: a bicolouring takes the pair (products with columns, products with rows), of shapes "
                f"{shapes[0]} and {shapes[1]}, not {type(compressed).__name__}"
            )
        parts = [np.asarray(part) for part in compressed]
        for part, shape, line in zip(parts, shapes, ("row",) if self.column_colors is None else ("column", "row")):
            if part.shape != shape:
                raise ArgumentError(
                    f"decompress: the products with {line}s must be an array of shape {shape}, a row for each colour, "
                    f"not {part.shape}" + ("; give its transpose" if part.shape == shape[::-1] else "")
                )
        values = self.values(np.concatenate([part.ravel() for part in parts]))
        result = sparse.csr_array((values, self.pattern.indices, self.pattern.indptr), shape=self.shape, copy=True)
        return result.asformat(format)

    def plot(self, ax: Any = None) -> Any:
        """The pattern, each entry in the colour of the product that it is read from; returns Matplotlib's axes."""
        with loading():
            from wonderland.sparse.report import plot

        return plot(self, ax)

    def __repr__(self) -> str:
        """One line: what was coloured, how, and how many products are left."""
        m, n = self.shape
        count = f"{self.num_colors} colour" + "s" * (self.num_colors != 1)
        if self.partition == "bidirectional":
            count += f" ({self.num_column_colors} of columns, {self.num_row_colors} of rows)"
        order = self.order if isinstance(self.order, str) else "given"
        order = "given colours" if self.order is None else f"{order} order"
        how = self.partition if self.partition in ("column", "row") else f"{self.partition}, {self.decompression}"
        return f"Coloring({m}x{n} with {self.nnz} entries, {how}, {order}: {count})"


def color(
    pattern: Any,
    partition: str = "column",
    decompression: str = "direct",
    order: Any = None,
    postprocess: bool = False,
    seed: int = 0,
    colors: Any = None,
) -> Coloring:
    """Colour the columns or rows of a pattern so that few products with the matrix give all its entries.

    `partition` is "column", "row", "symmetric" or "bidirectional". With "direct" decompression each entry stands alone
    in some product; with "substitution" entries of a symmetric or bidirectional colouring follow from one another,
    which takes fewer colours. `order` names the order in which columns (rows, vertices) take their colours, or is a
    permutation of them: "natural" (the default), "largest_first", "smallest_last", "incidence_degree",
    "dynamic_largest_first", "random" (by `seed`), "perfect_elimination". In a bicolouring it is that of columns 0,
    1, ... and rows n, n + 1, ... together, and the default is "smallest_first". `postprocess` drops the colours which
    decompression doesn't need. Colours known already come as `colors` (a bicolouring's as the pair of those of rows and
    of columns) and are only checked.
    """
    _one_of("partition", partition, PARTITIONS)
    _one_of("decompression", decompression, DECOMPRESSIONS)
    pattern = canonical(pattern)
    if colors is not None:
        if order is not None:
            raise ArgumentError(f"color: given colours have no order; leave out order={order!r} or colors")
        colors = _given(colors, partition, pattern.shape)
    elif order is None:
        order = "smallest_first" if partition == "bidirectional" else "natural"
    row_colors = column_colors = sources = reading = None
    if partition in ("column", "row"):
        colors, sources = _one_sided(pattern, partition, order, postprocess, seed, colors)
    else:
        colors, reading = _two_sided(pattern, partition, decompression, order, postprocess, seed, colors)
        if decompression == "direct":
            sources = np.empty(pattern.nnz, np.int64)
            sources[reading.first] = reading.source
            sources[reading.second] = reading.source
            reading = None
    if partition == "row":
        row_colors = colors
    elif partition == "bidirectional":
        column_colors, row_colors = np.split(colors, [pattern.shape[1]])
    else:
        column_colors = colors
    if order is not None and not isinstance(order, str):
        order = np.array(order)
    arrays = (row_colors, column_colors, sources, *(reading or ()), order)
    for array in (*arrays, pattern.data, pattern.indices, pattern.indptr):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return Coloring(pattern, partition, decompression, order, row_colors, column_colors, sources, reading)


def color_graph(graph: Any, distance: int = 1, order: Any = "natural", seed: int = 0) -> np.ndarray:
    """Colours of the vertices of an undirected graph: two at most `distance` (1 or 2) edges apart differ.

    The graph is a symmetric pattern, its adjacency matrix; the diagonal doesn't matter.
    """
    if distance not in (1, 2):
        raise ArgumentError(f"color_graph: distance must be 1 or 2, not {distance!r}")
    indptr, indices, *_ = symmetric_graph(canonical(graph, "graph"), "color_graph")
    permutation = order_vertices(order, indptr, indices, seed=seed)
    return (distance1 if distance == 1 else distance2)(indptr, indices, permutation)


def _one_sided(
    pattern: Pattern, partition: str, order: Any, postprocess: bool, seed: int, given: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Colours of columns or rows, and where each entry stands."""
    m, n = pattern.shape
    (row_ptr, columns), (column_ptr, rows) = raw(pattern), raw(pattern.tocsc())
    entry_rows = np.repeat(np.arange(m), np.diff(row_ptr))
    if partition == "column":
        arrays, own, other, length = (row_ptr, columns, column_ptr, rows), columns, entry_rows, m
    else:
        arrays, own, other, length = (column_ptr, rows, row_ptr, columns), entry_rows, columns, n
    colors = given
    if colors is None:
        colors = partial_distance2(*arrays, order_columns(order, *arrays, seed=seed))
    if postprocess:
        used = np.append(np.bincount(colors[own][colors[own] >= 0], minlength=_count(colors)) > 0, False)
        colors = np.where(used, np.cumsum(used) - 1, -1)[colors]
    sources = colors[own] * length + other
    if given is not None:
        shared = np.bincount(sources[colors[own] >= 0], minlength=_count(colors) * length) > 1
        _check_readable(pattern, (colors[own] >= 0) & ~np.append(shared, False)[sources.clip(-1)], partition, "direct")
    return colors, sources


def _two_sided(
    pattern: Pattern, partition: str, decompression: str, order: Any, postprocess: bool, seed: int, given: Any
) -> tuple[np.ndarray, Reading]:
    """Colours of columns and then rows (if any), and how the entries are read."""
    symmetric = partition == "symmetric"
    graph = symmetric_graph(pattern) if symmetric else bipartite_graph(pattern)
    if given is not None:
        palette = np.arange(graph.size) >= graph.split
        colors = np.where(given < 0, -1, given * graph.sides + palette)
    else:
        if not symmetric and isinstance(order, str) and order == "smallest_first":
            order = smallest_first(graph)
        permutation = order_vertices(order, graph.indptr, graph.indices, seed=seed)
        colors = (color_star if decompression == "direct" else color_acyclic)(graph, permutation)
    steps, alone = read_order(graph, colors)
    diagonal = np.empty(0, np.int64)
    if symmetric:
        diagonal = np.flatnonzero(np.repeat(np.arange(len(colors)), np.diff(pattern.indptr)) == pattern.indices)
    loops = pattern.indices[diagonal].astype(np.int64)
    if given is not None:
        read = steps if decompression == "substitution" else steps[alone[steps]]
        readable = np.zeros(pattern.nnz, bool)
        readable[graph.entry[read]] = readable[graph.entry[graph.mate[read]]] = True
        readable[graph.entry[colors[graph.vertex] == colors[graph.indices]]] = False
        readable[diagonal] = colors[loops] >= 0
        _check_readable(pattern, readable, partition, decompression)
    if postprocess:
        colors, steps = drop_colors(graph, colors, steps, alone, loops)
    colors = colors // graph.sides
    back = graph.mate[steps]
    source = _place(pattern.shape, graph, colors, graph.vertex[steps], graph.indices[steps])
    target = _place(pattern.shape, graph, colors, graph.vertex[back], graph.indices[back])
    return colors, Reading(
        np.concatenate([source, _place(pattern.shape, graph, colors, loops, loops)]),
        np.concatenate([target, np.full(len(loops), -1)]),
        np.concatenate([graph.entry[steps], diagonal]),
        np.concatenate([graph.entry[back], diagonal]),
    )


def _given(colors: Any, partition: str, shape: tuple[int, int]) -> np.ndarray:
    """Colours from the caller: those of columns, of rows, or of columns and then rows."""
    m, n = shape
    if partition == "bidirectional":
        if not isinstance(colors, (tuple, list)) or len(colors) != 2:
            raise ArgumentError("color: colors of a bicolouring are the pair (row_colors, column_colors)")
        return np.concatenate([_given(colors[1], "column", shape), _given(colors[0], "row", shape)])
    line, size = ("row", m) if partition == "row" else ("column", n)
    colors = np.asarray(colors)
    if colors.shape != (size,) or colors.dtype.kind not in "iu":
        raise ArgumentError(
            f"color: colors of {line}s must be {size} integers for a pattern of shape {shape}, not "
            f"{colors.dtype}{list(colors.shape)}"
        )
    colors = colors.astype(np.int64)
    if set(np.unique(colors).tolist()) - {-1} != set(range(_count(colors))):
        raise ArgumentError(f"color: colors of {line}s must be 0, 1, ... without gaps, and -1 for those in no product")
    return colors


def _check_readable(pattern: Pattern, readable: np.ndarray, partition: str, decompression: str) -> None:
    if not readable.all():
        entry = int(np.argmin(readable))
        i, j = int(np.searchsorted(pattern.indptr, entry, side="right")) - 1, int(pattern.indices[entry])
        raise ArgumentError(
            f"color: with these colors entry ({i}, {j}) can't be read from the products ({partition} partition, "
            f"{decompression} decompression); leave out colors to have them chosen"
        )


def _place(shape: tuple[int, int], graph: Graph, colors: np.ndarray, v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The place in the flat products of row v of the product with w's colour; -1 if there is none."""
    m, n = shape
    before = m * _count(colors[:n]) if graph.size > n else 0  # a column is found in the products with rows
    return np.where(colors[w] < 0, -1, np.where(v < n, before + colors[w] * n + v, colors[w] * m + v - n))


def _count(colors: np.ndarray | None) -> int:
    return 0 if colors is None else 1 + int(colors.max(initial=-1))


def _groups(colors: Any) -> list[np.ndarray]:
    by_color = np.argsort(colors, kind="stable")
    return np.split(by_color, np.searchsorted(colors[by_color], np.arange(_count(colors) + 1)))[1:-1]


def _seeds(colors: np.ndarray | None, n: int, dtype: Any = float) -> sparse.csr_array:
    members = np.empty(0, np.int64) if colors is None else np.flatnonzero(colors >= 0)
    places = (np.empty(0, np.int64) if colors is None else colors[members], members)
    return sparse.csr_array((np.ones(len(members), dtype), places), shape=(_count(colors), n))


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        names = ", ".join(f'"{option}"' for option in known)
        raise ArgumentError(f"color: {name} must be one of {names}, not {value!r}")
