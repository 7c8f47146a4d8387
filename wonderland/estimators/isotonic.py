"""Isotonic regression: the non-decreasing sequence that is nearest to numbers, and the function through it."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.base import Regressor, one_of, weights


def isotonic_regression(
    y: Any, *, sample_weight: Any = None, y_min: float | None = None, y_max: float | None = None,
    increasing: bool = True,
) -> np.ndarray:  # fmt: skip
    """The z_1 <= z_2 <= ... <= z_n that minimise sum_i w_i (z_i - y_i)^2, for y (n,); with `increasing=False`, >=.

    Neighbours that are in the wrong order are pooled, that is replaced by their mean, until none are (Ayer et al.
    1955), in time proportional to n. Weights are above zero. `y_min` and `y_max` bound the result.

        isotonic_regression([1, 3, 2, 4])                       # 1, 2.5, 2.5, 4
    """
    y = np.asarray(y)
    dtype = y.dtype if y.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    y = y.astype(np.float64)
    if y.ndim != 1 or not len(y) or not np.all(np.isfinite(y)):
        raise ValueError(f"isotonic_regression: y are finite numbers (n,), n of at least 1, got shape {y.shape}")
    given = weights(sample_weight, y)
    weight = np.ones(len(y)) if given is None else given
    if np.any(weight == 0):
        raise ValueError("isotonic_regression: weights are above zero; leave the others out: y[weight > 0]")
    order = slice(None, None, 1 if increasing else -1)
    return np.clip(_pooled(y[order], weight[order])[order], y_min, y_max).astype(dtype)


def _pooled(y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The solution for increasing sequences: blocks with their sums, weights and starts."""
    total, start = weight * y, np.arange(len(y))
    while True:
        mean = total / weight
        first = np.flatnonzero(np.concatenate([[True], mean[1:] >= mean[:-1]]))
        merged = len(mean) - len(first)
        if not merged:
            return np.repeat(mean, np.diff(start, append=len(y)))
        total, weight, start = np.add.reduceat(total, first), np.add.reduceat(weight, first), start[first]
        if 8 * merged < len(mean):  # such passes might be as many as n; one walk with a stack does the rest
            total, weight, start = _walk(total, weight, start)


def _walk(*blocks: np.ndarray) -> tuple[np.ndarray, ...]:
    """Take blocks one by one, and pool the last ones as long as they are in the wrong order."""
    done: list[tuple[float, float, int]] = []
    for total, weight, start in zip(*(block.tolist() for block in blocks), strict=True):
        while done and total / weight < done[-1][0] / done[-1][1]:
            before = done.pop()
            total, weight, start = total + before[0], weight + before[1], before[2]
        done.append((total, weight, start))
    totals, sums, starts = zip(*done, strict=True)
    return np.array(totals), np.array(sums), np.array(starts)


class IsotonicRegression(Regressor):
    """A non-decreasing function of one feature, nearest to the data: y = f(x), of x (n,) or (n, 1).

    Between the x of the data it is linear. Samples of the same x are replaced by their mean first. scikit-learn's,
    but for what is beyond the data: here that gets the value at the end (`out_of_bounds="clip"`), unless it is to be
    "nan" or to "raise". `increasing` may be False, or "auto": the sign of Spearman's rank correlation.

        model = IsotonicRegression().fit(scores, happened)
        model.predict([0.2, 0.7])

    After `fit`: `X_thresholds_` and `y_thresholds_`, the corners of f; `X_min_`, `X_max_`; `increasing_`.
    """

    increasing_: bool
    X_min_: Any
    X_max_: Any
    X_thresholds_: np.ndarray
    y_thresholds_: np.ndarray

    def __init__(
        self, *, y_min: float | None = None, y_max: float | None = None, increasing: Any = True,
        out_of_bounds: str = "clip",
    ) -> None:  # fmt: skip
        self.y_min = y_min
        self.y_max = y_max
        self.increasing = increasing
        self.out_of_bounds = out_of_bounds

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> IsotonicRegression:
        """Fit to x (n,) or (n, 1) and y (n,)."""
        one_of(self.out_of_bounds, "out_of_bounds", ("clip", "nan", "raise"))
        one_of(self.increasing, "increasing", (True, False, "auto"))
        X, y, weight = self._training_data(_column(X), y, sample_weight)
        if X.shape[1] != 1:
            raise ValueError(f"IsotonicRegression is a function of one feature, X (n,) or (n, 1), got {X.shape}")
        x, weight = X[:, 0], np.ones(len(X), X.dtype) if weight is None else weight
        there = weight > 0
        x, y, weight = x[there], y[there], weight[there]
        self.increasing_ = _rises(x, y, weight) if self.increasing == "auto" else bool(self.increasing)
        corners, place = np.unique(x, return_inverse=True)
        sums = np.bincount(place, weight)
        means = np.bincount(place, weight * y) / sums
        fitted = isotonic_regression(
            means, sample_weight=sums, y_min=self.y_min, y_max=self.y_max, increasing=self.increasing_
        )
        corner = np.ones(len(corners), bool)  # inside of a constant piece there is none
        corner[1:-1] = (fitted[1:-1] != fitted[:-2]) | (fitted[1:-1] != fitted[2:])
        self.X_min_, self.X_max_ = corners[0], corners[-1]
        self.X_thresholds_, self.y_thresholds_ = corners[corner], fitted[corner].astype(x.dtype)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """`predict`, for a step of a pipeline."""
        return self.predict(X)

    def _inputs(self, X: Any) -> np.ndarray:
        X = super()._inputs(_column(X))
        outside = (X < self.X_min_) | (X > self.X_max_)
        if self.out_of_bounds == "raise" and np.any(outside):
            raise ValueError(f"x is between {self.X_min_} and {self.X_max_} as in fit, got {X[outside][0]}")
        return X

    def _apply(self, X: Any) -> Any:
        x = X.reshape(-1)
        y = np.interp(x, self.X_thresholds_, self.y_thresholds_)
        if self.out_of_bounds == "nan":
            y = np.where((x < self.X_min_) | (x > self.X_max_), np.nan, y)
        return y.astype(self.X_thresholds_.dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        return tags


def _column(X: Any) -> Any:
    """(n,) as (n, 1); all else as it is."""
    return np.reshape(X, (-1, 1)) if np.ndim(X) == 1 else X


def _rises(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> bool:
    """Is Spearman's correlation of the ranks above zero, where a sample of weight 2 is two?"""
    return bool(np.sum(weight * _ranks(x, weight) * _ranks(y, weight)) >= 0)


def _ranks(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weight of all that is smaller, and half of that of equals; less half of all, so that they are around zero."""
    place = np.unique(values, return_inverse=True)[1]
    equals = np.bincount(place, weight)
    up_to = np.cumsum(equals)
    return (up_to - up_to[-1] / 2 - equals / 2)[place]
