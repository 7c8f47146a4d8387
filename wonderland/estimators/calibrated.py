"""`CalibratedClassifierCV`: a classifier, and what makes its scores into probabilities that can be believed."""

from __future__ import annotations

from inspect import signature
from typing import Any
from warnings import warn

import numpy as np

from wonderland.estimators.base import one_of, weights
from wonderland.estimators.calibration_maps import MAPS
from wonderland.estimators.meta import WrappedClassifier, classes_of, fitted, folds, ours, taken, without_nan


class CalibratedClassifierCV(WrappedClassifier):
    """A classifier with calibrated probabilities: fitted, with its scores mapped so that they match frequencies.

    The map is learnt from samples that the classifier wasn't fitted to: by cross-validation with `cv` folds, or with
    `cv="prefit"` all of the data given to `fit`, for a classifier that was fitted before. `method` is

    - "temperature": softmax(logits / T); one number, doesn't change which class is the likeliest;
    - "sigmoid": Platt's 1 / (1 + exp(a score + b)), one for each class, divided by their sum;
    - "isotonic": any non-decreasing function of the score, one for each class, divided by their sum; needs 1,000
      samples or more;
    - "vector": softmax(w * logits + b), two numbers for each class.

    Scores are those of `decision_function`, or else logarithms of `predict_proba` (for "sigmoid" and "isotonic" the
    probabilities themselves). With `ensemble=True` there are `cv` pairs of classifier and map, and probabilities are
    their means; otherwise the map is learnt from all predictions out of fold, and the classifier from all of the data.
    Names and results are scikit-learn's, whose defaults are "sigmoid" and `ensemble=True`. Without an estimator it is
    `LogisticRegression`.

        model = CalibratedClassifierCV(SVC()).fit(X, y)
        model.predict_proba(X_new)

        CalibratedClassifierCV(net, cv="prefit").fit(X_valid, y_valid)

    After `fit`: `calibrated_classifiers_`, each with `estimator` and `calibrator`; `temperature_` (the mean, of
    several) with that method; `classes_`. Every class needs a sample in each fold. Guo et al. 2017; Platt 1999;
    Zadrozny and Elkan 2002.
    """

    estimator_: Any
    temperature_: float
    calibrated_classifiers_: list[Calibrated]

    def __init__(
        self, estimator: Any = None, *, method: str = "temperature", cv: Any = 5, ensemble: bool = False
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CalibratedClassifierCV:
        """Fit the classifier and its map to X (n, features) and labels y (n,)."""
        one_of(self.method, "method", (*MAPS,))
        base, prefit = self._base(), isinstance(self.cv, str)
        if prefit:
            one_of(self.cv, "cv", ("prefit",))
        X, y, labels = self._labels(X, y, classes_of(base) if prefit else None)
        weight = weights(sample_weight, np.empty(len(y)))
        params = self._weights(base, weight)
        make, classes = MAPS[self.method], self.classes_
        if prefit:
            self.calibrated_classifiers_ = [Calibrated(base, make(*scores(base, X, classes), labels, weight), classes)]
            return self._finished()
        pairs = folds_of_classes(self.cv, X, y, labels)
        models = [fitted(base, X, y, rows, **params) for rows, _ in pairs]
        found = [scores(model, taken(X, rows), classes) for model, (_, rows) in zip(models, pairs, strict=True)]
        if self.ensemble:
            self.calibrated_classifiers_ = [
                Calibrated(model, make(*values, labels[rows], None if weight is None else weight[rows]), classes)
                for model, values, (_, rows) in zip(models, found, pairs, strict=True)
            ]
            return self._finished()
        out = np.empty((len(labels), *found[0][0].shape[1:]))
        for (values, _), (_, rows) in zip(found, pairs, strict=True):
            out[rows] = values
        calibrator = make(out, found[0][1], labels, weight)
        self.calibrated_classifiers_ = [Calibrated(fitted(base, X, y, **params), calibrator, classes)]
        return self._finished()

    def _finished(self) -> CalibratedClassifierCV:
        self.estimator_ = self.calibrated_classifiers_[0].estimator
        if self.method == "temperature":
            self.temperature_ = float(np.mean([pair.calibrator.temperature for pair in self.calibrated_classifiers_]))
        return self

    def _weights(self, base: Any, weight: Any) -> dict[str, Any]:
        if weight is None:
            return {}
        if "sample_weight" in signature(base.fit).parameters:
            return {"sample_weight": weight}
        name = type(base).__name__
        warn(f"{name}.fit has no sample_weight: weights are used for the calibration alone", stacklevel=3)
        return {}

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated probabilities of the classes at X: (n, classes), in the order of `classes_`."""
        X = self._inputs(X)
        return np.mean([pair.predict_proba(X) for pair in self.calibrated_classifiers_], axis=0)

    def _outputs(self, X: Any) -> Any:
        pairs = self.calibrated_classifiers_
        return sum(pair.calibrator(ours(pair.estimator)._apply(X), False) for pair in pairs) / len(pairs)


class Calibrated:
    """A fitted classifier and the map of its scores to probabilities."""

    estimator: Any
    calibrator: Any
    classes: np.ndarray

    def __init__(self, estimator: Any, calibrator: Any, classes: np.ndarray) -> None:
        self.estimator, self.calibrator, self.classes = estimator, calibrator, classes

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated probabilities: (n, classes)."""
        return np.asarray(self.calibrator(*scores(self.estimator, X, self.classes)))


def scores(estimator: Any, X: Any, classes: np.ndarray) -> tuple[np.ndarray, bool]:
    """Scores (n,) of the second of two classes or (n, classes), and whether they are probabilities."""
    claimed = not hasattr(estimator, "decision_function")
    if claimed and not hasattr(estimator, "predict_proba"):
        raise TypeError(
            f"{type(estimator).__name__} has neither decision_function nor predict_proba: CalibratedClassifierCV takes "
            "a classifier, such as LogisticRegression()"
        )
    values = estimator.predict_proba(X) if claimed else estimator.decision_function(X)
    values = without_nan(np.asarray(values, np.float64), estimator)
    if len(estimator.classes_) < len(classes):
        raise ValueError(
            f"a fold leaves only the classes {estimator.classes_} of {classes[:10]} to be fitted: take folds that have "
            "samples of each, StratifiedKFold, or a number"
        )
    return values[:, 1] if claimed and len(classes) == 2 else values, claimed


def folds_of_classes(cv: Any, X: Any, y: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds, of a number that each class has samples for."""
    wanted = cv if isinstance(cv, (int, np.integer)) else getattr(cv, "n_splits", 0)
    fewest = np.min(np.bincount(labels))
    if fewest < wanted:
        raise ValueError(
            f"{wanted} folds need {wanted} samples of each class, but one has less than {wanted} examples: {fewest}. "
            f"Write cv={max(2, fewest)}, or leave that class out"
        )
    return folds(cv, X, y, classifier=True)
