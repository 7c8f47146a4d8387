"""Losses l(eta, y) with their derivatives in eta: one line of NumPy code comes in, compiled functions of blocks go out.

A block has one of the sizes in `SIZES`, so that data of any length runs the same few programs; `Rows` cuts and pads
vectors to them. The rows that fill the last block have weight zero and repeat the first row, whose loss is finite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from wonderland.compile.jit import jit
from wonderland.transform.derivatives import jvp, value_and_grad

SIZES = (512, 2048, 8192)  # from the last on, a block's loss is worth two threads
CACHED = 2**19  # numbers of X in a block that is read twice: 4 MB, since smaller blocks cost more calls


class Derivatives:
    """A loss l(eta, y, *numbers) of rows, eta (n,) or (n, outputs), and its derivatives in eta, weighted by rows.

    `value_and_slope(eta, y, s, *numbers)` is (sum_i s_i l_i, s_i dl_i/deta_i), and
    `tangent(v, eta, y, s, *numbers)` the derivative of the slopes along v, like eta: with v = 1 the second derivatives
    of a loss of one output.
    """

    value_and_slope: Any
    tangent: Any

    def __init__(self, loss: Callable[..., Any], outputs: int):
        def total(eta: Any, y: Any, s: Any, *numbers: Any) -> Any:
            return np.sum(s * loss(eta, y, *numbers))

        value_and_slope = value_and_grad(total)

        def tangent(v: Any, eta: Any, y: Any, s: Any, *numbers: Any) -> Any:
            return jvp(lambda eta: value_and_slope(eta, y, s, *numbers)[1], (eta,), (v,))[1]

        self.outputs = outputs
        self.value_and_slope = jit(value_and_slope)
        self.tangent = jit(tangent)


@lru_cache(maxsize=64)
def derivatives(loss: Callable[..., Any], outputs: int = 1) -> Derivatives:
    """`Derivatives` of a loss, made once; one program set for each number of outputs."""
    return Derivatives(loss, outputs)


class Rows:
    """How n rows of p numbers are cut into blocks: `block` rows each, `blocks` of them, `padded` rows in all."""

    block: int
    blocks: Any
    padded: int

    def __init__(self, n: int, p: int):
        fitting = [size for size in SIZES if size * (p + 1) <= CACHED] or [SIZES[0]]
        enough = [size for size in fitting if size >= n]
        self.n = n
        self.block = enough[0] if enough else fitting[-1]
        self.blocks = [slice(start, start + self.block) for start in range(0, n, self.block)]
        self.padded = self.blocks[-1].stop

    @property
    def within(self) -> list[slice]:
        """The blocks, of which the last ends with the rows."""
        return [slice(rows.start, min(rows.stop, self.n)) for rows in self.blocks]

    def pad(self, values: np.ndarray) -> np.ndarray:
        """Values (n, ...) with as many repetitions of the first as fill the last block."""
        if len(values) == self.padded:
            return np.ascontiguousarray(values)
        out = np.empty((self.padded, *values.shape[1:]), values.dtype)
        out[: self.n] = values
        out[self.n :] = values[0]
        return out
