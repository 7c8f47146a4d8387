"""Activation functions as layers, for those who write models as lists of layers; the functions do as well.

An array of any shape comes in, one of the same shape and dtype goes out. The arguments are PyTorch's.
"""

from __future__ import annotations

from typing import Any

from wonderland.nn import activations, gates
from wonderland.nn.module import Module
from wonderland.nn.placing import placed


class ReLU(Module):
    """max(x, 0)."""

    def __call__(self, x: Any) -> Any:
        return activations.relu(x)


class ReLU6(Module):
    """min(max(x, 0), 6)."""

    def __call__(self, x: Any) -> Any:
        return activations.relu6(x)


class LeakyReLU(Module):
    """x where it is positive, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 0.01):
        self.negative_slope: float = float(negative_slope)

    def __call__(self, x: Any) -> Any:
        return activations.leaky_relu(x, self.negative_slope)


class ELU(Module):
    """x where it is positive, alpha (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0):
        self.alpha: float = float(alpha)

    def __call__(self, x: Any) -> Any:
        return activations.elu(x, self.alpha)


class SELU(Module):
    """1.0507 elu(x, 1.6733)."""

    def __call__(self, x: Any) -> Any:
        return activations.selu(x)


class CELU(Module):
    """x where it is positive, alpha (exp(x / alpha) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0):
        self.alpha: float = float(alpha)

    def __call__(self, x: Any) -> Any:
        return activations.celu(x, self.alpha)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta."""

    def __init__(self, beta: float = 1.0):
        self.beta: float = float(beta)

    def __call__(self, x: Any) -> Any:
        return activations.softplus(x, self.beta)


class Softsign(Module):
    """x / (1 + |x|)."""

    def __call__(self, x: Any) -> Any:
        return activations.softsign(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def __call__(self, x: Any) -> Any:
        return activations.sigmoid(x)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def __call__(self, x: Any) -> Any:
        return activations.logsigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def __call__(self, x: Any) -> Any:
        return activations.tanh(x)


class Hardtanh(Module):
    """x, cut off at `min_val` and `max_val`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0):
        if not min_val < max_val:
            raise ValueError(f"Hardtanh: min_val={min_val} is not below max_val={max_val}")
        self.max_val: float
        self.min_val: float
        self.min_val, self.max_val = float(min_val), float(max_val)

    def __call__(self, x: Any) -> Any:
        return activations.hardtanh(x, self.min_val, self.max_val)


class Hardsigmoid(Module):
    """min(max(x + 3, 0), 6) / 6."""

    def __call__(self, x: Any) -> Any:
        return activations.hardsigmoid(x)


class Hardswish(Module):
    """x min(max(x + 3, 0), 6) / 6."""

    def __call__(self, x: Any) -> Any:
        return activations.hardswish(x)


class GELU(Module):
    """x Phi(x), Phi the distribution function of a normal variable; `approximate="tanh"` is a formula for it."""

    def __init__(self, approximate: str = "none"):
        if approximate not in ("none", "tanh"):
            raise ValueError(f'GELU: approximate is "none" or "tanh", not {approximate!r}')
        self.approximate = approximate

    def __call__(self, x: Any) -> Any:
        return activations.gelu(x, self.approximate)


class SiLU(Module):
    """x sigmoid(x)."""

    def __call__(self, x: Any) -> Any:
        return activations.silu(x)


class Mish(Module):
    """x tanh(softplus(x))."""

    def __call__(self, x: Any) -> Any:
        return activations.mish(x)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along an axis."""

    def __init__(self, axis: int = -1):
        self.axis = axis

    def __call__(self, x: Any) -> Any:
        return activations.softmax(x, self.axis)


class LogSoftmax(Module):
    """log(softmax(x)) along an axis."""

    def __init__(self, axis: int = -1):
        self.axis = axis

    def __call__(self, x: Any) -> Any:
        return activations.log_softmax(x, self.axis)


class GLU(Module):
    """a sigmoid(b), a and b the halves of x along an axis: (..., 2 n) becomes (..., n)."""

    def __init__(self, axis: int = -1):
        self.axis = axis

    def __call__(self, x: Any) -> Any:
        with placed(self):
            return gates.glu(x, self.axis)
