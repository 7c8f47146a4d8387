"""Metrics batch by batch: `update` with each batch, `value` is that of all of them so far, `reset` starts again.

Sums are kept in double precision, and come to what the functions make of the whole; those whose value needs every
score (`RocAuc`, `AveragePrecision`) keep them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from wonderland.train.metrics.arguments import known, predicted, ratio, weights
from wonderland.train.metrics.calibration import Reliability, binned, confidences, edges_of, of_bins
from wonderland.train.metrics.classes import confusion_matrix, hits, of_table
from wonderland.train.metrics.curves import average_precision, roc_auc
from wonderland.train.metrics.regression import checked, of_sums


class Metric(ABC):
    """A value of all batches so far."""

    @abstractmethod
    def update(self, *batch: Any) -> None:
        """Take a batch into account."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """Of all batches since the last `reset`."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all batches."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"


class Mean(Metric):
    """The mean of numbers, such as losses: `update(loss, len(batch))`; NaN if there are none."""

    total: float
    weight: float

    def __init__(self) -> None:
        self.reset()

    def update(self, values: Any, weight: Any = 1.0) -> None:
        """A number or an array of them; the weight is one number, or one for each."""
        values = known(values, "Mean").astype(np.float64)
        weight = np.asarray(known(weight, "Mean"), np.float64)
        if weight.shape not in ((), values.shape):
            raise ValueError(f"Mean: values have shape {values.shape}, weights {weight.shape}")
        self.total += float(np.sum(values * weight))
        self.weight += float(np.sum(np.broadcast_to(weight, values.shape)))

    @property
    def value(self) -> float:
        """The weighted mean."""
        return self.total / self.weight if self.weight else float("nan")

    def reset(self) -> None:
        self.total, self.weight = 0.0, 0.0


class Accuracy(Metric):
    """`accuracy`, batch by batch."""

    threshold: float
    mean: Mean

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold, self.mean = threshold, Mean()

    def update(self, prediction: Any, target: Any, weight: Any = None) -> None:
        """Predictions and targets, as in `accuracy`."""
        found, target = predicted(known(prediction, "Accuracy"), known(target, "Accuracy"), self.threshold, "Accuracy")
        self.mean.update(found == target, weights(weight, target.shape, "Accuracy"))

    @property
    def value(self) -> float:
        """The fraction that is right."""
        return self.mean.value

    def reset(self) -> None:
        self.mean.reset()


class TopKAccuracy(Metric):
    """`top_k_accuracy`, batch by batch."""

    k: int
    mean: Mean

    def __init__(self, k: int = 5) -> None:
        self.k, self.mean = k, Mean()

    def update(self, scores: Any, target: Any, weight: Any = None) -> None:
        """Scores (..., classes) and labels (...)."""
        found = hits(known(scores, "TopKAccuracy"), known(target, "TopKAccuracy"), self.k)
        self.mean.update(found, weights(weight, found.shape, "TopKAccuracy"))

    @property
    def value(self) -> float:
        """The fraction of targets among the k largest scores."""
        return self.mean.value

    def reset(self) -> None:
        self.mean.reset()


class ConfusionMatrix(Metric):
    """`confusion_matrix`, batch by batch; without `classes` it grows with the largest label."""

    classes: int | None
    threshold: float
    table: np.ndarray

    def __init__(self, classes: int | None = None, threshold: float = 0.5) -> None:
        self.classes, self.threshold = classes, threshold
        self.reset()

    def update(self, prediction: Any, target: Any, weight: Any = None) -> None:
        """Predictions and targets, as in `confusion_matrix`."""
        more = confusion_matrix(prediction, target, classes=self.classes, weight=weight, threshold=self.threshold)
        size = max(len(more), len(self.table))
        table = np.zeros((size, size), np.result_type(self.table, more))
        for part in (self.table, more):
            table[: len(part), : len(part)] += part
        self.table = table

    @property
    def value(self) -> np.ndarray:
        """Row i, column j: how often j was predicted for a target i."""
        return self.table.copy()

    def reset(self) -> None:
        self.table = np.zeros((self.classes or 0,) * 2, np.int64)


class _OfTable(Metric):
    """A ratio of the confusion matrix."""

    name: str
    average: str | None
    zero_division: float
    matrix: ConfusionMatrix

    def __init__(
        self, average: str | None = "binary", *, classes: int | None = None, zero_division: float = 0.0,
        threshold: float = 0.5,
    ) -> None:  # fmt: skip
        self.average, self.zero_division, self.matrix = average, zero_division, ConfusionMatrix(classes, threshold)

    def update(self, prediction: Any, target: Any, weight: Any = None) -> None:
        """Predictions and targets, as in `confusion_matrix`."""
        self.matrix.update(prediction, target, weight)

    @property
    def value(self) -> Any:
        """One number, or one for each class if `average` is None."""
        present = self.matrix.classes is None
        return of_table(self.name, self.matrix.table, self.average, self.zero_division, present)

    def reset(self) -> None:
        self.matrix.reset()


