"""Factors of matrices that are kept and used again: LU with its permutation, and Cholesky, on stacks (..., n, n).

`linalg.solve` factorises and solves in one go, and raises for a singular matrix. What is here never raises, so that one
matrix of a batch, or one step of a loop, can fail by itself: its results are NaN, and those of the others are exact.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import add, eq, neg
from wonderland.ops.linalg import cholesky_jvp, solver_batch, solver_pattern, triangular_solve
from wonderland.ops.matrices import (
    adjoint,
    as_columns,
    identity_like,
    lower_part,
    product,
    same_square,
    square,
    total,
    upper_part,
    with_shared_rules,
)
from wonderland.ops.shape import convert
from wonderland.ops.work import each, matrices, systems

# LU -------------------------------------------------------------------------------------------------------------------


def lapack(name: str, a: Any) -> Any:
    """LAPACK's function of that name for matrices like a."""
    return _lapack_function(name, a.dtype)


@cache
def _lapack_function(name: str, dtype: np.dtype) -> Any:
    with loading():
        from scipy.linalg.lapack import get_lapack_funcs

    return get_lapack_funcs((name,), dtype=dtype)[0]


def _lu(a: Any) -> tuple[Any, Any]:
    n, count = a.shape[-1], math.prod(a.shape[:-2])
    places = np.empty(a.shape[:-1], np.int64)
    places[...] = np.arange(n)
    if not a.size:
        return np.array(a), places
    if count > n:
        return _many_lu(np.array(a, order="C"), places)
    out, factorise = np.empty_like(a), lapack("getrf", a)
    for place in np.ndindex(a.shape[:-2]):
        out[place], swaps, _ = factorise(a[place])
        order = places[place]
        for i, j in enumerate(swaps):
            order[i], order[j] = order[j], order[i]
    return out, places


