"""What a recipe gives back: the trained model, its history, numbers on the test data, and pictures when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wonderland import data, nn, train
from wonderland.core.errors import ArgumentError
from wonderland.estimators.pictures import residuals
from wonderland.recipes import drawing

Figures = dict[str, Any]  # matplotlib Figures by a short name


def _none() -> Figures:
    return {}


@dataclass(frozen=True)
class Outcome:
    """What came of a training.

    `numbers` are those that count, by name, the most important one first; `figures` is a function that draws pictures,
    {name: matplotlib Figure}: `wonderland train` calls it for the report, and five runs in a row don't. `text` is what
    the report says about them, and `tables` are more of it, as `train.report` takes them.
    """

    model: Any
    history: train.History
    numbers: dict[str, Any] = field(default_factory=dict)
    figures: Callable[[], Figures] = _none
    text: str = ""
    tables: dict[str, Any] = field(default_factory=dict)


def classification(
    model: nn.Module, history: train.History, test: data.Dataset, *, numbers: Mapping[str, Any] | None = None,
    text: str = "",
) -> Outcome:  # fmt: skip
    """The outcome of a classifier, whose outputs are logits (n, classes), on test data of (inputs, labels).

    Accuracy, cross-entropy and calibration error; as pictures the confusion matrix, the reliability diagram, and by the
    shape of the inputs: filters of the first layer, the worst mistakes, the boundary between classes in the plane.
    """
    x, labels = _pair(test)
    logits = train.predict(model, x)
    if logits.ndim != 2 or len(logits) != len(labels):
        raise ArgumentError(
            f"classification: the model gives logits (n, classes), not an array of shape {logits.shape}"
        )
    probabilities = np.asarray(nn.softmax(logits.astype(np.float64)))
    predicted = np.argmax(logits, axis=1)
    classes = test.classes or [str(k) for k in range(logits.shape[1])]
    found = {
        "test accuracy": float(train.metrics.accuracy(logits, labels)),
        "test cross-entropy": float(nn.cross_entropy(logits.astype(np.float64), labels)),
        "calibration error": float(train.metrics.calibration_error(probabilities, labels)),
        "test samples": len(labels),
    }

    def figures() -> Figures:
        matrix = train.metrics.confusion_matrix(predicted, labels, classes=len(classes))
        pictures = train.pictures
        drawn = {
            "confusion matrix": pictures.confusion(matrix, classes),
            "reliability diagram": pictures.reliability(probabilities, labels),
        }
        signal = x.dtype.kind == "f"  # and no numbers of tokens
        weight = drawing.first_filters(model, x.shape[1:]) if signal else None
        if weight is not None:
            drawn["first-layer filters"] = pictures.filters(weight)
        if x.ndim == 4:
            drawn["worst mistakes"] = pictures.mistakes(x, predicted, labels, probabilities, classes=classes)
        elif x.ndim == 2 and x.shape[1] == 2:
            drawn["decision boundary"] = drawing.boundary(model, x, labels, classes)
        elif x.ndim == 2 and test.names:
            if weight is None and (weights := drawing.linear_weights(model, x.shape[1])) is not None:
                drawn["weights"] = drawing.bars(weights, test.names, f"for {classes[1]}, against {classes[0]}")
        elif x.ndim in (2, 3) and signal:
            drawn["worst mistakes"] = drawing.signals(x, predicted, labels, probabilities, classes)
        return drawn

    return Outcome(model, history, found | dict(numbers or {}), figures, text)


def regression(
    model: nn.Module, history: train.History, test: data.Dataset, *, scale: data.Scaler | None = None,
    numbers: Mapping[str, Any] | None = None, text: str = "",
) -> Outcome:  # fmt: skip
    """The outcome of a regression on test data of (inputs, targets): R², the root of the mean square, and residuals.

    With `scale`, the scaler of the targets, errors are in the unit that they had before.
    """
    x, target = _pair(test)
    prediction = train.predict(model, x)
    if prediction.shape != target.shape:
        raise ArgumentError(
            f"regression: the model gives an array of shape {prediction.shape} for targets of shape {target.shape}"
        )
    if scale is not None:
        prediction, target = scale.inverse(prediction), scale.inverse(target)
    error = prediction.astype(np.float64) - target
    found = {
        "test R²": float(train.metrics.r2_score(prediction, target)),
        "root mean square error": float(np.sqrt(np.mean(error**2))),
        "mean absolute error": float(np.mean(np.abs(error))),
        "test samples": len(target),
    }

    def figures() -> Figures:
        return {"residuals": residuals(prediction.ravel(), target.ravel())}

    return Outcome(model, history, found | dict(numbers or {}), figures, text)


def _pair(test: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of all test data."""
    batch = test[:]
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise ArgumentError("test data is a dataset of (inputs, targets): data.Arrays(x, y)")
    return batch
