"""Images as tokens: `PatchEmbedding` cuts and projects them, `PatchNetwork` is the frame of models that mix them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.arguments import array
from wonderland.nn.building import positive, recipe
from wonderland.nn.placing import wrong_shape
from wonderland.numpy.spatial import per_axis

Sizes = int | tuple[int, int]  # of height and width


class PatchEmbedding(nn.Module):
    """Images (..., channels, height, width) to tokens (..., N, width), one for each patch, row by row.

        token_n = W vec(patch_n) + b

    which is a convolution whose stride is its kernel. `size` and `patch` are one number, or those of height and width.
    With `flat=False` the tokens stay a picture, (..., height / patch, width / patch, width).
    """

    _unprefixed = ("projection",)

    def __init__(
        self, size: Sizes, patch: Sizes, width: int, channels: int = 3, *,
        flat: bool = True, bias: Any = True, init: Any = None, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        sizes, patches = per_axis(size, 2, "size"), per_axis(patch, 2, "patch")
        if any(n % p for n, p in zip(sizes, patches, strict=True)):
            raise ValueError(f"PatchEmbedding: size={size} isn't a multiple of patch={patch}")
        self.shape: tuple[int, ...] = (channels, *sizes)
        self.grid: tuple[int, ...] = (sizes[0] // patches[0], sizes[1] // patches[1])
        self.flat: bool = bool(flat)
        self.projection: Any = nn.Conv2d(
            channels, width, patches, stride=patches, bias=bias, init=init, key=key, dtype=dtype
        )

    @property
    def count(self) -> int:
        """The number of patches."""
        return self.grid[0] * self.grid[1]

    def __call__(self, x: Any) -> Any:
        x = array(x)
        if x.shape[-3:] != self.shape:
            raise wrong_shape(self, f"(..., {', '.join(map(str, self.shape))})", x.shape)
        x = np.moveaxis(self.projection(x), -3, -1)  # (B, H, W, C)
        return x.reshape(*x.shape[:-3], self.count, x.shape[-1]) if self.flat else x


class PatchNetwork(nn.Module):
    """Images (..., channels, size, size) to logits (..., classes), by tokens that keep their shape.

        h = patches(x);   h = block_l(h) for each layer;   logits = head(mean over tokens of norm(h))

    `block` is a function of the number of tokens and a key that makes one layer: (..., N, width) to the same, or with
    `flat=False`, (..., H, W, width). `Mixer`, `S2MLP`, `GMLP` and `MONet` are networks of this kind.
    """

    def __init__(
        self, size: Sizes, patch: Sizes, classes: int, layers: int, width: int, block: Callable[[int, Any], Any],
        *, channels: int = 3, flat: bool = True, eps: float = 1e-6, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        first, last, *keys = recipe(self, None, False, key, dtype).keys(positive(layers, "layers") + 2)
        self.patches: Any = PatchEmbedding(size, patch, width, channels, flat=flat, key=first, dtype=dtype)
        self.blocks: list[Any] = [block(self.patches.count, key) for key in keys]
        self.norm: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.head: Any = nn.Linear(width, classes, key=last, dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return self.head(np.mean(self.hidden(x), axis=-2 if self.patches.flat else (-3, -2)))

    def hidden(self, x: Any) -> Any:
        """The vectors of the patches, (..., N, width) or (..., H, W, width)."""
        x = self.patches(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
