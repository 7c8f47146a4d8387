"""Blocks of `UNet`: two convolutions that are told the noise level, and attention between all places of an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.building import recipe


def groups_of(channels: int, size: int = 8) -> int:
    """Groups of about `size` channels, which divide them."""
    return math.gcd(channels, max(1, channels // size))


class UNetBlock(nn.Module):
    """Images (B, H, W, c_in) to (B, H, W, c_out), and the vector e (B, embedding) of noise level and class added.

    y = S x + conv(silu(norm(conv(silu(norm(x))) + W e))),        S a 1 x 1 convolution where c_in isn't c_out

    The second convolution begins as zeros: a block begins as what passes its input on.
    """

    def __init__(self, c_in: int, c_out: int, embedding: int, dropout: float = 0.0, *, key: Any = None,
                 dtype: Any = np.float32):  # fmt: skip
        keys = recipe(self, None, True, key, dtype).keys(5)
        made: dict[str, Any] = {"dtype": dtype, "channels_last": True}
        self.norm1: Any = nn.GroupNorm(groups_of(c_in), c_in, **made)
        self.conv1: Any = nn.Conv2d(c_in, c_out, 3, padding=1, key=keys[0], **made)
        self.level: Any = nn.Linear(embedding, c_out, key=keys[1], dtype=dtype)
        self.norm2: Any = nn.GroupNorm(groups_of(c_out), c_out, **made)
        self.dropout: Any = nn.Dropout(dropout, key=keys[2]) if dropout else None
        zeros = nn.init.zeros
        self.conv2: Any = nn.Conv2d(c_out, c_out, 3, padding=1, init=zeros, bias=zeros, key=keys[3], **made)
        self.shortcut: Any = None if c_in == c_out else nn.Conv2d(c_in, c_out, 1, key=keys[4], **made)

    def __call__(self, x: Any, e: Any) -> Any:
        h = self.conv1(nn.silu(self.norm1(x))) + self.level(e)[:, None, None]
        h = nn.silu(self.norm2(h))
        h = self.conv2(h if self.dropout is None else self.dropout(h))
        return h + (x if self.shortcut is None else self.shortcut(x))


class UNetAttention(nn.Module):
    """Images (B, H, W, C) to the same shape: each place looks at all others, then at a sequence, if there is one.

        t = t + attention(norm(t));   t = t + attention(norm(t), context),         t (B, H W, C) the image's places

    `context` is how wide the vectors of the sequence (B, S, context) are. What is added begins as zeros.
    """

    def __init__(self, channels: int, heads: int = 4, context: int | None = None, *, key: Any = None,
                 dtype: Any = np.float32):  # fmt: skip
        keys = recipe(self, None, True, key, dtype).keys(2)
        made: dict[str, Any] = {"out_init": nn.init.zeros, "dtype": dtype}
        self.norm: Any = nn.GroupNorm(groups_of(channels), channels, channels_last=True, dtype=dtype)
        self.attention: Any = nn.MultiHeadAttention(channels, heads, key=keys[0], **made)
        self.cross_norm: Any = None if context is None else nn.LayerNorm(channels, dtype=dtype)
        self.cross: Any = None
        if context is not None:
            self.cross = nn.MultiHeadAttention(channels, heads, context_width=context, key=keys[1], **made)

    def __call__(self, x: Any, context: Any = None) -> Any:
        B, H, W, C = x.shape
        tokens = lambda h: h.reshape(B, H * W, C)
        t = tokens(x) + self.attention(tokens(self.norm(x)))
        if self.cross is not None:
            t = t + self.cross(self.cross_norm(t), context)
        return t.reshape(x.shape)
