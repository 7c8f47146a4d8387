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
from wonderland.control.loops import fori_loop, scan, while_loop
from wonderland.core.errors import ArgumentError
from wonderland.generative.gaussians import diagonal_log_density, gaussian_log_density, standard_log_density
from wonderland.nn.arguments import demand, floating
from wonderland.nn.building import positive
from wonderland.numpy import take
from wonderland.numpy.at import at
from wonderland.scipy.linalg import solve_triangular
from wonderland.scipy.special import logsumexp
from wonderland.transform.vmap import vmap

KINDS = ("full", "diagonal", "spherical", "tied")
SINGULAR = (
    "fit_mixture: the log-likelihood isn't finite, {}: a component has no covariance that can be inverted, or the "
    "start is too far away. Take fewer components, a larger regularization=, float64, or another start"
)


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
    x = floating(x, "responsibilities: x")
    weights, means, covariances = _mixture(
        "a mixture", (weights, means, covariances), np.size(weights), x.shape[-1]
    )  # fmt: skip
    densities = vmap(gaussian_log_density, in_axes=(None, 0, 0), out_axes=1)(x, means, covariances)
    return posterior(weights, densities)


def posterior(weights: Any, densities: Any) -> tuple[Any, Any]:
    """log p(x_n), (n,), and p(z_n = k | x_n), (n, K), of weights (K,) and logs of the components' densities (n, K)."""
    joint = np.log(weights) + densities
    total = logsumexp(joint, axis=1)
    return total, np.exp(joint - total[:, None])


def log_densities(x: Any, means: Any, covariances: Any, kind: str) -> Any:
    """log N(x_n | mu_k, S_k): (n, K), by what covariances of a kind have in common, one component after the other."""
    if kind == "tied":  # one factor makes all of them standard
        factor = np.linalg.cholesky(covariances[0])
        x, means = (solve_triangular(factor, part.T, lower=True).T for part in (x, means))
        less = np.sum(np.log(np.diagonal(factor)))
        one = lambda mean, covariance: standard_log_density(x - mean) - less
    elif kind == "full":
        one = lambda mean, covariance: gaussian_log_density(x, mean, covariance)
    else:
        one = lambda mean, covariance: diagonal_log_density(x, mean, np.log(np.diagonal(covariance)))
    return scan(lambda _, part: (None, one(*part)), None, (means, covariances))[1].T


def maximization(x: Any, parts: Any, kind: str = "full", regularization: float = 1e-6) -> tuple[Any, Any, Any]:
    """The M step: weights, means and covariances of points x (n, d), each in parts (n, K) of the components.

    `regularization` is added to the variances: a component on one point would have none, and infinite likelihood.
    """
    _check_kind(kind)
    x, parts = floating(x, "maximization: x"), floating(parts, "maximization: parts")
    if x.ndim != 2 or parts.ndim != 2 or x.shape[0] != parts.shape[0]:
        raise ArgumentError(f"maximization takes points (n, d) in parts (n, K), got {x.shape} and {parts.shape}")
    count, eye = np.sum(parts, axis=0), np.eye(x.shape[1], dtype=x.dtype)
    count = count + 10 * float(np.finfo(x.dtype).eps)  # of a component without points
    means = parts.T @ x / count[:, None]
    share, part = count / np.sum(count), parts.T
    each = lambda moment: scan(lambda _, one: (None, moment(one[0], x - one[1])), None, (part, means))[1]
    if kind == "full":
        covariances = each(lambda p, left: (left * p[:, None]).T @ left) / count[:, None, None] + regularization * eye
    elif kind == "tied":  # within components = in all - between components, about the mean of all
        left, between = x - share @ means, means - share @ means
        within = (left * np.sum(part, axis=0)[:, None]).T @ left - (between * count[:, None]).T @ between
        covariances = np.broadcast_to(within / np.sum(count) + regularization * eye, (len(share), *eye.shape))
    else:
        variances = each(lambda p, left: p @ left**2) / count[:, None] + regularization
        if kind == "spherical":
            variances = np.broadcast_to(np.mean(variances, axis=1, keepdims=True), variances.shape)
        covariances = variances[:, :, None] * eye
    return share, means, covariances


