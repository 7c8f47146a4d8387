"""Regression of medians and other quantiles: `QuantileRegressor`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from wonderland.estimators.base import Regressor, one_of, positive_number, whole_number
from wonderland.estimators.gram import mean_of
from wonderland.estimators.least_squares import SquaresProblem
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.pinball import PinballProgram
from wonderland.estimators.ridge import solve_shrunk
from wonderland.transform.derivatives import stop_gradient


class QuantileRegressor(LinearModel, Regressor):
    """The minimum of sum of weight pinball(y - x'w - b) / n + alpha |w|_1: x'w + b is a quantile of y at x.

    pinball(r) = q r for r > 0, (q - 1) r below. With q = 0.5 it is half of the absolute error, the median of y, which
    outliers don't move; with 0.05 and 0.95 two fits hold nine of ten samples between them. n is the sum of weights.

        median = QuantileRegressor(alpha=0).fit(X, y)
        upper = QuantileRegressor(quantile=0.95, alpha=0).fit(X, y)

    It is a linear program, solved by an interior-point method whose steps cost a Gram matrix each, 10 to 30 of them for
    any number of samples; then what is almost zero, residuals and coefficients, is put to zero. It stops when the
    duality gap is `tol` of the objective. The solution need not be unique: then it is one of them. `alpha` is 1 by
    default, as scikit-learn's, which is a strong penalty.

    After `fit`: `coef_`, `intercept_`, `dual_gap_` (of the objective), `n_iter_`. Derivatives of the coefficients are
    those of the line through the samples it goes through; in `alpha`, `quantile` and weights they are zero.

    R. Koenker and G. Bassett, Regression quantiles, 1978.
    """

    NUMBERS = ("alpha", "quantile")

    def __init__(
        self, *, quantile: float = 0.5, alpha: float = 1.0, fit_intercept: bool = True, tol: float = 1e-10,
        max_iter: int = 100,
    ):  # fmt: skip
        self.quantile = quantile
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> QuantileRegressor:
        """Fit to X (n, features) and y (n,), with weights (n,)."""
        alpha, q = positive_number(self.alpha, "alpha", zero=True), positive_number(self.quantile, "quantile")
        if q >= 1:
            raise ValueError(f"quantile is between 0 and 1, without them, got {self.quantile!r}")
        tol, max_iter = positive_number(self.tol, "tol", zero=True), whole_number(self.max_iter, "max_iter")
        one_of(self.fit_intercept, "fit_intercept", (True, False))
        X, y, weight = self._training_data(X, y, sample_weight)
        problem = SquaresProblem.of(X, y, weight, bool(self.fit_intercept))
        # In columns about zero and of one size, and about the middle of y.
        mean = mean_of(problem.X, problem.weight, problem.centre)
        A = problem.X - mean
        scale = np.sqrt(np.einsum("ij,ij->j", A, A) / len(A))
        scale[scale == 0] = 1
        A = np.concatenate([A / scale, np.ones((len(A), 1 if problem.centre else 0))], axis=1)
        middle = float(np.median(problem.Y)) if problem.centre else 0.0
        z = problem.Y[:, 0] - middle
        weight = np.ones(len(z)) if problem.weight is None else problem.weight.astype(np.float64)
        strength = np.concatenate([alpha * problem.total / scale, np.zeros(A.shape[1] - X.shape[1])])
        program = PinballProgram(A, z, q * weight, (1 - q) * weight, strength)
        start = solve_shrunk(SquaresProblem(A, z[:, None], problem.weight, False), np.full(1, 1e-6 * len(z))).coef[:, 0]
        v, gap, self.n_iter_ = program.solve(start, tol, max_iter)
        v = program.vertex(v)
        coef = v[: X.shape[1]] / scale
        self.coef_ = coef.astype(X.dtype)
        self.intercept_ = X.dtype.type(v[-1] + middle - mean @ coef if problem.centre else 0)
        self.dual_gap_ = max(gap, 0.0) / problem.total
        self.n_iter_ = max(self.n_iter_, 1)
        if gap > max(tol, 1e-8) * program.value(v) and gap > 1e-12 * float(weight @ np.abs(z)):
            warnings.warn(
                f"QuantileRegressor: the duality gap is still {self.dual_gap_:.3g} after {self.n_iter_} steps. Raise "
                "max_iter or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        q, alpha = hyper.get("quantile", self.quantile), hyper.get("alpha", self.alpha)
        r = y - X @ coef - intercept
        return np.sum(weight * np.maximum(q * r, (q - 1) * r)) / np.sum(weight) + alpha * np.sum(np.abs(coef))

    def _optimality(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> tuple[Any, Any]:
        """Which residuals and coefficients are zero doesn't change nearby; A'r = 0 says it for those residuals.

        As many residuals as there are other coefficients. A coefficient counts as zero if its column moves y by 1e-5 of
        what y varies, since the implicit function theorem looks at what is near to the solution, too.
        """
        r = y - X @ coef - intercept
        share = stop_gradient(np.abs(coef) * np.std(X, axis=0))
        other = share > 1e-5 * stop_gradient(np.std(y))
        size = stop_gradient(np.abs(r))
        rising = np.sort(size)
        last = np.sum(other) + int(self.fit_intercept) - 1
        on = np.where((size <= rising[np.maximum(last, 0)]) & (last >= 0), r, 0.0)
        return np.where(other, X.T @ on, coef), np.sum(on)
