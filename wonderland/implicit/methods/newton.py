"""Newton's method: x becomes x + s, where dF/dx s = -F; steps are shortened until F is smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.implicit.jacobians import Linearised
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import SURE, beginning, size, square
from wonderland.implicit.methods.newton_minima import descend
from wonderland.implicit.methods.newton_plain import plain_newton
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.tasks import Task

SHORTEST = 2.0**-40  # of a step
NUDGE = 1e-3  # of the size of x, away from where dF/dx is singular


def row_weights(at: Linearised) -> Any:
    """What makes equations of different sizes comparable: 1 / max_j |dF_i/dx_j|; 1 where dF/dx isn't a matrix."""
    if not isinstance(at.operator, Dense):
        return np.ones((), at.value.dtype)
    largest = np.max(np.abs(at.operator.a), axis=1, initial=0.0)
    return 1 / np.where((largest > 0) & np.isfinite(largest), largest, 1)


@dataclass(frozen=True)
class Newton:
    """x + t s with dF/dx s = -F and t = 1, 1/2, 1/4, ... until F has become smaller; without `line_search` t = 1.

    Equations are weighted by 1 / max_j |dF_i/dx_j|, so it doesn't matter in which units they are. It has converged when
    |s_j| <= tol |x_j| for all j, when |F_i| <= tol times the sum of |dF_i/dx_j| |x_j| for all i (x is exact but for
    `tol` of its own digits), or after some steps below `tol` of the largest x so far, for roots at 0. Where dF/dx is
    singular on the way, x is moved a little, once. A minimum is looked for by `descend`, which goes down.
    """

    newton: ClassVar[bool] = True  # its last step is one that polishes
    line_search: bool = True

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The solution, the number of steps, and the last error, relative."""
        if problem.objective_of is not None:
            return descend(problem, x, tol, maxiter)
        if isinstance(x, np.ndarray) and self.line_search:
            found = plain_newton(problem, x, tol, maxiter)
            if found is not None:
                return found

        nudge = NUDGE * np.cos(np.arange(1, x.shape[0] + 1) ** 2).astype(x.dtype)  # in no particular direction
        root_of_rounding, root_of_tol = float(np.sqrt(np.finfo(x.dtype).eps)), float(np.sqrt(tol))

        def step(state: Any) -> Any:
            x, course, nudged = state
            at = problem.linearised(x)
            s = -at.solve(at.value)
            length, scale, backward = size(s), size(x), at.backward_error(x)
            lost = ~np.isfinite(length)  # dF/dx is singular, or F isn't finite
            arrived = backward <= tol
            aside = np.where(scale == 0, 1, scale) * np.where(np.isfinite(size(at.value)), nudge, np.nan)
            s = np.where(lost, np.where(arrived, 0, aside), s)
            going = ~(lost & nudged)
            t = np.ones((), x.dtype)
            if self.line_search:
                near = lost | (backward < root_of_tol) | (length <= root_of_rounding * scale)
                t, found = self._length(problem, x, s, at, near)
                going = going & found
            course = course.after(x, s, tol, other=backward, going=going)
            unknown = lost & ~arrived & course.going
            new = np.where(going & (course.going | (course.error <= tol)), x + t * s, x)
            return new, course._replace(error=np.where(unknown, np.inf, course.error)), lost

        start = (x, beginning(x), np.bool_(False))
        x, course, _ = repeat(lambda state: state[1].unfinished(tol, maxiter), step, start)
        return x, course.count, course.error

    def _length(self, problem: Task, x: Any, s: Any, at: Linearised, near: Any) -> tuple[Any, Any]:
        """How far to go along s, and is there such a length? Near the solution, where rounding decides, all the way."""
        weights = row_weights(at)
        now = square(weights * at.value)

        def shorter(state: Any) -> Any:
            t = state[0] / 2
            return t, square(weights * problem.residual(x + t * s)) <= (1 - SURE * t) ** 2 * now

        t, found = repeat(lambda state: ~state[1] & (state[0] > SHORTEST), shorter, (2 * np.ones((), x.dtype), near))
        return np.where(near, 1, t), found
