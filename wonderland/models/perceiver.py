"""Perceiver: a few trained vectors look at a long input, of whatever kind; the cost is linear in its length."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import numbers, wrong_shape


class CrossAttend(nn.Module):
    """z = z + attention(norm(z), norm(x));  z = z + feed(norm(z)): z (..., L, width) looks at x (..., S, inputs)."""

    def __init__(
        self, width: int, inputs: int, heads: int, hidden: int | None = None, eps: float = 1e-5, *, key: Any = None,
        dtype: Any = np.float32,
    ):  # fmt: skip
        keys = recipe(self, None, False, key, dtype).keys(2)
        self.norm1: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.norm_context: Any = nn.LayerNorm(inputs, eps, dtype=dtype)
        self.attention: Any = nn.MultiHeadAttention(width, heads, context_width=inputs, key=keys[0], dtype=dtype)
        self.norm2: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.feed: Any = nn.FeedForward(width, hidden, key=keys[1], dtype=dtype)

    def __call__(self, z: Any, x: Any, *, mask: Any = None) -> Any:
        z = z + self.attention(self.norm1(z), self.norm_context(x), mask=mask)
        return z + self.feed(self.norm2(z))


class Perceiver(nn.Module):
    """Inputs (..., S, inputs), S of them, to logits (..., classes), by way of `latents` trained vectors.

        z = Z                                                      (latents, width)
        z = cross(z, x);  z = block_l(z) for each layer            `repeats` times
        logits = head(mean(z))

    Attention to the input costs S times `latents`, the rest doesn't know S. With `shared`, all repeats have the same
    weights. Inputs have no order but what they say themselves: join `fourier_features` to them.

    Jaegle et al. 2021, Perceiver: general perception with iterative attention.
    """

    def __init__(
        self, inputs: int, latents: int, width: int, classes: int, layers: int = 6, heads: int = 8, *,
        cross_heads: int = 1, repeats: int = 1, shared: bool = True, hidden: int | None = None, eps: float = 1e-5,
        key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.inputs: int = positive(inputs, "Perceiver: inputs")
        self.repeats: int = positive(repeats, "Perceiver: repeats")
        stages, each = 1 if shared else self.repeats, positive(layers, "Perceiver: layers") + 1
        keys = iter(recipe(self, None, False, key, dtype).keys(stages * each + 2))
        init = partial(nn.init.truncated_normal, std=0.02)
        self.latents: Any = init(next(keys), (positive(latents, "Perceiver: latents"), width), dtype)
        self.crosses: list[Any] = [
            CrossAttend(width, inputs, cross_heads, hidden, eps, key=next(keys), dtype=dtype) for _ in range(stages)
        ]
        self.blocks: list[list[Any]] = [
            [nn.TransformerBlock(width, heads, hidden, eps=eps, key=next(keys), dtype=dtype) for _ in range(layers)]
            for _ in range(stages)
        ]
        self.head: Any = nn.Linear(width, classes, key=next(keys), dtype=dtype)

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """`mask` (..., S) is False where there is no input."""
        return self.head(np.mean(self.hidden(x, mask=mask), axis=-2))

    def hidden(self, x: Any, *, mask: Any = None) -> Any:
        """The latent vectors after they have looked at x, (..., latents, width)."""
        x = numbers(self, x, self.latents)
        if x.ndim < 2 or x.shape[-1] != self.inputs:
            raise wrong_shape(self, f"(..., S, {self.inputs})", x.shape)
        z = np.broadcast_to(self.latents, (*x.shape[:-2], *self.latents.shape))  # (B, L, C)
        seen = of_keys(real_places(self, mask, x.shape[:-1]))  # (B, 1, 1, S)
        for repeat in range(self.repeats):
            stage = repeat % len(self.crosses)
            z = self.crosses[stage](z, x, mask=seen)
            for block in self.blocks[stage]:
                z = block(z)
        return z


def fourier_features(shape: tuple[int, ...], bands: int, dtype: Any = np.float32) -> np.ndarray:
    """Where each element of an array of this shape is, as numbers: (product of shape, axes * (2 bands + 1)).

        p, sin(pi f p), cos(pi f p)      for the place p of each axis, from -1 to 1, and each frequency f

    The `bands` frequencies of an axis of n places go in equal steps from 1 to n / 2, the highest that n places show.
    """
    places = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    p = np.stack([place.ravel() for place in places], axis=-1)  # (N, D)
    frequencies = np.stack([np.linspace(1, n / 2, bands) for n in shape])  # (D, K)
    angles = (np.pi * p[:, :, None] * frequencies).reshape(len(p), -1)  # (N, D K)
    return np.concatenate([p, np.sin(angles), np.cos(angles)], axis=-1).astype(dtype)
