"""Gradient descent on squares: data and penalties come in, coefficients and the history of the loss go out.

One compiled loop with our own derivative of the loss, and proximal steps for what has kinks. Rows and columns are
padded with zeros to powers of two, which change neither the loss nor the coefficients, so that data of similar size
share one compilation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.compile.jit import jit
from wonderland.control.loops import while_loop
from wonderland.estimators.least_squares import Solved, SquaresProblem
from wonderland.estimators.penalised import Penalised, Penalty, duality_gap
from wonderland.numpy.at import at
from wonderland.transform.derivatives import value_and_grad

PIECE = 100  # steps between looks at the duality gap


def solve_gradient(
    problem: SquaresProblem, tol: float, max_iter: int, alpha: np.ndarray | None = None
) -> tuple[Solved, np.ndarray, bool]:
    """The minimum of |z - x w|^2 / total + sum of alpha w^2 / total, z and x the weighted data less their means.

    Steps are 1 / L, L the largest curvature, with Nesterov's momentum, which starts anew when a step turns back
    (B. O'Donoghue and E. Candes, Adaptive restart for accelerated gradient schemes, 2015). From zero, they never leave
    the span of the rows of x, so that of several solutions the one of minimum norm is found. Returns with it the loss
    where each step began, and whether the last step was below `tol` (E.4.8: its square, relative to that of w).
    """
    x, z = problem.rows()
    n, p = x.shape
    penalty = np.zeros(z.shape[1]) if alpha is None else alpha
    X = np.zeros((power_of_two(n), power_of_two(p)))
    Z = np.zeros((len(X), z.shape[1]))
    X[:n, :p], Z[:n] = x, z
    curvature = 2 * (_largest_eigenvalue(x) + np.max(penalty)) / problem.total
    rate = 1 / curvature if curvature > 0 else 1.0
    start, history = np.zeros((X.shape[1], z.shape[1])), np.full(max_iter, np.nan)
    coef, count, small, history = _descend(X, Z, start, penalty, 0.0, False, problem.total, rate, tol, history)
    coef, count = np.asarray(coef)[:p], int(count)
    residual = z - x @ coef
    known: dict[str, Any] = {"factor": x} if problem.wide else {"gram": x.T @ x}
    rank = min(n - problem.centre, p)
    out = Solved(coef, np.sum(residual**2, axis=0), rank, *problem.means, problem.total, **known)
    return out, np.asarray(history)[:count], bool(small)


def power_of_two(size: int) -> int:
    """The least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def _largest_eigenvalue(x: np.ndarray) -> float:
    """Of x'x, a little more: power iteration comes from below."""
    v = np.random.default_rng(0).normal(size=x.shape[1])
    norm = 0.0
    for _ in range(50):
        v = x.T @ (x @ v)
        norm = float(np.linalg.norm(v))
        if norm == 0:
            break
        v /= norm
    return 1.05 * norm


class ProximalSteps:
    """|z - x w|^2 / 2 + l1 |w|_1 + l2 |w|^2 / 2 by accelerated proximal gradient steps (FISTA).

    A. Beck and M. Teboulle, A fast iterative shrinkage-thresholding algorithm for linear inverse problems, 2009.
    """

    x_mean: np.ndarray
    y_mean: np.ndarray
    x: np.ndarray
    z: np.ndarray
    total: float
    curvature: float
    cross: np.ndarray
    square: Any

    def __init__(self, problem: SquaresProblem):
        self.x_mean, self.y_mean = problem.means
        self.x, self.z = problem.rows()
        (n, p), self.total = self.x.shape, problem.total
        self.X = np.zeros((power_of_two(n), power_of_two(p)))
        self.X[:n, :p] = self.x
        self.curvature = _largest_eigenvalue(self.x)
        self.cross, self.square = self.x.T @ self.z, np.sum(self.z**2, axis=0)
        self.history: list[np.ndarray] = []

    def solve(self, output: int, penalty: Penalty, start: np.ndarray, tol: float, max_iter: int) -> Penalised:
        """The minimum for one output, from `start` (features,): gap at most tol |z|^2, or `max_iter` steps."""
        p, z, whole = len(start), self.z[:, output], float(self.square[output])
        largest = float(np.max(np.abs(self.cross[:, output])))
        Z, w = np.zeros((len(self.X), 1)), np.zeros((self.X.shape[1], 1))
        Z[: len(z), 0], w[:p, 0] = z, start
        strength = np.array([penalty.l2]), 2 * penalty.l1 / self.total, penalty.positive, self.total
        curvature = 2 * (self.curvature + penalty.l2) / self.total
        rate = 1 / curvature if curvature > 0 else 1.0
        steps, goal, gap = 0, max(tol, 1e-14) * whole, np.inf
        while steps < max_iter and gap > goal:  # the gap is told after each piece of the way
            room = np.full(min(PIECE, max_iter), np.nan)
            w, count, _, losses = _descend(self.X, Z, w, *strength, rate, 0.0, room)
            w, steps = np.asarray(w), steps + int(count)
            self.history.append(np.asarray(losses)[: int(count)])
            r = z - self.x @ w[:p, 0]
            gap = duality_gap(w[:p, 0], self.x.T @ r, float(r @ r), largest, penalty)
        return Penalised(w[:p, 0].copy(), gap, steps, gap <= goal)


@jit
def _descend(
    X: Any, Z: Any, start: Any, penalty: Any, l1: Any, positive: Any, total: Any, rate: Any, tol: Any, history: Any
) -> Any:
    """Coefficients, how many steps, whether the last was small, the loss where each step began."""

    def loss(w: Any) -> Any:
        r = Z - X @ w
        return (np.sum(r * r) + np.sum(penalty * w * w)) / total

    def proximal(w: Any) -> Any:
        lowest = np.where(positive, 0.0, np.minimum(w + rate * l1, 0.0))
        return np.maximum(w - rate * l1, lowest)

    def going(state: Any) -> Any:
        *_, count, done, _ = state
        return ~done & (count < history.shape[0])

    def step(state: Any) -> Any:
        w, ahead, momentum, count, _, history = state
        value, slope = value_and_grad(loss)(ahead)
        new = proximal(ahead - rate * slope)
        back = np.sum((ahead - new) * (new - w)) > 0
        momentum = np.where(back, 1.0, momentum)
        following = (1 + np.sqrt(1 + 4 * momentum * momentum)) / 2
        further = new + (momentum - 1) / following * (new - w)
        done = np.sum((new - w) ** 2) <= tol * np.sum(new * new)
        return new, further, following, count + 1, done, at(history)[count].set(value + l1 * np.sum(np.abs(ahead)))

    first = (start, start, np.ones(()), 0, np.bool_(False), history)
    w, _, _, count, done, history = while_loop(going, step, first)
    return w, count, done, history


_descend.has_many_forms = True
