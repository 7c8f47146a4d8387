"""What networks that know the noise share: inputs scaled by the noise level; level and condition as a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.core.errors import ArgumentError
from wonderland.generative.denoising import as_condition, as_sigma
from wonderland.nn.arguments import array, demand, floating
from wonderland.nn.building import positive, recipe

LEAST = 1e-6  # noise levels below look like this one: the logarithm of 0 isn't a number


def preconditioned(
    function: Callable[[Any, Any], Any], x: Any, sigma: Any, sigma_data: float, dtype: Any = np.float32
) -> Any:
    """epsilon of noisy data x (B, ...), of a function F(c_in x, sigma) whose inputs and outputs are about 1 in size.

        x0 = c_skip x + c_out F(c_in x, sigma),           epsilon = (x - x0) / sigma = sigma c_in^2 x - s c_in F

    with s the standard deviation of the data, c_in = 1 / sqrt(sigma^2 + s^2), c_skip = (s c_in)^2 and c_out =
    sigma s c_in: Karras et al. 2022. For data of N(0, s^2), F = 0 is right. F gets the levels as (1,) or (B,), and
    computes in its own dtype; what comes out has that of x.
    """
    x = floating(x, "x")
    if not sigma_data > 0:
        raise ArgumentError(f"sigma_data is the standard deviation of the data, above 0: got {sigma_data}")
    levels = array(sigma).astype(x.dtype).reshape(-1)  # (1,) or (B,)
    level = as_sigma(levels, x)
    c_in = 1 / np.sqrt(level**2 + sigma_data**2)
    raw = function((c_in * x).astype(dtype), levels.astype(dtype))
    if raw.shape != x.shape:
        raise ArgumentError(
            f"a network takes samples (B, ...), and a condition for each: of x {x.shape} it made {raw.shape}"
        )
    return c_in * (level * c_in * x - sigma_data * raw.astype(x.dtype))


class NoiseEmbedding(nn.Module):
    """A noise level and a class as one vector: sigma (B,) and condition (B,) to (B, width).

        e = W_2 silu(W_1 [u, sin(f_k u), cos(f_k u)]) + table[class],         u = log sigma

    The frequencies f_k go in equal ratios from 1/8 to 4. Class -1, and no condition at all, are the last row of the
    table.
    """

    def __init__(self, width: int, classes: int | None = None, bands: int = 8, *, key: Any = None,
                 dtype: Any = np.float32):  # fmt: skip
        keys = recipe(self, None, True, key, dtype).keys(3)
        self.width: int = positive(width, "NoiseEmbedding: width")
        self.classes: int | None = None if classes is None else positive(classes, "classes")
        self.frequencies: Any = nn.Buffer(np.geomspace(0.125, 4, positive(bands, "bands")).astype(dtype))
        even: dict[str, Any] = {"init": nn.init.he_normal, "bias": nn.init.zeros, "dtype": dtype}
        self.inner: Any = nn.Linear(2 * bands + 1, width, key=keys[0], **even)
        self.outer: Any = nn.Linear(width, width, key=keys[1], **even)
        self.table: Any = None if classes is None else nn.Embedding(classes + 1, width, key=keys[2], dtype=dtype)

    def __call__(self, sigma: Any, condition: Any = None) -> Any:
        u = np.log(np.maximum(sigma, LEAST))[:, None]  # (B, 1)
        angles = u * self.frequencies  # (B, K)
        e = self.outer(nn.silu(self.inner(np.concatenate([u / 4, np.sin(angles), np.cos(angles)], axis=-1))))
        if self.table is None:
            if condition is not None:
                raise ArgumentError("this network was made without classes, and got a condition: use classes=10")
            return e
        if condition is None:
            return e + self.table.weight[-1]
        condition = as_condition(condition)
        if condition.ndim > 1 or condition.dtype.kind != "i":
            raise ArgumentError(
                f"classes are integers (B,), and -1 is none: got {condition.dtype} of shape {condition.shape}"
            )
        # The row after the last class is that of no class: to ask for it by its number is a mistake.
        demand(condition < self.classes, f"classes are numbers below {self.classes}: got {{}}", condition)
        condition = condition.reshape(-1)
        return e + self.table(np.where(condition < 0, self.classes, condition))
