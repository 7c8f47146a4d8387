"""Least squares, solved: X, y and weights come in, coefficients, a factor of X'X and the squared residuals go out.

`solve_fast` is for all data: the Gram matrix by one pass (`gram.py`), its Cholesky factor, and steps of refinement by
residuals of the data themselves, which win back the digits that squaring lost. It says None where the condition number
is too large for that, and `solve_qr` follows, which works on X. `solve_svd` is for X of deficient rank, where of all
solutions it takes the one of minimum norm. With fewer samples than features all of them work on the samples' side.

A. Bjorck, Stability analysis of the method of seminormal equations for linear least squares problems, 1987.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wonderland.estimators.gram import is_far, mean_of, moments, residual_sums
from wonderland.estimators.positive import PositiveFactor

LARGEST_CONDITION = 1e11  # of a scaled Gram matrix: each step of refinement then wins four digits or more
EPS = float(np.finfo(np.float64).eps)


@dataclass
class SquaresProblem:
    """Data of a fit: X (n, p), Y (n, outputs), weights (n,) above zero or None; `centre` if there is an intercept."""

    X: np.ndarray
    Y: np.ndarray
    weight: np.ndarray | None
    centre: bool

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, centre: bool) -> SquaresProblem:
        """Of y (n,) or (n, outputs), without samples of weight zero."""
        Y = y.reshape(len(y), -1)
        if weight is not None and not np.all(weight > 0):
            there = weight > 0
            X, Y, weight = X[there], Y[there], weight[there]
        return cls(X, Y, weight, centre)

    @property
    def wide(self) -> bool:
        """Whether no X of this shape has independent columns, less their means."""
        n, p = self.X.shape
        return n - self.centre < p

    @cached_property
    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of X and Y, to the last digit of columns that are constant; zeros without an intercept."""
        return mean_of(self.X, self.weight, self.centre), mean_of(self.Y, self.weight, self.centre)

    @cached_property
    def total(self) -> float:
        return float(len(self.X) if self.weight is None else np.sum(self.weight, dtype=np.float64))

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """sqrt(W) (X - x_mean) and sqrt(W) (Y - y_mean), copies."""
        root = 1.0 if self.weight is None else np.sqrt(self.weight[:, None], dtype=np.float64)
        return (self.X - self.means[0]) * root, (self.Y - self.means[1]) * root

    def cut(self, rcond: float | None) -> float:
        """Singular values up to this share of the largest count as zero."""
        given = 10 * float(np.finfo(self.X.dtype).eps)  # as exact as the numbers of X are
        return max(max(self.X.shape) * EPS, given) if rcond is None else rcond


