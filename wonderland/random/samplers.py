"""Samplers by one uniform number for each variable: uniform, normal, exponential and what is made of them.

A key (or nothing: the global stream's next one) and a shape come in, an array goes out. All are functions of the
parameters for fixed random bits, so derivatives with respect to bounds, scales, means and covariances are exact.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.level import Traced
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.construct import asarray
from wonderland.ops.quantile import normal_quantile
from wonderland.ops.random import random_bits
from wonderland.random import keys

Shape = int | tuple[int, ...]


def sampler(f: Callable) -> Callable[..., Any]:
    """A public sampler: without a key (or with None) it takes the next one of the global stream."""

    @functools.wraps(f)
    def sample(*args: Any, **kwargs: Any) -> Any:
        if args:
            key, args = args[0], args[1:]
        else:
            key = kwargs.pop("key", None)
        key = keys.next_key() if key is None else keys.checked(key)
        return handles([unwrap(f(key, *args, **kwargs))])[0]

    return sample


def handle(value: Any) -> Any:
    """A traced value as an array that NumPy's functions take; others as they are."""
    return Tracer(value) if isinstance(value, Traced) else value


def shape_tuple(shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence of ints."""
    try:
        out = (operator.index(shape),)
    except TypeError:
        out = tuple(operator.index(n) for n in shape)
    if any(n < 0 for n in out):
        raise ValueError(f"negative dimensions are not allowed: shape {out}")
    return out


def common_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The result's shape: the one asked for, to which the parameters must broadcast, or theirs."""
    own = np.broadcast_shapes(*(shape_of(unlisted(p)) for p in parameters))
    if shape is None:
        return own
    shape = shape_tuple(shape)
    try:
        fits = np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name}: parameters of shape {own} don't broadcast to the shape {shape} that is asked for")
    return shape


def unlisted(value: Any) -> Any:
    """A list, of tracers too, as an array; other values as they are (Python's numbers adapt to their partners)."""
    return asarray(value) if isinstance(value, (list, tuple)) else value


def array(value: Any, dtype: Any = None) -> Any:
    """A parameter as an array or tracer."""
    value = asarray(value)
    return value if dtype is None or value.dtype == dtype else value.astype(dtype)


def float_dtype(dtype: Any, *parameters: Any) -> np.dtype:
    """float32 or float64: the one asked for, or that of the parameters."""
    if dtype is None:
        kinds = [type_of(unwrap(unlisted(p))) for p in parameters]
        strong = [k.dtype for k in kinds if k.dtype.kind == "f" and not k.weak]
        dtype = np.float32 if strong and np.result_type(*strong).itemsize <= 4 else np.float64
    out = np.dtype(dtype)
    if out.char not in "fd":
        raise TypeError(f"random numbers have dtype float32 or float64, not {out}: convert them with .astype")
    return out


def integer_dtype(dtype: Any) -> np.dtype:
    """An integer dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        raise TypeError(f"random integers have an integer dtype, not {dtype}: convert them with .astype")
    return dtype


# From bits to uniform numbers ----------------------------------------------------------------------------------------


def standard_uniform(key: Any, shape: tuple, dtype: np.dtype) -> Any:
    """In [0, 1): every multiple of 2^-53 (2^-24 in float32) alike."""
    width = 53 if dtype == np.float64 else 24
    return handle(random_bits(key, shape=shape, width=width)).astype(dtype) * dtype.type(2.0**-width)


def signed_tail(key: Any, shape: tuple, dtype: np.dtype) -> Any:
    """In [-1/2, 1/2] without 0, symmetric, and fine around 0, where 64 (or 32) bits have the resolution of floats.

    Its absolute value is the probability of the tail beyond the variable, its sign says on which side: so both tails
    of a law are as exact as floating point can be.
    """
    width, signed = (64, np.int64) if dtype == np.float64 else (32, np.int32)
    bits = handle(random_bits(key, shape=shape, width=width)).astype(signed)
    return (bits.astype(dtype) + dtype.type(0.5)) * dtype.type(2.0**-width)


def standard_normal(key: Any, shape: tuple, dtype: np.dtype) -> Any:
    """By the inverse of the distribution function."""
    tail = signed_tail(key, shape, dtype)
    return np.sign(tail) * handle(normal_quantile(unwrap(np.abs(tail))))


def standard_exponential(key: Any, shape: tuple, dtype: np.dtype) -> Any:
    """-log u, exact for small and for large values."""
    tail = signed_tail(key, shape, dtype)
    p = np.abs(tail)
    return -np.where(tail > 0, np.log(p), np.log1p(-p))


# The samplers --------------------------------------------------------------------------------------------------------


@sampler
def bits(key: Any, shape: Shape = (), dtype: Any = np.uint32) -> Any:
    """Random bits: unsigned integers of which all are alike."""
    dtype = np.dtype(dtype)
    if dtype.kind != "u":
        raise TypeError(f"random bits have an unsigned integer dtype, not {dtype}")
    out = handle(random_bits(key, shape=shape_tuple(shape), width=8 * dtype.itemsize))
    return out if out.dtype == dtype else out.astype(dtype)


@sampler
def uniform(key: Any, shape: Shape | None = None, dtype: Any = np.float64, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Uniform in [low, high), up to rounding of `low + (high - low) * u`; in [0, 1) never 1.

    Differentiable with respect to `low` and `high`. Without `shape` it has that of the bounds.
    """
    dtype, shape = float_dtype(dtype), common_shape("uniform", shape, low, high)
    u = standard_uniform(key, shape, dtype)
    if type(low) in (int, float) and type(high) in (int, float) and (low, high) == (0, 1):
        return u
    low, high = array(low, dtype), array(high, dtype)
    return low + (high - low) * u


