"""The Brier score taken apart: how far probabilities are from frequencies, and how much they tell."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.train.metrics.arguments import known
from wonderland.train.metrics.calibration import confidences, edges_of


class BrierDecomposition(NamedTuple):
    """Parts of a Brier score, which is reliability - resolution + uncertainty + within."""

    reliability: float  # mean square of forecast minus frequency, over groups of forecasts: 0 if calibrated
    resolution: float  # variance of the groups' frequencies: what the forecasts tell apart; large is good
    uncertainty: float  # variance of what happened: the score of always forecasting its frequency
    within: float  # what bins hide, since a bin's forecasts aren't alike; 0 without bins

    @property
    def score(self) -> float:
        """The Brier score."""
        return self.reliability - self.resolution + self.uncertainty + self.within


def brier_decomposition(
    probabilities: Any, target: Any, bins: int | None = None, strategy: str = "uniform"
) -> BrierDecomposition:
    """The Brier score as reliability - resolution + uncertainty (+ what is hidden within bins).

    Forecasts are put into groups: those that are equal, or with `bins` those in one bin (as of `reliability`). With
    p_k the mean forecast of a group of n_k, f_k the frequency in it and f that of all n,

        reliability = sum_k n_k / n (p_k - f_k)^2,   resolution = sum_k n_k / n (f_k - f)^2,   uncertainty = f (1 - f).

    Probabilities are (n,) with targets 0 and 1; or (n, classes) with labels (n,), and then the parts are sums over the
    classes, as `nn.brier_score` is. A model of many different forecasts needs bins: else each has a group of its own.
    Murphy 1973; Stephenson et al. 2008 for the part within bins.
    """
    p = known(probabilities, "brier_decomposition")
    confidences(p, target)  # checks both
    target = np.asarray(target)
    if p.ndim == 1:
        return _of_events(p.astype(np.float64), target.astype(np.float64), bins, strategy)
    parts = [_of_events(p[:, c].astype(np.float64), (target == c) * 1.0, bins, strategy) for c in range(p.shape[1])]
    return BrierDecomposition(*(float(sum(part)) for part in zip(*parts, strict=True)))


def _of_events(p: np.ndarray, happened: np.ndarray, bins: int | None, strategy: str) -> BrierDecomposition:
    if not len(p):
        return BrierDecomposition(*[float("nan")] * 4)
    if bins is None:
        group = np.unique(p, return_inverse=True)[1]
    else:
        group = np.searchsorted(edges_of(p, bins, strategy)[1:-1], p, side="left")
    count = np.bincount(group)
    part, divisor = count / len(p), np.maximum(count, 1)
    mean, frequency = np.bincount(group, p) / divisor, np.bincount(group, happened) / divisor
    overall = happened.mean()
    off = p - mean[group]  # variance within groups, less twice the covariance with what happened
    within = np.mean(off * off) - 2 * np.mean(off * (happened - frequency[group]))
    return BrierDecomposition(
        float(np.sum(part * (mean - frequency) ** 2)),
        float(np.sum(part * (frequency - overall) ** 2)),
        float(overall * (1 - overall)),
        float(within),
    )
