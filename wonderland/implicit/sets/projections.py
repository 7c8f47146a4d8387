"""Projections: the point of a closed convex set that is nearest to x, argmin over y of |y - x|, with exact derivatives.

In goes an array, out comes an array of its shape. `axis` is the axis of the vectors, and all others are a batch; what
describes the set (radius, bounds, ...) has the shape of the batch, or one that broadcasts, and is differentiated too.

Each projection here is smooth in pieces, and a formula gives each piece: which piece a point belongs to is decided by
values, then the formula is what derivatives of every order see. Where pieces meet there is no derivative, and one is
chosen, the same everywhere: **a constraint that holds with equality without being needed counts as absent**. So a point
of the set, its boundary included, has the identity as its derivative and none in the parameters of the set (a set of
one point apart, to which all is constant). That is a limit of derivatives nearby, never NaN. Of an empty set there is
no projection: ArgumentError where that is seen (values are known), otherwise NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError, NoValueError
from wonderland.core.tracer import Tracer
from wonderland.implicit.sets.spectral import positive_part
from wonderland.transform.derivatives import stop_gradient


def floats(x: Any, name: str, ndim: int = 0) -> Any:
    """An argument as an array of floating point, traced or not, with at least so many axes."""
    x = x if isinstance(x, Tracer) else np.asarray(x)
    if x.dtype.kind not in "fiub":
        raise ArgumentError(f"{name} takes real numbers, got {x.dtype}")
    if np.ndim(x) < ndim:
        what = "vectors: an array with an axis" if ndim == 1 else "matrices: an array with two axes"
        raise ArgumentError(f"{name} takes {what} at least, got shape {np.shape(x)}")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def listed(parameter: Any) -> Any:
    """A list as an array. Numbers of Python's stay what they are, and take the dtype of what they meet."""
    return np.asarray(parameter) if isinstance(parameter, (list, tuple)) else parameter


def along(parameter: Any, axis: int) -> Any:
    """A parameter of each vector of a batch, with an axis of length 1 where the vectors have theirs."""
    parameter = listed(parameter)
    return np.expand_dims(parameter, axis) if np.ndim(parameter) else parameter


def allowed(parameter: Any, holds: Any, message: str) -> Any:
    """The parameter of a set that isn't empty; refused, or NaN where nothing can be decided, if `holds` is false."""
    try:
        fine = bool(np.all(holds | np.isnan(parameter)))
    except NoValueError:
        return np.where(holds, parameter, np.nan)
    if not fine:
        raise ArgumentError(message)
    return parameter


def nonnegative_size(size: Any, name: str, what: str) -> Any:
    """A radius, a sum or a strength."""
    size = listed(size)
    return allowed(size, size >= 0, f"{name}: {what} must be at least 0, got {size}")


def project_nonnegative(x: Any) -> Any:
    """The nearest point with no negative entry, max(x, 0)."""
    x = floats(x, "project_nonnegative")
    return np.where(x < 0, 0, x)


def project_box(x: Any, low: Any = None, high: Any = None) -> Any:
    """The nearest point of {y : low <= y <= high}. Bounds broadcast against x; None, or an infinite one, is none."""
    x, low, high = floats(x, "project_box"), listed(low), listed(high)
    if low is not None and high is not None:
        high = allowed(high, low <= high, f"project_box: low must be at most high, got low={low} and high={high}")
    if low is not None:
        x = np.where((x < low) | np.isnan(low), low, x)
    if high is not None:
        one = False if low is None else low == high  # of one point: nothing moves
        x = np.where((x > high) | np.isnan(high) | one, high, x)
    return x


def project_simplex(x: Any, scale: Any = 1.0, axis: int = -1) -> Any:
    """The nearest point of the simplex {y : y >= 0, sum y = scale}: y = max(x - tau, 0) with the tau that makes it so.

    Also called sparsemax. tau is found by sorting; with s the entries that aren't 0 (k of them), the derivative in x is
    diag(s) - s s' / k. Entries -inf get 0. `scale` 0 gives 0 for all.
    """
    x = floats(x, "project_simplex", 1)
    if np.shape(x)[axis] == 0:
        raise ArgumentError(f"project_simplex takes vectors of one entry at least, got shape {np.shape(x)}")
    scale = along(nonnegative_size(scale, "project_simplex", "scale"), axis)
    x = x - stop_gradient(np.max(x, axis=axis, keepdims=True))  # a common shift changes nothing, large numbers would
    x = np.where(scale > 0, x, stop_gradient(x))  # of one point: nothing moves
    inside = _support(*stop_gradient((x, scale)), axis)
    count = np.sum(inside, axis=axis, keepdims=True, dtype=x.dtype)
    tau = (np.sum(np.where(inside, x, 0), axis=axis, keepdims=True) - scale) / count
    y = np.where(inside, x - tau, 0)
    return y - stop_gradient(np.minimum(y, 0))  # what rounding left below 0


def _support(x: Any, scale: Any, axis: int) -> Any:
    """Which entries of x are more than tau (or tau itself): the first k of the sorted ones, as long as they are."""
    down = -np.sort(-x, axis=axis)
    shape = [1] * np.ndim(x)
    shape[axis] = -1
    k = np.reshape(np.arange(1, np.shape(x)[axis] + 1).astype(x.dtype), shape)
    tau = (np.cumsum(down, axis=axis) - scale) / k  # if the first k were the support
    belongs = (down >= tau) & (down > -np.inf)
    last = np.sum(belongs, axis=axis, keepdims=True) - 1
    return ~(x < np.take_along_axis(tau, np.maximum(last, 0), axis))  # so that NaN gives NaN


