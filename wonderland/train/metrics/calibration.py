"""Calibration: do things that are predicted with probability p happen with frequency p?"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.train.metrics.arguments import known, labels


class Reliability(NamedTuple):
    """What a reliability diagram shows, for each bin of confidences: NaN where there is nothing in it."""

    edges: np.ndarray  # (bins + 1,)
    count: np.ndarray  # (bins,)
    confidence: np.ndarray  # the mean of what was claimed
    accuracy: np.ndarray  # the fraction of it that was right

    def error(self, norm: str = "l1") -> float:
        """The expected calibration error; see `calibration_error`."""
        if norm not in ("l1", "l2", "max"):
            raise ValueError(f'calibration_error: norm is "l1", "l2" or "max", got {norm!r}')
        there = self.count > 0
        if not there.any():
            return float("nan")
        gap, part = np.abs(self.accuracy - self.confidence)[there], self.count[there] / self.count.sum()
        if norm == "max":
            return float(gap.max())
        return float(np.sum(part * gap) if norm == "l1" else np.sqrt(np.sum(part * gap * gap)))


def reliability(probabilities: Any, target: Any, bins: int = 10, strategy: str = "uniform") -> Reliability:
    """Confidences in bins of [0, 1], and how often they were right.

    Of probabilities (n, classes) with labels (n,) the largest is the confidence, and right if it is the label's. Of
    probabilities (n,) with targets 0 and 1 each is one, and right if the target is 1. A bin has its upper edge and not
    its lower one; 0 is in the first. Bins are equally wide, or with `strategy="quantile"` hold equally many
    confidences, so that their edges follow the data (adaptive binning; Nguyen and O'Connor 2015).
    """
    confidence, right = confidences(probabilities, target)
    edges = edges_of(confidence, bins, strategy)
    return of_bins(edges, *binned(confidence, right, edges))


def confidences(probabilities: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    """What is claimed, and whether it is so."""
    name = "calibration"
    p, target = known(probabilities, name), labels(known(target, name), f"{name}: targets")
    if p.dtype.kind != "f" or p.ndim not in (1, 2) or target.shape != p.shape[:1]:
        raise ValueError(
            f"{name}: probabilities are floats (n,) or (n, classes), targets (n,), got {p.dtype} {p.shape} and "
            f"{target.shape}"
        )
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"{name}: probabilities are between 0 and 1, got {p[~((p >= 0) & (p <= 1))][0]}")
    classes = p.shape[1] if p.ndim == 2 else 2
    if np.any((target < 0) | (target >= classes)):
        raise ValueError(f"{name}: targets are 0 to {classes - 1}, got {target[(target < 0) | (target >= classes)][0]}")
    if p.ndim == 1:
        return p.astype(np.float64), target.astype(np.float64)
    return p.max(axis=1).astype(np.float64), (p.argmax(axis=1) == target).astype(np.float64)


def edges_of(confidence: np.ndarray, bins: int, strategy: str) -> np.ndarray:
    """The edges of bins, from 0 to 1: (bins + 1,)."""
    if bins < 1:
        raise ValueError(f"calibration: bins is a positive number, got {bins}")
    if strategy not in ("uniform", "quantile"):
        raise ValueError(f'calibration: strategy is "uniform" or "quantile", got {strategy!r}')
    edges = np.linspace(0, 1, bins + 1)
    if strategy == "quantile" and len(confidence):
        edges[1:-1] = np.quantile(confidence, edges[1:-1])
    return edges


def binned(confidence: np.ndarray, right: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each bin the count, the sum of confidences, and the number that was right."""
    place, bins = np.searchsorted(edges[1:-1], confidence, side="left"), len(edges) - 1
    count = np.bincount(place, minlength=bins)
    return count, np.bincount(place, confidence, bins), np.bincount(place, right, bins)


def of_bins(edges: np.ndarray, count: np.ndarray, claimed: np.ndarray, right: np.ndarray) -> Reliability:
    """Means of sums."""
    divisor = np.where(count > 0, count, np.nan)
    return Reliability(edges, count, claimed / divisor, right / divisor)


def calibration_error(
    probabilities: Any, target: Any, bins: int = 10, norm: str = "l1", strategy: str = "uniform"
) -> float:
    """The expected calibration error, sum_i n_i / n |accuracy_i - confidence_i| over bins of confidence.

    `norm="l2"` is the root of the mean square of these gaps, "max" their maximum (the MCE); `strategy="quantile"` takes
    bins of equally many samples. The arguments are those of `reliability`. Naeini et al. 2015; Guo et al. 2017;
    equation 4.21 of the book.
    """
    return reliability(probabilities, target, bins, strategy).error(norm)


def classwise_calibration_error(
    probabilities: Any, target: Any, bins: int = 10, norm: str = "l1", strategy: str = "uniform"
) -> float:
    """The mean over classes of `calibration_error` of the probability of that class, against all others.

    It sees what the error of the largest probability doesn't: a model may be right about its first choice and wrong
    about the others. With `norm="max"` it is the largest gap of all classes. Probabilities are (n, classes), labels
    (n,). Kull et al. 2019.
    """
    p = known(probabilities, "classwise_calibration_error")
    if p.ndim != 2:
        raise ValueError(f"classwise_calibration_error: probabilities are (n, classes), got shape {p.shape}")
    confidences(p, target)  # checks both
    target = np.asarray(target)
    errors = [calibration_error(p[:, c], target == c, bins, norm, strategy) for c in range(p.shape[1])]
    return float(np.max(errors) if norm == "max" else np.mean(errors))


def plot_reliability(probabilities: Any, target: Any = None, bins: int = 10, ax: Any = None) -> Any:
    """The reliability diagram: accuracy against confidence. Below the diagonal, the model is over-confident.

    Takes probabilities and targets, or what `reliability` made of them. Needs matplotlib; returns the axes.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plot_reliability needs Matplotlib, which isn't installed: pip install matplotlib") from None
    data = probabilities if isinstance(probabilities, Reliability) else reliability(probabilities, target, bins)
    if ax is None:
        ax = plt.subplots(figsize=(4, 4), layout="constrained")[1]
    width, centre = np.diff(data.edges), (data.edges[1:] + data.edges[:-1]) / 2
    accuracy = np.nan_to_num(data.accuracy)
    gap = np.where(data.count > 0, data.confidence - data.accuracy, 0.0)
    ax.bar(centre, accuracy, width, color="tab:blue", edgecolor="black", label="accuracy")
    ax.bar(centre, gap, width, accuracy, color="tab:red", alpha=0.4, edgecolor="tab:red", label="gap")
    ax.plot([0, 1], [0, 1], "--", color="gray")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", title=f"ECE {data.error():.3f}")
    ax.legend(loc="upper left")
    return ax
