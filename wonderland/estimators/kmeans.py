"""k-means: points come in, the centres of their clusters go out, and for each point the cluster it is in."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_random_state, check_scalar, validate_data

from wonderland.estimators.base import FLOATS, Estimator, positive_number, weights
from wonderland.estimators.contract import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from wonderland.estimators.distances import blocks, nearest, squared_norms
from wonderland.estimators.lloyd import inertia, lloyd, sums
from wonderland.estimators.seeding import at_random, plus_plus
from wonderland.nn.arguments import power

STARTS = {"k-means++": (plus_plus, 1), "random": (at_random, 10)}  # how to draw, and how often if n_init="auto"


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, Estimator):
    """k centres c, such that points are near to the nearest of them: a local minimum of the inertia

        sum_i w_i min_k |x_i - c_k|^2

    by Lloyd's iterations: each point goes to its nearest centre, each centre to the mean of its points, until the
    clusters stay as they are, or the centres move by less than `tol`, in units of the mean variance of the features.

        model = KMeans(10, random_state=0).fit(embeddings)         # (n, features)
        model.labels_                                              # (n,): the cluster of each
        model.predict(others), model.transform(others)             # clusters, distances (m, 10) to all centres

    It starts at points drawn by k-means++, at points drawn "random", or at an array `init` (n_clusters, features). Of
    `n_init` starts the best end is kept: "auto" is 1, and 10 of random ones. A cluster that loses all of its points
    gets the one that is farthest from its centre. With fewer different points than clusters, some centres are equal,
    and a ConvergenceWarning says so. Weights are counts: a point of weight 2 is two points, one of weight 0 is none.

    `partial_fit` goes on with a batch of points, as if they came after all the others: centres are means of what has
    come to them (D. Sculley, Web-scale k-means clustering, 2010).

    Fitted: `cluster_centers_` (n_clusters, features), `labels_`, `inertia_`, `n_iter_`, `loss_history_` (the inertia
    before each step), `cluster_weights_`, (n_clusters,): what is in each. S. Lloyd, Least squares quantization in
    PCM, 1982.
    """

    cluster_centers_: Any
    labels_: np.ndarray
    inertia_: float
    loss_history_: np.ndarray
    n_iter_: int
    cluster_weights_: np.ndarray

    def __init__(
        self, n_clusters: int = 8, *, init: Any = "k-means++", n_init: int | str = "auto", max_iter: int = 300,
        tol: float = 1e-4, random_state: Any = None,
    ):  # fmt: skip
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KMeans:
        """Find the clusters of X (n, features), with weights (n,)."""
        X, every = self._points(X, sample_weight)
        check_scalar(self.max_iter, "max_iter", numbers.Integral, min_val=1)
        present = every > 0
        points, weight = (X, every) if np.all(present) else (X[present], every[present])
        middle = weight @ points / np.sum(weight)  # around zero, products of points have all digits
        points = np.subtract(points, middle, order="C")
        variance = weight @ squared_norms(points) / (np.sum(weight) * X.shape[1])  # the features' mean
        stop = positive_number(self.tol, "tol", zero=True) * variance
        rng = check_random_state(self.random_state)
        runs = [
            lloyd(points, start, weight, self.max_iter, stop) for start in self._starts(points, weight, middle, rng)
        ]
        best = runs[0]
        if len(runs) > 1:
            ends = [inertia(points, c, nearest(points, c)[0], weight) for c, *_ in runs]
            best = runs[np.argmax(ends <= (1 + 1e-6) * np.min(ends))]  # the first, not another rounding of its inertia
        self.cluster_centers_ = best.centres + middle
        self.labels_ = self._nearest(X)
        self.inertia_ = inertia(X, self.cluster_centers_, self.labels_, every)
        self.loss_history_, self.n_iter_ = best.history, len(best.history)
        self.cluster_weights_ = np.bincount(self.labels_, every, self.n_clusters)
        self._warn(best.converged)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KMeans:
        """Go on with a batch X (n, features); the first has at least `n_clusters` points, where it starts."""
        first = not hasattr(self, "cluster_centers_")
        X, weight = self._points(X, sample_weight, first)
        if first:
            middle = weight @ X / np.sum(weight)
            points, rng = np.subtract(X, middle, order="C"), check_random_state(self.random_state)
            self.cluster_centers_ = next(self._starts(points, weight, middle, rng)) + middle
            self.cluster_weights_ = np.zeros(self.n_clusters)
            self.n_iter_ = 0
        if self.n_clusters != len(self.cluster_centers_):
            raise ValueError(
                f"partial_fit goes on with {len(self.cluster_centers_)} clusters, and n_clusters is now "
                f"{self.n_clusters}: for other clusters call fit"
            )
        labels = self._nearest(X)
        found, counts = sums(X - self.cluster_centers_[labels], labels, weight, self.n_clusters)
        self.cluster_weights_ = self.cluster_weights_ + counts
        steps = found / np.where(self.cluster_weights_ > 0, self.cluster_weights_, 1)[:, None]
        self.cluster_centers_ = self.cluster_centers_ + steps.astype(X.dtype)
        self.labels_ = self._nearest(X)
        self.inertia_ = inertia(X, self.cluster_centers_, self.labels_, weight)
        self.n_iter_ += 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each of X: (n,), the number of the nearest centre."""
        return self._nearest(self._inputs(X))

    def transform(self, X: Any) -> np.ndarray:
        """Distances of X to the centres: (n, n_clusters)."""
        X = self._inputs(X)
        far = np.empty((len(X), len(self.cluster_centers_)), X.dtype)
        for rows in blocks(len(X), X.shape[1]):
            for k, centre in enumerate(self.cluster_centers_):
                far[rows, k] = np.sqrt(squared_norms(X[rows] - centre))
        return far

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X: the larger the better."""
        X = self._inputs(X)
        weight = weights(sample_weight, X)
        weight = np.ones(len(X), X.dtype) if weight is None else weight
        return -inertia(X, self.cluster_centers_, self._nearest(X), weight)

    def _score_name(self) -> str:
        return "minus the mean inertia"

    def _scored(self, model: Any, X: Any, y: Any = None) -> float:
        return float(model.score(X)) / len(X)

    @property
    def _n_features_out(self) -> int:  # scikit-learn names what `transform` gives: kmeans0, kmeans1, ...
        return len(self.cluster_centers_)

    def _apply(self, X: Any) -> Any:
        """The distances of `transform`; where one is zero, its derivative is, too."""
        return power(np.sum((X[:, None, :] - self.cluster_centers_) ** 2, axis=2), 0.5)

    def _nearest(self, X: np.ndarray) -> np.ndarray:
        middle = np.mean(self.cluster_centers_, axis=0)
        return nearest(np.subtract(X, middle, order="C"), self.cluster_centers_ - middle)[0]

    def _points(self, X: Any, sample_weight: Any, reset: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """X (n, features), and its weights (n,); a fit has at least n_clusters points with a weight."""
        X = validate_data(self, X, dtype=FLOATS, reset=reset)
        weight = weights(sample_weight, X)
        count = len(X) if weight is None else np.count_nonzero(weight)
        if reset and count < check_scalar(self.n_clusters, "n_clusters", numbers.Integral, min_val=1):
            raise ValueError(
                f"n_samples={count}{'' if weight is None else ' with weights above zero'} should be >= "
                f"n_clusters={self.n_clusters}: take fewer clusters"
            )
        return X, np.ones(len(X), X.dtype) if weight is None else weight

    def _starts(
        self, points: np.ndarray, weight: np.ndarray, middle: np.ndarray, rng: np.random.RandomState
    ) -> Iterator[np.ndarray]:
        """Centres to begin with, of points around `middle`."""
        if isinstance(self.init, str):
            if self.init not in STARTS:
                raise ValueError(f"init is 'k-means++', 'random' or an array of centres, got {self.init!r}")
            draw, often = STARTS[self.init]
            count = often if self.n_init == "auto" else check_scalar(self.n_init, "n_init", numbers.Integral, min_val=1)
            for _ in range(count):
                yield draw(points, self.n_clusters, weight, rng)
            return
        centres = check_array(self.init, input_name="init").astype(points.dtype)
        expected = (self.n_clusters, points.shape[1])
        if centres.shape != expected:
            raise ValueError(f"init has a centre for each cluster, shape {expected}, got {centres.shape}")
        if self.n_init not in ("auto", 1):
            warnings.warn(
                f"init is an array, so there is one start, and n_init={self.n_init} isn't needed", RuntimeWarning, 3
            )
        yield centres - middle

    def _warn(self, converged: bool) -> None:
        found = len(np.unique(self.labels_))
        if found < self.n_clusters:
            warnings.warn(
                f"KMeans found {found} different clusters, fewer than n_clusters={self.n_clusters}: points may be "
                "copies of each other. Take fewer clusters", ConvergenceWarning, 3,
            )  # fmt: skip
        elif not converged:
            warnings.warn(
                f"KMeans stopped after max_iter={self.max_iter} steps, while clusters still changed: take a larger "
                "max_iter or tol", ConvergenceWarning, 3,
            )  # fmt: skip

