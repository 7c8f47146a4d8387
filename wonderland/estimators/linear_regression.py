"""Least squares as an estimator: `LinearRegression`."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.base import one_of, positive_number, whole_number
from wonderland.estimators.descent import solve_gradient
from wonderland.estimators.least_squares import Solved, SquaresProblem, solve_fast, solve_normal, solve_qr, solve_svd
from wonderland.estimators.squares_model import SquaresModel

SOLVERS = ("auto", "qr", "svd", "cholesky", "dual", "gradient")


class LinearRegression(SquaresModel):
    """The w and b with the least sum of squares, sum of weight (y - x'w - b)^2 (E.4.4), for y (n,) or (n, outputs).

        model = LinearRegression().fit(X, y)
        low, high = model.predict_interval(X_new).T
        print(model.conditioning())

    Of data with several solutions (more features than samples, columns that depend on each other, constant columns
    beside an intercept) it is the one of minimum norm. Weights count samples: 2 is a sample twice, 0 none.

    Solvers:

    - "auto": the Gram matrix in one pass, Cholesky's factor and refinement with the residuals of the data, which is as
      exact as QR and takes as long as the normal equations; QR if the condition number is too large for it (more than
      about 3e5, of columns in unit length), singular values if the rank is deficient; the dual with p >= n.
    - "qr": orthogonal factors, block after block. "svd": singular values of the triangle.
    - "cholesky": the normal equations X'X w = X'y as they stand (E.4.7), which lose twice as many digits.
    - "dual": w = X'a with XX'a = y, for at least as many features as samples.
    - "gradient": accelerated gradient descent on the loss with our derivative, compiled, until
      |w_new - w|^2 < tol |w_new|^2 (E.4.8), or `max_iter` steps; `loss_history_` and `n_iter_` tell its course
      (`n_iter_` is 1 of the others).

    `rcond` is the share of the largest singular value up to which others count as zero, by default as many digits as
    the data have; if it is given, "auto" is "svd".

    After `fit`: `coef_` (features,) or (outputs, features), `intercept_`, `rank_`, `singular_` (singular values of X
    about its mean), `noise_variance_` (unbiased, RSS / (n - rank - 1)), `noise_variance_ml_` (RSS / n, E.4.9),
    `covariance_`.
    """

    EXACT = {"tol": 1e-24}

    def __init__(
        self, *, fit_intercept: bool = True, solver: str = "auto", rcond: float | None = None, tol: float = 1e-14,
        max_iter: int = 10_000,
    ):  # fmt: skip
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.rcond = rcond
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegression:
        """Fit to X (n, features) and y (n,) or (n, outputs), with weights (n,)."""
        one_of(self.solver, "solver", SOLVERS)
        if self.rcond is not None:
            positive_number(self.rcond, "rcond", zero=True)
        problem, y = self._problem(X, y, sample_weight)
        self._keep(self._solve(problem), y)
        return self

    def _solve(self, problem: SquaresProblem) -> Solved:
        match self.solver:
            case "auto" if self.rcond is None:
                return solve_fast(problem) or solve_qr(problem)
            case "auto" | "svd":
                return solve_svd(problem, self.rcond)
            case "qr":
                return solve_qr(problem, self.rcond)
            case "cholesky":
                return solve_normal(problem)
            case "dual":
                if not problem.wide:
                    raise ValueError(
                        f"solver='dual' is for at least as many features as samples, got X of shape "
                        f"{problem.X.shape}; use 'auto'"
                    )
                return solve_fast(problem) or solve_svd(problem)
        tol = positive_number(self.tol, "tol", zero=True)
        return self._descended(*solve_gradient(problem, tol, whole_number(self.max_iter, "max_iter")))

    @property
    def rank_(self) -> int:
        """The rank of X about its mean."""
        return self._solved.rank

    @property
    def singular_(self) -> np.ndarray:
        """Singular values of X about its mean, the largest first; computed when asked for.

        Of a fit by "auto" or "cholesky" the smallest are as exact as X'X has them.
        """
        return self._solved.spectrum[0]

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        return sum_of_squares(coef, intercept, X, y, weight) / np.sum(weight)


def sum_of_squares(coef: Any, intercept: Any, X: Any, y: Any, weight: Any) -> Any:
    """sum of weight (y - x'w - b)^2, over outputs too."""
    r = y - X @ coef.T - intercept
    return np.sum((weight[:, None] if r.ndim == 2 else weight) * r * r)
