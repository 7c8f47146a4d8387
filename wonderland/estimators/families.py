"""Families of distributions: losses of means as NumPy code, and what a fit reports about them.

A loss is -log p(y | mean) per unit of scale, without what depends on y alone: half of the deviance, but for that.
Derivatives, and with them all of the fitting, come from these lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.special as sp

from wonderland.estimators.links import LinkedMean, LinkFunction


@dataclass(frozen=True)
class Family:
    """A family; `numbers` (a power, a dispersion) follow the arguments of its functions."""

    name: str
    loss: Callable[..., Any]  # of LinkedMean and y
    variance: Callable[..., Any]  # of the mean, in units of scale
    deviance: Callable[..., Any]  # of y and mean
    log_density: Callable[..., Any]  # of y, mean and scale
    link: str  # where none is given
    least: float = -np.inf  # y is this or more,
    above: bool = False  # or more only
    most: float = np.inf
    scale: float | None = 1.0  # None: estimated from the residuals

    def __reduce__(self) -> tuple:
        return (_restored, (self.name, self.least, self.above))

    def explained(self, y: np.ndarray, mean: np.ndarray, weight: np.ndarray | None, *numbers: float) -> float:
        """D^2, the share of the deviance that is explained: 1 - D(y, mean) / D(y, mean of y)."""
        null = np.full_like(y, np.average(y, weights=weight))
        left, whole = (np.average(self.deviance(y, m, *numbers), weights=weight) for m in (mean, null))
        return float(1 - left / whole) if whole > 0 else float(left <= 0)

    def check(self, y: np.ndarray) -> None:
        """Raise if a target can't come from this family."""
        wrong = (y < self.least) | (y > self.most) | (self.above & (y == self.least))
        if np.any(wrong):
            place = int(np.argmax(wrong))
            range_ = f"above {self.least:g}" if self.above else f"at least {self.least:g}"
            range_ += f" and at most {self.most:g}" if np.isfinite(self.most) else ""
            raise ValueError(f"y of the family {self.name!r} is {range_}, got {y[place]:g} in sample {place}")


def _entropy(y: Any, mean: Any) -> Any:
    """y log(y / mean), 0 at y = 0."""
    return sp.xlogy(y, y) - sp.xlogy(y, mean)


def _log_gamma_density(y: Any, mean: Any, scale: Any) -> Any:
    shape = 1 / scale
    return shape * np.log(shape * y / mean) - shape * y / mean - sp.gammaln(shape) - np.log(y)


def _log_tweedie_density(y: Any, mean: Any, scale: float, power: float) -> Any:
    """Of 1 < power < 2, a Poisson number of gamma variables: Wright's function has their sum (Dunn, Smyth 2005)."""
    if not 1 < power < 2 or not hasattr(sp, "log_wright_bessel"):
        return np.full(np.shape(y), np.nan)
    a = (2 - power) / (power - 1)
    positive = np.where(y > 0, y, 1.0)
    x = ((power - 1) * scale / positive) ** -a / ((2 - power) * scale)
    theta, kappa = mean ** (1 - power) / (1 - power), mean ** (2 - power) / (2 - power)
    mass = np.where(y > 0, -np.log(positive) + sp.log_wright_bessel(a, 0.0, x), 0.0)
    return (y * theta - kappa) / scale + mass


def _log_negative_binomial(y: Any, mean: Any, scale: float, a: float) -> Any:
    known = sp.gammaln(y + 1 / a) - sp.gammaln(1 / a) - sp.gammaln(y + 1)
    return known + sp.xlogy(y, a * mean) - (y + 1 / a) * np.log1p(a * mean)


