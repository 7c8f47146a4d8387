"""Variational inference: the Gaussian that is nearest to a posterior, by steps on its mean and covariance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile.jit import jit
from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.estimators.posterior import LOG_2PI, Posterior, Unknowns, found_mode
from wonderland.random import fold_in, normal
from wonderland.scipy.linalg import solve_triangular
from wonderland.transform.derivatives import stop_gradient, value_and_grad
from wonderland.transform.vmap import vmap

FAMILIES = ("full_rank", "mean_field")
CHUNK = 100  # steps in one compiled call


def variational_inference(
    log_density: Callable[..., Any], start: Any, key: Any, *, args: tuple[Any, ...] = (), family: str = "full_rank",
    steps: int = 1000, samples: int = 16, rate: float = 0.05, scale: Any = None, draws: int = 1000,
) -> Posterior:  # fmt: skip
    """The q = N(mu, L L') of the largest ELBO = E_q [log density(x) - log q(x)], a lower bound of the log evidence.

    `family` "full_rank" has any covariance; "mean_field" a diagonal one, which is too narrow where numbers depend on
    each other: for a Gaussian posterior its variances are 1 / diag(precision). `log_density` and `args` are those of
    `laplace_approximation`. It begins there if that has a mode; with `scale`, a number or (d,), at the start itself
    with these standard deviations.

        posterior = variational_inference(log_density, np.zeros(3), wl.random.key(0))
        posterior.log_evidence, posterior.details["elbo"]                   # the bound, and that of each step

    Gradients are those of x = mu + L epsilon without the derivative of q itself, whose mean is zero: they have no
    variance where q is exact (G. Roeder et al., Sticking the landing, 2017). `steps` of Adam with `samples` each, in
    pairs that mirror each other; `rate` is that of the first, in units of where it begins, and goes to zero. What comes
    out is the mean over the last quarter of the steps: more steps and samples make its error smaller. A. Kucukelbir
    et al., Automatic differentiation variational inference, 2017.
    """
    if family not in FAMILIES:
        raise ArgumentError(f"family is one of {', '.join(map(repr, FAMILIES))}, got {family!r}")
    if steps < 1 or samples < 1:
        raise ArgumentError(f"there is at least one step, and one sample in it: got steps={steps}, samples={samples}")
    unknowns = Unknowns(log_density, start, args, "variational_inference")
    full = family == "full_rank"
    centre, unit = _beginning(unknowns, full, scale)
    d = len(centre)
    theta = np.zeros((d + 1, d) if full else (2, d))  # the mean, and the root with logarithms on its diagonal
    state = (theta,) * 4  # theta, Adam's moments, the average of the last quarter
    index = np.arange(-(-steps // CHUNK) * CHUNK)
    rates = np.where(index < steps, rate * 0.5 * (1 + np.cos(np.pi * index / steps)), 0.0)
    late = index - (steps - max(steps // 4, 1))
    shares = np.where((late >= 0) & (index < steps), 1 / np.maximum(late + 1, 1), 0.0)
    history, run = [], _runner(unknowns.flat, samples, (family, *unknowns.shapes))
    for xs in zip(*(np.split(a, len(index) // CHUNK) for a in (index, rates, shares)), strict=True):
        state, bounds = run(state, xs, key, centre, unit, args)
        history.append(np.asarray(bounds))
    theta = np.asarray(state[-1])
    if not np.all(np.isfinite(theta)):
        raise ArgumentError("variational_inference: the bound is no longer finite: lower the rate, or give a scale")
    root = unit @ _root(theta)
    posterior = unknowns.gaussian(centre + unit @ theta[0], root, fold_in(key, len(index)), draws)
    noise = np.linalg.solve(root, (posterior.samples[0] - posterior.mean).T)
    log_q = -0.5 * np.sum(noise**2 + LOG_2PI, axis=0) - np.sum(np.log(np.diag(root)))
    posterior.log_evidence = float(np.mean(np.asarray(vmap(unknowns.value)(posterior.samples[0])) - log_q))
    posterior.details = {"elbo": np.concatenate(history)[:steps]}
    return posterior


def _beginning(unknowns: Unknowns, full: bool, scale: Any) -> tuple[np.ndarray, np.ndarray]:
    """A centre (d,) and a lower triangular root (d, d), the unit in which q moves."""
    d = len(unknowns.start)
    if scale is not None:
        sizes = np.asarray(scale, np.float64)
        if sizes.shape not in ((), (d,)) or not np.all(sizes > 0):
            raise ArgumentError(f"scale is a number above 0, or ({d},) of them, got {scale}")
        return unknowns.start, np.diag(np.broadcast_to(sizes, d))
    mode, precision, steps = found_mode(unknowns.value, unknowns.start, 200, 1e-10)
    if steps is None:
        return unknowns.start, np.eye(d)
    covariance = np.linalg.inv(precision) if full else np.diag(1 / np.diag(precision))
    return mode, np.linalg.cholesky((covariance + covariance.T) / 2)


def _root(theta: Any) -> Any:
    """Lower triangular (d, d) of theta (d + 1, d), diagonal of theta (2, d)."""
    if theta.shape[0] == 2 and theta.shape[1] != 1:
        return np.diag(np.exp(theta[1]))
    return np.tril(theta[1:], -1) + np.diag(np.exp(np.diagonal(theta[1:])))


@functools.lru_cache(maxsize=32)
def _runner(flat: Callable[..., Any], samples: int, shapes: Any) -> Callable[..., Any]:
    """The compiled steps of Adam for a log density of vectors, and these shapes."""

    def run(state: Any, xs: Any, key: Any, centre: Any, unit: Any, args: Any) -> Any:
        log_unit = np.sum(np.log(np.diagonal(unit)))

        def bound(theta: Any, noise: Any) -> Any:
            """The mean over samples of log p(x) - log q(x), q as if it were fixed."""
            still = stop_gradient(theta)
            y = theta[0] + noise @ _root(theta).T  # (samples, d), and x = centre + unit y
            white = solve_triangular(_root(still), (y - still[0]).T, lower=True)
            last = still[1] if theta.shape[0] == 2 else np.diagonal(still[1:])
            log_q = -0.5 * np.sum(white**2 + LOG_2PI, axis=0) - np.sum(last) - log_unit
            return np.mean(vmap(lambda y: flat(centre + unit @ y, *args))(y) - log_q)

        def step(state: Any, x: Any) -> Any:
            theta, first, second, average = state
            index, rate, share = x
            half = normal(fold_in(key, index), (-(-samples // 2), theta.shape[1]), dtype=np.float64)
            noise = np.concatenate([half, -half])  # with its mirror image, what is odd in it has no error
            value, slope = value_and_grad(bound)(theta, noise)
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
            t = index + 1.0
            move = (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.99**t)) + 1e-8)
            theta = theta + rate * move
            return (theta, first, second, average + share * (theta - average)), value

        return scan(step, state, xs)

    return jit(run)
