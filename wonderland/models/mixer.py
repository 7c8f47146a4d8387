"""MLP-Mixer and S2-MLP: networks of linear layers only, along the tokens and along the channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import random
from wonderland.models.metaformer import MetaFormerBlock
from wonderland.models.patches import PatchNetwork, Sizes
from wonderland.models.token_mixers import ShiftMixer, TokenMLP


class Mixer(PatchNetwork):
    """Images (..., channels, size, size) to logits (..., classes); the default is Mixer-B/16.

        h = patches(x)                                          (..., N, width)
        h = h + MLP_tokens(norm(h)^T)^T;  h = h + MLP_channels(norm(h))        in each layer
        logits = head(mean(norm(h)))

    Tolstikhin et al. 2021, MLP-Mixer: an all-MLP architecture for vision.
    """

    def __init__(
        self, size: Sizes = 224, patch: Sizes = 16, classes: int = 1000, layers: int = 12, width: int = 768, *,
        token_hidden: int | None = None, hidden: int | None = None, channels: int = 3, drop: float = 0.0,
        key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        token_hidden = width // 2 if token_hidden is None else token_hidden

        def block(tokens: int, key: Any) -> Any:
            one, two = random.split(key)
            mixer = TokenMLP(tokens, token_hidden, key=one, dtype=dtype)
            return MetaFormerBlock(width, mixer, hidden, eps=1e-6, drop=drop, key=two, dtype=dtype)

        super().__init__(size, patch, classes, layers, width, block, channels=channels, key=key, dtype=dtype)


class S2MLP(PatchNetwork):
    """Images (..., channels, size, size) to logits (..., classes); the default has S2-MLP-wide's sizes.

        h = patches(x)                                          (..., H, W, width)
        h = h + W_2 shift(gelu(W_1 norm(h)));  h = h + MLP(norm(h))            in each layer
        logits = head(mean(norm(h)))

    `spatial_shift` moves quarters of the channels by one patch: no weight is of a place. Yu et al. 2022, S2-MLP:
    spatial-shift MLP architecture for vision.
    """

    def __init__(
        self, size: Sizes = 224, patch: Sizes = 16, classes: int = 1000, layers: int = 12, width: int = 768, *,
        hidden: int | None = None, channels: int = 3, drop: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        def block(_tokens: int, key: Any) -> Any:
            one, two = random.split(key)
            shift = ShiftMixer(width, key=one, dtype=dtype)
            return MetaFormerBlock(width, shift, hidden, eps=1e-6, drop=drop, key=two, dtype=dtype)

        super().__init__(
            size, patch, classes, layers, width, block, channels=channels, flat=False, key=key, dtype=dtype
        )
