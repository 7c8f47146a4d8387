"""`FeedForward` and `TransformerBlock`: the layers that transformers are stacks of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.nn import activations
from wonderland.nn import init as initialisers
from wonderland.nn.attention import MultiHeadAttention
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.dropout import Dropout
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.norms import LayerNorm, RMSNorm


def gelu_tanh(x: Any) -> Any:
    """`gelu` with `approximate="tanh"`: that of GPT-2."""
    return activations.gelu(x, "tanh")


ACTIVATIONS: dict[str, Callable] = {
    "gelu": activations.gelu, "gelu_tanh": gelu_tanh, "relu": activations.relu, "silu": activations.silu,
}  # fmt: skip
ORDERS = ("pre", "post", "parallel")
OF_PLACES = ("causal", "window", "rotary", "position_bias")  # options that another sequence has no use for


class FeedForward(Module):
    """y = W_outer a(W_inner x), of each token: (..., width) to the same shape, `hidden` numbers wide in between.

    `gated`: y = W_outer (a(W_gate x) * W_inner x), which is SwiGLU for a = silu, GEGLU for gelu (Shazeer 2020).
    `activation` is a function, or one of "gelu", "gelu_tanh", "relu", "silu".
    """

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        activation: str | Callable = "gelu",
        gated: bool = False,
        *,
        bias: bool | Init = True,
        dropout: float = 0.0,
        init: Init | None = None,
        out_init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.width: int = positive(width, "FeedForward: width")
        hidden = 4 * self.width if hidden is None else positive(hidden, "FeedForward: hidden")
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise ValueError(f"FeedForward: activation is a function or one of {[*ACTIVATIONS]}, got {activation!r}")
        self.activation: Any = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        keys = recipe(self, init, bias, key, dtype).keys(4)
        options: dict[str, Any] = {"bias": bias, "dtype": dtype}
        self.gate: Any = Linear(self.width, hidden, init=init, key=keys[0], **options) if gated else None
        self.inner: Any = Linear(self.width, hidden, init=init, key=keys[1], **options)
        self.outer: Any = Linear(hidden, self.width, init=out_init or init, key=keys[2], **options)
        self.dropout: Any = Dropout(dropout, key=keys[3]) if dropout else None

    def __call__(self, x: Any) -> Any:
        h = self.inner(x)  # (..., hidden)
        h = self.activation(h) if self.gate is None else self.activation(self.gate(x)) * h
        h = self.outer(h)
        return h if self.dropout is None else self.dropout(h)


class TransformerBlock(Module):
    """Attention, then a feed-forward network, each added to its input: (..., T, width) to the same shape.

        order="pre"         x = x + attention(norm1(x));  x = x + feed(norm2(x))
        order="post"        x = norm1(x + attention(x));  x = norm2(x + feed(x))         (Vaswani et al. 2017, BERT)
        order="parallel"    x = x + attention(norm1(x)) + feed(norm1(x))                 (GPT-J, PaLM)

    With `cross=True` there is attention to a context in between, with its own norm. `norm` is "layer" or "rms", or a
    function of the width that makes a layer. `attention` is a dict of further options of `nn.MultiHeadAttention`
    (`causal`, `kv_heads`, `rotary`, ...). `dropout` is of both branches. `out_init` draws the last matrix of each.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        activation: str | Callable = "gelu",
        gated: bool = False,
        norm: str | Callable[[int], Any] = "layer",
        eps: float = 1e-5,
        order: str = "pre",
        cross: bool = False,
        attention: dict[str, Any] | None = None,
        bias: bool | Init = True,
        dropout: float = 0.0,
        init: Init | None = None,
        out_init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        if order not in ORDERS:
            raise ValueError(f"TransformerBlock: order is one of {ORDERS}, got {order!r}")
        if cross and order == "parallel":
            raise ValueError('TransformerBlock: order="parallel" has no place for cross=True')
        self.order: str = order
        keys = recipe(self, init, bias, key, dtype).keys(6)
        common: dict[str, Any] = {"bias": bias, "init": init, "out_init": out_init, "dtype": dtype}
        given = dict(attention or {})
        self.norm1: Any = make_norm(norm, width, eps, bias, dtype)
        self.attention: Any = MultiHeadAttention(width, heads, key=keys[0], **{**common, **given})
        self.norm_cross: Any = make_norm(norm, width, eps, bias, dtype) if cross else None
        self.cross: Any = None
        if cross:
            given = {name: value for name, value in given.items() if name not in OF_PLACES}
            self.cross = MultiHeadAttention(width, heads, key=keys[1], fused=False, **{**common, **given})
        self.norm2: Any = None if order == "parallel" else make_norm(norm, width, eps, bias, dtype)
        self.feed: Any = FeedForward(width, hidden, activation, gated, key=keys[2], **common)
        self.dropout: Any = Dropout(dropout, key=keys[3]) if dropout else None

    def __call__(
        self, x: Any, context: Any = None, *, mask: Any = None, context_mask: Any = None, cache: Any = None,
        positions: Any = None,
    ) -> Any:  # fmt: skip
        """x (..., T, width), context (..., S, width) or `self.cross.context` of it; masks are True where it is seen."""
        attend = lambda h: self.attention(h, mask=mask, cache=cache, positions=positions)
        if self.order == "parallel":
            h = self.norm1(x)
            return x + self._dropped(attend(h)) + self._dropped(self.feed(h))
        x = self._added(x, attend, self.norm1)
        if self.cross is not None:
            x = self._added(x, lambda h: self.cross(h, context, mask=context_mask), self.norm_cross)
        return self._added(x, self.feed, self.norm2)

    def _added(self, x: Any, branch: Callable, norm: Any) -> Any:
        if self.order == "post":
            return norm(x + self._dropped(branch(x)))
        return x + self._dropped(branch(norm(x)))

    def _dropped(self, x: Any) -> Any:
        return x if self.dropout is None else self.dropout(x)


def make_norm(norm: Any, width: int, eps: float, bias: Any, dtype: Any) -> Any:
    """A normalisation by name, or by a function of the width."""
    if norm == "layer":
        return LayerNorm(width, eps, bias=bias is not False, dtype=dtype)
    if norm == "rms":
        return RMSNorm(width, eps, dtype=dtype)
    if callable(norm):
        return norm(width)
    raise ValueError(f'norm is "layer", "rms", or a function of the width that makes a layer, got {norm!r}')


def residual_init(layers: int, std: float = 0.02) -> Init:
    """Normal numbers for what is added to the stream of residuals, smaller if more layers add (Radford et al. 2019)."""
    return lambda key, shape, dtype: initialisers.normal(key, shape, dtype, std=std / math.sqrt(2 * layers))
