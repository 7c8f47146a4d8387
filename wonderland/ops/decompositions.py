"""Eigenvalues, singular values and orthogonal factors: eigh, eig, svd, qr, on stacks of matrices (..., m, n).

Each decomposition moves by rotations of what it returns: with v the eigenvectors, dv = v z, where z_ij is a matrix
element divided by the gap w_j - w_i. **Equal values have the gap's inverse replaced by 0**: within the space of a
repeated eigenvalue the vectors can be chosen freely, and the choice is kept. So derivatives of what doesn't depend on
the choice (a sum of eigenvalues, the projector on the whole space) are right, and none is infinite. Values count as
equal when they differ by no more than rounding: n eps max|w|, the tolerance of `np.linalg.matrix_rank`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import abs, add, conjugate, div, eq, le, mul, neg, real, sub, where
from wonderland.ops.linalg import solve, triangular_solve
from wonderland.ops.matrices import (
    adjoint,
    as_columns,
    as_rows,
    block,
    diagonal,
    embedded,
    hermitian_part,
    lower_part,
    masked,
    of_triangle,
    product,
    real_dtype,
    square,
    upper_part,
    with_shared_rules,
)
from wonderland.ops.reduce import max as reduce_max
from wonderland.ops.shape import convert, reshape
from wonderland.ops.work import matrices

NO_CONVERGENCE = (np.linalg.LinAlgError, "Eigenvalues did not converge")
_NOT_LINEAR = {"transpose": "it isn't linear"}


def _decomposition(
    name: str, evaluate: Any, infer: Any, jvp: Any, cubic: float, lower: Any = None
) -> Primitive:  # fmt: skip
    return with_shared_rules(
        Primitive(
            name,
            evaluate,
            infer,
            jvp=jvp,
            lower=lower,
            multiple=True,
            analytic=False,  # lengths and phases of vectors aren't
            raises=True,  # no convergence
            impossible=_NOT_LINEAR,
            cost=matrices(cubic),
        )
    )


def _matrices(a: ArrayType) -> None:
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")


def _masked_inverse(x: Any, zero: Any) -> Any:
    """1 / x, and 0 where `zero` says that x is."""
    one = np.ones((), type_of(x).dtype)[()]
    return where(zero, np.zeros((), type_of(x).dtype)[()], div(one, where(zero, one, x)))


def _tolerance(w: Any) -> Any:
    """What the values of each matrix may differ by and still count as equal, (..., 1, 1)."""
    *head, n = shape_of(w)
    largest = reduce_max(abs(w), axes=(len(head),)) if n else np.zeros(head, real_dtype(type_of(w).dtype))
    eps = float(np.finfo(type_of(w).dtype).eps)
    return mul(reshape(largest, shape=(*head, 1, 1)), n * eps)


def _inverse_gaps(w: Any) -> Any:
    """1 / (w_j - w_i), and 0 where the two are equal."""
    gaps = sub(as_rows(w), as_columns(w))
    return _masked_inverse(gaps, le(abs(gaps), _tolerance(w)))


# Hermitian matrices ---------------------------------------------------------------------------------------------------


def _eigh_type(a: ArrayType, lower: bool) -> tuple[ArrayType, ArrayType]:
    square(a)
    return ArrayType(a.shape[:-1], real_dtype(a.dtype)), ArrayType(a.shape, a.dtype)


def _eigh_jvp(primals: tuple, tangents: tuple, lower: bool) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    w, v = eigh(a, lower=lower)
    inside = product(adjoint(v), of_triangle(da, lower), v)
    dw = diagonal(inside)
    dw = real(dw) if type_of(dw).dtype.kind == "c" else dw
    return (w, v), (dw, product(v, mul(inside, _inverse_gaps(w))))


# Eigenvalues in ascending order and orthonormal eigenvectors; one triangle is read, and differentiated.
eigh: Primitive = _decomposition(
    "eigh", lambda a, lower: tuple(np.linalg.eigh(a, "L" if lower else "U")), _eigh_type, _eigh_jvp, 4.5,
    lambda builder, a, lower: builder.symmetric(a, lower, NO_CONVERGENCE),
)  # fmt: skip

# General matrices -----------------------------------------------------------------------------------------------------


def _complex_dtype(dtype: np.dtype) -> np.dtype:
    return np.result_type(dtype, np.complex64)


def _eig(a: Any) -> tuple[Any, Any]:
    dtype = _complex_dtype(a.dtype)
    return tuple(np.asarray(x, dtype) for x in np.linalg.eig(a))  # type: ignore[return-value]


def _eig_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    square(a)
    dtype = _complex_dtype(a.dtype)
    return ArrayType(a.shape[:-1], dtype), ArrayType(a.shape, dtype)


def _eig_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    w, v = eig(a)
    inside = solve(v, product(convert(da, dtype=type_of(v).dtype), v))
    dv = product(v, mul(inside, _inverse_gaps(w)))
    # The columns keep their length 1, and the phase that changes least: v_i^H dv_i = 0.
    dv = sub(dv, mul(v, as_rows(diagonal(product(adjoint(v), dv)))))
    return (w, v), (diagonal(inside), dv)


# Eigenvalues and eigenvectors of length 1, always complex: whether they are real depends on values.
eig: Primitive = _decomposition("eig", _eig, _eig_type, _eig_jvp, 12.5)

# Singular values ------------------------------------------------------------------------------------------------------


def _svd_type(a: ArrayType, full: bool) -> tuple[ArrayType, ArrayType, ArrayType]:
    _matrices(a)
    *head, m, n = a.shape
    k = min(m, n)
    return (
        ArrayType((*head, m, m if full else k), a.dtype),
        ArrayType((*head, k), real_dtype(a.dtype)),
        ArrayType((*head, n if full else k, n), a.dtype),
    )


def _columns(x: Any, count: int) -> Any:
    return block(x, (shape_of(x)[-2], count))


def _outside(u: Any, change: Any) -> Any:
    """(1 - u u^H) change: the part orthogonal to the columns of u, which are orthonormal."""
    return sub(change, product(u, product(adjoint(u), change)))


def _completed(whole: Any, du: Any, k: int) -> Any:
    """The tangent of an orthonormal basis whose first k columns move by du: the others move as little as they can."""
    m = shape_of(whole)[-1]
    if m == k:
        return du
    others = block(whole, (m, m - k), 0, k)
    rest = neg(product(_columns(whole, k), product(adjoint(du), others)))
    return add(embedded(du, (m, m)), embedded(rest, (m, m), 0, k))


def _svd_jvp(primals: tuple, tangents: tuple, full: bool) -> tuple[Any, Any]:
    # With inside = u^H da v = h + k (Hermitian and skew-Hermitian part), u^H du and v^H dv are
    # h_ij / (s_j - s_i) + k_ij / (s_j + s_i) and the same with a minus.
    (a,), (da,) = primals, tangents
    m, n = shape_of(a)[-2:]
    k = min(m, n)
    u_all, s, vh_all = svd(a, full=full)
    v_all = adjoint(vh_all)
    u, v = _columns(u_all, k), _columns(v_all, k)
    inside = product(adjoint(u), da, v)
    ds = diagonal(inside)
    ds = real(ds) if type_of(ds).dtype.kind == "c" else ds
    sums = add(as_rows(s), as_columns(s))
    apart = mul(hermitian_part(inside), _inverse_gaps(s))
    together = mul(sub(inside, adjoint(inside)), mul(_masked_inverse(sums, eq(sums, 0)), 0.5))
    du, dv = product(u, add(apart, together)), product(v, sub(apart, together))
    inverse = as_rows(_masked_inverse(s, eq(s, 0)))
    if m > k:
        du = add(du, _outside(u, mul(product(da, v), inverse)))
    if n > k:
        dv = add(dv, _outside(v, mul(product(adjoint(da), u), inverse)))
    if full:
        du, dv = _completed(u_all, du, k), _completed(v_all, dv, k)
    return (u_all, s, vh_all), (du, ds, adjoint(dv))


svd: Primitive = _decomposition(
    "svd", lambda a, full: tuple(np.linalg.svd(a, full_matrices=full)), _svd_type, _svd_jvp, 11
)

# Orthogonal factors ---------------------------------------------------------------------------------------------------


def _qr_type(a: ArrayType, full: bool) -> tuple[ArrayType, ArrayType]:
    _matrices(a)
    *head, m, n = a.shape
    k = m if full else min(m, n)
    return ArrayType((*head, m, k), a.dtype), ArrayType((*head, k, n), a.dtype)


def _qr_jvp(primals: tuple, tangents: tuple, full: bool) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    m, n = shape_of(a)[-2:]
    k = min(m, n)
    q_all, r_all = qr(a, full=full)
    q, r = _columns(q_all, k), block(r_all, (k, n))
    # The first k columns have the square factor: da r^-1
    moved = adjoint(
        triangular_solve(_columns(r, k), adjoint(_columns(da, k)), lower=False, adjoint=True, unit=False)
    )  # fmt: skip
    inside = product(adjoint(q), moved)
    low = lower_part(inside, 1)
    turn = sub(low, adjoint(low))  # q^H dq: skew, so that r stays triangular
    if type_of(a).dtype.kind == "c":  # and with a real diagonal
        eye = np.eye(k, dtype=bool)
        turn = add(turn, masked(mul(sub(inside, conjugate(inside)), 0.5), eye))
    dq = add(sub(moved, product(q, inside)), product(q, turn))
    dr = upper_part(sub(product(adjoint(q), da), product(turn, r)))
    if full:
        dq, dr = _completed(q_all, dq, k), embedded(dr, (m, n))
    return (q_all, r_all), (dq, dr)


def _qr(a: Any, full: bool) -> tuple:
    return tuple(np.linalg.qr(a, "complete" if full else "reduced"))


# q with orthonormal columns and an upper triangular r with real diagonal, whose signs are LAPACK's.
qr: Primitive = _decomposition(
    "qr", _qr, _qr_type, _qr_jvp, 2, lambda builder, a, full: builder.orthogonal(a, full)
)  # fmt: skip
