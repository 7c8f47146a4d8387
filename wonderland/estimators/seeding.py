"""Where clusters begin: points X (n, features) and weights (n,) come in, k of the points go out.

Weights mean what they say: a point of weight 2 is drawn as two of weight 1 would be, with the same random numbers,
and so is a point of rows in another order. For that the points are put on a line, by one random projection, and drawn
from there: copies of a point stand at one place.

`wl.generative.kmeans_plus_plus` draws with keys, in compiled functions too; here the best of several draws is kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wonderland.estimators.distances import copies_of, squared_norms


def plus_plus(X: np.ndarray, k: int, weight: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """k-means++: centres (k, features), each a point drawn by its squared distance from those before it.

    Of 2 + log k draws the one is kept that leaves the points nearest to centres. D. Arthur and S. Vassilvitskii,
    k-means++: the advantages of careful seeding, 2007.
    """
    squares = squared_norms(X)
    rounding = 16 * np.finfo(X.dtype).eps * squares  # of distances: copies of a centre are no points to draw

    def around(points: np.ndarray) -> np.ndarray:
        far = (-2 * points) @ X.T
        far += squares
        far += squared_norms(points)[:, None]
        return far

    draw = _drawer(X, rng)
    centres = X[draw(weight, 1)]
    nearest = around(centres)[0]
    while len(centres) < k:
        chances = np.where(nearest > rounding, weight * nearest, 0)
        tries = X[draw(chances if np.any(chances) else weight, 2 + int(np.log(k)))]
        left = np.minimum(around(tries), nearest)
        best = np.argmin(left @ weight)
        centres, nearest = np.vstack([centres, tries[best]]), left[best]
    return centres


def at_random(X: np.ndarray, k: int, weight: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Centres (k, features): different points, drawn by their weights."""
    draw = _drawer(X, rng)
    left = weight.copy()
    chosen = []
    for _ in range(k):
        chosen.append(draw(left if np.any(left > 0) else weight, 1)[0])
        left[copies_of(X, chosen[-1])] = 0
    return X[chosen]


def _drawer(X: np.ndarray, rng: np.random.RandomState) -> Callable[[np.ndarray, int], np.ndarray]:
    """A function that draws places of points by their chances (n,)."""
    order = np.argsort(X @ rng.normal(size=X.shape[1]), kind="stable")

    def draw(chances: np.ndarray, count: int) -> np.ndarray:
        line = np.cumsum(chances[order], dtype=np.float64)
        found = np.searchsorted(line, rng.uniform(size=count) * line[-1], side="right")
        return order[np.minimum(found, np.searchsorted(line, line[-1]))]  # never one of chance 0 at the end

    return draw
