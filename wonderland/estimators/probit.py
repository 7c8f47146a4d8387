"""Probit regression: two classes by the normal distribution function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from wonderland.estimators.linear_classifier import LinearClassifier


def probit_loss(eta: Any, y: Any) -> Any:
    """-log p(y) of y in {0, 1}, p(1) the standard normal distribution function of eta; exact in both tails."""
    return -(y * log_ndtr(eta) + (1 - y) * log_ndtr(-eta))


class ProbitClassifier(LinearClassifier):
    """Two classes, the second with probability Phi(w' x + b), Phi the standard normal distribution function.

    As if y were 1 where w' x + b + noise is above zero, with Gaussian noise of variance 1 (of logistic regression it
    has the logistic distribution). `fit` minimises sum_i s_i (-log p(y_i | x_i)) + |w|^2 / (2 C).

        ProbitClassifier(C=np.inf).fit(X, y).predict_proba(X)   # (n, 2)

    Parameters and fitted attributes are those of `LogisticRegression`. Far out, where Phi rounds to 0 or 1, the loss
    and `predict_log_proba` stay exact. C. I. Bliss, The method of probits (1934).
    """

    def __init__(
        self, *, C: float = 1.0, fit_intercept: bool = True, class_weight: Any = None, solver: str = "auto",
        max_iter: int = 100, tol: float = 1e-4, warm_start: bool = False,
    ):  # fmt: skip
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start

    def _loss(self, classes: int) -> Callable[[Any, Any], Any]:
        if classes > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"ProbitClassifier got {classes} classes; use LogisticRegression"
            )
        return probit_loss

    def _probabilities(self, scores: Any) -> Any:
        return np.stack([ndtr(-scores), ndtr(scores)], axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities, of tails that underflow too."""
        scores = self.decision_function(X)
        return np.stack([log_ndtr(-scores), log_ndtr(scores)], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
