"""What a generalised linear model reports beside its coefficients: deviances, criteria, a table of text."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.families import Family
from wonderland.estimators.links import LinkFunction
from wonderland.estimators.smooth.auto import minimise
from wonderland.estimators.smooth.hessian import SymmetricFactors, second_moments
from wonderland.estimators.smooth.problem import SmoothProblem
from wonderland.transform.derivatives import jvp


class GLMStatistics:
    """Numbers of a fit, computed when asked for: `GLM(...).fit(X, y).statistics_`.

    Weights count samples: a weight of 2 is a sample twice, in degrees of freedom as well.
    """

    def __init__(self, problem: SmoothProblem, eta: np.ndarray, family: Family, link: LinkFunction):
        n = problem.n
        self._problem, self._family, self._link = problem, family, link
        self._numbers = problem.numbers
        self._eta, self._y, self._weight = eta[:n], problem.y[:n], problem.s[:n]
        self._mean: np.ndarray = np.asarray(link.inverse(self._eta))
        self._size = problem.p + problem.intercept

    @property
    def deviance(self) -> float:
        """Sum of weights times unit deviances at the fitted means."""
        return float(self._weight @ self._family.deviance(self._y, self._mean, *self._numbers))

    @property
    def null_deviance(self) -> float:
        """The deviance of a model with an intercept alone (and the offset)."""
        full, y, s, link = self._problem, self._y, self._weight, self._link
        average = np.average(y, weights=s)
        mean = np.full_like(self._mean, average)
        if full.offset is not None:
            offset = full.offset[: full.n]
            null = SmoothProblem(full.X[:, :0], y, s, full.loss, offset=offset, numbers=full.numbers)
            start = np.array([np.average(link.function(average) - offset, weights=s)])
            mean = link.inverse(minimise(null, start, "newton-cholesky", 1e-10, 100).point.eta[: full.n])
        return float(s @ self._family.deviance(y, mean, *self._numbers))

    @property
    def pearson_chi2(self) -> float:
        """Sum of weights times (y - mean)^2 / variance."""
        squares = (self._y - self._mean) ** 2 / self._family.variance(self._mean, *self._numbers)
        return float(self._weight @ squares)

    @property
    def df_resid(self) -> float:
        """Degrees of freedom of the residuals: the number of samples less that of parameters."""
        return self._problem.total - self._size

    @property
    def scale(self) -> float:
        """The dispersion: 1 of Poisson, binomial and negative binomial; otherwise Pearson's chi^2 / `df_resid`."""
        if self._family.scale is not None:
            return self._family.scale
        return self.pearson_chi2 / self.df_resid if self.df_resid > 0 else float("nan")

    @property
    def log_likelihood(self) -> float:
        """The logarithm of the likelihood at `scale`; of a Gaussian with the identity as link, at its best scale."""
        y, mean, s = self._y, self._mean, self._weight
        scale = self.scale
        if self._family.name == "gaussian" and self._link.name == "identity":
            scale = float(s @ (y - mean) ** 2) / float(np.sum(s))
        return float(s @ self._family.log_density(y, mean, scale, *self._numbers))

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 parameters - 2 log-likelihood."""
        return 2 * self._size - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """The Bayesian criterion, parameters log(samples) - 2 log-likelihood."""
        return self._size * float(np.log(self._problem.total)) - 2 * self.log_likelihood

    @property
    def covariance(self) -> np.ndarray:
        """`scale` times the inverse of Fisher's (expected) information, with the penalty: features, intercept last."""
        problem, eta = self._problem, self._eta
        mean, slope = jvp(self._link.inverse, (eta,), (np.ones_like(eta),))
        H = second_moments(problem, self._weight * slope**2 / self._family.variance(mean, *self._numbers))
        H[np.arange(problem.p), np.arange(problem.p)] += problem.l2
        return self.scale * SymmetricFactors(H).inverse()

    def lines(self) -> list[str]:
        """All numbers, as two lines of text."""
        return [
            f"deviance {self.deviance:.6g}   null deviance {self.null_deviance:.6g}   df {self.df_resid:g}   "
            f"Pearson chi2 {self.pearson_chi2:.6g}   scale {self.scale:.6g}",
            f"log-likelihood {self.log_likelihood:.6g}   AIC {self.aic:.6g}   BIC {self.bic:.6g}",
        ]


def summary(
    model: Any, samples: float, statistics: GLMStatistics | None, table: dict[str, Any], confidence: float
) -> str:
    """A fit in lines: what the model is, its numbers, and a `coefficient_table` with errors, z, p-values, intervals."""
    name = "a loss of its own" if model.family_ is None else model.family_.name
    alpha = f", alpha {model.alpha:g}" if model.alpha else ""
    wide = max(map(len, table["feature"]))
    low, high = f"[{(1 - confidence) / 2:.3g}", f"{(1 + confidence) / 2:.3g}]"
    head = f"{'':{wide}} {'coef':>11} {'std err':>11} {'z':>9} {'P>|z|':>7} {low:>11} {high:>11}"
    rule = "-" * len(head)
    columns = [table[column] for column in ("feature", "coefficient", "error", "p", "lower", "upper")]
    rows = [
        f"{feature:{wide}} {value:11.5g} {error:11.5g} {value / error if error else np.nan:9.3f} {p:7.3f} "
        f"{lower:11.5g} {upper:11.5g}"
        for feature, value, error, p, lower, upper in zip(*columns, strict=True)
    ]
    return "\n".join([
        f"{type(model).__name__}: {name}, link {model.link_.name}{alpha}",
        f"samples {samples:g}   parameters {len(rows)}   steps {model.n_iter_}",
        *(() if statistics is None else statistics.lines()),
        rule, head, rule, *rows, rule,
    ])  # fmt: skip
