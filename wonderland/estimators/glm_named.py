"""Generalised linear models under scikit-learn's names: Poisson, gamma, Tweedie, with its penalties and links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.estimators.base import one_of
from wonderland.estimators.families import Family, family_named, loss_of, tweedie
from wonderland.estimators.glm import GLMRegressor
from wonderland.estimators.links import LinkFunction, link_of

Parts = tuple[Family | None, LinkFunction, tuple[float, ...], Callable[..., Any]]


class PoissonRegressor(GLMRegressor):
    """Counts with means exp(w' x + b): `GLM("poisson", alpha=1.0)` under scikit-learn's name.

    `fit` minimises sum_i s_i (mean_i - y_i log(mean_i)) / sum_i s_i + alpha/2 |w|^2.

        PoissonRegressor(alpha=1e-3).fit(X, counts, exposure=years).predict(X)
    """

    def __init__(
        self, *, alpha: float = 1.0, fit_intercept: bool = True, solver: str = "auto", max_iter: int = 100,
        tol: float = 1e-4, warm_start: bool = False,
    ):  # fmt: skip
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start

    def _parts(self) -> Parts:
        return _with_log("poisson")


class GammaRegressor(GLMRegressor):
    """Positive numbers with means exp(w' x + b) and a spread in proportion: `GLM("gamma", link="log", alpha=1.0)`.

    `fit` minimises sum_i s_i (y_i / mean_i + log(mean_i)) / sum_i s_i + alpha/2 |w|^2.

        GammaRegressor(alpha=1e-3).fit(X, costs).predict(X)
    """

    def __init__(
        self, *, alpha: float = 1.0, fit_intercept: bool = True, solver: str = "auto", max_iter: int = 100,
        tol: float = 1e-4, warm_start: bool = False,
    ):  # fmt: skip
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start

    def _parts(self) -> Parts:
        return _with_log("gamma")


class TweedieRegressor(GLMRegressor):
    """Numbers whose variance is mean^power: 0 is Gaussian, 1 Poisson, 2 gamma, 3 inverse Gaussian.

    Between 1 and 2 they are sums of a random number of gamma variables, with zeros among them: the claims of a year.
    `link="auto"` is the identity of powers up to 0, and otherwise the logarithm.

        TweedieRegressor(power=1.5, alpha=1e-3).fit(X, claims, sample_weight=years)
    """

    def __init__(
        self, *, power: float = 0.0, alpha: float = 1.0, fit_intercept: bool = True, link: str = "auto",
        solver: str = "auto", max_iter: int = 100, tol: float = 1e-4, warm_start: bool = False,
    ):  # fmt: skip
        self.power = power
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.link = link
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start

    def _parts(self) -> Parts:
        family, numbers = tweedie(self.power)
        name = one_of(self.link, "link", ("auto", "identity", "log"))
        link = link_of(("identity" if self.power <= 0 else "log") if name == "auto" else name)
        return family, link, numbers, loss_of(family, link)


def _with_log(name: str) -> Parts:
    family, link = family_named(name), link_of("log")
    return family, link, (), loss_of(family, link)
