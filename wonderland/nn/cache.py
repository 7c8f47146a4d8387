"""`KVCache`: keys and values of tokens that were seen, in buffers that are written in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.tracer import Tracer
from wonderland.nn.arguments import demand
from wonderland.nn.building import positive
from wonderland.nn.module import Buffer, Module
from wonderland.nn.placing import place_of, wrong_shape


class Seen(NamedTuple):
    """What queries may look at: keys and values (..., heads, S, D), the keys' positions (S,); -1 or less is empty."""

    keys: Any
    values: Any
    positions: Any


class KVCache(Module):
    """Room for the keys and values of `length` tokens, (*batch, heads, length, width) each.

    `write(k, v)` stores those of the tokens that come next, and returns what there is to attend to. As a `ring`, the
    latest `length` tokens are kept, for attention with a window of at most that: there is no end. `position` is the
    number of tokens that were written. Arrays keep their shapes, so that a compiled step serves all positions; it may
    be carried by `wl.scan`. Values are `value_width` wide, if that is given.
    """

    def __init__(
        self, batch: Sequence[int], heads: int, length: int, width: int, ring: bool = False, *,
        value_width: int | None = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if not isinstance(batch, (tuple, list)):
            raise TypeError(f"KVCache: batch={batch!r} is a tuple, the axes before the heads, such as (4,) or ()")
        shape = (*batch, heads, positive(length, "KVCache: length"))
        self.keys: Any = Buffer(np.zeros((*shape, width), dtype))
        self.values: Any = Buffer(np.zeros((*shape, width if value_width is None else value_width), dtype))
        self.position: Any = Buffer(np.zeros((), np.int64))
        self.ring: bool = bool(ring)

    @property
    def length(self) -> int:
        """How many tokens there is room for."""
        return self.keys.shape[-2]

    def reset(self) -> None:
        """Forget all tokens."""
        self.position = 0

    def take(self, rows: Any) -> None:
        """Go on with some of the texts of the batch, (B,) integers, in this order."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    def write(self, k: Any, v: Any) -> Seen:
        """Store k and v, (..., heads, T, width), of the next T tokens."""
        for name, new, held in (("keys", k, self.keys.shape), ("values", v, self.values.shape)):
            if (*new.shape[:-2], new.shape[-1]) != (*held[:-2], held[-1]):
                raise wrong_shape(self, f"({', '.join(map(str, held[:-2]))}, T, {held[-1]})", new.shape, name)
        count, length, start = k.shape[-2], self.length, self.position
        if not self.ring:
            fits = (start >= 0) & (start + count <= length)
            if isinstance(fits, Tracer) or not fits:
                what = f"{place_of(self)}: there is room for {length} tokens, {{}} are in it, {count} more came"
                demand(fits, what, start)
        before = self._seen(start)
        if self.ring and count > 1:  # the first queries see keys that the last ones overwrite
            keys = np.concatenate([self.keys, k], axis=-2)
            values = np.concatenate([self.values, v], axis=-2)
            seen = Seen(keys, values, np.concatenate([before, start + np.arange(count)]))
            kept = min(count, length)
            self._store(k[..., count - kept :, :], v[..., count - kept :, :], start + count - kept)
        else:
            self._store(k, v, start)
            seen = Seen(self.keys, self.values, self._seen(start + count))
        self.position = start + count
        return seen

    def _store(self, k: Any, v: Any, start: Any) -> None:
        count = k.shape[-2]
        rows = start if count == 1 else start + np.arange(count)
        rows = rows % self.length if self.ring else rows
        if count == 1:
            k, v = k[..., 0, :], v[..., 0, :]
        self.keys[..., rows, :] = k
        self.values[..., rows, :] = v

    def _seen(self, end: Any) -> Any:
        """The positions of the rows when `end` tokens were written."""
        rows = np.arange(self.length)
        if self.ring:
            return end - 1 - (end - 1 - rows) % self.length
        return np.where(rows < end, rows, -1)
