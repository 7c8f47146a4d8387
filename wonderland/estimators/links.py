"""Link functions g(mean) = eta of generalised linear models, by their inverses in NumPy code.

A family's loss asks a `LinkedMean` for the mean, its logarithm, and the logarithm of 1 - mean; a link that knows these
without a detour (log: eta itself; logit: -log(1 + exp(-eta))) keeps tails exact, derivatives of it included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

Formula = Callable[[Any], Any]


class LinkFunction:
    """g and its inverse; `everywhere` if any eta is allowed, otherwise eta > 0 (of a link of one's own: unknown)."""

    log_mean: Any
    log_complement: Any

    def __init__(
        self, name: str, function: Formula, inverse: Formula, *, log_mean: Formula | None = None,
        log_complement: Formula | None = None, everywhere: bool = False,
    ):  # fmt: skip
        self.name = name
        self.function = function
        self.inverse = inverse
        self.log_mean = log_mean or (lambda eta: np.log(inverse(eta)))
        self.log_complement = log_complement or (lambda eta: np.log1p(-inverse(eta)))
        self.everywhere = everywhere

    def __reduce__(self) -> tuple:
        return (link_of, (self.name if self.name in LINKS else (self.function, self.inverse),))


class LinkedMean:
    """What a loss may ask of the mean at predictors eta."""

    link: Any
    eta: Any

    def __init__(self, link: LinkFunction, eta: Any):
        self.link, self.eta = link, eta

    @property
    def value(self) -> Any:
        return self.link.inverse(self.eta)

    @property
    def log(self) -> Any:
        return self.link.log_mean(self.eta)

    @property
    def log_complement(self) -> Any:
        """log(1 - mean), of means that are probabilities."""
        return self.link.log_complement(self.eta)


LINKS = {
    link.name: link
    for link in (
        LinkFunction("identity", lambda m: m, lambda e: e),
        LinkFunction("log", np.log, np.exp, log_mean=lambda e: e, everywhere=True),
        LinkFunction(
            "logit", lambda m: np.log(m) - np.log1p(-m), lambda e: np.exp(-np.logaddexp(0.0, -e)),
            log_mean=lambda e: -np.logaddexp(0.0, -e), log_complement=lambda e: -np.logaddexp(0.0, e), everywhere=True,
        ),
        LinkFunction("probit", ndtri, ndtr, log_mean=log_ndtr, log_complement=lambda e: log_ndtr(-e), everywhere=True),
        LinkFunction(
            "cloglog", lambda m: np.log(-np.log1p(-m)), lambda e: -np.expm1(-np.exp(e)),
            log_mean=lambda e: np.log(-np.expm1(-np.exp(e))), log_complement=lambda e: -np.exp(e), everywhere=True,
        ),
        LinkFunction("inverse", lambda m: 1 / m, lambda e: 1 / e, log_mean=lambda e: -np.log(e)),
        LinkFunction("inverse-squared", lambda m: m**-2.0, lambda e: e**-0.5, log_mean=lambda e: -0.5 * np.log(e)),
        LinkFunction("sqrt", np.sqrt, lambda e: e * e, log_mean=lambda e: 2 * np.log(e)),
    )
}  # fmt: skip


def link_of(link: Any) -> LinkFunction:
    """The link of a name, or of a pair (g, inverse of g) of functions in NumPy code."""
    if isinstance(link, LinkFunction):
        return link
    if isinstance(link, str) and link in LINKS:
        return LINKS[link]
    if isinstance(link, tuple) and len(link) == 2 and all(map(callable, link)):
        return LinkFunction("own", *link)
    raise ValueError(
        f"link is one of {', '.join(map(repr, LINKS))}, or a pair (g, inverse of g) of functions, got {link!r}"
    )
