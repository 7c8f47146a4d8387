"""L-BFGS with a preconditioner: each step reads X once, and an approximate Hessian makes the steps few.

J. Nocedal, Updating quasi-Newton matrices with limited storage (1980); with the inverse of a Hessian, or of its
diagonal, in place of the identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from wonderland.estimators.smooth.hessian import SymmetricFactors
from wonderland.estimators.smooth.newton import Result, is_flat
from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem, sample
from wonderland.estimators.smooth.search import ROUNDING, search

Precondition = Callable[[np.ndarray], np.ndarray]
MEMORY = 10  # pairs of steps and differences of gradients
ROWS = 1000  # samples whose curvatures give a diagonal


def lbfgs(problem: SmoothProblem, point: LossPoint, tol: float, max_iter: int, precondition: Precondition) -> Result:
    """L-BFGS; `precondition(gradient)` is an approximate Newton step with the opposite sign."""
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)
    values = [point.value]
    for _ in range(max_iter):
        direction = -_quasi_newton(point.gradient, pairs, precondition)
        if is_flat(problem, point, tol):
            return Result(point.w + direction, point, values, True)
        promised = -float(np.vdot(point.gradient, direction))
        if promised <= ROUNDING * abs(point.value):
            return Result(point.w, point, values, True)
        after = search(problem, point, direction, flatter=0.9)
        if after is None:
            return Result(point.w, point, values, False)
        step, change = after.w - point.w, after.gradient - point.gradient
        curvature = float(np.vdot(step, change))
        if curvature > 1e-12 * float(np.vdot(change, change)):
            pairs.append((step, change, curvature))
        point = after
        values.append(point.value)
    return Result(point.w, point, values, is_flat(problem, point, tol))


def _quasi_newton(gradient: np.ndarray, pairs: deque, precondition: Precondition) -> np.ndarray:
    """The inverse of the Hessian that the pairs suggest, times the gradient: two loops."""
    q = gradient.copy()
    kept = []
    for step, change, curvature in reversed(pairs):
        a = np.vdot(step, q) / curvature
        q -= a * change
        kept.append(a)
    r = precondition(q)
    if pairs:  # the preconditioner's scale, as of the last step
        _, change, curvature = pairs[-1]
        r = r * (curvature / np.vdot(change, precondition(change)))
    for (step, change, curvature), a in zip(pairs, reversed(kept), strict=True):
        r = r + (a - np.vdot(change, r) / curvature) * step
    return r


def by_diagonal(problem: SmoothProblem, point: LossPoint) -> Precondition:
    """Divides by the Hessian's diagonal, of centred features: a mean far from zero ties them to the intercept.

    Centring is another intercept, b + mean' coef, so only gradients and steps are transformed. Some rows are enough.
    """
    chosen = sample(problem.n, ROWS)
    X, outputs = problem.read(chosen), problem.loss.outputs
    h = np.abs(problem.diagonal(point.eta)[chosen]).reshape(len(chosen), outputs)
    more = problem.n / len(chosen)
    weight = np.sum(h, axis=0)  # (outputs,)
    weight = np.where(weight > 0, weight, 1.0)
    mean = X.T @ h / weight if problem.intercept else np.zeros((problem.p, outputs))
    squares = (X * X).T @ h
    spread = np.maximum(squares - weight * mean * mean, 1e-6 * squares) * more + problem.l2
    spread[spread <= 0] = 1.0

    def divide(gradient: np.ndarray) -> np.ndarray:
        parts = gradient.reshape(-1, outputs)
        out = np.empty_like(parts)
        intercept = parts[problem.p :]  # one row, or none
        out[: problem.p] = (parts[: problem.p] - mean * np.sum(intercept, axis=0)) / spread
        out[problem.p :] = intercept / (weight * more) - np.sum(mean * out[: problem.p], axis=0)
        return problem.balanced(out.reshape(gradient.shape))

    return divide


def by_inverse(H: np.ndarray) -> Precondition:
    """Multiplies by the inverse of a matrix."""
    inverse = SymmetricFactors(H).inverse()
    return lambda gradient: (inverse @ gradient.ravel()).reshape(gradient.shape)
