"""Where a token is: positions come in, and vectors to add or biases of logits go out; `Rotary` has a file of its own.

Attention without any of these doesn't see an order. Learned positions are an `nn.Embedding`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from wonderland.nn.arguments import array
from wonderland.nn.building import positive
from wonderland.nn.embedding import Embedding
from wonderland.nn.module import Module
from wonderland.nn.placing import place_of
from wonderland.nn.rotary import Rotary, angles, frequencies


def sinusoidal(
    positions: Any, width: int, base: float = 10000.0, pairing: str = "interleaved", *, dtype: Any = np.float32
) -> Any:
    """Sines and cosines of positions (...), as (..., width): numbers 2i and 2i + 1 are those of p / base^(2i / width).

    The encoding of p + s is that of p with each pair turned by the angle s / base^(2i / width): a shift is a rotation.
    `positions` are numbers, or an integer n for 0, ..., n - 1. `pairing="half"` has all sines before all cosines, as
    Hugging Face's Marian does. Vaswani et al. 2017, Attention is all you need.
    """
    if positive(width, "sinusoidal: width") % 2:
        raise ValueError(f"sinusoidal: width={width} is even: each frequency has a sine and a cosine")
    if pairing not in ("half", "interleaved"):
        raise ValueError(f'sinusoidal: pairing is "half" or "interleaved", got {pairing!r}')
    positions = array(np.arange(positions) if isinstance(positions, int) else positions)
    t = angles(positions, frequencies(width, base))  # (..., width / 2)
    pairs = np.stack([np.sin(t), np.cos(t)], axis=-1 if pairing == "interleaved" else -2)
    return pairs.reshape(*positions.shape, width).astype(dtype)


class RelativeBias(Module):
    """A number for each head and each distance of key and query, in buckets, trained: T5's relative positions.

    Half of the buckets are single distances, the others grow logarithmically up to `max_distance`, and the last one
    has all beyond. `bidirectional`: keys behind the query have buckets of their own; else, for causal attention, they
    share that of distance 0. `weight` is (buckets, heads). Raffel et al. 2020.
    """

    def __init__(
        self, heads: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True, *, key: Any = None,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self.heads, self.buckets = positive(heads, "RelativeBias: heads"), positive(buckets, "RelativeBias: buckets")
        self.max_distance: int = positive(max_distance, "RelativeBias: max_distance")
        self.bidirectional: bool = bool(bidirectional)
        exact = self.buckets // (4 if self.bidirectional else 2)
        if not 0 < exact < self.max_distance:
            raise ValueError(
                f"RelativeBias: of buckets={buckets}, {exact} are for single distances: that is at least 1, and less "
                f"than max_distance={max_distance}"
            )
        table: Any = Embedding(buckets, heads, key=key, dtype=dtype)
        self.weight: Any = table.weight

    def __call__(self, queries: Any, keys: Any) -> Any:
        """Positions of queries (T,) and keys (S,) to biases (heads, T, S)."""
        return self.of_distance(_distances(queries, keys))

    def of_distance(self, distance: Any) -> Any:
        """Key positions less query positions, (..., T, S) or (S,), to biases (..., heads, T, S) or (heads, S)."""
        return np.moveaxis(self.weight[self.bucket(distance)], -1, -1 - min(distance.ndim, 2))

    def bucket(self, distance: Any) -> Any:
        """The number of a bucket, of key position - query position."""
        count, first = self.buckets, 0
        if self.bidirectional:
            count //= 2
            first, distance = np.where(distance > 0, count, 0), np.abs(distance)
        else:
            distance = np.maximum(-distance, 0)
        exact = count // 2
        ratio = np.log(np.maximum(distance, 1) / exact) / math.log(self.max_distance / exact)
        far = np.minimum(exact + (ratio * (count - exact)).astype(np.int64), count - 1)
        return first + np.where(distance < exact, distance, far)


class ALiBi(Module):
    """Biases -slope * distance of key and query, nothing trained: near keys weigh more. Press et al. 2022.

    The slopes of n heads are 2^(-8 i / n), i = 1 to n, for n a power of 2; otherwise those of the power below, and
    then every second one of the power above.
    """

    def __init__(self, heads: int):
        self.heads: int = positive(heads, "ALiBi: heads")

    def slopes(self) -> np.ndarray:
        """One for each head."""
        power = 2 ** int(math.log2(self.heads))
        of = lambda n: 2.0 ** (-8 / n * np.arange(1, n + 1))
        return np.concatenate([of(power), of(2 * power)[::2][: self.heads - power]])

    def __call__(self, queries: Any, keys: Any) -> Any:
        """Positions of queries (T,) and keys (S,) to biases (heads, T, S), float64."""
        return self.of_distance(_distances(queries, keys))

    def of_distance(self, distance: Any) -> Any:
        """Key positions less query positions, (..., T, S) or (S,), to biases (..., heads, T, S) or (heads, S)."""
        rank = min(distance.ndim, 2)
        slopes = self.slopes().reshape(-1, *[1] * rank)
        return -slopes * np.abs(distance)[(..., None, *[slice(None)] * rank)]


def of_pairs(by_distance: Any, keys: int) -> Any:
    """Biases (heads, T, S), a view of those for each distance, (heads, T + S - 1), from -(T - 1) on."""
    return sliding_window_view(by_distance, keys, axis=-1)[..., ::-1, :]  # [h, i, j] is [h, j - i + T - 1] of it


def _distances(queries: Any, keys: Any) -> Any:
    """(T, S): positive where the key is later."""
    return array(keys)[..., None, :] - array(queries)[..., :, None]


def checked_positions(layer: Any, rotary: Any, bias: Any, heads: int) -> None:
    """Positions that fit an attention layer."""
    if rotary is not None and not isinstance(rotary, Rotary):
        raise TypeError(f"{place_of(layer)}: rotary is an nn.Rotary, got {type(rotary).__name__}")
    if bias is not None and not callable(bias):
        raise TypeError(f"{place_of(layer)}: position_bias is an nn.ALiBi or nn.RelativeBias, got {bias!r}")
    if bias is not None and getattr(bias, "heads", heads) != heads:
        raise ValueError(f"{place_of(layer)}: it has {heads} heads, its position_bias {bias.heads}")
