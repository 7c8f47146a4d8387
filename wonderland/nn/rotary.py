"""`Rotary`: queries or keys and their positions come in, and go out turned by angles that grow with the position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wonderland.nn.arguments import array
from wonderland.nn.building import positive
from wonderland.nn.module import Module
from wonderland.nn.placing import wrong_shape

SCALINGS = ("default", "linear", "ntk", "dynamic", "yarn", "llama3")


class Rotary(Module):
    """Queries and keys turned by angles that grow with their positions, so that q . k depends on the distance only.

        (a_i, b_i) -> (a_i cos t - b_i sin t, a_i sin t + b_i cos t),    t = position / base^(2i / width)

    `pairing="half"` pairs numbers i and i + width / 2, as Hugging Face's LLaMA does; "interleaved" 2i and 2i + 1, as
    the paper and GPT-J. `width` may be less than that of the heads: the rest isn't turned. `scaling` stretches the
    angles for contexts that are longer than those of training, a dict with Hugging Face's names:

        {"rope_type": "linear", "factor": 4.0}                      positions / factor
        {"rope_type": "ntk", "factor": 4.0}                         base * factor^(width / (width - 2))
        {"rope_type": "dynamic", "factor": 4.0,
         "original_max_position_embeddings": 2048}                  as ntk, by how much longer the context is than that
        {"rope_type": "yarn", "factor": 4.0,
         "original_max_position_embeddings": 2048}                  slow frequencies / factor; and all of q, k longer
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192}                  slow frequencies / factor, fast ones as they are

    "dynamic" looks at the last position: keys in a cache stay turned as they were when they came, as Hugging Face's.
    "yarn" takes `attention_factor`, `beta_fast`, `beta_slow`, `mscale`, `mscale_all_dim`, `truncate`, too.
    Su et al. 2021, RoFormer; Peng et al. 2023, YaRN.
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

    def frequencies(self, length: Any = 0) -> Any:
        """Angles from one position to the next, (width / 2,); of "dynamic" scaling, in a context of this length."""
        plain = frequencies(self.width, self.base)
        given = self._given
        if self._kind == "default":
            return plain
        try:
            factor = given["factor"]
            if self._kind == "linear":
                return plain / factor
            if self._kind == "ntk":
                return self._stretched(factor)
            old = given["original_max_position_embeddings"]
            if self._kind == "dynamic":
                return self._stretched(factor * np.maximum(length, old) / old - (factor - 1))
            kept = _kept_by_llama3(plain, old, given) if self._kind == "llama3" else self._kept_by_yarn(old, given)
        except KeyError as missing:
            raise ValueError(f"Rotary: scaling {self.scaling} lacks {missing}") from None
        return kept * plain + (1 - kept) * plain / factor

    @property
    def amplitude(self) -> float:
        """What turned vectors are multiplied by, 1 but for "yarn": logits that are larger, for a longer context."""
        given = self._given
        if self._kind != "yarn":
            return 1.0
        if given.get("attention_factor") is not None:
            return float(given["attention_factor"])
        of = lambda scale: 0.1 * scale * math.log(max(given["factor"], 1)) + 1
        above, below = given.get("mscale"), given.get("mscale_all_dim")
        return of(above) / of(below) if above and below else of(1)

    def __call__(self, x: Any, positions: Any) -> Any:
        """x (..., T, D) to the same shape; positions (T,), or (..., T) that broadcasts."""
        if x.shape[-1] < self.width:
            raise wrong_shape(self, f"(..., T, D) with D at least {self.width}", x.shape)
        positions = array(positions)
        length = np.max(positions) + 1 if self._kind == "dynamic" else 0
        t = angles(positions, self.frequencies(length))
        cos, sin = (self.amplitude * f(t).astype(x.dtype) for f in (np.cos, np.sin))  # (..., T, width / 2)
        half = self.width // 2
        if self.pairing == "half":
            a, b = x[..., :half], x[..., half : self.width]
            turned = [a * cos - b * sin, a * sin + b * cos]
        else:
            a, b = x[..., 0 : self.width : 2], x[..., 1 : self.width : 2]
            pairs = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)
            turned = [pairs.reshape(*pairs.shape[:-2], self.width)]
        return np.concatenate([*turned, x[..., self.width :]] if x.shape[-1] > self.width else turned, axis=-1)

    @property
    def _given(self) -> dict[str, Any]:
        return self.scaling or {"rope_type": "default"}

    @property
    def _kind(self) -> str:
        kind = self._given.get("rope_type", self._given.get("type"))
        if kind not in SCALINGS:
            raise ValueError(f"Rotary: rope_type is one of {SCALINGS}, got {kind!r}")
        return kind

    def _stretched(self, factor: Any) -> Any:
        """The slowest frequency / factor, the fastest as it is."""
        return frequencies(self.width, self.base * factor ** (self.width / max(self.width - 2, 1)))

    def _kept_by_yarn(self, old: float, given: dict[str, Any]) -> np.ndarray:
        """A ramp over the numbers of frequencies, from those that turn `beta_fast` times to `beta_slow` times."""
        turning = lambda count: self.width * math.log(old / (count * 2 * math.pi)) / (2 * math.log(self.base))
        low, high = turning(given.get("beta_fast") or 32), turning(given.get("beta_slow") or 1)
        if given.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.width - 1)
        high = high + 0.001 if low == high else high
        return 1 - np.clip((np.arange(self.width // 2) - low) / (high - low), 0, 1)


def _kept_by_llama3(plain: np.ndarray, old: float, given: dict[str, Any]) -> np.ndarray:
    """A ramp over the number of turns in the old context."""
    low, high = float(given["low_freq_factor"]), float(given["high_freq_factor"])
    return np.clip((old * plain / (2 * math.pi) - low) / (high - low), 0, 1)


def frequencies(width: int, base: Any) -> Any:
    """base^(-2i / width) for i = 0, ..., width / 2 - 1."""
    return base ** (-np.arange(0, width, 2) / width)


def angles(positions: Any, frequencies: Any) -> Any:
    """(..., width / 2), in double precision: a late position in single precision has no digits left for its angle."""
    return positions[..., None].astype(np.float64) * frequencies
