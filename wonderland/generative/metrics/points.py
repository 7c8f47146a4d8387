"""What the distances between sets of points share: checked sets (n, d), and distances of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import floating


def two_sets(x: Any, y: Any, name: str, least: int = 1) -> tuple[Any, Any]:
    """Points (n, d) and (m, d) of arrays (n, ...) and (m, ...), in one dtype."""
    x, y = floating(x, f"{name}: x"), floating(y, f"{name}: y")
    if x.ndim < 1 or y.ndim < 1 or x.shape[1:] != y.shape[1:] or min(x.shape[0], y.shape[0]) < least:
        raise ArgumentError(
            f"{name}: two sets of points (n, ...) and (m, ...) are compared, of {least} or more, got {x.shape} and "
            f"{y.shape}"
        )
    dtype = np.result_type(x.dtype, y.dtype)
    return x.reshape(x.shape[0], -1).astype(dtype), y.reshape(y.shape[0], -1).astype(dtype)


def squared_distances(x: Any, y: Any) -> Any:
    """|x_i - y_j|^2 of all pairs, (n, m), never below 0."""
    centre = np.mean(x, axis=0)  # nearer to 0, less is lost in the difference of squares
    x, y = x - centre, y - centre
    square = np.sum(x * x, 1)[:, None] + np.sum(y * y, 1)[None] - 2 * x @ y.T
    return np.maximum(square, 0)


def distances(x: Any, y: Any = None) -> Any:
    """|x_i - y_j| of all pairs, (n, m); without y, those within x. The derivative where it is 0 is 0."""
    square = squared_distances(x, x if y is None else y)
    if y is None:
        square = square * (1 - np.eye(x.shape[0], dtype=x.dtype))  # rounding leaves something of a point to itself
    apart = square > 0
    return np.where(apart, np.sqrt(np.where(apart, square, 1)), 0)
