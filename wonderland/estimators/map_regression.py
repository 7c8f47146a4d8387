"""Maximum a posteriori: a likelihood and a prior come in, the coefficients at the posterior's mode go out."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.special
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import Regressor, one_of, positive_number, whole_number
from wonderland.estimators.kinks import Kinks, factored
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.map_solver import ModeProblem, minimised
from wonderland.estimators.priors import GaussianPrior, LaplacePrior, StudentPrior, student
from wonderland.transform.derivatives import grad

LIKELIHOODS = ("gaussian", "student", "laplace", "poisson")


class MAPRegressor(LinearModel, Regressor):
    """The w and b of the largest p(y | X w + b) p(w): each penalty of a loss is a prior, and each loss a likelihood.

        max over w, b of  sum_i log p(y_i | x_i'w + b) + log p(w)                                      (E.3.12)

    The prior is "gaussian", "laplace", "student" (3 degrees of freedom) or "flat", with `prior_scale` tau; an object
    such as `LaplacePrior(scale=[1, 2, 1])`; or any function of w (features,) that returns its log density, as NumPy
    code, which is differentiated. The intercept's prior is flat. Likelihoods have `noise_scale` sigma:

        "gaussian"    (y - eta)^2 / (2 sigma^2)        "laplace"   |y - eta| / sigma
        "student"     of `noise_df` degrees of freedom "poisson"   y ~ Poisson(exp eta), no sigma

    With Gaussian noise a Gaussian prior is ridge regression with alpha = sigma^2 / tau^2, and a Laplace prior the lasso
    with alpha = sigma^2 / (n tau), in scikit-learn's objectives for n samples.

        MAPRegressor(prior="laplace", prior_scale=0.1).fit(X, y).coef_          # some of them exactly zero
        MAPRegressor(prior=lambda w: -np.sum(np.log(np.cosh(w)))).fit(X, y)

    Found by Newton's method, and exactly on kinks: a Laplace prior's coefficients are zeros, a Laplace likelihood's
    residuals. With Student's t as a prior or likelihood it is a mode, and there may be others. Where the data don't
    determine w (p > n or equal columns, and a flat prior) it is one of the best. A Poisson likelihood without a prior
    has no maximum if a plane separates samples with y = 0 from the others.

    Parameters: `prior`, `prior_scale`, `likelihood`, `noise_scale`, `noise_df`, `fit_intercept`, `max_iter`, and `tol`,
    what a step must gain at least relative to the log posterior.

    Attributes: `coef_`, `intercept_`, `log_posterior_` (without the evidence, which needs an integral), `n_iter_`;
    `covariance_`, the inverse of the Hessian there (Laplace's approximation), if the posterior has no kinks.
    """

    NUMBERS = ("prior_scale", "noise_scale")

    def __init__(
        self, prior: Any = "gaussian", *, prior_scale: float = 1.0, likelihood: str = "gaussian",
        noise_scale: float = 1.0, noise_df: float = 4.0, fit_intercept: bool = True, max_iter: int = 200,
        tol: float = 1e-10,
    ):  # fmt: skip
        self.prior, self.prior_scale, self.likelihood = prior, prior_scale, likelihood
        self.noise_scale, self.noise_df, self.fit_intercept = noise_scale, noise_df, fit_intercept
        self.max_iter, self.tol = max_iter, tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MAPRegressor:
        """The mode for X (n, features), y (n,) and weights (n,)."""
        X, y, weight = self._training_data(X, y, sample_weight)
        self._check()
        if self.likelihood == "poisson" and np.any(y < 0):
            raise ValueError(f"a Poisson likelihood is of counts, none negative: y has {np.min(y)}")
        dtype, features = X.dtype, X.shape[1]
        X, y = X.astype(np.float64), y.astype(np.float64)
        weight = np.ones(len(y)) if weight is None else weight.astype(np.float64)
        # Centred columns: the flat intercept takes up the difference, and no digits are lost to large means.
        mean = weight @ X / np.sum(weight) if self.fit_intercept else np.zeros(features)
        design = np.column_stack([X - mean, np.ones(len(y))]) if self.fit_intercept else X
        problem = self._problem(design, y, weight, features)
        w, steps = self._minimised(problem, y, weight)
        if steps is None:
            warnings.warn(
                f"MAPRegressor still gains after {self.max_iter} steps: raise max_iter or tol, scale the features, or "
                "take a stronger prior",
                ConvergenceWarning, stacklevel=2,
            )  # fmt: skip
        self.n_iter_ = steps or self.max_iter
        self.log_posterior_ = -problem.value(w)
        self._curvature = problem.model(w)[1] if problem.kinks is None else None
        self._centre = mean
        self.coef_ = w[:features].astype(dtype)
        self.intercept_ = dtype.type(w[-1] - mean @ w[:features]) if self.fit_intercept else 0.0
        return self

    def _check(self) -> None:
        one_of(self.likelihood, "likelihood", LIKELIHOODS)
        for name in ("prior_scale", "noise_scale", "noise_df"):
            positive_number(getattr(self, name), name)
        positive_number(self.tol, "tol", zero=True)
        whole_number(self.max_iter, "max_iter")
        if isinstance(self.prior, str):
            one_of(self.prior, "prior", ("gaussian", "laplace", "student", "flat"))
        elif not (callable(self.prior) or hasattr(self.prior, "log_density")):
            raise TypeError(
                "prior is a name, an object with log_density(w), or a function of w that returns its log density, got "
                f"{self.prior!r}"
            )

    def _prior(self, scale: Any) -> Any:
        """(log density, kinks) of w: the second is None, or a function of the number of features."""
        named = {"gaussian": GaussianPrior, "laplace": LaplacePrior, "student": StudentPrior}
        if isinstance(self.prior, str):
            prior: Any = None if self.prior == "flat" else named[self.prior](scale=scale)
        else:
            prior = self.prior
        if prior is None:
            return (lambda w: 0.0 * np.sum(w)), None
        return (prior.log_density if hasattr(prior, "log_density") else prior), getattr(prior, "l1", None)

    def _losses(self, y: Any, scores: Any, scale: Any) -> Any:
        """-log p(y | scores), one for each sample."""
        if self.likelihood == "poisson":
            return np.exp(scores) - y * scores + scipy.special.gammaln(y + 1)
        away = y - scores
        if self.likelihood == "gaussian":
            return 0.5 * (away / scale) ** 2 + np.log(scale) + 0.5 * math.log(2 * math.pi)
        if self.likelihood == "student":
            return student(away, scale, self.noise_df)
        return np.abs(away) / scale + np.log(2 * scale)

    def _problem(self, design: np.ndarray, y: np.ndarray, weight: np.ndarray, features: int) -> ModeProblem:
        density, l1 = self._prior(self.prior_scale)
        try:
            one = np.asarray(density(np.zeros(features)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"the prior's log density failed at w = zeros({features}): {error}") from error
        if one.shape != ():
            raise ValueError(f"a prior's log density of w ({features},) is one number, got shape {one.shape}: sum it")
        losses = lambda scores: self._losses(y, scores, self.noise_scale)
        penalty = lambda w: -density(w[:features])
        rows, offsets, rates = [], [], []
        if l1 is not None:
            rate, centre = (np.broadcast_to(np.asarray(a, np.float64), (features,)) for a in l1(features))
            rows, offsets, rates = [np.eye(features, design.shape[1])], [centre], [rate]
            penalty = lambda w: -density(w[:features]) - np.sum(rate * np.abs(w[:features] - centre))
        if self.likelihood == "laplace":
            rows, offsets, rates = [*rows, design], [*offsets, y], [*rates, weight / self.noise_scale]
            losses = lambda scores: math.log(2 * self.noise_scale) + 0.0 * scores
        if not rows:
            return ModeProblem(design, losses, weight, penalty, None)
        rates = np.concatenate(rates)
        there = rates > 0
        kinks = Kinks(np.concatenate(rows)[there], np.concatenate(offsets)[there], rates[there])
        return ModeProblem(design, losses, weight, penalty, kinks if np.any(there) else None)

    def _minimised(self, problem: ModeProblem, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, int | None]:
        w = np.zeros(problem.design.shape[1])
        if self.fit_intercept:
            mean = weight @ y / np.sum(weight)
            w[-1] = mean if self.likelihood != "poisson" else math.log(max(mean, 1e-3))
        if self.likelihood == "student":  # from the mode of Gaussian noise
            start = replace(problem, losses=lambda scores: 0.5 * ((y - scores) / self.noise_scale) ** 2)
            w, _ = minimised(start, w, self.max_iter, 1e-6)
        return minimised(problem, w, self.max_iter, self.tol)

    @property
    def covariance_(self) -> np.ndarray:
        """The inverse of the Hessian of -log posterior at the mode: of `coef_`, and of the intercept last."""
        check_is_fitted(self)
        if self._curvature is None:
            raise AttributeError(
                "a prior with kinks has no curvature there, so this posterior's covariance isn't known"
            )
        size, solve = len(self._curvature), factored(self._curvature)
        covariance = np.stack([solve(unit) for unit in np.eye(size)])
        if not self.fit_intercept:
            return covariance
        change = np.eye(size)
        change[-1, :-1] = -self._centre
        return change @ covariance @ change.T

    def _apply(self, X: Any) -> Any:
        scores = super()._apply(X)
        return np.exp(scores) if self.likelihood == "poisson" else scores

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        density, _ = self._prior(hyper.get("prior_scale", self.prior_scale))
        losses = self._losses(y, X @ coef + intercept, hyper.get("noise_scale", self.noise_scale))
        return np.sum(weight * losses) - density(coef)

    def _optimality(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> tuple[Any, Any]:
        """The gradient; of coefficients with kinks, what a proximal gradient step changes."""
        if self.likelihood == "laplace":
            raise ValueError(
                "coefficients() of a Laplace likelihood, whose residuals are on kinks, have no derivatives here: take "
                'likelihood="student"'
            )
        _, l1 = self._prior(hyper.get("prior_scale", self.prior_scale))
        if l1 is None:
            return super()._optimality(coef, intercept, X, y, weight, **hyper)
        rate, centre = l1(np.shape(X)[1])

        def smooth(both: Any) -> Any:
            w, b = both
            return self._objective(w, b, X, y, weight, **hyper) - np.sum(rate * np.abs(w - centre))

        slope, of_intercept = grad(smooth)((coef, intercept))
        goal = coef - slope - centre
        return coef - centre - np.sign(goal) * np.maximum(np.abs(goal) - rate, 0), of_intercept
