"""Linear models of classes: a loss of scores X w + b, weights of classes, a penalty in units of 1/C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.estimators.base import Classifier, positive_number
from wonderland.estimators.separation import warn_of_separation
from wonderland.estimators.smooth.estimator import SmoothModel
from wonderland.estimators.smooth.losses import derivatives
from wonderland.estimators.smooth.problem import SmoothProblem
from wonderland.transform.derivatives import stop_gradient


class LinearClassifier(SmoothModel, Classifier):
    """A classifier of scores X w + b. A class says in `_loss` what a sample's scores cost."""

    NUMBERS = ("C",)
    n_iter_: Any
    coef_: np.ndarray
    intercept_: Any
    C: float
    class_weight: Any

    def _loss(self, classes: int) -> Callable[[Any, Any], Any]:
        """The loss of scores (n,) and y in {0, 1}; of more classes, of scores and one-hot y, both (n, classes)."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to X (n, features) and classes y (n,); a weight of 2 counts a sample twice, 0 leaves it out."""
        X, labels, weight = self._training_labels(X, y, sample_weight)
        positive_number(self.C, "C", infinite=True)
        l1, l2 = self._penalties()
        classes = len(self.classes_)
        s = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        if self.class_weight is not None:
            s = s * self._class_weights(labels, s, self.classes_)
        if not np.all(s > 0):
            X, labels, s = X[s > 0], labels[s > 0], s[s > 0]
        two = classes == 2
        target = labels.astype(np.float64) if two else (labels[:, None] == np.arange(classes)).astype(np.float64)
        loss = derivatives(self._loss(classes), 1 if two else classes)
        problem = SmoothProblem(X, target, s, loss, l1=l1, l2=l2, intercept=bool(self.fit_intercept))
        start = np.zeros(problem.shape)
        if self.fit_intercept:
            start[-1] = _log_odds(target, s)
        w = self._minimise(problem, start)
        if l1 == l2 == 0:
            warn_of_separation(self, problem, w, labels)
        self.n_iter_ = np.array([self.n_iter_], np.int32)
        w = w.reshape(len(w), -1)
        if not two:  # without a penalty, a number that all classes share is free: none
            w[problem.free] -= np.mean(w[problem.free], axis=1, keepdims=True)
        self.coef_ = w[: problem.p].T.astype(X.dtype)
        self.intercept_ = (w[-1] if self.fit_intercept else np.zeros(w.shape[1])).astype(X.dtype)
        return self

    def _penalties(self, **hyper: Any) -> tuple[Any, Any]:
        """What multiplies |W|_1 and |W|^2 / 2."""
        return 0.0, 1 / hyper.get("C", self.C)

    def _class_weights(self, labels: Any, s: Any, classes: np.ndarray) -> Any:
        """The factor of each sample's weight, of `class_weight`; of traced values, too."""
        belongs = labels[:, None] == np.arange(len(classes))
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            counts = np.sum(np.where(belongs, s[:, None], 0.0), axis=0)
            factors = np.sum(s) / (len(classes) * np.maximum(counts, np.finfo(np.float64).tiny))
        elif isinstance(self.class_weight, dict):
            unknown = [name for name in self.class_weight if name not in classes]
            if unknown:
                raise ValueError(f"class_weight has classes {unknown} that y hasn't; y has {list(classes[:10])}")
            factors = np.array([self.class_weight.get(name, 1.0) for name in classes.tolist()], np.float64)
            if not np.all(factors >= 0) or not np.any(factors > 0):
                raise ValueError(f"class_weight: weights are not negative, and not all zero; got {self.class_weight}")
        else:
            raise ValueError(f"class_weight is None, 'balanced' or a dict of weights, got {self.class_weight!r}")
        return np.sum(np.where(belongs, factors, 0.0), axis=1)

    def _apply(self, X: Any) -> Any:
        if len(self.classes_) == 2:
            return X @ self.coef_[0] + self.intercept_[0]
        return X @ self.coef_.T + self.intercept_

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        if self.class_weight is not None:
            weight = weight * self._class_weights(y, weight, np.arange(2 if coef.ndim == 1 else len(coef)))
        eta = X @ coef.T + intercept
        penalty = self._penalties(**hyper)[1] * np.sum(coef**2) / 2
        if coef.ndim == 1:
            return np.sum(weight * self._loss(2)(eta, y)) + penalty
        target = np.where(y[:, None] == np.arange(len(coef)), 1.0, 0.0)
        # One number more in all intercepts changes nothing; they sum to zero.
        shared = np.sum(weight) * np.mean(intercept) ** 2
        return np.sum(weight * self._loss(len(coef))(eta, target)) + penalty + shared

    def _start(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        classes = int(np.max(stop_gradient(y))) + 1
        shape = (classes,) if classes > 2 else ()
        return np.zeros((*shape, np.shape(X)[1])), np.zeros(shape)


def _log_odds(target: np.ndarray, s: np.ndarray) -> Any:
    """The best intercept alone: the log-odds of the second class, or the logarithms of all shares, less their mean."""
    share = np.clip(s @ target / np.sum(s), 1e-6, 1 - 1e-6)
    if target.ndim == 1:
        return np.log(share / (1 - share))
    return np.log(share) - np.mean(np.log(share))
