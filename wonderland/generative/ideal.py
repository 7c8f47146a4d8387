"""The denoiser of a set of data itself: what a network trained without end, and without generalising, would be.

In: data (n, ...). Out: epsilon(x, sigma) whose samples are the data again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.generative.denoising import as_sigma
from wonderland.nn.arguments import floating


class IdealDenoiser:
    """epsilon(x, sigma) = (x - sum_i w_i x_i) / sigma, w the softmax over the data of -|x - x_i|^2 / (2 sigma^2).

    Goes through the data `chunk` rows at a time, with a running maximum, so that memory is B x chunk and nothing
    overflows or vanishes, however small sigma is.
    """

    def __init__(self, data: Any, chunk: int = 2048):
        data = np.asarray(data)
        if data.ndim < 2 or not len(data):
            raise ArgumentError(f"data are (n, ...), one sample a row, and at least one: got shape {data.shape}")
        if chunk < 1:
            raise ArgumentError(f"a chunk has at least one row: got chunk={chunk}")
        self.data = data if data.dtype.kind == "f" else data.astype(np.float64)
        self.chunk = chunk
        rows = self.data.reshape(len(data), -1)
        # Distances are of differences to the mean: products of small numbers round less.
        self._mean = rows.mean(axis=0)
        rows = rows - self._mean
        size = min(chunk, len(rows))
        missing = -len(rows) % size
        halves = np.pad(0.5 * np.sum(rows * rows, axis=1), (0, missing), constant_values=np.inf)  # weight 0
        self._rows = np.pad(rows, ((0, missing), (0, 0))).reshape(-1, size, rows.shape[1])
        self._halves = halves.reshape(-1, size)

    def __call__(self, x: Any, sigma: Any) -> Any:
        """The expected noise, like x (B, ...)."""
        x = floating(x)
        if np.ndim(x) < 1 or np.shape(x)[1:] != self.data.shape[1:]:
            raise ArgumentError(f"x is (B, ...) like the data {self.data.shape}: got shape {np.shape(x)}")
        flat = x.reshape(np.shape(x)[0], self._mean.size) - self._mean.astype(x.dtype)  # (B, D)
        level = as_sigma(sigma, flat)
        square = level * level

        def add(carry: Any, chunk: Any) -> Any:
            top, total, mean = carry
            rows, halves = chunk
            logits = (flat @ rows.T - halves) / square  # (B, chunk); the |x|^2 of each row of it is left out
            new = np.maximum(top, np.max(logits, axis=1, keepdims=True))
            old, weights = np.exp(top - new), np.exp(logits - new)
            return (new, old * total + np.sum(weights, axis=1, keepdims=True), old * mean + weights @ rows), None

        column = np.zeros_like(flat[:, :1])
        # The smallest number instead of minus infinity: the difference of two infinities isn't a number.
        lowest = column + np.finfo(x.dtype).min
        rows, halves = np.asarray(self._rows, x.dtype), np.asarray(self._halves, x.dtype)
        (_, total, mean), _ = scan(add, (lowest, column, np.zeros_like(flat)), (rows, halves))
        return ((flat - mean / total) / level).reshape(np.shape(x))

    def __repr__(self) -> str:
        return f"IdealDenoiser({len(self.data)} samples of shape {self.data.shape[1:]})"
