"""Metrics of scores against all thresholds at once: ROC, precision and recall, and the areas under them.

Scores of one event are (n,), with targets 0 and 1; equal scores are one threshold. The curves are scikit-learn's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.train.metrics.arguments import known, labels, weights


def _counts(score: Any, target: Any, weight: Any, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of false and true positives at each distinct score, the largest first, and these scores."""
    score, target = known(score, name), labels(known(target, name), f"{name}: targets")
    if score.shape != target.shape or score.ndim != 1:
        raise ValueError(f"{name}: scores and targets are (n,), got {score.shape} and {target.shape}")
    if np.any((target != 0) & (target != 1)):
        raise ValueError(f"{name}: targets are 0 and 1, got {target[(target != 0) & (target != 1)][0]}")
    if np.any(np.isnan(score)):
        raise ValueError(f"{name}: score {int(np.argmax(np.isnan(score)))} is NaN")
    weight = weights(weight, target.shape, name)
    order = np.argsort(-score.astype(np.float64), kind="stable")
    score, target, weight = score[order], target[order], weight[order]
    last = np.append(np.flatnonzero(np.diff(score)), len(score) - 1) if len(score) else np.zeros(0, np.int64)
    return np.cumsum(weight * (1 - target))[last], np.cumsum(weight * target)[last], score[last]


def roc_curve(score: Any, target: Any, *, weight: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """False positive rates, true positive rates, and the thresholds at or above which a score is positive.

    The thresholds descend from infinity, where nothing is.
    """
    false, true, thresholds = _counts(score, target, weight, "roc_curve")
    if not len(true) or not true[-1] or not false[-1]:
        raise ValueError("roc_curve: rates need both classes, and one is missing in the targets")
    start = lambda x: np.append(0.0, x / x[-1])
    return start(false), start(true), np.append(np.inf, thresholds)


def roc_auc(score: Any, target: Any, *, weight: Any = None, average: str | None = "macro") -> Any:
    """The area under the ROC curve: the probability that a positive's score is larger than a negative's, ties half.

    Scores (n,) are of one event, with targets 0 and 1. Scores (n, classes) come with labels (n,): each class against
    the others; `average` is "macro", "weighted" (by the number of targets) or None: one area for each class.
    """
    return _one_against_rest("roc_auc", _area, score, target, weight, average)


def _area(score: Any, target: Any, weight: Any) -> float:
    false, true, _ = roc_curve(score, target, weight=weight)
    return float(np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2)


def precision_recall_curve(score: Any, target: Any, *, weight: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precisions, recalls, and the thresholds at or above which a score is positive, ascending.

    The last precision and recall, which have no threshold, are 1 and 0.
    """
    false, true, thresholds = _counts(score, target, weight, "precision_recall_curve")
    if not len(true) or not true[-1]:
        raise ValueError("precision_recall_curve: recall needs positives, and there are none in the targets")
    claimed = true + false
    found = np.where(claimed > 0, true / np.where(claimed > 0, claimed, 1), 0.0)
    return np.append(found[::-1], 1.0), np.append(true[::-1] / true[-1], 0.0), thresholds[::-1]


def average_precision(score: Any, target: Any, *, weight: Any = None, average: str | None = "macro") -> Any:
    """sum_n (R_n - R_n-1) P_n over the precision-recall curve, without interpolation; shapes are those of `roc_auc`."""
    return _one_against_rest("average_precision", _average_precision, score, target, weight, average)


def _average_precision(score: Any, target: Any, weight: Any) -> float:
    precisions, recalls, _ = precision_recall_curve(score, target, weight=weight)
    return float(-np.sum(np.diff(recalls) * precisions[:-1]))


def _one_against_rest(name: str, area: Any, score: Any, target: Any, weight: Any, average: str | None) -> Any:
    score, target = known(score, name), labels(known(target, name), f"{name}: targets")
    if score.ndim == 1:
        return area(score, target, weight)
    if score.ndim != 2 or target.shape != score.shape[:1]:
        raise ValueError(f"{name}: scores are (n,) or (n, classes), targets (n,), got {score.shape} and {target.shape}")
    classes = score.shape[1]
    missing = sorted({*range(classes)} ^ {*map(int, np.unique(target))})
    if missing:
        raise ValueError(f"{name}: the targets have every one of the {classes} classes and no other; see {missing}")
    areas = np.array([area(score[:, c], target == c, weight) for c in range(classes)])
    if average is None:
        return areas
    if average not in ("macro", "weighted"):
        raise ValueError(f'{name}: average is "macro", "weighted" or None, got {average!r}')
    each = weights(weight, target.shape, name)
    parts = None if average == "macro" else np.bincount(target, each, classes)
    return float(np.average(areas, weights=parts))
