"""Which rows of a matrix are independent: a rank-revealing elimination, as a loop that compiles and batches.

In: rows (r, n) and which of them are wanted. Out: the chosen rows, a basis of what the wanted ones span, and for every
other one the combination of rows that is zero: what proves that an equation of it is redundant, or contradicts the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.numpy.dispatch import as_function
from wonderland.ops import factors

cholesky_or_nan: Callable[..., Any] = as_function(factors.cholesky_or_nan)

DEPENDENT = 1e-9  # a row is dependent if so little of its length is left when the chosen ones are projected out


def surely(gram: Any) -> Any:
    """Is a symmetric matrix, its diagonal scaled to one, clearly positive definite? Then there is nothing to choose."""
    length = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    length = np.where(length > 0, length, 1.0)
    return np.all(np.diagonal(cholesky_or_nan(gram / length / length[:, None])) > 1e-4)  # false for NaN


def independent(rows: Any, wanted: Any, sure: Any = False) -> tuple[Any, Any]:
    """Choose independent rows, always the one with most left: `(chosen, combinations)`, (r,) bools and (r, r).

    Row i of `combinations @ rows` is what is left of row i. Gram-Schmidt with pivots: in each step the longest row that
    is left is chosen, and projected out of the others. If it is `sure` that all wanted rows are independent no step is
    needed.
    """
    count = rows.shape[0]
    if count == 0:
        return np.zeros(0, bool), np.zeros((0, 0))
    length = np.sqrt(np.sum(rows * rows, axis=1))  # (r,)
    length = np.where(length > 0, length, 1.0)
    left = np.where(wanted[:, None], rows / length[:, None], 0.0)  # (r, n)
    places = np.arange(count)

    def remaining(left: Any, chosen: Any) -> Any:
        return np.where(chosen, 0.0, np.sum(left * left, axis=1))

    def going(state: Any) -> Any:
        left, _, chosen = state
        return np.any(remaining(left, chosen) > DEPENDENT**2)

    def choose(state: Any) -> Any:
        left, combinations, chosen = state
        sizes = remaining(left, chosen)
        now = places == np.argmax(sizes)  # (r,)
        one = np.where(now, 1.0, 0.0)
        pivot, combination = one @ left, one @ combinations  # (n,), (r,)
        share = np.where(chosen | now, 0.0, left @ pivot / np.max(sizes))  # (r,)
        left = left - share[:, None] * pivot
        return left, combinations - share[:, None] * combination, chosen | now

    start = left, np.eye(count) / length[:, None], wanted & sure
    _, combinations, chosen = repeat(going, choose, start)
    return chosen, combinations
