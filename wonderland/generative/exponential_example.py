"""Z ~ Exp(theta), X | Z = z ~ N(z, 1), q = Exp(phi): a bound that can be written down (the notes, example 6.7).

    L(theta, phi; x) = log theta - theta/phi - log sqrt(2 pi) - 1/2 (x^2 - 2 x/phi + 2/phi^2) - log phi + 1

since E z^2 = 2/phi^2 under Exp(phi) (printed is 1/phi^2, with an optimum of 1/x). For x > 0 the largest bound is at
theta = phi = 2/x; for x <= 0 there is none, L grows with theta = phi.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from wonderland.nn.arguments import demand


def exponential_elbo(theta: Any, phi: Any, x: Any) -> Any:
    """L(theta, phi; x), numbers or arrays that broadcast."""
    _check_rates(theta, phi)
    square = x**2 - 2 * x / phi + 2 / phi**2
    return np.log(theta / phi) - theta / phi + 1 - 0.5 * square - 0.5 * math.log(2 * math.pi)


def exponential_evidence(theta: Any, x: Any) -> Any:
    """log p(x) = log theta + theta^2/2 - theta x + log Phi(x - theta), Phi the distribution function of N(0, 1).

    The posterior is N(x - theta, 1) on the positive numbers, which no Exp(phi) is: the gap isn't 0.
    """
    _check_rates(theta)
    return np.log(theta) + theta**2 / 2 - theta * x + log_ndtr(x - theta)


def exponential_gap(theta: Any, phi: Any, x: Any) -> Any:
    """KL(Exp(phi) || p(z | x)), from the two densities: with m = x - theta,

    log phi - 1 + log sqrt(2 pi) + log Phi(m) + 1/2 (m^2 - 2 m/phi + 2/phi^2).
    """
    _check_rates(theta, phi)
    m = x - theta
    return np.log(phi) - 1 + 0.5 * math.log(2 * math.pi) + log_ndtr(m) + 0.5 * (m**2 - 2 * m / phi + 2 / phi**2)


def exponential_optimum(x: Any) -> Any:
    """theta = phi = 2/x, where the bound is largest, for x > 0."""
    demand(x > 0, "the bound of example 6.7 has a maximum for x > 0, got x = {}", x)
    return 2 / x


def _check_rates(*rates: Any) -> None:
    for rate in rates:
        demand(rate > 0, "rates of exponential distributions (theta, phi) are above 0, got {}", rate)
