"""Samples without a best fit: coefficients that would grow for ever, found and named.

Where a likelihood has no maximum, methods end because it is flat far out. There a step of Newton still moves the
predictors by about 1, however far it has come: along its direction the loss of every sample falls.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from wonderland.estimators.smooth.auto import MOST_PARAMETERS
from wonderland.estimators.smooth.hessian import newton_steps
from wonderland.estimators.smooth.problem import SmoothProblem

FAR = 8.0  # predictors, in log-odds or logarithms, that a maximum far out has
STEP = 0.1  # of predictors, after a gradient was found flat
NAMED = 4  # features


def warn_of_separation(model: Any, problem: SmoothProblem, w: np.ndarray, labels: np.ndarray) -> None:
    """Warn where a direction tells classes apart without a mistake: further along it, the likelihood only grows."""
    direction, change = runaway(problem, w)
    if direction is None:
        return
    if change.ndim == 1:
        ahead = np.where(labels == 1, change, -change)
    else:
        own = change[np.arange(len(labels)), labels]
        others = np.where(np.arange(change.shape[1]) == labels[:, None], -np.inf, change)
        ahead = own - others.max(axis=1)
    if ahead.min() < -0.01 * ahead.max():
        return
    whole = "all samples" if ahead.min() > 0.01 * ahead.max() else "some samples (others lie on the border)"
    _warn(
        f"{type(model).__name__} without a penalty has no best coefficients here: a direction separates the classes of "
        f"{whole} perfectly, {_named(model, problem, direction)}. Coefficients along it would grow for ever, and end "
        "where the gradient is below tol. Give it a penalty (C=1.0)."
    )


def warn_of_runaway(model: Any, problem: SmoothProblem, w: np.ndarray) -> None:
    """Warn where the likelihood of a generalised linear model has no maximum."""
    direction, _ = runaway(problem, w)
    if direction is not None:
        _warn(
            f"{type(model).__name__} without a penalty has no best coefficients here: along a direction, "
            f"{_named(model, problem, direction)}, means go to a limit that they never reach, such as 0. "
            "Give it a penalty (alpha=1e-3), or leave these features out."
        )


def runaway(problem: SmoothProblem, w: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The direction in which parameters run away, or None, and how predictors change along it, like eta."""
    point = problem.at(w)
    none = np.zeros(0)
    if w.size > MOST_PARAMETERS or not np.abs(point.eta).max() > FAR:
        return None, none
    direction = -newton_steps(problem)(point)(point.gradient)
    change = problem.times(direction[: problem.p]) + np.sum(direction[problem.p :], axis=0)
    return (direction, change) if np.abs(change).max() > STEP else (None, none)


def _named(model: Any, problem: SmoothProblem, direction: np.ndarray) -> str:
    """The features that count most along a direction, with their shares of its length."""
    share = direction[: problem.p].reshape(problem.p, -1) * problem.X.std(axis=0)[:, None]
    length = float(np.linalg.norm(share))
    if length <= 1e-3 * float(np.linalg.norm(direction[problem.p :])):
        return "of the intercept"
    share = share / length
    size = np.linalg.norm(share, axis=1)
    names = getattr(model, "feature_names_in_", None)
    told = []
    for j in np.argsort(-size)[:NAMED]:
        if size[j] >= 0.05 or not told:
            name = f"feature {j}" if names is None else str(names[j])
            told.append(f"{name} ({share[j, 0]:+.2f})" if share.shape[1] == 1 else f"{name} ({size[j]:.2f})")
    return "of " + ", ".join(told)


def _warn(message: str) -> None:
    warnings.warn(message, ConvergenceWarning, stacklevel=4)
