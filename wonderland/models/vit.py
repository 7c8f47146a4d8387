"""Vision transformer: an image as a sequence of patches. Weights of Hugging Face's ViT load by `load_huggingface`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.patches import PatchEmbedding, Sizes
from wonderland.nn.building import positive, recipe
from wonderland.nn.tokens import prefixed


class ViT(nn.Module):
    """Images (..., channels, size, size) to logits (..., classes).

        h = [class token, registers, W patch_n + b] + P;   h = block_l(h) for each layer;   logits = head(norm(h)[0])

    `pool="mean"` takes the mean of the patches instead of the class token. `registers` are further tokens that no
    patch belongs to (Darcet et al. 2024). Dosovitskiy et al. 2021, An image is worth 16 x 16 words.
    """

    def __init__(
        self, size: Sizes = 224, patch: Sizes = 16, classes: int = 1000, layers: int = 12, heads: int = 12,
        width: int = 768, *, hidden: int | None = None, channels: int = 3, registers: int = 0, pool: str = "class",
        eps: float = 1e-12, dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if pool not in ("class", "mean"):
            raise ValueError(f'ViT: pool is "class" or "mean", got {pool!r}')
        self.pool: str = pool
        keys = iter(recipe(self, None, False, key, dtype).keys(positive(layers, "ViT: layers") + 6))
        init = partial(nn.init.truncated_normal, std=0.02)
        drawn: dict[str, Any] = {"init": nn.init.glorot_uniform, "bias": nn.init.zeros, "dtype": dtype}
        self.cls_token: Any = np.zeros((1, 1, width), dtype) if pool == "class" else None
        self.register_tokens: Any = init(next(keys), (1, registers, width), dtype) if registers else None
        places = next(keys)
        self.patches: Any = PatchEmbedding(size, patch, width, channels, key=next(keys), **drawn)
        self.position_embeddings: Any = init(places, (1, self.patches.count + (pool == "class"), width), dtype)
        self.dropout: Any = nn.Dropout(dropout, key=next(keys)) if dropout else None
        self.blocks: list[Any] = [
            nn.TransformerBlock(width, heads, hidden, eps=eps, dropout=dropout, key=next(keys), **drawn)
            for _ in range(layers)
        ]
        self.norm: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.head: Any = nn.Linear(width, classes, key=next(keys), **drawn)

    def __call__(self, x: Any) -> Any:
        x = self.hidden(x)  # (B, 1 + R + N, C)
        return self.head(x[..., 0, :] if self.pool == "class" else np.mean(x[..., self._extra :, :], axis=-2))

    @property
    def _extra(self) -> int:
        """Tokens before those of patches."""
        registers = 0 if self.register_tokens is None else self.register_tokens.shape[1]
        return (self.cls_token is not None) + registers

    def hidden(self, x: Any) -> Any:
        """The vectors of the tokens: of the class, registers and patches, (..., 1 + R + N, width)."""
        x = self.patches(x)  # (B, N, C)
        if self.cls_token is not None:
            x = prefixed(self.cls_token[0], x)
        x = x + self.position_embeddings[0]
        if self.register_tokens is not None:
            at = 0 if self.cls_token is None else 1
            x = np.concatenate([x[..., :at, :], prefixed(self.register_tokens[0], x[..., at:, :])], axis=-2)
        x = x if self.dropout is None else self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
