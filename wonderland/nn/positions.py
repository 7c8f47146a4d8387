"""Where a token is: positions come in, and vectors to add, turned queries and keys, or biases of logits go out.

Attention without any of these doesn't see an order. Learned positions are an `nn.Embedding`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from wonderland.nn.arguments import array
from wonderland.nn.building import positive
from wonderland.nn.embedding import Embedding
from wonderland.nn.module import Module
from wonderland.nn.placing import place_of, wrong_shape


def sinusoidal(positions: Any, width: int, base: float = 10000.0, *, dtype: Any = np.float32) -> Any:
    """Sines and cosines of positions (...), as (..., width): numbers 2i and 2i + 1 are those of p / base^(2i / width).

    The encoding of p + s is that of p with each pair turned by the angle s / base^(2i / width): a shift is a rotation.
    `positions` are numbers, or an integer n for 0, ..., n - 1. Vaswani et al. 2017, Attention is all you need.
    """
    if positive(width, "sinusoidal: width") % 2:
        raise ValueError(f"sinusoidal: width={width} is even: each frequency has a sine and a cosine")
    positions = array(np.arange(positions) if isinstance(positions, int) else positions)
    angles = _angles(positions, _frequencies(width, base))  # (..., width / 2)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (..., width / 2, 2)
    return pairs.reshape(*positions.shape, width).astype(dtype)


class Rotary(Module):
    """Queries and keys turned by angles that grow with their positions, so that q . k depends on the distance only.

        (a_i, b_i) -> (a_i cos t - b_i sin t, a_i sin t + b_i cos t),    t = position / base^(2i / width)

    `pairing="half"` pairs numbers i and i + width / 2, as Hugging Face's LLaMA does; "interleaved" 2i and 2i + 1, as
    the paper and GPT-J. `width` may be less than that of the heads: the rest isn't turned. `scaling` stretches the
    angles for contexts that are longer than those of training, a dict with Hugging Face's names:

        {"rope_type": "linear", "factor": 4.0}                      positions / factor
        {"rope_type": "ntk", "factor": 4.0}                         base * factor^(width / (width - 2))
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192}                  slow frequencies / factor, fast ones as they are

    Su et al. 2021, RoFormer.
    """

    def __init__(
        self, width: int, base: float = 10000.0, pairing: str = "half", scaling: Mapping[str, Any] | None = None
    ):
        self.width: int = positive(width, "Rotary: width")
        if self.width % 2:
            raise ValueError(f"Rotary: width={width} is even: numbers are turned in pairs")
        if pairing not in ("half", "interleaved"):
            raise ValueError(f'Rotary: pairing is "half" or "interleaved", got {pairing!r}')
        self.base: float = float(base)
        self.pairing: str = pairing
        self.scaling: dict[str, Any] | None = None if scaling is None else dict(scaling)
        self.frequencies()  # says what is wrong with the scaling

    def frequencies(self) -> np.ndarray:
        """Angles from one position to the next, (width / 2,)."""
        plain = _frequencies(self.width, self.base)
        options: dict[str, Any] = dict(self.scaling or {"rope_type": "default"})
        kind = options.pop("rope_type", options.pop("type", None))
        try:
            if kind == "default":
                return plain
            factor = float(options.pop("factor"))
            if kind == "linear":
                return plain / factor
            if kind == "ntk":
                return _frequencies(self.width, self.base * factor ** (self.width / max(self.width - 2, 1)))
            if kind == "llama3":
                low, high = float(options["low_freq_factor"]), float(options["high_freq_factor"])
                turns = options["original_max_position_embeddings"] * plain / (2 * math.pi)  # in the old context
                smooth = np.clip((turns - low) / (high - low), 0, 1)
                return (1 - smooth) * plain / factor + smooth * plain
        except KeyError as missing:
            raise ValueError(f"Rotary: scaling {self.scaling} lacks {missing}") from None
        raise ValueError(f'Rotary: rope_type is "default", "linear", "ntk" or "llama3", got {kind!r}')

    def __call__(self, x: Any, positions: Any) -> Any:
        """x (..., T, D) to the same shape; positions (T,), or (..., T) that broadcasts."""
        if x.shape[-1] < self.width:
            raise wrong_shape(self, f"(..., T, D) with D at least {self.width}", x.shape)
        angles = _angles(array(positions), self.frequencies())
        cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)  # (..., T, width / 2)
        half = self.width // 2
        if self.pairing == "half":
            a, b = x[..., :half], x[..., half : self.width]
            turned = [a * cos - b * sin, a * sin + b * cos]
        else:
            a, b = x[..., 0 : self.width : 2], x[..., 1 : self.width : 2]
            pairs = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)
            turned = [pairs.reshape(*pairs.shape[:-2], self.width)]
        return np.concatenate([*turned, x[..., self.width :]] if x.shape[-1] > self.width else turned, axis=-1)


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


def _frequencies(width: int, base: float) -> np.ndarray:
    return base ** (-np.arange(0, width, 2) / width)


def _angles(positions: Any, frequencies: np.ndarray) -> Any:
    """In double precision: a late position in single precision has no digits left for its angle."""
    return positions[..., None].astype(np.float64) * frequencies


def checked_positions(layer: Any, rotary: Any, bias: Any, heads: int) -> None:
    """Positions that fit an attention layer."""
    if rotary is not None and not isinstance(rotary, Rotary):
        raise TypeError(f"{place_of(layer)}: rotary is an nn.Rotary, got {type(rotary).__name__}")
    if bias is not None and getattr(bias, "heads", heads) != heads:
        raise ValueError(f"{place_of(layer)}: it has {heads} heads, its position_bias {bias.heads}")
