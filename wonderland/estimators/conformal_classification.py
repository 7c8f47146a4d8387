"""Conformal classification: sets of classes that have the true one with a chosen probability."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, indexable

from wonderland.estimators.base import one_of, positive_number, whole_number
from wonderland.estimators.conformal import conformal_quantile, levels_of, like_levels, rank_of, warn_if_infinite
from wonderland.estimators.meta import WrappedClassifier, classes_of, fitted, folds, places, probabilities, split, taken
from wonderland.estimators.set_scores import lac_scores, raps_scores, top_k_scores


class SetClassifier(WrappedClassifier):
    """What is common: scores of probabilities, thresholds, sets."""

    confidence_level: Any
    conformity_score: str
    by_class: bool
    randomized: bool
    allow_empty: bool
    penalty: float
    k_reg: int
    random_state: Any
    seed_: int
    conformity_scores_: np.ndarray
    quantiles_: np.ndarray

    def _scores(self, p: np.ndarray, u: Any) -> np.ndarray:
        """Scores (n, classes) of probabilities, with one random number for each sample."""
        if self.conformity_score == "lac":
            return lac_scores(p)
        if self.conformity_score == "top_k":
            return top_k_scores(p)
        penalty = self.penalty if self.conformity_score == "raps" else 0.0
        return raps_scores(p, u if self.randomized else 1.0, penalty, self.k_reg)

    def _drawn(self, n: int) -> np.ndarray:
        """Random numbers for calibration, and a seed for those of predictions."""
        draw = check_random_state(self.random_state)
        self.seed_ = int(draw.randint(2**31 - 1))
        return draw.uniform(size=n)

    def _within(self, scores: np.ndarray) -> np.ndarray:
        """Are scores (n, classes) small enough? (n, classes, levels)."""
        return scores[:, :, None] <= self.quantiles_

    def _thresholds(self, own: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Quantiles of the true classes' scores: (levels,), or (classes, levels)."""
        levels = levels_of(self.confidence_level)
        if not self.by_class:
            found = conformal_quantile(own, levels)
            warn_if_infinite(found, len(own), levels, "the sets have all classes")
            return found
        groups = [own[labels == k] for k in range(len(self.classes_))]
        found = np.stack([conformal_quantile(group, levels) for group in groups])
        fewest = int(np.argmin([len(group) for group in groups]))
        what = f"class {self.classes_[fewest]} is in all sets"
        warn_if_infinite(found, len(groups[fewest]), levels, what)
        return found

    def _sets(self, inside: np.ndarray, p: np.ndarray) -> np.ndarray:
        if not self.allow_empty:
            empty = ~inside.any(axis=1, keepdims=True)
            best = np.arange(p.shape[1]) == np.argmax(p, axis=1)[:, None]
            inside = inside | (empty & best[:, :, None])
        return like_levels(inside, self.confidence_level)

    def _u(self, p: np.ndarray) -> np.ndarray:
        """A random number for each of probabilities (n, classes), the same for the same ones.

        Other ones get others: if all samples that come alone had the same number, so would their coverage depend on it.
        """
        return np.random.RandomState([self.seed_, zlib.crc32(p.tobytes())]).uniform(size=len(p))

    def _check(self) -> None:
        levels_of(self.confidence_level)
        one_of(self.conformity_score, "conformity_score", ("lac", "aps", "raps", "top_k"))
        positive_number(self.penalty, "penalty", zero=True)
        whole_number(self.k_reg, "k_reg", least=0)


