"""Decisions: from probabilities of classes and costs of mistakes to the action that is expected to cost least.

Costs are a matrix C (actions, classes): C[i, j] is what action i costs when the class is j, so rows are what is
predicted and columns what is true. Usually the actions are the classes; a row more is a way out, such as to ask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import indexable

from wonderland.estimators.meta import WrappedClassifier, classes_of, fitted, ours, places


def expected_cost(probabilities: Any, costs: Any) -> np.ndarray:
    """The expected cost of each action, sum_j C[i, j] p_j: (n, actions) of probabilities (n, classes).

    Probabilities (n,) are those of the second of two classes.
    """
    return _both(probabilities, C := cost_matrix(costs)) @ C.T


def decide(probabilities: Any, costs: Any) -> np.ndarray:
    """The action of least expected cost, argmin_i sum_j C[i, j] p_j: the number of its row, (n,).

        costs = [[0, 10],     # predicted 0: if it is a 1 that costs 10
                 [1, 0]]      # predicted 1: if it is a 0 that costs 1
        decide([[0.92, 0.08], [0.90, 0.10]], costs)             # 0, 1: predict 1 from p = 1 / 11 on

    With C[i, j] = 1 for i != j and 0 otherwise it is the likeliest class. Of equal costs the first row is taken. That
    the decision is the best one needs probabilities that are calibrated. Elkan 2001.
    """
    return np.argmin(expected_cost(probabilities, costs), axis=1)


def decision_threshold(costs: Any) -> float:
    """The p of the second class above which it is the cheaper prediction, for costs (2, 2).

    (C[1, 0] - C[0, 0]) / (C[1, 0] - C[0, 0] + C[0, 1] - C[1, 1]): 1 / 11 for costs (0, 10; 1, 0). Each mistake has to
    cost more than the right answer.
    """
    C = cost_matrix(costs)
    if C.shape != (2, 2):
        raise ValueError(f"decision_threshold: costs are (2, 2), got {C.shape}; for others there is decide")
    false_alarm, miss = C[1, 0] - C[0, 0], C[0, 1] - C[1, 1]
    if false_alarm <= 0 or miss <= 0:
        raise ValueError(
            f"decision_threshold: a mistake costs more than the right answer of that class, costs[1, 0] > costs[0, 0] "
            f"and costs[0, 1] > costs[1, 1], got {C.tolist()}: then one prediction is always the cheaper one"
        )
    return float(false_alarm / (false_alarm + miss))


def cost_matrix(costs: Any, classes: int | None = None) -> np.ndarray:
    """Costs as finite numbers (actions, classes)."""
    C = np.asarray(costs, np.float64)
    if C.ndim != 2 or not C.size or (classes is not None and C.shape[1] != classes):
        raise ValueError(
            f"costs have a row for each action and a column for each true class, "
            f"(actions, {'classes' if classes is None else classes}), got shape {C.shape}"
        )
    if not np.all(np.isfinite(C)):
        raise ValueError(f"costs are finite numbers, got {C[~np.isfinite(C)][0]}")
    return C


def _both(probabilities: Any, C: np.ndarray) -> np.ndarray:
    """Probabilities (n, classes), checked."""
    p = np.asarray(probabilities)
    if p.dtype.kind != "f" or p.ndim not in (1, 2):
        raise ValueError(f"probabilities are floats (n, classes) or (n,), got {p.dtype} {p.shape}")
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    if p.shape[1] != C.shape[1]:
        raise ValueError(f"costs have a column for each class: {C.shape[1]}, but probabilities are {p.shape}")
    if not np.all((p >= -1e-6) & (p <= 1 + 1e-6)):
        raise ValueError("probabilities are between 0 and 1: of scores, CalibratedClassifierCV makes probabilities")
    total = p.sum(axis=1)
    if not np.all(np.abs(total - 1) < 1e-2):
        raise ValueError(
            f"probabilities of a sample's classes sum to 1, got {total[np.argmax(np.abs(total - 1))]:g}: "
            "divide them, p / p.sum(axis=1, keepdims=True)"
        )
    return p


class CostSensitiveClassifier(WrappedClassifier):
    """A classifier whose `predict` is the action that is expected to cost least.

    `costs[i, j]` is what predicting the i-th class costs when the j-th is true, with classes in the order of
    `classes_`; without costs all mistakes cost the same. Where predictions aren't just the classes, `actions` names
    them, one for each row; here the last row costs half of a mistake whatever is true, and is "ask":

        model = CostSensitiveClassifier(CalibratedClassifierCV(SVC()), [[0, 10], [1, 0], [0.5, 0.5]],
                                        actions=["healthy", "ill", "ask"])
        model.fit(X, y).predict(X_new)

    The probabilities come from `estimator` (without one, `LogisticRegression`), fitted here, or before and taken as it
    is with `prefit=True`; they should be calibrated. `decision_function` is the negative expected cost of each action,
    or for two of them how much less the second is expected to cost. `score` is the accuracy, or with `actions`, which
    may be no classes, minus the mean cost. Elkan 2001; with a reject option, Chow 1970.
    """

    estimator_: Any
    actions_: np.ndarray
    costs_: np.ndarray

    def __init__(
        self, estimator: Any = None, costs: Any = None, *, actions: Any = None, prefit: bool = False
    ) -> None:
        self.estimator = estimator
        self.costs = costs
        self.actions = actions
        self.prefit = prefit

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CostSensitiveClassifier:
        """Fit the classifier to X (n, features) and labels y (n,); weights go to it."""
        base = self._base()
        X, y, _ = self._labels(X, y, classes_of(base) if self.prefit else None)
        classes = len(self.classes_)
        self.costs_ = 1 - np.eye(classes) if self.costs is None else cost_matrix(self.costs, classes)
        self.actions_ = self.classes_ if self.actions is None else np.asarray(self.actions)
        if self.actions_.shape != (len(self.costs_),):
            raise ValueError(
                f"costs have {len(self.costs_)} rows, but there are {self.actions_.size} "
                f"{'classes' if self.actions is None else 'actions'}: name what each row is, "
                f"actions=[{', '.join(repr(str(c)) for c in self.classes_[:2])}, ..., 'ask']"
            )
        params = {} if sample_weight is None else {"sample_weight": sample_weight}
        if self.prefit:
            self._nothing_to_fit(params)
        self.estimator_ = base if self.prefit else fitted(base, X, y, **params)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Negative expected costs (n, actions), or (n,), above zero where the second of two actions is the cheaper."""
        cost = self.predict_cost(X)
        return cost[:, 0] - cost[:, 1] if cost.shape[1] == 2 else -cost

    def predict_cost(self, X: Any) -> np.ndarray:
        """The expected cost of each action at X: (n, actions)."""
        p = self.predict_proba(X)
        return expected_cost(p, self.costs_)

    def predict(self, X: Any) -> np.ndarray:
        """The action that is expected to cost least, at each of X: (n,)."""
        best = np.argmin(self.predict_cost(X), axis=1)
        return self.actions_[best]

    def mean_cost(self, X: Any, y: Any) -> float:
        """What the decisions at X cost on average, now that the classes y are known."""
        X, y = indexable(X, y)
        best = np.argmin(self.predict_cost(X), axis=1)
        return float(np.mean(self.costs_[best, places(y, self.classes_)]))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy at X, whose classes are y; with `actions`, minus what the decisions cost on average."""
        if self.actions is None:
            return super().score(X, y, sample_weight)
        X, y = indexable(X, y)
        best = np.argmin(self.predict_cost(X), axis=1)
        return -float(np.average(self.costs_[best, places(y, self.classes_)], weights=sample_weight))

    def _score_name(self) -> str:
        return "accuracy" if self.actions is None else "minus the mean cost"

    def _apply(self, X: Any) -> Any:
        cost = ours(self.estimator_)._outputs(X) @ self.costs_.T
        return cost[:, 0] - cost[:, 1] if cost.shape[1] == 2 else -cost
