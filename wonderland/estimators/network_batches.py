"""Batches of weighted samples in shapes that few programs are compiled for: arrays come in, equal batches go out.

A compiled step belongs to the shapes of its arguments. So batches have one size, the same for most numbers of samples,
and what is missing is filled with rows of weight zero: folds of a cross-validation share one program.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

SIZES = (32, 64, 96, 128, 192, 256)  # of a batch that holds all samples, if there are no more


class EpochBatches:
    """The batches (x, share, penalty, y) of each epoch, for losses sum_i share_i l_i + penalty |W|^2 / 2.

    With k batches an epoch, `share` is k w_i / sum w and `penalty` is k alpha / sum w. The mean over an epoch's batches
    is then (sum_i w_i l_i + alpha |W|^2 / 2) / sum w, and each batch has that expectation: a sample of weight 2 counts
    as two. Samples are dealt evenly, in an order that depends on the seed and the number of the epoch; all in one
    batch stay in theirs.
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, batch_size: int, alpha: float, seed: int,
        begin: int = 0,
    ):  # fmt: skip
        n, dtype = len(x), x.dtype
        weight = np.ones(n, dtype) if weight is None else weight
        self.x: np.ndarray = x
        self.y: np.ndarray = y
        self.count: int = -(-n // batch_size)
        total = weight.sum(dtype=np.float64)
        self.share: np.ndarray = (weight * (self.count / total)).astype(dtype)
        self.penalty: np.ndarray = np.array(alpha * self.count / total, dtype)
        self.rows: int = batch_size if self.count > 1 else next((size for size in SIZES if size >= n), n)
        self.seed: int = seed
        self.begin: int = begin
        self._whole = [self._batch(np.arange(n))] if self.count == 1 else []

    def __call__(self, epoch: int) -> Iterator[tuple[np.ndarray, ...]]:
        """The batches of an epoch, counted from `begin`."""
        if self._whole:
            return iter(self._whole)
        order = np.random.default_rng([self.seed, self.begin + epoch]).permutation(len(self.x))
        return (self._batch(places) for places in np.array_split(order, self.count))

    def _batch(self, places: np.ndarray) -> tuple[np.ndarray, ...]:
        x, share, y = (self._filled(array, places) for array in (self.x, self.share, self.y))
        return x, share, self.penalty, y

    def _filled(self, array: np.ndarray, places: np.ndarray) -> np.ndarray:
        out = np.zeros((self.rows, *array.shape[1:]), array.dtype)
        out[: len(places)] = array[places]
        return out
