"""Minima by BFGS and L-BFGS: the inverse Hessian H from steps s and the changes y of the gradient along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import beginning, square
from wonderland.implicit.methods.descents import first_length, lower, visited
from wonderland.implicit.tasks import Task


def minimum(problem: Task, x: Any, tol: float, maxiter: int, empty: Any, product: Any, updated: Any) -> tuple:
    """Down along -H g: a minimum, the number of steps, and the last error, relative.

    `empty` is what is kept of H when nothing is known, `product(kept, g)` is H g, `updated(kept, s, y, product of them,
    and is it the first?)` what is kept after a step. It has converged when |H g| is below `tol` of x, number by number.
    Where there is nothing lower along a direction, H is forgotten, once.
    """

    def step(state: Any) -> Any:
        at, kept, fresh, course = state
        s = -product(kept, at.gradient)
        new, went = lower(problem, at, s, np.where(fresh, first_length(at.x, s), 1.0))
        after = course.after(at.x, s, tol, going=went | ~fresh)
        unknown = fresh & np.any(at.gradient != 0) & ~np.isnan(after.error)  # so far, H is no inverse of anything
        after = after._replace(error=np.where(unknown, np.inf, after.error), small=np.where(unknown, 0, after.small))
        dx, dg = new.x - at.x, new.gradient - at.gradient
        curvature = np.sum(dx * dg)
        curved = curvature > np.finfo(x.dtype).eps * np.sqrt(square(dx) * square(dg))
        more = updated(kept, dx, dg, np.where(curved, curvature, 1), fresh)
        kept = tuple(
            np.where(went, np.where(curved, b, a), nothing) for a, b, nothing in zip(kept, more, empty, strict=True)
        )
        return new, kept, ~went | (fresh & ~curved), after

    start = visited(problem, x), empty, np.bool_(True), beginning(x)
    at, _, _, course = repeat(lambda state: state[3].unfinished(tol, maxiter), step, start)
    return at.x, course.count, course.error


@dataclass(frozen=True)
class BFGS:
    """Down along -H g, where H (n, n) becomes the closest matrix with H y = s, after every step.

    Broyden, Fletcher, Goldfarb and Shanno, 1970. H begins as (s'y / y'y) 1. It has converged when each of |H g| is
    below `tol` of its x, or some steps are below `tol` of the largest x so far.
    """

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The minimum, the number of steps, and the last error, relative."""
        identity = np.eye(x.shape[0], dtype=x.dtype)

        def updated(kept: Any, s: Any, y: Any, sy: Any, fresh: Any) -> Any:
            (h,) = kept
            h = np.where(fresh, identity * (sy / np.where(square(y) == 0, 1, square(y))), h)
            hy = h @ y
            both = s[:, None] * hy[None, :]
            return ((h + (1 + np.sum(y * hy) / sy) / sy * (s[:, None] * s[None, :]) - (both + both.T) / sy),)

        return minimum(problem, x, tol, maxiter, (identity,), lambda kept, g: kept[0] @ g, updated)


@dataclass(frozen=True)
class LBFGS:
    """As `BFGS`, with H from the last `memory` steps s and changes y alone: for many unknowns.

    J. Nocedal, Updating quasi-Newton matrices with limited storage, 1980.
    """

    memory: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.memory, (int, np.integer)) or self.memory < 1:
            raise ArgumentError(f"LBFGS: memory is the number of steps kept, at least 1, got {self.memory}")

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The minimum, the number of steps, and the last error, relative."""
        m = self.memory
        pairs, numbers = np.zeros((m, *x.shape), x.dtype), np.zeros(m, x.dtype)  # 1 / s'y is 0 where there is no pair

        def product(kept: Any, g: Any) -> Any:
            steps, changes, inverses, scale = kept
            alphas = [None] * m
            for i in reversed(range(m)):
                alphas[i] = inverses[i] * np.sum(steps[i] * g)
                g = g - alphas[i] * changes[i]
            g = scale * g
            for i in range(m):
                g = g + steps[i] * (alphas[i] - inverses[i] * np.sum(changes[i] * g))
            return g

        def updated(kept: Any, s: Any, y: Any, sy: Any, fresh: Any) -> Any:
            steps, changes, inverses, _ = kept
            last = lambda held, new: np.concatenate([held[1:], np.reshape(new, (1, *held.shape[1:]))])
            return last(steps, s), last(changes, y), last(inverses, 1 / sy), sy / np.where(square(y) == 0, 1, square(y))

        empty = (pairs, pairs, numbers, np.ones((), x.dtype))
        return minimum(problem, x, tol, maxiter, empty, product, updated)
