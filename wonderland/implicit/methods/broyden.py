"""Broyden's method: dF/dx once, then corrected by what F does along every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.control.cond import cond
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import SURE, beginning, size, square
from wonderland.implicit.tasks import Task
from wonderland.numpy.dispatch import as_function
from wonderland.ops import factors

_lu, _lu_solve = as_function(factors.lu), as_function(factors.lu_solve)

SHORTEST = 2.0**-6  # of a step, before dF/dx is computed again
LAST = 2.0**-40  # with that one
GROWTH = 0.3  # by so much may F become larger at a step, less and less


@dataclass(frozen=True)
class Broyden:
    """x + t s with s = -H F, where H (n, n) is the inverse of dF/dx at the start, corrected to H dF = dx at each step.

    Broyden's "good" method, with a line search by which F may become somewhat larger (D. Li and M. Fukushima, A
    derivative-free line search and global convergence of Broyden-like method for nonlinear equations, 2000). H begins
    as the exact inverse (as 1 where there is none), or as the number `initial`; where that leads nowhere, it becomes
    the exact inverse. It has converged when |s_j| <= tol |x_j| for all j, or after some steps below `tol` of the
    largest x so far.
    """

    initial: float | None = None

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The root, the number of steps, and the last error, relative."""
        (n,) = x.shape

        def exact(x: Any) -> Any:
            matrix = problem.jacobian(x)[1]
            largest = np.max(np.abs(matrix), axis=1, initial=0.0)
            identity = np.eye(n, dtype=x.dtype)
            inverse = _lu_solve(*_lu(matrix), identity, adjoint=False)
            inverse = np.where(np.all(np.isfinite(inverse)), inverse, identity)
            return inverse, 1 / np.where(largest > 0, largest, 1)

        def step(state: Any) -> Any:
            x, value, inverse, weights, fresh, course = state
            s = -(inverse @ value)
            now = square(weights * value)
            slack = 1 + GROWTH / (1.0 + course.count.astype(x.dtype)) ** 2
            near = size(s) <= np.sqrt(np.finfo(x.dtype).eps) * size(x)

            def tried(t: Any) -> Any:
                there = problem.residual(x + t * s)
                more = np.where(fresh, 1, slack)
                fine = square(weights * there) <= (more - SURE * t) * now
                return t, there, (fine | near) & np.isfinite(size(there))

            shortest = np.where(fresh, LAST, SHORTEST)
            one = np.ones((), x.dtype)
            t, there, found = repeat(lambda q: ~q[2] & (q[0] > shortest), lambda q: tried(q[0] / 2), tried(one))
            dx, dF = t * s, there - value
            image = inverse @ dF
            product = np.sum(dx * image)
            informed = np.abs(product) > np.finfo(x.dtype).eps * np.sqrt(square(dx) * square(image))
            change = ((dx - image) / np.where(informed, product, 1))[:, None] * (dx @ inverse)[None, :]
            better = np.where(informed, inverse + change, inverse)
            again = ~found & ~fresh
            inverse, weights = cond(again, exact, lambda x: (better, weights), x)
            course = course.after(x, s, tol, going=found | ~fresh)
            return np.where(found, x + dx, x), np.where(found, there, value), inverse, weights, again, course

        inverse, weights = exact(x)
        first = np.bool_(True)
        if self.initial is not None:
            inverse, first = self.initial * np.eye(n, dtype=x.dtype), np.bool_(False)
        start = (x, problem.residual(x), inverse, weights, first, beginning(x))
        x, _, _, _, _, course = repeat(lambda state: state[5].unfinished(tol, maxiter), step, start)
        return x, course.count, course.error