def _tweedie_deviance(y: Any, mean: Any, power: float) -> Any:
    own = np.where(y > 0, np.abs(y), 0.0) ** (2 - power) if power < 2 else y ** (2 - power)
    known = own / ((1 - power) * (2 - power))
    return 2 * (known - y * mean ** (1 - power) / (1 - power) + mean ** (2 - power) / (2 - power))


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "gaussian", lambda m, y: 0.5 * (y - m.value) ** 2, lambda m: np.ones_like(m), lambda y, m: (y - m) ** 2,
            lambda y, m, scale: -0.5 * ((y - m) ** 2 / scale + np.log(2 * np.pi * scale)), "identity", scale=None,
        ),
        Family(
            "poisson", lambda m, y: m.value - y * m.log, lambda m: m, lambda y, m: 2 * (_entropy(y, m) - (y - m)),
            lambda y, m, scale: sp.xlogy(y, m) - m - sp.gammaln(y + 1), "log", 0.0,
        ),
        Family(
            "gamma", lambda m, y: y * np.exp(-m.log) + m.log, lambda m: m**2,
            lambda y, m: 2 * (y / m - 1 - np.log(y / m)), _log_gamma_density, "inverse", 0.0, True, scale=None,
        ),
        Family(
            "inverse-gaussian", lambda m, y: 0.5 * y * np.exp(-2 * m.log) - np.exp(-m.log), lambda m: m**3,
            lambda y, m: (y - m) ** 2 / (y * m**2),
            lambda y, m, scale: -0.5 * ((y - m) ** 2 / (scale * y * m**2) + np.log(2 * np.pi * scale * y**3)),
            "inverse-squared", 0.0, True, scale=None,
        ),
        Family(
            "binomial", lambda m, y: -(y * m.log + (1 - y) * m.log_complement), lambda m: m * (1 - m),
            lambda y, m: 2 * (_entropy(y, m) + _entropy(1 - y, 1 - m)),
            lambda y, m, scale: sp.xlogy(y, m) + sp.xlog1py(1 - y, -m), "logit", 0.0, most=1.0,
        ),
        Family(
            "negative-binomial", lambda m, y, a: (y + 1 / a) * np.log1p(a * m.value) - y * m.log,
            lambda m, a: m + a * m**2,
            lambda y, m, a: 2 * (_entropy(y, m) - (y + 1 / a) * (np.log1p(a * y) - np.log1p(a * m))),
            _log_negative_binomial, "log", 0.0,
        ),
        Family(
            "tweedie",
            lambda m, y, p: np.exp((2 - p) * m.log) / (2 - p) - y * np.exp((1 - p) * m.log) / (1 - p),
            lambda m, p: m**p, _tweedie_deviance, _log_tweedie_density, "log", 0.0, scale=None,
        ),
    )
}  # fmt: skip


def family_named(name: Any) -> Family:
    """The family of a name."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"family is one of {', '.join(map(repr, FAMILIES))}, or a loss(eta, y), got {name!r}")
    return FAMILIES[name]


def _restored(name: str, least: float, above: bool) -> Family:
    return replace(FAMILIES[name], least=least, above=above)


def tweedie(power: Any) -> tuple[Family, tuple[float, ...]]:
    """The family whose variance is mean^power, and its numbers: some powers have names of their own."""
    if isinstance(power, bool) or not isinstance(power, (int, float, np.number)) or not np.isfinite(power):
        raise ValueError(f"power is a number, 0 or less, or 1 and more; got {power!r}")
    if 0 < power < 1:
        raise ValueError(f"power is 0 or less, or 1 and more: no distribution has a variance of mean^{power:g}")
    named = {0.0: "gaussian", 1.0: "poisson", 2.0: "gamma"}.get(float(power))
    if named:
        return FAMILIES[named], ()
    least = 0.0 if power > 1 else -np.inf
    return replace(FAMILIES["tweedie"], least=least, above=bool(power > 2)), (float(power),)


@lru_cache(maxsize=64)
def loss_of(family: Family, link: LinkFunction) -> Callable[..., Any]:
    """The loss of predictors, l(eta, y, *numbers): one object for each pair, so that it is compiled once."""
    return lambda eta, y, *numbers: family.loss(LinkedMean(link, eta), y, *numbers)
