"""Least squares with kinks: data and two penalties come in, coefficients with a proof of how good they are go out.

Minimised is |z - x w|^2 / 2 + l1 |w|_1 + l2 |w|^2 / 2, z and x the weighted data less their means. `GramCoordinates`
is for more samples than features: it sweeps over the Gram matrix of those columns that may have coefficients, and looks
at all columns in one pass over X. `ColumnCoordinates` sweeps over the columns. Where the sweeps have found which
coefficients aren't zero, and their signs, these solve a linear system (`polished`), and all digits are right.

What is sure is the duality gap: the minimum isn't lower than the value less the gap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.estimators.coordinate import column_sweeps, gram_sweeps, padded_size
from wonderland.estimators.gram import SAMPLE, is_far, moments, residual_sums, row_blocks
from wonderland.estimators.least_squares import SquaresProblem
from wonderland.estimators.positive import PositiveFactor

ALL_COLUMNS = 256  # so many features have their Gram matrix at once
FINEST = 1e-14  # gaps below this share of |z|^2 are rounding


class Penalty(NamedTuple):
    """What is added to |z - x w|^2 / 2, and whether coefficients must not be negative."""

    l1: float
    l2: float
    positive: bool


class Penalised(NamedTuple):
    """A solution (features,), its duality gap, the number of sweeps, and whether the gap is as small as asked for."""

    coef: np.ndarray
    gap: float
    n_iter: int
    converged: bool


def duality_gap(w: np.ndarray, g: np.ndarray, square: float, start: float, penalty: Penalty) -> float:
    """The value at w less a bound of the minimum; g = x'r and square = |r|^2 of the residuals r, start = max |x'z|.

    The bound is the dual value at r, made feasible: by a factor that brings |x'r - l2 w| to l1, or, with l2, by the
    conjugate of the penalty at x'r itself; the better of them. l1 = 0 counts as 1e-9 of the least l1 without
    coefficients.
    """
    l1, l2, positive = max(penalty.l1, 1e-9 * start), penalty.l2, penalty.positive
    value = square / 2 + penalty.l1 * float(np.sum(np.abs(w))) + l2 * float(w @ w) / 2
    fit = square + float(w @ g)  # r'z
    u = g - l2 * w
    largest = float(np.max(u if positive else np.abs(u)))
    factor = min(1.0, l1 / largest) if largest > 0 else 1.0
    gaps = [value - (factor * fit - factor**2 * (square + l2 * float(w @ w)) / 2)]
    if l2 > 0:
        above = np.maximum((g if positive else np.abs(g)) - penalty.l1, 0)
        gaps.append(value - (fit - square / 2 - float(above @ above) / (2 * l2)))
    return max(min(gaps), 0.0)


def polished(
    gram: np.ndarray, c: np.ndarray, w: np.ndarray, penalty: Penalty, condition: float = 1e12
) -> np.ndarray | None:
    """The minimum among coefficients with the signs of w: (x_A'x_A + l2) w_A = c_A - l1 sign(w_A), c = x'z.

    None if the solution has other signs, or the matrix a larger condition number.
    """
    active = np.flatnonzero(w)
    out = np.zeros_like(w)
    if len(active) == 0:
        return out
    sign = np.sign(w[active])
    matrix = gram[np.ix_(active, active)]
    matrix[np.diag_indices_from(matrix)] += penalty.l2
    try:
        factor = PositiveFactor(matrix)
    except np.linalg.LinAlgError:
        return None
    if factor.condition > condition:
        return None
    out[active] = factor.solve((c[active] - penalty.l1 * sign)[:, None])[:, 0]
    return out if np.all(out[active] * sign > 0) else None


def longer(x: np.ndarray, size: int) -> np.ndarray:
    """x with zeros behind."""
    out = np.zeros(size, x.dtype)
    out[: len(x)] = x
    return out


class GramCoordinates:
    """Coordinate descent on the Gram matrix of a growing set of columns, which are taken in as they are needed.

    With many columns the matrix is of single precision, which takes half of the time. Each round begins with x'r of the
    data, so that its errors vanish as rounds follow; where they don't (columns that hardly differ), it is made anew.
    """

    x_mean: np.ndarray
    y_mean: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    far: bool
    working: np.ndarray
    gram: np.ndarray

    def __init__(self, problem: SquaresProblem):
        self.problem = problem
        p = problem.X.shape[1]
        few = p <= ALL_COLUMNS
        found = moments(problem.X, problem.Y, problem.weight, problem.centre, gram=few)
        self.x_mean, self.y_mean, self.cross, self.square = found.x_mean, found.y_mean, found.cross, found.square
        if few:
            spread = np.diagonal(found.gram) / found.total
        else:
            rows = problem.X[:: max(1, len(problem.X) // SAMPLE)] - self.x_mean
            spread = np.einsum("ij,ij->j", rows, rows) / len(rows)
        self.far = is_far(self.x_mean, spread)
        self.dtype = np.float64 if few else np.float32
        self.working, self.gram = np.arange(p if few else 0), found.gram
        self.parts: list[np.ndarray] = []  # columns (n, ...) that are in the working set, as they came

    def solve(self, output: int, penalty: Penalty, start: np.ndarray, tol: float, max_iter: int) -> Penalised:
        """The minimum for one output, from `start` (features,): gap at most tol |z|^2, or `max_iter` sweeps."""
        whole, largest = float(self.square[output]), float(np.max(np.abs(self.cross[:, output])))
        w, g, gap = start, self.cross[:, output], np.inf
        if np.any(w):
            g, _ = self._residuals(output, w)
        goal, sweeps, most, finest = max(tol, FINEST) * whole, 0, 50, 1e-4 * max(tol, FINEST) * whole / len(w)
        while sweeps < max_iter:
            missing = self._extend(w, g, penalty)
            if gap <= goal and not missing:
                break
            before, inside, last = w, self.working, gap
            c = g[inside] + self.gram @ w[inside]
            found, count = self._sweep(c, w[inside], penalty, min(most, max_iter - sweeps), finest)
            sweeps += count
            better = polished(self.gram, c, found, penalty, 1e12 if self.dtype == np.float64 else 1e5)
            w = np.zeros_like(start)
            w[inside] = found if better is None else better
            g, square = self._residuals(output, w)
            gap = duality_gap(w, g, square, largest, penalty)
            if gap <= FINEST * whole or missing:
                continue
            if self.dtype == np.float32 and gap > max(goal, 0.5 * last):
                self._start_anew()
            elif np.array_equal(w, before):
                break
            most, finest = 2 * most, max(1e-3 * finest, 1e-28 * whole)
        return Penalised(w, gap, max(sweeps, 1), gap <= goal)

    def _residuals(self, output: int, w: np.ndarray) -> tuple[np.ndarray, float]:
        """x'r (features,) and |r|^2 of the residuals, by a pass over the data."""
        if not np.any(w):
            return self.cross[:, output], float(self.square[output])
        problem = self.problem
        of_y, y_mean = problem.Y[:, [output]], self.y_mean[[output]]
        gradient, square = residual_sums(
            problem.X, of_y, problem.weight, w[:, None], self.x_mean, y_mean, self.far
        )  # fmt: skip
        return gradient[:, 0], float(square[0])

    def _extend(self, w: np.ndarray, g: np.ndarray, penalty: Penalty) -> bool:
        """Take columns in whose zero isn't optimal, the worst first, at most as many as there are; whether any were."""
        if len(self.working) == len(w):
            return False
        u = g if penalty.positive else np.abs(g)
        wanted = (w != 0) | (u > penalty.l1 * (1 + 1e-9))
        wanted[self.working] = False
        new = np.flatnonzero(wanted)
        if len(new) == 0:
            return False
        most = max(len(self.working), min(ALL_COLUMNS, max(64, len(w) // 5)), np.count_nonzero(w[new]))
        new = np.sort(new[np.argsort(-np.where(w[new] != 0, np.inf, u[new]), kind="stable")[:most]])
        self._take(new)
        return True

    def _take(self, new: np.ndarray) -> None:
        """Columns into the working set, and their products with all of it into the Gram matrix."""
        problem, known = self.problem, len(self.working)
        x = np.empty((len(problem.X), len(new)), self.dtype)
        for rows in row_blocks(len(x), problem.X.shape[1]):
            part = problem.X[rows].take(new, axis=1) - self.x_mean[new]
            x[rows] = part if problem.weight is None else part * np.sqrt(problem.weight[rows, None], dtype=np.float64)
        gram = np.empty((known + len(new), known + len(new)))
        gram[:known, :known], gram[known:, known:] = self.gram, x.T @ x
        start = 0
        for part in self.parts:
            place = slice(start, start + part.shape[1])
            gram[place, known:] = part.T @ x
            gram[known:, place] = gram[place, known:].T
            start = place.stop
        self.working, self.gram = np.concatenate([self.working, new]), gram
        self.parts.append(x)
        if self.dtype == np.float32 and not np.all(np.isfinite(np.diagonal(gram))):
            self._start_anew()

    def _start_anew(self) -> None:
        columns = self.working
        self.dtype, self.working, self.gram, self.parts = np.float64, columns[:0], np.zeros((0, 0)), []
        self._take(columns)

    def _sweep(
        self, c: np.ndarray, w: np.ndarray, penalty: Penalty, sweeps: int, tol: float
    ) -> tuple[np.ndarray, int]:
        count = len(w)
        size = padded_size(count)
        gram = np.zeros((size, size))
        gram[:count, :count] = self.gram
        w, done = gram_sweeps(gram, longer(c, size), longer(w, size), *penalty, count, sweeps, tol)
        return np.asarray(w)[:count], int(done)


class ColumnCoordinates:
    """Coordinate descent on a copy of the data, by columns: for about as many features as samples, or more."""

    x_mean: np.ndarray
    y_mean: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    columns: Any
    z: Any
    squares: Any

    def __init__(self, problem: SquaresProblem):
        n, p = problem.X.shape
        found = moments(problem.X, problem.Y, problem.weight, problem.centre, gram=False)
        self.x_mean, self.y_mean, self.cross, self.square = found.x_mean, found.y_mean, found.cross, found.square
        self.columns = np.zeros((padded_size(p), padded_size(n)))
        self.z = np.zeros((problem.Y.shape[1], self.columns.shape[1]))
        np.subtract(problem.X.T, self.x_mean[:, None], out=self.columns[:p, :n])
        np.subtract(problem.Y.T, self.y_mean[:, None], out=self.z[:, :n])
        if problem.weight is not None:
            root = np.sqrt(problem.weight, dtype=np.float64)
            self.columns[:, :n] *= root
            self.z[:, :n] *= root
        self.squares = np.einsum("ij,ij->i", self.columns, self.columns)

    def solve(self, output: int, penalty: Penalty, start: np.ndarray, tol: float, max_iter: int) -> Penalised:
        """The minimum for one output, from `start` (features,): gap at most tol |z|^2, or `max_iter` sweeps.

        Each round looks at all of x'r, then sweeps over coefficients that aren't zero or shouldn't be.
        """
        largest, z, whole = float(np.max(np.abs(self.cross[:, output]))), self.z[output], float(self.square[output])
        w = longer(start, len(self.columns))
        r = z - w @ self.columns if np.any(w) else z
        goal, sweeps, updates, most = max(tol, FINEST) * whole, 0, 0, 5
        while True:
            g = self.columns @ r
            gap = duality_gap(w, g, float(r @ r), largest, penalty)
            active = np.flatnonzero(w)
            if FINEST * whole < gap <= 1e-3 * whole and 0 < len(active) ** 2 <= 4 * updates:
                updates = 0  # a linear system, which takes no longer than the sweeps have taken
                part = self.columns[active]
                better = polished(part @ part.T, part @ z, w[active], penalty)
                if better is not None:
                    left = z - better @ part
                    slope, there = self.columns @ left, np.zeros_like(w)
                    there[active] = better
                    better_gap = duality_gap(there, slope, float(left @ left), largest, penalty)
                    if better_gap < gap:
                        w, r, g, gap = there, left, slope, better_gap
            if gap <= goal or sweeps >= max_iter:
                break
            u = g if penalty.positive else np.abs(g)
            new = np.flatnonzero((u > penalty.l1) & (w == 0))
            new = new[np.argsort(-u[new], kind="stable")[: max(64, len(active))]]
            order = np.sort(np.concatenate([active, new]))
            count, limit = len(order), min(most, max_iter - sweeps)
            order = longer(order, len(w))
            finest = 1e-4 * gap / max(count, 1)
            w, r, done = column_sweeps(self.columns, r, w, self.squares, order, *penalty, count, limit, finest)
            w, r, sweeps, updates = np.asarray(w), np.asarray(r), sweeps + int(done), updates + int(done) * count
            most = min(most + 2, 20)
        return Penalised(w[: len(start)].copy(), gap, max(sweeps, 1), gap <= goal)


def coordinates(problem: SquaresProblem) -> GramCoordinates | ColumnCoordinates:
    """The method that is quicker for data of this shape."""
    n, p = problem.X.shape
    return GramCoordinates(problem) if p <= ALL_COLUMNS or n > 2 * p else ColumnCoordinates(problem)
