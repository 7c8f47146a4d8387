"""N-grams: a table of logits for what follows the last tokens. Counts of a text are its best values, and fill it."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.generation import Generates
from wonderland.models.windows import Recent, in_windows
from wonderland.nn.building import positive, recipe
from wonderland.nn.placing import indices
from wonderland.numpy import take


class NGram(Generates):
    """Tokens (..., T), integers, to logits (..., T, vocab_size) of what follows each, by a table of the last tokens.

        p(x_0, x_1, ... | before) = prod_t p(x_t | x_{t-1}, ..., x_{t-context}),    p(. | w) = softmax(weight[w])

    The sliding window: what is further back than `context` tokens is forgotten. `weight` has the shape
    (vocab_size + 1, ..., vocab_size + 1, vocab_size, vocab_size), `context` axes for the window, the latest token last,
    and one for what follows; the last row of all but the latest is for "before the text". It is zeros at first, and
    trained, or `fit` by counting.
    """

    endless = True

    def __init__(self, vocab_size: int, context: int = 1, *, dtype: Any = np.float32):
        self.vocab_size: int = positive(vocab_size, "NGram: vocab_size")
        self.context: int = positive(context, "NGram: context")
        before = (self.vocab_size + 1,) * (self.context - 1)
        how = recipe(self, nn.init.zeros, False, None, dtype)
        self.weight: Any = how.weight(None, (*before, self.vocab_size, self.vocab_size))

    def __call__(self, tokens: Any, *, caches: Any = None) -> Any:
        """With `caches`, of `new_caches`, the tokens come after those that were seen before."""
        return self.hidden(tokens, caches=caches)

    def hidden(self, tokens: Any, *, caches: Any = None) -> Any:
        """The logits: there is nothing in between."""
        windows = in_windows(self, tokens, self.context, caches)  # (..., T, context), -1 before the text
        steps = self.vocab_size * (self.vocab_size + 1) ** np.arange(self.context - 1)[::-1]
        rows = windows[..., -1] + np.sum(windows[..., :-1] % (self.vocab_size + 1) * steps, axis=-1)
        return take(self.weight.reshape(-1, self.vocab_size), rows, axis=0)

    def logits(self, x: Any) -> Any:
        """x itself."""
        return x

    def new_caches(self, batch: tuple[int, ...] = (), length: int | None = None) -> list[Any]:
        """Room for the tokens of a window, whatever the length."""
        return [Recent(batch, self.context)]

    def fit(self, tokens: Any, smoothing: float = 0.0) -> NGram:
        """Set p(token | window) to how often it followed, of texts (..., T): the most probable table for them.

            p(x | w) = (count(w, x) + smoothing) / (count(w) + smoothing vocab_size)

        With smoothing 0, what never followed has the logit -inf; a window that never was has zeros. Returns the model.
        """
        if not smoothing >= 0:
            raise ValueError(f"{type(self).__name__}.fit: smoothing is added to counts, 0 or more, got {smoothing!r}")
        tokens = np.atleast_1d(indices(self, np.asarray(tokens)))
        rows = np.asarray(in_windows(self, tokens, self.context))[..., :-1, :]  # (..., T - 1, context)
        counts = np.full(self.weight.shape, float(smoothing))
        np.add.at(counts, (*np.moveaxis(rows, -1, 0), tokens[..., 1:]), 1)
        with np.errstate(divide="ignore"):
            logits = np.log(counts)
        self.weight[...] = np.where(counts.any(axis=-1, keepdims=True), logits, 0)
        return self


class Bigram(NGram):
    """An `NGram` that sees one token: p(x_t | x_{t-1}) = softmax(weight[x_{t-1}]), a table (vocab_size, vocab_size)."""

    def __init__(self, vocab_size: int, *, dtype: Any = np.float32):
        super().__init__(vocab_size, 1, dtype=dtype)
