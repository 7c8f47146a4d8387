"""Generalised linear models: means g^-1(X w + b) of a family of distributions, or any loss of X w + b."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import Regressor, positive_number, targets, weights
from wonderland.estimators.families import Family, family_named, loss_of, tweedie
from wonderland.estimators.glm_statistics import GLMStatistics, summary
from wonderland.estimators.links import LINKS, LinkFunction, link_of
from wonderland.estimators.separation import warn_of_runaway
from wonderland.estimators.smooth.estimator import SmoothModel
from wonderland.estimators.smooth.losses import derivatives
from wonderland.estimators.smooth.problem import SmoothProblem


class GLMRegressor(SmoothModel, Regressor):
    """What generalised linear models share. A class says in `_parts` which family, link and numbers it has."""

    NUMBERS = ("alpha",)
    coef_: np.ndarray
    intercept_: Any
    alpha: float
    fit_intercept: bool
    family_: Family | None
    link_: LinkFunction

    def _parts(self) -> tuple[Family | None, LinkFunction, tuple[float, ...], Callable[..., Any]]:
        """Family (None of a loss of one's own), link, numbers of the family, and the loss of predictors."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None, exposure: Any = None) -> Any:
        """Fit to X (n, features) and y (n,); a weight of 2 counts a sample twice, 0 leaves it out.

        `offset` (n,) is added to X w + b. `exposure` (n,), above zero, multiplies the mean of a log link: the time,
        area or number of people that counts belong to.
        """
        X, y, weight = self._training_data(X, y, sample_weight)
        family, link, numbers, loss = self._parts()
        alpha = positive_number(self.alpha, "alpha", zero=True)
        y = y.astype(np.float64)
        if family is not None:
            family.check(y)
        s = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        shift = _shift(len(X), link, offset, exposure)
        if not np.all(kept := s > 0):
            X, y, s, shift = X[kept], y[kept], s[kept], None if shift is None else shift[kept]
        problem = SmoothProblem(
            X, y, s, derivatives(loss), l2=alpha * float(np.sum(s)), intercept=bool(self.fit_intercept), offset=shift,
            numbers=numbers,
        )  # fmt: skip
        w = self._minimise(problem, _start(problem, family, link))
        if problem.l2 == 0 and link.everywhere:
            warn_of_runaway(self, problem, w)
        self.family_, self.link_, self._numbers, self._shifted = family, link, numbers, shift is not None
        self.coef_ = w[: problem.p].astype(X.dtype)
        self.intercept_ = float(w[-1]) if self.fit_intercept else 0.0
        return self

    def _apply(self, X: Any, shift: Any = 0.0) -> Any:
        return self.link_.inverse(X @ self.coef_ + np.asarray(self.intercept_, self.coef_.dtype) + shift)

    def predict(self, X: Any, *, offset: Any = None, exposure: Any = None) -> np.ndarray:
        """The means at X (n, features): (n,), with an offset or exposure as in `fit`."""
        X = self._inputs(X)
        shift = _shift(len(X), self.link_, offset, exposure)
        return np.asarray(self._apply(X, 0.0 if shift is None else shift))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None, exposure: Any = None) -> float:
        """D^2, the share of the deviance that the model explains: 1 - D(y, mean) / D(y, mean of y); at most 1."""
        check_is_fitted(self)
        mean = np.asarray(self.predict(X, offset=offset, exposure=exposure), np.float64)
        y = targets(y, len(mean))
        if self.family_ is None:
            raise AttributeError("score is a ratio of deviances, and a loss of one's own has none: name a family")
        self.family_.check(y)
        return self.family_.explained(y, mean, weights(sample_weight, mean), *self._numbers)

    def _pairs(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if self._shifted:
            raise ValueError(
                f"{type(self).__name__} was fitted with an offset or exposure, which reports and plots of X and y "
                "don't take: report() shows the fit, score(X, y, exposure=...) how well it predicts"
            )
        return super()._pairs(X, y)

    def _score_name(self) -> str:
        return "D²"

    @property
    def statistics_(self) -> GLMStatistics:
        """Numbers of the fit: deviance, null_deviance, pearson_chi2, df_resid, scale, log_likelihood, aic, bic."""
        problem, eta = self._kept("statistics_")
        if self.family_ is None:
            raise AttributeError("statistics_ belong to a family of distributions; a loss of one's own has none")
        return GLMStatistics(problem, eta, self.family_, self.link_)

    @property
    def covariance_(self) -> np.ndarray:
        """The scale times the inverse of Fisher's (expected) information, with the penalty: features, intercept last.

        As in statsmodels. Of a loss of one's own the inverse of the Hessian, as if it were a -log-likelihood.
        """
        return super().covariance_

    def _covariance_now(self) -> np.ndarray:
        return super()._covariance_now() if self.family_ is None else self.statistics_.covariance

    @property
    def standard_errors_(self) -> np.ndarray:
        """Square roots of the diagonal of `covariance_`: features, intercept last."""
        return np.sqrt(np.diagonal(self.covariance_))

    def summary(self, confidence: float = 0.95) -> str:
        """A table of the fit as text: coefficients with errors, z, p-values and intervals; deviances and criteria.

        Errors are those of a maximum of the likelihood: with a penalty they don't know of its pull towards zero.
        """
        problem, _ = self._kept("summary")
        statistics = None if self.family_ is None else self.statistics_
        return summary(self, problem.total, statistics, self.coefficient_table(confidence), confidence)

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        _, _, numbers, loss = self._parts()
        losses = loss(X @ coef + intercept, y, *numbers)
        alpha = hyper.get("alpha", self.alpha)
        return np.sum(weight * losses) / np.sum(weight) + 0.5 * alpha * np.sum(coef**2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            family = self._parts()[0]
            tags.target_tags.positive_only = family is not None and family.least == 0
        except ValueError:  # a parameter that `fit` will refuse
            pass
        return tags


class GLM(GLMRegressor):
    """Means g^-1(w' x + b) of a family of distributions: Gaussian, Poisson, gamma, binomial, and more.

    `fit` minimises, over samples i with weights s_i and for the family's unit deviance d,

        sum_i s_i d(y_i, mean_i) / (2 sum_i s_i) + alpha/2 |w|^2

    With `alpha=0` that is the maximum of the likelihood. All derivatives come from the family's loss as NumPy code.

        model = GLM("poisson").fit(X, counts, exposure=years)
        print(model.summary())                                  # coefficients with errors and intervals, deviance, AIC

    | family | y | variance | link |
    |---|---|---|---|
    | "gaussian" | any | 1 | identity |
    | "poisson" | y >= 0 | m | log |
    | "gamma" | y > 0 | m^2 | inverse |
    | "inverse-gaussian" | y > 0 | m^3 | inverse-squared |
    | "binomial" | 0 <= y <= 1 | m (1 - m) | logit |
    | "negative-binomial" | y >= 0 | m + `dispersion` m^2 | log |
    | "tweedie" | by `power` | m^`power` | log |

    The `link` in the table is the default; others are "probit", "cloglog", "sqrt", or a pair of functions
    (g, inverse of g). A family may also be a loss of one's own, any NumPy code of predictors and targets:

        GLM(lambda eta, y: np.log(np.cosh(eta - y)))            # a robust regression; its link is the identity

    `solver`, `max_iter`, `tol` are those of `LogisticRegression`. Fitted: `coef_` (features,), `intercept_`, `n_iter_`;
    `covariance_`, `standard_errors_` and `statistics_` (deviance, null_deviance, pearson_chi2, df_resid, scale,
    log_likelihood, aic, bic), computed when asked for. Where a likelihood has no maximum (counts that are all zero in a
    group) a `ConvergenceWarning` names the features.

    P. McCullagh, J. Nelder, Generalized Linear Models (1989).
    """

    def __init__(
        self, family: Any = "gaussian", *, link: Any = None, alpha: float = 0.0, power: float = 1.5,
        dispersion: float = 1.0, fit_intercept: bool = True, solver: str = "auto", max_iter: int = 100,
        tol: float = 1e-6, warm_start: bool = False,
    ):  # fmt: skip
        self.family = family
        self.link = link
        self.alpha = alpha
        self.power = power
        self.dispersion = dispersion
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start

    def _parts(self) -> tuple[Family | None, LinkFunction, tuple[float, ...], Callable[..., Any]]:
        if callable(self.family):
            return None, link_of("identity" if self.link is None else self.link), (), self.family
        family, numbers = family_named(self.family), ()
        link = link_of(family.link if self.link is None else self.link)
        if family.name == "tweedie":
            family, numbers = tweedie(self.power)
        elif family.name == "negative-binomial":
            numbers = (positive_number(self.dispersion, "dispersion"),)
        return family, link, numbers, loss_of(family, link)


def _shift(n: int, link: LinkFunction, offset: Any, exposure: Any) -> np.ndarray | None:
    """What is added to predictors, (n,)."""
    shift = None
    for name, values in (("offset", offset), ("exposure", exposure)):
        if values is None:
            continue
        values = np.asarray(values, np.float64)
        if values.shape != (n,) or not np.all(np.isfinite(values)):
            raise ValueError(f"{name} has one finite number for each sample, shape ({n},), got {values.shape}")
        if name == "exposure":
            if link is not LINKS["log"]:
                raise ValueError(f"exposure multiplies means by a log link; this link is {link.name!r}: use offset=")
            if not np.all(values > 0):
                raise ValueError(f"exposure is above 0, got {values.min():g}")
            values = np.log(values)
        shift = values if shift is None else shift + values
    return shift


def _start(problem: SmoothProblem, family: Family | None, link: LinkFunction) -> np.ndarray:
    """The best intercept alone; where predictors have bounds that it doesn't keep, least squares of g(y)."""
    w = np.zeros(problem.shape)
    y, s = problem.y[: problem.n], problem.s[: problem.n]
    shift = np.zeros(problem.n) if problem.offset is None else problem.offset[: problem.n]
    if family is None:
        return w
    mean = float(np.average(y, weights=s))
    small = 1e-6 * min(1.0, float(np.abs(y).max()) or 1.0)
    low = family.least + small if np.isfinite(family.least) else -np.inf
    mean = float(np.clip(mean, low, family.most - small))
    if problem.intercept:
        w[-1] = float(np.average(link.function(mean) - shift, weights=s))
    bounded = np.isfinite(family.least) and not link.everywhere
    if not bounded or np.isfinite(problem.at(w).value):
        return w
    root = np.sqrt(s)[:, None]
    A = np.column_stack([problem.X, np.ones(problem.n)]) if problem.intercept else problem.X
    eta = link.function(np.clip((y + mean) / 2, low, family.most - small)) - shift
    w = np.linalg.lstsq(A * root, eta * root[:, 0], rcond=None)[0]
    if not np.isfinite(problem.at(w).value):
        raise ValueError(
            f"no start was found whose means belong to the family {family.name!r} with the link {link.name!r}: "
            "use link='log', or an intercept"
        )
    return w