class Precision(_OfTable):
    """`precision`, batch by batch."""

    name = "precision"


class Recall(_OfTable):
    """`recall`, batch by batch."""

    name = "recall"


class F1(_OfTable):
    """`f1`, batch by batch."""

    name = "f1"


class _OfScores(Metric):
    """A metric that needs every score: they are kept."""

    average: str | None
    batches: list[tuple[np.ndarray, np.ndarray, np.ndarray]]

    def __init__(self, average: str | None = "macro") -> None:
        self.average = average
        self.reset()

    def update(self, score: Any, target: Any, weight: Any = None) -> None:
        """Scores (n,) or (n, classes), and targets (n,)."""
        name = type(self).__name__
        score, target = known(score, name).copy(), known(target, name).copy()
        if target.shape != score.shape[:1] or (self.batches and score.shape[1:] != self.batches[0][0].shape[1:]):
            raise ValueError(
                f"{name}: scores are (n,) or (n, classes), targets (n,), got {score.shape}, {target.shape}"
            )
        self.batches.append((score, target, weights(weight, target.shape, name)))

    def reset(self) -> None:
        self.batches = []

    def _of(self, area: Any) -> Any:
        if not self.batches:
            return float("nan")
        score, target, weight = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        return area(score, target, weight=weight, average=self.average)


class RocAuc(_OfScores):
    """`roc_auc`, batch by batch."""

    @property
    def value(self) -> Any:
        """The area under the ROC curve."""
        return self._of(roc_auc)


class AveragePrecision(_OfScores):
    """`average_precision`, batch by batch."""

    @property
    def value(self) -> Any:
        """The average precision."""
        return self._of(average_precision)


class R2(Metric):
    """`r2_score`, batch by batch: means and sums of squares are joined as Chan et al. 1979 do, without cancellation."""

    average: str | None
    count: float
    mean: np.ndarray
    deviation: np.ndarray  # the sum of squared deviations from the mean
    residual: np.ndarray  # the sum of squared errors

    def __init__(self, average: str | None = "uniform") -> None:
        self.average = average
        self.reset()

    def update(self, prediction: Any, target: Any, weight: Any = None) -> None:
        """Predictions and targets, (n,) or (n, outputs)."""
        prediction, target, each = checked(prediction, target, weight)
        if self.count and target.shape[1:] != self.mean.shape:
            raise ValueError(f"R2: batches had {len(self.mean)} outputs, this one has {target.shape[1]}")
        count = np.sum(each)
        mean = ratio(np.sum(each * target, axis=0), count, 0.0)
        shift, total = mean - self.mean, self.count + count
        between = shift * shift * ratio(self.count * count, total, 0.0)
        self.deviation = self.deviation + np.sum(each * (target - mean) ** 2, axis=0) + between
        self.mean = self.mean + shift * ratio(count, total, 0.0)
        self.residual = self.residual + np.sum(each * (target - prediction) ** 2, axis=0)
        self.count = total

    @property
    def value(self) -> Any:
        """The explained part of the variance."""
        return of_sums(self.residual, self.deviation, self.average) if self.count else float("nan")

    def reset(self) -> None:
        self.count, self.mean, self.deviation, self.residual = 0.0, np.zeros(1), np.zeros(1), np.zeros(1)


class CalibrationError(Metric):
    """`calibration_error`, batch by batch; `reliability` is what to plot."""

    bins: int
    norm: str
    sums: tuple[np.ndarray, ...]

    def __init__(self, bins: int = 10, norm: str = "l1") -> None:
        self.bins, self.norm = bins, norm
        self._edges = edges_of(np.empty(0), bins, "uniform")
        self.reset()

    def update(self, probabilities: Any, target: Any) -> None:
        """Probabilities (n,) or (n, classes), and targets (n,)."""
        more = binned(*confidences(probabilities, target), self._edges)
        self.sums = tuple(a + b for a, b in zip(self.sums, more, strict=True))

    @property
    def reliability(self) -> Reliability:
        """Counts, confidences and accuracies of the bins."""
        return of_bins(self._edges, *self.sums)

    @property
    def value(self) -> float:
        """The expected calibration error."""
        return self.reliability.error(self.norm)

    def reset(self) -> None:
        self.sums = (np.zeros(self.bins, np.int64), np.zeros(self.bins), np.zeros(self.bins))
