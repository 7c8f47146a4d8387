"""Gaussian mixtures: data whose every denoiser is known, so that what is learned or sampled has a truth to meet.

In: weights (K,), means (K, d) and covariances of K Gaussians. Out: log-densities, scores, samples, and, of data with
noise, y = x0 + sigma epsilon, the exact posterior of x0. With noise the mixture stays one: covariances C_k + sigma^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import register_node
from wonderland.core.tracer import Tracer
from wonderland.generative.denoising import as_sigma
from wonderland.nn.arguments import array, demand, floating
from wonderland.numpy import take
from wonderland.random import categorical, fold_in, normal, split
from wonderland.transform.second_order import hessian
from wonderland.transform.vmap import vmap


class GaussianMixture:
    """p(x) = sum_k w_k N(x; m_k, C_k), for x (d,) or a batch (..., d).

    `covariances` are matrices (K, d, d), variances (K, d), one variance for each component (K,), or one number (one
    matrix for all is `np.stack([C] * K)`). They may be singular, down to point masses (0), where noise is added: in
    `posterior_mean`, `denoiser()` and whatever else has a sigma > 0. Weights are scaled to the sum 1. The mixture is a
    tree with the leaves `weights`, `means` and `covariances`: functions of it have derivatives in them.

        moons = wl.generative.GaussianMixture([0.5, 0.5], [[-1.0, 0.0], [1.0, 0.0]], 0.1)
        samples = wl.generative.sample(moons.denoiser(), (100, 2), sigmas, key=wl.random.key(0))
    """

    weights: Any
    means: Any
    covariances: Any

    def __init__(self, weights: Any, means: Any, covariances: Any):
        self.weights, self.means, self.covariances = _array(weights), _array(means), _array(covariances)
        count, wanted = np.shape(self.weights), np.shape(self.means)
        if len(count) != 1 or len(wanted) != 2 or count[0] != wanted[0]:
            raise ArgumentError(
                f"a mixture of K Gaussians in d dimensions has weights (K,) and means (K, d): got weights of shape "
                f"{count} and means of shape {wanted}"
            )
        full = (*wanted, wanted[1])
        shape = np.shape(self.covariances)
        if shape != full[: len(shape)]:
            raise ArgumentError(
                f"covariances are matrices {full}, variances {full[:2]}, one for each component {full[:1]}, or a "
                f"number: got shape {shape}"
            )
        _check_weights(self.weights)
        _check_covariances(self.covariances)

    @property
    def dimension(self) -> int:
        """d."""
        return np.shape(self.means)[1]

    def components(self, x: Any, sigma: Any = 0.0) -> tuple[Any, Any]:
        """log(w_k N_k(x)), (..., K), and (C_k + sigma^2)^-1 (x - m_k), (..., K, d).

        Of x (..., d), where noise sigma, one number or (...), was added to the data.
        """
        x = self._points(x)
        off = x[..., None, :] - self.means  # (..., K, d)
        sigma = array(sigma) if np.ndim(sigma) else sigma
        square = sigma * sigma
        if np.ndim(self.covariances) == 3:
            eye = np.eye(self.dimension, dtype=self.means.dtype)
            added = square[..., None, None, None] * eye if np.ndim(square) else square * eye
            # z = L^-1 (x - m) with C + sigma^2 = L L': the root keeps half of the digits that the inverse would lose.
            root = np.linalg.cholesky(self.covariances + added)  # (..., K, d, d)
            whiten = np.linalg.inv(root)
            z = np.squeeze(whiten @ off[..., None], -1)
            pulled = np.squeeze(np.swapaxes(whiten, -1, -2) @ z[..., None], -1)
            log_root = np.sum(np.log(np.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        else:
            spread = self._variances() + (square[..., None, None] if np.ndim(square) else square)  # (..., K, d)
            scale = np.sqrt(spread)
            z = off / scale
            pulled = z / scale
            log_root = np.sum(np.log(scale), axis=-1)
        constant = np.log(self.weights / np.sum(self.weights)) - 0.5 * self.dimension * math.log(2 * math.pi)
        return constant - log_root - 0.5 * np.sum(z * z, axis=-1), pulled

    def log_prob(self, x: Any) -> Any:
        """log p(x): (..., d) to (...)."""
        self._check_density()
        return _log_sum(self.components(x)[0])

    def score(self, x: Any) -> Any:
        """The gradient of log p at x, like x: sum_k r_k C_k^-1 (m_k - x), where r_k is the probability of k given x."""
        self._check_density()
        return self._score(x, 0.0)

    def sample(self, key: Any, n: int) -> Any:
        """n samples (n, d). Sample i depends on the key and i alone."""
        if np.ndim(self.covariances) == 3:
            values, vectors = np.linalg.eigh(self.covariances)  # a root that singular matrices have, too
            least = -1e-6 * np.max(np.abs(values), axis=-1, keepdims=True)  # of rounding
            demand(values >= least, "covariances have no eigenvalue below 0: got {}", values)
            roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        else:
            roots = np.sqrt(self._variances())
        logits = np.log(self.weights)

        def one(key: Any) -> Any:
            k = categorical(fold_in(key, 0), logits=logits)
            z = normal(fold_in(key, 1), (self.dimension,), dtype=self.means.dtype)
            root = take(roots, k, axis=0)
            return take(self.means, k, axis=0) + (root @ z if np.ndim(root) == 2 else root * z)

        return vmap(one)(split(key, n))

    def noisy(self, sigma: Any) -> GaussianMixture:
        """The mixture that x0 + sigma epsilon has, for one sigma."""
        square = sigma * sigma
        if np.ndim(self.covariances) == 3:
            square = square * np.eye(self.dimension, dtype=self.means.dtype)
        return GaussianMixture(self.weights, self.means, self.covariances + square)

    def posterior_mean(self, y: Any, sigma: Any) -> Any:
        """E[x0 | y], like y, by Tweedie's formula: y + sigma^2 times the score of the noisy mixture."""
        y = self._points(y)
        level = self._level(sigma, y)
        return y + level * level * self._score(y, sigma)

    def posterior_covariance(self, y: Any, sigma: Any) -> Any:
        """Cov[x0 | y], (..., d, d): sigma^2 (1 + sigma^2 H), H the Hessian of the log-density of the noisy mixture."""

        def one(y: Any, sigma: Any) -> Any:
            curvature = hessian(lambda y: _log_sum(self.components(y, sigma)[0]))(y)
            square = sigma * sigma
            return square * (np.eye(self.dimension, dtype=y.dtype) + square * curvature)

        y = self._points(y)
        self._level(sigma, y)
        if np.ndim(y) == 1:
            return one(y, sigma)
        if np.ndim(y) != 2:
            raise ArgumentError(f"a posterior covariance is that of y (d,) or a batch (B, d): got shape {np.shape(y)}")
        return vmap(one, in_axes=(0, None))(y, sigma) if np.ndim(sigma) == 0 else vmap(one)(y, _each(sigma, y))

    def denoiser(self) -> Callable[..., Any]:
        """The exact denoiser epsilon(x, sigma) = -sigma score(x), for x (B, ...) of d numbers each."""

        def epsilon(x: Any, sigma: Any) -> Any:
            flat = x.reshape(np.shape(x)[0], math.prod(np.shape(x)[1:]))
            return (-as_sigma(sigma, flat) * self._score(flat, sigma)).reshape(np.shape(x)).astype(x.dtype)

        return epsilon

    def _score(self, x: Any, sigma: Any) -> Any:
        logs, pulled = self.components(x, sigma)
        parts = np.exp(logs - _log_sum(logs)[..., None])
        return -np.squeeze(parts[..., None, :] @ pulled, -2)

    def _points(self, x: Any) -> Any:
        """x (..., d), of whatever numbers: another last axis would be broadcast to a wrong answer."""
        x = floating(x)
        if np.shape(x)[-1:] != (self.dimension,):
            one = ": points on a line are (..., 1), x[:, None]" if self.dimension == 1 else ""
            raise ArgumentError(f"x is (..., {self.dimension}) for {self!r}, got shape {np.shape(x)}{one}")
        return x

    def _level(self, sigma: Any, y: Any) -> Any:
        if np.ndim(y) == 1 and np.ndim(sigma):
            raise ArgumentError(f"one y {np.shape(y)} has one noise level: got sigma of shape {np.shape(sigma)}")
        return as_sigma(sigma, y)

    def _check_density(self) -> None:
        given = self.covariances
        if not isinstance(given, Tracer) and np.ndim(given) < 3 and not np.all(given):
            raise ArgumentError("a point mass (variance 0) has no density: add noise first, mixture.noisy(0.01)")

    def _variances(self) -> Any:
        """(K, d), whatever was given."""
        given = self.covariances
        given = given.reshape(*np.shape(given), *(1 for _ in range(2 - np.ndim(given))))
        return np.broadcast_to(given, np.shape(self.means))

    def __repr__(self) -> str:
        count, d = np.shape(self.means)
        return f"GaussianMixture({count} components in {d} dimensions)"


