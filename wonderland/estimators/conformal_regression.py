"""Split conformal regression: intervals around any regressor's predictions that hold with a chosen probability."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from wonderland.estimators.base import one_of
from wonderland.estimators.conformal import conformal_quantile, levels_of, like_levels, warn_if_infinite
from wonderland.estimators.meta import WrappedRegressor, fitted, folds, points, split, taken

SCORES = ("absolute", "gamma", "normalized")


class SplitConformalRegressor(WrappedRegressor):
    """A regressor with intervals that a new y is in with probability `confidence_level`, whatever the data's law is.

    One part of the data, 1 - `test_size`, fits the regressor; the errors on the other part, n samples, say how wide
    intervals have to be: by the ceil((n + 1) level)-th smallest of their scores. All that is assumed is that these
    and the new samples are exchangeable. The guarantee is for all samples together, not for each x.

        model = SplitConformalRegressor(Ridge(), confidence_level=0.9).fit(X, y)
        lower, upper = model.predict_interval(X_new).T

        model = SplitConformalRegressor(net, prefit=True).conformalize(X_valid, y_valid)

    `conformity_score` is what is compared, and so how the width depends on x:

    - "absolute": |y - f(x)|, the same width everywhere;
    - "gamma": |y - f(x)| / f(x), widths in proportion to the prediction, which has to be positive;
    - "normalized": |y - f(x)| / s(x), with s the standard deviation if `predict(X, return_std=True)` tells it, also as
      the last step of a pipeline, and otherwise of `residual_estimator` (without one, `LinearRegression`), fitted to
      the logarithm of absolute errors out of fold. With `prefit`, a `residual_estimator` is one that was fitted, and
      predicts s itself.

    `side` is "both", or "upper" (-inf to a bound) or "lower". With `symmetric=False` both ends have a quantile of
    their own, each missed by half of the samples that are missed. `confidence_level` may be a list. `prefit=True` takes
    a regressor that was fitted to other data, and `fit` does what `conformalize` does; with `test_size=None` `fit` fits
    only, and `conformalize` is to follow, as in MAPIE. Parameters of `fit`, such as sample_weight, go to the
    estimator. With fewer than level / (1 - level) samples intervals are infinite, with a warning.

    After `fit`: `estimator_`, `conformity_scores_` (n,), with their signs, and `quantiles_` (2, levels).
    Vovk et al. 2005; Lei et al. 2018; the names are MAPIE's, whose `predict_interval` also returns the predictions.
    """

    estimator_: Any
    residual_estimator_: Any
    conformity_scores_: np.ndarray
    quantiles_: np.ndarray

    def __init__(
        self, estimator: Any = None, confidence_level: Any = 0.9, conformity_score: str = "absolute", *,
        residual_estimator: Any = None, side: str = "both", symmetric: bool = True, prefit: bool = False,
        test_size: Any = 0.25, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.residual_estimator = residual_estimator
        self.side = side
        self.symmetric = symmetric
        self.prefit = prefit
        self.test_size = test_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **fit_params: Any) -> SplitConformalRegressor:
        """Fit the regressor to one part of X and y (n,), and its intervals to the other."""
        self._check()
        if self.prefit:
            self._nothing_to_fit(fit_params)
            return self.conformalize(X, y)
        X, y = self._numbers(X, y)
        if self.test_size is None:
            rows, kept = np.arange(len(y)), None
        else:
            rows, kept = split(X, self.test_size, self.random_state)
        self.estimator_ = fitted(self._base(), X, y, rows, **fit_params)
        if self.conformity_score == "normalized":
            self.residual_estimator_ = self._fitted_residuals(X, y, rows, fit_params)
        vars(self).pop("quantiles_", None)
        return self if kept is None else self._calibrated(taken(X, kept), y[kept])

    def conformalize(self, X: Any, y: Any) -> SplitConformalRegressor:
        """Set the intervals by the errors on X and y, which the regressor wasn't fitted to."""
        self._check()
        if self.prefit:
            X, y = self._numbers(X, y)
            self.estimator_, self.residual_estimator_ = self._base(), self.residual_estimator
        else:
            X, y = self._inputs(X), self._numbers(X, y)[1]
        return self._calibrated(X, y)

    def _calibrated(self, X: Any, y: np.ndarray) -> SplitConformalRegressor:
        middle, scale = self._middle_and_scale(X)
        self.conformity_scores_ = s = (y - middle) / scale
        levels = levels_of(self.confidence_level)
        ends = 1 if self.symmetric or self.side != "both" else 2
        if ends == 2:
            below, above = found = tuple(conformal_quantile(end, (1 + levels) / 2) for end in (-s, s))
        elif self.side == "both":
            below = above = found = conformal_quantile(np.abs(s), levels)
        else:
            found = conformal_quantile(s if self.side == "upper" else -s, levels)
            infinite = np.full(len(levels), np.inf)
            below, above = (infinite, found) if self.side == "upper" else (found, infinite)
        warn_if_infinite(found, len(y), levels, "the intervals are infinite", ends)
        self.quantiles_ = np.stack([below, above])
        return self

    def predict_interval(self, X: Any) -> np.ndarray:
        """Lower and upper ends at X: (n, 2), or (n, 2, levels) if `confidence_level` is a list."""
        X = self._inputs(X)
        if not hasattr(self, "quantiles_"):
            raise NotFittedError("call conformalize(X, y) first, with data that the estimator wasn't fitted to")
        middle, scale = self._middle_and_scale(X)
        lower = middle[:, None] - scale[:, None] * self.quantiles_[0]
        upper = middle[:, None] + scale[:, None] * self.quantiles_[1]
        return like_levels(np.stack([lower, upper], axis=1), self.confidence_level)

    def _middle_and_scale(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predictions, and what their errors are divided by."""
        if self.conformity_score == "normalized" and self.residual_estimator_ is None:
            middle, scale = (np.asarray(v, np.float64) for v in self.estimator_.predict(X, return_std=True))
        else:
            middle = points(self.estimator_, X).astype(np.float64)
            if self.conformity_score == "absolute":
                return middle, np.ones(len(middle))
            if self.conformity_score == "gamma":
                return middle, positive(middle, 'predictions, for conformity_score="gamma",')
            scale = points(self.residual_estimator_, X).astype(np.float64)
            scale = scale if self.prefit else np.exp(scale)
        return middle, positive(scale, "standard deviations")

    def _fitted_residuals(self, X: Any, y: np.ndarray, rows: np.ndarray, params: dict[str, Any]) -> Any:
        """What predicts the logarithm of absolute errors; None if the estimator itself knows standard deviations."""
        if self.residual_estimator is None and tells_deviations(self.estimator_):
            return None
        inner, error = taken(X, rows), np.empty(len(rows))
        for train, rest in folds(min(5, len(rows)), inner, y[rows], classifier=False):
            model = fitted(self._base(), X, y, rows[train], **params)
            error[rest] = np.abs(y[rows[rest]] - points(model, taken(inner, rest)))
        mean = float(np.mean(error)) or 1.0
        logs = np.log(np.maximum(error, 1e-3 * mean))  # an error of 0 by chance says nothing about s
        base = self.residual_estimator if self.residual_estimator is not None else type(self)()._base()
        return fitted(base, inner, logs)

    def _check(self) -> None:
        levels_of(self.confidence_level)
        one_of(self.conformity_score, "conformity_score", SCORES)
        one_of(self.side, "side", ("both", "upper", "lower"))
        if self.prefit and self.conformity_score == "normalized" and self.residual_estimator is None:
            if not tells_deviations(self._base()):
                raise ValueError(
                    f'conformity_score="normalized" of a {type(self._base()).__name__} that was fitted before needs a '
                    "residual_estimator that was, too, and predicts the size of errors"
                )


def tells_deviations(estimator: Any) -> bool:
    """Does `predict` take return_std? A pipeline hands it to its last step."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    return hasattr(last, "predict") and "return_std" in signature(last.predict).parameters


def positive(values: np.ndarray, what: str) -> np.ndarray:
    """Numbers above zero."""
    if not np.all(values > 0):
        raise ValueError(f"{what} have to be above 0, got {values[~(values > 0)][0]}")
    return values
