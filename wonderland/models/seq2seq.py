"""Sequence to sequence: an encoder reads the source, a decoder that looks at it writes the target."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.conditional import Translates
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import indices, wrong_shape


class EncoderDecoder(Translates):
    """Source (..., S) and target (..., T), integers, to logits (..., T, vocab_size) of what follows each target token.

        m = encoder blocks of E[source] + P;   h = decoder blocks of E[target] + P, which look at m;   logits = h E^T

    `source_size` is the size of another vocabulary of the source; otherwise both share the embedding. Positions are
    sinusoids, and embeddings are multiplied by sqrt(width). Vaswani et al. 2017, Attention is all you need.
    """

    def __init__(
        self, vocab_size: int, context: int, layers: int, heads: int, width: int, *, source_size: int | None = None,
        hidden: int | None = None, activation: Any = "relu", norm: Any = "layer", order: str = "post",
        dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.vocab_size: int = positive(vocab_size, "EncoderDecoder: vocab_size")
        self.context: int = positive(context, "EncoderDecoder: context")
        keys = iter(recipe(self, None, False, key, dtype).keys(2 * positive(layers, "EncoderDecoder: layers") + 3))
        table = lambda size: nn.Embedding(
            size, width, init=lambda k, s, d: nn.init.normal(k, s, d, std=width**-0.5), key=next(keys), dtype=dtype
        )
        self.tokens: Any = table(self.vocab_size)
        self.source_tokens: Any = self.tokens if source_size is None else table(source_size)
        block = lambda **options: nn.TransformerBlock(
            width, heads, hidden, activation=activation, norm=norm, order=order, dropout=dropout, key=next(keys),
            dtype=dtype, **options,
        )  # fmt: skip
        self.encoder: list[Any] = [block() for _ in range(layers)]
        self.decoder: list[Any] = [block(attention={"causal": True}, cross=True) for _ in range(layers)]
        final = order == "pre"
        self.encoder_norm: Any = nn.LayerNorm(width, dtype=dtype) if final else None
        self.decoder_norm: Any = nn.LayerNorm(width, dtype=dtype) if final else None
        self.dropout: Any = nn.Dropout(dropout, key=next(keys)) if dropout else None

    def encode(self, source: Any, *, source_mask: Any = None) -> Any:
        """The vectors of the source, (..., S, width)."""
        x = self._placed(self.source_tokens, source, 0)
        seen = of_keys(real_places(self, source_mask, x.shape[:-1]))  # (B, 1, 1, S)
        for block in self.encoder:
            x = block(x, mask=seen)  # (B, S, C)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def logits(self, x: Any) -> Any:
        """(..., width) to (..., vocab_size)."""
        return self.tokens.unembed(x)

    def embedded(self, target: Any, start: Any) -> Any:
        """What the decoder begins with, for tokens that begin at the place `start`."""
        return self._placed(self.tokens, target, start)

    def _placed(self, table: Any, tokens: Any, start: Any) -> Any:
        tokens = indices(self, tokens)
        if not tokens.ndim or tokens.shape[-1] > self.context:
            raise wrong_shape(self, f"(..., T) with T at most context={self.context}", tokens.shape, "tokens")
        x = table(tokens)
        width = x.shape[-1]
        x = x * width**0.5 + nn.sinusoidal(start + np.arange(tokens.shape[-1]), width, dtype=x.dtype)
        return x if self.dropout is None else self.dropout(x)
