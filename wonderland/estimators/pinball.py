"""Linear programs of quantile regression: data and slopes come in, coefficients with a duality gap go out.

Minimised is the sum of up max(r, 0) + down max(-r, 0) over rows, of residuals r = y - A v, and of strength |v_j|: rows
with y = 0 and slopes alike. The dual is max y'd with A'd = 0 and -down <= d <= up: a box, of which an interior-point
method takes the inside. Each of its 10 to 30 steps costs one weighted Gram matrix of A.

S. Portnoy and R. Koenker, The Gaussian hare and the Laplacian tortoise, 1997; S. Mehrotra, On the implementation of a
primal-dual interior point method, 1992.
"""

from __future__ import annotations

import numpy as np

from wonderland.estimators.gram import moments
from wonderland.estimators.positive import solve_definite

SHORT = 0.99995  # of the way to the boundary


class PinballProgram:
    """A (n, q), y (n,), slopes `up` and `down` (n,), and `strength` (q,), zeros for what has no penalty."""

    def __init__(self, A: np.ndarray, y: np.ndarray, up: np.ndarray, down: np.ndarray, strength: np.ndarray):
        self.A, self.y, self.n = A, y, len(y)
        self.held = np.flatnonzero(strength > 0)  # coefficients with a penalty
        self.goal = np.concatenate([y, np.zeros(len(self.held))])
        self.up, self.down = (np.concatenate([slope, strength[self.held]]) for slope in (up, down))

    def apply(self, v: np.ndarray) -> np.ndarray:
        """All rows times v."""
        return np.concatenate([self.A @ v, v[self.held]])

    def transposed(self, d: np.ndarray) -> np.ndarray:
        """All rows' transpose times d."""
        out = d[: self.n] @ self.A
        out[self.held] += d[self.n :]
        return out

    def value(self, v: np.ndarray) -> float:
        """The objective."""
        r = self.goal - self.apply(v)
        return float(np.sum(np.where(r > 0, self.up * r, -self.down * r)))

    def solve(self, v: np.ndarray, tol: float, max_iter: int) -> tuple[np.ndarray, float, int]:
        """v, its gap and the number of steps; from any v, until the gap is `tol` of the value."""
        r = self.goal - self.apply(v)
        rounding = 1e-14 * float((self.up + self.down) @ np.abs(self.goal))
        if self.value(v) <= rounding:
            return v, 0.0, 0
        size = 0.1 * float(np.mean(np.abs(r)))
        # d = x - down: at zero it is inside of the box, and A'd = 0. r = above - below, multipliers of its bounds.
        x, above, below = self.down.copy(), np.maximum(r, 0) + size, np.maximum(-r, 0) + size
        best, gap, count, since = v, np.inf, 0, 0
        # Where nothing gets better for some steps, digits have ended.
        while count < max_iter and since < 8 and gap > max(tol * self.value(best), rounding):
            count, since = count + 1, since + 1
            x, v, below, above = self._step(x, v, below, above)
            new = self.value(v) - float(self.goal @ (x - self.down))
            if new < gap:
                best, gap, since = v, new, 0
            if not np.all((x > 0) & (x < self.up + self.down)):  # rounded onto a bound, from where no step leads
                break
        return best, gap, count

    def _step(
        self, x: np.ndarray, v: np.ndarray, below: np.ndarray, above: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Newton's step for x below = s above = target, s = up + down - x: once with target 0, to see how far that
        comes, and then with the target that this allows, and with the products of the first step's changes.
        """
        s = self.up + self.down - x
        weight = 1 / (below / x + above / s)
        matrix = self._matrix(weight)
        unequal, apart = self.transposed(self.down - x), self.goal - self.apply(v) - above + below

        def direction(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
            """Changes that bring x below up by `low`, and s above by `high`."""
            push = low / x - high / s + apart
            dv = solve_definite(matrix, self.transposed(weight * push) - unequal)
            dx = weight * (push - self.apply(dv))
            return dv, dx, (low - below * dx) / x, (high + above * dx) / s

        _, dx, db, da = direction(-x * below, -s * above)
        far, high = _room(x, dx, s, -dx), _room(below, db, above, da)
        mean = (x @ below + s @ above) / (2 * len(x))
        there = ((x + far * dx) @ (below + high * db) + (s - far * dx) @ (above + high * da)) / (2 * len(x))
        target = mean * (there / mean) ** 3
        dv, dx, db, da = direction(target - dx * db - x * below, target + dx * da - s * above)
        far, high = _room(x, dx, s, -dx), _room(below, db, above, da)
        return x + far * dx, v + high * dv, below + high * db, above + high * da

    def vertex(self, v: np.ndarray) -> np.ndarray:
        """v on the vertex that it is near to: residuals and coefficients that are almost zero, are, unless it is worse.

        At a solution as many of them are zero as there are coefficients, or more, if it is the only one. Columns of A
        are of size 1, so that coefficients compare with y.
        """
        r = self.y - self.A @ v
        small = 1e-8 * float(np.mean(np.abs(self.y)))
        through = np.flatnonzero(np.abs(r) <= small)
        free = np.ones(len(v), bool)
        free[self.held] = np.abs(v[self.held]) > small
        if len(through) > 10 * len(v):
            return v
        out = np.where(free, v, 0)
        rows = self.A[np.ix_(through, np.flatnonzero(free))]
        out[free] += np.linalg.lstsq(rows, self.y[through] - rows @ out[free], rcond=None)[0]
        return out if self.value(out) <= self.value(v) * (1 + 1e-9) else v

    def _matrix(self, weight: np.ndarray) -> np.ndarray:
        matrix = moments(self.A, np.zeros((self.n, 1)), weight[: self.n], centre=False).gram
        matrix[self.held, self.held] += weight[self.n :]
        return matrix


def _room(a: np.ndarray, da: np.ndarray, b: np.ndarray, db: np.ndarray) -> float:
    """How far a + t da and b + t db stay positive, at most 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.concatenate([np.where(da < 0, -a / da, np.inf), np.where(db < 0, -b / db, np.inf)])
    return min(1.0, SHORT * float(np.min(shares)))
