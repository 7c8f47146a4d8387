"""Newton's method for minima, truncated: its steps are found by conjugate gradients, from Hessian-vector products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import beginning, square
from wonderland.implicit.methods.descents import lower, visited
from wonderland.implicit.systems.functions import Jacobian
from wonderland.implicit.tasks import Task


@dataclass(frozen=True)
class NewtonCG:
    """Down along s with H s = -g up to min(forcing, sqrt(|g| / the largest |g| so far)) |g|.

    Conjugate gradients end where H has a negative curvature: s is then what they had found before. They need products
    with H alone, and take up to `iterations` of them (twice as many as there are unknowns, if None).
    J. Nocedal and S. Wright, Numerical optimization, 2006, algorithm 7.1. It has converged as `Newton` has.
    """

    forcing: float = 0.5
    iterations: int | None = None

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The minimum, the number of steps, and the last error, relative."""
        limit = 2 * x.shape[0] + 10 if self.iterations is None else self.iterations

        def step(state: Any) -> Any:
            at, largest, course = state
            hessian = Jacobian(problem.gradient_of, list(problem.theta), at.x, x.shape[0])
            now = square(at.gradient)
            largest = np.maximum(largest, now)
            ratio = np.sqrt(np.sqrt(now / np.where(largest == 0, 1, largest)))
            s, positive = truncated(hessian, at.gradient, np.minimum(self.forcing, ratio) ** 2 * now, limit)
            new, went = lower(problem, at, s, 1.0)
            after = course.after(at.x, s, tol, going=went)
            unknown = ~positive & (now > 0) & ~np.isnan(after.error)
            return new, largest, after._replace(error=np.where(unknown, np.inf, after.error))

        start = visited(problem, x), np.zeros((), x.dtype), beginning(x)
        at, _, course = repeat(lambda state: state[2].unfinished(tol, maxiter), step, start)
        return at.x, course.count, course.error


def truncated(hessian: Any, gradient: Any, goal: Any, limit: int) -> tuple[Any, Any]:
    """s with |H s + g|^2 <= goal, or before H turns out to be indefinite (then -g at least); and was it positive?"""

    def step(state: Any) -> Any:
        s, r, d, positive, count = state
        image = hessian.matvec(d)
        curvature, now = np.sum(d * image), square(r)
        positive = curvature > 0
        length = now / np.where(positive, curvature, 1)
        rest = r + length * image
        further = np.where(positive, s + length * d, np.where(count == 0, d, s))
        return further, rest, square(rest) / np.where(now == 0, 1, now) * d - rest, positive, count + 1

    def unfinished(state: Any) -> Any:
        _, r, _, positive, count = state
        return ~(square(r) <= goal) & positive & (count < limit)

    start = (0 * gradient, gradient, -gradient, np.bool_(True), np.zeros((), np.int64))
    s, _, _, positive, _ = repeat(unfinished, step, start)
    return s, positive
