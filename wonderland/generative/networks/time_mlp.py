"""`TimeMLP`: the noise in points, by a perceptron that is told the noise level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.core.errors import ArgumentError
from wonderland.generative.networks.conditioning import NoiseEmbedding, preconditioned
from wonderland.nn.building import positive, recipe


class TimeMLP(nn.Module):
    """Points (B, dim) and noise levels to the noise in them, (B, dim).

        h = c_in x;   h = silu(W_l h + V_l e(sigma, class)) for each layer;   F = W h,       e of `NoiseEmbedding`

    `sigma_data` is the standard deviation of the data. With `classes`, the condition is a class (B,), and -1 is none.
    """

    def __init__(
        self, dim: int = 2, hidden: Sequence[int] = (128, 128, 128), *, classes: int | None = None,
        sigma_data: float = 1.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.sigma_data: float = float(sigma_data)
        self.dtype: Any = np.dtype(dtype)
        widths = [positive(width, "TimeMLP: hidden") for width in (hidden if np.iterable(hidden) else ())]
        if not widths:
            raise ArgumentError(f"TimeMLP: hidden is the width of each hidden layer, as in (128, 128): got {hidden!r}")
        keys = iter(recipe(self, None, True, key, dtype).keys(2 * len(widths) + 2))
        inputs = [positive(dim, "TimeMLP: dim"), *widths]
        made: dict[str, Any] = {"dtype": dtype}
        # Signals keep their size from layer to layer: with smaller weights, fine structure is learned late.
        even: dict[str, Any] = {"init": nn.init.he_normal, "bias": nn.init.zeros, **made}
        self.embedding: Any = NoiseEmbedding(widths[0], classes, key=next(keys), **made)
        self.layers: list[Any] = [nn.Linear(i, o, key=next(keys), **even) for i, o in zip(inputs, widths)]
        told = lambda o: nn.Linear(widths[0], o, False, init=nn.init.lecun_normal, key=next(keys), **made)
        self.levels: list[Any] = [told(o) for o in widths]
        self.head: Any = nn.Linear(widths[-1], dim, init=nn.init.zeros, bias=nn.init.zeros, key=next(keys), **made)

    def __call__(self, x: Any, sigma: Any, condition: Any = None) -> Any:
        def function(h: Any, sigma: Any) -> Any:
            e = nn.silu(self.embedding(sigma, condition))  # (B, E), or (1, E) for one level
            for layer, level in zip(self.layers, self.levels):
                h = nn.silu(layer(h) + level(e))
            return self.head(h)

        return preconditioned(function, x, sigma, self.sigma_data, self.dtype)
