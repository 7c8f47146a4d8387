"""Determinants of stacks of square matrices (..., n, n), their logarithms, and adjugates: what det'(a) is.

Derivatives are right for singular matrices too, where there is no inverse to write them with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, type_of
from wonderland.ops.elementwise import add, div, imag, mul, real, sub
from wonderland.ops.linalg import solve
from wonderland.ops.matrices import (
    adjoint,
    product,
    real_dtype,
    same_square,
    scalars,
    square,
    total,
    trace,
    with_shared_rules,
)
from wonderland.ops.work import matrices


def _slogdet_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    square(a)
    return ArrayType(a.shape[:-2], a.dtype), ArrayType(a.shape[:-2], real_dtype(a.dtype))


def _slogdet_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    # d log det a = tr(a^-1 da); its imaginary part turns the sign of a complex determinant
    (a,), (da,) = primals, tangents
    sign, log = slogdet(a)
    change = trace(solve(a, da))
    if type_of(a).dtype.kind != "c":
        return (sign, log), (None, change)
    turned = mul(mul(sign, np.asarray(1j, type_of(a).dtype)[()]), imag(change))
    return (sign, log), (turned, real(change))


def _lower_slogdet(builder: Any, a: Any) -> tuple[Any, Any]:
    pivots, sign = builder.pivots(a)
    last, dtype = len(pivots.shape) - 1, a.dtype
    signs = builder.reduce(builder.map(_sign, [pivots], dtype), (last,), "mul")
    logs = builder.reduce(builder.map(_log_size, [pivots], dtype), (last,), "add")
    return builder.map(_product, [sign, signs], dtype), logs


def _lower_det(builder: Any, a: Any) -> Any:
    pivots, sign = builder.pivots(a)
    return builder.map(_product, [sign, builder.reduce(pivots, (len(pivots.shape) - 1,), "mul")], a.dtype)


def _sign(e: Any, x: Any) -> Any:
    return e.select(e.compare("eq", x, e.constant(0, x)), x, e.select(x < 0, x.like(-1), x.like(1)))  # NaN has 1


def _log_size(e: Any, x: Any) -> Any:
    return e.call("log", e.abs(x))


def _product(e: Any, x: Any, y: Any) -> Any:
    return e.mul(x, y)


slogdet: Primitive = with_shared_rules(
    Primitive(
        "slogdet",
        lambda a: tuple(np.linalg.slogdet(a)),
        _slogdet_type,
        jvp=_slogdet_jvp,
        lower=_lower_slogdet,
        analytic=False,
        multiple=True,
        impossible={"transpose": "it isn't linear"},
        cost=matrices(1 / 3),
    )
)


def _det_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    return det(a), trace(product(adjugate(a), da))


def _det_type(a: ArrayType) -> ArrayType:
    square(a)
    return ArrayType(a.shape[:-2], a.dtype)


det: Primitive = with_shared_rules(
    Primitive(
        "det",
        lambda a: np.linalg.det(a),
        _det_type,
        jvp=_det_jvp,
        lower=_lower_det,
        impossible={"transpose": "it isn't linear"},
        cost=matrices(1 / 3),
    )
)


def _products_of_others(s: np.ndarray) -> np.ndarray:
    """For each number of the last axis the product of the others, without dividing."""
    ones = np.ones((*s.shape[:-1], 1), s.dtype)
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before * after


def _finite_only(f: Callable) -> Callable:
    """NaN for matrices that aren't finite, which the SVD refuses."""

    def evaluate(a: Any, *rest: Any) -> Any:
        finite = np.all(np.isfinite(a), axis=(-1, -2), keepdims=True)
        if np.all(finite):
            return f(a, *rest)
        return np.where(finite, f(np.where(finite, a, np.zeros((), a.dtype)), *rest), np.asarray(np.nan, a.dtype))

    return evaluate


def _adjugate(a: Any) -> Any:
    if not a.size:
        return np.zeros(a.shape, a.dtype)
    try:
        x = np.linalg.inv(a)
        condition = np.linalg.norm(a, 1, axis=(-2, -1)) * np.linalg.norm(x, 1, axis=(-2, -1))
        if np.all(condition < np.finfo(a.dtype).eps ** -0.5):
            return np.linalg.det(a)[..., None, None] * x
    except np.linalg.LinAlgError:
        pass
    # adj(u s v^H) = det(u v^H) v adj(s) u^H, right for every rank
    u, s, vh = np.linalg.svd(a)
    phase = np.linalg.det(u) * np.linalg.det(vh)
    middle = _products_of_others(s) * phase[..., None]
    return _matrix_adjoint(vh) @ (middle[..., None] * _matrix_adjoint(u))


def _matrix_adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def _adjugate_tangent(a: Any, e: Any) -> Any:
    if not a.size:
        return np.zeros(a.shape, a.dtype)
    u, s, vh = np.linalg.svd(a)
    phase = np.linalg.det(u) * np.linalg.det(vh)
    f = _matrix_adjoint(u) @ e @ _matrix_adjoint(vh)
    eye = np.eye(s.shape[-1], dtype=bool)
    pairs = np.where(eye, 0, _products_of_others(np.where(eye, np.ones((), s.dtype), s[..., None, :])))  # without i, j
    on = np.matmul(pairs, np.diagonal(f, axis1=-2, axis2=-1)[..., None])
    middle = np.where(eye, on, -pairs * f) * phase[..., None, None]
    return (_matrix_adjoint(vh) @ middle @ _matrix_adjoint(u)).astype(a.dtype, copy=False)


# The transposed matrix of cofactors, det(a) a^-1 where there is an inverse: the derivative of the determinant.
adjugate: Primitive = with_shared_rules(
    Primitive(
        "adjugate",
        _finite_only(_adjugate),
        same_square,
        jvp=lambda primals, tangents: (adjugate(*primals), adjugate_tangent(*primals, *tangents)),
        impossible={"transpose": "it isn't linear"},
        cost=matrices(13),
    )
)


def _adjugate_tangent_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (a, e), (da, de) = primals, tangents
    out = adjugate_tangent(a, e)
    change = None
    if da is not None:
        # Of (tr(x e) x - x e x) / det a with x the adjugate: here the matrix must have an inverse.
        x, turned, d = adjugate(a), adjugate_tangent(a, da), det(a)
        change = sub(
            add(mul(scalars(trace(product(turned, e))), x), mul(scalars(trace(product(x, e))), turned)),
            add(product(turned, e, x), product(x, e, turned)),
        )
        change = div(sub(change, mul(scalars(trace(product(x, da))), out)), scalars(d))
    return out, total(None if de is None else adjugate_tangent(a, de), change)


adjugate_tangent: Primitive = with_shared_rules(
    Primitive(
        "adjugate_tangent",
        _finite_only(_adjugate_tangent),
        lambda a, e: same_square(a),
        jvp=_adjugate_tangent_jvp,
        # tr(f D adj(a)[e]) is the second derivative of the determinant, symmetric in e and f.
        transpose=lambda ct, a, e: (None, adjugate_tangent(adjoint(a), ct)),
        linear=(1,),
        cost=matrices(17),
    )
)
