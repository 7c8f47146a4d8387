"""Least squares with a penalty that makes coefficients zero: `ElasticNet`, `Lasso`, and the path of its solutions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_X_y

from wonderland.estimators.base import FLOATS, Regressor, one_of, positive_number, whole_number
from wonderland.estimators.descent import ProximalSteps
from wonderland.estimators.least_squares import SquaresProblem
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.linear_regression import sum_of_squares
from wonderland.estimators.penalised import Penalised, Penalty, coordinates
from wonderland.implicit.sets.proximal import prox_elastic_net, prox_nonnegative_l1
from wonderland.transform.derivatives import grad, stop_gradient

SOLVERS = ("coordinate", "proximal")


class ElasticNet(LinearModel, Regressor):
    """The minimum of sum of weight (y - x'w - b)^2 / (2 n) + alpha l1_ratio |w|_1 + alpha (1 - l1_ratio) |w|^2 / 2.

        model = ElasticNet(alpha=0.1, l1_ratio=0.7).fit(X, y)
        model.coef_ != 0                                        # the features it chose

    n is the sum of the weights. y may be (n, outputs): each output is a problem of its own. `positive` keeps
    coefficients from being negative. `warm_start` begins a fit at the coefficients of the last.

    Solvers, both compiled:

    - "coordinate": one coefficient after the other is set to its best value, on the Gram matrix of the columns that
      matter or, with about as many features as samples, on the columns. When the coefficients that aren't zero are
      known, these solve a linear system, so that the result is usually exact, whatever `tol`.
    - "proximal": accelerated gradient steps, each with the soft threshold (FISTA); `loss_history_` has the loss.

    They stop when the duality gap is below `tol` |y - mean|^2, as scikit-learn's: the value of the objective is then at
    most `dual_gap_` above its minimum. `max_iter` limits sweeps or steps, with a ConvergenceWarning. The coefficients'
    derivatives (`coefficients`) hold the zeros where they are, as they are for small changes of the data.

    After `fit`: `coef_` (features,) or (outputs, features), `intercept_`, `dual_gap_`, `n_iter_` (lists of several
    outputs).
    """

    NUMBERS = ("alpha", "l1_ratio")
    loss_history_: np.ndarray
    coef_: np.ndarray
    intercept_: Any
    dual_gap_: Any
    n_iter_: Any

    def __init__(
        self, alpha: float = 1.0, *, l1_ratio: float = 0.5, fit_intercept: bool = True, solver: str = "coordinate",
        positive: bool = False, warm_start: bool = False, tol: float = 1e-4, max_iter: int = 1000,
    ):  # fmt: skip
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.positive = positive
        self.warm_start = warm_start
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ElasticNet:
        """Fit to X (n, features) and y (n,) or (n, outputs), with weights (n,)."""
        one_of(self.solver, "solver", SOLVERS)
        alpha, ratio = positive_number(self.alpha, "alpha", zero=True), positive_number(self.l1_ratio, "l1_ratio", True)
        if ratio > 1:
            raise ValueError(f"l1_ratio is between 0 (ridge) and 1 (lasso), got {self.l1_ratio!r}")
        tol, max_iter = positive_number(self.tol, "tol", zero=True), whole_number(self.max_iter, "max_iter")
        for name in ("fit_intercept", "positive"):
            one_of(getattr(self, name), name, (True, False))
        X, y, weight = self._training_data(X, y, sample_weight, multi_output=True)
        problem = SquaresProblem.of(X, y, weight, bool(self.fit_intercept))
        start = np.zeros((problem.Y.shape[1], X.shape[1]))
        if self.warm_start and np.size(getattr(self, "coef_", ())) == start.size:
            start = np.reshape(self.coef_, start.shape).astype(np.float64)
        method = coordinates(problem) if self.solver == "coordinate" else ProximalSteps(problem)
        penalty = Penalty(alpha * ratio * problem.total, alpha * (1 - ratio) * problem.total, bool(self.positive))
        found = [method.solve(k, penalty, start[k], tol, max_iter) for k in range(len(start))]
        self._keep(found, method.x_mean, method.y_mean, problem.total, y)
        if isinstance(method, ProximalSteps):
            self.loss_history_ = np.concatenate(method.history) / 2
        _warn_of(found, self, problem.total)
        return self

    def _keep(
        self, found: list[Penalised], x_mean: np.ndarray, y_mean: np.ndarray, total: float, y: np.ndarray
    ) -> None:
        coef = np.stack([one.coef for one in found])
        intercept = y_mean - coef @ x_mean if self.fit_intercept else np.zeros(len(found))
        gap, n_iter = np.array([one.gap for one in found]) / total, [one.n_iter for one in found]
        self.coef_, self.intercept_ = coef.astype(y.dtype), intercept.astype(y.dtype)
        self.dual_gap_, self.n_iter_ = gap, n_iter
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[0], self.intercept_[0]
            self.dual_gap_, self.n_iter_ = float(gap[0]), n_iter[0]

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        alpha, ratio = hyper.get("alpha", self.alpha), hyper.get("l1_ratio", self.l1_ratio)
        penalty = alpha * ratio * np.sum(np.abs(coef)) + alpha * (1 - ratio) / 2 * np.sum(coef * coef)
        return sum_of_squares(coef, intercept, X, y, weight) / (2 * np.sum(weight)) + penalty

    def _optimality(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> tuple[Any, Any]:
        """w less a proximal gradient step from it, which is zero at the optimum for steps of any length."""
        alpha, ratio = hyper.get("alpha", self.alpha), hyper.get("l1_ratio", self.l1_ratio)
        squares = lambda both: sum_of_squares(both[0], both[1], X, y, weight) / (2 * np.sum(weight))
        slope, slope_intercept = grad(squares)((coef, intercept))
        length = stop_gradient(np.sum(weight) / np.sum(weight[:, None] * X * X))  # at most 1 / the largest curvature
        there, l1, l2 = coef - length * slope, length * alpha * ratio, length * alpha * (1 - ratio)
        if self.positive:
            return coef - prox_nonnegative_l1(there, l1) / (1 + l2), slope_intercept
        return coef - prox_elastic_net(there, l1, l2), slope_intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class Lasso(ElasticNet):
    """The minimum of sum of weight (y - x'w - b)^2 / (2 n) + alpha |w|_1: many coefficients are zero.

        model = Lasso(alpha=0.1).fit(X, y)
        model.coef_ != 0                                        # the features it chose

    It is the MAP estimate for Gaussian noise of variance s and the prior exp(-|w_j| n alpha / s) of each coefficient
    (Laplace's distribution). Otherwise as `ElasticNet` with `l1_ratio=1`. alpha = 0 is least squares, which
    `LinearRegression` is made for; from max |X'y| / n on (of centred data) all coefficients are zero.

    R. Tibshirani, Regression shrinkage and selection via the lasso, 1996.
    """

    NUMBERS = ("alpha",)
    l1_ratio: float = 1.0

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, solver: str = "coordinate", positive: bool = False,
        warm_start: bool = False, tol: float = 1e-4, max_iter: int = 1000,
    ):  # fmt: skip
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.positive = positive
        self.warm_start = warm_start
        self.tol = tol
        self.max_iter = max_iter


def lasso_path(
    X: Any, y: Any, *, eps: float = 1e-3, alphas: Any = 100, coef_init: Any = None, return_n_iter: bool = False,
    positive: bool = False, tol: float = 1e-4, max_iter: int = 1000,
) -> tuple[Any, ...]:  # fmt: skip
    """Solutions of the lasso for many alphas: (alphas, coefs, dual_gaps), and the numbers of sweeps if asked for.

    `alphas` are numbers, sorted here from the largest; or how many, evenly spaced in logarithm from the least alpha
    without coefficients down to `eps` times that. coefs are (features, alphas), or (outputs, features, alphas); each
    solution starts at the one before. As scikit-learn's, it has no intercept: centre X and y.

        alphas, coefs, gaps = lasso_path(X - X.mean(axis=0), y - y.mean())
        plt.semilogx(alphas, coefs.T)
    """
    dtypes: Any = FLOATS
    X, y = check_X_y(X, y, dtype=dtypes, multi_output=True, y_numeric=True)
    y = y.astype(X.dtype, copy=False)
    problem = SquaresProblem.of(X, y, None, False)
    method = coordinates(problem)
    if isinstance(alphas, (int, np.integer)):
        top = float(np.max(method.cross if positive else np.abs(method.cross))) / len(X)
        alphas = np.geomspace(max(top, 1e-300), max(top, 1e-300) * eps, whole_number(alphas, "alphas"))
    alphas = -np.sort(-np.array([positive_number(a, "alphas", zero=True) for a in alphas]))
    start = np.zeros((problem.Y.shape[1], X.shape[1])) if coef_init is None else np.asarray(coef_init, np.float64)
    start = start.reshape(problem.Y.shape[1], X.shape[1])
    found = []
    for alpha in alphas:
        penalty = Penalty(alpha * len(X), 0.0, positive)
        found.append([method.solve(k, penalty, start[k], tol, max_iter) for k in range(len(start))])
        start = [one.coef for one in found[-1]]
    _warn_of([one for outputs in found for one in outputs], None, problem.total)
    coefs = np.stack([np.stack([one.coef for one in outputs]) for outputs in found], axis=-1).astype(X.dtype)
    gaps = np.array([[one.gap for one in outputs] for outputs in found]) / len(X)
    n_iter = np.array([[one.n_iter for one in outputs] for outputs in found])
    if y.ndim == 1:
        coefs, gaps, n_iter = coefs[0], gaps[:, 0], n_iter[:, 0]
    return (alphas, coefs, gaps, n_iter) if return_n_iter else (alphas, coefs, gaps)


def _warn_of(found: list[Penalised], model: ElasticNet | None, total: float) -> None:
    failed = [one for one in found if not one.converged]
    if failed:
        warnings.warn(
            f"{'lasso_path' if model is None else type(model).__name__}: the duality gap is still "
            f"{max(one.gap for one in failed) / total:.3g} after {max(one.n_iter for one in failed)} iterations. Raise "
            "max_iter, tol or alpha, or bring the columns of X to one scale (StandardScaler).",
            ConvergenceWarning,
            stacklevel=3,
        )