def _many_lu(a: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Many small matrices: column by column, all of them at once."""
    n = a.shape[-1]
    lu, order = a.reshape(-1, n, n), places.reshape(-1, n)
    stack = np.arange(len(lu))
    with np.errstate(all="ignore"):
        for k in range(n - 1):
            sizes = np.abs(lu[:, k:, k])
            best = k + np.argmax(np.where(np.isnan(sizes), -1, sizes), axis=1)
            for x in (lu, order):
                x[stack, k], x[stack, best] = x[stack, best], x[stack, k].copy()
            pivot = lu[:, k, k, None]
            lu[:, k + 1 :, k] = np.where(pivot == 0, 0, lu[:, k + 1 :, k] / np.where(pivot == 0, 1, pivot))
            lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    return a, places


def _permutation(places: Any, dtype: np.dtype) -> Any:
    """The matrices p with p a = a[places]."""
    return convert(eq(as_columns(places), np.arange(shape_of(places)[-1])), dtype=dtype)


def _triangles(lu: Any) -> tuple[Any, Any]:
    """L, with ones on its diagonal, and U."""
    return add(lower_part(lu, 1), identity_like(lu)), upper_part(lu)


def _lu_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    square(a)
    return ArrayType(a.shape, a.dtype), ArrayType(a.shape[:-1], np.int64)


def _lu_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    # With M = L^-1 p da U^-1: dL = L low(M), without the diagonal, and dU = up(M) U
    (a,), (da,) = primals, tangents
    both, places = lu(a)
    low, up = _triangles(both)
    moved = triangular_solve(
        both, product(_permutation(places, type_of(a).dtype), da), lower=True, adjoint=False, unit=True
    )
    moved = adjoint(triangular_solve(both, adjoint(moved), lower=False, adjoint=True, unit=False))
    return (both, places), (add(product(low, lower_part(moved, 1)), product(upper_part(moved), up)), None)


# L U = a[places], both factors in one array: U on and above the diagonal, L, whose diagonal is ones, below. A singular
# matrix has a zero on the diagonal of U.
lu: Primitive = with_shared_rules(
    Primitive(
        "lu",
        _lu,
        _lu_type,
        jvp=_lu_jvp,
        multiple=True,
        lower=lambda builder, a: builder.factors(a),
        impossible={"transpose": "it isn't linear"},
        cost=matrices(1 / 3),
    )
)


def _substituted(a: Any, b: Any, lower: bool, adjoint: bool, unit: bool) -> Any:
    """`triangular_solve` where a zero on the diagonal gives NaN."""
    if a.ndim == 2:
        x, info = lapack("trtrs", a)(a, b, lower=lower, trans=2 if adjoint else 0, unitdiag=unit)
        return np.full_like(x, np.nan) if info > 0 else x
    if adjoint:
        a, lower = np.conj(np.swapaxes(a, -1, -2)), not lower
    out, n = np.empty(b.shape, np.result_type(a, b)), a.shape[-1]
    with np.errstate(all="ignore"):
        for i in range(n) if lower else reversed(range(n)):
            known = np.s_[:i] if lower else np.s_[i + 1 :]
            row = b[..., i, :] - np.matmul(a[..., i : i + 1, known], out[..., known, :])[..., 0, :]
            pivot = a[..., i, i, None]
            out[..., i, :] = row if unit else np.where(pivot == 0, np.nan, row / pivot)
    return out


def _lu_solve(lu: Any, places: Any, b: Any, adjoint: bool) -> Any:
    if not b.size:
        return np.array(b)
    if not adjoint:
        sorted_b = b[places] if b.ndim == 2 else np.take_along_axis(b, places[..., None], axis=-2)
        return _substituted(lu, _substituted(lu, sorted_b, True, False, True), False, False, False)
    x = _substituted(lu, _substituted(lu, b, False, True, False), True, True, True)
    out = np.empty_like(x)
    np.put_along_axis(out, np.broadcast_to(places[..., None], x.shape), x, axis=-2)
    return out


def _lu_solve_jvp(primals: tuple, tangents: tuple, adjoint: bool) -> tuple[Any, Any]:
    (both, places, b), (dboth, _, db) = primals, tangents
    x = lu_solve(both, places, b, adjoint=adjoint)
    if dboth is not None:  # a = p' L U
        low, up = _triangles(both)
        da = add(product(lower_part(dboth, 1), up), product(low, upper_part(dboth)))
        da = product(_adjoint(_permutation(places, type_of(both).dtype)), da)
        db = total(db, neg(product(_adjoint(da) if adjoint else da, x)))
    return x, lu_solve(both, places, db, adjoint=adjoint)


_adjoint = adjoint  # where a parameter has that name


def _lu_solve_type(lu: ArrayType, places: ArrayType, b: ArrayType, adjoint: bool) -> ArrayType:
    if lu.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"lu_solve: factors of shape {lu.shape} and right-hand sides of shape {b.shape} don't fit")
    return ArrayType(b.shape, b.dtype)


# x in a x = b, or a^H x = b if `adjoint`, from what `lu` has of a.
lu_solve: Primitive = with_shared_rules(
    Primitive(
        "lu_solve",
        _lu_solve,
        _lu_solve_type,
        jvp=_lu_solve_jvp,
        transpose=lambda ct, lu, places, b, adjoint: (None, None, lu_solve(lu, places, ct, adjoint=not adjoint)),
        lower=lambda builder, lu, places, b, adjoint: builder.from_factors(lu, places, b, adjoint),
        linear=(2,),
        analytic=lambda types, params: not params["adjoint"] or types[0].dtype.kind != "c",
        cost=lambda types, outs, params: systems(0, 1)((types[0], types[2]), outs, params),
    ),
    solver_batch,
    solver_pattern,
)

# LAPACK's pivots ------------------------------------------------------------------------------------------------------


def _exchanges(x: Any, back: bool) -> Any:
    n = x.shape[-1]
    rows = np.clip(x.reshape(math.prod(x.shape[:-1]), n), 0, max(n - 1, 0)).astype(np.int64)
    out, order, stack = np.empty_like(rows), np.empty_like(rows), np.arange(len(rows))
    order[...] = np.arange(n)
    for i in range(n):
        out[:, i] = other = rows[:, i] if back else np.argmax(order == rows[:, i, None], axis=1)
        order[:, i], order[stack, other] = order[stack, other], order[:, i].copy()
    return (order if back else out).reshape(x.shape)


def _exchanging(code: Any, out: Any, x: Any) -> None:
    """The order of rows after all exchanges."""
    n = x.shape[0]
    with code.loop(0, n) as i:
        out.store(i, i)
    with code.loop(0, n) as i:
        other, here = code.intrinsic("umin", x.load(i), code.number(n - 1)), out.load(i)
        out.store(out.load(other), i)
        out.store(here, other)


def _finding_exchanges(code: Any, out: Any, x: Any, scratch: Any) -> None:
    """Where each row is when its turn comes: what is in each place, and the place of each row, are kept."""
    n = x.shape[0]
    order = code.buffer(scratch, x.dtype)
    places = code.buffer(code.shifted(scratch, n * x.dtype.itemsize), x.dtype)
    with code.loop(0, n) as i:
        order.store(i, i)
        places.store(i, i)
    with code.loop(0, n) as i:
        here = order.load(i)
        place = places.load(code.intrinsic("umin", x.load(i), code.number(n - 1)))
        out.store(place, i)
        order.store(here, place)
        places.store(place, here)


def _lower_exchanges(builder: Any, x: Any, back: bool) -> Any:
    x = builder.convert(x, np.dtype(np.int64))
    *lead, n = x.shape
    kind, scratch = ArrayType(x.shape, x.dtype), 0 if back else 2 * n * x.dtype.itemsize
    code = _exchanging if back else _finding_exchanges
    return builder.procedure("exchanges", code, [x], kind, len(lead), cost=3.0 * n, scratch=scratch)


# The exchanges of rows, each with a later one, that make a permutation: the pivots of LAPACK and SciPy. `back`: from
# these to the permutation.
exchanges: Primitive = with_shared_rules(
    Primitive(
        "exchanges",
        _exchanges,
        lambda x, back: ArrayType(x.shape, np.int64),
        jvp=lambda primals, tangents, back: (exchanges(*primals, back=back), None),
        lower=_lower_exchanges,
        cost=each(),
    ),
    pattern=lambda primitive: lambda types, params: [None],
)

# Cholesky -------------------------------------------------------------------------------------------------------------


def _cholesky_or_nan(a: Any) -> Any:
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        out, factorise = np.full_like(a, np.nan), lapack("potrf", a)
        for place in np.ndindex(a.shape[:-2]):
            found, info = factorise(a[place], lower=True, clean=True)
            if info == 0:
                out[place] = found
        return out


# `linalg.cholesky` where a matrix that isn't positive definite has a factor of NaN.
cholesky_or_nan: Primitive = with_shared_rules(
    Primitive(
        "cholesky_or_nan",
        _cholesky_or_nan,
        same_square,
        jvp=lambda primals, tangents: cholesky_jvp(primals, tangents, cholesky_or_nan),
        lower=lambda builder, a: builder.cholesky(a, None),
        analytic=False,
        impossible={"transpose": "it isn't linear"},
        cost=matrices(1 / 6),
    )
)
