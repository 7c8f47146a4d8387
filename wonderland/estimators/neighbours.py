"""Retrieval: points that are kept come in with `fit`, and the nearest of them to others go out. Exact, by products."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, check_scalar, validate_data

from wonderland.estimators.base import FLOATS, Estimator, one_of
from wonderland.estimators.distances import blocks, squared_norms
from wonderland.nn.arguments import power
from wonderland.numpy import take

METRICS = ("euclidean", "cosine", "dot")
TABLE = 1 << 22  # numbers of a block of products between points and queries


class Neighbours(Estimator):
    """What keeps points (n, features) and finds the nearest of them: `kneighbors`."""

    n_samples_fit_: int
    n_neighbors: int
    metric: str

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Distances (m, n_neighbors) of each of X (m, features) to its nearest points, ascending; and their places.

        The places, (m, n_neighbors), are rows of the X of `fit`. Equally distant points come in the order of their
        rows. Without X it is about the points of `fit` themselves, where none is its own neighbour. With
        `return_distance=False` the places alone.
        """
        check_is_fitted(self)
        k = check_scalar(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors", numbers.Integral,
                         min_val=1)  # fmt: skip
        far, places = self._search(self._points if X is None else self._inputs(X), k, own=X is None)
        return (far, places) if return_distance else places

    def _keep(self, X: np.ndarray) -> None:
        one_of(self.metric, "metric", METRICS)
        check_scalar(self.n_neighbors, "n_neighbors", numbers.Integral, min_val=1)
        self._points = X
        self.n_samples_fit_ = len(X)

    def _search(self, X: np.ndarray, k: int, own: bool = False) -> tuple[np.ndarray, np.ndarray]:
        count = len(self._points) - own
        if k > count:
            others = " others, as no point is its own neighbour" if own else ""
            raise ValueError(f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k} of {count} points{others}")
        return _closest(X, self._points, k, self.metric, own)

    def _around(self, X: Any) -> tuple[Any, Any]:
        """`kneighbors` of an array, or of a traced value: the distances have derivatives, places have none."""
        if isinstance(X, np.ndarray):
            return self._search(X, self.n_neighbors)
        dtype = np.result_type(X.dtype, self._points)
        points, X = self._points.astype(dtype, copy=False), X.astype(dtype)
        if self.metric == "cosine":
            points, X = _directions(points), _directions(X)
        if self.metric == "euclidean":  # around a point amid the others products lose no digits, and ties stay ties
            middle = points[np.argmin(squared_norms(points - np.mean(points, axis=0)))]
            scores = squared_norms(points - middle) - 2 * (X - middle) @ (points - middle).T
        else:
            scores = -X @ points.T
        places = np.argsort(scores, axis=1, kind="stable")[:, : self.n_neighbors]
        near = take(points, places, axis=0)  # (m, k, features)
        if self.metric == "euclidean":
            return power(np.sum((X[:, None, :] - near) ** 2, axis=2), 0.5), places
        return float(self.metric == "cosine") - np.sum(X[:, None, :] * near, axis=2), places


class NearestNeighbors(Neighbours):
    """The points nearest to others: of embeddings, what looks alike.

        index = NearestNeighbors(5, metric="cosine").fit(embeddings)       # (n, features)
        distances, places = index.kneighbors(queries)                      # (m, 5), (m, 5)

    `metric` is "euclidean", |x - y|; "cosine", 1 - x y / (|x| |y|), which is 1 for zeros; or "dot", -x y: the largest
    product is nearest. The search compares all pairs, by products of matrices in blocks, so that it is exact, and fast
    up to some 10^5 points. Distances are computed again from the points found: a copy is at distance 0.

    `as_function()` is of the distances (m, n_neighbors), ascending: they have derivatives where the neighbours stay.
    """

    def __init__(self, n_neighbors: int = 5, *, metric: str = "euclidean"):
        self.n_neighbors = n_neighbors
        self.metric = metric

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Keep the points X (n, features)."""
        X = validate_data(self, X, dtype=FLOATS)
        self._keep(X)
        return self

    def _apply(self, X: Any) -> Any:
        return self._around(X)[0]


def _closest(X: np.ndarray, points: np.ndarray, k: int, metric: str, own: bool) -> tuple[np.ndarray, np.ndarray]:
    """Distances and places, (m, k) each, of the nearest points; `own`: X are the points, and not their own neighbours.

    Products round, the more the longer the vectors are. So what may be among the nearest is found by them, with the
    largest error added, and that is put in order by distances that are computed one by one.
    """
    dtype = np.result_type(X, points)
    X, points = X.astype(dtype, copy=False), points.astype(dtype, copy=False)
    if metric == "euclidean":
        middle = np.mean(points, axis=0)  # around zero they are shorter
        left, right = X - middle, points - middle
        squares = squared_norms(right)
    else:
        X, points = (_directions(X), _directions(points)) if metric == "cosine" else (X, points)
        left, right, squares = X, points, squared_norms(points)
    longest = np.sqrt(np.max(squares))
    error = 2 * (X.shape[1] + 4) * np.finfo(dtype).eps * longest * (2 * np.sqrt(squared_norms(left)) + longest)
    far, places = np.empty((len(X), k), dtype), np.empty((len(X), k), np.int64)
    for rows in blocks(len(X), len(points), TABLE):
        scores = left[rows] @ (-right.T)
        if metric == "euclidean":
            scores *= 2
            scores += squares
        here = np.arange(len(scores))
        if own:
            scores[here, here + rows.start] = np.inf
        limit = np.partition(scores, k - 1, axis=1)[:, k - 1] + error[rows]
        query, place = np.nonzero(scores <= limit[:, None])
        exact = _distances(X[rows], points, query, place, metric)
        order = np.lexsort((exact, query))  # it is stable: of equals the first place stays first
        chosen = order[np.searchsorted(query, here)[:, None] + np.arange(k)]
        far[rows], places[rows] = exact[chosen], place[chosen]
    return far, places


def _distances(X: np.ndarray, points: np.ndarray, query: np.ndarray, place: np.ndarray, metric: str) -> np.ndarray:
    """Distances of pairs, X[query] to points[place]; cosine takes directions."""
    far = np.empty(len(query), X.dtype)
    for pairs in blocks(len(query), X.shape[1]):
        x, y = X[query[pairs]], points[place[pairs]]
        far[pairs] = np.sqrt(squared_norms(x - y)) if metric == "euclidean" else -np.einsum("ij,ij->i", x, y)
    return np.maximum(1 + far, 0) if metric == "cosine" else far


def _directions(X: Any) -> Any:
    """x / |x|, of rows; zeros stay."""
    squares = np.sum(X**2, axis=1, keepdims=True)
    return X / np.sqrt(np.where(squares > 0, squares, 1))
