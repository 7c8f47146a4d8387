"""Distances between two sets of points: sliced Wasserstein, maximum mean discrepancy, energy distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.generative.metrics.points import distances, squared_distances, two_sets
from wonderland.nn.arguments import demand


def sliced_wasserstein(x: Any, y: Any, projections: int = 128, p: float = 2.0, key: Any = None) -> Any:
    """The Wasserstein distance of order p between points x (n, ...) and y (m, ...) projected to random lines:

        (E_theta W_p(theta . x, theta . y)^p)^(1/p),         theta uniform on the sphere

    of so many directions, drawn by the key (`wl.random.key(0)` without one). On a line, W_p compares the quantiles,
    which are exact for n = m, and for n != m, too: both are read at all steps of either.
    """
    x, y = two_sets(x, y, "sliced_wasserstein")
    if not isinstance(projections, (int, np.integer)) or not 1 <= p < np.inf or projections < 1:
        raise ArgumentError(f"sliced_wasserstein: p and projections are at least 1: got p={p} and {projections}")
    key = random.key(0) if key is None else key
    theta = random.normal(key, (x.shape[1], projections), dtype=x.dtype)
    theta = theta / np.sqrt(np.sum(theta**2, axis=0))
    a, b = np.sort(x @ theta, axis=0), np.sort(y @ theta, axis=0)  # (n, P), (m, P)
    n, m = a.shape[0], b.shape[0]
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)  # where a quantile steps, times n m
    middle = (np.concatenate([[0], ends[:-1]]) + ends) / 2
    weight = (np.diff(ends, prepend=0) / (n * m)).astype(x.dtype)
    gap = np.abs(a[(middle // m).astype(int)] - b[(middle // n).astype(int)])  # (steps, P)
    mean = np.mean(weight @ gap**p)
    same = mean == 0  # where the root has no derivative: 0 is taken
    return np.where(same, 1, mean) ** (1 / p) - same


def mmd(x: Any, y: Any, bandwidth: float | None = None) -> Any:
    """The square of the maximum mean discrepancy between x (n, ...) and y (m, ...), estimated without bias:

        mean_{i != j} k(x_i, x_j) + mean_{i != j} k(y_i, y_j) - 2 mean_ij k(x_i, y_j),   k = exp(-|x - y|^2 / (2 h^2))

    It may be below 0, and is 0 on average for sets of one distribution. The `bandwidth` h is the median distance
    between all points, unless it is given. Gretton et al. 2012.
    """
    x, y = two_sets(x, y, "mmd", least=2)
    n, m = x.shape[0], y.shape[0]
    both = np.concatenate([x, y])
    square = squared_distances(both, both)
    pairs = np.triu_indices(n + m, 1)
    h: Any = np.sqrt(np.median(square[pairs])) if bandwidth is None else bandwidth
    above = ~np.less_equal(h, 0)
    demand(above, "mmd: bandwidth is above 0: got {} (without one, the median distance between the points)", h)
    kernel = np.exp(-square / (2 * h**2))
    off = lambda block, count: (np.sum(block) - np.trace(block)) / (count * (count - 1))
    return off(kernel[:n, :n], n) + off(kernel[n:, n:], m) - 2 * np.mean(kernel[:n, n:])


def energy_distance(x: Any, y: Any) -> Any:
    """2 E|x - y| - E|x - x'| - E|y - y'| of x (n, ...) and y (m, ...): 0 for equal sets, and never below.

    In one dimension it is twice the square of Cramér's distance; SciPy's `energy_distance` is its root. Székely and
    Rizzo 2013.
    """
    x, y = two_sets(x, y, "energy_distance")
    return 2 * np.mean(distances(x, y)) - np.mean(distances(x)) - np.mean(distances(y))
