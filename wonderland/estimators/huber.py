"""Regression that outliers don't move far: `HuberRegressor`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from wonderland.estimators.base import Regressor, one_of, positive_number, whole_number
from wonderland.estimators.gram import mean_of, moments
from wonderland.estimators.least_squares import SquaresProblem, solve_fast, solve_qr
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.positive import PositiveFactor, solve_definite
from wonderland.transform.derivatives import stop_gradient


class HuberRegressor(LinearModel, Regressor):
    """The minimum over w, b and a scale s of sum of weight (s + s H((y - x'w - b) / s)) + alpha |w|^2.

    H(z) = z^2 up to |z| = epsilon, and 2 epsilon |z| - epsilon^2 beyond: squares for most samples, and straight lines
    for outliers (E.4.3, with the scale of the noise found together with the coefficients). Scaling y scales w, b and s.

        model = HuberRegressor().fit(X, y)
        X[model.outliers_]

    The smaller `epsilon`, above 1, the more samples count as outliers; 1.35 is 95 % as efficient as least squares if
    the noise is Gaussian. For given w and b the best scale has a closed form, and Newton's steps in w and b, with the
    scale eliminated, find the rest: a Gram matrix of the inliers each. They stop when a step promises less than `tol`^2
    of the objective. If the best line goes exactly through most samples, the scale is next to zero.

    After `fit`: `coef_`, `intercept_`, `scale_`, `outliers_` (n,), `n_iter_`.

    P. Huber, Robust Statistics, 1981; A. Owen, A robust hybrid of lasso and ridge regression, 2007.
    """

    NUMBERS = ("alpha", "epsilon")

    def __init__(
        self, *, epsilon: float = 1.35, max_iter: int = 100, alpha: float = 0.0001, fit_intercept: bool = True,
        tol: float = 1e-5,
    ):  # fmt: skip
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HuberRegressor:
        """Fit to X (n, features) and y (n,), with weights (n,)."""
        epsilon, alpha = positive_number(self.epsilon, "epsilon"), positive_number(self.alpha, "alpha", zero=True)
        if epsilon <= 1:
            raise ValueError(
                f"epsilon is a number above 1, got {self.epsilon!r}; at 1 all samples would be outliers, and it is the "
                "absolute error that counts: QuantileRegressor(quantile=0.5)"
            )
        tol, max_iter = positive_number(self.tol, "tol", zero=True), whole_number(self.max_iter, "max_iter")
        one_of(self.fit_intercept, "fit_intercept", (True, False))
        X, y, weight = self._training_data(X, y, sample_weight)
        problem = SquaresProblem.of(X, y, weight, bool(self.fit_intercept))
        mean = mean_of(problem.X, problem.weight, problem.centre)
        ones = np.ones((len(problem.X), 1 if problem.centre else 0))
        A = np.concatenate([problem.X - mean, ones], axis=1)  # what is far from zero loses no digits
        strength = np.array([alpha] * X.shape[1] + [0.0] * problem.centre)
        squares = solve_fast(problem) or solve_qr(problem)
        if squares.rank < X.shape[1]:  # of all solutions one that is next to the least
            size = float(np.max(np.abs(problem.Y - squares.y_mean))) or 1.0
            strength[: X.shape[1]] += 1e-10 * np.mean(np.einsum("ij,ij->j", A, A)) / size
        v = np.concatenate([squares.coef[:, 0], squares.y_mean[: len(ones[0])]])
        loss = HuberLoss(A, problem.Y[:, 0].astype(np.float64), problem.weight, epsilon, strength)
        v, self.n_iter_, converged = loss.minimum(v, tol, max_iter)
        coef = v[: X.shape[1]]
        intercept = float(v[-1] - mean @ coef) if problem.centre else 0.0
        self.coef_, self.intercept_ = coef.astype(X.dtype), X.dtype.type(intercept)
        self.scale_ = loss.at(v)[2]
        self.outliers_ = np.abs(y - X @ coef - intercept) > self.scale_ * epsilon
        if not converged:
            warnings.warn(
                f"HuberRegressor stopped after max_iter={max_iter} steps. Raise max_iter or tol, or bring the columns "
                "of X to one scale (StandardScaler).",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        epsilon, alpha = hyper.get("epsilon", self.epsilon), hyper.get("alpha", self.alpha)
        r = y - X @ coef - intercept
        return huber_value(r, weight, epsilon, best_scale(r, weight, epsilon)) + alpha * np.sum(coef * coef)


def best_scale(r: Any, weight: Any, epsilon: Any) -> Any:
    """The scale s with the least objective for residuals r (n,): s^2 = sum of inliers' w r^2 / (sum w - epsilon^2 sum
    of outliers' w), |r| > epsilon s being outliers.

    Outliers are the k largest |r|, for the first k whose scale leaves the next one in.
    """
    size = stop_gradient(np.abs(r))
    order = np.argsort(-size)
    falling, heavy, square = size[order], stop_gradient(weight)[order], stop_gradient(epsilon) ** 2
    before = lambda x: np.cumsum(x) - x  # sums over the k largest
    inside = np.cumsum((heavy * falling**2)[::-1])[::-1]
    left = np.sum(heavy) - square * before(heavy)
    fits = (square * inside >= left * falling**2) | (left <= 0)  # falling <= epsilon s
    edge = falling[np.argmax(fits)]  # the largest inlier
    inlier = size <= edge
    rest = np.sum(weight) - epsilon**2 * np.sum(np.where(inlier, 0.0, weight))
    return np.sqrt(np.sum(np.where(inlier, weight * r * r, 0.0)) / rest)


def huber_value(r: Any, weight: Any, epsilon: Any, scale: Any) -> Any:
    """sum of weight (s + s H(r / s))."""
    size = np.abs(r)
    outer = size > epsilon * scale
    inner = np.where(outer, 0.0, r) ** 2 / np.maximum(scale, np.finfo(np.float64).tiny)  # the scale may be zero
    return np.sum(weight * (scale + np.where(outer, 2 * epsilon * size - epsilon**2 * scale, inner)))


class HuberLoss:
    """The objective as a function of v = (w, b), the scale being the best one for it that is at least `least`."""

    def __init__(
        self, A: np.ndarray, y: np.ndarray, weight: np.ndarray | None, epsilon: float, strength: np.ndarray
    ):
        self.A, self.y, self.epsilon, self.strength = A, y, epsilon, strength
        self.weight = np.ones(len(y)) if weight is None else weight.astype(np.float64)
        self.least = 0.0

    def at(self, v: np.ndarray) -> tuple[float, np.ndarray, float]:
        """The objective, the residuals and the scale."""
        r = self.y - self.A @ v
        scale = max(float(best_scale(r, self.weight, self.epsilon)), self.least)
        value = float(huber_value(r, self.weight, self.epsilon, scale)) + float(np.sum(self.strength * v * v))
        return value, r, scale

    def step(self, v: np.ndarray, r: np.ndarray, s: float, share: float) -> tuple[np.ndarray, float] | None:
        """A step and what it promises; None if the equations aren't sure.

        It is Newton's with share = 0: outliers have no curvature, and the scale s is eliminated, H = F_vv - F_vs F_sv /
        F_ss. With share = 1 outliers have that of the parabola above their line, and the step never fails to descend.
        """
        outer = np.abs(r) > self.epsilon * s
        pull = np.clip(r / s, -self.epsilon, self.epsilon) * self.weight
        gradient = 2 * (self.strength * v - self.A.T @ pull)
        curved = self.weight * np.where(outer, share * self.epsilon / np.where(outer, np.abs(r), 1), 1 / s)
        found = moments(self.A, r[:, None], curved, centre=False)
        matrix = 2 * found.gram
        matrix[np.diag_indices_from(matrix)] += 2 * self.strength
        spread = float(found.square[0])
        if share == 0 and s > self.least and spread > 0:
            matrix -= np.outer(found.cross, found.cross) * (2 / spread)
        if share < 1:
            try:
                factor = PositiveFactor(matrix)
            except np.linalg.LinAlgError:
                return None
            if factor.condition > 1e13:
                return None
            step = -factor.solve(gradient[:, None])[:, 0]
        else:
            step = -solve_definite(matrix, gradient)
        return step, -float(gradient @ step) / 2

    def minimum(self, v: np.ndarray, tol: float, max_iter: int) -> tuple[np.ndarray, int, bool]:
        """v, the number of steps, and whether the last promised less than tol^2 of the value.

        Where the best line goes exactly through some samples, the best scale is zero and the objective has kinks. So
        the scale is kept from falling by more than a factor of ten at once; if it wants to, the inliers may be those
        samples, and a line through them is tried.
        """
        rounding = 1e-13 * (float(np.max(np.abs(self.y))) or 1.0)
        if self.at(v)[2] <= rounding:  # a line through all samples is on a kink, from where no step leads away
            v = np.where(self.strength > 0, 0.0, v)
        self.least = max(0.1 * self.at(v)[2], rounding)
        v, count, converged = self._descend(v, tol, max_iter)
        while converged:
            value, r, scale = self.at(v)
            if scale > self.least or self.least <= rounding:
                break
            inner, least = np.abs(r) <= self.epsilon * scale, self.least
            through = v + np.linalg.lstsq(self.A[inner], r[inner], rcond=None)[0]
            self.least = rounding
            through, steps, there = self._descend(through, tol, min(10, max_iter - count))
            count += steps
            if there and self.at(through)[0] <= value:
                return through, count, True
            self.least = 0.1 * least
            v, steps, converged = self._descend(v, tol, max_iter - count)
            count += steps
        return v, count, converged

    def _descend(self, v: np.ndarray, tol: float, max_iter: int) -> tuple[np.ndarray, int, bool]:
        value, r, scale = self.at(v)
        share = 0.0
        for count in range(1, max_iter + 1):
            tried = self.step(v, r, scale, share)
            if tried is not None:
                step, promised = tried
                if promised <= max(tol * tol, 1e-15) * abs(value):
                    there, left, s = self.at(v + step)
                    # Beside kinks any step promises little; at the end it leaves inliers and outliers what they are.
                    if np.array_equal(np.abs(left) <= self.epsilon * s, np.abs(r) <= self.epsilon * scale):
                        return (v + step if there < value else v), count, True
                for length in (1.0, 0.5, 0.25, 0.125):
                    new = self.at(v + length * step)
                    if new[0] <= value - 1e-4 * length * promised:
                        break
                if new[0] < value:
                    if value - new[0] > 0.5 * promised:  # as it was promised: nearer to Newton's
                        share = share / 4 if share > 1e-2 else 0.0
                    v, (value, r, scale) = v + length * step, new
                    continue
                if share == 1:  # digits have ended
                    return v, count, True
            share = min(max(0.05, 4 * share), 1.0)
        return v, max_iter, False