class SplitConformalClassifier(SetClassifier):
    """A classifier with sets of classes that have the true one with probability `confidence_level`.

    One part of the data, 1 - `test_size`, fits the classifier; the other part, n samples, gives the threshold q: the
    ceil((n + 1) level)-th smallest of the scores of their true classes. The set at x has the classes whose score is at
    most q. `conformity_score` is

    - "lac": 1 - p_k. The sets {k: p_k >= gamma} with gamma = 1 - q, the largest threshold that keeps coverage (it isn't
      1 - level); smallest on average, and may be empty;
    - "aps": the probability of all classes likelier than k, and a random part of p_k: sets adapt to x;
    - "raps": the same plus `penalty` for each rank after `k_reg`, for many classes;
    - "top_k": the rank of k, so that all sets have one size.

    Without `randomized` "aps" and "raps" take all of p_k, and cover more than asked where the last rank is often right
    (then the largest score is 1 for many). With `by_class=True` each class has its own threshold, so that the true
    class is in the set with this probability for each class alone. `allow_empty=False` puts the likeliest class into
    sets that would be empty.

        model = SplitConformalClassifier(SVC(probability=True), 0.9, "aps").fit(X, y)
        model.predict_set(X_new)                                # True and False, (n, classes)
        list_sets(model.predict_set(X_new), model.classes_)     # labels

    `prefit=True` takes a classifier that was fitted to other data, and `fit` does what `conformalize` does; with
    `test_size=None` `fit` fits only, and `conformalize` is to follow, as in MAPIE. `predict` is the likeliest class.
    The random numbers of `predict_set` follow from a seed, drawn by `fit`, and from the probabilities at X, so that it
    says the same of the same X each time.

    After `fit`: `estimator_`, `conformity_scores_` (n,), `quantiles_` (levels,) or (classes, levels). Sadinle et al.
    2019; Romano et al. 2020; Angelopoulos et al. 2021; by class, Vovk 2012. MAPIE's names, whose `predict_set` also
    returns the predictions.
    """

    estimator_: Any
    conformity_scores_: np.ndarray
    quantiles_: np.ndarray

    def __init__(
        self, estimator: Any = None, confidence_level: Any = 0.9, conformity_score: str = "lac", *,
        by_class: bool = False, randomized: bool = True, allow_empty: bool = True, penalty: float = 0.1, k_reg: int = 1,
        prefit: bool = False, test_size: Any = 0.25, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.by_class = by_class
        self.randomized = randomized
        self.allow_empty = allow_empty
        self.penalty = penalty
        self.k_reg = k_reg
        self.prefit = prefit
        self.test_size = test_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **fit_params: Any) -> SplitConformalClassifier:
        """Fit the classifier to one part of X and labels y (n,), and the threshold to the other."""
        self._check()
        if self.prefit:
            self._nothing_to_fit(fit_params)
            return self.conformalize(X, y)
        X, y, labels = self._labels(X, y)
        if self.test_size is None:
            rows, kept = np.arange(len(y)), None
        else:
            rows, kept = split(X, self.test_size, self.random_state)
        self.estimator_ = fitted(self._base(), X, y, rows, **fit_params)
        vars(self).pop("quantiles_", None)
        return self if kept is None else self._calibrated(taken(X, kept), labels[kept])

    def conformalize(self, X: Any, y: Any) -> SplitConformalClassifier:
        """Set the threshold by X and labels y, which the classifier wasn't fitted to."""
        self._check()
        if self.prefit:
            self.estimator_ = self._base()
            X, _, labels = self._labels(X, y, classes_of(self.estimator_))
        else:
            X, y = indexable(self._inputs(X), y)
            labels = places(y, self.classes_)
        return self._calibrated(X, labels)

    def _calibrated(self, X: Any, labels: np.ndarray) -> SplitConformalClassifier:
        scores = self._scores(probabilities(self.estimator_, X, self.classes_), self._drawn(len(labels)))
        self.conformity_scores_ = scores[np.arange(len(labels)), labels]
        self.quantiles_ = self._thresholds(self.conformity_scores_, labels)
        return self

    def predict_set(self, X: Any) -> np.ndarray:
        """Which classes are in the sets at X: bools (n, classes), or (n, classes, levels) for a list of levels."""
        p = self.predict_proba(X)
        if not hasattr(self, "quantiles_"):
            raise NotFittedError("call conformalize(X, y) first, with data that the estimator wasn't fitted to")
        return self._sets(self._within(self._scores(p, self._u(p))), p)


