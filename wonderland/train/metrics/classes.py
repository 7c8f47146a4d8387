"""Metrics of predicted classes: hits, the table of what was taken for what, and the ratios of that table.

Predictions are labels (integers or bools) of the targets' shape, scores with an axis of classes after it, of which the
largest counts, or one probability for each target, against a threshold (for logits: `threshold=0.0`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.nn.arguments import floating
from wonderland.nn.reduction import reduced
from wonderland.train.metrics.arguments import known, labels, predicted, ratio, weights

AVERAGES = ("binary", "micro", "macro", "weighted", None)


def accuracy(prediction: Any, target: Any, *, weight: Any = None, mask: Any = None, threshold: float = 0.5) -> Any:
    """The fraction of targets that are predicted right."""
    found, target = predicted(prediction, target, threshold, "accuracy")
    return reduced((found == target).astype(np.float64), "mean", "accuracy", weight, mask)


def top_k_accuracy(scores: Any, target: Any, k: int = 5, *, weight: Any = None, mask: Any = None) -> Any:
    """The fraction of targets that are among the k classes of largest score.

    `scores` is (..., classes). Of classes with the same score as the target's, those of smaller number come first.
    """
    return reduced(hits(scores, target, k), "mean", "top_k_accuracy", weight, mask)


def hits(scores: Any, target: Any, k: int) -> Any:
    """1.0 where the target is among the k classes of largest score, 0.0 elsewhere."""
    name = "top_k_accuracy"
    scores, target = floating(scores, f"{name}: scores"), labels(target, f"{name}: targets")
    if scores.ndim != target.ndim + 1 or scores.shape[:-1] != target.shape:
        raise ValueError(f"{name}: scores have shape {scores.shape}, targets {target.shape}: (..., classes) and (...)")
    if not 1 <= k <= scores.shape[-1]:
        raise ValueError(f"{name}: k is 1 to the number of classes, {scores.shape[-1]}; got {k}")
    predicted(scores, target, 0.5, name)  # checks the targets
    own = np.take_along_axis(scores, target[..., None], axis=-1)
    first = np.arange(scores.shape[-1]) < target[..., None]
    before = np.sum((scores > own) | ((scores == own) & first), axis=-1)
    return ((before < k) & (own == own)[..., 0]).astype(np.float64)


def confusion_matrix(
    prediction: Any, target: Any, *, classes: int | None = None, weight: Any = None, normalize: str | None = None,
    threshold: float = 0.5,
) -> np.ndarray:  # fmt: skip
    """How often (or with what weight) class j was predicted for a target i, in row i and column j.

    Without `classes` their number is that of the scores, or one more than the largest label. `normalize` is "true"
    (rows sum to 1), "pred" (columns do) or "all".
    """
    name = "confusion_matrix"
    prediction, target = known(prediction, name), known(target, name)
    scored = prediction.dtype.kind == "f"
    found, target = (x.reshape(-1) for x in predicted(prediction, target, threshold, name))
    if classes is None:
        classes = prediction.shape[-1] if scored and prediction.ndim > 1 else 2 if scored else None
    if classes is None:
        classes = int(max(np.max(found, initial=-1), np.max(target, initial=-1))) + 1
    for what, x in (("predictions", found), ("targets", target)):
        if np.any((x < 0) | (x >= classes)):
            raise ValueError(f"{name}: {what} are 0 to {classes - 1}, got {x[(x < 0) | (x >= classes)][0]}")
    pairs = target.astype(np.int64) * classes + found.astype(np.int64)
    each = None if weight is None else weights(weight, target.shape, name)
    table = np.bincount(pairs, each, classes * classes).reshape(classes, classes)
    if normalize is None:
        return table
    totals = {"true": table.sum(1, keepdims=True), "pred": table.sum(0, keepdims=True), "all": table.sum()}
    if normalize not in totals:
        raise ValueError(f'{name}: normalize is "true", "pred", "all" or None, got {normalize!r}')
    return np.asarray(ratio(table, totals[normalize], 0.0))


# Ratios of the table -------------------------------------------------------------------------------------------------


def precision(
    prediction: Any, target: Any, average: str | None = "binary", *, classes: int | None = None, weight: Any = None,
    zero_division: float = 0.0, threshold: float = 0.5,
) -> Any:  # fmt: skip
    """The fraction of predictions of a class that are right: true positives / (true and false positives).

    `average` is "binary" (of class 1; there are no others than 0 and 1), "micro" (of all classes counted together),
    "macro" (the mean over classes), "weighted" (the mean, by the number of targets in each class), or None: an array
    with one number for each class. Without `classes`, classes that aren't there count in no mean. What is 0 / 0 is
    `zero_division`.
    """
    table = confusion_matrix(prediction, target, classes=classes, weight=weight, threshold=threshold)
    return of_table("precision", table, average, zero_division, classes is None)


def recall(
    prediction: Any, target: Any, average: str | None = "binary", *, classes: int | None = None, weight: Any = None,
    zero_division: float = 0.0, threshold: float = 0.5,
) -> Any:  # fmt: skip
    """The fraction of a class that is found: true positives / (true positives and false negatives). See `precision`."""
    table = confusion_matrix(prediction, target, classes=classes, weight=weight, threshold=threshold)
    return of_table("recall", table, average, zero_division, classes is None)


def f1(
    prediction: Any, target: Any, average: str | None = "binary", *, classes: int | None = None, weight: Any = None,
    zero_division: float = 0.0, threshold: float = 0.5,
) -> Any:  # fmt: skip
    """The harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn). The arguments are those of `precision`."""
    table = confusion_matrix(prediction, target, classes=classes, weight=weight, threshold=threshold)
    return of_table("f1", table, average, zero_division, classes is None)


def of_table(name: str, table: np.ndarray, average: str | None, zero_division: float, present: bool) -> Any:
    """Precision, recall or F1 of a confusion matrix; means over the classes that are `present`, or all."""
    if average not in AVERAGES:
        raise ValueError(f"{name}: average is one of {', '.join(map(repr, AVERAGES))}, got {average!r}")
    hit, support, claimed = np.diag(table), table.sum(1), table.sum(0)
    if average == "binary":
        if len(table) > 2:
            raise ValueError(
                f'{name}: average="binary" is for labels 0 and 1, got {len(table)} classes: choose "micro", "macro", '
                '"weighted" or None'
            )
        if len(table) < 2:  # no positives at all
            return float(zero_division)
        hit, support, claimed = hit[1], support[1], claimed[1]
    elif average == "micro":
        hit, support, claimed = hit.sum(), support.sum(), claimed.sum()
    values = {
        "precision": lambda: ratio(hit, claimed, zero_division),
        "recall": lambda: ratio(hit, support, zero_division),
        "f1": lambda: ratio(2 * hit, support + claimed, zero_division),
    }[name]()
    if average in ("binary", "micro"):
        return float(values)
    if average is None:
        return values
    there = (support + claimed > 0) if present else np.ones(len(table), bool)
    means = support if average == "weighted" else there.astype(np.float64)
    return float(ratio(np.sum(np.where(means > 0, values * means, 0)), means.sum(), zero_division))
