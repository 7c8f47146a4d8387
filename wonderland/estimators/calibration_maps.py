"""Maps of a classifier's scores to probabilities, each learnt from scores with their labels.

`Map(values, claimed, labels, weight)` learns, `map(values, claimed)` gives probabilities (n, classes). Values are
scores (n,) of the second of two classes, or (n, classes); if `claimed`, they are probabilities themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.isotonic import IsotonicRegression
from wonderland.estimators.scaling import platt_scaling, temperature_scaling, vector_scaling

TINY = 1e-12  # added to probabilities before their logarithm, as scikit-learn does


def _logits(values: Any, claimed: bool) -> Any:
    """Scores as logits: those of probabilities (n,) are log-odds."""
    if not claimed:
        return values
    if values.ndim == 1:
        return np.log(values + TINY) - np.log(1 - values + TINY)
    return np.log(values + TINY)


def _softmax(z: Any) -> Any:
    if z.ndim == 1:
        z = np.stack([-z / 2, z / 2], axis=1)
    powers = np.exp(z - np.max(z, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


class TemperatureMap:
    """softmax(logits / T)."""

    temperature: float

    def __init__(self, values: np.ndarray, claimed: bool, labels: np.ndarray, weight: Any) -> None:
        self.temperature = temperature_scaling(_logits(values, claimed), labels, weight)

    def __call__(self, values: Any, claimed: bool) -> Any:
        return _softmax(_logits(values, claimed) / self.temperature)


class VectorMap:
    """softmax(w * logits + b)."""

    scale: np.ndarray
    offset: np.ndarray

    def __init__(self, values: np.ndarray, claimed: bool, labels: np.ndarray, weight: Any) -> None:
        self.scale, self.offset = vector_scaling(_logits(values, claimed), labels, weight)

    def __call__(self, values: Any, claimed: bool) -> Any:
        z = _logits(values, claimed)
        z = np.stack([-z / 2, z / 2], axis=1) if z.ndim == 1 else z
        return _softmax(self.scale * z + self.offset)


class OneByOneMap:
    """A function of the score for each class, or for the second of two."""

    functions: Any

    def __init__(self, values: np.ndarray, claimed: bool, labels: np.ndarray, weight: Any) -> None:
        if values.ndim == 1:
            self.functions = [self.learnt(values, labels, weight)]
        else:
            self.functions = [self.learnt(values[:, c], labels == c, weight) for c in range(values.shape[1])]

    def learnt(self, values: np.ndarray, happened: np.ndarray, weight: Any) -> Any:
        """The function for one class."""
        raise NotImplementedError

    def __call__(self, values: Any, claimed: bool) -> Any:
        if values.ndim == 1:
            p = self.functions[0](values)
            return np.stack([1 - p, p], axis=1)
        p = np.stack([f(values[:, c]) for c, f in enumerate(self.functions)], axis=1)
        total = np.sum(p, axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])


class SigmoidMap(OneByOneMap):
    """Platt's 1 / (1 + exp(a score + b))."""

    def learnt(self, values: np.ndarray, happened: np.ndarray, weight: Any) -> Any:
        return LogisticMap(*platt_scaling(values, happened, weight))


class LogisticMap:
    """1 / (1 + exp(a score + b)), with attributes, so that it can be pickled."""

    a: float
    b: float

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b

    def __call__(self, s: Any) -> Any:
        return _softmax(-(self.a * s + self.b))[:, 1]


class IsotonicMap(OneByOneMap):
    """A non-decreasing function of the score."""

    def learnt(self, values: np.ndarray, happened: np.ndarray, weight: Any) -> Any:
        return IsotonicRegression().fit(values, happened, weight)._apply


MAPS: dict[str, Any] = {
    "temperature": TemperatureMap, "sigmoid": SigmoidMap, "isotonic": IsotonicMap, "vector": VectorMap,
}  # fmt: skip
