"""Coordinate descent, compiled: the quadratic part comes in as a Gram matrix or as columns, coefficients go out.

Both minimise |z - x w|^2 / 2 + l1 |w|_1 + l2 |w|^2 / 2, one coefficient after the other: with g = x'(z - x w), the
new w_j is soft(g_j + |x_j|^2 w_j, l1) / (|x_j|^2 + l2). A step of `gram_sweeps` takes as long as w is, one of
`column_sweeps` as long as there are samples. Arrays are padded with zeros (`padded_size`) so that few shapes are
compiled; `count` coefficients are real.

J. Friedman, T. Hastie and R. Tibshirani, Regularization paths for generalized linear models via coordinate descent,
2010.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.compile.jit import jit
from wonderland.control.loops import fori_loop, while_loop
from wonderland.numpy.at import at


def padded_size(size: int) -> int:
    """The least of 16, 24, 32, 48, 64, 96, ... that is at least `size`."""
    power = 16
    while power < size:
        power *= 2
    return power // 4 * 3 if power > 16 and size <= power // 4 * 3 else power


def _threshold(z: Any, l1: Any, square: Any, l2: Any, positive: Any) -> Any:
    """The best coefficient, of z = g_j + |x_j|^2 w_j; zero of a column of zeros."""
    size = np.maximum(np.where(positive, z, np.abs(z)) - l1, 0.0)
    return np.where(square > 0, np.where(positive, 1.0, np.sign(z)) * size / (square + l2), 0.0)


@jit
def gram_sweeps(
    G: Any, c: Any, w: Any, l1: Any, l2: Any, positive: Any, count: Any, sweeps: Any, tol: Any
) -> tuple[Any, Any]:
    """w after at most `sweeps` sweeps, and how many; G = x'x, c = x'z. No step^2 |x_j|^2 of the last is above `tol`."""
    squares = np.diagonal(G)

    def coordinate(j: Any, state: Any) -> Any:
        w, g, moved = state
        old = w[j]
        new = _threshold(g[j] + squares[j] * old, l1, squares[j], l2, positive)
        step = new - old
        return at(w)[j].set(new), g - step * G[j], np.maximum(moved, step * step * squares[j])

    def sweep(state: Any) -> Any:
        w, g, _, done = state
        return *fori_loop(0, count, coordinate, (w, g, 0.0)), done + 1

    going = lambda state: (state[3] < sweeps) & (state[2] > tol)
    w, _, _, done = while_loop(going, sweep, (w, c - G @ w, np.inf, 0))
    return w, done


@jit
def column_sweeps(
    columns: Any, r: Any, w: Any, squares: Any, order: Any, l1: Any, l2: Any, positive: Any, count: Any, sweeps: Any,
    tol: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """w, the residuals r = z - x w, and the number of sweeps over the first `count` places in `order`.

    `columns` (features, samples) is x', `squares` are |x_j|^2.
    """

    def coordinate(k: Any, state: Any) -> Any:
        w, r, moved = state
        j = order[k]
        old = w[j]
        new = _threshold(np.sum(columns[j] * r) + squares[j] * old, l1, squares[j], l2, positive)
        step = new - old
        return at(w)[j].set(new), r - step * columns[j], np.maximum(moved, step * step * squares[j])

    def sweep(state: Any) -> Any:
        w, r, _, done = state
        return *fori_loop(0, count, coordinate, (w, r, 0.0)), done + 1

    going = lambda state: (state[3] < sweeps) & (state[2] > tol)
    w, r, _, done = while_loop(going, sweep, (w, r, np.inf, 0))
    return w, r, done


gram_sweeps.has_many_forms = True
column_sweeps.has_many_forms = True