def kmeans_plus_plus(key: Any, x: Any, components: int, sample_weight: Any = None) -> Any:
    """Centres (K, d) among the points x (n, d): each drawn by its squared distance from those before it.

    With `sample_weight` (n,) the chances are multiplied by it.

    D. Arthur and S. Vassilvitskii, k-means++: the advantages of careful seeding, 2007.
    """
    x, components = _points(x, "kmeans_plus_plus"), positive(components, "kmeans_plus_plus: components")
    w = _weights(sample_weight, x)
    draw = lambda i, chances: random.categorical(random.fold_in(key, i), logits=_logs(chances))
    place = random.randint(random.fold_in(key, 0), (), 0, x.shape[0]) if w is None else draw(0, w)
    first = take(x, place, axis=0)
    centres = at(np.zeros((components, x.shape[1]), x.dtype))[0].set(first)

    def add(i: Any, state: Any) -> Any:
        centres, nearest = state
        chances = nearest if w is None else nearest * w
        all_are = ~np.any(chances > 0)  # all points are centres
        new = take(x, draw(i, np.where(all_are, 1 if w is None else w, chances)), axis=0)
        return at(centres)[i].set(new), np.minimum(nearest, np.sum((x - new) ** 2, axis=1))

    return fori_loop(1, components, add, (centres, np.sum((x - first) ** 2, axis=1)))[0]


