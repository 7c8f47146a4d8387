"""Estimators around another one, scikit-learn's or ours: what it gets, what it answers, which rows it is fitted to.

X goes to it as it came (a frame, a list, a sparse matrix), and so do parameters of `fit` such as weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, check_array, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params, _num_samples, check_is_fitted, validate_data

from wonderland.estimators.base import FLOATS, Classifier, Estimator, Regressor
from wonderland.estimators.linear_regression import LinearRegression
from wonderland.estimators.logistic import LogisticRegression
from wonderland.transform.jacobian import jacobian
from wonderland.transform.vmap import vmap


class Wrapper(Estimator):
    """What all have that are made around `estimator`."""

    estimator: Any

    def _base(self) -> Any:
        """The estimator that was given, or the default."""
        return self.estimator

    def _fits(self) -> bool:
        cv = getattr(self, "cv", None)
        return not (getattr(self, "prefit", False) or (isinstance(cv, str) and cv == "prefit"))

    def _nothing_to_fit(self, params: dict[str, Any]) -> None:
        """With `prefit`, parameters of `fit` would go nowhere."""
        if params:
            raise ValueError(
                f"{type(self).__name__} with prefit=True fits nothing, so that {', '.join(params)} has no effect: "
                "leave it out, or take prefit=False"
            )

    def _inputs(self, X: Any) -> Any:
        check_is_fitted(self)
        if hasattr(self, "n_features_in_") and len(getattr(X, "shape", (0, 0))) == 1:
            check_array(X)  # says what one sample looks like
        return validate_data(self, X, skip_check_array=True, reset=False)

    def input_gradient(self, X: Any) -> np.ndarray:
        """Derivatives of the predictions in the inputs, as of other estimators; the one inside is one of wonderland."""
        floats: Any = FLOATS
        return np.asarray(vmap(jacobian(self.as_function()))(check_array(self._inputs(X), dtype=floats)))

    def _training(self, X: Any, y: Any, **how: Any) -> tuple[Any, np.ndarray]:
        """X as it came, with its number and names of features noted, and y (n,) checked."""
        y = validate_data(self, y=y, **how)
        X, y = indexable(X, y)
        validate_data(self, X, skip_check_array=True)
        return X, y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        estimator = self.estimator[-1] if isinstance(self.estimator, (list, tuple)) else self.estimator
        if estimator is not None:
            inner = get_tags(estimator).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags


class WrappedRegressor(Regressor, Wrapper):
    """Around a regressor, whose predictions stay as they are: `estimator_` after `fit`."""

    estimator_: Any

    def _base(self) -> Any:
        return LinearRegression() if self.estimator is None else self.estimator

    def predict(self, X: Any) -> np.ndarray:
        """The predictions of the estimator inside: (n,)."""
        X = self._inputs(X)
        return points(self.estimator_, X)

    def _apply(self, X: Any) -> Any:
        return ours(self.estimator_)._apply(X)

    def _numbers(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        X, y = self._training(X, y, y_numeric=True)
        return X, y.astype(np.float64, copy=False)


class WrappedClassifier(Classifier, Wrapper):
    """Around a classifier, of which `estimator_` after `fit` is one."""

    classes_: np.ndarray
    estimator_: Any

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _labels(self, X: Any, y: Any, known: Any = None) -> tuple[Any, np.ndarray, np.ndarray]:
        """X, y as it came, and its places in `classes_`, which are those of y unless `known`."""
        check_classification_targets(y)
        X, y = self._training(X, y)
        self.classes_ = np.unique(y) if known is None else np.asarray(known)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} tells classes apart, so it needs samples of at least two of them; y has only "
                f"one class: {self.classes_}"
            )
        return X, y, places(y, self.classes_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the estimator inside: (n, classes), in the order of `classes_`."""
        X = self._inputs(X)
        return probabilities(self.estimator_, X, self.classes_)

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-odds (n,) of the second of two classes, or logarithms of probabilities (n, classes); -inf for p = 0."""
        with np.errstate(divide="ignore"):
            log = np.log(self.predict_proba(X))
        return log[:, 1] - log[:, 0] if log.shape[1] == 2 else log

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class at each of X: (n,)."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def _outputs(self, X: Any) -> Any:
        return ours(self.estimator_)._outputs(X)

    def _apply(self, X: Any) -> Any:
        log = np.log(self._outputs(X))
        return log[:, 1] - log[:, 0] if log.shape[1] == 2 else log


def classes_of(estimator: Any) -> np.ndarray:
    """The classes of a classifier that was fitted before."""
    if not hasattr(estimator, "classes_"):
        name = type(estimator).__name__
        raise NotFittedError(f"this {name} is to be fitted before (prefit), with other data: {name}(...).fit(X, y)")
    return np.asarray(estimator.classes_)


def ours(estimator: Any) -> Any:
    """An estimator whose predictions have derivatives."""
    if isinstance(estimator, Estimator):
        return estimator
    raise TypeError(
        f"derivatives of predictions need an estimator of wonderland inside, got {type(estimator).__name__}, whose "
        "predictions can't be traced"
    )


def fitted(estimator: Any, X: Any, y: np.ndarray, rows: Any = None, **params: Any) -> Any:
    """A clone of an estimator, fitted to some rows of X and y, with the same rows of parameters that have as many."""
    model: Any = clone(estimator)
    if rows is None:
        return model.fit(X, y, **params)
    params = _check_method_params(X, params, indices=rows)
    return model.fit(_safe_indexing(X, rows), y[rows], **params)


def taken(X: Any, rows: Any) -> Any:
    """Rows of X, whatever it is."""
    return _safe_indexing(X, rows)


def folds(cv: Any, X: Any, y: np.ndarray, classifier: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit to and rows to predict, of which each sample is in exactly one; cv=-1 leaves out one at a time."""
    from sklearn.model_selection import LeaveOneOut, check_cv

    one_out = isinstance(cv, (int, np.integer)) and cv == -1
    splitter: Any = LeaveOneOut() if one_out else check_cv(cv, y, classifier=classifier)  # type: ignore[arg-type]
    pairs = list(splitter.split(X, y))
    counts = np.bincount(np.concatenate([test for _, test in pairs]), minlength=_num_samples(X))
    if np.any(counts != 1):
        raise ValueError(
            f"cv has to leave out each sample exactly once, as KFold does; sample {np.argmax(counts != 1)} was left "
            f"out {counts[np.argmax(counts != 1)]} times"
        )
    return pairs


