"""Gamma variables and those made of them: beta, Dirichlet, chi-square, Student's t.

They are computed from logarithms of gamma variables, so that small parameters, for which the variables themselves are
below the smallest number, give the right proportions. Differentiable with respect to the parameters, by implicit
reparametrisation, to any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.tracer import unwrap
from wonderland.ops.random_laws import sampled
from wonderland.random import keys
from wonderland.random.samplers import Shape, array, common_shape, float_dtype, handle, sampler, standard_normal
from wonderland.transform.derivatives import stop_gradient


def log_gamma_variable(key: Any, a: Any, shape: tuple) -> Any:
    """The logarithm of a gamma variable for each element, in float64."""
    a = unwrap(array(a, np.float64))
    return handle(sampled(key, a, law="loggamma", shape=shape, dtype=np.float64))


@sampler
def loggamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """The logarithm of a gamma variable of shape parameter `a` and scale 1: finite for the smallest `a`."""
    return log_gamma_variable(key, a, common_shape("loggamma", shape, a)).astype(float_dtype(dtype, a))


@sampler
def gamma(key: Any, a: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Gamma with shape parameter `a` and scale 1, density x^(a-1) exp(-x) / Gamma(a)."""
    return np.exp(log_gamma_variable(key, a, common_shape("gamma", shape, a))).astype(float_dtype(dtype, a))


@sampler
def chisquare(key: Any, df: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Chi-square with `df` degrees of freedom."""
    half = array(df, np.float64) * 0.5
    out = 2.0 * np.exp(log_gamma_variable(key, half, common_shape("chisquare", shape, df)))
    return out.astype(float_dtype(dtype, df))


@sampler
def t(key: Any, df: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Student's t with `df` degrees of freedom."""
    shape = common_shape("t", shape, df)
    first, second = map(unwrap, keys.split(key))
    half = array(df, np.float64) * 0.5
    z = standard_normal(first, shape, np.dtype(np.float64))
    out = z * np.sqrt(half) * np.exp(-0.5 * log_gamma_variable(second, half, shape))
    return out.astype(float_dtype(dtype, df))


@sampler
def beta(key: Any, a: Any, b: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Beta: x / (x + y) of gamma variables x and y with shape parameters `a` and `b`."""
    shape = common_shape("beta", shape, a, b)
    first, second = map(unwrap, keys.split(key))
    x, y = log_gamma_variable(first, a, shape), log_gamma_variable(second, b, shape)
    top = stop_gradient(np.maximum(x, y))  # any constant will do
    x, y = np.exp(x - top), np.exp(y - top)
    return (x / (x + y)).astype(float_dtype(dtype, a, b))


@sampler
def dirichlet(key: Any, alpha: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Dirichlet: `alpha` (..., n) gives vectors (*shape, n) of proportions; without `shape`, one for each alpha."""
    alpha = array(alpha)
    if alpha.ndim < 1:
        raise ValueError("dirichlet: alpha is (..., n), one parameter for each proportion, not a number")
    shape = common_shape("dirichlet", shape, np.broadcast_to(0.0, alpha.shape[:-1]))
    x = log_gamma_variable(key, alpha, (*shape, alpha.shape[-1]))
    x = np.exp(x - stop_gradient(np.max(x, axis=-1, keepdims=True)))
    return (x / np.sum(x, axis=-1, keepdims=True)).astype(float_dtype(dtype, alpha))