def gaussian_flow(x: Any, mean: Any, covariance: Any, start: Any, end: Any) -> Any:
    """Where the probability flow takes x (..., d) from noise level `start` to `end`, for data of one Gaussian: exact.

    Along the eigenvector of the covariance (d, d) with eigenvalue s2, x - mean is scaled by
    sqrt((s2 + end^2) / (s2 + start^2)).
    """
    x, mean, covariance = _array(x), _array(mean), _array(covariance)
    if np.shape(covariance) != np.shape(x)[-1:] * 2:
        raise ArgumentError(f"x is (..., d) and the covariance (d, d): got {np.shape(x)} and {np.shape(covariance)}")
    values, vectors = np.linalg.eigh(covariance)
    factors = np.sqrt((values + np.square(end)) / (values + np.square(start)))
    return mean + ((x - mean) @ vectors * factors) @ vectors.T


def _log_sum(logs: Any) -> Any:
    """log(sum(exp)) over the last axis, safe where all terms vanish in floating point."""
    top = np.max(logs, axis=-1, keepdims=True)
    return np.squeeze(top, -1) + np.log(np.sum(np.exp(logs - top), axis=-1))


def _array(value: Any) -> Any:
    if isinstance(value, Tracer):
        return value
    return floating(value, "a mixture's array")


