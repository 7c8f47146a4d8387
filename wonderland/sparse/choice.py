"""Which partition: by columns, by rows or by both, whatever costs least in products."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.sparse.coloring import Coloring, color
from wonderland.sparse.graphs import Pattern

FEW = 8  # colours: with so few by columns or rows alone, nobody looks for a partition in both directions
LARGE = 500  # rows of a symmetric matrix: if it is nearly full as well, it is coloured by columns


def choose(pattern: Pattern, decompression: str, order: Any, forward: float, reverse: float) -> Coloring:
    """The colouring with the least cost, when a product with a column costs `forward` and one with a row `reverse`."""
    _check_order(order)
    counts = np.diff(pattern.indptr), np.bincount(pattern.indices, minlength=pattern.shape[1])
    # Columns of one colour have no row in common: there are as many colours as the fullest row has entries, or more.
    bounds = {"column": forward * counts[0].max(initial=0), "row": reverse * counts[1].max(initial=0)}
    first, second = sorted(bounds, key=lambda way: bounds[way])
    best = color(pattern, first, decompression, order)
    found = [color(pattern, second, decompression, order)] if bounds[second] < price(best, forward, reverse) else []
    typical = 2 * np.median(counts[best.column_colors is None]) if pattern.nnz else 0
    if best.num_colors > max(FEW, typical) and np.isfinite(forward + reverse):
        found.append(color(pattern, "bidirectional", decompression, order, postprocess=True))
    return min([best, *found], key=lambda coloring: price(coloring, forward, reverse))


def choose_symmetric(pattern: Pattern, decompression: str, order: Any) -> Coloring:
    """With regard to symmetry, or by columns if that takes fewer colours: greedy colourings can be worse than that."""
    _check_order(order)
    n = pattern.indptr.size - 1
    if n > LARGE and 2 * pattern.nnz > n * n:  # n^3 steps, for half of the products at best
        return color(pattern, "column", order=order)
    best = color(pattern, "symmetric", decompression, order)
    if best.num_colors <= np.diff(pattern.indptr).max(initial=0):
        return best
    return min(best, color(pattern, "column", order=order), key=lambda coloring: coloring.num_colors)


def _check_order(order: Any) -> None:
    if not isinstance(order, str | None):
        raise ArgumentError(
            'an order that is a permutation belongs to a partition: say partition="column" (a permutation of the '
            'columns), "row", "symmetric" or "bidirectional", not "auto"'
        )


def price(coloring: Coloring, forward: float, reverse: float) -> float:
    """What a colouring's products cost."""
    sides = (forward, coloring.num_column_colors), (reverse, coloring.num_row_colors)
    return sum(cost * count for cost, count in sides if count)
