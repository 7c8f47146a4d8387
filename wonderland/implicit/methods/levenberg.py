"""Least squares, and roots, by Levenberg and Marquardt's method, and by Gauss and Newton's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.implicit.jacobians import Linearised
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import SURE, beginning, size, square
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.systems.solvers_direct import QR
from wonderland.implicit.tasks import Task

MOST_DAMPED = 1e20
DIGITS = 1e2  # units of rounding in a sum of squares: below them, its changes say nothing
SHORTEST = 2.0**-20  # of a step


def least(matrix: Any, b: Any) -> Any:
    """x with the least |A x - b|, by QR; NaN where the rank isn't full."""
    solver, operator = QR(), Dense(matrix)
    return solver.solve(operator, solver.prepare(operator), b)


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Steps s with (J'J + mu D^2) s = -J'r, D the largest norms of the columns of J so far; mu begins as `damping`.

    mu becomes smaller where J predicts how much smaller |r| is, up to a third, and larger where it doesn't (H. Nielsen,
    Damping parameter in Marquardt's method, 1999); the system is solved by QR of [J; sqrt(mu) D], not by J'J. It has
    converged when each (1 + mu) |s_j| is below `tol` of x_j, or some steps are below `tol` of the largest x so far. Of
    equations F = 0 (r is F then), only where s leads to a root; or if |F_i| is below `tol` times the sum of
    |dF_i/dx_j| |x_j|, for all i.
    """

    damping: float = 1e-3

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The solution, the number of steps, and the last error, relative."""
        (n,) = x.shape
        is_root = problem.residuals_of is None
        rounding = DIGITS * float(np.finfo(x.dtype).eps)

        def step(state: Any) -> Any:
            x, r, J, unit, mu, factor, course = state
            unit = np.maximum(unit, np.sqrt(np.sum(J * J, axis=0)))
            safe = np.where(unit > 0, unit, 1)
            s = least(np.concatenate([J, np.diag(np.sqrt(mu) * safe)]), np.concatenate([-r, np.zeros(n, x.dtype)]))
            predicted = square(J @ s) / 2 + mu * square(safe * s)
            there, J_there = problem.jacobian(x + s)
            now = square(r) / 2
            change = now - square(there) / 2
            by_slopes = -np.sum((r @ J + there @ J_there) * s) / 2
            change = np.where(np.abs(change) <= rounding * now, by_slopes, change)
            ratio = np.where(predicted > 0, change / np.where(predicted > 0, predicted, 1), 0)
            good = (ratio > SURE) & np.isfinite(square(there)) & np.isfinite(np.sum(J_there))
            other = np.full((), np.inf, x.dtype)
            if is_root:
                other = Linearised(r, Dense(J), None).backward_error(x)
            going = good | (mu < MOST_DAMPED)
            course = course.after(x, (1 + mu) * s, tol, other=other, going=going)
            if is_root:
                leads = (square(r + J @ s) <= now / 2) | (other <= tol) | np.isnan(course.error)
                course = course._replace(error=np.where(leads, course.error, np.inf))
            better = np.where(ratio > 1, 1.0 / 3, np.maximum(1.0 / 3, 1 - (2 * ratio - 1) ** 3)).astype(x.dtype)
            mu, factor = np.where(good, mu * better, mu * factor), np.where(good, 2, 2 * factor)
            new = (np.where(good, a, b) for a, b in ((x + s, x), (there, r), (J_there, J)))
            return *new, unit, mu, factor, course

        r, J = problem.jacobian(x)
        one = np.ones((), x.dtype)
        start = (x, r, J, 0 * x, self.damping * one, 2 * one, beginning(x))
        x, *_, course = repeat(lambda state: state[-1].unfinished(tol, maxiter), step, start)
        return x, course.count, course.error


@dataclass(frozen=True)
class GaussNewton:
    """Steps s with the least |r + J s|, shortened until |r| is smaller: for small residuals, J of full rank.

    It has converged when each |s_j| is below `tol` of x_j, or some steps are below `tol` of the largest x so far.
    """

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The solution, the number of steps, and the last error, relative."""

        def step(state: Any) -> Any:
            x, course = state
            r, J = problem.jacobian(x)
            s = least(J, -r)
            now, slope = square(r) * (1 + DIGITS * float(np.finfo(x.dtype).eps)), 2 * np.sum((r @ J) * s)
            near = size(s) <= np.sqrt(np.finfo(x.dtype).eps) * size(x)

            def shorter(state: Any) -> Any:
                t = state[0] / 2
                return t, square(problem.residuals(x + t * s)) <= now + SURE * t * slope

            twice = 2 * np.ones((), x.dtype)
            t, found = repeat(lambda state: ~state[1] & (state[0] > SHORTEST), shorter, (twice, near))
            t = np.where(near, 1, t)
            course = course.after(x, s, tol, going=found)
            return np.where(found & np.isfinite(size(s)), x + t * s, x), course

        x, course = repeat(lambda state: state[1].unfinished(tol, maxiter), step, (x, beginning(x)))
        return x, course.count, course.error
