"""Are samples copies of the data? Their distances to the nearest of the training data, beside those of new data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.generative.metrics.points import squared_distances, two_sets


class Memorized(NamedTuple):
    """What `memorization` found: distances to the nearest training data, of samples (n,) and of held-out data (m,)."""

    samples: Any
    held_out: Any
    nearest: Any  # which of the training data is nearest to a sample, (n,)
    ratio: Any  # median distance of samples / that of held-out data: about 1, and 0 for copies
    copied: Any  # part of the samples nearer than a tenth of held-out data's median distance


def memorization(samples: Any, training: Any, held_out: Any) -> Memorized:
    """Distances of samples (n, ...) to the nearest training data (N, ...), against those of held-out data (m, ...).

    Samples as far from the training data as new data are new, too; if they are much nearer, they are copies.
    """
    x, data = two_sets(samples, training, "memorization")
    new, _ = two_sets(held_out, training, "memorization")
    square = squared_distances(x, data)
    near = np.sqrt(np.min(square, axis=1))
    usual = np.sqrt(np.min(squared_distances(new, data), axis=1))
    typical = np.median(usual)
    return Memorized(near, usual, np.argmin(square, axis=1), np.median(near) / typical, np.mean(near < 0.1 * typical))
