"""Expectation maximisation for mixtures of Gaussians: points (n, d) in; weights, means and covariances out.

    E   r_nk = w_k N(x_n | mu_k, S_k) / sum_j w_j N(x_n | mu_j, S_j)      responsibilities: p(z_n = k | x_n)
    M   w, mu, S: the weighted shares, means and covariances

The E step makes the evidence lower bound tight (q is the posterior), the M step maximises it: the likelihood never
falls. Covariances are (K, d, d) whatever their `kind` is: "full", "diagonal", "spherical" (one variance for each
component) or "tied" (one covariance for all).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland import random
from wonderland.control.loops import fori_loop, while_loop
from wonderland.core.errors import ArgumentError
from wonderland.generative.gaussians import gaussian_log_density
from wonderland.nn.arguments import floating
from wonderland.numpy import take
from wonderland.numpy.at import at
from wonderland.scipy.special import logsumexp
from wonderland.transform.vmap import vmap

KINDS = ("full", "diagonal", "spherical", "tied")


class MixtureFit(NamedTuple):
    """What EM found: weights (K,), means (K, d) and covariances (K, d, d) are the first three, for `GaussianMixture`.

    `log_likelihood` is its mean over the points, `history` (steps,) that before each step, NaN after the last one.
    """

    weights: Any
    means: Any
    covariances: Any
    log_likelihood: Any
    history: Any
    steps: Any
    converged: Any


def responsibilities(x: Any, weights: Any, means: Any, covariances: Any) -> tuple[Any, Any]:
    """The E step: log p(x_n), (n,), and p(z_n = k | x_n), (n, K), of points x (n, d)."""
    joint = np.log(weights) + _log_densities(x, means, covariances)
    total = logsumexp(joint, axis=1)
    return total, np.exp(joint - total[:, None])


def maximization(x: Any, parts: Any, kind: str = "full", regularization: float = 1e-6) -> tuple[Any, Any, Any]:
    """The M step: weights, means and covariances of points x (n, d), each in parts (n, K) of the components.

    `regularization` is added to the variances: a component on one point would have none, and infinite likelihood.
    """
    _check_kind(kind)
    count, eye = np.sum(parts, axis=0), np.eye(x.shape[1], dtype=x.dtype)
    count = count + 10 * float(np.finfo(x.dtype).eps)  # of a component without points
    means = parts.T @ x / count[:, None]
    left = x[:, None, :] - means  # (n, K, d)
    if kind in ("full", "tied"):
        covariances = np.einsum("nk,nki,nkj->kij", parts, left, left)
        if kind == "full":
            covariances = covariances / count[:, None, None]
        else:
            covariances = np.broadcast_to(np.sum(covariances, axis=0) / np.sum(count), covariances.shape)
        covariances = covariances + regularization * eye
    else:
        variances = np.einsum("nk,nki->ki", parts, left**2) / count[:, None] + regularization
        if kind == "spherical":
            variances = np.broadcast_to(np.mean(variances, axis=1, keepdims=True), variances.shape)
        covariances = variances[:, :, None] * eye
    return count / np.sum(count), means, covariances


def kmeans_plus_plus(key: Any, x: Any, components: int) -> Any:
    """Centres (K, d) among the points x (n, d): each drawn by its squared distance from those before it.

    D. Arthur and S. Vassilvitskii, k-means++: the advantages of careful seeding, 2007.
    """
    first = take(x, random.randint(random.fold_in(key, 0), (), 0, x.shape[0]), axis=0)
    centres = at(np.zeros((components, x.shape[1]), x.dtype))[0].set(first)

    def add(i: Any, state: Any) -> Any:
        centres, nearest = state
        logits = np.where(nearest > 0, np.log(np.where(nearest > 0, nearest, 1)), -np.inf)
        logits = np.where(np.any(nearest > 0), logits, 0)  # all points are centres
        new = take(x, random.categorical(random.fold_in(key, i), logits=logits), axis=0)
        return at(centres)[i].set(new), np.minimum(nearest, np.sum((x - new) ** 2, axis=1))

    return fori_loop(1, components, add, (centres, np.sum((x - first) ** 2, axis=1)))[0]


def start_of_mixture(key: Any, x: Any, components: int, kind: str, regularization: float) -> tuple[Any, Any, Any]:
    """Equal weights, centres of k-means++, and for all the covariance of points around the nearest centre."""
    centres = kmeans_plus_plus(key, x, components)
    nearest = np.argmin(np.sum((x[:, None] - centres) ** 2, axis=2), axis=1)
    parts = (nearest[:, None] == np.arange(components)).astype(x.dtype)
    pooled = maximization(x, parts, "tied" if kind in ("full", "tied") else "diagonal", regularization)[2]
    pooled = np.broadcast_to(np.mean(pooled, axis=0), pooled.shape)
    if kind == "spherical":
        variance = np.mean(np.diagonal(pooled, axis1=1, axis2=2), axis=1)
        pooled = variance[:, None, None] * np.eye(x.shape[1], dtype=x.dtype)
    return np.full(components, 1 / components, x.dtype), centres, pooled


def fit_mixture(
    x: Any, components: int, kind: str = "full", *, key: Any = None, start: Any = None, steps: int = 100,
    tol: float = 1e-3, regularization: float = 1e-6,
) -> MixtureFit:  # fmt: skip
    """A mixture of `components` Gaussians, fitted to points x (n, d) by EM.

        fit = wl.generative.fit_mixture(x, 3, key=wl.random.key(0))
        fit.weights, fit.means, fit.covariances                  # (3,), (3, d), (3, d, d)

    It starts with `start`, (weights, means, covariances), or with centres of k-means++ by a `key`, and stops after
    `steps`, or when the mean log-likelihood changes by less than `tol`, as scikit-learn's GaussianMixture does.
    """
    x = floating(x, "fit_mixture: x")
    _check_kind(kind)
    if x.ndim != 2 or not 1 <= components <= x.shape[0]:
        raise ArgumentError(
            f"fit_mixture takes points (n, d) and 1 to n components, got x of shape {x.shape} and "
            f"components={components}"
        )
    if steps < 1 or not regularization >= 0:
        raise ArgumentError(f"steps is at least 1, regularization at least 0, got {steps} and {regularization}")
    if start is None:
        key = random.next_key() if key is None else key
        start = start_of_mixture(key, x, components, kind, regularization)
    weights, means, covariances = (floating(part).astype(x.dtype) for part in start[:3])
    shapes = tuple(np.shape(part) for part in (weights, means, covariances))
    features = x.shape[1]
    if shapes != ((components,), (components, features), (components, features, features)):
        raise ArgumentError(
            f"start is (weights, means, covariances) of shapes {((components,), (components, features))} and "
            f"{(components, features, features)}, got {shapes}"
        )

    def step(state: Any) -> Any:
        parameters, history, i, last, _ = state
        logs, parts = responsibilities(x, *parameters)
        found = np.mean(logs)
        history = at(history)[i].set(found)
        return maximization(x, parts, kind, regularization), history, i + 1, found, np.abs(found - last) < tol

    def going(state: Any) -> Any:
        return (state[2] < steps) & ~state[4]

    nothing = np.full(steps, np.nan, x.dtype)
    state = ((weights, means, covariances), nothing, np.int64(0), x.dtype.type(-np.inf), np.bool_(False))
    (weights, means, covariances), history, count, _, converged = while_loop(going, step, state)
    found = np.mean(responsibilities(x, weights, means, covariances)[0])
    return MixtureFit(weights, means, covariances, found, history, count, converged)


def _log_densities(x: Any, means: Any, covariances: Any) -> Any:
    """log N(x_n | mu_k, S_k): (n, K)."""
    return vmap(gaussian_log_density, in_axes=(None, 0, 0), out_axes=1)(x, means, covariances)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ArgumentError(f"kind is one of {KINDS}, got {kind!r}")
