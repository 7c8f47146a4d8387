"""Distances by products, |x - y|^2 = |x|^2 - 2 x y + |y|^2, in blocks of rows: points in, numbers or places out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1 << 18  # numbers of a block: what a core's cache holds


def squared_norms(X: np.ndarray) -> np.ndarray:
    """|x|^2 of rows: (n, features) to (n,)."""
    return np.einsum("ij,ij->i", X, X)


def copies_of(X: np.ndarray, place: int) -> np.ndarray:
    """The places of rows that are equal to one, itself among them."""
    alike = np.flatnonzero(X[:, 0] == X[place, 0])
    return alike[np.all(X[alike] == X[place], axis=1)]


def blocks(rows: int, columns: int, numbers: int | None = None) -> Iterator[slice]:
    """Slices of the rows of a table (rows, columns), with about so many numbers each."""
    size = max(16, (numbers or BLOCK) // max(1, columns))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def nearest(X: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of the nearest of centres (k, features) for each of X, and |x - c|^2 - |x|^2 to it: (n,) and (n,).

    The first of equals is nearest. Differences of large numbers lose digits: call it with points around zero.
    """
    labels, less = np.empty(len(X), np.int32), np.empty(len(X), X.dtype)
    factors, squares = -2 * centres.T, squared_norms(centres)
    for rows in blocks(len(X), max(X.shape[1], len(centres))):
        products = X[rows] @ factors
        products += squares
        labels[rows] = best = np.argmin(products, axis=1)
        less[rows] = products[np.arange(len(best)), best]
    return labels, less


def squared_to_own(X: np.ndarray, centres: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """|x - c|^2 to the centre that a label names: (n,), without loss of digits."""
    far = np.empty(len(X), X.dtype)
    for rows in blocks(len(X), X.shape[1]):
        far[rows] = squared_norms(X[rows] - centres[labels[rows]])
    return far
