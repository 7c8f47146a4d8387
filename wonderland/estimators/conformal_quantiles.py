"""Conformalized quantile regression: intervals between two regressed quantiles, shifted until they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from wonderland.core.forks import loading
from wonderland.estimators.conformal import conformal_quantile, levels_of, warn_if_infinite
from wonderland.estimators.meta import WrappedRegressor, fitted, points, split, taken


class ConformalizedQuantileRegressor(WrappedRegressor):
    """Intervals between quantiles of y given x, made right: as wide as the noise is at x, and with exact coverage.

    `estimator` regresses a quantile: it has a parameter `quantile`, or `alpha` with loss (or objective) "quantile",
    also as the last step of a pipeline. Copies are fitted to one part of the data at the quantiles alpha / 2,
    1 - alpha / 2 and 1/2, for alpha = 1 - `confidence_level`. On the other part, n samples, the scores

        E_i = max(lower(x_i) - y_i, y_i - upper(x_i))

    say by how much y was outside (or, negative, inside), and both ends move by q = `conformal_quantile` of them:
    [lower(x) - q, upper(x) + q]. With `symmetric=False` each end moves by its own, at level 1 - alpha / 2. Ends that
    would cross meet in the middle.

        model = ConformalizedQuantileRegressor(GradientBoostingRegressor(loss="quantile"), 0.9).fit(X, y)
        lower, upper = model.predict_interval(X_new).T

    Without an estimator it is `QuantileRegressor(alpha=0)`. With `prefit=True` the estimator is a list of those for the
    lower, the upper quantile and the median, fitted to other data; `test_size=None` leaves `conformalize` to you.
    `predict` is the median. After `fit`: `estimators_` (lower, upper, median), `conformity_scores_` (2, n), how far y
    was below the lower and above the upper quantile, `quantiles_` (2,). Romano et al. 2019; the name is MAPIE's.
    """

    estimator_: Any
    estimators_: list[Any]
    conformity_scores_: np.ndarray
    quantiles_: np.ndarray

    def __init__(
        self, estimator: Any = None, confidence_level: float = 0.9, *, symmetric: bool = True, prefit: bool = False,
        test_size: Any = 0.25, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.symmetric = symmetric
        self.prefit = prefit
        self.test_size = test_size
        self.random_state = random_state

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        with loading():
            from wonderland.estimators import QuantileRegressor
        return QuantileRegressor(alpha=0)  # its own default is a penalty that leaves little of x

    def fit(self, X: Any, y: Any, **fit_params: Any) -> ConformalizedQuantileRegressor:
        """Fit quantiles to one part of X and y (n,), and their shifts to the other."""
        level = self._level()
        if self.prefit:
            self._nothing_to_fit(fit_params)
            return self.conformalize(X, y)
        X, y = self._numbers(X, y)
        if self.test_size is None:
            rows, kept = np.arange(len(y)), None
        else:
            rows, kept = split(X, self.test_size, self.random_state)
        base = self._base()
        self.estimators_ = [
            fitted(at_quantile(base, q), X, y, rows, **fit_params) for q in ((1 - level) / 2, (1 + level) / 2, 0.5)
        ]
        self.estimator_ = self.estimators_[2]
        vars(self).pop("quantiles_", None)
        return self if kept is None else self._calibrated(taken(X, kept), y[kept])

    def conformalize(self, X: Any, y: Any) -> ConformalizedQuantileRegressor:
        """Set the shifts by how far y was outside at X, samples that the quantiles weren't fitted to."""
        self._level()
        if self.prefit:
            if not isinstance(self.estimator, (list, tuple)) or len(self.estimator) != 3:
                raise ValueError(
                    "with prefit=True, estimator is a list of three: fitted to the lower quantile, the upper and 0.5"
                )
            X, y = self._numbers(X, y)
            self.estimators_, self.estimator_ = [*self.estimator], self.estimator[2]
        else:
            X, y = self._inputs(X), self._numbers(X, y)[1]
        return self._calibrated(X, y)

    def _calibrated(self, X: Any, y: np.ndarray) -> ConformalizedQuantileRegressor:
        level = self._level()
        lower, upper = self._quantiles(X)
        self.conformity_scores_ = np.stack([lower - y, y - upper])
        scores = np.max(self.conformity_scores_, axis=0, keepdims=True) if self.symmetric else self.conformity_scores_
        own = level if self.symmetric else (1 + level) / 2
        self.quantiles_ = np.broadcast_to(conformal_quantile(scores, own), (2,)).copy()
        warn_if_infinite(self.quantiles_, len(y), np.array([level]), "the intervals are infinite", len(scores))
        return self

    def predict_interval(self, X: Any) -> np.ndarray:
        """Lower and upper ends at X: (n, 2)."""
        X = self._inputs(X)
        if not hasattr(self, "quantiles_"):
            raise NotFittedError("call conformalize(X, y) first, with data that the estimator wasn't fitted to")
        lower, upper = self._quantiles(X)
        ends = np.stack([lower - self.quantiles_[0], upper + self.quantiles_[1]], axis=1)
        crossed = ends[:, 0] > ends[:, 1]
        ends[crossed] = ends[crossed].mean(axis=1, keepdims=True)
        return ends

    def _quantiles(self, X: Any) -> list[np.ndarray]:
        return [points(model, X).astype(np.float64) for model in self.estimators_[:2]]

    def _level(self) -> float:
        if np.ndim(self.confidence_level):
            raise ValueError(
                f"confidence_level is one number, since quantiles are fitted for it, got {self.confidence_level!r}"
            )
        return float(levels_of(self.confidence_level)[0])


def at_quantile(estimator: Any, quantile: float) -> Any:
    """A clone that regresses a quantile."""
    model: Any = clone(estimator)
    params = model.get_params()
    last = f"{estimator.steps[-1][0]}__" if hasattr(estimator, "steps") else ""
    loss = {params[last + name] for name in ("loss", "objective") if last + name in params}
    if f"{last}quantile" in params and (not loss or "quantile" in loss):
        return model.set_params(**{f"{last}quantile": quantile})
    if f"{last}alpha" in params and "quantile" in loss:
        return model.set_params(**{f"{last}alpha": quantile})
    raise ValueError(
        f"{type(estimator).__name__} isn't set to regress a quantile: it takes a parameter quantile, or alpha with "
        f'loss="quantile", as in GradientBoostingRegressor(loss="quantile")'
    )
