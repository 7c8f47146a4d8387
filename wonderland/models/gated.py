"""Gates between tokens: gMLP, whose gate is linear in the tokens, and GAU, the gated attention unit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.patches import PatchNetwork, Sizes
from wonderland.nn.arguments import array
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import real_places
from wonderland.nn.placing import numbers, wrong_shape
from wonderland.nn.positions import checked_positions


class SpatialGating(nn.Module):
    """y = u * (W norm(v) + b), u and v the halves of the channels: (..., tokens, width) to (..., tokens, width / 2).

    W is (tokens, tokens) and b (tokens,): each token's gate is a sum over all tokens, the same for all channels. W is
    nearly 0 and b is 1 at the beginning, so that y = u. Liu et al. 2021, Pay attention to MLPs.
    """

    def __init__(self, tokens: int, width: int, eps: float = 1e-6, *, key: Any = None, dtype: Any = np.float32):
        if positive(width, "SpatialGating: width") % 2:
            raise ValueError(f"SpatialGating: width={width} has no halves")
        small = partial(nn.init.normal, std=1e-6)
        self.norm: Any = nn.LayerNorm(width // 2, eps, dtype=dtype)
        self.mix: Any = nn.Linear(tokens, tokens, nn.init.ones, init=small, key=key, dtype=dtype)

    def __call__(self, x: Any) -> Any:
        x, tokens = array(x), self.mix.weight.shape[0]
        if x.ndim < 2 or x.shape[-2] != tokens:
            raise wrong_shape(self, f"(..., {tokens}, width), with {tokens} tokens", x.shape)
        u, v = np.split(x, 2, axis=-1)  # (B, N, C / 2)
        return u * np.swapaxes(self.mix(np.swapaxes(self.norm(v), -2, -1)), -2, -1)


class GMLPBlock(nn.Module):
    """y = x + W_outer gating(gelu(W_inner norm(x))), (..., tokens, width) to the same; `hidden` channels in between."""

    def __init__(self, tokens: int, width: int, hidden: int, *, key: Any = None, dtype: Any = np.float32):
        keys = recipe(self, None, False, key, dtype).keys(3)
        self.norm: Any = nn.LayerNorm(width, 1e-6, dtype=dtype)
        self.inner: Any = nn.Linear(width, hidden, key=keys[0], dtype=dtype)
        self.gating: Any = SpatialGating(tokens, hidden, key=keys[1], dtype=dtype)
        self.outer: Any = nn.Linear(hidden // 2, width, key=keys[2], dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return x + self.outer(self.gating(nn.gelu(self.inner(self.norm(x)))))


class GMLP(PatchNetwork):
    """gMLP: images (..., channels, size, size) to logits (..., classes); the default is gMLP-S.

        h = patches(x);   h = h + W_outer gating(gelu(W_inner norm(h))) in each layer;   logits = head(mean(norm(h)))

    There is no network of channels beside the one that has the gate. Liu et al. 2021, Pay attention to MLPs.
    """

    def __init__(
        self, size: Sizes = 224, patch: Sizes = 16, classes: int = 1000, layers: int = 30, width: int = 256, *,
        hidden: int | None = None, channels: int = 3, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        hidden = 6 * width if hidden is None else hidden
        block = lambda tokens, key: GMLPBlock(tokens, width, hidden, key=key, dtype=dtype)
        super().__init__(size, patch, classes, layers, width, block, channels=channels, key=key, dtype=dtype)


class GAU(nn.Module):
    """Gated attention unit, attention and feed-forward network in one: (..., T, width) to the same shape.

        u = silu(W_u h),  v = silu(W_v h),  z = silu(W_z h),  h = norm(x)          (T, hidden), (T, hidden), (T, D)
        A = relu(q k^T / n + bias)^2,  q = g_q * z + b_q,  k = g_k * z + b_k       (T, T)
        y = x + W_o (u * A v)

    One head, one shared projection z of `key_width` D numbers, no softmax. n is the number of tokens that a token sees:
    with `causal` these are itself and those before, and what comes later changes nothing. `rotary` is an `nn.Rotary`,
    `position_bias` an `nn.RelativeBias` of one head. Hua et al. 2022, Transformer quality in linear time.
    """

    def __init__(
        self, width: int, hidden: int | None = None, key_width: int = 128, *, causal: bool = False, rotary: Any = None,
        position_bias: Any = None, eps: float = 1e-5, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.width: int = positive(width, "GAU: width")
        self.hidden: int = 2 * self.width if hidden is None else positive(hidden, "GAU: hidden")
        self.key_width: int = positive(key_width, "GAU: key_width")
        self.causal: bool = bool(causal)
        checked_positions(self, rotary, position_bias, 1)
        keys = recipe(self, None, False, key, dtype).keys(3)
        self.norm: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.inner: Any = nn.Linear(width, 2 * self.hidden + self.key_width, key=keys[0], dtype=dtype)  # u, v and z
        self.gains: Any = nn.init.normal(keys[1], (2, self.key_width), dtype, std=0.02)  # of queries and keys
        self.offsets: Any = np.zeros((2, self.key_width), dtype)
        self.outer: Any = nn.Linear(self.hidden, width, key=keys[2], dtype=dtype)
        self.rotary: Any = rotary
        self.position_bias: Any = position_bias

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """`mask` (..., T) is False where there is no token."""
        x = numbers(self, x, self.inner.weight)
        if x.ndim < 2 or x.shape[-1] != self.width:
            raise wrong_shape(self, f"(..., T, {self.width})", x.shape)
        uvz = nn.silu(self.inner(self.norm(x)))
        u, v, z = np.split(uvz, [self.hidden, 2 * self.hidden], axis=-1)  # (B, T, E), (B, T, E), (B, T, D)
        return x + self.outer(u * (self._weights(z, mask) @ v))

    def _weights(self, z: Any, mask: Any) -> Any:
        """A, (..., T, T)."""
        q, k = (z * gain + offset for gain, offset in zip(self.gains, self.offsets, strict=True))
        places = np.arange(z.shape[-2])
        if self.rotary is not None:
            q, k = self.rotary(q, places), self.rotary(k, places)
        seen = places[:, None] >= places if self.causal else np.ones((len(places), len(places)), bool)
        real = real_places(self, mask, z.shape[:-1])
        seen = seen if real is None else seen & real[..., None, :]  # (B, T, T)
        n = np.maximum(np.sum(seen, axis=-1, keepdims=True), 1).astype(z.dtype)
        scores = q @ np.swapaxes(k, -2, -1) / n
        if self.position_bias is not None:
            scores = scores + self.position_bias(places, places)[0].astype(z.dtype)
        return np.where(seen, nn.relu(scores) ** 2, 0)
