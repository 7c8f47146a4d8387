"""`NonLocal`: attention between all places of a sequence, an image or a video."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, wrong_shape
from wonderland.numpy.attention import attention

KINDS = ("embedded", "gaussian", "dot")


class NonLocal(Module):
    """y_i = x_i + W_z 1/C_i sum_j f(x_i, x_j) W_g x_j over all places j: (..., channels, *size) to the same shape.

        kind="gaussian"    f = exp(x_i . x_j),                C_i = sum_j f
        kind="embedded"    f = exp(W_theta x_i . W_phi x_j),  C_i = sum_j f
        kind="dot"         f = W_theta x_i . W_phi x_j,       C_i = the number of places

    `rank` is the number of axes of places: 1 for sequences, 2 for images, 3 for videos. W_theta, W_phi and W_g make
    `inner` channels, half of them unless it is given. W_z, `out`, begins with zeros unless `out_init` draws it: the
    layer begins as the identity.
    Wang et al. 2018, Non-local neural networks.
    """

    def __init__(
        self, channels: int, inner: int | None = None, kind: str = "embedded", rank: int = 2, *,
        channels_last: bool = False, bias: bool | Init = True, init: Init | None = None,
        out_init: Init = initialisers.zeros, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if kind not in KINDS:
            raise ValueError(f"NonLocal: kind is one of {KINDS}, got {kind!r}")
        self.channels: int = positive(channels, "NonLocal: channels")
        inner = max(self.channels // 2, 1) if inner is None else positive(inner, "NonLocal: inner")
        self.kind: str = kind
        self.rank: int = positive(rank, "NonLocal: rank")
        self.channels_last: bool = bool(channels_last)
        keys = recipe(self, init, bias, key, dtype).keys(4)
        make = lambda key: Linear(self.channels, inner, bias, init=init, key=key, dtype=dtype)
        self.theta: Any = None if kind == "gaussian" else make(keys[0])
        self.phi: Any = None if kind == "gaussian" else make(keys[1])
        self.g: Any = make(keys[2])
        nothing = initialisers.zeros if bias else False
        self.out: Any = Linear(inner, self.channels, nothing, init=out_init, key=keys[3], dtype=dtype)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.g.weight)
        axis = -1 if self.channels_last else -1 - self.rank
        if x.ndim <= self.rank or x.shape[axis] != self.channels:
            places = ", ".join(["n"] * self.rank)
            shape = f"(..., {places}, {self.channels})" if self.channels_last else f"(..., {self.channels}, {places})"
            raise wrong_shape(self, shape, x.shape)
        tokens = np.moveaxis(x, axis, -1)  # (..., *size, C)
        size = tokens.shape[-1 - self.rank : -1]
        tokens = tokens.reshape(*tokens.shape[: -1 - self.rank], math.prod(size), self.channels)  # (..., N, C)
        y = self.out(self._mixed(tokens))
        y = y.reshape(*y.shape[:-2], *size, self.channels)
        return x + np.moveaxis(y, -1, axis)

    def _mixed(self, x: Any) -> Any:
        """(..., N, channels) to (..., N, inner)."""
        q, k = (x, x) if self.theta is None else (self.theta(x), self.phi(x))
        v = self.g(x)
        if self.kind == "dot":  # in this order, it takes N products instead of N^2
            return q @ (np.swapaxes(k, -2, -1) @ v) / x.shape[-2]
        return attention(q[..., None, :, :], k[..., None, :, :], v[..., None, :, :], scale=1.0)[..., 0, :, :]
