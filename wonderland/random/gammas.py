"""Gamma variables and those made of them: beta, Dirichlet, chi-square, Student's t.

They are computed from logarithms of gamma variables, so that small parameters, for which the variables themselves are
below the smallest number, give the right proportions. Differentiable with respect to the parameters, by implicit
reparametrisation, to any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.tracer import unwrap
from wonderland.random import keys
from wonderland.random.arguments import REQUIRED, Shape, array, common_shape, float_dtype, sampler
from wonderland.random.samplers import moved, samples, standard_normal
from wonderland.transform.derivatives import stop_gradient


def log_gamma_variable(key: Any, a: Any, shape: tuple[Any, ...]) -> Any:
    """The logarithm of a gamma variable for each element, in float64."""
    a = unwrap(array(a, np.float64))
    return samples(key, a, shape=shape, law="loggamma", dtype=np.float64)


@sampler
def loggamma(key: Any = None, shape: Shape | None = None, a: Any = REQUIRED, *, dtype: Any = None) -> Any:
    """The logarithm of a gamma variable of shape parameter `a` and scale 1: finite for the smallest `a`."""
    dtype = float_dtype("loggamma", dtype, a)
    return log_gamma_variable(key, a, common_shape("loggamma", shape, a)).astype(dtype)


@sampler
def gamma(
    key: Any = None, shape: Shape | None = None, a: Any = REQUIRED, scale: Any = 1.0, *, dtype: Any = None
) -> Any:
    """Gamma with shape parameter `a`, density x^(a-1) exp(-x) / Gamma(a), times `scale`."""
    dtype, shape = float_dtype("gamma", dtype, a, scale), common_shape("gamma", shape, a, scale)
    return moved(np.exp(log_gamma_variable(key, a, shape)).astype(dtype), 0, scale, dtype)


@sampler
def chisquare(key: Any = None, shape: Shape | None = None, df: Any = REQUIRED, *, dtype: Any = None) -> Any:
    """Chi-square with `df` degrees of freedom."""
    dtype, shape = float_dtype("chisquare", dtype, df), common_shape("chisquare", shape, df)
    return (2.0 * np.exp(log_gamma_variable(key, array(df, np.float64) * 0.5, shape))).astype(dtype)


@sampler
def t(key: Any = None, shape: Shape | None = None, df: Any = REQUIRED, *, dtype: Any = None) -> Any:
    """Student's t with `df` degrees of freedom."""
    dtype, shape = float_dtype("t", dtype, df), common_shape("t", shape, df)
    first, second = map(unwrap, keys.split(key))
    half = array(df, np.float64) * 0.5
    z = standard_normal(first, shape=shape, dtype=np.dtype(np.float64))
    return (z * np.sqrt(half) * np.exp(-0.5 * log_gamma_variable(second, half, shape))).astype(dtype)


@sampler
def beta(
    key: Any = None, shape: Shape | None = None, a: Any = REQUIRED, b: Any = REQUIRED, *, dtype: Any = None
) -> Any:
    """Beta: x / (x + y) of gamma variables x and y with shape parameters `a` and `b`."""
    dtype, shape = float_dtype("beta", dtype, a, b), common_shape("beta", shape, a, b)
    first, second = map(unwrap, keys.split(key))
    x, y = log_gamma_variable(first, a, shape), log_gamma_variable(second, b, shape)
    top = stop_gradient(np.maximum(x, y))  # any constant will do
    x, y = np.exp(x - top), np.exp(y - top)
    return (x / (x + y)).astype(dtype)


@sampler
def dirichlet(key: Any = None, shape: Shape | None = None, alpha: Any = REQUIRED, *, dtype: Any = None) -> Any:
    """Dirichlet: `alpha` (..., n) gives vectors (*shape, n) of proportions; without `shape`, one for each alpha."""
    alpha = array(alpha)
    if alpha.ndim < 1:
        raise ValueError("dirichlet: alpha is (..., n), one parameter for each proportion, not a number")
    dtype = float_dtype("dirichlet", dtype, alpha)
    shape = common_shape("dirichlet", shape, np.broadcast_to(0.0, alpha.shape[:-1]))
    x = log_gamma_variable(key, alpha, (*shape, alpha.shape[-1]))
    x = np.exp(x - stop_gradient(np.max(x, axis=-1, keepdims=True)))
    return (x / np.sum(x, axis=-1, keepdims=True)).astype(dtype)
