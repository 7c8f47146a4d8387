"""Weights of multistep methods: integrals of the polynomial through what was seen before.

In: the places (steps,) where a function was seen, the first of them where the step begins, and moments of the step.
Out: for each place a weight (steps,): the sum of weight x value is the integral of the polynomial through the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def lagrange(places: Sequence[Any]) -> list[list[Any]]:
    """Coefficients, lowest power first, of the polynomials that are 1 at one place and 0 at the others."""
    out = []
    for j, here in enumerate(places):
        coefficients = [np.ones_like(here)]
        for k, other in enumerate(places):
            if k != j:  # times (u - other) / (here - other)
                shifted = [np.zeros_like(here), *coefficients]
                scaled = [*(c * other for c in coefficients), np.zeros_like(here)]
                coefficients = [(a - b) / (here - other) for a, b in zip(shifted, scaled, strict=True)]
        out.append(coefficients)
    return out


def weights(places: Sequence[Any], moments: Sequence[Any]) -> list[Any]:
    """The weight of the value at each place; `moments` are the integrals of 1, u, u^2 ..., u counted from places[0]."""
    polynomials = lagrange([place - places[0] for place in places])
    return [sum(c * m for c, m in zip(row, moments, strict=False)) for row in polynomials]


def powers(h: Any, count: int) -> list[Any]:
    """The integrals of u^k from 0 to h."""
    return [h ** (k + 1) / (k + 1) for k in range(count)]


def exponentials(h: Any, count: int) -> list[Any]:
    """The integrals of e^-(h - u) u^k from 0 to h; by parts, each follows from the one before."""
    found = [-np.expm1(-h)]
    for k in range(1, count):
        found.append(h**k - k * found[-1])
    return found


def growing(order: int, steps: int, of: Callable[[slice, int], Sequence[Any]], width: int | None = None) -> Any:
    """A table (steps, width): row i has the weights `of(i, q)` of that step, where q = min(i + 1, order) are known.

    `of` is called with a slice of rows, and returns arrays of them. The width is `order` unless given.
    """
    width = order if width is None else width
    tables = []
    for q in range(1, min(order, steps) + 1):
        rows = slice(q - 1, q if q < order else steps)
        columns = list(of(rows, q))
        columns += [np.zeros_like(columns[0])] * (width - len(columns))
        tables.append(np.stack(columns, axis=1))
    return np.concatenate(tables)


def back(a: Any, rows: slice, k: int) -> Any:
    """a[i - k] for the rows i."""
    return a[rows.start - k : rows.stop - k]
