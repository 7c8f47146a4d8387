"""MONet: a network without activation functions; products of linear maps are all that isn't linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.patches import PatchNetwork, Sizes
from wonderland.models.token_mixers import spatial_shift
from wonderland.nn.building import positive, recipe


class MuLayer(nn.Module):
    """y = C (A x * B D x + A x), (..., width) to the same: a polynomial of degree 2 in x.

    D has few rows, `rank`, so that B D is of low rank. With `shift`, A x and D x are pictures (..., H, W, channels)
    that `spatial_shift` moves: tokens see their neighbours. Cheng et al. 2024, Multilinear operator networks.
    """

    def __init__(
        self, width: int, hidden: int | None = None, rank: int | None = None, shift: bool = False, *,
        bias: Any = True, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        hidden = 3 * width if hidden is None else positive(hidden, "MuLayer: hidden")
        rank = max(1, hidden // 8) if rank is None else positive(rank, "MuLayer: rank")
        self.shift: bool = bool(shift)
        keys = recipe(self, None, bias, key, dtype).keys(4)
        make = lambda inputs, outputs, key: nn.Linear(inputs, outputs, bias, key=key, dtype=dtype)
        self.a: Any = make(width, hidden, keys[0])
        self.d: Any = make(width, rank, keys[1])
        self.b: Any = make(rank, hidden, keys[2])
        self.c: Any = make(hidden, width, keys[3])

    def __call__(self, x: Any) -> Any:
        a, d = self.a(x), self.d(x)  # (B, H, W, hidden), (B, H, W, rank)
        if self.shift:
            a, d = spatial_shift(a), spatial_shift(d)
        return self.c(a * self.b(d) + a)


class PolyBlock(nn.Module):
    """x = x + mu_1(norm1(x)), which shifts;  x = x + mu_2(norm2(x)): pictures (..., H, W, width) to the same shape."""

    def __init__(self, width: int, hidden: int | None = None, *, key: Any = None, dtype: Any = np.float32):
        keys = recipe(self, None, False, key, dtype).keys(2)
        self.norm1: Any = nn.LayerNorm(width, 1e-6, dtype=dtype)
        self.mu1: Any = MuLayer(width, hidden, shift=True, key=keys[0], dtype=dtype)
        self.norm2: Any = nn.LayerNorm(width, 1e-6, dtype=dtype)
        self.mu2: Any = MuLayer(width, hidden, key=keys[1], dtype=dtype)

    def __call__(self, x: Any) -> Any:
        x = x + self.mu1(self.norm1(x))
        return x + self.mu2(self.norm2(x))


class MONet(PatchNetwork):
    """Images (..., channels, size, size) to logits (..., classes), with no activation function anywhere.

        h = patches(x);   h = h + mu(norm(h)) twice in each layer, the first shifted;   logits = head(mean(norm(h)))

    All layers have one width (the paper's models also come as pyramids). Cheng et al. 2024, Multilinear operator
    networks.
    """

    def __init__(
        self, size: Sizes = 224, patch: Sizes = 16, classes: int = 1000, layers: int = 32, width: int = 192, *,
        hidden: int | None = None, channels: int = 3, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        block = lambda _tokens, key: PolyBlock(width, hidden, key=key, dtype=dtype)
        super().__init__(
            size, patch, classes, layers, width, block, channels=channels, flat=False, key=key, dtype=dtype
        )
