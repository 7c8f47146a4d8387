"""What metrics ask of their arguments: known arrays, labels, weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import TracingError
from wonderland.core.tracer import Tracer
from wonderland.nn.arguments import array


def known(x: Any, name: str) -> np.ndarray:
    """An array with values: a metric that sorts or counts can't be compiled."""
    if not is_known(x):
        raise TracingError(
            f"{name}: metrics are computed of values, got a traced array. Return predictions from the transformed "
            "function, and compute the metric outside."
        )
    return np.asarray(x)


def is_known(x: Any) -> bool:
    """Has an array values?"""
    return not isinstance(x, Tracer)


def labels(x: Any, name: str) -> Any:
    """Integer labels; bools are 0 and 1."""
    x = array(x)
    if x.dtype.kind == "b":
        return x.astype(np.int64)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name} are integers or bools, got dtype {x.dtype}")
    return x


def predicted(prediction: Any, target: Any, threshold: float, name: str) -> tuple[Any, Any]:
    """Predicted and true labels: the prediction are labels, scores of classes, or of events against a threshold."""
    target = labels(target, f"{name}: targets")
    prediction = array(prediction)
    if prediction.dtype.kind == "f" and prediction.ndim == target.ndim + 1:
        if prediction.shape[:-1] != target.shape:
            raise ValueError(f"{name}: scores have shape {prediction.shape}, targets {target.shape}")
        _in_range(target, prediction.shape[-1], name)
        return np.argmax(prediction, axis=-1), target
    if prediction.shape != target.shape:
        raise ValueError(
            f"{name}: predictions have shape {prediction.shape}, targets {target.shape}: predictions are labels of the "
            "targets' shape, or scores with an axis of classes after it"
        )
    if prediction.dtype.kind != "f":
        return labels(prediction, f"{name}: predictions"), target
    _in_range(target, 2, f"{name} of one score each")
    if threshold == 0.5 and is_known(prediction) and np.any((prediction < 0) | (prediction > 1)):
        raise ValueError(
            f"{name}: predictions are floats and not all of them probabilities. Logits: threshold=0.0; labels: "
            "prediction.astype(int)"
        )
    return (prediction > threshold).astype(np.int64), target


def _in_range(target: Any, classes: int, name: str) -> None:
    if is_known(target) and np.any((target < 0) | (target >= classes)):
        wrong = np.argwhere((target < 0) | (target >= classes))[0]
        place = int(wrong[0]) if len(wrong) == 1 else tuple(map(int, wrong))
        raise ValueError(f"{name}: targets are 0 to {classes - 1}, got {target[tuple(wrong)]} (at index {place})")


def weights(weight: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """One weight for each sample; 1 without any."""
    if weight is None:
        return np.ones(shape)
    weight = known(weight, name).astype(np.float64)
    if weight.shape != shape:
        raise ValueError(f"{name}: weight has shape {weight.shape}, the samples {shape}")
    return weight


def ratio(top: Any, bottom: Any, otherwise: float) -> Any:
    """top / bottom, and something else where that is 0 / 0."""
    top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    return np.where(bottom == 0, otherwise, top / np.where(bottom == 0, 1, bottom))[()]
