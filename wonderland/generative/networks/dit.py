"""`DiT`: the noise in images, by a transformer of patches whose layers are told the noise level."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.einops import rearrange
from wonderland.generative.networks.conditioning import NoiseEmbedding, preconditioned
from wonderland.models.patches import PatchEmbedding
from wonderland.nn.building import positive, recipe


class DiTBlock(nn.Module):
    """Tokens (B, N, width) to the same shape, told a vector e (B, width): adaLN-zero.

        s1, c1, g1, s2, c2, g2 = W silu(e)
        h = h + g1 attention(c1-scaled, s1-shifted norm of h);   h = h + g2 mlp(c2-scaled, s2-shifted norm of h)

    W begins as zeros, so all gates g are 0 and a block passes its input on.
    """

    def __init__(self, width: int, heads: int, *, key: Any = None, dtype: Any = np.float32):
        keys = recipe(self, None, True, key, dtype).keys(3)
        zeros = nn.init.zeros
        self.norm: Any = nn.LayerNorm(width, 1e-6, False, dtype=dtype)
        self.attention: Any = nn.MultiHeadAttention(width, heads, key=keys[0], dtype=dtype)
        self.feed_forward: Any = nn.FeedForward(width, activation="gelu_tanh", key=keys[1], dtype=dtype)
        self.level: Any = nn.Linear(width, 6 * width, init=zeros, bias=zeros, key=keys[2], dtype=dtype)

    def __call__(self, h: Any, e: Any) -> Any:
        s1, c1, g1, s2, c2, g2 = np.split(self.level(e)[:, None], 6, axis=-1)  # (B, 1, width) each
        h = h + g1 * self.attention(self.norm(h) * (1 + c1) + s1)
        return h + g2 * self.feed_forward(self.norm(h) * (1 + c2) + s2)


class DiT(nn.Module):
    """Images (B, channels, size, size) and noise levels to the noise in them, of the same shape.

        h = W patches(c_in x) + P;   h = block_l(h, e(sigma, class)) for each layer;   F = unpatch(W (scaled norm of h))

    With `classes`, the condition is a class (B,), and -1 is none. `sigma_data` is the standard deviation of the data.
    Peebles and Xie 2023, Scalable diffusion models with transformers.
    """

    def __init__(
        self, size: int = 8, patch: int = 2, channels: int = 1, width: int = 64, layers: int = 4, heads: int = 4, *,
        classes: int | None = None, sigma_data: float = 0.5, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.sigma_data: float = float(sigma_data)
        self.dtype: Any = np.dtype(dtype)
        keys = iter(recipe(self, None, True, key, dtype).keys(positive(layers, "DiT: layers") + 5))
        draw = partial(nn.init.truncated_normal, std=0.02)
        zeros: dict[str, Any] = {"init": nn.init.zeros, "bias": nn.init.zeros, "dtype": dtype}
        self.embedding: Any = NoiseEmbedding(width, classes, key=next(keys), dtype=dtype)
        self.patches: Any = PatchEmbedding(size, patch, width, channels, key=next(keys), dtype=dtype)
        self.places: Any = draw(next(keys), (self.patches.count, width), dtype)
        self.blocks: list[Any] = [DiTBlock(width, heads, key=next(keys), dtype=dtype) for _ in range(layers)]
        self.norm: Any = nn.LayerNorm(width, 1e-6, False, dtype=dtype)
        self.level: Any = nn.Linear(width, 2 * width, key=next(keys), **zeros)
        self.head: Any = nn.Linear(width, patch * patch * channels, key=next(keys), **zeros)
        self.patch: int = patch

    def __call__(self, x: Any, sigma: Any, condition: Any = None) -> Any:
        def function(h: Any, sigma: Any) -> Any:
            e = nn.silu(self.embedding(sigma, condition))  # (B, width)
            h = self.patches(h) + self.places  # (B, N, width)
            for block in self.blocks:
                h = block(h, e)
            shift, scale = np.split(self.level(e)[:, None], 2, axis=-1)
            h = self.head(self.norm(h) * (1 + scale) + shift)  # (B, N, p p C)
            rows, columns = self.patches.grid
            return rearrange(h, "b (i j) (p q c) -> b c (i p) (j q)", i=rows, j=columns, p=self.patch, q=self.patch)

        return preconditioned(function, x, sigma, self.sigma_data, self.dtype)
