"""`NeuralMemory`: attention to keys and values that are parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.linear import Linear
from wonderland.nn.lookups import lookup, weighting_of
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, wrong_shape


class NeuralMemory(Module):
    """y = V^T softmax(K W_q x / sqrt(k)), of each token: (..., width) to (..., value_width); K and V are trained.

    `keys` is (slots, k), `values` (slots, value_width): patterns, and what they stand for. `query=False` leaves out
    W_q, and then k is the width. `weighting` is that of `nn.lookup`: a function a instead of the softmax gives
    V^T a(K x), a feed-forward network of two layers. Sukhbaatar et al. 2015, End-to-end memory networks.
    """

    def __init__(
        self, width: int, slots: int, value_width: int | None = None, *, key_width: int | None = None,
        query: bool = True, weighting: str | Callable = "softmax", scale: float | None = None,
        init: Init | None = None, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.width: int = positive(width, "NeuralMemory: width")
        k = self.width if key_width is None else positive(key_width, "NeuralMemory: key_width")
        if not query and k != self.width:
            raise ValueError(f"NeuralMemory: with query=False keys are {width} wide, as the input, got key_width={k}")
        v = self.width if value_width is None else positive(value_width, "NeuralMemory: value_width")
        weighting_of(weighting)  # says what there is
        self.weighting: Any = weighting
        self.scale: float = 1 / math.sqrt(k) if scale is None else float(scale)
        how = recipe(self, init, False, key, dtype)
        of_q, of_keys, of_values = how.keys(3)
        shape = positive(slots, "NeuralMemory: slots"), k
        self.q_proj: Any = Linear(self.width, k, False, init=init, key=of_q, dtype=dtype) if query else None
        self.keys: Any = how.weight(of_keys, shape, initialisers.normal)
        self.values: Any = how.weight(of_values, (slots, v), partial(initialisers.normal, std=1 / math.sqrt(v)))

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.keys)
        if x.shape[-1:] != (self.width,):
            raise wrong_shape(self, f"(..., {self.width})", x.shape)
        q = x if self.q_proj is None else self.q_proj(x)  # (..., k)
        return lookup(q, self.keys, self.values, self.weighting, scale=self.scale)
