"""Batches for a language model: windows of a long text, at random places, and the tokens that follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wonderland.data.faults import DataError, count_of
from wonderland.data.streams import Batches


def token_windows(tokens: Any, length: int, batch_size: int, steps: int, seed: int = 0) -> Batches:
    """Batches (inputs, targets), each (batch_size, length), `steps` in an epoch: targets[i] is what follows inputs[i].

    `tokens` (n,) are the numbers of a text's tokens. Windows begin anywhere, drawn with replacement by the seed, the
    epoch and nothing else, so that a resumed run sees what it would have seen.

    batches = wl.data.token_windows(tokenizer.encode(text), length=64, batch_size=12, steps=100)
    """
    tokens = np.asarray(tokens)
    length, batch_size = count_of(length, "length"), count_of(batch_size, "batch_size")
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise DataError(f"token_windows takes numbers of tokens (n,), got dtype {tokens.dtype}, shape {tokens.shape}")
    if len(tokens) <= length:
        needs = f"a window of length={length} and the token after it need {length + 1} tokens"
        raise DataError(f"{needs}, the text has {len(tokens)}")

    def batches(epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng((seed, epoch))
        while True:
            starts = rng.integers(len(tokens) - length, size=batch_size)
            found = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
            yield found[:, :-1].copy(), found[:, 1:].copy()

    return Batches(batches, count_of(steps, "steps"))
