"""The last tokens at each place of a text: what models see that look at a window and no further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.arguments import demand
from wonderland.nn.placing import indices, place_of, wrong_shape


class Recent(nn.Module):
    """The latest tokens of a text that is being written, (*batch, context - 1); -1 where it hasn't begun."""

    def __init__(self, batch: Sequence[int], context: int):
        self.tokens: Any = nn.Buffer(np.full((*batch, context - 1), -1))

    def take(self, rows: Any) -> None:
        """Go on with some of the texts of the batch, (B,) integers, in this order."""
        self.tokens = self.tokens[rows]


def in_windows(model: Any, tokens: Any, context: int, caches: Any = None) -> Any:
    """Tokens (..., T) as windows (..., T, context), oldest first; -1: before the text. Caches have what was seen."""
    tokens = indices(model, tokens)
    if not tokens.ndim:
        raise wrong_shape(model, "(..., T)", tokens.shape, "tokens")
    inside = (tokens >= 0) & (tokens < model.vocab_size)
    what = f"{place_of(model)}: the vocabulary is 0 to {model.vocab_size - 1}, the input has the token {{}}"
    demand(inside, what, tokens)
    if caches is None:
        before = np.full((*tokens.shape[:-1], context - 1), -1)
    else:
        before = caches[0].tokens
    seen = np.concatenate([before, tokens], axis=-1)  # (..., context - 1 + T)
    if caches is not None:
        caches[0].tokens = seen[..., seen.shape[-1] - context + 1 :]
    return seen[..., np.arange(tokens.shape[-1])[:, None] + np.arange(context)]
