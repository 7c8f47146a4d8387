"""Universal approximation, built: networks of ReLUs and sigmoids whose weights are computed, not trained.

What comes in is a function, by its points or as a callable; what goes out is a `Sequential` of `Linear` layers and
activations that equals it, or is as close as asked. `affine_regions` goes the other way: from a network of ReLUs to the
pieces on which it is affine. All weights are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.nn.activations import relu, sigmoid
from wonderland.nn.containers import Sequential
from wonderland.nn.linear import Linear

SMALLEST = 1e-9  # radius of a ball inside a region, below which it counts as empty


class AffineRegion(NamedTuple):
    """A piece of the input space, `normals @ x <= offsets`, on which a network is `weight @ x + bias`."""

    normals: np.ndarray
    offsets: np.ndarray
    weight: np.ndarray
    bias: np.ndarray


def piecewise_linear(xs: Any, ys: Any, left: float = 0.0, right: float = 0.0) -> Sequential:
    """The network with one hidden layer of ReLUs that is linear between the points (xs, ys): exactly that function.

        f(x) = y_0 - left ReLU(x_0 - x) + s_0 ReLU(x - x_0) + sum_l (s_l - s_{l-1}) ReLU(x - x_l)

    with s_l the slope after point l; `left` and `right` are the slopes beyond the ends. It maps (..., 1) to (..., 1).
    (Lemma 1.3 of the attention notes; the sum there has its indices shifted.)
    """
    xs, ys = _points(xs, ys)
    slopes = np.concatenate([np.diff(ys) / np.diff(xs), [right]])
    changes = np.diff(slopes, prepend=0.0)
    signs = np.concatenate([[-1.0], np.ones(len(xs))])
    knots = np.concatenate([xs[:1], xs])
    hidden = _linear(signs[:, None], -signs * knots)
    return Sequential(hidden, relu, _linear(np.concatenate([[-float(left)], changes])[None], ys[:1]))


def _points(xs: Any, ys: Any) -> tuple[np.ndarray, np.ndarray]:
    xs, ys = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
    if xs.ndim != 1 or xs.shape != ys.shape or not len(xs):
        raise ArgumentError(
            f"a function by its points takes xs and ys of one shape (n,), got {xs.shape} and {ys.shape}"
        )
    if not np.all(np.isfinite(xs)) or not np.all(np.isfinite(ys)):
        raise ArgumentError("a function by its points: there are NaNs or infinities in xs or ys")
    if np.any(np.diff(xs) <= 0):
        where = int(np.argmax(np.diff(xs) <= 0))
        raise ArgumentError(
            f"xs must increase, but xs[{where}] = {xs[where]:g} and xs[{where + 1}] = {xs[where + 1]:g}: sort the "
            "points (np.argsort), and keep one of equal ones: a network of ReLUs is continuous."
        )
    return xs, ys


def interpolate(g: Callable[[np.ndarray], Any], lower: float, upper: float, pieces: int) -> Sequential:
    """The network of ReLUs that is linear between g's values at pieces + 1 points: it converges to a continuous g.

    With points h apart the error is at most max |g''| h^2 / 8.
    """
    xs = np.linspace(lower, upper, _positive("pieces", pieces) + 1)
    return piecewise_linear(xs, g(xs))


def sigmoid_bins(g: Callable, lower: float, upper: float, bins: int, slope: float = 1e4) -> Sequential:
    """The network with two sigmoids per bin that has g's mean over each bin there (appendix B of the book).

        f(x) = sum_i g_i (sigma(w (x - s_i + D/2)) - sigma(w (x - s_i - D/2))),   g_i the mean over s_i -+ D/2

    Means are by the midpoint rule of 64 points. Maps (..., 1) to (..., 1).
    """
    edges = np.linspace(lower, upper, _positive("bins", bins) + 1)
    inside = edges[:-1, None] + (np.arange(64) + 0.5) / 64 * np.diff(edges)[:, None]
    heights = np.mean(np.asarray(g(inside), np.float64), axis=1)
    steps = np.concatenate([edges[:-1], edges[1:]])
    hidden = _linear(np.full((2 * bins, 1), float(slope)), -slope * steps)
    return Sequential(hidden, sigmoid, _linear(np.concatenate([heights, -heights])[None], np.zeros(1)))


def ridge_network(
    g: Callable, lower: Any, upper: Any, directions: Any, pieces: int = 64, samples: int = 20
) -> Sequential:
    """One hidden layer of ReLUs for a g of several inputs, by exponentials along directions (theorem 1.5's proof).

        g(x) ~ sum_i c_i exp(<v_i, x>) ~ sum_i c_i E_i(<v_i, x>),   E_i linear between the values of exp

    `directions` are the v_i, (k, d); the c_i are a least-squares fit of the E_i on a grid of the box between `lower`
    and `upper`, with `samples` points an axis. g takes (n, d) and gives (n,).
    """
    lower, upper, directions = (np.asarray(a, np.float64) for a in (lower, upper, directions))
    if directions.ndim != 2 or lower.shape != directions.shape[1:] or upper.shape != lower.shape:
        raise ArgumentError(
            f"directions are (k, d) and lower and upper (d,), got {directions.shape}, {lower.shape} and {upper.shape}"
        )
    axes = [np.linspace(a, b, samples) for a, b in zip(lower, upper, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(lower))
    parts = []
    for direction in directions:
        ends = np.sort([direction * lower, direction * upper], axis=0).sum(axis=1)
        parts.append(interpolate(np.exp, ends[0], ends[1] if ends[0] < ends[1] else ends[0] + 1.0, pieces))
    features = np.hstack([part(grid @ v[:, None]) for part, v in zip(parts, directions, strict=True)])
    coefficients = np.linalg.lstsq(features, np.asarray(g(grid), np.float64), rcond=1e-9)[0]
    hidden = np.concatenate([part[0].weight * v for part, v in zip(parts, directions, strict=True)])
    outer = np.concatenate([c * part[2].weight[0] for part, c in zip(parts, coefficients, strict=True)])
    constant = np.sum([c * part[2].bias for part, c in zip(parts, coefficients, strict=True)], axis=0)
    return Sequential(
        _linear(hidden, np.concatenate([part[0].bias for part in parts])), relu, _linear(outer[None], constant)
    )


def tent_map(times: int) -> Sequential:
    """The tent map of [0, 1] iterated: 2**times pieces by 2 ReLUs a layer, where one hidden layer needs 2**times.

        tent(x) = 2 ReLU(x) - 4 ReLU(x - 1/2)

    (Telgarsky 2016: depth separation.) Maps (..., 1) to (..., 1); below 0 it is 0.
    """
    _positive("times", times)
    first, combine = _linear(np.ones((2, 1)), np.array([0.0, -0.5])), np.array([[2.0, -4.0]])
    between = [_linear(np.ones((2, 1)) @ combine, np.array([0.0, -0.5])) for _ in range(times - 1)]
    layers = [part for layer in (first, *between) for part in (layer, relu)]
    return Sequential(*layers, _linear(combine, np.zeros(1)))


def narrow_network(steps: Sequence[tuple[str, Any, float]], lower: Any) -> Sequential:
    """A deep network of width d + 1 that takes maxima and minima of affine functions in turn (Hanin and Sellke 2017).

        m = a_1 . x + b_1;   then m = max(m, a . x + b) or m = min(m, a . x + b) for each further ("max" | "min", a, b)

    The first step's word doesn't count. d channels hand x on, which is exact for x >= `lower`; one holds m:
    max(m, l) = ReLU(m - l) + l. Every continuous piecewise linear function is a maximum of minima of affine ones, so
    such networks are dense in the continuous functions.
    """
    words = [word for word, _, _ in steps]
    rows = [np.atleast_1d(np.asarray(a, np.float64)) for _, a, _ in steps]
    if not steps or any(word not in ("max", "min") for word in words) or len({row.shape for row in rows}) != 1:
        raise ArgumentError('steps are ("max" or "min", a, b) with a of shape (d,), the same for all')
    d = len(rows[0])
    low = np.broadcast_to(np.asarray(lower, np.float64), (d,))
    # Behind each ReLU lie z = x - low >= 0 and h >= 0; the running value is m = sign * h + a . x + b.
    layers: list[Any] = []
    weight, bias = np.eye(d), -low  # from the input to z, and
    value_weight, value_bias = rows[0], float(steps[0][2])  # to m
    for word, a, (_, _, b) in zip(words[1:], rows[1:], steps[1:], strict=True):
        sign = 1.0 if word == "max" else -1.0
        line_weight, line_bias = a @ weight, float(b) + a @ (bias + low)
        h_weight, h_bias = sign * (value_weight - line_weight), sign * (value_bias - line_bias)
        layers += [_linear(np.vstack([weight, h_weight]), np.append(bias, h_bias)), relu]
        weight, bias = np.eye(d, d + 1), np.zeros(d)
        value_weight, value_bias = np.append(a, sign), float(b) + a @ low
    return Sequential(*layers, _linear(value_weight[None], np.array([value_bias])))


def affine_regions(model: Any, lower: Any, upper: Any) -> list[AffineRegion]:
    """The pieces of a box on which a `Sequential` of `Linear` and `relu` is affine: exactly, by linear programs.

    A piece is split by every unit that changes its sign inside it, so pieces that differ in which units are active
    count apart. With one hidden layer of n units in general position there are sum_{i <= d} binomial(n, i) of them.
    The cost grows with the number of pieces: meant for small networks of few inputs.
    """
    lower, upper = np.atleast_1d(np.asarray(lower, np.float64)), np.atleast_1d(np.asarray(upper, np.float64))
    d = len(lower)
    box = np.vstack([np.eye(d), -np.eye(d)]), np.concatenate([upper, -lower])
    regions = [AffineRegion(*box, np.eye(d), np.zeros(d))]
    for layer in model:
        if getattr(layer, "__wrapped__", layer) is relu or type(layer).__name__ == "ReLU":
            regions = [part for region in regions for part in _split(region)]
        elif isinstance(layer, Linear):
            w, b = layer.weight, 0.0 if layer.bias is None else layer.bias
            regions = [AffineRegion(r.normals, r.offsets, w @ r.weight, w @ r.bias + b) for r in regions]
        else:
            raise ArgumentError(f"affine_regions takes a Sequential of Linear and relu, got a layer {layer!r}")
    return regions


def _split(region: AffineRegion) -> list[AffineRegion]:
    """The parts of a region in which the same units are positive, each with ReLU applied."""
    parts = [region]
    for unit in range(len(region.bias)):
        parts = [half for part in parts for half in _halves(part, unit)]
    return parts


def _halves(part: AffineRegion, unit: int) -> list[AffineRegion]:
    """The part where a unit is positive, which keeps it, and the one where it is negative, which has 0 for it."""
    normal, offset = part.weight[unit], part.bias[unit]
    out = []
    for sign in (1.0, -1.0):
        normals, offsets = np.vstack([part.normals, -sign * normal]), np.append(part.offsets, sign * offset)
        if not _has_interior(normals, offsets):
            continue
        weight, bias = part.weight, part.bias
        if sign < 0:
            weight, bias = weight.copy(), bias.copy()
            weight[unit], bias[unit] = 0.0, 0.0
        out.append(AffineRegion(normals, offsets, weight, bias))
    return out


def _has_interior(normals: np.ndarray, offsets: np.ndarray) -> bool:
    """Does a ball fit inside? The largest one is a linear program (its centre and radius)."""
    lengths = np.linalg.norm(normals, axis=1)
    if np.any((lengths == 0) & (offsets < 0)):
        return False
    if normals.shape[1] == 1:
        keep = lengths > 0
        bounds, up = offsets[keep] / normals[keep, 0], normals[keep, 0] > 0
        return np.min(bounds[up]) - np.max(bounds[~up]) > SMALLEST
    with loading():
        from scipy.optimize import linprog

    cost = np.append(np.zeros(normals.shape[1]), -1.0)
    free = [(None, None)] * normals.shape[1] + [(0, None)]
    found = linprog(cost, np.column_stack([normals, lengths]), offsets, bounds=free, method="highs")
    return found.status == 0 and -found.fun > SMALLEST


def _linear(weight: np.ndarray, bias: np.ndarray) -> Linear:
    """A layer with these weights."""
    layer = Linear(weight.shape[1], weight.shape[0], dtype=np.float64)
    layer.weight[...], layer.bias[...] = weight, bias
    return layer


def _positive(name: str, number: int) -> int:
    if int(number) != number or number < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {number!r}")
    return int(number)
