"""Newton's method by products with the Hessian alone: for many features, and for many classes.

Each direction is found by conjugate gradients, as exactly as the distance to the minimum makes worthwhile (Dembo,
Eisenstat, Steihaug 1982). A product reads X twice and makes no matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wonderland.estimators.smooth.lbfgs import by_diagonal
from wonderland.estimators.smooth.newton import Result, is_flat
from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem
from wonderland.estimators.smooth.search import ROUNDING, search


def newton_cg(problem: SmoothProblem, point: LossPoint, tol: float, max_iter: int) -> Result:
    """Newton's method by conjugate gradients."""
    first = float(np.linalg.norm(point.gradient))
    values = [point.value]
    for _ in range(max_iter):
        if is_flat(problem, point, tol):
            return Result(point.w, point, values, True)
        size = float(np.linalg.norm(point.gradient))
        exactness = min(0.25, np.sqrt(size / first)) * size
        precondition = by_diagonal(problem, point)
        direction = conjugate_gradients(problem.product(point.eta), -point.gradient, precondition, exactness)
        if -float(np.vdot(point.gradient, direction)) <= ROUNDING * abs(point.value):
            return Result(point.w, point, values, True)
        after = search(problem, point, direction, flatter=0.9)
        if after is None:
            return Result(point.w, point, values, False)
        point = after
        values.append(point.value)
    return Result(point.w, point, values, is_flat(problem, point, tol))


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], right: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray], exactness: float,
) -> np.ndarray:  # fmt: skip
    """x with |H x - right| <= exactness; where H isn't positive, how far conjugate gradients come."""
    x = np.zeros_like(right)
    residual = right
    z = precondition(residual)
    p, rho = z, float(np.vdot(residual, z))
    for _ in range(20 + 2 * right.size):
        Hp = product(p)
        curvature = float(np.vdot(p, Hp))
        if curvature <= ROUNDING * float(np.vdot(p, p)):  # a direction without a minimum
            return x if np.any(x) else p
        x = x + rho / curvature * p
        residual = residual - rho / curvature * Hp
        if float(np.linalg.norm(residual)) <= exactness:
            break
        z = precondition(residual)
        before, rho = rho, float(np.vdot(residual, z))
        p = z + rho / before * p
    return x
