"""Roots within a trust region: steps of Newton and of steepest descent, and what is between them (Powell's dogleg)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import SURE, beginning, size, square
from wonderland.implicit.methods.newton import row_weights
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.tasks import Task

SMALLEST = 1e-12  # of the first radius


@dataclass(frozen=True)
class TrustRegion:
    """The best step within a radius, on the way from Newton's step to that of steepest descent of |F|^2.

    The radius becomes larger where dF/dx predicts how much smaller F is, and smaller where it doesn't. M. Powell, A
    hybrid method for nonlinear equations, 1970. Equations and unknowns are scaled by the rows and columns of dF/dx; the
    first radius is `factor` times the size of x (of Newton's step, where x is 0). It has converged as `Newton` has.
    Where Newton's step doesn't exist, it goes down: it ends with status STAGNATED where |F|^2 has a minimum that is no
    root.
    """

    newton: ClassVar[bool] = True  # its last step is one that polishes
    factor: float = 100.0

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The root, the number of steps, and the last error, relative."""

        def step(state: Any) -> Any:
            x, radius, least, course = state
            at = problem.linearised(x)
            weights = row_weights(at)
            value = weights * at.value
            unit = column_sizes(at.operator, weights)
            image = lambda p: weights * at.operator.matvec(p / unit)
            downhill = -at.operator.transposed().matvec(weights * value) / unit
            length = square(downhill) / _positive(square(image(downhill)))
            cauchy = length * downhill
            full = -unit * at.solve(at.value)
            exists = np.isfinite(size(full))
            full = np.where(exists, full, cauchy)
            whole = np.sqrt(square(unit * x))
            begins = np.where(whole > 0, self.factor * whole, _positive(np.sqrt(square(full))))
            radius = np.where(course.count == 0, begins, radius)
            least = np.where(course.count == 0, SMALLEST * begins, least)
            now, backward = square(value), at.backward_error(x)
            short = size(full / unit) <= np.sqrt(np.finfo(x.dtype).eps) * size(x)
            near = (exists & short) | (backward < np.sqrt(tol))

            def tried(radius: Any) -> Any:
                p = dogleg(cauchy, full, downhill, radius)
                there = weights * problem.residual(x + p / unit)
                promised = now - square(value + image(p))
                ratio = np.where(promised > 0, (now - square(there)) / _positive(promised), -1)
                return p, radius, np.where(near, 1, np.where(np.isnan(ratio), -1, ratio))

            def shorter(state: Any) -> Any:
                p, _, _ = state
                return tried(np.sqrt(square(p)) / 4)

            p, radius, ratio = repeat(lambda s: ~(s[2] > SURE) & (s[1] > least), shorter, tried(radius))
            good = ratio > SURE
            grows = (ratio > 0.75) & (square(p) >= 0.98 * radius * radius)
            radius = np.where(grows, 2 * radius, np.where(ratio < 0.25, radius / 2, radius))
            after = course.after(x, full / unit, tol, other=backward, going=good)
            unknown = ~exists & ~(backward <= tol) & ~np.isnan(after.error)
            after = after._replace(error=np.where(unknown, np.inf, after.error))
            return np.where(good, x + p / unit, x), radius, least, after

        zero = np.zeros((), x.dtype)
        start = (x, zero, zero, beginning(x))
        x, _, _, course = repeat(lambda state: state[3].unfinished(tol, maxiter), step, start)
        return x, course.count, course.error


def column_sizes(operator: Any, weights: Any) -> Any:
    """The norms of the columns of weights dF/dx, 1 for a column of zeros or where dF/dx isn't a matrix."""
    if not isinstance(operator, Dense):
        return np.ones((), operator.dtype)
    norms = np.sqrt(np.sum((weights[:, None] * operator.a) ** 2, axis=0))
    return np.where((norms > 0) & np.isfinite(norms), norms, 1)


def dogleg(cauchy: Any, full: Any, downhill: Any, radius: Any) -> Any:
    """The point at distance `radius` on the way from 0 by the Cauchy point to Newton's, or that, if it is nearer."""
    first = radius / _positive(np.sqrt(square(downhill))) * downhill
    way = full - cauchy
    a, b, c = square(way), np.sum(cauchy * way), square(cauchy) - radius * radius
    t = (np.sqrt(np.maximum(b * b - a * c, 0)) - b) / _positive(a)
    between = cauchy + np.clip(t, 0, 1) * way
    return np.where(square(full) <= radius * radius, full, np.where(c >= 0, first, between))


def _positive(number: Any) -> Any:
    return np.where(number > 0, number, 1)
