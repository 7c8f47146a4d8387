"""Posteriors that have no closed form: a log density, up to a constant, and a start come in, a `Posterior` goes out.

`laplace_approximation` here is the quickest; `variational_inference` finds the nearest Gaussian, `hmc` draws samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.estimators.chain_diagnostics import effective_sample_size, r_hat
from wonderland.random import normal
from wonderland.transform.derivatives import grad
from wonderland.transform.second_order import hessian
from wonderland.transform.trees import tree_flatten, tree_ravel
from wonderland.transform.vmap import vmap

LOG_2PI = math.log(2 * math.pi)


@dataclass(eq=False)
class Posterior:
    """Samples, mean and covariance of unknowns x, as one vector (d,); `unravel(x)` gives it the start's form back.

    `log_evidence` is the log of the integral of the density: Laplace's approximation, for variational inference a lower
    bound (the ELBO), None of samples alone. `details` says how it went: the bounds by step, acceptance, step size.
    """

    samples: np.ndarray  # (chains, draws, d)
    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d)
    start: Any = field(repr=False)
    names: list[str] = field(repr=False)
    log_evidence: float | None = None
    details: dict[str, Any] = field(default_factory=dict, repr=False)

    def unravel(self, x: Any) -> Any:
        """A vector (d,) as a tree like the start."""
        return tree_ravel(self.start)[1](x)

    def average(self, f: Callable[[Any], Any]) -> Any:
        """E f(x) over the posterior: the plain mean over its samples, which are as frequent as they are likely.

        posterior.average(lambda w: 1 / (1 + np.exp(-X_new @ w)))             # E.3.10
        """
        flat = self.samples.reshape(-1, self.samples.shape[-1])
        return np.mean(np.asarray(vmap(lambda x: f(self.unravel(x)))(flat)), axis=0)

    def summary(self, quantiles: tuple[float, ...] = (0.05, 0.5, 0.95)) -> PosteriorSummary:
        """Mean, standard deviation and quantiles of each number; R-hat and effective sample size of its samples."""
        flat = self.samples.reshape(-1, self.samples.shape[-1])
        return PosteriorSummary(
            self.names, self.mean, np.sqrt(np.diag(self.covariance)), tuple(quantiles),
            np.quantile(flat, quantiles, axis=0).T, r_hat(self.samples), effective_sample_size(self.samples),
        )  # fmt: skip


@dataclass(eq=False)
class PosteriorSummary:
    """A row for each number; printed, a table."""

    names: list[str]
    mean: np.ndarray
    sd: np.ndarray
    levels: tuple[float, ...]
    quantiles: np.ndarray  # (d, levels)
    r_hat: np.ndarray
    ess: np.ndarray

    def __str__(self) -> str:
        width = max(len(name) for name in self.names)
        heads = ["mean", "sd", *(f"{100 * level:g}%" for level in self.levels), "R-hat", "ESS"]
        lines = [" " * width + "".join(f"{head:>11}" for head in heads)]
        for i, name in enumerate(self.names):
            numbers = "".join(f"{x:11.4g}" for x in (self.mean[i], self.sd[i], *self.quantiles[i]))
            lines.append(f"{name:>{width}}{numbers}{self.r_hat[i]:11.3f}{self.ess[i]:11.0f}")
        return "\n".join(lines)


class Unknowns:
    """A log density of a tree, and its arguments, as a function of one vector."""

    start: np.ndarray
    tree: Any
    args: Any
    names: Any
    shapes: Any

    def __init__(self, log_density: Callable[..., Any], start: Any, args: tuple[Any, ...], name: str):
        vector, unravel = tree_ravel(start)
        if not len(vector) or vector.dtype.kind not in "fiu":
            raise ArgumentError(f"{name}: the start is real numbers, got {vector.dtype} of shape {vector.shape}")
        self.start, self.tree = np.asarray(vector, np.float64), start
        # The function itself, where it takes a vector: what is compiled for it is found again.
        plain = isinstance(start, np.ndarray) and start.ndim == 1
        self.flat: Callable[..., Any] = log_density if plain else lambda x, *args: log_density(unravel(x), *args)
        self.args, self.names = args, _names(start, len(vector))
        self.shapes = (len(vector), *(np.shape(leaf) for leaf in tree_flatten(args)[0]))  # what is compiled for
        value = np.asarray(self.value(self.start))
        if value.shape != ():
            raise ArgumentError(f"{name}: log_density returns one number, got shape {value.shape}: sum it")
        if not np.isfinite(value):
            raise ArgumentError(f"{name}: log_density is {value} at the start: begin where it is finite")

    def value(self, x: Any) -> Any:
        return self.flat(x, *self.args)

    def gaussian(self, mean: np.ndarray, root: np.ndarray, key: Any, draws: int, **more: Any) -> Posterior:
        """N(mean, root root') as a posterior, with samples."""
        noise = np.asarray(normal(key, (draws, len(mean)), dtype=np.float64))
        return Posterior((mean + noise @ root.T)[None], mean, root @ root.T, self.tree, self.names, **more)


def _names(start: Any, count: int) -> list[str]:
    """w[0], w[1], ... of the keys of a dict of arrays; x[0], ... of all else."""
    if isinstance(start, dict) and all(len(tree_flatten(value)[0]) == 1 for value in start.values()):
        parts = [(str(key), np.shape(start[key])) for key in sorted(start)]
    else:
        parts = [("x", np.shape(start) if not isinstance(start, (dict, list, tuple)) else (count,))]
    if sum(math.prod(shape) for _, shape in parts) != count:
        parts = [("x", (count,))]
    where = lambda index: f"[{', '.join(map(str, index))}]" if index else ""
    return [f"{name}{where(index)}" for name, shape in parts for index in np.ndindex(*shape)]


def laplace_approximation(
    log_density: Callable[..., Any], start: Any, key: Any, *, args: tuple[Any, ...] = (), draws: int = 1000,
    max_iter: int = 200, tol: float = 1e-10,
) -> Posterior:  # fmt: skip
    """N(mode, H^-1) with the Hessian H of -log density at the mode; exact for a Gaussian.

        log evidence = log density(mode) + d/2 log 2 pi - 1/2 log det H

    `log_density(x, *args)` is NumPy code of trees like `start`, returns a number, and may lack its normaliser.

        posterior = laplace_approximation(lambda w: -np.sum(np.cosh(w)), np.zeros(3), wl.random.key(0))
        posterior.mean, posterior.covariance, print(posterior.summary())
    """
    unknowns = Unknowns(log_density, start, args, "laplace_approximation")
    mode, precision, steps = found_mode(unknowns.value, unknowns.start, max_iter, tol)
    if steps is None:
        raise ArgumentError(
            f"laplace_approximation: no mode after {max_iter} steps from this start; is the log density bounded, with "
            "a Hessian that is negative definite at its top? Start nearer to it, or raise max_iter"
        )
    values, vectors = np.linalg.eigh(precision)
    evidence = float(unknowns.value(mode)) + 0.5 * len(mode) * LOG_2PI - 0.5 * float(np.sum(np.log(values)))
    return unknowns.gaussian(
        mode, vectors / np.sqrt(values), key, draws, log_evidence=evidence, details={"steps": steps}
    )


def found_mode(
    f: Callable[[Any], Any], x: np.ndarray, max_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """(mode, Hessian of -f there, steps): Newton's method upwards; steps are None if it isn't there.

    It has converged when a step would gain less than `tol` of f where the Hessian is positive definite.
    """
    slope, bend, value = grad(f), hessian(f), float(f(x))
    for steps in range(1, max_iter + 1):
        precision = -np.asarray(bend(x))
        values, vectors = np.linalg.eigh((precision + precision.T) / 2)
        along = vectors.T @ np.asarray(slope(x))
        least = 1e-12 * np.max(np.abs(values))
        if not np.isfinite(least):
            break
        step = vectors @ (along / np.maximum(np.abs(values), least or 1.0))
        gain = 0.5 * float(along @ (vectors.T @ step))
        if gain <= tol * max(1.0, abs(value)) and values[0] > least:
            x = x + step
            return x, -np.asarray(bend(x)), steps
        size = 1.0
        with np.errstate(all="ignore"):  # a step too long may leave where f is defined
            while not (new := float(f(x + size * step))) >= value + 1e-4 * size * gain and size > 1e-12:
                size /= 2
        if not new > value:
            break
        x, value = x + size * step, new
    return x, np.eye(len(x)), None
