"""Cross-conformal regression: intervals from models that each left out a part of the data, which is all used."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from wonderland.estimators.base import one_of
from wonderland.estimators.conformal import conformal_quantile, levels_of, like_levels, warn_if_infinite
from wonderland.estimators.conformal_regression import positive
from wonderland.estimators.meta import WrappedRegressor, blocks, fitted, folds, points, taken


class LeftOut(WrappedRegressor):
    """What is common: models `estimators_`, and for each sample a weight (n, models) of those that left it out."""

    estimator_: Any
    confidence_level: Any
    conformity_score: str
    method: str
    estimators_: list[Any]
    left_out_: np.ndarray
    conformity_scores_: np.ndarray

    def _leave_out(
        self, X: Any, y: np.ndarray, training: list[np.ndarray], weight: np.ndarray, params: dict[str, Any]
    ) -> None:
        """Fit a model to each of some rows, and find the errors of what is predicted without each sample."""
        base = self._base()
        self.estimators_ = [fitted(base, X, y, rows, **params) for rows in training]
        self.left_out_ = weight
        prediction = np.zeros(len(y))
        for k, model in enumerate(self.estimators_):
            rows = np.flatnonzero(weight[:, k])
            if len(rows):
                prediction[rows] += weight[rows, k] * points(model, taken(X, rows))
        self.conformity_scores_ = np.abs(y - prediction) / self._scale(prediction)
        self.estimator_ = fitted(base, X, y, **params)

    def predict_interval(self, X: Any) -> np.ndarray:
        """Lower and upper ends at X: (n, 2), or (n, 2, levels) if `confidence_level` is a list."""
        X, scores, levels = self._inputs(X), self.conformity_scores_, levels_of(self.confidence_level)
        each = np.stack([points(model, X) for model in self.estimators_], axis=1).astype(np.float64)
        out = np.empty((len(each), 2, len(levels)))
        quantile = conformal_quantile(scores, levels)
        for rows in blocks(len(each), len(scores)):
            middle = each[rows] @ self.left_out_.T  # (rows, samples): the prediction without each of them
            if self.method == "plus":
                off = scores * self._scale(middle)
                out[rows, 0] = -conformal_quantile(off - middle, levels)
                out[rows, 1] = conformal_quantile(middle + off, levels)
            elif self.method == "minmax":
                low, high = middle.min(axis=1)[:, None], middle.max(axis=1)[:, None]
                out[rows, 0], out[rows, 1] = low - quantile * self._scale(low), high + quantile * self._scale(high)
        if self.method == "base":
            middle = points(self.estimator_, X)[:, None].astype(np.float64)
            off = quantile * self._scale(middle)
            out[:, 0], out[:, 1] = middle - off, middle + off
        warn_if_infinite(out, len(scores), levels, "the intervals are infinite")
        return like_levels(out, self.confidence_level)

    def _scale(self, middle: np.ndarray) -> Any:
        return 1.0 if self.conformity_score == "absolute" else positive(middle, 'predictions, for "gamma",')

    def _check(self) -> None:
        levels_of(self.confidence_level)
        one_of(self.conformity_score, "conformity_score", ("absolute", "gamma"))
        one_of(self.method, "method", ("plus", "minmax", "base"))


class CrossConformalRegressor(LeftOut):
    """Intervals from cross-validation: all of the data fits the models, and all of it says how wide intervals are.

    With f_i the model that was fitted without the fold of sample i and R_i = |y_i - f_i(x_i)|, the interval at x is,
    with the quantile of `conformal_quantile` over the samples i,

    - "plus" (CV+): from the quantile of f_i(x) - R_i, below, to that of f_i(x) + R_i. A new y is in it with probability
      of at least 1 - 2 alpha for level 1 - alpha, and as a rule of about 1 - alpha;
    - "minmax": from min_i f_i(x) - q to max_i f_i(x) + q, with q that of R_i: at least 1 - alpha, and wider;
    - "base": f(x) -+ q, with f fitted to all: no guarantee if the models differ much.

    `cv` is a number of folds or a splitter that leaves out each sample once (folds aren't shuffled: of sorted data,
    KFold(5, shuffle=True)); -1 leaves out one sample at a time, which with "plus" is the jackknife+. With
    `conformity_score="gamma"` errors are divided by predictions, which have to be positive.

        model = CrossConformalRegressor(Ridge(), cv=10).fit(X, y)
        lower, upper = model.predict_interval(X_new).T

    `predict` is that of a fit to all of the data. Barber et al. 2021; MAPIE's names, whose `fit_conformalize` is `fit`.
    """

    def __init__(
        self, estimator: Any = None, confidence_level: Any = 0.9, conformity_score: str = "absolute", *,
        method: str = "plus", cv: Any = 5,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.method = method
        self.cv = cv

    def fit(self, X: Any, y: Any, **fit_params: Any) -> CrossConformalRegressor:
        """Fit a model without each fold of X and y (n,), and one to all."""
        self._check()
        X, y = self._numbers(X, y)
        pairs = folds(self.cv, X, y, classifier=False)
        weight = np.zeros((len(y), len(pairs)))
        for k, (_, rest) in enumerate(pairs):
            weight[rest, k] = 1
        self._leave_out(X, y, [train for train, _ in pairs], weight, fit_params)
        return self


class JackknifeAfterBootstrapRegressor(LeftOut):
    """Intervals from models fitted to samples drawn with replacement: the jackknife+ after the bootstrap.

    As in `CrossConformalRegressor`, but f_i is the mean of those of `n_resamplings` models whose resampling doesn't
    have sample i, about 37 % of them. `method` is "plus" or "minmax". Kim et al. 2020.

        JackknifeAfterBootstrapRegressor(Ridge(), 0.9, random_state=0).fit(X, y).predict_interval(X_new)
    """

    def __init__(
        self, estimator: Any = None, confidence_level: Any = 0.9, conformity_score: str = "absolute", *,
        method: str = "plus", n_resamplings: int = 30, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.method = method
        self.n_resamplings = n_resamplings
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **fit_params: Any) -> JackknifeAfterBootstrapRegressor:
        """Fit a model to each resampling of X and y (n,), and one to all."""
        self._check()
        one_of(self.method, "method", ("plus", "minmax"))
        if not isinstance(self.n_resamplings, numbers.Integral) or self.n_resamplings < 1:
            raise ValueError(f"n_resamplings is a whole number of at least 1, got {self.n_resamplings!r}")
        X, y = self._numbers(X, y)
        n = len(y)
        if n < 2:
            raise ValueError(f"JackknifeAfterBootstrapRegressor leaves out samples, and there is n_samples = {n}")
        draw = check_random_state(self.random_state)
        training = [draw.randint(n, size=n) for _ in range(self.n_resamplings)]
        without = np.stack([np.bincount(rows, minlength=n) == 0 for rows in training], axis=1)
        count = without.sum(axis=1)
        if np.any(count == 0):
            raise ValueError(
                f"{np.sum(count == 0)} samples are in each of the {self.n_resamplings} resamplings, so that no model "
                f"left them out: take more, n_resamplings={2 * self.n_resamplings}"
            )
        self._leave_out(X, y, training, without / count[:, None], fit_params)
        return self