class CrossConformalClassifier(SetClassifier):
    """Sets of classes from cross-validation: all of the data fits the models, and all of it finds the threshold.

    With `agg_scores="crossval"` class k is in the set at x if fewer than ceil((n + 1) level) samples i have a score
    below that of k at x, both by the model that was fitted without the fold of i (CV+): the true class is in it with
    probability of at least 1 - 2 alpha for level 1 - alpha, and as a rule of about 1 - alpha. With "mean", MAPIE's
    default, the models' probabilities at x are averaged and compared with the quantile of the scores out of fold,
    without a guarantee. The other parameters are those of `SplitConformalClassifier`; `cv` is a number of folds or a
    splitter that leaves out each sample once.

        CrossConformalClassifier(LogisticRegression(), 0.9, cv=10).fit(X, y).predict_set(X_new)

    `predict` and `predict_proba` are those of a fit to all of the data. Romano, Sesia and Candes 2020.
    """

    labels_: np.ndarray
    fold_: np.ndarray
    conformity_scores_: np.ndarray
    quantiles_: np.ndarray
    estimator_: Any
    estimators_: list[Any]

    def __init__(
        self, estimator: Any = None, confidence_level: Any = 0.9, conformity_score: str = "lac", *, cv: Any = 5,
        agg_scores: str = "crossval", by_class: bool = False, randomized: bool = True, allow_empty: bool = True,
        penalty: float = 0.1, k_reg: int = 1, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.cv = cv
        self.agg_scores = agg_scores
        self.by_class = by_class
        self.randomized = randomized
        self.allow_empty = allow_empty
        self.penalty = penalty
        self.k_reg = k_reg
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **fit_params: Any) -> CrossConformalClassifier:
        """Fit a model without each fold of X and labels y (n,), and one to all."""
        self._check()
        one_of(self.agg_scores, "agg_scores", ("crossval", "mean"))
        X, y, self.labels_ = self._labels(X, y)
        pairs = folds(self.cv, X, y, classifier=True)
        base, u = self._base(), self._drawn(len(y))
        self.estimators_, self.fold_, self.conformity_scores_ = [], np.empty(len(y), int), np.empty(len(y))
        for k, (train, rest) in enumerate(pairs):
            model = fitted(base, X, y, train, **fit_params)
            scores = self._scores(probabilities(model, taken(X, rest), self.classes_), u[rest])
            self.conformity_scores_[rest] = scores[np.arange(len(rest)), self.labels_[rest]]
            self.fold_[rest] = k
            self.estimators_.append(model)
        self.quantiles_ = self._thresholds(self.conformity_scores_, self.labels_)
        self.estimator_ = fitted(base, X, y, **fit_params)
        return self

    def predict_set(self, X: Any) -> np.ndarray:
        """Which classes are in the sets at X: bools (n, classes), or (n, classes, levels) for a list of levels."""
        X = self._inputs(X)
        each = [probabilities(model, X, self.classes_) for model in self.estimators_]
        mean = np.mean(each, axis=0)
        u = self._u(mean)
        if self.agg_scores == "mean":
            return self._sets(self._within(self._scores(mean, u)), mean)
        below = np.zeros(mean.shape, int)  # how many samples have a lower score
        for k, p in enumerate(each):
            scores = self._scores(p, u)
            for c in range(scores.shape[1]):
                there = (self.fold_ == k) & ((self.labels_ == c) | (not self.by_class))
                below[:, c] += np.searchsorted(np.sort(self.conformity_scores_[there]), scores[:, c], side="left")
        levels, count = levels_of(self.confidence_level), np.bincount(self.labels_, minlength=mean.shape[1])
        total = count if self.by_class else np.full(mean.shape[1], len(self.labels_))
        ranks = np.stack([rank_of(int(n), levels) for n in total])  # (classes, levels)
        return self._sets(below[:, :, None] < ranks, mean)


def list_sets(sets: Any, classes: Any) -> list[list[Any]]:
    """The labels in each set: of bools (n, classes), a list of n lists."""
    sets, classes = np.asarray(sets), np.asarray(classes)
    if sets.ndim != 2 or sets.shape[1] != len(classes):
        raise ValueError(f"list_sets: sets are (n, {len(classes)}) for {len(classes)} classes, got {sets.shape}")
    return [classes[row].tolist() for row in sets]
