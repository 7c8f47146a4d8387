"""The Hessian of a `SmoothProblem` as a matrix, and what solves with it: Newton's direction, and its inverse.

X' diag(h) X + l2 I, in blocks of rows scaled by sqrt(h), so that BLAS computes one triangle only. Many features, few
samples: a basis of the samples is made once, and a step solves a system of n numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem

BLOCK = 2048  # rows that are scaled at a time
EPSILON = float(np.finfo(np.float64).eps)


def hessian(problem: SmoothProblem, eta: np.ndarray) -> np.ndarray:
    """The Hessian at predictors eta, (parameters, parameters), of parameters in the order of w.ravel()."""
    H = second_moments(problem, problem.curvature(eta)) if problem.loss.outputs == 1 else _blocks(problem, eta)
    features = problem.p * problem.loss.outputs
    H[np.arange(features), np.arange(features)] += problem.l2
    return H


def second_moments(problem: SmoothProblem, h: np.ndarray) -> np.ndarray:
    """Sum_i h_i x_i x_i', with the intercept's 1 as the last of x."""
    p = problem.p
    inner = np.zeros((p, p))
    scaled = np.empty((min(BLOCK, problem.n), p))
    convex = h.min() >= 0
    factor = np.sqrt(h)[:, None] if convex else h[:, None]
    for start in range(0, problem.n, BLOCK):
        rows = problem.X[start : start + BLOCK]
        part = scaled[: len(rows)]
        np.multiply(rows, factor[start : start + BLOCK], out=part)
        inner += (part if convex else rows).T @ part
    if not problem.intercept:
        return inner
    H = np.empty((p + 1, p + 1))
    H[:p, :p] = inner
    H[p, :p] = H[:p, p] = problem.transposed(h)
    H[p, p] = h.sum()
    return H


def _blocks(problem: SmoothProblem, eta: np.ndarray) -> np.ndarray:
    """Of several outputs: a matrix of moments for each pair of them.

    One number added to all outputs changes no probability, so along it the Hessian has only its penalty. Where that is
    zero the direction gets a curvature of its own: its slope is zero, and so stays its step.
    """
    q, K = problem.shape
    H = np.zeros((q, K, q, K))
    for k in range(K):
        unit = np.zeros_like(eta)
        unit[:, k] = 1.0
        curvature = problem.tangent(unit, eta)[: problem.n]
        for j in range(k + 1):
            H[:, k, :, j] = second_moments(problem, curvature[:, j])
            H[:, j, :, k] = H[:, k, :, j].T
    for row in range(q)[problem.free]:
        H[row, :, row, :] += np.trace(H[row, :, row, :]) / K
    return H.reshape(q * K, q * K)


class SymmetricFactors:
    """A symmetric matrix, scaled to a diagonal of ones so that units don't matter, and how to solve with it.

    Where it isn't positive definite, its eigenvalues count by their size, and those that are rounding don't count: the
    solution is the shortest one, and with it a step goes down.
    """

    scale: np.ndarray
    scaled: np.ndarray

    def __init__(self, H: np.ndarray):
        diagonal = np.abs(H.diagonal())
        self.scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        self.scaled = H * self.scale * self.scale[:, None]
        least = 10 * len(H) * EPSILON
        self.pseudo: np.ndarray | None = None
        try:
            definite = bool(np.linalg.cholesky(self.scaled).diagonal().min(initial=1.0) ** 2 > least)
        except np.linalg.LinAlgError:
            definite = False
        if not definite:
            values, vectors = np.linalg.eigh(self.scaled)
            size = np.abs(values)
            kept = size > least * size.max(initial=0.0)
            self.pseudo = (vectors[:, kept] / size[kept]) @ vectors[:, kept].T

    def solve(self, right: np.ndarray) -> np.ndarray:
        right = self.scale * right
        return self.scale * (np.linalg.solve(self.scaled, right) if self.pseudo is None else self.pseudo @ right)

    def inverse(self) -> np.ndarray:
        inverse = np.linalg.inv(self.scaled) if self.pseudo is None else self.pseudo
        return inverse * self.scale * self.scale[:, None]


Solve = Callable[[np.ndarray], np.ndarray]


def newton_steps(problem: SmoothProblem) -> Callable[[LossPoint], Solve]:
    """The function of a point that gives what solves with the Hessian there: of a right side, like w."""
    if is_dual(problem):
        return _dual_steps(problem)

    def at(point: LossPoint) -> Solve:
        factors = SymmetricFactors(hessian(problem, point.eta))
        return lambda right: factors.solve(right.ravel()).reshape(right.shape)

    return at


def is_dual(problem: SmoothProblem) -> bool:
    """Whether Newton's systems have the size of the samples."""
    return problem.p > problem.n and problem.l2 > 0 and problem.loss.outputs == 1


def _dual_steps(problem: SmoothProblem) -> Callable[[LossPoint], Solve]:
    """Newton's systems in an orthonormal basis of the samples; in all other directions the Hessian is l2 I.

    Not of the matrix X X' by Woodbury's formula: its difference has no digits left where X'X is 1e16 times l2. Samples
    are less their mean, which is another intercept, b + mean' coef: so means far from zero cost no digits either.
    """
    X, n, p, l2 = problem.read(slice(None)), problem.n, problem.p, problem.l2
    mean = X.mean(axis=0) if problem.intercept else np.zeros(p)
    basis, triangle = np.linalg.qr((X - mean).T)  # (p, n), (n, n)
    inside = SmoothProblem(
        triangle.T, problem.y[:n], problem.s[:n], problem.loss, l2=l2, intercept=problem.intercept,
        offset=None if problem.offset is None else problem.offset[:n], numbers=problem.numbers,
    )  # fmt: skip

    def at(point: LossPoint) -> Solve:
        factors = SymmetricFactors(hessian(inside, inside.rows.pad(point.eta[:n])))

        def solve(right: np.ndarray) -> np.ndarray:
            slope = right[:p] - mean * np.sum(right[p:])
            along = basis.T @ slope
            outside = slope - basis @ along
            outside -= basis @ (basis.T @ outside)  # it is divided by l2, and its rounding, too
            solved = factors.solve(np.append(along, right[p:]))
            coef = basis @ solved[:n] + outside / l2
            return np.append(coef, solved[n:] - mean @ coef)

        return solve

    return at


def inverse_hessian(problem: SmoothProblem, eta: np.ndarray) -> np.ndarray:
    """The inverse of the objective's Hessian where predictors are eta, output by output, features first."""
    inverse = SymmetricFactors(hessian(problem, eta)).inverse()
    if problem.loss.outputs == 1:
        return inverse
    q, K = problem.shape
    inverse = inverse.reshape(q, K, q, K)
    for row in range(q)[problem.free]:  # along the number that all outputs may share: none
        inverse[row] -= np.mean(inverse[row], axis=0)
        inverse[:, :, row] -= np.mean(inverse[:, :, row], axis=2, keepdims=True)
    return inverse.transpose(1, 0, 3, 2).reshape(q * K, q * K)
