"""Lloyd's iterations: points (n, features) around zero, weights and first centres come in, a `LloydRun` goes out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from wonderland.estimators.distances import copies_of, nearest, squared_norms, squared_to_own


class LloydRun(NamedTuple):
    """Where k-means ended: its centres, the inertia before each step, and whether it came to rest."""

    centres: np.ndarray
    history: np.ndarray
    converged: bool


def lloyd(X: np.ndarray, centres: np.ndarray, weight: np.ndarray, max_iter: int, stop: float) -> LloydRun:
    """Points go to the nearest centre, centres to the mean of their points.

    As in scikit-learn it ends when no point changed its centre, or the centres' squared moves sum to `stop` or less.
    """
    total = float(weight @ squared_norms(X).astype(np.float64))
    history: list[float] = []
    labels, rests = np.empty(0), False
    while len(history) < max_iter and not rests:
        before = labels
        labels, less = nearest(X, centres)
        history.append(total + float(weight @ less.astype(np.float64)))
        found, counts = sums(X, filled(X, centres, labels, weight), weight, len(centres))
        moved = np.where(counts[:, None] > 0, found / np.where(counts > 0, counts, 1)[:, None], centres)
        rests = np.array_equal(labels, before) or np.sum((moved - centres) ** 2) <= stop
        centres = moved.astype(X.dtype, copy=False)
    return LloydRun(centres, np.array(history), bool(rests))


def inertia(X: np.ndarray, centres: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
    """The weighted sum of |x - c|^2 to the centres that labels name."""
    return float(weight @ squared_to_own(X, centres, labels).astype(np.float64))


def sums(X: np.ndarray, labels: np.ndarray, weight: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Weighted sums (k, features) of the points of each cluster, and their weights (k,)."""
    members = sparse.csc_array((weight, labels, np.arange(len(labels) + 1)), shape=(k, len(labels)))
    return members @ X, np.bincount(labels, weight, k)


def filled(X: np.ndarray, centres: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Labels where each empty cluster has got a point, with its copies: that farthest from its centre.

    No cluster gives away its last point; where no point is away from its centre, clusters stay empty.
    """
    counts = np.bincount(labels, weight, len(centres))
    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return labels
    labels, far = labels.copy(), squared_to_own(X, centres, labels)
    for cluster in empty:
        while far[farthest := int(np.argmax(far))] > 0:
            copies = copies_of(X, farthest)
            far[copies] = 0
            if np.count_nonzero(labels == labels[farthest]) > len(copies):
                labels[copies] = cluster
                break
    return labels
