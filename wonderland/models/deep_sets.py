"""Sets as inputs: functions that don't know the order of their elements, and layers that keep it."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.building import recipe
from wonderland.nn.masks import masked_max, masked_mean, masked_sum

POOLS = {"sum": (np.sum, masked_sum), "mean": (np.mean, masked_mean), "max": (np.max, masked_max)}


class DeepSets(nn.Module):
    """f({x_1, ..., x_n}) = rho(pool_i phi(x_i)), (..., n, *element) to (..., out): any order of elements is the same.

    `phi` is a layer of one element, (..., *element) to (..., width), `rho` one of the pooled vector; `pool` is "sum",
    "mean" or "max". With the sum, every continuous function of sets of a bounded size has this form, if `width` is
    at least that size (Wagstaff et al. 2019). Zaheer et al. 2017, Deep sets.
    """

    def __init__(self, phi: Any, rho: Any, pool: str = "sum"):
        self.phi: Any = phi
        self.rho: Any = rho
        self.pool: str = _known(pool, "DeepSets")

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """`mask` (..., n) is False where there is no element: for sets of different sizes."""
        return self.rho(set_pool(self.phi(x), self.pool, mask))


class SetLinear(nn.Module):
    """y_i = W x_i + V pool_j x_j + b, (..., n, in) to (..., n, out): elements in another order give y in that order.

    All linear layers that have this property are of this form, with the sum or the mean. Zaheer et al. 2017.
    """

    def __init__(
        self, in_features: int, out_features: int, pool: str = "mean", *, bias: Any = True, init: Any = None,
        key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.pool: str = _known(pool, "SetLinear")
        keys = recipe(self, init, bias, key, dtype).keys(2)
        self.own: Any = nn.Linear(in_features, out_features, bias, init=init, key=keys[0], dtype=dtype)
        self.all: Any = nn.Linear(in_features, out_features, False, init=init, key=keys[1], dtype=dtype)

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """`mask` (..., n) is False where there is no element."""
        return self.own(x) + self.all(set_pool(x, self.pool, mask))[..., None, :]


def set_pool(x: Any, pool: str, mask: Any = None) -> Any:
    """Vectors (..., n, width) to one, (..., width), which is their sum, mean or maximum."""
    plain, masked = POOLS[pool]
    return plain(x, axis=-2) if mask is None else masked(x, mask, rank=1, channels_last=True)


def _known(pool: str, name: str) -> str:
    if pool not in POOLS:
        raise ValueError(f"{name}: pool is one of {[*POOLS]}, got {pool!r}")
    return pool
