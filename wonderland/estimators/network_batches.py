"""Batches of weighted samples in shapes that few programs are compiled for, and samples held out to validate with.

A compiled step belongs to the shapes of its arguments. So batches have one size, the same for most numbers of samples,
and what is missing is filled with rows of weight zero: folds of a cross-validation share one program.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wonderland.data.splits import deal

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


def held_out(
    y: np.ndarray, fraction: float, seed: int, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Samples for training, and a fraction of others to validate with; of labels, places in `classes`, equal shares."""
    n = len(y)
    held = round(fraction * n)
    if held < 2 or n - held < 1:
        raise ValueError(
            f"early_stopping keeps validation_fraction={fraction} of {n} samples, which is {held}: "
            "at least 2 are needed there, and 1 for training"
        )
    if classes is not None and len(alone := np.flatnonzero(np.bincount(y) == 1)):
        raise ValueError(
            f"early_stopping keeps samples of each class to validate with, and y has one sample of class "
            f"{classes[alone[0]]}: leave it out, or take early_stopping=False"
        )
    parts = deal(n, [n - held, held], seed, None if classes is None else y)
    return np.flatnonzero(parts == 0), np.flatnonzero(parts == 1)
