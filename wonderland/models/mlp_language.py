"""The neural language model of Bengio et al.: a network on the vectors of the last tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.generation import Generates
from wonderland.models.windows import Recent, in_windows
from wonderland.nn.building import positive, recipe
from wonderland.numpy import take


class MLPLanguageModel(Generates):
    """Tokens (..., T), integers, to logits (..., T, vocab_size) of what follows each, of the last `context` tokens.

        e = [C x_{t-1}; ...; C x_{t-context}];   h = W_d tanh(... tanh(W_1 e + b_1) ...) + b_d;   logits = D h + b

    One embedding C, of `width` numbers, serves all places of the window, zeros stand before the text, and D = C^T
    (`tied`). `hidden` are the widths of the layers in between; with `direct`, a linear function of e is added to the
    logits.

    Bengio et al. 2003, A neural probabilistic language model; Press and Wolf 2017, for D = C^T.
    """

    endless = True

    def __init__(
        self, vocab_size: int, context: int, width: int, hidden: int | Sequence[int] = 128, *, tied: bool = True,
        direct: bool = False, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.vocab_size: int = positive(vocab_size, "MLPLanguageModel: vocab_size")
        self.context: int = positive(context, "MLPLanguageModel: context")
        sizes = [self.context * width, *((hidden,) if isinstance(hidden, int) else hidden), width]
        keys = iter(recipe(self, None, False, key, dtype).keys(len(sizes) + 2))
        scale = lambda k, s, d: nn.init.normal(k, s, d, std=width**-0.5)
        self.tokens: Any = nn.Embedding(self.vocab_size, width, init=scale, key=next(keys), dtype=dtype)
        self.layers: list[Any] = [nn.Linear(i, o, key=next(keys), dtype=dtype) for i, o in pairwise(sizes)]
        self.head: Any = None if tied else nn.Linear(width, self.vocab_size, False, key=next(keys), dtype=dtype)
        self.bias: Any = np.zeros(self.vocab_size, self.tokens.weight.dtype)
        self.direct: Any = nn.Linear(sizes[0], self.vocab_size, False, key=next(keys), dtype=dtype) if direct else None

    def __call__(self, tokens: Any, *, caches: Any = None) -> Any:
        """With `caches`, of `new_caches`, the tokens come after those that were seen before."""
        return self.logits(self.hidden(tokens, caches=caches))

    def hidden(self, tokens: Any, *, caches: Any = None) -> Any:
        """What the logits are made of, (..., T, width): h, and e behind it if there are direct connections."""
        window = in_windows(self, tokens, self.context, caches)[..., ::-1]  # (B, T, N), the latest token first
        e = np.where(window[..., None] < 0, 0, take(self.tokens.weight, window, axis=0))  # (B, T, N, C)
        e = e.reshape(*e.shape[:-2], e.shape[-2] * e.shape[-1])  # (B, T, N C)
        h = self.layers[0](e)
        for layer in self.layers[1:]:
            h = layer(nn.tanh(h))
        return h if self.direct is None else np.concatenate([h, e], axis=-1)

    def logits(self, x: Any) -> Any:
        """What `hidden` gives to (..., vocab_size)."""
        h, e = np.split(x, [self.tokens.embedding_dim], axis=-1)
        y = (h @ self.tokens.weight.T if self.head is None else self.head(h)) + self.bias
        return y if self.direct is None else y + self.direct(e)

    def new_caches(self, batch: tuple[int, ...] = (), length: int | None = None) -> list[Any]:
        """Room for the tokens of a window, whatever the length."""
        return [Recent(batch, self.context)]
