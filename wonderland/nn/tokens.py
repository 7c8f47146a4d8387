"""`PrefixTokens`: trained tokens before those of a sequence, such as a class token or registers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, wrong_shape


class PrefixTokens(Module):
    """y = [w_1, ..., w_count, x_1, ..., x_T]: (..., T, width) to (..., count + T, width).

    `weight` is (count, width), drawn from a normal distribution with a standard deviation of 0.02. A class token is
    one of which the result is read, y[..., 0, :]; registers are tokens of which nothing is read (Darcet et al. 2024).
    """

    def __init__(
        self, count: int, width: int, *, init: Init | None = None, key: Any = None, dtype: Any = np.float32
    ):  # fmt: skip
        self.count: int = positive(count, "PrefixTokens: count")
        self.width: int = positive(width, "PrefixTokens: width")
        how = recipe(self, init, False, key, dtype)
        (of_weight,) = how.keys(1)
        self.weight: Any = how.weight(of_weight, (count, width), partial(initialisers.normal, std=0.02))

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.weight)
        if x.ndim < 2 or x.shape[-1] != self.width:
            raise wrong_shape(self, f"(..., T, {self.width})", x.shape)
        return prefixed(self.weight, x)


def prefixed(tokens: Any, x: Any) -> Any:
    """Tokens (..., N, C) before x (..., T, C), which has at least as many axes: they are the same along its first."""
    lead = x.shape[: x.ndim - tokens.ndim]
    return np.concatenate([np.broadcast_to(tokens, (*lead, *tokens.shape)), x], axis=-2)
