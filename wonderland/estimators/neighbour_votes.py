"""Predictions by neighbours: samples and their answers come in; the votes, or the mean, of the nearest go out."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.base import Classifier, Regressor, one_of
from wonderland.estimators.neighbours import Neighbours
from wonderland.numpy import take

WEIGHTS = ("uniform", "distance")


class _Voters(Neighbours):
    """Neighbours that have answers (n, outputs), each with its share."""

    weights: str
    _answers: np.ndarray

    def _keep(self, X: np.ndarray) -> None:
        one_of(self.weights, "weights", WEIGHTS)
        if self.weights == "distance" and self.metric == "dot":
            raise ValueError("weights='distance' are 1 / distance, and metric='dot' has none: take 'cosine' vectors")
        super()._keep(X)

    def _mean(self, X: Any) -> Any:
        """The mean answer of the neighbours: (m, outputs)."""
        far, places = self._around(X)
        answers = take(self._answers, places, axis=0)  # (m, k, outputs)
        if self.weights == "uniform":
            return np.mean(answers, axis=1)
        zero = far == 0
        share = np.where(np.any(zero, axis=1, keepdims=True), zero.astype(far.dtype), 1 / np.where(zero, 1, far))
        return np.sum(share[:, :, None] * answers, axis=1) / np.sum(share, axis=1)[:, None]


class KNeighborsClassifier(_Voters, Classifier):
    """The class that most of the nearest samples have: probabilities are shares of the `n_neighbors` votes.

        model = KNeighborsClassifier(5, metric="cosine").fit(embeddings, labels)
        model.predict(others), model.predict_proba(others)

    With `weights="distance"` a vote counts 1 / distance, and samples at distance 0 alone decide. Of classes with equal
    votes the first in `classes_` is taken. Metrics and ties of distances are those of `NearestNeighbors`.
    `decision_function` is the share of the second of two classes less that of the first; of more, their shares.
    """

    def __init__(self, n_neighbors: int = 5, *, weights: str = "uniform", metric: str = "euclidean"):
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric

    def fit(self, X: Any, y: Any) -> KNeighborsClassifier:
        """Keep the samples X (n, features) and their classes y (n,)."""
        X, labels, _ = self._training_labels(X, y)
        self._answers = np.eye(len(self.classes_), dtype=X.dtype)[labels]
        self._keep(X)
        return self

    def _apply(self, X: Any) -> Any:
        shares = self._mean(X)
        return shares[:, 1] - shares[:, 0] if len(self.classes_) == 2 else shares

    def _probabilities(self, scores: Any) -> Any:
        return np.stack([(1 - scores) / 2, (1 + scores) / 2], axis=1) if scores.ndim == 1 else scores


class KNeighborsRegressor(_Voters, Regressor):
    """The mean of the answers of the nearest samples; with `weights="distance"` each counts 1 / distance.

        model = KNeighborsRegressor(5, weights="distance").fit(X, y)       # y (n,) or (n, outputs)
        model.predict(others)

    Samples at distance 0 alone decide, so that the answers of `fit` come back. Metrics and ties of distances are those
    of `NearestNeighbors`. Derivatives of predictions hold where the neighbours stay the same: of uniform weights they
    are zero.
    """

    def __init__(self, n_neighbors: int = 5, *, weights: str = "uniform", metric: str = "euclidean"):
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric

    def fit(self, X: Any, y: Any) -> KNeighborsRegressor:
        """Keep the samples X (n, features) and their answers y, (n,) or (n, outputs)."""
        X, y, _ = self._training_data(X, y, multi_output=True)
        self._answers, self._one = (y[:, None], True) if y.ndim == 1 else (y, False)
        self._keep(X)
        return self

    def _apply(self, X: Any) -> Any:
        means = self._mean(X)
        return means[:, 0] if self._one else means

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
