"""Log-densities of data under a denoiser, by the change of variables along the probability flow.

In: a denoiser, data x (B, ...), a schedule. Out: log p(x), (B,). Along dx/dsigma = epsilon(x, sigma) the log-density
changes by minus the divergence of epsilon, so that

    log p(x) = log p_max(x_max) + integral over sigma, from the last level to the first, of div epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.generative.samplers.sampling import start_of
from wonderland.generative.samplers.solver import like_x
from wonderland.generative.schedules import check_sigmas
from wonderland.random import fold_in, rademacher, split
from wonderland.transform.derivatives import linearize
from wonderland.transform.vmap import vmap


def log_likelihood(
    denoiser: Callable[..., Any], x: Any, sigmas: Any, divergence: str = "exact", key: Any = None, probes: int = 1,
    prior: Callable[[Any], Any] | None = None,
) -> Any:  # fmt: skip
    """log p(x) for each sample of x (B, ...): (B,), in nats, by the probability flow up the schedule.

    The density is that of data with the noise of the last level above 0, and it is as exact as the flow is solved: by
    the Runge-Kutta method of order 4 in log sigma, four evaluations a step. At sigmas[0] it is N(0, sigmas[0]^2)'s, or
    that of `prior`, a function of x that returns (B,): choose sigmas[0] far above the data's deviation.

    The divergence is "exact", with one derivative for each number in a sample, or "hutchinson", v' J v with signs v at
    random (`probes` of them for each sample, the same along the way): unbiased, and one derivative each.
    """
    sigmas = check_sigmas(sigmas)
    if isinstance(sigmas, Tracer):
        raise ArgumentError("log_likelihood looks at the schedule: close over the sigmas instead of giving them to jit")
    x = start_of(x)
    if divergence not in ("exact", "hutchinson"):
        raise ArgumentError(f'divergence is "exact" or "hutchinson": got {divergence!r}')
    if divergence == "hutchinson" and key is None:
        raise ArgumentError('divergence="hutchinson" draws signs at random: give a key')
    if probes < 1:
        raise ArgumentError(f"probes is a number, at least 1: got probes={probes}")
    directions = _basis(x) if divergence == "exact" else _signs(key, probes, x)
    share = 1.0 if divergence == "exact" else 1.0 / probes
    denoiser = like_x(denoiser)
    inner = tuple(range(1, np.ndim(x)))

    def slope(x: Any, sigma: Any) -> tuple[Any, Any]:
        """Of x and the integral, in log sigma: sigma epsilon, and sigma div epsilon."""
        epsilon, tangent = linearize(lambda x: denoiser(x, sigma), x)

        def add(total: Any, direction: Any) -> Any:
            direction = np.broadcast_to(direction, np.shape(x))
            return total + np.sum(direction * tangent(direction), axis=inner), None

        zero = np.zeros_like(x[(slice(None), *(0 for _ in inner))])
        return sigma * epsilon, share * sigma * scan(add, zero, directions)[0]

    def step(carry: Any, row: Any) -> Any:
        x, total = carry
        sigma, middle, after, h = row
        a, da = slope(x, sigma)
        b, db = slope(x + 0.5 * h * a, middle)
        c, dc = slope(x + 0.5 * h * b, middle)
        d, dd = slope(x + h * c, after)
        return (x + h / 6 * (a + 2 * (b + c) + d), total + h / 6 * (da + 2 * (db + dc) + dd)), None

    up = sigmas[sigmas > 0][::-1].astype(np.float64)
    rows = (up[:-1], np.sqrt(up[:-1] * up[1:]), up[1:], np.log(up[1:] / up[:-1]))
    begin = (x, np.zeros_like(x[(slice(None), *(0 for _ in inner))]))
    (x, total), _ = scan(step, begin, tuple(row.astype(x.dtype) for row in rows))
    if prior is not None:
        return prior(x) + total
    count = math.prod(np.shape(x)[1:])
    constant = -count * (math.log(up[-1]) + 0.5 * math.log(2 * math.pi))
    return constant - 0.5 * np.sum(np.square(x / float(up[-1])), axis=inner) + total


def _basis(x: Any) -> Any:
    """Every unit vector of one sample: (D, ...)."""
    shape = np.shape(x)[1:]
    count = math.prod(shape)
    return np.eye(count, dtype=x.dtype).reshape(count, *shape)


def _signs(key: Any, probes: int, x: Any) -> Any:
    """(probes, B, ...), each sample's by its own key."""
    shape = np.shape(x)[1:]
    draw = lambda k, probe: rademacher(fold_in(k, probe), shape, dtype=np.int64).astype(x.dtype)
    return vmap(lambda probe: vmap(lambda k: draw(k, probe))(split(key, np.shape(x)[0])))(np.arange(probes))
