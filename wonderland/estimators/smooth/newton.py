"""Newton's method with a factorised Hessian: a `SmoothProblem` and a start come in, a `Result` goes out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wonderland.estimators.smooth.hessian import newton_steps
from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem
from wonderland.estimators.smooth.search import ROUNDING, search


class Result(NamedTuple):
    """Parameters where a method ended, its last point, the values of all, and whether that is a minimum.

    A minimum as far as asked, or as rounding allows. From a point whose gradient is flat, methods go on by a step whose
    direction is known already: w is better than the point, and X isn't read again.
    """

    w: np.ndarray
    point: LossPoint
    values: list[float]
    converged: bool

    @property
    def iterations(self) -> int:
        return len(self.values) - 1


def is_flat(problem: SmoothProblem, point: LossPoint, tol: float) -> bool:
    """Whether no derivative of the mean loss is larger than `tol`, in the columns' units where these are small."""
    return bool(np.abs(point.gradient / problem.sizes).max(initial=0.0) <= tol * problem.total)


def newton(problem: SmoothProblem, point: LossPoint, tol: float, max_iter: int) -> Result:
    """Newton's method, with a factorised Hessian."""
    steps = newton_steps(problem)
    solve = None
    values = [point.value]
    for _ in range(max_iter):
        if is_flat(problem, point, tol):
            return Result(point.w if solve is None else point.w - solve(point.gradient), point, values, True)
        solve = steps(point)
        direction = -solve(point.gradient)
        promised = -float(np.vdot(point.gradient, direction))
        if promised <= ROUNDING * abs(point.value):
            return Result(point.w, point, values, True)
        after = search(problem, point, direction, flatter=0.9)
        if after is None:
            return Result(point.w, point, values, promised <= 1e4 * ROUNDING * abs(point.value))
        point = after
        values.append(point.value)
    return Result(point.w, point, values, is_flat(problem, point, tol))
