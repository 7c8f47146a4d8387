"""Which method for which data: a `SmoothProblem` and a start come in, a `Result` goes out.

Newton's step costs n p^2 and p^3, one of L-BFGS n p. So small problems go by Newton. Of many samples a part is solved
first: its solution is the start, and its Hessian the preconditioner of L-BFGS on all, which then needs few steps.
Where features are too many for that, L-BFGS begins with the Hessian's diagonal, and what it can't finish (features
that depend on each other) Newton does. The gradient that must be flat at the end is that of all samples.
"""

from __future__ import annotations

import numpy as np

from wonderland.estimators.smooth.hessian import hessian, is_dual
from wonderland.estimators.smooth.lbfgs import Precondition, by_diagonal, by_inverse, lbfgs
from wonderland.estimators.smooth.newton import Result, is_flat, newton
from wonderland.estimators.smooth.newton_cg import newton_cg
from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem, sample

SOLVERS = ("auto", "newton-cholesky", "newton-cg", "lbfgs")
SMALL = 1e6  # products of a Hessian that are few enough for Newton's method at once
SINGLE = 1e-5  # the least tolerance that derivatives of single precision can tell
PART = 16  # one of so many samples, or
ROWS_FOR_PARAMETER = 50  # so many for each parameter, are the part that is solved first
MOST_PARAMETERS = 5000  # of a Hessian as a matrix


def minimise(
    problem: SmoothProblem, w: np.ndarray, solver: str, tol: float, max_iter: int, warm: bool = False
) -> Result:
    """The minimum by the method `solver`; w is the start, and a good one if `warm`.

    Of X in single precision it begins with products of that precision, and ends with those of double precision.
    """
    w = problem.balanced(w)
    if problem.precision == problem.X.dtype:
        return _minimise(problem, w, solver, tol, max_iter, warm)
    begun = _minimise(problem.rough(), w, solver, max(0.9 * tol, SINGLE), max_iter, warm)
    point = problem.at(begun.w)
    if is_flat(problem, point, tol):
        return Result(begun.w, point, begun.values, True)
    if not np.isfinite(point.value):  # numbers that single precision doesn't have
        return _minimise(problem, w, solver, tol, max_iter, warm)
    rest = _minimise(problem, begun.w, solver, tol, max(max_iter - begun.iterations, 1), True)
    return rest._replace(values=begun.values[:-1] + rest.values)


def _minimise(problem: SmoothProblem, w: np.ndarray, solver: str, tol: float, max_iter: int, warm: bool) -> Result:
    if solver == "newton-cholesky":
        return newton(problem, problem.at(w), tol, max_iter)
    if solver == "newton-cg":
        return newton_cg(problem, problem.at(w), tol, max_iter)
    if solver == "lbfgs":
        point = problem.at(w)
        return lbfgs(problem, point, tol, max_iter, by_diagonal(problem, point))
    parameters = w.size
    rows = max(problem.n // PART, ROWS_FOR_PARAMETER * parameters)
    if problem.n * float(parameters) ** 2 <= SMALL:
        return newton(problem, problem.at(w), tol, max_iter)
    if 4 * rows <= problem.n and not warm:
        point, precondition = _begin(problem, w, rows, tol, max_iter)
    else:
        point, precondition = problem.at(w), None
    few = min(10 + parameters // 10, max_iter // 2 + 1)  # steps cost less than Newton's, for which as many are left
    begun = lbfgs(problem, point, tol, few, precondition or by_diagonal(problem, point))
    left = max_iter - begun.iterations
    if begun.converged or not left or not (is_dual(problem) or parameters <= MOST_PARAMETERS):
        return begun
    rest = newton(problem, begun.point, tol, left)
    return rest._replace(values=begun.values[:-1] + rest.values)


def _begin(
    problem: SmoothProblem, w: np.ndarray, rows: int, tol: float, max_iter: int
) -> tuple[LossPoint, Precondition | None]:
    """Where a part of the samples has its minimum, and a preconditioner of its Hessian, if that is cheap."""
    part = problem.part(sample(problem.n, rows))
    begun = minimise(part, w, "auto", max(tol, 1e-3), max_iter)
    point = problem.at(begun.w)
    # A part that isn't like the rest may lead far away.
    if not point.value / problem.total <= part.at(w).value / part.total:
        return problem.at(w), None
    if w.size**2 > 4 * problem.n:
        return point, None
    return point, by_inverse(hessian(part, begun.point.eta) * (problem.total / part.total))
