"""Text and image in one transformer: each has its tokens, and all of them stand in one sequence."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.patches import PatchEmbedding, Sizes
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import indices, wrong_shape
from wonderland.nn.tokens import prefixed


class Bimodal(nn.Module):
    """Text (..., T), integers, and images (..., channels, size, size) to logits.

        h = [c, W patch_n + b + P_n + K_0, E[token_t] + Q_t + K_1];   h = block_l(h) for each layer;   h = norm(h)

    c is a trained token, P and Q are positions in the image and in the text, K says of which kind a token is. With
    `classes`, all tokens see each other, and the logits are of both together, (..., classes), at c: as in ViLT (Kim et
    al. 2021). Without, they are (..., T, vocab_size), of what follows each token of text, which sees the image and the
    text before it, while the image doesn't see the text: a model that describes images.
    """

    def __init__(
        self, vocab_size: int, context: int, size: Sizes, patch: Sizes, layers: int, heads: int, width: int, *,
        classes: int | None = None, channels: int = 3, hidden: int | None = None, dropout: float = 0.0,
        key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.context: int = positive(context, "Bimodal: context")
        keys = iter(recipe(self, None, False, key, dtype).keys(layers + 7))
        init = partial(nn.init.normal, std=0.02)
        drawn: dict[str, Any] = {"init": nn.init.glorot_uniform, "bias": nn.init.zeros, "dtype": dtype}
        self.patches: Any = PatchEmbedding(size, patch, width, channels, key=next(keys), **drawn)
        self.tokens: Any = nn.Embedding(vocab_size, width, init=init, key=next(keys), dtype=dtype)
        self.image_places: Any = init(next(keys), (self.patches.count, width), dtype)
        self.text_places: Any = init(next(keys), (context, width), dtype)
        self.kinds: Any = init(next(keys), (2, width), dtype)
        self.token: Any = init(next(keys), (1, width), dtype)
        self.blocks: list[Any] = [
            nn.TransformerBlock(width, heads, hidden, dropout=dropout, key=next(keys), **drawn) for _ in range(layers)
        ]
        self.norm: Any = nn.LayerNorm(width, dtype=dtype)
        self.head: Any = None if classes is None else nn.Linear(width, classes, key=next(keys), **drawn)

    def __call__(self, tokens: Any, images: Any, *, mask: Any = None) -> Any:
        """`mask` (..., T) is False where there is no token."""
        h = self.hidden(tokens, images, mask=mask)
        if self.head is not None:
            return self.head(h[..., 0, :])
        return self.tokens.unembed(h[..., 1 + self.patches.count :, :])

    def hidden(self, tokens: Any, images: Any, *, mask: Any = None) -> Any:
        """The vectors of c, of patches and of text, (..., 1 + N + T, width)."""
        tokens = indices(self, tokens)
        if not tokens.ndim or tokens.shape[-1] > self.context:
            raise wrong_shape(self, f"(..., T) with T at most context={self.context}", tokens.shape, "tokens")
        text = self.tokens(tokens) + self.text_places[: tokens.shape[-1]] + self.kinds[1]  # (B, T, C)
        image = self.patches(images) + self.image_places + self.kinds[0]  # (B, N, C)
        if text.shape[:-2] != image.shape[:-2]:
            raise ValueError(f"Bimodal: as many texts as images, got {text.shape[:-2]} and {image.shape[:-2]}")
        h = prefixed(self.token, np.concatenate([image, text], axis=-2))
        seen = self._seen(tokens, mask)
        for block in self.blocks:
            h = block(h, mask=seen)  # (B, 1 + N + T, C)
        return self.norm(h)

    def _seen(self, tokens: Any, mask: Any) -> Any:
        """Who sees whom, (..., 1, S, S) with S = 1 + N + T; None is all."""
        first, count = 1 + self.patches.count, tokens.shape[-1]
        place = np.arange(first + count)
        seen = None if self.head is not None else (place < first) | (place <= place[:, None])
        if mask is None:
            return seen
        text = real_places(self, mask, tokens.shape)
        real = of_keys(np.concatenate([np.ones((*text.shape[:-1], first), bool), text], axis=-1))
        return real if seen is None else seen & real