def split(X: Any, test_size: Any, random_state: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows for two purposes, at random; `test_size` is a part or a number, of the second."""
    from sklearn.model_selection import train_test_split

    rows = train_test_split(np.arange(_num_samples(X)), test_size=test_size, random_state=random_state)
    return np.asarray(rows[0]), np.asarray(rows[1])


def points(estimator: Any, X: Any) -> np.ndarray:
    """Predictions of a regressor: (n,)."""
    predicted = np.asarray(estimator.predict(X))
    if predicted.ndim == 2 and predicted.shape[1] == 1:
        predicted = predicted[:, 0]
    if predicted.ndim != 1:
        name = type(estimator).__name__
        raise ValueError(f"intervals are for one number at a time, y (n,); {name} predicts {predicted.shape}")
    return predicted


def probabilities(estimator: Any, X: Any, classes: np.ndarray) -> np.ndarray:
    """Probabilities of a classifier for all of `classes`, of which it may have missed some: these get 0."""
    if not hasattr(estimator, "predict_proba"):
        name = type(estimator).__name__
        raise TypeError(
            f"{name} has no predict_proba; CalibratedClassifierCV({name}(...)) makes probabilities of its scores"
            if hasattr(estimator, "decision_function")
            else f"{name} has no predict_proba: estimator is a classifier, such as LogisticRegression()"
        )
    values = without_nan(np.asarray(estimator.predict_proba(X)), estimator)
    return spread(values, estimator.classes_, classes, 0.0)


def without_nan(values: np.ndarray, estimator: Any) -> np.ndarray:
    """Scores or probabilities (n, ...): a NaN among them isn't larger or smaller than others, and would decide."""
    wrong = np.isnan(values).reshape(len(values), -1).any(axis=1)
    if np.any(wrong):
        raise ValueError(
            f"{type(estimator).__name__} gave NaN for {np.sum(wrong)} of {len(values)} samples, the first at "
            f"X[{np.argmax(wrong)}]: look at its predict_proba or decision_function there"
        )
    return values


def spread(values: np.ndarray, known: np.ndarray, classes: np.ndarray, otherwise: float) -> np.ndarray:
    """Columns for the classes that an estimator knows as columns for all."""
    if len(known) == len(classes):
        return values
    out = np.full((len(values), len(classes)), otherwise, values.dtype)
    out[:, places(known, classes)] = values
    return out


def places(y: Any, classes: np.ndarray) -> np.ndarray:
    """Where labels are in `classes`, which are sorted."""
    y = np.asarray(y)
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if np.any(classes[place] != y):
        raise ValueError(f"y has a class that isn't known: {y[classes[place] != y][0]}; known: {classes[:10]}")
    return place


def blocks(rows: int, width: int, most: int = 2**22) -> Iterator[slice]:
    """Slices of rows of which none has more than `most` numbers."""
    step = max(1, most // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, start + step)
