"""Scores made into probabilities that can be believed: temperature, Platt's sigmoid, vector scaling.

Each takes scores of samples that the classifier wasn't fitted to, with their labels, and finds the few numbers that
make the likelihood of the labels largest. `CalibratedClassifierCV` does it all in one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from wonderland.estimators.base import weights
from wonderland.transform.derivatives import grad, jvp, value_and_grad
from wonderland.transform.second_order import hessian

BOUND = 10.0  # of |log T|: where labels are all as the largest score says, the best T is 0


def temperature_scaling(logits: Any, labels: Any, sample_weight: Any = None) -> float:
    """The temperature T for which softmax(logits / T) gives the labels the largest likelihood.

    Logits are (n, classes), or (n,) of the second of two classes, with p = 1 / (1 + exp(-logit / T)). Labels are 0 to
    classes - 1. T above 1 says that the scores were over-confident. The largest score stays the largest, so accuracy
    doesn't change. Found by Newton's method in log T, between -10 and 10. Guo et al. 2017.

        T = temperature_scaling(logits_valid, y_valid)
        probabilities = nn.softmax(logits_test / T)
    """
    z, labels, weight = _checked("temperature_scaling", logits, labels, sample_weight)
    z = np.stack([np.zeros_like(z), z], axis=1) if z.ndim == 1 else z
    ahead = z - np.take_along_axis(z, labels[:, None], axis=1)  # of the label's: -log p is log sum exp of that
    weight = np.full(len(z), 1 / len(z)) if weight is None else weight / np.sum(weight)

    def loss(log_t: Any) -> Any:
        scaled = ahead * np.exp(-log_t)
        top = np.max(scaled, axis=1)
        return np.sum(weight * (top + np.log(np.sum(np.exp(scaled - top[:, None]), axis=1))))

    def derivatives(log_t: float) -> tuple[float, float]:
        slope, curvature = jvp(grad(loss), (log_t,), (1.0,))
        return float(slope), float(curvature)

    low, high, t = -BOUND, BOUND, 0.0
    if not np.any(ahead[weight > 0]):  # all scores are alike, and all temperatures
        return 1.0
    if derivatives(low)[0] >= 0:
        return float(np.exp(low))
    if derivatives(high)[0] <= 0:
        return float(np.exp(high))
    for _ in range(100):
        slope, curvature = derivatives(t)
        low, high = (low, t) if slope > 0 else (t, high)
        before, t = t, t - slope / curvature if curvature > 0 else np.inf
        if not low < t < high:  # the loss has one minimum in log T, but isn't convex in it
            t = (low + high) / 2
        if abs(t - before) <= 1e-9:  # Newton's method doubles the digits of each step
            break
    return float(np.exp(t))


def platt_scaling(scores: Any, labels: Any, sample_weight: Any = None) -> tuple[float, float]:
    """(a, b) of p = 1 / (1 + exp(a score + b)), the probability of label 1 at scores (n,) with labels 0 and 1.

    The targets aren't 0 and 1 but 1 / (n_0 + 2) and (n_1 + 1) / (n_1 + 2) for n_0 and n_1 labels of each, which keeps
    a and b finite when a threshold tells the labels apart. A useful score has a < 0. Newton's method. Platt 1999;
    scikit-learn's method "sigmoid".
    """
    s, labels, weight = _checked("platt_scaling", scores, labels, sample_weight)
    if s.ndim != 1:
        raise ValueError(f"platt_scaling: scores are (n,), one for each sample, got {s.shape}")
    total = np.ones(len(s)) if weight is None else weight
    ones = np.sum(total[labels == 1])
    zeros = np.sum(total) - ones
    target = np.where(labels == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    scale = np.max(np.abs(s)) or 1.0
    x = s / scale

    def loss(ab: Any) -> Any:
        z = -(ab[0] * x + ab[1])
        return np.sum(total * (np.logaddexp(0, z) - target * z))

    a, b = _newton(loss, np.array([0.0, np.log((zeros + 1) / (ones + 1))]), "platt_scaling")
    return float(a / scale), float(b)


def vector_scaling(logits: Any, labels: Any, sample_weight: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """(w, b), both (classes,), for which softmax(w * logits + b) gives the labels the largest likelihood.

    More freedom than one temperature, with 2 classes - 1 numbers that matter, and so a larger set of samples is needed;
    the largest probability may become another one's. Logits (n,) are those of the second of two classes. Guo et al.
    2017.
    """
    z, labels, weight = _checked("vector_scaling", logits, labels, sample_weight)
    if z.ndim == 1:
        z = np.stack([-z / 2, z / 2], axis=1)
    classes, picked = z.shape[1], labels[:, None] == np.arange(z.shape[1])
    weight = np.full(len(z), 1 / len(z)) if weight is None else weight / np.sum(weight)

    def loss(both: Any) -> Any:
        y = both[0] * z + both[1]
        top = np.max(y, axis=1)
        log_sum = top + np.log(np.sum(np.exp(y - top[:, None]), axis=1))
        return np.sum(weight * (log_sum - np.sum(np.where(picked, y, 0), axis=1)))

    evaluate = value_and_grad(loss)

    def flat(both: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = evaluate(both.reshape(2, classes))
        return float(value), np.ravel(slope)

    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    found = minimize(
        flat, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-9, "ftol": 1e-15}
    )  # fmt: skip
    if not found.success:
        _warn("vector_scaling", 1000)
    return found.x[:classes], found.x[classes:]


def _checked(
    name: str, scores: Any, labels: Any, sample_weight: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
    if scores.ndim not in (1, 2) or not len(scores) or labels.shape != scores.shape[:1]:
        raise ValueError(f"{name}: scores are (n,) or (n, classes), labels (n,), got {scores.shape} and {labels.shape}")
    if not np.all(np.isfinite(scores)):
        raise ValueError(f"{name}: scores are finite, got {scores[~np.isfinite(scores)][0]}")
    classes = scores.shape[1] if scores.ndim == 2 else 2
    if labels.dtype.kind not in "biu" or np.any((labels < 0) | (labels >= classes)):
        got = f"{np.unique(labels)[:5]}, {labels.dtype}"
        raise ValueError(f"{name}: labels are integers from 0 to {classes - 1}, got {got}")
    return scores, labels.astype(np.int64), weights(sample_weight, scores)


def _newton(loss: Callable[[Any], Any], x: np.ndarray, name: str, steps: int = 100) -> np.ndarray:
    """The minimum of a convex function of a few numbers."""
    slopes, curvatures = value_and_grad(loss), hessian(loss)
    value, slope = slopes(x)
    for _ in range(steps):
        step = np.linalg.lstsq(curvatures(x), -slope, rcond=None)[0]
        if -(slope @ step) <= 4 * np.finfo(np.float64).eps * (1 + abs(value)):  # a last step, less than the loss rounds
            return x + step
        size = 1.0
        while size > 1e-10 and loss(x + size * step) > value + 1e-4 * size * (slope @ step):
            size /= 2
        if size <= 1e-10:
            return x
        x = x + size * step
        value, slope = slopes(x)
    _warn(name, steps)
    return x


def _warn(name: str, steps: int) -> None:
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"{name}: not converged after {steps} steps. Are the labels all as the largest score says? Then no finite "
        "numbers are best; give more samples, or a method of fewer numbers: temperature_scaling",
        ConvergenceWarning,
        stacklevel=3,
    )
