"""Convolutions with filters as long as the sequence: trained as numbers, `LongConv`, or as a function of the distance.

Tokens (..., T, width) come in and go out, as in attention. Long filters are applied by Fourier transforms: T log T
operations instead of T^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wonderland import random
from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.containers import Sequential
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, place_of, wrong_shape
from wonderland.numpy.convolution import conv

# From how many tokens on transforms are faster than products of windows: measured in single precision, a batch of 8, 32
# numbers wide, forward and backward. Filters of single numbers were equal between 64 and 128, matrices near 160.
_LONG = {"depthwise": 96, "matrices": 160}


class LongConv(Module):
    """y_i = sum_j w_(i - j) x_j + b, number by number: (..., T, width) to the same shape, T at most `length`.

    `weight` is (length, width), for the distances 0, ..., length - 1; with `causal=False` (2 length - 1, width), for
    the distances 1 - length, ..., length - 1. `method` is "fft", "direct", or "auto": what is faster for T tokens.
    """

    def __init__(
        self, width: int, length: int, causal: bool = True, *, method: str = "auto", bias: bool | Init = True,
        init: Init | None = None, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.width: int = positive(width, "LongConv: width")
        self.length: int = positive(length, "LongConv: length")
        self.causal: bool = bool(causal)
        self.method: str = method
        how = recipe(self, init, bias, key, dtype)
        of_weight, of_bias = how.keys(2)
        count = self.length if self.causal else 2 * self.length - 1
        default = partial(initialisers.normal, std=1 / math.sqrt(count))
        self.weight: Any = how.weight(of_weight, (count, self.width), default)
        self.bias: Any = how.bias_of(of_bias, (self.width,), count)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.weight)
        if x.ndim < 2 or x.shape[-1] != self.width or x.shape[-2] > self.length:
            raise wrong_shape(self, f"(..., T, {self.width}) with T at most {self.length}", x.shape)
        zero, T = 0 if self.causal else self.length - 1, x.shape[-2]  # the row of distance 0
        first = zero if self.causal else zero - T + 1
        return _convolved(x, self.weight[first : zero + T], zero - first, self.bias, self.method)


class ContinuousConv(Module):
    """y_i = sum_j g((i - j) / length) x_j + b, g a network: (..., T, in_width) to (..., T, out_width).

    g gives matrices (out, in), or with `depthwise=True` one factor for each number of a token. Parameters don't grow
    with T, which may be more or less than `length`. Samples that are `spacing` apart instead of 1 are a call
    `layer(x, spacing=0.5)`: distances are multiplied by it, and so is the sum, as one that stands for an integral.

    g(d) = W_3 sin(W_2 sin(W_1 d + b_1) + b_2) + b_3, `hidden` numbers wide, with W_1 and b_1 up to `omega`; unless `g`
    is given, a Module or function of (n, 1) distances that returns (n, out * in).

    Romero et al. 2022, CKConv: continuous kernel convolution; Poli et al. 2023, Hyena hierarchy.
    """

    def __init__(
        self, in_width: int, out_width: int | None = None, length: int = 64, hidden: int = 32, *,
        g: Callable | None = None, depthwise: bool = False, causal: bool = True, omega: float = 10.0,
        method: str = "auto", bias: bool | Init = True, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.in_width: int = positive(in_width, "ContinuousConv: in_width")
        self.out_width: int = self.in_width if out_width is None else positive(out_width, "ContinuousConv: out_width")
        if depthwise and self.out_width != self.in_width:
            raise ValueError(f"ContinuousConv: depthwise=True keeps the width {in_width}, got out_width={out_width}")
        self.length: int = positive(length, "ContinuousConv: length")
        self.depthwise: bool = bool(depthwise)
        self.causal: bool = bool(causal)
        self.method: str = method
        how = recipe(self, None, bias, key, dtype)
        of_g, of_bias = how.keys(2)
        fan, outputs = (1, self.in_width) if depthwise else (self.in_width, self.in_width * self.out_width)
        fan *= self.length
        self.g: Any = _sine_network(hidden, outputs, omega, fan, of_g, dtype) if g is None else g
        self.bias: Any = how.bias_of(of_bias, (self.out_width,), fan)

    def filters(self, distances: Any) -> Any:
        """g of distances (n,): (n, out, in), or (n, width) if it is depthwise."""
        found, n = self.g(distances[:, None] / self.length), len(distances)
        count = self.in_width * (1 if self.depthwise else self.out_width)
        if found.shape != (n, count):
            raise ValueError(f"{place_of(self)}: g makes ({n}, {count}) of ({n}, 1) distances, got {found.shape}")
        return found if self.depthwise else found.reshape(-1, self.out_width, self.in_width)

    def __call__(self, x: Any, *, spacing: float = 1.0) -> Any:
        x = numbers(self, x, self.bias)
        if x.ndim < 2 or x.shape[-1] != self.in_width:
            raise wrong_shape(self, f"(..., T, {self.in_width})", x.shape)
        T = x.shape[-2]
        zero = 0 if self.causal else T - 1
        distances = (spacing * np.arange(-zero, T)).astype(x.dtype)
        return _convolved(x, spacing * self.filters(distances), zero, self.bias, self.method)


def _sine_network(hidden: int, outputs: int, omega: float, fan: int, key: Any, dtype: Any) -> Any:
    """A function of (n, 1) numbers whose values (n, outputs) have the variance 1 / fan. Sitzmann et al. 2020, SIREN."""
    keys = random.split(key, 3)
    uniform = lambda limit: partial(initialisers.uniform, low=-limit, high=limit)
    inner, last = math.sqrt(6 / hidden), math.sqrt(6 / (hidden * fan))
    return Sequential(
        Linear(1, hidden, uniform(omega), init=uniform(omega), key=keys[0], dtype=dtype),
        np.sin,
        Linear(hidden, hidden, init=uniform(inner), key=keys[1], dtype=dtype),
        np.sin,
        Linear(hidden, outputs, uniform(last), init=uniform(last), key=keys[2], dtype=dtype),
    )


def _convolved(x: Any, filters: Any, zero: int, bias: Any, method: str) -> Any:
    """sum_j filters[i - j + zero] x_j + bias: x (..., T, in), filters (n, width) or (n, out, in)."""
    filters = filters[::-1]  # `conv` counts windows forwards
    depthwise = filters.ndim == 2
    if not x.shape[-2]:
        return np.zeros((*x.shape[:-1], filters.shape[1]), np.result_type(x.dtype, filters.dtype))
    w = filters.T[:, None] if depthwise else np.moveaxis(filters, 0, -1)  # (out, in / groups, n)
    groups, after = x.shape[-1] if depthwise else 1, zero
    before = filters.shape[0] - 1 - zero
    if method == "auto":
        method = "fft" if x.shape[-2] >= _LONG["depthwise" if depthwise else "matrices"] else "direct"
    return conv(x, w, padding=[(before, after)], groups=groups, bias=bias, channels="last", method=method)
