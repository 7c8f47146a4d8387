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
from wonderland.implicit.systems.functions import MOST_DENSE
from wonderland.implicit.tasks import Task
from wonderland.ops.factors import lapack


def plain_newton(problem: Task, x: np.ndarray, tol: float, maxiter: int) -> tuple[Any, Any, Any] | None:
    """The solution, the number of steps and the last error; None where it takes more than whole steps by LU."""
    equations, theta = problem.equations, problem.theta
    if not 0 < x.size <= MOST_DENSE or equations.elementwise or problem.linear_solver != "auto":
        return None
    eps = float(np.finfo(x.dtype).eps)
    solve = lapack("gesv", x)
    allowed, weights = np.inf, None
    for count in range(1, maxiter + 1):
        value, a = equations.jacobian(theta, x)
        if not isinstance(value, np.ndarray) or not isinstance(a, np.ndarray):
            return None
        if weights is not None and not float(square(weights * value)) <= allowed:
            return None
        _, _, s, singular = solve(a, -value)
        size, steps, sizes = np.abs(x), np.abs(s), np.abs(a)
        new = x + s
        ahead = np.maximum(size, np.abs(new))
        length = float(steps.max())
        if singular or not isfinite(length) or not ahead.all():  # a root at zero takes patience
            return None
        moves = sizes @ size
        backward = float((np.abs(value) / moves).max()) if moves.all() else np.inf
        error = min(float((steps / ahead).max()), backward)
        if error <= tol:
            return new, np.int64(count), x.dtype.type(error)
        rows = sizes.max(axis=1)
        if not rows.all():
            return None
        near = backward < tol**0.5 or length <= eps**0.5 * float(size.max())
        weights = None if near else 1 / rows
        allowed = (1 - SURE) ** 2 * float(square(value / rows))
        x = new
    return None
