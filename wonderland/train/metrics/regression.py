"""Metrics of predicted numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.train.metrics.arguments import known, weights

AVERAGES = ("uniform", "variance", None)


def r2_score(prediction: Any, target: Any, *, weight: Any = None, average: str | None = "uniform") -> Any:
    """1 - sum (target - prediction)^2 / sum (target - mean target)^2: the explained part of the variance.

    Both are (n,), or (n, outputs); then `average` is "uniform", "variance" (weighted by the outputs' variances) or
    None: one score for each. Of constant targets it is 1 if they are predicted exactly, else 0.
    """
    prediction, target, weight = checked(prediction, target, weight)
    mean = np.sum(weight * target, axis=0) / np.sum(weight)
    total = np.sum(weight * (target - mean) ** 2, axis=0)
    return of_sums(np.sum(weight * (target - prediction) ** 2, axis=0), total, average)


def checked(prediction: Any, target: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As (n, outputs), in double precision, with weights (n, 1)."""
    prediction, target = known(prediction, "r2_score"), known(target, "r2_score")
    if prediction.shape != target.shape or prediction.ndim not in (1, 2) or not len(prediction):
        raise ValueError(
            f"r2_score: predictions and targets are (n,) or (n, outputs) alike, got {prediction.shape} and "
            f"{target.shape}"
        )
    n = len(target)
    each = weights(weight, (n,), "r2_score")[:, None]
    return prediction.reshape(n, -1).astype(np.float64), target.reshape(n, -1).astype(np.float64), each


def of_sums(residual: np.ndarray, total: np.ndarray, average: str | None) -> Any:
    """R^2 of the sums of squares of residuals and of deviations from the mean, one for each output."""
    if average not in AVERAGES:
        raise ValueError(f"r2_score: average is one of {', '.join(map(repr, AVERAGES))}, got {average!r}")
    varies = total > 0
    scores = np.where(varies, 1 - residual / np.where(varies, total, 1), np.where(residual == 0, 1.0, 0.0))
    if average is None:
        return scores
    return float(np.average(scores, weights=total if average == "variance" and varies.any() else None))
