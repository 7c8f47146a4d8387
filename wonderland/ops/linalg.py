"""Linear algebra: triangular and general systems, least squares, Cholesky, the matrix exponential.

Operands are stacks of matrices (..., m, n) of one floating-point dtype and with the same leading axes; every rule works
on the last two axes, so that a batch is one more leading axis. What NumPy calls inv is `solve` with an identity, and
pinv is `lstsq` with one. Derivatives are written with these primitives again: there are derivatives of every order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    div,
    gt,
    lt,
    maximum,
    mul,
    neg,
    stop_gradient,
    sub,
    where,
)
from wonderland.ops.math import pow
from wonderland.ops.matrices import (
    adjoint,
    block,
    block_pattern,
    embedded,
    identity_like,
    masked,
    of_triangle,
    product,
    real_dtype,
    same_square,
    scalars,
    square,
    stacked_batch,
    total,
    with_shared_rules,
)
from wonderland.ops.pattern import as_type, blocks
from wonderland.ops.reduce import max as reduce_max
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.series import convolve
from wonderland.ops.shape import reshape, transpose
from wonderland.ops.substitution import lower_triangular_system
from wonderland.ops.work import matrices, systems

# Systems of equations -------------------------------------------------------------------------------------------------


def solver_batch(primitive: Primitive) -> Callable:
    """Several right-hand sides for one matrix are more columns: it is factorised once.

    The right-hand side is the last operand; the others are the matrix, or its factors.
    """
    stacked = stacked_batch(primitive)

    def batch(size: int, args: tuple, batched: tuple, **params: Any) -> Any:
        *matrix, b = args
        if any(batched[:-1]):
            return stacked(size, args, batched, **params)
        rank = len(shape_of(b))  # (size, ..., n, k) -> (..., n, size, k)
        moved = transpose(b, permutation=(*range(1, rank - 1), 0, rank - 1))
        *head, n, count, k = shape_of(moved)
        out = primitive(*matrix, reshape(moved, shape=(*head, n, count * k)), **params)
        out = reshape(out, shape=(*head, shape_of(out)[-2], count, k))
        return transpose(out, permutation=(rank - 2, *range(rank - 2), rank - 1))

    return batch


def solver_pattern(primitive: Primitive) -> Callable:
    """A column of the solution reads the matrix and its own right-hand side."""
    blockwise = block_pattern(primitive)

    def columns(t: ArrayType) -> np.ndarray:
        *head, n, k = t.shape
        return np.swapaxes(np.arange(t.size).reshape(t.shape), -1, -2).reshape(math.prod(head) * k, n)

    def pattern(types: tuple[ArrayType, ...], params: dict) -> list:
        out = primitive.infer(*map(as_type, types), **params)
        return [*blockwise(types, params)[:-1], blocks(columns(out), columns(types[-1]))]

    return pattern


def _system_type(a: ArrayType, b: ArrayType, **params: Any) -> ArrayType:
    square(a)
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"solve: matrices of shape {a.shape} and right-hand sides of shape {b.shape} don't fit")
    return ArrayType(b.shape, b.dtype)


def _solve_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    # a x = b: a dx = db - da x
    (a, b), (da, db) = primals, tangents
    x = solve(a, b)
    return x, solve(a, total(db, None if da is None else neg(product(da, x))))


def _system_taylor(b: Any, known: Any, solver: Callable) -> Any:
    """Coefficient k of x in a x = b: a_0 x_k is b_k without what the other coefficients of a make of those known."""
    rest = total(b, None if known is None else neg(known))
    return None if rest is None else solver(rest)


solve: Primitive = with_shared_rules(
    Primitive(
        "solve",
        lambda a, b: np.linalg.solve(a, b),
        _system_type,
        jvp=_solve_jvp,
        taylor=lambda out, a, b: (
            lambda k: _system_taylor(b[k], convolve(a, out, k, product, first=1), lambda rest: solve(a[0], rest))
        ),
        transpose=lambda ct, a, b: (None, solve(adjoint(a), ct)),
        lower=lambda builder, a, b: builder.system(builder.convert(a, b.dtype), b),
        linear=(1,),
        raises=True,  # a singular matrix
        cost=systems(1 / 3, 1),
    ),
    solver_batch,
    solver_pattern,
)


def inverse(a: Any) -> Any:
    """The inverse of each matrix."""
    return solve(a, identity_like(a))


def _triangular_solve(a: Any, b: Any, lower: bool, adjoint: bool, unit: bool) -> Any:
    out = np.empty(b.shape, np.result_type(a, b))
    n, count = a.shape[-1], int(np.prod(a.shape[:-2]))
    if not out.size:
        return out
    if count <= n:
        with loading():
            from scipy.linalg import solve_triangular

        for place in np.ndindex(a.shape[:-2]):
            out[place] = solve_triangular(
                a[place], b[place], lower=lower, trans=2 if adjoint else 0, unit_diagonal=unit, check_finite=False
            )
        return out
    # Many small matrices: substitution, all of them row by row.
    if adjoint:
        a, lower = np.conj(np.swapaxes(a, -1, -2)), not lower
    if not unit and np.any(np.equal(np.diagonal(a, axis1=-2, axis2=-1), 0)):
        raise np.linalg.LinAlgError("singular matrix: a zero on the diagonal")
    for i in range(n) if lower else reversed(range(n)):
        known = np.s_[:i] if lower else np.s_[i + 1 :]
        row = b[..., i, :] - np.matmul(a[..., i : i + 1, known], out[..., known, :])[..., 0, :]
        out[..., i, :] = row if unit else row / a[..., i, i, None]
    return out


def _triangle(a: Any, lower: bool, unit: bool) -> Any:
    """The part of a matrix that `triangular_solve` reads."""
    return masked(a, np.tri(shape_of(a)[-1], k=-int(unit), dtype=bool)[:: 1 if lower else -1, :: 1 if lower else -1])


def _triangular_solve_jvp(
    primals: tuple, tangents: tuple, lower: bool, adjoint: bool, unit: bool
) -> tuple[Any, Any]:  # fmt: skip
    (a, b), (da, db) = primals, tangents
    x = triangular_solve(a, b, lower=lower, adjoint=adjoint, unit=unit)
    if da is not None:
        da = _triangle(da, lower, unit)
        da = neg(product(_adjoint(da) if adjoint else da, x))
    return x, triangular_solve(a, total(db, da), lower=lower, adjoint=adjoint, unit=unit)


def _triangular_solve_taylor(out: Any, a: Any, b: Any, lower: bool, adjoint: bool, unit: bool) -> Callable:
    def apply(da: Any, x: Any) -> Any:
        da = _triangle(da, lower, unit)
        return product(_adjoint(da) if adjoint else da, x)

    return lambda k: _system_taylor(
        b[k],
        convolve(a, out, k, apply, first=1),
        lambda rest: triangular_solve(a[0], rest, lower=lower, adjoint=adjoint, unit=unit),
    )


_adjoint = adjoint  # where a parameter has that name

# Solve a x = b, or a^H x = b if `adjoint`, reading one triangle of a; with `unit` its diagonal is taken as ones.
triangular_solve: Primitive = with_shared_rules(
    Primitive(
        "triangular_solve",
        _triangular_solve,
        _system_type,
        jvp=_triangular_solve_jvp,
        taylor=_triangular_solve_taylor,
        lower=lower_triangular_system,
        analytic=lambda types, params: not params["adjoint"] or types[0].dtype.kind != "c",
        transpose=lambda ct, a, b, lower, adjoint, unit: (
            None,
            triangular_solve(a, ct, lower=lower, adjoint=not adjoint, unit=unit),
        ),
        linear=(1,),
        raises=True,  # a zero on the diagonal
        cost=systems(0, 0.5),
    ),
    solver_batch,
    solver_pattern,
)


def _lstsq(a: Any, b: Any, rcond: float) -> Any:
    if not a.size:
        return np.zeros((*b.shape[:-2], a.shape[-1], b.shape[-1]), b.dtype)
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    large = s > np.asarray(rcond, s.dtype) * np.max(s, axis=-1, keepdims=True)
    s = np.divide(1, s, where=large, out=np.zeros_like(s))
    weighted = s[..., None] * np.matmul(np.conj(np.swapaxes(u, -1, -2)), b)
    return np.matmul(np.conj(np.swapaxes(vh, -1, -2)), weighted)


def _lstsq_type(a: ArrayType, b: ArrayType, rcond: float) -> ArrayType:
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"lstsq: matrices of shape {a.shape} and right-hand sides of shape {b.shape} don't fit")
    return ArrayType((*b.shape[:-2], a.shape[-1], b.shape[-1]), b.dtype)


def _lstsq_jvp(primals: tuple, tangents: tuple, rcond: float) -> tuple[Any, Any]:
    # With P the pseudo-inverse and x = P b (Golub and Pereyra, 1973), as long as the rank stays what it is:
    # dx = P (db - da x) + P P^H da^H (b - a x) + (1 - P a) da^H P^H x
    (a, b), (da, db) = primals, tangents
    x = lstsq(a, b, rcond=rcond)
    if da is None:
        return x, lstsq(a, db, rcond=rcond)
    change, across = adjoint(da), adjoint(a)
    m, n = shape_of(a)[-2:]
    within = total(db, neg(product(da, x)))
    rest = None
    if m != 0 and n != 0:
        within = add(within, lstsq(across, product(change, sub(b, product(a, x))), rcond=rcond))
        rest = product(change, lstsq(across, x, rcond=rcond))
        within = sub(within, product(a, rest))
    return x, total(lstsq(a, within, rcond=rcond), rest)


def _lstsq_taylor(out: Any, a: Any, b: Any, rcond: float) -> Callable:
    if a.constant:
        return lambda k: None if b[k] is None else lstsq(a[0], b[k], rcond=rcond)
    # The pseudo-inverse moves by products with itself alone.
    m = shape_of(a)[-2]
    one = np.broadcast_to(np.eye(m, dtype=a.dtype), (*shape_of(a)[:-2], m, m))

    def slope(p: Any) -> Any:
        da, across = a.slope(), adjoint(a.slope())
        left, right = product(across, sub(one, product(a, p))), product(across, adjoint(p), p)
        return add(sub(product(p, adjoint(p), left), product(p, da, p)), sub(right, product(p, a, right)))

    inverse = out.level.solution(lstsq(a[0], one, rcond=rcond), slope)
    whole = product(inverse, b)
    return lambda k: whole[k]


# The least-squares solution of least norm, P b; singular values up to rcond times the largest count as zero.
lstsq: Primitive = with_shared_rules(
    Primitive(
        "lstsq",
        _lstsq,
        _lstsq_type,
        jvp=_lstsq_jvp,
        taylor=_lstsq_taylor,
        analytic=lambda types, params: types[0].dtype.kind != "c",  # P has a^H in it
        transpose=lambda ct, a, b, rcond: (None, lstsq(adjoint(a), ct, rcond=rcond)),
        linear=(1,),
        raises=True,  # no convergence
        cost=systems(11, 2),
    ),
    solver_batch,
    solver_pattern,
)


def cholesky_jvp(primals: tuple, tangents: tuple, factorise: Primitive) -> tuple[Any, Any]:
    """The rule of a Cholesky factor, for the primitive that makes it."""
    # dL = L Phi(L^-1 da L^-H), where Phi takes the lower triangle with half the diagonal
    (a,), (da,) = primals, tangents
    out = factorise(a)
    half = triangular_solve(out, of_triangle(da, lower=True), lower=True, adjoint=False, unit=False)
    whole = triangular_solve(out, adjoint(half), lower=True, adjoint=False, unit=False)
    weights = np.tri(shape_of(a)[-1]) - 0.5 * np.eye(shape_of(a)[-1])
    return out, product(out, mul(adjoint(whole), weights.astype(real_dtype(type_of(out).dtype))))


INDEFINITE = (np.linalg.LinAlgError, "Matrix is not positive definite")

# The lower factor L of a = L L^H, of which the lower triangle is read, and differentiated.
cholesky: Primitive = with_shared_rules(
    Primitive(
        "cholesky",
        lambda a: np.linalg.cholesky(a),
        same_square,
        jvp=lambda primals, tangents: cholesky_jvp(primals, tangents, cholesky),
        lower=lambda builder, a: builder.cholesky(a, INDEFINITE),
        analytic=False,
        impossible={"transpose": "it isn't linear"},
        raises=True,  # a matrix that isn't positive definite
        cost=matrices(1 / 6),
    )
)

# The matrix exponential -----------------------------------------------------------------------------------------------


def _exponential(a: Any) -> Any:
    with loading():
        from scipy.linalg import expm

    return np.asarray(expm(a), a.dtype) if a.size else np.zeros(a.shape, a.dtype)


def _size(x: Any) -> Any:
    """The 1-norm of each matrix, (..., 1, 1): what scaling and squaring looks at."""
    last = len(shape_of(x)) - 1
    return scalars(reduce_max(reduce_sum(abs(x), axes=(last - 1,)), axes=(last - 1,)))


def _beside(a: Any, e: Any) -> Any:
    """The factor that e is larger than a, by which it is divided where both are blocks of one matrix.

    A larger block would have the exponential scale a by more than it needs, and lose its digits in the squaring; a much
    smaller one would drown in the rounding errors of the others. Results are linear in e: this number is a constant.
    """
    size = _size(stop_gradient(e))
    one = np.ones((), type_of(size).dtype)[()]
    known = bitwise_and(gt(size, 0), lt(size, np.inf))
    return div(where(known, size, one), maximum(_size(stop_gradient(a)), one))


def _pair(a: Any, e: Any) -> Any:
    """[[a, e], [0, a]], of which a function is [[f(a), Df(a)[e]], [0, f(a)]]."""
    n = shape_of(a)[-1]
    return add(_twice(a), embedded(e, (2 * n, 2 * n), 0, n))


def _twice(a: Any) -> Any:
    n = shape_of(a)[-1]
    return add(embedded(a, (2 * n, 2 * n)), embedded(a, (2 * n, 2 * n), n, n))


def _corner(whole: Any) -> Any:
    """The upper right block."""
    n = shape_of(whole)[-1] // 2
    return block(whole, (n, n), 0, n)


def _expm_tangent(a: Any, e: Any) -> Any:
    if not a.size:
        return np.zeros(a.shape, a.dtype)
    scale = _beside(a, e)
    return _corner(_exponential(_pair(a, e / scale))) * scale


def _expm_tangent_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (a, e), (da, de) = primals, tangents
    out = expm_tangent(a, e)
    second = None
    if da is not None and shape_of(a)[-1]:  # the same construction once more, with [[a, e], [0, a]] in the place of a
        scale = _beside(a, e)
        second = mul(_corner(expm_tangent(_pair(a, div(e, scale)), _twice(da))), scale)
    return out, total(None if de is None else expm_tangent(a, de), second)


def _pace(a: Any, order: int) -> list:
    """The powers of a number c with which no a_j / c^j is larger than a_0, (..., 1, 1) each."""
    one = np.ones((), real_dtype(a.dtype))[()]
    each = [pow(_beside(a[0], a[j]), 1 / j) for j in range(1, order + 1) if a[j] is not None and shape_of(a)[-1]]
    powers = [one]
    for _ in range(order):
        powers.append(mul(powers[-1], reduce(maximum, each)) if each else one)
    return powers


def _expm_taylor(out: Any, a: Any) -> Callable:
    # A series of matrices computes as the block matrix with a_j on the j-th diagonal does; its first row is the series.
    n, head = shape_of(a)[-1], shape_of(a)[:-2]
    found: list = []

    def coefficient(k: int) -> Any:
        if len(found) <= k:
            order = a.level.order if a.find is None else k
            size = ((order + 1) * n, (order + 1) * n)
            powers = _pace(a, order)
            whole: Any = np.zeros((*head, *size), a.dtype)
            for j in range(order + 1):
                for i in range(order + 1 - j) if a[j] is not None else ():
                    whole = add(whole, embedded(div(a[j], powers[j]), size, i * n, (i + j) * n))
            whole = expm(whole)
            found[:] = [mul(block(whole, (n, n), 0, j * n), powers[j]) for j in range(order + 1)]
        return found[k]

    return coefficient


def _expm_tangent_taylor(out: Any, a: Any, e: Any) -> Callable:
    scale = _beside(a, e) if shape_of(a)[-1] else np.ones((), real_dtype(a.dtype))[()]
    corner = mul(_corner(expm(_pair(a, div(e, scale)))), scale)
    return lambda k: corner[k]


expm: Primitive = with_shared_rules(
    Primitive(
        "expm",
        _exponential,
        same_square,
        jvp=lambda primals, tangents: (expm(*primals), expm_tangent(*primals, *tangents)),
        taylor=_expm_taylor,
        impossible={"transpose": "it isn't linear"},
        cost=matrices(8),
    )
)
expm_tangent: Primitive = with_shared_rules(
    Primitive(
        "expm_tangent",
        _expm_tangent,
        lambda a, e: same_square(a),
        jvp=_expm_tangent_jvp,
        taylor=_expm_tangent_taylor,
        transpose=lambda ct, a, e: (None, expm_tangent(adjoint(a), ct)),
        linear=(1,),
        cost=matrices(64),
    )
)
