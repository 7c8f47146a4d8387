"""The linear heteroscedastic model at its optimum: Newton's method with exact second derivatives, in double precision.

Inputs, targets of unit scale and weights come in; (w, b, v, c) of mean m = w x + b and s = v x + c go out, with
variance V = exp(2 s) + floor^2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

SHORT = 1e-9  # of a decrement, per sample: from here on steps are Newton's own, and rounding hides what they gain
ENOUGH = 1e-22


def minimized(
    X: np.ndarray, z: np.ndarray, weight: np.ndarray, alpha: float, floor: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, list[float], bool]:
    """Coefficients (2, features) and intercepts (2,) of mean and log scale, the losses, and whether it converged.

    Minimised is sum_i weight_i (log V_i + (z_i - m_i)^2 / V_i) / 2 + alpha (|w|^2 + |v|^2) / 2. It begins with least
    squares. Where the Hessian isn't positive definite, its eigenvalues count by their size (Dauphin et al. 2014).
    """
    total = weight.sum()
    centre = weight @ X / total
    spread = np.sqrt(weight @ (X - centre) ** 2 / total)
    spread = np.where(spread > 1e-12 * np.abs(centre), spread, 1.0)  # constant columns have rounding only
    A = np.column_stack([(X - centre) / spread, np.ones(len(X))])
    width = A.shape[1]
    penalty = np.tile(np.append(alpha / spread**2, 0.0), 2)

    root = np.sqrt(weight)[:, None]
    ridge = np.vstack([root * A, np.diag(np.sqrt(penalty[:width]))])
    mean = np.linalg.lstsq(ridge, np.append(root[:, 0] * z, np.zeros(width)), rcond=None)[0]
    theta = np.zeros(2 * width)
    theta[:width] = mean
    theta[-1] = np.log(max(weight @ (z - A @ mean) ** 2 / total, floor**2, 1e-12)) / 2

    def value(theta: np.ndarray) -> float:
        with np.errstate(over="ignore"):
            V = np.exp(2 * (A @ theta[width:])) + floor**2
        with np.errstate(divide="ignore", invalid="ignore"):
            found = weight @ (np.log(V) + (z - A @ theta[:width]) ** 2 / V) / 2 + penalty @ theta**2 / 2
        return float(found) if np.isfinite(found) else np.inf

    losses = [value(theta)]
    for _ in range(max_iter):
        r, e = z - A @ theta[:width], np.exp(2 * (A @ theta[width:]))
        V = e + floor**2
        t, q = e / V, r * r / V
        slope = np.concatenate([A.T @ (-weight * r / V), A.T @ (weight * t * (1 - q))]) + penalty * theta
        both = (A.T * (weight * 2 * r * t / V)) @ A
        upper = np.hstack([(A.T * (weight / V)) @ A, both])
        curved = weight * (2 * t * (1 - t) * (1 - q) + 2 * q * t * t)
        H = np.vstack([upper, np.hstack([both.T, (A.T * curved) @ A])]) + np.diag(penalty)
        step, convex = _newton_step(H, slope)
        decrement = -float(slope @ step)
        if decrement <= ENOUGH * total:
            return *_unscaled(theta, centre, spread), losses, True
        size = 1.0
        if not (convex and decrement <= SHORT * total):
            size = _halved(value, theta, step, losses[-1], decrement)
        if size == 0:  # nothing is less, to rounding
            return *_unscaled(theta, centre, spread), losses, decrement <= 1e-6 * total
        theta = theta + size * step
        losses.append(value(theta))
    return *_unscaled(theta, centre, spread), losses, False


def _newton_step(H: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, bool]:
    """-H^-1 slope, and whether H is positive definite; otherwise with the sizes of its eigenvalues."""
    try:
        return -cho_solve(cho_factor(H), slope), True
    except LinAlgError:
        values, vectors = np.linalg.eigh(H)
        sizes = np.maximum(np.abs(values), 1e-10 * np.abs(values).max())
        return -vectors @ (vectors.T @ slope / sizes), False


def _halved(
    value: Callable[[np.ndarray], float], theta: np.ndarray, step: np.ndarray, before: float, decrement: float
) -> float:
    """The first of 1, 1/2, 1/4, ... with enough of a decrease (Armijo's), or 0."""
    size = 1.0
    while size > 1e-12:
        if value(theta + size * step) <= before - 1e-4 * size * decrement:
            return size
        size /= 2
    return 0.0


def _unscaled(theta: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and intercepts for inputs as they were given."""
    rows = theta.reshape(2, -1)
    coefficients = rows[:, :-1] / spread
    return coefficients, rows[:, -1] - coefficients @ centre
