"""Proximal operators: prox(x) = argmin over y of strength f(y) + |y - x|^2 / 2, with exact derivatives.

In goes an array, out comes an array of its shape; the strength is a number, or an array that broadcasts, and is
differentiated too. As the projections, they are smooth in pieces. Where pieces meet, what is at the threshold counts as
below it: the entry (or vector, or singular value) is 0 there and its derivative is 0.

`moreau_envelope` is the minimum that the operator attains, and `conjugate_prox` the operator of the conjugate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.custom import custom_jvp
from wonderland.core.errors import ArgumentError, check_function
from wonderland.implicit.sets.projections import floats, nonnegative_size, project_ball, project_box, project_l1_ball
from wonderland.implicit.sets.spectral import positive_part, root_of_square


def prox_l1(x: Any, strength: Any = 1.0) -> Any:
    """Of f = sum |y|, the soft threshold: sign(x) max(|x| - strength, 0). Strengths broadcast against x."""
    x = floats(x, "prox_l1")
    strength = nonnegative_size(strength, "prox_l1", "strength")
    return x - project_box(x, -strength, strength)


def prox_nonnegative_l1(x: Any, strength: Any = 1.0) -> Any:
    """Of f = sum y for y >= 0, infinite elsewhere: max(x - strength, 0), elementwise."""
    x = floats(x, "prox_nonnegative_l1")
    strength = nonnegative_size(strength, "prox_nonnegative_l1", "strength")
    return np.where(x <= strength, 0, x - strength)


def prox_ridge(x: Any, strength: Any = 1.0) -> Any:
    """Of f = |y|^2 / 2: x / (1 + strength)."""
    return floats(x, "prox_ridge") / (1 + nonnegative_size(strength, "prox_ridge", "strength"))


def prox_elastic_net(x: Any, l1: Any = 1.0, l2: Any = 1.0) -> Any:
    """Of l1 sum |y| + l2 |y|^2 / 2: the soft threshold, divided by 1 + l2."""
    return prox_ridge(prox_l1(x, l1), l2)


def prox_l2(x: Any, strength: Any = 1.0, axis: int = -1) -> Any:
    """Of f = |y|, the Euclidean norm of each vector along `axis` (group lasso): max(1 - strength / |x|, 0) x."""
    x = floats(x, "prox_l2", 1)
    return x - project_ball(x, nonnegative_size(strength, "prox_l2", "strength"), axis)


def prox_linf(x: Any, strength: Any = 1.0, axis: int = -1) -> Any:
    """Of f = max |y| of each vector along `axis`: x less its projection on the l1 ball."""
    x = floats(x, "prox_linf", 1)
    return x - project_l1_ball(x, nonnegative_size(strength, "prox_linf", "strength"), axis)


def prox_nuclear(x: Any, strength: Any = 1.0) -> Any:
    """Of f = the sum of the singular values of each matrix (..., m, n): U diag(max(s - strength, 0)) V'.

    The singular values and their negatives are the eigenvalues of [[0, x], [x', 0]], so it is twice a block of that
    matrix's part above the strength, whose derivative is right for repeated singular values too.
    """
    x = floats(x, "prox_nuclear", 2)
    strength = nonnegative_size(strength, "prox_nuclear", "strength")
    *lead, m, n = np.shape(x)
    above = np.concatenate([np.zeros((*lead, m, m), x.dtype), x], axis=-1)
    below = np.concatenate([np.swapaxes(x, -1, -2), np.zeros((*lead, n, n), x.dtype)], axis=-1)
    level = _each(strength, x.dtype)[..., None, None] * np.eye(m + n, dtype=x.dtype)
    return 2 * positive_part(np.concatenate([above, below], axis=-2) - level, False)[..., :m, m:]


def prox_log_det(x: Any, strength: Any = 1.0) -> Any:
    """Of f = -log det y of each symmetric matrix (..., n, n), y positive definite: (x + sqrt(x^2 + 4 strength)) / 2.

    It solves y - strength y^-1 = x; of x, the symmetric part counts. The strength must be more than 0 (at 0 it is the
    projection on the positive semidefinite matrices).
    """
    x = floats(x, "prox_log_det", 2)
    if np.shape(x)[-1] != np.shape(x)[-2]:
        raise ArgumentError(f"prox_log_det takes square matrices (..., n, n), got shape {np.shape(x)}")
    strength = _each(nonnegative_size(strength, "prox_log_det", "strength"), x.dtype)
    x = (x + np.swapaxes(x, -1, -2)) / 2
    return (x + root_of_square(x, 4 * strength)) / 2


def _each(strength: Any, dtype: Any) -> Any:
    """A number for each matrix, as an array of the matrices' dtype."""
    return floats(strength, "strength").astype(dtype)


def moreau_envelope(prox: Callable, f: Callable) -> Callable:
    """The function (x, strength=1) -> min over y of f(y) + |y - x|^2 / (2 strength), for a scalar function f.

    `prox(x, strength)` is f's proximal operator. The envelope is smooth even if f isn't, with gradient
    (x - prox(x, strength)) / strength in x: f is evaluated, and never differentiated.

        huber = moreau_envelope(wl.implicit.prox_l1, lambda y: np.sum(np.abs(y)))
    """
    check_function(prox, "moreau_envelope(prox, f): prox")
    check_function(f, "moreau_envelope(prox, f): f")

    @custom_jvp
    def attained(x: Any, strength: Any) -> Any:
        y = prox(x, strength)
        return f(y) + np.sum((x - y) ** 2) / (2 * strength)

    @attained.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        (x, strength), (dx, dstrength) = primals, tangents
        gap = (x - prox(x, strength)) / strength
        return attained(x, strength), np.sum(gap * dx) - np.sum(gap * gap) / 2 * dstrength

    def envelope(x: Any, strength: Any = 1.0) -> Any:
        if np.ndim(strength):
            raise ArgumentError(
                f"moreau_envelope: the strength is one number, got shape {np.shape(strength)}; use wl.vmap for a batch"
            )
        return attained(floats(x, "moreau_envelope"), strength)

    return envelope


def conjugate_prox(prox: Callable) -> Callable:
    """The proximal operator of the convex conjugate f*, of that of f, by Moreau's identity.

    It is the function (x, strength=1) -> x - strength prox(x / strength, 1 / strength). With strength 1,
    prox(x) + conjugate_prox(prox)(x) = x.
    """
    check_function(prox, "conjugate_prox")

    def conjugate(x: Any, strength: Any = 1.0) -> Any:
        x = floats(x, "conjugate_prox")
        return x - strength * prox(x / strength, 1 / strength)

    return conjugate
