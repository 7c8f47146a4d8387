"""Logistic regression: two classes by the logistic function, more by softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.estimators.base import positive_number
from wonderland.estimators.linear_classifier import LinearClassifier
from wonderland.implicit.sets.proximal import prox_l1
from wonderland.transform.derivatives import stop_gradient


def logistic_loss(eta: Any, y: Any) -> Any:
    """-log p(y) of y in {0, 1}, with log-odds eta (n,): log(1 + exp(eta)) - y eta."""
    return np.logaddexp(0.0, eta) - y * eta


def softmax_loss(eta: Any, y: Any) -> Any:
    """-log p(y) of one-hot y, with logits eta, both (n, classes): logsumexp(eta) - y' eta."""
    top = stop_gradient(np.max(eta, axis=1, keepdims=True))
    return top[:, 0] + np.log(np.sum(np.exp(eta - top), axis=1)) - np.sum(y * eta, axis=1)


class LogisticRegression(LinearClassifier):
    """Classes with probabilities softmax(W x + b), of two classes the logistic function of w' x + b.

    `fit` minimises, over samples i with weights s_i,

        sum_i s_i (-log p(y_i | x_i)) + (1 - l1_ratio)/(2 C) |W|^2 + l1_ratio/C |W|_1

    as scikit-learn's, so coefficients agree. `C=np.inf` is no penalty. Derivatives of the loss are those of
    `wl.jvp` and `wl.grad`, compiled.

        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
        model.predict_proba(X)                                  # (n, classes)

    Parameters: `class_weight` multiplies the weights of a class, by a dict {class: weight} or so that all classes count
    alike ("balanced"). `solver` is "newton-cholesky" (a factorised Hessian), "newton-cg" (products with the Hessian),
    "lbfgs", or "auto", which starts with a part of many samples, goes on with L-BFGS preconditioned by its Hessian, and
    leaves hard or small problems to Newton. It ends when no derivative of the mean objective is larger than `tol`, of
    columns smaller than 1 in their units.

    An l1 penalty makes coefficients exactly zero; it is minimised by proximal Newton steps ("auto").

    Fitted: `coef_` (1, features) of two classes, (classes, features) of more; `intercept_`, `classes_`, `n_iter_`,
    `covariance_`. With more than two classes all have coefficients, and those without a penalty sum to zero.

    Classes that a plane separates have no best coefficients without a penalty: they grow for ever. A
    `ConvergenceWarning` then names the direction.
    """

    NUMBERS = ("C", "l1_ratio")

    def __init__(
        self, *, C: float = 1.0, l1_ratio: float = 0.0, fit_intercept: bool = True, class_weight: Any = None,
        solver: str = "auto", max_iter: int = 100, tol: float = 1e-4, warm_start: bool = False,
    ):  # fmt: skip
        self.C = C
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start

    def _loss(self, classes: int) -> Callable[[Any, Any], Any]:
        return logistic_loss if classes == 2 else softmax_loss

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LogisticRegression:
        """Fit to X (n, features) and classes y (n,); a weight of 2 counts a sample twice, 0 leaves it out."""
        if positive_number(self.l1_ratio, "l1_ratio", zero=True) > 1:
            raise ValueError(f"l1_ratio is between 0 and 1, got {self.l1_ratio!r}")
        return super().fit(X, y, sample_weight)

    def _penalties(self, **hyper: Any) -> tuple[Any, Any]:
        C, ratio = hyper.get("C", self.C), hyper.get("l1_ratio", self.l1_ratio)
        return ratio / C, (1 - ratio) / C

    def _optimality(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> tuple[Any, Any]:
        slope, of_intercept = super()._optimality(coef, intercept, X, y, weight, **hyper)
        if "l1_ratio" not in hyper and self.l1_ratio == 0:
            return slope, of_intercept
        l1, step = self._penalties(**hyper)[0], 1 / np.sum(weight)
        return coef - prox_l1(coef - step * slope, step * l1), of_intercept
