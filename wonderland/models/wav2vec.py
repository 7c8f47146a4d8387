"""Speech recognition by frames: convolutions make tokens of sound, an encoder says which label each frame has.

Trained by `nn.ctc_loss`, read by `ctc_greedy` and `ctc_beam_search`. Weights of Hugging Face's Wav2Vec2ForCTC load by
`load_huggingface`: of the large models, which have `feat_extract_norm="layer"` and `do_stable_layer_norm=True`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.arguments import array
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import wrong_shape


class Wav2Vec(nn.Module):
    """Waveforms (..., samples) to log-probabilities (..., frames, vocab_size) of a label, or of none, in each frame.

        x = gelu(norm(conv(x))) for each convolution, with strides: the tokens;   h = W norm(x) + b
        h = h + gelu(conv(h)), which sees where it is;   h = norm(block_l(h) for each layer);   log softmax(head(h))

    With `mels`, inputs are spectrograms (..., mels, time). Sizes of the convolutions are `channels`, `kernels` and
    `strides`; `position_kernel` and `position_groups` are those of the one for positions. Defaults are the sizes of the
    large model, with 20 ms a frame at 16 kHz. Baevski et al. 2020, wav2vec 2.0.
    """

    def __init__(
        self, vocab_size: int = 32, layers: int = 24, heads: int = 16, width: int = 1024, *, mels: int | None = None,
        channels: Sequence[int] = (512,) * 7, kernels: Sequence[int] = (10, 3, 3, 3, 3, 2, 2),
        strides: Sequence[int] = (5, 2, 2, 2, 2, 2, 2), hidden: int | None = None, position_kernel: int = 128,
        position_groups: int = 16, dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if not len(channels) == len(kernels) == len(strides):
            raise ValueError(f"Wav2Vec: {channels=}, {kernels=} and {strides=} have one number for each convolution")
        self.vocab_size: int = positive(vocab_size, "Wav2Vec: vocab_size")
        self.mels: int | None = mels
        keys = iter(recipe(self, None, False, key, dtype).keys(len(channels) + layers + 4))
        sizes = zip((mels or 1, *channels[:-1]), channels, kernels, strides, strict=True)
        self.convolutions: list[Any] = [nn.Conv1d(*size, key=next(keys), dtype=dtype) for size in sizes]
        self.norms: list[Any] = [nn.LayerNorm(size, dtype=dtype) for size in channels]
        self.norm_in: Any = nn.LayerNorm(channels[-1], dtype=dtype)
        self.projection: Any = nn.Linear(channels[-1], width, key=next(keys), dtype=dtype)
        around = ((position_kernel // 2, (position_kernel - 1) // 2),)
        self.places: Any = nn.Conv1d(
            width, width, position_kernel, padding=around, groups=position_groups, key=next(keys), dtype=dtype
        )
        self.dropout: Any = nn.Dropout(dropout, key=next(keys)) if dropout else None
        self.blocks: list[Any] = [
            nn.TransformerBlock(width, heads, hidden, dropout=dropout, key=next(keys), dtype=dtype)
            for _ in range(layers)
        ]
        self.norm: Any = nn.LayerNorm(width, dtype=dtype)
        self.head: Any = nn.Linear(width, self.vocab_size, key=next(keys), dtype=dtype)

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """`mask` (..., samples) is False behind the sound; `mask_after(mask)` says which frames are real."""
        return nn.log_softmax(self.head(self.hidden(x, mask=mask)))

    def hidden(self, x: Any, *, mask: Any = None) -> Any:
        """The vectors of the frames, (..., frames, width)."""
        x = array(x)
        if x.ndim < 1 or (self.mels is not None and x.shape[-2:-1] != (self.mels,)):
            raise wrong_shape(self, "(..., samples)" if self.mels is None else f"(..., {self.mels}, time)", x.shape)
        x = x[..., None, :] if self.mels is None else x  # (B, 1, samples)
        mask = real_places(self, mask, (*x.shape[:-2], x.shape[-1]))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = np.swapaxes(norm(np.swapaxes(convolution(x), -2, -1)), -2, -1)  # (B, C, S)
            x = nn.gelu(x)
        x = self.projection(self.norm_in(np.swapaxes(x, -2, -1)))  # (B, S, width)
        seen = None if mask is None else self.mask_after(mask)
        x = x if seen is None else np.where(seen[..., None], x, 0)
        x = x + np.swapaxes(nn.gelu(self.places(np.swapaxes(x, -2, -1))), -2, -1)
        x = x if self.dropout is None else self.dropout(x)
        for block in self.blocks:
            x = block(x, mask=of_keys(seen))
        return self.norm(x)

    def mask_after(self, mask: Any) -> Any:
        """Which frames are real, (..., frames), of a mask (..., samples); their sums are the lengths for CTC."""
        for convolution in self.convolutions:
            mask = nn.mask_after(convolution, mask)
        return mask
