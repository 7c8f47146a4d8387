"""Anderson's acceleration of a fixed point: the next x combines what g made of the last ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import beginning, size, square
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.systems.solvers_direct import Cholesky
from wonderland.implicit.tasks import Task

LEAST = 100  # units of rounding: with less, products of dependent changes have no Cholesky factor
WORSE = 2.0  # by this factor, g(x) - x may be larger than the smallest so far
SMALLEST = 2.0**-30  # of a step


@dataclass(frozen=True)
class Anderson:
    """x + a f - sum c_i (dx_i + a df_i), with f = g(x) - x, a = 1 - damping, and the c of the least |f - sum c_i df_i|.

    dx_i and df_i are the last `memory` changes of x and f. The c are found by the products of the df_i, scaled to
    length 1; `regularisation` (some units of rounding if None) is added to their squares, because changes may depend
    on each other. A step after which f is more than twice the smallest so far isn't taken, but what it told is kept;
    one to where g isn't finite is halved. D. Anderson, Iterative procedures for nonlinear integral equations, 1965; H.
    Walker and P. Ni, Anderson acceleration for fixed-point iterations, 2011. It has converged when each |f_j| is below
    `tol` of x_j, or some are below `tol` of the largest x so far.
    """

    memory: int = 5
    damping: float = 0.0
    regularisation: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.memory, (int, np.integer)) or self.memory < 1:
            raise ArgumentError(f"Anderson: memory is the number of changes kept, at least 1, got {self.memory}")

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The fixed point, the number of steps, and the last error, relative."""
        m, (n,) = min(self.memory, max(x.shape[0], 1)), x.shape
        eps = float(np.finfo(x.dtype).eps)
        weight = x.dtype.type(LEAST * eps if self.regularisation is None else self.regularisation)
        rate, cholesky = 1 - self.damping, Cholesky()

        def combined(f: Any, xs: Any, fs: Any) -> Any:
            """The step, from the changes xs and fs (m, n), of which those that aren't there are 0."""
            lengths = np.sqrt(np.sum(fs * fs, axis=1))
            lengths = np.where(lengths > 0, lengths, 1)
            rows = fs / lengths[:, None]
            factor = cholesky.prepare(Dense(rows @ rows.T + weight * np.eye(m, dtype=x.dtype)))
            c = np.zeros(m, x.dtype)
            for _ in range(2):  # the second time, with what the first one left
                c = c + cholesky.solve(None, factor, rows @ (f - c @ rows) - weight * c)
            c = c / lengths
            return rate * f - c @ (xs + rate * fs)

        def step(state: Any) -> Any:
            x, f, best, xs, fs, t, course = state
            s = t * combined(f, xs, fs)
            there = problem.mapped(x + s) - (x + s)
            finite = np.isfinite(size(there))
            pushed = lambda held, new: np.where(finite, np.concatenate([held[1:], new[None]]), held)
            xs, fs = pushed(xs, s), pushed(fs, np.where(finite, there - f, 0))
            taken = finite & (square(there) <= WORSE**2 * best)
            course = course.after(x, f, tol, going=finite | (t > SMALLEST))
            best = np.where(taken, np.minimum(best, square(there)), best)
            t = np.where(finite, 1, t / 2)
            return np.where(taken, x + s, x), np.where(taken, there, f), best, xs, fs, t, course

        f = problem.mapped(x) - x
        held, one = np.zeros((m, n), x.dtype), np.ones((), x.dtype)
        start = (x, f, square(f), held, held, one, beginning(x))
        x, *_, course = repeat(lambda state: state[-1].unfinished(tol, maxiter), step, start)
        return x, course.count, course.error
