"""What all estimators have: checked arrays, labels as numbers, predictions that are differentiated, pictures, a report.

An estimator is written by two methods: `fit(X, y, sample_weight=None)`, which begins with `_training_data` or
`_training_labels`, and `_apply(X)`, its prediction as plain NumPy code of an array or a traced value: numbers (n,) or
(n, outputs) of a regressor, scores (n,) or (n, classes) of a classifier. All else stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from wonderland.estimators.contract import BaseEstimator, ClassifierMixin, RegressorMixin
from wonderland.estimators.shown import Shown, ShownClassifier, ShownRegressor
from wonderland.transform.jacobian import jacobian
from wonderland.transform.vmap import vmap

FLOATS = [np.float64, np.float32]  # other numbers become the first


class Estimator(Shown, BaseEstimator):
    """What regressors and classifiers share."""

    def _apply(self, X: Any) -> Any:
        """The prediction at X (n, features), an array or a traced value."""
        raise NotImplementedError

    def _inputs(self, X: Any) -> np.ndarray:
        """X of a prediction: (n, features) like those of `fit`, finite."""
        check_is_fitted(self)
        checked: Any = validate_data(self, X, dtype=FLOATS, reset=False)
        return checked

    def as_function(self) -> Callable[[Any], Any]:
        """The fitted prediction as a function of x, (features,) or (n, features), for `wl.grad`, `wl.jit`, `wl.vmap`.

        A regressor's numbers, a classifier's probabilities, of the coefficients that the model has when it is called.

            wl.grad(model.as_function())(x)                     # of one sample x, (features,)
        """
        check_is_fitted(self)

        def function(x: Any) -> Any:
            if np.ndim(x) == 1:
                return self._outputs(x[None, :])[0]
            return self._outputs(x)

        return function

    def _outputs(self, X: Any) -> Any:
        return self._apply(X)

    def input_gradient(self, X: Any) -> np.ndarray:
        """What moves the predictions: their derivatives in the inputs at each sample, (n, features).

        Of several outputs, and of the probabilities of a classifier, (n, outputs, features).
        """
        X = self._inputs(X)
        return np.asarray(vmap(jacobian(self.as_function()))(X))


class Regressor(RegressorMixin, ShownRegressor, Estimator):
    """An estimator of numbers: `predict` is what `_apply` says."""

    def predict(self, X: Any) -> np.ndarray:
        """The predictions at X (n, features): (n,), or (n, outputs) if y had two axes."""
        return np.asarray(self._apply(self._inputs(X)))

    def _training_data(
        self, X: Any, y: Any, sample_weight: Any = None, *, multi_output: bool = False, reset: bool = True
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """X (n, features) and y (n,) as floats of one dtype, finite; weights (n,), or None where all are alike."""
        X, y = validate_data(
            self, X, y, dtype=FLOATS, y_numeric=True, multi_output=multi_output, reset=reset
        )  # fmt: skip
        with np.errstate(over="ignore"):
            same = y.astype(X.dtype, copy=False)
        if X.dtype == np.float32 and not np.all(np.isfinite(same)):
            raise ValueError(
                f"y has {np.max(np.abs(y)):g}, more than single precision can hold, which is that of X: use "
                "X.astype(np.float64)"
            )
        return X, same, weights(sample_weight, X)


class Classifier(ClassifierMixin, ShownClassifier, Estimator):
    """An estimator of classes: `_apply` gives scores (n,) of the second of two classes, or (n, classes)."""

    classes_: np.ndarray

    def _training_labels(
        self, X: Any, y: Any, sample_weight: Any = None, *, reset: bool = True
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """X (n, features), the places of y in `classes_` (n,), and weights (n,), or None where all are alike."""
        X, y = validate_data(self, X, y, dtype=FLOATS, reset=reset)
        check_classification_targets(y)
        weight = weights(sample_weight, X)
        self.classes_, labels = np.unique(y, return_inverse=True)
        present = len(self.classes_) if weight is None else len(np.unique(labels[weight > 0]))
        if present < 2:
            raise ValueError(
                f"{type(self).__name__} tells classes apart, so it needs samples of at least two of them; y has only "
                f"one class{'' if weight is None else ' with weights above zero (sample_weight)'}: {self.classes_[:5]}"
            )
        return X, labels, weight

    def _outputs(self, X: Any) -> Any:
        return self._probabilities(self._apply(X))

    def _probabilities(self, scores: Any) -> Any:
        """Probabilities (n, classes) of scores: the logistic function of (n,), softmax of (n, classes)."""
        if scores.ndim == 1:
            scores = np.stack([-scores / 2, scores / 2], axis=1)
        powers = np.exp(scores - np.max(scores, axis=1, keepdims=True))
        return powers / np.sum(powers, axis=1, keepdims=True)

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores at X: (n,), above zero for the second of two classes, or (n, classes), the largest for the answer."""
        return np.asarray(self._apply(self._inputs(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes at X: (n, classes), in the order of `classes_`."""
        return np.asarray(self._probabilities(self.decision_function(X)))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):  # log 0 is -inf
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class at each of X: (n,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]


def weights(sample_weight: Any, X: np.ndarray) -> np.ndarray | None:
    """Weights of samples (n,): finite, none negative, not all zero; a number is for all; None stays None."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, X.dtype)
    if weight.ndim == 0:
        weight = np.full(len(X), weight)
    if weight.shape != (len(X),):
        raise ValueError(f"sample_weight has one number for each sample, shape ({len(X)},), got {weight.shape}")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        wrong = weight[~(np.isfinite(weight) & (weight >= 0))][0]
        raise ValueError(f"sample_weight: weights are finite and not negative, got {wrong}")
    if not np.any(weight > 0):
        raise ValueError("sample_weight: all weights are zero, so nothing is left to fit")
    return weight


def targets(y: Any, count: int) -> np.ndarray:
    """y (n,) that predictions are held against, in double precision."""
    y = np.asarray(y, np.float64)
    if y.shape != (count,):
        raise ValueError(f"y has one number for each sample, shape ({count},), got {y.shape}")
    return y


def positive_number(value: Any, name: str, zero: bool = False, infinite: bool = False) -> float:
    """A parameter that is a number above zero, or zero too, or infinite too."""
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not good or not (value >= 0 if zero else value > 0):
        raise ValueError(f"{name} is a number {'of at least' if zero else 'above'} 0, got {value!r}")
    if not infinite and np.isinf(value):
        raise ValueError(f"{name} is a finite number, got {value!r}")
    return float(value)


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """A parameter that is a whole number of at least `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is a whole number of at least {least}, got {value!r}")
    return int(value)


def probability(value: Any, name: str) -> float:
    """A parameter between 0 and 1, without them."""
    if not 0 < positive_number(value, name) < 1:
        raise ValueError(f"{name} is a number between 0 and 1, such as 0.95, got {value!r}")
    return float(value)


def one_of(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """A parameter that is one of some words."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
