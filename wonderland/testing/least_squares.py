"""Least squares whose solution is known to the last digit, for any condition number; and what solvers make of it.

A condition number comes in; data with the exact coefficients go out, or the relative errors of solvers by condition.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wonderland.estimators.linear_regression import LinearRegression

GRID = 2.0**36  # entries are multiples of 1 / GRID, so that sums of a few dozen of them are exact in float64


def exact_least_squares(
    condition: float, features: int = 6, rows: int = 10, noise: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (4 rows, features) with about this condition number, y, and the coefficients that solve it exactly: all ones.

    With Z of that condition, X is Z, Z, -Z, -Z one above the other, and y = X 1 + r with r = v, -v, v, -v: means are
    zero, X'r is zero, and all numbers are multiples of one small number, so that nothing is rounded. Conditions are up
    to about 1e10, where the smallest singular value meets that number.
    """
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(rows, features)))[0]
    V = np.linalg.qr(rng.normal(size=(features, features)))[0]
    Z = np.rint(U * np.logspace(0, -np.log10(condition), features) @ V.T * GRID) / GRID
    v = np.rint(noise * rng.normal(size=rows) * GRID) / GRID
    fitted = np.sum(Z, axis=1)
    X = np.concatenate([Z, Z, -Z, -Z])
    y = np.concatenate([fitted + v, fitted - v, -fitted + v, -fitted - v])
    return X, y, np.ones(features)


def solver_errors(
    conditions: Iterable[float],
    solvers: tuple[str, ...] = ("cholesky", "qr", "svd", "auto"),
    noise: float = 0.0,
    seeds: int = 5,
) -> dict[str, np.ndarray]:
    """Relative errors |w - w*| / |w*| of the solvers of `LinearRegression`, medians over seeds: name -> (conditions,).

    What the normal equations cost: "cholesky" loses digits as the square of the condition number does, "qr" as the
    condition number. At 1 / sqrt(eps), 7e7, nothing is left of the first (NaN where it finds X'X singular).

        errors = solver_errors(np.logspace(1, 9, 9))
        plt.loglog(conditions, errors["cholesky"], conditions, errors["qr"])
    """
    out: dict[str, list[float]] = {solver: [] for solver in solvers}
    for condition in conditions:
        problems = [exact_least_squares(condition, noise=noise, seed=seed) for seed in range(seeds)]
        for solver in solvers:
            errors = [_error(solver, *problem) for problem in problems]
            out[solver].append(float(np.median(errors)))
    return {solver: np.array(errors) for solver, errors in out.items()}


def _error(solver: str, X: np.ndarray, y: np.ndarray, exact: np.ndarray) -> float:
    try:
        coef = LinearRegression(solver=solver).fit(X, y).coef_
    except ValueError:
        return np.nan
    return float(np.linalg.norm(coef - exact) / np.linalg.norm(exact))
