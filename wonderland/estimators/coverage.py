"""How good intervals and sets are: how often they have what is true, how large they are; for all, and by group."""

from __future__ import annotations

from typing import Any

import numpy as np


def regression_coverage_score(y_true: Any, y_intervals: Any, groups: Any = None) -> Any:
    """The part of y (n,) that is inside its interval, ends included; intervals are (n, 2), or (n, 2, levels).

    A number, or (levels,). With `groups` (n,), a label for each sample, a dict with that of each group.

        regression_coverage_score(y, model.predict_interval(X), groups=X["age"] > 60)
    """
    ends, y = _ends(y_intervals), np.asarray(y_true, np.float64)
    if y.shape != ends.shape[:1]:
        raise ValueError(f"y is (n,) and intervals (n, 2), got {y.shape} and {ends.shape}")
    if np.any(np.isnan(y)):
        raise ValueError("y has NaN, which is neither inside of an interval nor outside")
    y = y.reshape(-1, *[1] * (ends.ndim - 2))
    return _means((ends[:, 0] <= y) & (y <= ends[:, 1]), groups)


def regression_mean_width_score(y_intervals: Any, groups: Any = None) -> Any:
    """The mean width of intervals (n, 2), or (n, 2, levels); by group, as in `regression_coverage_score`."""
    ends = _ends(y_intervals)
    return _means(ends[:, 1] - ends[:, 0], groups)


def classification_coverage_score(y_true: Any, y_pred_set: Any, classes: Any = None, groups: Any = None) -> Any:
    """The part of labels y (n,) that are in their sets, bools (n, classes) or (n, classes, levels).

    Labels are 0 to classes - 1, or of `classes`, in the order of the columns. With `groups` (n,) a dict with the
    coverage of each group: `groups=y` is that by class, `groups=sets.sum(axis=1)` that by the size of sets.
    """
    sets, y = _bools(y_pred_set), np.asarray(y_true)
    if y.shape != sets.shape[:1]:
        raise ValueError(f"labels are (n,) and sets (n, classes), got {y.shape} and {sets.shape}")
    names = np.arange(sets.shape[1]) if classes is None else np.asarray(classes)
    same = y[:, None] == names
    if len(names) != sets.shape[1] or not np.all(same.sum(axis=1) == 1):
        raise ValueError(f"labels are one of {sets.shape[1]} classes, {names[:10]}, got {np.unique(y)[:10]}")
    return _means(sets[np.arange(len(y)), np.argmax(same, axis=1)], groups)


def classification_mean_width_score(y_pred_set: Any, groups: Any = None) -> Any:
    """The mean number of classes in sets (n, classes), or (n, classes, levels); by group, if there are."""
    return _means(_bools(y_pred_set).sum(axis=1), groups)


def _means(values: np.ndarray, groups: Any) -> Any:
    if groups is None:
        mean = np.mean(values, axis=0)
        return float(mean) if mean.ndim == 0 else mean
    groups = np.asarray(groups)
    if groups.shape != values.shape[:1]:
        raise ValueError(f"groups have a label for each sample, ({len(values)},), got {groups.shape}")
    return {label: _means(values[groups == label], None) for label in np.unique(groups).tolist()}


def _ends(intervals: Any) -> np.ndarray:
    ends = np.asarray(intervals, np.float64)
    if ends.ndim not in (2, 3) or ends.shape[1] != 2:
        raise ValueError(f"intervals are (n, 2) or (n, 2, levels), got {ends.shape}")
    if np.any(np.isnan(ends)):
        raise ValueError("intervals have NaN: an end that isn't there is -inf or inf")
    return ends


def _bools(sets: Any) -> np.ndarray:
    sets = np.asarray(sets)
    if sets.dtype != bool or sets.ndim not in (2, 3):
        raise ValueError(f"sets are bools (n, classes) or (n, classes, levels), got {sets.dtype} {sets.shape}")
    return sets