@sampler
def normal(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard normal: `mean + scale * normal(key, shape)` has a mean and a scale, and their derivatives.

    Of a complex dtype: real and imaginary part with variance 1/2 each.
    """
    dtype, shape = np.dtype(dtype), shape_tuple(shape)
    if dtype.kind == "c":
        part = np.dtype(np.float64 if dtype == np.complex128 else np.float32)
        real, imag = (standard_normal(unwrap(k), shape, float_dtype(part)) for k in keys.split(key))
        return (real + 1j * imag) * part.type(0.5**0.5)
    return standard_normal(key, shape, float_dtype(dtype))


@sampler
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Standard normal, given that it is between `lower` and `upper`; differentiable with respect to both."""
    from scipy.special import log_ndtr, ndtri_exp

    out_dtype = float_dtype(dtype, lower, upper)
    shape = common_shape("truncated_normal", shape, lower, upper)
    lower, upper = array(lower, np.float64), array(upper, np.float64)
    if not any(isinstance(bound, Tracer) for bound in (lower, upper)) and np.any(lower > upper):
        raise ValueError("truncated_normal: lower is above upper")
    # In the lower tail probabilities are small and their logarithms exact: what is more on the right is mirrored.
    mirrored = lower > -upper
    low, high = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    u = handle(random_bits(key, shape=shape, width=52)).astype(np.float64) * 2.0**-52 + 2.0**-53  # in (0, 1)
    log_p = np.logaddexp(log_ndtr(low) + np.log1p(-u), log_ndtr(high) + np.log(u))
    z = np.minimum(np.maximum(ndtri_exp(log_p), low), high)
    return np.where(mirrored, -z, z).astype(out_dtype)


@sampler
def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Shape | None = None, dtype: Any = None, method: str = "cholesky"
) -> Any:
    """Normal vectors: `mean` (..., n) and `cov` (..., n, n) give `shape` + (n,), differentiable with respect to both.

    `method` says how the covariance is factored: "cholesky" wants it positive definite, "eigh" and "svd" allow it to be
    singular (their derivatives want distinct eigenvalues). Without `shape` there is one vector per mean and covariance.
    """
    out_dtype = float_dtype(dtype, mean, cov)
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
    z = standard_normal(key, (*shape, mean.shape[-1]), out_dtype)
    return mean + (factor @ z[..., None])[..., 0]


@sampler
def lognormal(key: Any, sigma: Any = 1.0, shape: Shape | None = None, dtype: Any = None) -> Any:
    """exp(sigma * z) of a standard normal z."""
    dtype, shape = float_dtype(dtype, sigma), common_shape("lognormal", shape, sigma)
    return np.exp(array(sigma, dtype) * standard_normal(key, shape, dtype))


@sampler
def exponential(key: Any, shape: Shape | None = None, dtype: Any = np.float64, scale: Any = 1.0) -> Any:
    """Exponential with mean `scale`."""
    dtype, shape = float_dtype(dtype), common_shape("exponential", shape, scale)
    return array(scale, dtype) * standard_exponential(key, shape, dtype)


@sampler
def gumbel(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Gumbel: -log of an exponential."""
    return -np.log(standard_exponential(key, shape_tuple(shape), float_dtype(dtype)))


@sampler
def laplace(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Laplace, density exp(-|x|) / 2."""
    tail = signed_tail(key, shape_tuple(shape), float_dtype(dtype))
    return -np.sign(tail) * np.log(2 * np.abs(tail))


@sampler
def logistic(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard logistic."""
    tail = signed_tail(key, shape_tuple(shape), float_dtype(dtype))
    p = np.abs(tail)
    return -np.sign(tail) * (np.log(p) - np.log1p(-p))


@sampler
def cauchy(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Cauchy."""
    angle = np.pi * signed_tail(key, shape_tuple(shape), float_dtype(dtype))
    return np.cos(angle) / np.sin(angle)


@sampler
def orthogonal(key: Any, n: int, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Orthogonal matrices (*shape, n, n), uniformly (by Haar's measure)."""
    z = standard_normal(key, (*shape_tuple(shape), n, n), float_dtype(dtype))
    q, r = np.linalg.qr(z)
    # QR alone leaves the signs to the algorithm: with a positive diagonal of R it is unique, and then uniform.
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
