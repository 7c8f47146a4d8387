"""Whisper: an encoder reads the spectrogram of speech, a decoder that looks at it writes the text.

Weights of Hugging Face's Whisper load by `load_huggingface`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.conditional import Translates
from wonderland.nn.arguments import array
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import indices, wrong_shape


class Whisper(Translates):
    """Log-mel spectrograms (..., mels, frames) and tokens (..., T) to logits (..., T, vocab_size) of what follows each.

        m = gelu(conv(gelu(conv(source)), stride 2)) + sinusoids;   m = norm(encoder blocks of m), (..., S, width)
        h = E[tokens] + P[0, ..., T - 1];   h = norm(decoder blocks of h, which look at m);   logits = h E^T

    `frames` and `context` are the most frames and tokens. `generate(source, start, count)` writes; `source_mask` is of
    the S = frames / 2 places of the encoder. The default sizes are those of Whisper tiny, with 38 million parameters.

    Radford et al. 2022, Robust speech recognition via large-scale weak supervision.
    """

    def __init__(
        self, vocab_size: int = 51865, mels: int = 80, frames: int = 3000, context: int = 448, layers: int = 4,
        heads: int = 6, width: int = 384, *, hidden: int | None = None, dropout: float = 0.0, key: Any = None,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self.vocab_size: int = positive(vocab_size, "Whisper: vocab_size")
        self.context: int = positive(context, "Whisper: context")
        self.mels, self.frames = positive(mels, "Whisper: mels"), positive(frames, "Whisper: frames")
        keys = iter(recipe(self, None, False, key, dtype).keys(2 * positive(layers, "Whisper: layers") + 5))
        drawn: dict[str, Any] = {"init": partial(nn.init.normal, std=0.02), "dtype": dtype}
        convolution = partial(nn.Conv1d, kernel_size=3, padding=1, bias=nn.init.zeros, **drawn)
        self.conv1: Any = convolution(self.mels, width, key=next(keys))
        self.conv2: Any = convolution(width, width, stride=2, key=next(keys))
        self.source_places: Any = nn.Embedding((self.frames + 1) // 2, width, init=_sinusoids, dtype=dtype)
        self.source_places.weight = nn.Buffer(self.source_places.weight)  # not trained
        self.tokens: Any = nn.Embedding(self.vocab_size, width, key=next(keys), **drawn)
        self.places: Any = nn.Embedding(self.context, width, key=next(keys), **drawn)
        block = lambda **options: nn.TransformerBlock(
            width, heads, hidden, bias=nn.init.zeros, dropout=dropout, key=next(keys), **drawn, **options
        )
        self.encoder: list[Any] = [block() for _ in range(layers)]
        self.decoder: list[Any] = [block(attention={"causal": True}, cross=True) for _ in range(layers)]
        self.encoder_norm: Any = nn.LayerNorm(width, dtype=dtype)
        self.decoder_norm: Any = nn.LayerNorm(width, dtype=dtype)

    def encode(self, source: Any, *, source_mask: Any = None) -> Any:
        """The vectors of a spectrogram, (..., frames / 2, width)."""
        x = array(source)
        if x.ndim < 2 or x.shape[-2] != self.mels or not 0 < x.shape[-1] <= self.frames:
            raise wrong_shape(self, f"(..., {self.mels}, frames) with at most {self.frames} frames", x.shape)
        x = nn.gelu(self.conv2(nn.gelu(self.conv1(x))))  # (B, C, S)
        x = np.swapaxes(x, -2, -1)  # (B, S, C)
        x = x + self.source_places.weight[: x.shape[-2]]
        seen = of_keys(real_places(self, source_mask, x.shape[:-1]))  # (B, 1, 1, S)
        for block in self.encoder:
            x = block(x, mask=seen)
        return self.encoder_norm(x)

    def embedded(self, target: Any, start: Any) -> Any:
        """What the decoder begins with, for tokens that begin at the place `start`."""
        tokens = indices(self, target)
        if not tokens.ndim or tokens.shape[-1] > self.context:
            raise wrong_shape(self, f"(..., T) with T at most context={self.context}", tokens.shape, "tokens")
        return self.tokens(tokens) + self.places(start + np.arange(tokens.shape[-1]))  # (B, T, C)

    def logits(self, x: Any) -> Any:
        """(..., width) to (..., vocab_size)."""
        return self.tokens.unembed(x)


def _sinusoids(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Sines of p / 10000^(i / (width / 2 - 1)), then their cosines: in another order than `nn.sinusoidal`."""
    half = shape[1] // 2
    angles = np.arange(shape[0])[:, None] * 10000.0 ** (-np.arange(half) / max(half - 1, 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(dtype)
