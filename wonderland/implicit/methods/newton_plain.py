"""Newton's method on plain arrays, as long as nothing is in its way: the steps of `Newton`, in a fifth of the time.

For a few unknowns what takes time is the number of calls of NumPy. Here whole steps are taken, and it gives up where
`Newton` would do something else: a step that doesn't make F smaller, a singular matrix, a number that isn't finite.
Then that starts again, so the result is the same either way.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from wonderland.implicit.methods.convergence import SURE, square
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.systems.solvers_direct import LU
from wonderland.implicit.tasks import Task
from wonderland.ops.factors import lapack


def plain_newton(problem: Task, x: np.ndarray, tol: float, maxiter: int) -> tuple[Any, Any, Any] | None:
    """The solution, the number of steps and the last error; None where it takes more than whole steps."""
    eps = float(np.finfo(x.dtype).eps)
    allowed, weights = np.inf, None
    for count in range(1, maxiter + 1):
        at = problem.linearised(x)
        value = at.value
        if type(at.operator) is not Dense or type(at.solver) is not LU or not isinstance(value, np.ndarray):
            return None
        a = at.operator.a
        if weights is not None and not float(square(weights * value)) <= allowed:
            return None
        _, _, s, singular = lapack("gesv", a)(a, -value) if a.size else (None, None, -value, 0)
        if singular:
            return None
        size, steps, sizes = np.abs(x), np.abs(s), np.abs(a)
        ahead = np.maximum(size, np.abs(x + s))
        length = float(steps.max(initial=0.0))
        if not isfinite(length) or not ahead.all():  # a root at zero takes patience
            return None
        moves = sizes @ size
        backward = float((np.abs(value) / moves).max(initial=0.0)) if moves.all() else np.inf
        error = min(float((steps / ahead).max(initial=0.0)), backward)
        x = x + s
        if error <= tol:
            return x, np.int64(count), x.dtype.type(error)
        rows = sizes.max(axis=1, initial=0.0)
        if not rows.all():
            return None
        near = backward < tol**0.5 or length <= eps**0.5 * float(size.max())
        weights = None if near else 1 / rows
        allowed = (1 - SURE) ** 2 * float(square(value / rows))
    return None
