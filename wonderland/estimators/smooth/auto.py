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
    """The minimum by the method `solver`; w is the start, and a good one if `warm`."""
    result = _minimise(problem, problem.balanced(w), solver, tol, max_iter, warm)
    return result._replace(w=problem.balanced(result.w))  # steps lose it by rounding, of columns in units of 1e20


def _minimise(problem: SmoothProblem, w: np.ndarray, solver: str, tol: float, max_iter: int, warm: bool) -> Result:
    if solver == "newton-cholesky":
        return newton(problem, problem.at(w), tol, max_iter)
    if solver == "newton-cg":
        return newton_cg(problem, problem.at(w), tol, max_iter)
    if solver == "lbfgs":
        point = problem.at(w)
        return lbfgs(problem, point, tol, max_iter, by_diagonal(problem, point))
    if problem.n * float(w.size) ** 2 <= SMALL:
        return newton(problem, problem.at(w), tol, max_iter)
    if problem.X.dtype == np.float64:
        return _auto(problem, w, tol, max_iter, warm)
    return _from_single(problem, w, tol, max_iter, warm)


def _from_single(problem: SmoothProblem, w: np.ndarray, tol: float, max_iter: int, warm: bool) -> Result:
    """Steps with products of single precision, then, from where they led, of double precision.

    Where they lead nowhere (means far from zero, units of 1e20), double precision begins anew.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        begun = _quick(problem.rough(), w, max(0.9 * tol, SINGLE), max_iter, warm)
    if not begun.converged:
        return _auto(problem, w, tol, max_iter, warm)
    point = problem.at(begun.w)
    if is_flat(problem, point, tol):
        return Result(begun.w, point, begun.values, True)
    rest = _auto(problem, begun.w, tol, max(max_iter - begun.iterations, 1), True)
    return rest._replace(values=begun.values[:-1] + rest.values)


def _auto(problem: SmoothProblem, w: np.ndarray, tol: float, max_iter: int, warm: bool) -> Result:
    """L-BFGS, and where it doesn't end soon, Newton's method."""
    begun = _quick(problem, w, tol, max_iter, warm)
    left = max_iter - begun.iterations
    if begun.converged or not left or not (is_dual(problem) or w.size <= MOST_PARAMETERS):
        return begun
    rest = newton(problem, begun.point, tol, left)
    return rest._replace(values=begun.values[:-1] + rest.values)


def _quick(problem: SmoothProblem, w: np.ndarray, tol: float, max_iter: int, warm: bool) -> Result:
    """L-BFGS, as long as it takes less time than Newton's method, for which as many steps are left."""
    rows = max(problem.n // PART, ROWS_FOR_PARAMETER * w.size)
    if 4 * rows <= problem.n and not warm:
        point, precondition = _begin(problem, w, rows, tol, max_iter)
    else:
        point, precondition = problem.at(w), None
    few = min(10 + w.size // 10, max_iter // 2 + 1)
    return lbfgs(problem, point, tol, few, precondition or by_diagonal(problem, point))


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
