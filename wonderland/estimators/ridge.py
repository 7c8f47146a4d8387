"""Least squares with a penalty on squares of coefficients: `Ridge`."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.base import one_of, positive_number, whole_number
from wonderland.estimators.descent import solve_gradient
from wonderland.estimators.least_squares import Solved, SquaresProblem, solve_fast, triangle
from wonderland.estimators.linear_regression import sum_of_squares
from wonderland.estimators.squares_model import SquaresModel

SOLVERS = ("auto", "cholesky", "svd", "gradient")


class Ridge(SquaresModel):
    """The minimum of sum of weight (y - x'w - b)^2 + alpha |w|^2: w = (X'WX + alpha I)^-1 X'Wy, about the means.

        Ridge(alpha=1.0).fit(X, y).coef_
        wl.grad(lambda alpha: validation(*Ridge().coefficients(X, y, alpha=alpha)))(1.0)

    It is the MAP estimate for Gaussian noise of variance s and the prior w ~ N(0, s / alpha I): `covariance_` is that
    of the posterior, with s = `noise_variance_` = RSS / (n - degrees of freedom). The intercept isn't penalised. With
    y (n, outputs), alpha may be (outputs,), one for each.

    Solvers: "cholesky" (which "auto" is) refines its solution with residuals of the data, in the primal form, or in the
    dual w = X'(XX' + alpha I)^-1 y if there are more features than samples; where the condition number is too large for
    that, and for many different alphas, "svd" takes singular values of X: w = V s / (s^2 + alpha) U'y. "gradient" is
    accelerated gradient descent, compiled, as in `LinearRegression`. alpha = 0 is least squares.

    After `fit`: `coef_`, `intercept_`, `noise_variance_`, `covariance_`, `degrees_` (trace of the hat matrix less that
    of the intercept); `n_iter_`, `loss_history_` with solver="gradient".
    """

    EXACT = {"tol": 1e-24}
    NUMBERS = ("alpha",)

    def __init__(
        self, alpha: Any = 1.0, *, fit_intercept: bool = True, solver: str = "auto", tol: float = 1e-14,
        max_iter: int = 10_000,
    ):  # fmt: skip
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Ridge:
        """Fit to X (n, features) and y (n,) or (n, outputs), with weights (n,)."""
        one_of(self.solver, "solver", SOLVERS)
        tol = positive_number(self.tol, "tol", zero=True)
        max_iter = whole_number(self.max_iter, "max_iter")
        problem, y = self._problem(X, y, sample_weight)
        alpha = self._alphas(problem.Y.shape[1])
        if self.solver == "gradient":
            solved = self._descended(*solve_gradient(problem, tol, max_iter, alpha))
        else:
            few = self.solver != "svd" and len(np.unique(alpha)) <= 4
            solved = (solve_fast(problem, alpha) if few else None) or solve_shrunk(problem, alpha)
        self._keep(solved, y)
        self._alpha = alpha
        return self

    def _alphas(self, outputs: int) -> np.ndarray:
        alpha = np.asarray(self.alpha)
        if alpha.ndim == 0:
            return np.full(outputs, positive_number(self.alpha, "alpha", zero=True))
        if alpha.shape != (outputs,):
            raise ValueError(
                f"alpha is one number, or one for each output: y has {outputs}, alpha has shape {alpha.shape}"
            )
        return np.array([positive_number(a, "alpha", zero=True) for a in alpha])

    def _penalties(self) -> np.ndarray:
        return self._alpha

    @property
    def degrees_(self) -> Any:
        """Effective degrees of freedom: the sum of s^2 / (s^2 + alpha) over singular values s of X."""
        return self._like_outputs(self._degrees() - bool(self.fit_intercept))

    def _degrees(self) -> np.ndarray:
        squares = self._solved.spectrum[0] ** 2
        counts = [np.sum(squares / (squares + a)) if a > 0 else self._solved.rank for a in self._alpha]
        return np.array(counts, np.float64) + bool(self.fit_intercept)

    def _whitened(self, X: np.ndarray, alpha: float) -> np.ndarray:
        if alpha == 0:
            return super()._whitened(X, alpha)
        s, Vt = self._solved.spectrum
        inside = X @ Vt.T
        out = inside / np.sqrt(s * s + alpha)
        if len(s) == X.shape[1]:
            return out
        return np.concatenate([out, (X - inside @ Vt) / np.sqrt(alpha)], axis=1)  # where there are no data

    def loo_errors(self, X: Any, y: Any, sample_weight: Any = None) -> np.ndarray:
        """y less the prediction of a fit without the sample, for each, like y: r / (1 - leverage), without any fit.

        X, y and the weights are those of the fit. Their mean square is what leave-one-out cross-validation measures.
        """
        X, y, weight = self._training_data(X, y, sample_weight, multi_output=True, reset=False)
        share = self._leverages(X - self._solved.x_mean)
        if weight is not None:
            share = share * weight[:, None]
        return (y - self._apply(X)) / (1 - share).reshape(y.shape)

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        alpha = hyper.get("alpha", self.alpha)
        return sum_of_squares(coef, intercept, X, y, weight) + np.sum(alpha * np.sum(coef * coef, axis=-1))


def solve_shrunk(problem: SquaresProblem, alpha: np.ndarray) -> Solved:
    """w = V s / (s^2 + alpha) U'y, alpha (outputs,); directions without spread get nothing."""
    if problem.wide:
        R, z = problem.rows()
        square = np.zeros(z.shape[1])
    else:
        R, z, square = triangle(problem)
    U, s, Vt = np.linalg.svd(R, full_matrices=False)
    rank = int(np.sum(s > problem.cut(None) * s[0]))
    U, s, Vt = U[:, :rank], s[:rank, None], Vt[:rank]
    coef = Vt.T @ (s / (s * s + alpha) * (U.T @ z))
    residual = z - R @ coef
    return Solved(coef, square + np.sum(residual**2, axis=0), rank, *problem.means, problem.total, factor=R)
