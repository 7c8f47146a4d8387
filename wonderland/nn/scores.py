"""Losses of classes besides the cross-entropy: focal, 0/1, Brier. `classification.py` says what labels are."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.nn.activations import log_softmax
from wonderland.nn.arguments import array, axis_of, floating, pair, power
from wonderland.nn.classification import class_weights, is_label, labels_of, picked
from wonderland.nn.reduction import reduced
from wonderland.transform.derivatives import stop_gradient


def focal_loss(
    logits: Any, target: Any, gamma: float = 2.0, *, axis: int = -1, weight: Any = None, sample_weight: Any = None,
    mask: Any = None, ignore_index: int | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """-(1 - p_y)^gamma log p_y for labels y, with p = softmax(logits); gamma = 0 is `cross_entropy`.

    `weight` has one factor for each class, the paper's alpha; the mean divides by the number of samples (the sum of
    `sample_weight`). Lin et al. 2017; for calibration, Mukhoti et al. 2020.
    """
    name = "focal_loss"
    logits = floating(logits, f"{name}: logits")
    axis = axis_of(axis, logits.shape, f"{name}: logits, which")
    weight = class_weights(name, weight, logits, axis)
    labels, mask = labels_of(name, target, logits.shape, axis, mask, ignore_index)
    log_p = log_softmax(logits, axis)
    others = np.where(is_label(labels, logits.shape, axis), 0, np.exp(log_p))
    # 1 - p as the sum of the others, which keeps its digits for p near 1
    rest, loss = np.sum(others, axis=axis), -picked(log_p, labels, axis)
    loss = loss * power(rest, gamma)
    loss = loss if weight is None else loss * np.take(weight.reshape(-1), labels)
    return reduced(loss, reduction, name, sample_weight, mask)


def zero_one_loss(
    prediction: Any, target: Any, *, axis: int = -1, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """1 where the predicted class isn't the label, else 0; derivatives are 0.

    The prediction are labels, or scores along an axis, of which the largest counts.
    """
    name = "zero_one_loss"
    prediction, target = array(prediction), array(target)
    dtype = prediction.dtype if prediction.dtype.kind == "f" else np.dtype(float)
    if prediction.dtype.kind == "f" and prediction.ndim:
        axis = axis_of(axis, prediction.shape, f"{name}: scores, which")
        target, mask = labels_of(name, target, prediction.shape, axis, mask)
        prediction = np.argmax(stop_gradient(prediction), axis=axis)
    elif prediction.shape != target.shape:
        raise ValueError(f"{name}: predicted labels have shape {prediction.shape}, labels {target.shape}")
    return reduced((prediction != target).astype(dtype), reduction, name, weight, mask)


def brier_score(
    probabilities: Any, target: Any, *, axis: int | None = -1, weight: Any = None, mask: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """sum_c (p_c - target_c)^2, the squared distance of probabilities along an axis from what happened.

    The target are labels, or a number for each class. With `axis=None` each number is the probability of an event, the
    target 1 if it happened, 0 if not, and the score (p - target)^2. Brier 1950.
    """
    name = "brier_score"
    if axis is None:
        p, target = pair(probabilities, target, name)
        return reduced((p - target) ** 2, reduction, name, weight, mask)
    p, target = floating(probabilities, f"{name}: probabilities"), array(target)
    axis = axis_of(axis, p.shape, f"{name}: probabilities, which")
    if target.shape == p.shape:
        loss = np.sum((p - target.astype(p.dtype)) ** 2, axis=axis)
    else:
        labels, mask = labels_of(name, target, p.shape, axis, mask)
        loss = np.sum(np.where(is_label(labels, p.shape, axis), p - 1, p) ** 2, axis=axis)
    return reduced(loss, reduction, name, weight, mask)
