"""Activations of several numbers (gates, maxout), and those with arrays of parameters: APL, KAF, B-splines.

Where units have parameters of their own, these are the last axis of the parameters: (terms,) is for all units alike,
(units, terms) for x of shape (..., units).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.nn.activations import gelu, relu, sigmoid, silu
from wonderland.nn.arguments import array, axis_of, floating

# Gates ---------------------------------------------------------------------------------------------------------------


def glu(x: Any, axis: int = -1) -> Any:
    """a sigmoid(b), a and b the halves of x along an axis: (..., 2 n) becomes (..., n). Dauphin et al. 2017."""
    return _gated("glu", x, sigmoid, axis)


def swiglu(x: Any, axis: int = -1) -> Any:
    """a silu(b), a and b the halves of x along an axis. Shazeer 2020, GLU variants improve transformers."""
    return _gated("swiglu", x, silu, axis)


def geglu(x: Any, axis: int = -1) -> Any:
    """a gelu(b), a and b the halves of x along an axis. Shazeer 2020, GLU variants improve transformers."""
    return _gated("geglu", x, gelu, axis)


def _gated(name: str, x: Any, gate: Callable, axis: int) -> Any:
    x = floating(x)
    axis = axis_of(axis, x.shape, f"{name}: x")
    if x.shape[axis] % 2:
        raise ValueError(f"{name} takes halves: axis {axis} of x, which has shape {x.shape}, has an odd length")
    half, before = x.shape[axis] // 2, (slice(None),) * axis
    return x[(*before, slice(None, half))] * gate(x[(*before, slice(half, None))])


def maxout(x: Any, pieces: int, axis: int = -1) -> Any:
    """The largest of each `pieces` numbers that follow each other: (..., n pieces) becomes (..., n).

    Numbers that are the largest together share the derivative. Goodfellow et al. 2013.
    """
    x = floating(x)
    axis = axis_of(axis, x.shape, "maxout: x")
    if pieces < 1 or x.shape[axis] % pieces:
        raise ValueError(f"maxout: axis {axis} of x, which has shape {x.shape}, isn't a multiple of pieces={pieces}")
    shape = (*x.shape[:axis], x.shape[axis] // pieces, pieces, *x.shape[axis + 1 :])
    return np.max(x.reshape(shape), axis=axis + 1)


# Sums of functions with trained coefficients -------------------------------------------------------------------------


def apl(x: Any, slopes: Any, hinges: Any) -> Any:
    """max(x, 0) + sum_s slopes_s max(hinges_s - x, 0): a piecewise linear function that is trained.

    `slopes` and `hinges` are (terms,), or (units, terms). Agostinelli et al. 2015, Learning activation functions.
    """
    x = floating(x)
    slopes, hinges = _terms("apl", x, slopes=slopes, hinges=hinges)
    return relu(x) + np.sum(slopes * relu(hinges - x[..., None]), axis=-1)


def kaf(x: Any, coefficients: Any, dictionary: Any, gamma: Any = None) -> Any:
    """sum_i coefficients_i exp(-gamma (x - dictionary_i)^2): a kernel expansion over fixed points.

    `coefficients` is (points,), or (units, points); `dictionary` (points,), usually equidistant around 0. Without a
    `gamma` it is 1 / (6 d^2), d the distance of the first two points. Scardapane et al. 2019, Kafnets.
    """
    x = floating(x)
    points, coefficients = _terms("kaf", x, dictionary=dictionary, coefficients=coefficients)
    if gamma is None:
        if points.shape[-1] < 2:
            raise ValueError(f"kaf: a dictionary of shape {points.shape} has no distance of points: give gamma=")
        gamma = 1 / (6 * (points[..., 1:2] - points[..., :1]) ** 2)
    distance = x[..., None] - points
    return np.sum(coefficients * np.exp(-gamma * distance * distance), axis=-1)


def bspline_basis(x: Any, grid: Any, order: int = 3) -> Any:
    """The B-splines of degree `order` on knots, at x: the basis functions of a Kolmogorov-Arnold network.

    `grid` has n knots in ascending order (some may be equal), as (n,) or (units, n). The result has the n - order - 1
    functions in a new last axis: `bspline_basis(x, grid) @ coefficients` is a spline. Outside of the grid all are 0;
    at the last knot they are their limits from the left. By the recursion of Cox and de Boor,

        B_i,0(x) = 1 if t_i <= x < t_i+1 else 0
        B_i,k(x) = (x - t_i) / (t_i+k - t_i) B_i,k-1(x) + (t_i+k+1 - x) / (t_i+k+1 - t_i+1) B_i+1,k-1(x)

    where 0 / 0 is 0. Liu et al. 2024, KAN; de Boor 1978, A practical guide to splines.
    """
    x = floating(x)
    (knots,) = _terms("bspline_basis", x, grid=grid)
    if order < 0 or knots.shape[-1] < order + 2:
        raise ValueError(f"bspline_basis: degree {order} takes at least {order + 2} knots, got a grid {knots.shape}")
    x = x[..., None]
    left, right, end = knots[..., :-1], knots[..., 1:], knots[..., -1:]
    inside = (x >= left) & (x < right)
    at_end = (x == end) & (right == end) & (left < right)
    basis = (inside | at_end).astype(x.dtype)
    for k in range(1, order + 1):
        rising, falling = knots[..., k:-1] - knots[..., : -k - 1], knots[..., k + 1 :] - knots[..., 1:-k]
        up = np.where(rising > 0, (x - knots[..., : -k - 1]) / np.where(rising > 0, rising, 1), 0)
        down = np.where(falling > 0, (knots[..., k + 1 :] - x) / np.where(falling > 0, falling, 1), 0)
        basis = up * basis[..., :-1] + down * basis[..., 1:]
    return basis


def _terms(name: str, x: Any, **parameters: Any) -> list[Any]:
    """Parameters in the dtype of x, if each is (terms,) or (units, terms) and they agree."""
    found = {key: floating(array(value), f"{name}: {key}").astype(x.dtype) for key, value in parameters.items()}
    for key, value in found.items():
        units = value.shape[:-1]
        if (
            not value.ndim
            or len(units) > x.ndim
            or any(n not in (1, of) for n, of in zip(units[::-1], x.shape[::-1], strict=False))
        ):
            raise ValueError(f"{name}: {key} is (terms,) or (units, terms) for x of (..., units), got {key} "
                             f"{value.shape}, x {x.shape}")  # fmt: skip
    if len({value.shape[-1] for value in found.values()}) > 1:
        shapes = ", ".join(f"{key} {value.shape}" for key, value in found.items())
        raise ValueError(f"{name}: as many terms in each of {shapes}")
    return list(found.values())