def project_l1_ball(x: Any, radius: Any = 1.0, axis: int = -1) -> Any:
    """The nearest point of {y : sum |y| <= radius}: outside, sign(x) times the projection of |x| on a simplex."""
    x = floats(x, "project_l1_ball", 1)
    radius = nonnegative_size(radius, "project_l1_ball", "radius")
    if np.shape(x)[axis] == 0:
        return x
    size = np.abs(x)
    length, room = np.sum(size, axis=axis, keepdims=True), along(radius, axis)
    return np.where((length <= room) & (room > 0), x, np.sign(x) * project_simplex(size, radius, axis))


def project_ball(x: Any, radius: Any = 1.0, axis: int = -1) -> Any:
    """The nearest point of {y : |y| <= radius}, Euclidean norm: radius x / |x| outside."""
    x = floats(x, "project_ball", 1)
    radius = along(nonnegative_size(radius, "project_ball", "radius"), axis)
    norm = _norm(x, axis)
    return np.where((norm <= radius) & (radius > 0), x, x / np.where(norm == 0, 1, norm) * radius)


def _norm(x: Any, axis: int) -> Any:
    """Euclidean norms along an axis, which stays, also of numbers whose squares are too large or too small."""
    limits = np.finfo(x.dtype)
    if limits.maxexp < 128 or x.size == 0:  # half precision has no room for units
        return np.linalg.norm(x, axis=axis, keepdims=True)
    top = np.max(np.abs(stop_gradient(x)), axis=axis, keepdims=True)
    power = lambda share: x.dtype.type(2.0 ** int(share * limits.maxexp))  # powers of two: nothing is rounded
    unit = np.where(top > power(0.44), power(0.52), np.where(top < power(-0.4), power(-0.7), power(0)))
    return np.linalg.norm(x / unit, axis=axis, keepdims=True) * unit


def project_linf_ball(x: Any, radius: Any = 1.0, axis: int = -1) -> Any:
    """The nearest point of {y : max |y| <= radius}."""
    x = floats(x, "project_linf_ball", 1)
    radius = along(nonnegative_size(radius, "project_linf_ball", "radius"), axis)
    return project_box(x, -radius, radius)


def project_hyperplane(x: Any, normal: Any, offset: Any, axis: int = -1) -> Any:
    """The nearest point of {y : normal . y = offset}: x - (normal . x - offset) normal / |normal|^2."""
    x, normal = floats(x, "project_hyperplane", 1), floats(normal, "project_hyperplane", 1)
    square = _square(normal, axis, "project_hyperplane")
    return x - (np.sum(normal * x, axis=axis, keepdims=True) - along(offset, axis)) / square * normal


def project_halfspace(x: Any, normal: Any, offset: Any, axis: int = -1) -> Any:
    """The nearest point of {y : normal . y <= offset}: of the hyperplane, if x is beyond it."""
    x, normal = floats(x, "project_halfspace", 1), floats(normal, "project_halfspace", 1)
    square = _square(normal, axis, "project_halfspace")
    beyond = np.sum(normal * x, axis=axis, keepdims=True) - along(offset, axis)
    return x - np.where(beyond > 0, beyond, 0) / square * normal


def _square(normal: Any, axis: int, name: str) -> Any:
    square = np.sum(normal * normal, axis=axis, keepdims=True)
    return allowed(square, square > 0, f"{name}: normal must not be 0 (its square must not be, either)")


def project_affine(x: Any, A: Any, b: Any) -> Any:
    """The nearest point of {y : A y = b}: x - A^+ (A x - b), with x (..., n), A (..., m, n) and b (..., m).

    Redundant rows do no harm. Of a system without solution it is the nearest of the least-squares solutions.
    """
    x, A, b = floats(x, "project_affine", 1), floats(A, "project_affine", 2), floats(b, "project_affine", 1)
    if np.shape(A)[-1] != np.shape(x)[-1] or np.shape(A)[-2] != np.shape(b)[-1]:
        raise ArgumentError(
            f"project_affine: A y = b with A of shape {np.shape(A)} needs x (..., {np.shape(A)[-1]}) and b "
            f"(..., {np.shape(A)[-2]}), got x {np.shape(x)} and b {np.shape(b)}"
        )
    residual = (A @ x[..., None])[..., 0] - b  # (..., m)
    return x - (np.linalg.pinv(A) @ residual[..., None])[..., 0]


def project_second_order_cone(x: Any, axis: int = -1) -> Any:
    """The nearest point of {(t, z) : |z| <= t}; t is the first entry along the axis.

    (t, z) inside stays, |z| <= -t gives 0, and otherwise it is (1 + t / |z|) / 2 times (|z|, z).
    """
    x = floats(x, "project_second_order_cone", 1)
    t, z = np.split(x, [1], axis=axis)
    norm = _norm(z, axis)
    length = np.where(norm == 0, 1, norm)
    middle = np.concatenate([(norm + t) / 2, (1 + t / length) / 2 * z], axis=axis)
    return np.where(norm <= t, x, np.where(norm <= -t, 0, middle))


def project_psd(x: Any) -> Any:
    """The nearest positive semidefinite matrix in the Frobenius norm, of each of the square matrices (..., n, n).

    With (x + x') / 2 = V diag(w) V' it is V diag(max(w, 0)) V'. Its derivative is V (L * (V' dx V)) V' with the divided
    differences L_ij = (max(w_i, 0) - max(w_j, 0)) / (w_i - w_j), right for repeated eigenvalues too, and of every
    order. Eigenvalues up to n eps max |w| count as 0, where the choice is L_ij = 1.
    """
    x = floats(x, "project_psd", 2)
    if np.shape(x)[-1] != np.shape(x)[-2]:
        raise ArgumentError(f"project_psd takes square matrices (..., n, n), got shape {np.shape(x)}")
    return positive_part((x + np.swapaxes(x, -1, -2)) / 2, True)