def _each(sigma: Any, y: Any) -> Any:
    return np.broadcast_to(array(sigma), np.shape(y)[:1])


def _check_weights(weights: Any) -> None:
    if not isinstance(weights, Tracer) and not (np.all(weights >= 0) and 0 < np.sum(weights) < math.inf):
        raise ArgumentError(f"weights are numbers >= 0, not all of them 0: got {weights}")


def _check_covariances(covariances: Any) -> None:
    if isinstance(covariances, Tracer):
        return
    if np.ndim(covariances) < 3:
        if not np.all(covariances >= 0):
            raise ArgumentError(f"variances are numbers >= 0: got {covariances}")
        return
    apart = np.abs(covariances - np.swapaxes(covariances, -1, -2))
    if not np.all(apart <= 1e-5 * np.max(np.abs(covariances))):
        place = int(np.argmax(np.max(apart, axis=(-2, -1))))
        raise ArgumentError(f"covariances are symmetric matrices of numbers: covariances[{place}] isn't one")


def _flatten(mixture: GaussianMixture) -> tuple[list, tuple]:
    return [mixture.weights, mixture.means, mixture.covariances], ()


def _unflatten(_: tuple, children: Sequence) -> GaussianMixture:
    mixture: GaussianMixture = object.__new__(GaussianMixture)  # children need not be arrays: nothing is checked
    mixture.weights, mixture.means, mixture.covariances = children
    return mixture


register_node(GaussianMixture, _flatten, _unflatten)
