"""Activation functions: an array comes in, one of the same shape and dtype goes out.

At a kink the derivative is PyTorch's (`relu'(0) = 0`); NaN stays NaN. Nothing overflows for numbers of any size, in
the derivatives either. `gates.py` has functions of several numbers and those with arrays of parameters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.nn.arguments import apply, axis_of, floating
from wonderland.ops import math as elementary
from wonderland.ops.special import erf, erfc
from wonderland.transform.derivatives import stop_gradient

# Piecewise linear ----------------------------------------------------------------------------------------------------


def relu(x: Any) -> Any:
    """max(x, 0), with derivative 0 at 0."""
    x = floating(x)
    return np.where(x <= 0, 0, x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6), with derivative 0 at 0 and 6."""
    return hardtanh(x, 0.0, 6.0)


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """x where it is positive, slope * x elsewhere; at 0 the derivative is the slope."""
    x = floating(x)
    return np.where(x > 0, x, slope * x)


def prelu(x: Any, slope: Any, axis: int = -1) -> Any:
    """`leaky_relu` whose slope is trained: one number, or one for each channel along `axis` (PyTorch's is 1).

    He et al. 2015, Delving deep into rectifiers.
    """
    x = floating(x)
    slope = floating(slope, "slope").astype(x.dtype)
    if slope.size > 1 or slope.ndim > 1:
        axis = axis_of(axis, x.shape, "prelu: x")
        if slope.shape != x.shape[axis : axis + 1]:
            raise ValueError(f"prelu: slope has shape {slope.shape}, x {x.shape}: one slope for each of axis {axis}")
        slope = slope.reshape(-1, *(1,) * (x.ndim - axis - 1))
    elif slope.ndim:
        slope = slope[0]
    return np.where(x > 0, x, slope * x)


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x, cut off at `min_val` and `max_val`, where the derivative is 0."""
    x = floating(x)
    return np.where(x <= min_val, min_val, np.where(x >= max_val, max_val, x))


def hardsigmoid(x: Any) -> Any:
    """min(max(x + 3, 0), 6) / 6, with derivative 0 at -3 and 3."""
    return hardtanh(floating(x) / 6 + 0.5, 0.0, 1.0)


def hardswish(x: Any) -> Any:
    """x min(max(x + 3, 0), 6) / 6. Howard et al. 2019, Searching for MobileNetV3.

    At the kinks it is differentiated from the outside: 0 at -3, and 1 at 3.
    """
    x = floating(x)
    inside = np.where((x <= -3) | (x >= 3), 0, x)
    return np.where(x <= -3, 0, np.where(x >= 3, x, inside * (inside / 6 + 0.5)))


# Exponential ---------------------------------------------------------------------------------------------------------


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, alpha (exp(x) - 1) elsewhere. Clevert et al. 2016."""
    x = floating(x)
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x)))


def selu(x: Any) -> Any:
    """1.0507 elu(x, 1.6733), whose iteration keeps mean 0 and variance 1. Klambauer et al. 2017."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def celu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, alpha (exp(x / alpha) - 1) elsewhere: the derivative is continuous. Barron 2017."""
    x = floating(x)
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x) / alpha))


def softplus(x: Any, beta: float = 1.0) -> Any:
    """log(1 + exp(beta x)) / beta, for large numbers too: there is no threshold."""
    x = floating(x)
    return np.logaddexp(0, x) if isinstance(beta, (int, float)) and beta == 1 else np.logaddexp(0, beta * x) / beta


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)); its derivative keeps its digits in both tails."""
    return apply(elementary.sigmoid, floating(x))


def logsigmoid(x: Any) -> Any:
    """log(sigmoid(x)) = -softplus(-x)."""
    return -np.logaddexp(0, -floating(x))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, 2 sigmoid(2 x) - 1."""
    return np.tanh(floating(x))


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    x = floating(x)
    return x / (1 + np.abs(x))


# Smooth relatives of relu --------------------------------------------------------------------------------------------


def gelu(x: Any, approximate: str = "none") -> Any:
    """x Phi(x), Phi the distribution function of a standard normal variable. Hendrycks and Gimpel 2016.

    `approximate="tanh"` is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    """
    x = floating(x)
    if approximate == "none":
        if x.dtype == np.float64:  # the lower tail keeps its digits
            return 0.5 * x * apply(erfc, -math.sqrt(0.5) * x)
        return 0.5 * x * (1 + apply(erf, math.sqrt(0.5) * x))  # compiled erf is four times as fast in single precision
    if approximate != "tanh":
        raise ValueError(f'gelu: approximate is "none" or "tanh", got {approximate!r}')
    inner = np.clip(x, -10.0, 10.0)  # beyond, tanh is 1, and x^3 may overflow
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner * inner * inner)))


def silu(x: Any) -> Any:
    """x sigmoid(x), also called swish."""
    x = floating(x)
    return x * sigmoid(x)


def swish(x: Any, a: Any = 1.0, b: Any = 0.0, c: Any = 1.0, d: Any = 0.0) -> Any:
    """sigmoid(a x + b) (c x + d), whose four parameters are trained; without them it is `silu`.

    Parameters are numbers, or arrays to broadcast with x. Ramachandran et al. 2017; equation 5.12 of the book.
    """
    x = floating(x)
    a, b, c, d = (p if isinstance(p, (int, float)) else floating(p).astype(x.dtype) for p in (a, b, c, d))
    return sigmoid(a * x + b) * (c * x + d)


def mish(x: Any) -> Any:
    """x tanh(softplus(x)). Misra 2019."""
    x = floating(x)
    return x * np.tanh(np.logaddexp(0, x))


# Along an axis -------------------------------------------------------------------------------------------------------


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis. -inf is a probability of 0; a row of nothing else is NaN."""
    x = floating(x)
    terms = np.exp(x - np.max(stop_gradient(x), axis=axis, keepdims=True))
    return terms / np.sum(terms, axis=axis, keepdims=True)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """log(softmax(x)), without the overflow or the zero in between."""
    x = floating(x)
    shifted = x - np.max(stop_gradient(x), axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