def start_of_mixture(
    key: Any, x: Any, components: int, kind: str, regularization: float, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Equal weights, centres of k-means++, and for all the covariance of points around the nearest centre."""
    centres = kmeans_plus_plus(key, x, components, sample_weight)
    nearest = np.argmin(np.sum((x[:, None] - centres) ** 2, axis=2), axis=1)
    parts = (nearest[:, None] == np.arange(components)).astype(x.dtype)
    parts = parts if sample_weight is None else parts * sample_weight[:, None]
    pooled = maximization(x, parts, "tied" if kind in ("full", "tied") else "diagonal", regularization)[2]
    pooled = np.broadcast_to(np.mean(pooled, axis=0), pooled.shape)
    if kind == "spherical":
        variance = np.mean(np.diagonal(pooled, axis1=1, axis2=2), axis=1)
        pooled = variance[:, None, None] * np.eye(x.shape[1], dtype=x.dtype)
    return np.full(components, 1 / components, x.dtype), centres, pooled


def fit_mixture(
    x: Any, components: int, kind: str = "full", *, key: Any = None, start: Any = None, restarts: int = 1,
    steps: int = 100, tol: float = 1e-3, regularization: float = 1e-6, sample_weight: Any = None,
) -> MixtureFit:  # fmt: skip
    """A mixture of `components` Gaussians, fitted to points x (n, d) by EM.

        fit = wl.generative.fit_mixture(x, 3, key=wl.random.key(0))
        fit.weights, fit.means, fit.covariances                  # (3,), (3, d), (3, d, d)

    It starts with `start`, (weights, means, covariances), or with centres of k-means++ by a `key`, and stops after
    `steps`, or when the mean log-likelihood changes by less than `tol`, as scikit-learn's GaussianMixture does. EM
    finds a maximum near its start: of `restarts` runs, each with other centres, the likeliest is returned (`n_init`).
    With `sample_weight` (n,) a point counts as often as its weight says.
    """
    x, components, steps = _points(x, "fit_mixture"), positive(components, "components"), positive(steps, "steps")
    _check_kind(kind)
    if components > x.shape[0] or not regularization >= 0:
        raise ArgumentError(
            f"fit_mixture takes points (n, d), 1 to n components and a regularization of 0 or more, got x of shape "
            f"{x.shape}, components={components} and regularization={regularization}"
        )
    w = _weights(sample_weight, x)
    climb = lambda start: _climb(x, w, start, kind, steps, tol, regularization)
    if start is not None:
        if positive(restarts, "restarts") > 1:
            raise ArgumentError(f"fit_mixture: with a start there is one run, so leave out restarts={restarts}")
        weights, means, covariances = _mixture("start", start, components, x.shape[1])
        demand(
            (weights >= 0) & (np.abs(np.sum(weights) - 1) < 1e-3), "start: weights are shares that sum to 1, got {}",
            weights,
        )  # fmt: skip
        return climb(tuple(part.astype(x.dtype) for part in (weights, means, covariances)))
    run = lambda key: climb(start_of_mixture(key, x, components, kind, regularization, w))
    key = random.next_key() if key is None else key
    if positive(restarts, "restarts") == 1:
        return run(key)
    runs = vmap(run)(random.split(key, restarts))
    best = np.argmax(runs.log_likelihood)
    return MixtureFit(*(take(part, best, axis=0) for part in runs))


def _climb(x: Any, w: Any, start: Any, kind: str, steps: int, tol: float, regularization: float) -> MixtureFit:
    """EM from a start, of points with weights w or alike."""

    def step(state: Any) -> Any:
        (weights, means, covariances), history, i, last, _ = state
        logs, parts = posterior(weights, log_densities(x, means, covariances, kind))
        found, parts = (np.mean(logs), parts) if w is None else (w @ logs / np.sum(w), w[:, None] * parts)
        history = at(history)[i].set(found)
        return maximization(x, parts, kind, regularization), history, i + 1, found, np.abs(found - last) < tol

    def going(state: Any) -> Any:
        return (state[2] < steps) & ~state[4]

    nothing = np.full(steps, np.nan, x.dtype)
    state = (start, nothing, np.int64(0), x.dtype.type(-np.inf), np.bool_(False))
    try:
        (weights, means, covariances), history, count, _, converged = while_loop(going, step, state)
        logs = posterior(weights, log_densities(x, means, covariances, kind))[0]
        found = np.mean(logs) if w is None else w @ logs / np.sum(w)
    except np.linalg.LinAlgError as error:
        raise ArgumentError(SINGULAR.format(f"({error})")) from error
    demand(np.isfinite(found), SINGULAR, found)
    return MixtureFit(weights, means, covariances, found, history, count, converged)


def _points(x: Any, name: str) -> Any:
    """Points (n, d), finite."""
    x = floating(x, f"{name}: x")
    if x.ndim != 2 or not x.shape[0]:
        raise ArgumentError(f"{name} takes points x (n, d), got shape {x.shape}: numbers (n,) are points x[:, None]")
    demand(np.isfinite(x), name + " takes finite points, got {}: leave out those with NaN or infinity", x)
    return x


def _weights(sample_weight: Any, x: Any) -> Any:
    """Weights of points x: (n,), not negative, not all zero; None stays None."""
    if sample_weight is None:
        return None
    w = floating(sample_weight, "sample_weight").astype(x.dtype)
    if w.shape != x.shape[:1]:
        raise ArgumentError(f"sample_weight has one number for each point, shape {x.shape[:1]}, got {w.shape}")
    demand((w >= 0) & np.isfinite(w), "sample_weight: weights are finite and not negative, got {}", w)
    demand(np.sum(w) > 0, "sample_weight: all weights are zero, so nothing is left to fit; they sum to {}", np.sum(w))
    return w


def _logs(chances: Any) -> Any:
    """Their logarithms, -inf of zeros."""
    return np.where(chances > 0, np.log(np.where(chances > 0, chances, 1)), -np.inf)


def _mixture(name: str, parts: Any, components: int, features: int) -> Any:
    """Weights, means and covariances as arrays, with their shapes checked."""
    found = tuple(floating(part) for part in parts[:3]) if isinstance(parts, (tuple, list)) else ()
    shapes = tuple(np.shape(part) for part in found)
    expected = ((components,), (components, features), (components, features, features))
    if shapes != expected:
        raise ArgumentError(
            f"{name} is (weights, means, covariances) of shapes {expected}, whatever the kind is; got "
            f"{shapes or type(parts).__name__}"
        )
    return found


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ArgumentError(f"kind is one of {KINDS}, got {kind!r}")
