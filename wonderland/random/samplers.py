"""Samplers by one uniform number for each variable: uniform, normal, exponential and what is made of them.

A key (or nothing: the global stream's next one), a shape and parameters come in, an array goes out. All are functions
of the parameters for fixed random bits, so derivatives with respect to bounds, scales, means and covariances are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.tracer import Tracer, unwrap
from wonderland.ops.quantile import normal_quantile
from wonderland.ops.random import random_bits
from wonderland.ops.random_laws import sampled
from wonderland.random import keys
from wonderland.random.arguments import (
    REQUIRED,
    Shape,
    array,
    common_shape,
    float_dtype,
    handle,
    known_dtype,
    sampler,
    shape_tuple,
)
from wonderland.random.large import natively

# What is drawn for a key and a shape, large arrays by compiled code --------------------------------------------------


@natively
def word_bits(key: Any, *, shape: tuple[Any, ...], width: int) -> Any:
    """`width` random bits."""
    return handle(random_bits(key, shape=shape, width=width))


@natively
def samples(key: Any, *operands: Any, shape: tuple[Any, ...], law: str, dtype: Any) -> Any:
    """By rejection (ops/random_laws.py)."""
    return handle(sampled(key, *operands, law=law, shape=shape, dtype=dtype))


@natively
def standard_uniform(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """In [0, 1): every multiple of 2^-53 (2^-24 in float32) alike."""
    width = 53 if dtype == np.float64 else 24
    return handle(random_bits(key, shape=shape, width=width)).astype(dtype) * dtype.type(2.0**-width)


def signed_tail(key: Any, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """In [-1/2, 1/2] without 0, symmetric, and fine around 0, where 64 (or 32) bits have the resolution of floats.

    Its absolute value is the probability of the tail beyond the variable, its sign says on which side: so both tails
    of a law are as exact as floating point can be.
    """
    width, signed = (64, np.int64) if dtype == np.float64 else (32, np.int32)
    bits = handle(random_bits(key, shape=shape, width=width)).astype(signed)
    return (bits.astype(dtype) + dtype.type(0.5)) * dtype.type(2.0**-width)


@natively
def standard_normal(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """By the inverse of the distribution function."""
    tail = signed_tail(key, shape, dtype)
    return np.sign(tail) * handle(normal_quantile(unwrap(np.abs(tail))))


@natively
def standard_exponential(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """-log u, exact for small and for large values."""
    tail = signed_tail(key, shape, dtype)
    p = np.abs(tail)
    return -np.where(tail > 0, np.log(p), np.log1p(-p))


@natively
def standard_gumbel(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """-log of an exponential."""
    return -np.log(standard_exponential(key, shape=shape, dtype=dtype))


@natively
def standard_laplace(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """Density exp(-|x|) / 2."""
    tail = signed_tail(key, shape, dtype)
    return -np.sign(tail) * np.log(2 * np.abs(tail))


@natively
def standard_logistic(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """Distribution function 1 / (1 + exp(-x))."""
    tail = signed_tail(key, shape, dtype)
    p = np.abs(tail)
    return -np.sign(tail) * (np.log(p) - np.log1p(-p))


@natively
def standard_cauchy(key: Any, *, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
    """The cotangent of a uniform angle."""
    angle = np.pi * signed_tail(key, shape, dtype)
    return np.cos(angle) / np.sin(angle)


# The samplers --------------------------------------------------------------------------------------------------------


def moved(z: Any, loc: Any, scale: Any, dtype: np.dtype) -> Any:
    """loc + scale * z; z itself where they are the numbers 0 and 1."""
    if not _is_number(scale, 1):
        z = array(scale, dtype) * z
    return z if _is_number(loc, 0) else array(loc, dtype) + z


def _is_number(value: Any, number: int) -> bool:
    return type(value) in (int, float) and value == number


@sampler
def bits(key: Any = None, shape: Shape = (), *, dtype: Any = np.uint32) -> Any:
    """Random bits: unsigned integers of which all are alike."""
    dtype = known_dtype("bits", dtype, np.uint32)
    if dtype.kind != "u":
        raise TypeError(f"random bits have an unsigned integer dtype, not {dtype}")
    out = word_bits(key, shape=shape_tuple("bits", shape), width=8 * dtype.itemsize)
    return out if out.dtype == dtype else out.astype(dtype)


@sampler
def uniform(key: Any = None, shape: Shape | None = None, low: Any = 0.0, high: Any = 1.0, *, dtype: Any = None) -> Any:
    """Uniform in [low, high), up to rounding of `low + (high - low) * u`; in [0, 1) never 1.

    Differentiable with respect to `low` and `high`.
    """
    dtype, shape = float_dtype("uniform", dtype, low, high), common_shape("uniform", shape, low, high)
    u = standard_uniform(key, shape=shape, dtype=dtype)
    if _is_number(low, 0) and _is_number(high, 1):
        return u
    low, high = array(low, dtype), array(high, dtype)
    return low + (high - low) * u


@sampler
def normal(key: Any = None, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Any:
    """Normal with mean `loc` and standard deviation `scale`, differentiable with respect to both.

    Of a complex dtype: real and imaginary part with variance scale^2 / 2 each.
    """
    shape = common_shape("normal", shape, loc, scale)
    if dtype is not None and (wanted := known_dtype("normal", dtype)).char in "FD":
        part = float_dtype("normal", np.float32 if wanted == np.complex64 else np.float64)
        real, imag = (standard_normal(unwrap(k), shape=shape, dtype=part) for k in keys.split(key))
        return moved((real + 1j * imag) * part.type(0.5**0.5), loc, scale, wanted)
    dtype = float_dtype("normal", dtype, loc, scale)
    return moved(standard_normal(key, shape=shape, dtype=dtype), loc, scale, dtype)


@sampler
def truncated_normal(
    key: Any = None, shape: Shape | None = None, lower: Any = REQUIRED, upper: Any = REQUIRED, *, dtype: Any = None
) -> Any:
    """Standard normal, given that it is between `lower` and `upper`; differentiable with respect to both."""
    with loading():
        from scipy.special import log_ndtr, ndtri_exp

    out_dtype = float_dtype("truncated_normal", dtype, lower, upper)
    shape = common_shape("truncated_normal", shape, lower, upper)
    lower, upper = array(lower, np.float64), array(upper, np.float64)
    if not any(isinstance(bound, Tracer) for bound in (lower, upper)) and np.any(lower > upper):
        raise ValueError("truncated_normal: lower is above upper")
    # In the lower tail probabilities are small and their logarithms exact: what is more on the right is mirrored, with
    # 1 - u (exact) for u, so that samples don't jump where the bounds become symmetric.
    mirrored = lower > -upper
    low, high = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    u = word_bits(key, shape=shape, width=52).astype(np.float64) * 2.0**-52 + 2.0**-53  # in (0, 1)
    u = np.where(mirrored, 1.0 - u, u)
    log_p = np.logaddexp(log_ndtr(low) + np.log1p(-u), log_ndtr(high) + np.log(u))
    z = np.minimum(np.maximum(ndtri_exp(log_p), low), high)
    return (z * np.where(mirrored, -1.0, 1.0)).astype(out_dtype)


@sampler
def multivariate_normal(
    key: Any = None,
    shape: Shape | None = None,
    mean: Any = REQUIRED,
    cov: Any = REQUIRED,
    *,
    dtype: Any = None,
    method: str = "cholesky",
) -> Any:
    """Normal vectors: `mean` (..., n) and `cov` (..., n, n) give `shape` + (n,), differentiable with respect to both.

    `method` says how the covariance is factored: "cholesky" wants it positive definite, "eigh" and "svd" allow it to be
    singular (their derivatives want distinct eigenvalues). Without `shape` there is one vector per mean and covariance.
    """
    out_dtype = float_dtype("multivariate_normal", dtype, mean, cov)
    mean, cov = array(mean, out_dtype), array(cov, out_dtype)
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-2:] != (mean.shape[-1],) * 2:
        raise ValueError(
            f"multivariate_normal: mean is (..., n) and cov is (..., n, n), not {mean.shape} and {cov.shape}"
        )
    own = np.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    shape = common_shape("multivariate_normal", shape, np.broadcast_to(0.0, own))
    if method == "cholesky":
        factor = np.linalg.cholesky(cov)
    elif method == "eigh":
        values, vectors = np.linalg.eigh(cov)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    elif method == "svd":
        left, values, _ = np.linalg.svd(cov)
        factor = left * np.sqrt(values)[..., None, :]
    else:
        raise ValueError(f'multivariate_normal: method is "cholesky", "eigh" or "svd", not {method!r}')
    z = standard_normal(key, shape=(*shape, mean.shape[-1]), dtype=out_dtype)
    return mean + (factor @ z[..., None])[..., 0]


@sampler
def lognormal(
    key: Any = None, shape: Shape | None = None, mean: Any = 0.0, sigma: Any = 1.0, *, dtype: Any = None
) -> Any:
    """exp(mean + sigma * z) of a standard normal z."""
    dtype, shape = float_dtype("lognormal", dtype, mean, sigma), common_shape("lognormal", shape, mean, sigma)
    return np.exp(moved(standard_normal(key, shape=shape, dtype=dtype), mean, sigma, dtype))


@sampler
def exponential(key: Any = None, shape: Shape | None = None, scale: Any = 1.0, *, dtype: Any = None) -> Any:
    """Exponential with mean `scale`."""
    dtype, shape = float_dtype("exponential", dtype, scale), common_shape("exponential", shape, scale)
    return moved(standard_exponential(key, shape=shape, dtype=dtype), 0, scale, dtype)


@sampler
def gumbel(key: Any = None, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Any:
    """Gumbel: loc - scale * log of an exponential."""
    dtype, shape = float_dtype("gumbel", dtype, loc, scale), common_shape("gumbel", shape, loc, scale)
    return moved(standard_gumbel(key, shape=shape, dtype=dtype), loc, scale, dtype)


@sampler
def laplace(key: Any = None, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Any:
    """Laplace, density exp(-|x - loc| / scale) / (2 scale)."""
    dtype, shape = float_dtype("laplace", dtype, loc, scale), common_shape("laplace", shape, loc, scale)
    return moved(standard_laplace(key, shape=shape, dtype=dtype), loc, scale, dtype)


@sampler
def logistic(
    key: Any = None, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None
) -> Any:
    """Logistic: its distribution function is the sigmoid of (x - loc) / scale."""
    dtype, shape = float_dtype("logistic", dtype, loc, scale), common_shape("logistic", shape, loc, scale)
    return moved(standard_logistic(key, shape=shape, dtype=dtype), loc, scale, dtype)


@sampler
def cauchy(key: Any = None, shape: Shape | None = None, loc: Any = 0.0, scale: Any = 1.0, *, dtype: Any = None) -> Any:
    """Cauchy: loc + scale * tan of a uniform angle."""
    dtype, shape = float_dtype("cauchy", dtype, loc, scale), common_shape("cauchy", shape, loc, scale)
    return moved(standard_cauchy(key, shape=shape, dtype=dtype), loc, scale, dtype)


@sampler
def orthogonal(key: Any = None, shape: Shape | None = None, n: int = REQUIRED, *, dtype: Any = None) -> Any:
    """Orthogonal matrices (*shape, n, n), uniformly (by Haar's measure)."""
    shape = shape_tuple("orthogonal", (*common_shape("orthogonal", shape), n, n))
    z = standard_normal(key, shape=shape, dtype=float_dtype("orthogonal", dtype))
    q, r = np.linalg.qr(z)
    # QR alone leaves the signs to the algorithm: with a positive diagonal of R it is unique, and then uniform.
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
