"""Densities and divergences of Gaussians in closed form: means and (log) variances come in, numbers go out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import floating
from wonderland.scipy.linalg import solve_triangular

LOG_2PI = math.log(2 * math.pi)


def standard_log_density(z: Any) -> Any:
    """log N(z | 0, I), a sum over the last axis."""
    return -0.5 * np.sum(LOG_2PI + z**2, axis=-1)


def diagonal_log_density(z: Any, mean: Any, log_variance: Any) -> Any:
    """log N(z | mean, diag exp(log_variance)): a sum over the last axis, the others broadcast."""
    return -0.5 * np.sum(LOG_2PI + log_variance + (z - mean) ** 2 * np.exp(-log_variance), axis=-1)


def diagonal_gaussian_kl(mean: Any, log_variance: Any, prior_mean: Any = None, prior_log_variance: Any = None) -> Any:
    """KL(N(mean, exp log_variance) || N(prior)), coordinates independent: sums over the last axis, (..., d) to (...).

    Without a prior that of N(0, 1), where 2 KL = |mu|^2 + |sigma|^2 - sum_i log sigma_i^2 - d.
    """
    mean, log_variance = floating(mean), floating(log_variance)
    prior_mean = prior_mean if prior_mean is None else floating(prior_mean)
    prior_log_variance = prior_log_variance if prior_log_variance is None else floating(prior_log_variance)
    difference = log_variance if prior_log_variance is None else log_variance - prior_log_variance
    squares = (mean if prior_mean is None else mean - prior_mean) ** 2
    if prior_log_variance is not None:
        squares = squares * np.exp(-prior_log_variance)
    return 0.5 * np.sum(squares + np.exp(difference) - difference - 1, axis=-1)


def gaussian_kl(mean: Any, covariance: Any, other_mean: Any, other_covariance: Any) -> Any:
    """KL(N(mean, S) || N(m, T)) = 1/2 (tr T^-1 S + (m - mean)' T^-1 (m - mean) - d + log det T - log det S).

    Means (..., d), covariances (..., d, d).
    """
    mean, covariance = floating(mean), floating(covariance)
    other_mean, other_covariance = floating(other_mean), floating(other_covariance)
    if covariance.shape[-2:] != mean.shape[-1:] * 2 or other_covariance.shape[-2:] != other_mean.shape[-1:] * 2:
        raise ArgumentError(
            f"gaussian_kl takes means (..., d) and covariances (..., d, d), got {mean.shape}, {covariance.shape} and "
            f"{other_mean.shape}, {other_covariance.shape}"
        )
    first, second = np.linalg.cholesky(covariance), np.linalg.cholesky(other_covariance)
    spread, moved = solve_triangular(second, first, lower=True), _solved(second, other_mean - mean)
    traces = np.sum(spread**2, axis=(-2, -1)) + np.sum(moved**2, axis=-1) - mean.shape[-1]
    return 0.5 * traces + _half_log_det(second) - _half_log_det(first)


def gaussian_log_density(x: Any, mean: Any, covariance: Any) -> Any:
    """log N(x | mean, covariance) for x (..., d), a mean (..., d) and a covariance (..., d, d)."""
    x, mean, covariance = floating(x), floating(mean), floating(covariance)
    if x.shape[-1:] != mean.shape[-1:] or covariance.shape[-2:] != x.shape[-1:] * 2 or not x.ndim:
        raise ArgumentError(
            f"gaussian_log_density takes x and means (..., d) and covariances (..., d, d), got {x.shape}, {mean.shape} "
            f"and {covariance.shape}"
        )
    factor = np.linalg.cholesky(covariance)
    white = _solved(factor, x - mean)
    return -0.5 * x.shape[-1] * LOG_2PI - _half_log_det(factor) - 0.5 * np.sum(white**2, axis=-1)


def _solved(factor: Any, x: Any) -> Any:
    """C^-1 x for x (..., d), all of them at once if there is one factor."""
    if factor.ndim == 2 and x.ndim > 1:
        flat = solve_triangular(factor, x.reshape(-1, x.shape[-1]).T, lower=True).T
        return flat.reshape(x.shape)
    return solve_triangular(factor, x[..., None], lower=True)[..., 0]


def _half_log_det(factor: Any) -> Any:
    """log det C, half the log determinant of C C'."""
    return np.sum(np.log(np.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
