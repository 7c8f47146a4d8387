"""Text CNN: convolutions of several widths over the vectors of tokens, and of each the largest value in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import real_places
from wonderland.nn.placing import indices, wrong_shape


class TextCNN(nn.Module):
    """Tokens (..., T), integers, to logits (..., classes) of the whole text.

        c_{w,i} = relu(W_w [E x_i, ..., E x_{i+w-1}] + b_w) for each kernel width w;   logits = V [max_i c_{w,i}]_w + b

    A window begins at each token, and zeros follow the text. `filters` is the number of each width's. Kim 2014,
    Convolutional neural networks for sentence classification.
    """

    def __init__(
        self, vocab_size: int, classes: int, width: int = 64, kernels: Sequence[int] = (3, 4, 5), filters: int = 64, *,
        dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.vocab_size: int = positive(vocab_size, "TextCNN: vocab_size")
        keys = iter(recipe(self, None, False, key, dtype).keys(len(kernels) + 3))
        self.tokens: Any = nn.Embedding(self.vocab_size, width, key=next(keys), dtype=dtype)
        self.convolutions: list[Any] = [
            nn.Conv1d(width, filters, size, padding=((0, size - 1),), key=next(keys), dtype=dtype) for size in kernels
        ]
        self.dropout: Any = nn.Dropout(dropout, key=next(keys)) if dropout else None
        self.head: Any = nn.Linear(len(kernels) * filters, classes, key=next(keys), dtype=dtype)

    def __call__(self, tokens: Any, *, mask: Any = None) -> Any:
        """`mask` (..., T) is False where there is no token, which is behind the text."""
        x = self.features(tokens, mask=mask)
        return self.head(x if self.dropout is None else self.dropout(x))

    def features(self, tokens: Any, *, mask: Any = None) -> Any:
        """The largest value of each filter, (..., kernels * filters)."""
        tokens = indices(self, tokens)
        if not tokens.ndim or not tokens.shape[-1]:
            raise wrong_shape(self, "(..., T) with T at least 1", tokens.shape, "tokens")
        x = self.tokens(tokens)  # (B, T, C)
        mask = real_places(self, mask, tokens.shape)
        x = x if mask is None else np.where(mask[..., None], x, 0)
        x = np.swapaxes(x, -2, -1)  # (B, C, T)
        found = []
        for convolution in self.convolutions:
            c = nn.relu(convolution(x))  # (B, F, T)
            c = c if mask is None else np.where(mask[..., None, :], c, 0)  # nothing is less than 0
            found.append(np.max(c, axis=-1))
        return np.concatenate(found, axis=-1)
