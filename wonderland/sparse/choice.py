"""Which partition: by columns, by rows or by both, whatever costs least in products."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from wonderland.core.errors import ArgumentError
from wonderland.sparse.coloring import Coloring, color

FEW = 8  # colours: with so few by columns or rows alone, nobody looks for a partition in both directions


def choose(
    pattern: sparse.csr_array, decompression: str, order: Any, forward: float = 1, reverse: float = 1
) -> Coloring:
    """The colouring with the least cost, when a product with a column costs `forward` and one with a row `reverse`."""

    if not isinstance(order, str):
        raise ArgumentError(
            'an order that is a permutation belongs to a partition: say partition="column" (a permutation of the '
            'columns), "row", "symmetric" or "bidirectional", not "auto"'
        )

    counts = np.diff(pattern.indptr), np.bincount(pattern.indices, minlength=pattern.shape[1])
    # Columns of one colour have no row in common: there are as many colours as the fullest row has entries, or more.
    bounds = {"column": forward * counts[0].max(initial=0), "row": reverse * counts[1].max(initial=0)}
    first, second = sorted(bounds, key=lambda way: bounds[way])
    best = color(pattern, first, decompression, order)
    found = [color(pattern, second, decompression, order)] if bounds[second] < price(best, forward, reverse) else []
    typical = 2 * np.median(counts[best.column_colors is None]) if pattern.nnz else 0
    if best.num_colors > max(FEW, typical) and np.isfinite(forward + reverse):
        found += [_apart(pattern, order, False, forward, reverse), _apart(pattern, order, True, reverse, forward)]
        if decompression == "substitution":
            found.append(color(pattern, "bidirectional", decompression, order, postprocess=True))
    return min([best, *found], key=lambda coloring: price(coloring, forward, reverse))


def price(coloring: Coloring, forward: float, reverse: float) -> float:
    """What a colouring's products cost."""
    sides = (forward, coloring.num_column_colors), (reverse, coloring.num_row_colors)
    return sum(cost * count for cost, count in sides if count)


def _apart(pattern: sparse.csr_array, order: Any, by_rows: bool, cost: float, apart_cost: float) -> Coloring:
    """A direct bicolouring: products by columns (or `by_rows`), and of their own for the rows (columns) that are full.

    Without the t fullest rows, columns need about as many colours as the next row has entries.
    """
    lines = sparse.csr_array(pattern.T) if by_rows else pattern
    counts = np.diff(lines.indptr)
    fullest = np.argsort(-counts, kind="stable")
    price = cost * np.append(counts[fullest], 0) + apart_cost * np.arange(len(counts) + 1)
    apart = np.zeros(len(counts), bool)
    apart[fullest[: np.argmin(price)]] = True
    across = _colors(lines, ~apart, "column", order)
    along = _colors(lines, apart, "row", order)
    columns, rows = (along, across) if by_rows else (across, along)
    m, n = pattern.shape
    i, j = np.repeat(np.arange(m), np.diff(pattern.indptr)), pattern.indices
    by_row = ~apart[j] if by_rows else apart[i]
    first = m * (columns.max(initial=-1) + 1)
    sources = np.where(by_row, first + rows[i] * n + j, columns[j] * m + i)
    return Coloring(pattern, "bidirectional", "direct", order, rows, columns, sources, None)


def _colors(lines: sparse.csr_array, kept: np.ndarray, partition: str, order: Any) -> np.ndarray:
    """The colours of the columns or rows of what remains with these rows; -1 where nothing does."""
    counts = np.where(kept, np.diff(lines.indptr), 0)
    indices = lines.indices[np.repeat(kept, np.diff(lines.indptr))]
    rest = sparse.csr_array((np.ones(len(indices), bool), indices, np.append(0, np.cumsum(counts))), shape=lines.shape)
    colors = np.array(color(rest, partition, order=order).colors)
    empty = counts == 0 if partition == "row" else np.bincount(indices, minlength=lines.shape[1]) == 0
    colors[empty] = -1
    return colors
