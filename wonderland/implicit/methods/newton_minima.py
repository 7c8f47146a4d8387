"""Newton's method for minima: down along -(H + tau)^-1 g, with a tau that makes the Hessian positive definite."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import beginning
from wonderland.implicit.methods.descents import lower, visited
from wonderland.implicit.methods.newton_cg import NewtonCG
from wonderland.implicit.systems.factorized import as_solver
from wonderland.implicit.systems.functions import MOST_DENSE
from wonderland.implicit.systems.krylov import Krylov
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.systems.solvers_direct import Cholesky
from wonderland.implicit.tasks import Task

LEAST = 1e-3  # of the size of the Hessian: the first tau where it isn't positive definite


def descend(problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
    """A minimum, the number of steps, and the last error, relative."""
    linear = problem.linear_solver
    if x.shape[0] > MOST_DENSE or (linear != "auto" and isinstance(as_solver(linear, None), Krylov)):
        return NewtonCG().solve(problem, x, tol, maxiter)

    def step(state: Any) -> Any:
        at, course = state
        found = problem.linearised(at.x)
        s = positive_solve(found.operator.dense(), -at.gradient)
        new, went = lower(problem, at, s, 1.0)
        course = course.after(at.x, s, tol, other=found.backward_error(at.x), going=went)
        last = at._replace(x=at.x + s)  # converged: all of the step, whatever rounding says
        ends = (course.error <= tol) & ~went
        return type(at)(*(np.where(ends, a, b) for a, b in zip(last, new, strict=True))), course

    start = visited(problem, x), beginning(x)
    at, course = repeat(lambda state: state[1].unfinished(tol, maxiter), step, start)
    return at.x, course.count, course.error


def positive_solve(hessian: Any, b: Any) -> Any:
    """(H + tau)^-1 b, with tau = 0 if H is positive definite."""
    (n,) = b.shape
    scale = np.max(np.abs(hessian), initial=0.0)
    first = LEAST * np.where(scale == 0, 1, scale)
    solver = Cholesky()

    def factor(tau: Any) -> Any:
        return tau, solver.prepare(Dense(hessian + tau * np.eye(n, dtype=b.dtype)))

    def indefinite(state: Any) -> Any:
        tau, low = state
        return np.any(np.isnan(low)) & (tau < 10 * n * scale)

    _, low = repeat(indefinite, lambda state: factor(np.maximum(4 * state[0], first)), factor(0 * first))
    return solver.solve(None, low, b)