@dataclass
class Solved:
    """Coefficients (p, outputs), and what is known of X'WX about the mean: F with F'F = X'WX, or itself."""

    coef: np.ndarray
    residual: np.ndarray  # (outputs,), r'Wr
    rank: int
    x_mean: np.ndarray
    y_mean: np.ndarray
    total: float  # the sum of weights
    factor: np.ndarray | None = None  # (k, p)
    gram: np.ndarray | None = None  # (p, p)

    @cached_property
    def root(self) -> np.ndarray:
        """F (k, p) with F'F = X'WX."""
        if self.factor is not None:
            return self.factor
        assert self.gram is not None
        lengths = np.sqrt(np.diagonal(self.gram))
        lengths = np.where(lengths > 0, lengths, 1.0)
        values, vectors = np.linalg.eigh(self.gram / np.outer(lengths, lengths))  # whatever the units of the columns
        return np.sqrt(np.maximum(values, 0))[::-1, None] * vectors.T[::-1] * lengths

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Singular values (k,) of X about the mean, and their right vectors (k, p)."""
        _, s, Vt = np.linalg.svd(self.root, full_matrices=False)
        return s, Vt

    @cached_property
    def inverse_root(self) -> np.ndarray:
        """U (p, rank) with U U' = (X'WX)^-1, or the pseudo-inverse if the rank is less than p."""
        p = self.root.shape[1]
        lengths = np.linalg.norm(self.root, axis=0) if self.rank == p else np.ones(p)
        _, s, Vt = np.linalg.svd(self.root / lengths, full_matrices=False)  # of a full rank, whatever the units
        return (Vt[: self.rank] / s[: self.rank, None] / lengths).T


def solve_fast(problem: SquaresProblem, alpha: np.ndarray | None = None) -> Solved | None:
    """The solution of (X'WX + alpha I) w = X'Wy, alpha (outputs,) or none; None if it wouldn't be as exact as by QR."""
    return _dual(problem, alpha) if problem.wide else _primal(problem, alpha)


def _primal(problem: SquaresProblem, alpha: np.ndarray | None) -> Solved | None:
    X, Y, weight = problem.X, problem.Y, problem.weight
    found = moments(X, Y, weight, problem.centre)
    penalty = np.zeros(Y.shape[1]) if alpha is None else alpha
    factors = _factors(found.gram, penalty)
    if factors is None:
        return None

    far = is_far(found.x_mean, np.diagonal(found.gram) / found.total)

    def rest(coef: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gradient, square = residual_sums(X, Y, weight, coef, found.x_mean, found.y_mean, far)
        return gradient - penalty * coef, square

    scale = factors[penalty[0]].scale[:, None]
    refined = _refined(factors, penalty, found.cross, rest, lambda step: step * scale)
    if refined is None:
        return None
    coef, square, step = refined
    square = square - np.einsum("ij,ij->j", step, found.gram @ step + 2 * penalty * coef)  # it was before the last step
    known = {"factor": factors[0.0].root} if alpha is None else {"gram": found.gram}
    return Solved(coef, np.maximum(square, 0), X.shape[1], found.x_mean, found.y_mean, found.total, **known)


def _dual(problem: SquaresProblem, alpha: np.ndarray | None) -> Solved | None:
    """w = X'a with (XX' + alpha I) a = y: of all w that fit, the one of minimum norm."""
    x, z = problem.rows()
    n = len(x)
    penalty = np.zeros(z.shape[1]) if alpha is None else alpha
    kernel = x @ x.T
    if problem.centre:  # sqrt(W) 1 is orthogonal to x and to z, so that any weight of it will do
        null = np.ones(n) if problem.weight is None else np.sqrt(problem.weight, dtype=np.float64)
        kernel += np.outer(null, null) * (np.trace(kernel) / n / problem.total)
    factors = _factors(kernel, penalty)
    if factors is None:
        return None

    def rest(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = z - x @ (x.T @ a) - penalty * a
        return left, np.sum(left * left, axis=0)

    refined = _refined(factors, penalty, z, rest, lambda step: x.T @ step)
    if refined is None:
        return None
    coef = x.T @ refined[0]
    residual = z - x @ coef
    square = np.sum(residual * residual, axis=0)
    return Solved(coef, square, n - problem.centre, *problem.means, problem.total, factor=x)


def _factors(A: np.ndarray, penalty: np.ndarray) -> dict[float, PositiveFactor] | None:
    """Factors of A + a I for each a of the penalties; None if one is worse conditioned than refinement can mend."""
    out = {}
    for a in np.unique(penalty):
        matrix = A.copy()
        matrix[np.diag_indices_from(A)] += a
        try:
            out[a] = PositiveFactor(matrix)
        except np.linalg.LinAlgError:
            return None
        if not out[a].condition <= LARGEST_CONDITION:
            return None
    return out


def _refined(
    factors: dict[float, PositiveFactor],
    penalty: np.ndarray,
    right: np.ndarray,
    rest: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    measured: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Solve, then correct by what is left of the equations, until corrections (as `measured`) are rounding errors.

    Returns the solution (size, outputs), the squared residuals that `rest` told last, and the correction after them.
    """

    def solve(right: np.ndarray) -> np.ndarray:
        if len(factors) == 1:
            return factors[penalty[0]].solve(right)
        return np.concatenate([factors[a].solve(right[:, [k]]) for k, a in enumerate(penalty)], axis=1)

    condition = max(factor.condition for factor in factors.values())
    solution = solve(right)
    before = np.inf
    for _ in range(4):
        left, square = rest(solution)
        step = solve(left)
        solution = solution + step
        size, whole = np.linalg.norm(measured(step)), np.linalg.norm(measured(solution))
        if size <= 1e-8 * whole + condition * EPS * np.sqrt(np.sum(square)):  # the next would be its square
            return solution, square, step
        if not size < 0.1 * before:
            return None
        before = size
    return None


def solve_normal(problem: SquaresProblem) -> Solved:
    """The normal equations as they are written, X'WX w = X'Wy: quick, and twice as many digits lost as by QR."""
    found = moments(problem.X, problem.Y, problem.weight, problem.centre)
    try:
        if problem.wide:
            raise np.linalg.LinAlgError("singular, and rounding may hide it")
        factor = PositiveFactor(found.gram)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"solver='cholesky': X'X is singular to working precision, of X with shape {problem.X.shape}; "
            "solver='auto' or 'svd' give the solution of minimum norm"
        ) from None
    coef = factor.solve(found.cross)
    far = is_far(found.x_mean, np.diagonal(found.gram) / found.total)
    _, square = residual_sums(problem.X, problem.Y, problem.weight, coef, found.x_mean, found.y_mean, far)
    rank = problem.X.shape[1]
    return Solved(coef, square, rank, found.x_mean, found.y_mean, found.total, factor=factor.root)


def solve_qr(problem: SquaresProblem, rcond: float | None = None) -> Solved:
    """R w = Q'y with X = QR; of R without full rank, by its singular values."""
    cut = problem.cut(rcond)
    if problem.wide:
        x, z = problem.rows()
        last = len(x) - problem.centre  # about the mean, the last row follows from the others
        Q, R = np.linalg.qr(x[:last].T)
        if independent(R, cut):
            coef = Q @ np.linalg.solve(R.T, z[:last])
            residual = z - x @ coef
            square = np.sum(residual * residual, axis=0)
            return Solved(coef, square, last, *problem.means, problem.total, factor=x)
        return _by_singular_values(problem, x, z, np.zeros(z.shape[1]), cut)
    R, z, square = triangle(problem)
    if not independent(R, cut):
        return _by_singular_values(problem, R, z, square, cut)
    coef = np.linalg.solve(R, z)
    return Solved(coef, square, R.shape[1], *problem.means, problem.total, factor=R)


def solve_svd(problem: SquaresProblem, rcond: float | None = None) -> Solved:
    """w = V S^+ U'y with X = U S V': the least norm of all solutions, if there are several."""
    if problem.wide:
        x, z = problem.rows()
        return _by_singular_values(problem, x, z, np.zeros(z.shape[1]), problem.cut(rcond))
    return _by_singular_values(problem, *triangle(problem), problem.cut(rcond))


def _by_singular_values(
    problem: SquaresProblem, R: np.ndarray, z: np.ndarray, square: np.ndarray, cut: float
) -> Solved:
    """The minimum of |z - R w|^2 + square, of least norm."""
    U, s, Vt = np.linalg.svd(R, full_matrices=False)
    rank = int(np.sum(s > cut * s[0]))
    coef = Vt[:rank].T @ ((U[:, :rank].T @ z) / s[:rank, None])
    residual = z - R @ coef
    square = square + np.sum(residual * residual, axis=0)
    return Solved(coef, square, rank, *problem.means, problem.total, factor=R)


def triangle(problem: SquaresProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R (p, p), Q'y (p, outputs) and the squared rest of y, by QR of block after block of [X, y] less the means."""
    p = problem.X.shape[1]
    x_mean, y_mean = problem.means
    R = np.zeros((0, p + problem.Y.shape[1]))
    size = max(2**18 // p, 2 * p)
    for start in range(0, len(problem.X), size):
        part = slice(start, start + size)
        rows = np.concatenate([problem.X[part] - x_mean, problem.Y[part] - y_mean], axis=1)
        if problem.weight is not None:
            rows *= np.sqrt(problem.weight[part, None], dtype=np.float64)
        R = np.asarray(np.linalg.qr(np.concatenate([R, rows]), mode="r"))
    return R[:p, :p], R[:p, p:], np.sum(R[p:, p:] ** 2, axis=0)


def independent(R: np.ndarray, cut: float) -> bool:
    """Whether the columns of R are, in units of their lengths."""
    lengths = np.linalg.norm(R, axis=0)
    if len(R) == 0 or not np.all(lengths > 0):
        return False
    s = np.linalg.svd(R / lengths, compute_uv=False)
    return bool(s[-1] > cut * s[0])
