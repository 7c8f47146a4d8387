"""scipy.linalg's functions on traced arrays. SciPy has no hook for them: write `wonderland.scipy.linalg.expm(x)`.

A call without traced arrays goes to SciPy. Options that only choose an algorithm, check the operands or permit
overwriting them are accepted and change nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from wonderland.core.level import bind_update
from wonderland.core.tracer import FUNCTIONS, Tracer
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy import linear_algebra as of_numpy
from wonderland.numpy.dispatch import has_tracer, implements, present, space_of, values
from wonderland.numpy.join import as_value
from wonderland.numpy.linear_algebra import inexact, square_matrix, stacked
from wonderland.numpy.missing import complete
from wonderland.ops import decompositions, factors, linalg
from wonderland.ops.elementwise import conjugate, where
from wonderland.ops.index import gather, scatter_slice
from wonderland.ops.matrices import adjoint, hermitian_part, identity_like, masked, of_triangle
from wonderland.ops.shape import broadcast, convert, reshape

scipy = complete(scipy, ("linalg",))


def _transposed(a: Any) -> Any:
    return conjugate(adjoint(a))


def _triangular(a: Any, b: Any, lower: bool, adjoint: bool, unit: bool = False) -> Any:
    vector = len(shape_of(b)) == 1
    b = reshape(b, shape=(*shape_of(b), 1)) if vector else b
    if shape_of(a)[-1] != shape_of(b)[-2]:
        raise ValueError(f"shapes of a {shape_of(a)} and b {shape_of(b)} are incompatible")
    a, b = stacked(a, b)
    out = linalg.triangular_solve(a, b, lower=bool(lower), adjoint=adjoint, unit=bool(unit))
    return reshape(out, shape=shape_of(out)[:-1]) if vector else out


@implements(scipy.linalg.solve_triangular)
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, check_finite: bool = True,
) -> Any:  # fmt: skip
    """Solve a x = b for a triangular matrix; `trans` 1 or "T" for its transpose, 2 or "C" for its adjoint."""
    a, b = inexact(a, b)
    square_matrix(a)
    trans = {"N": 0, "T": 1, "C": 2}.get(trans, trans)
    if trans not in (0, 1, 2):
        raise ValueError(f"trans is 0, 1, 2, 'N', 'T' or 'C', not {trans!r}")
    return _triangular(conjugate(a) if trans == 1 else a, b, lower, trans != 0, unit_diagonal)


@implements(scipy.linalg.cholesky)
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Cholesky factor: L of a = L L^H if `lower`, otherwise U of a = U^H U."""
    return of_numpy.cholesky(a, upper=not lower)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Cholesky factor for `cho_solve`, with zeros in the other triangle."""
    if not has_tracer(a):
        return scipy.linalg.cho_factor(a, lower)
    return Tracer(cholesky(values(a), lower)), lower


def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Solve a x = b, given what `cho_factor` returned for a."""
    factor, lower = c_and_lower
    if not has_tracer((factor, b)):
        return scipy.linalg.cho_solve((factor, lower), b)
    return Tracer(_solved(values(factor), values(b), lower))


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """L and U in one matrix, and LAPACK's pivots, for `lu_solve`. A singular matrix has a zero on U's diagonal."""
    if not has_tracer(a):
        return scipy.linalg.lu_factor(a)
    (a,) = inexact(values(a))
    both, places = factors.lu(square_matrix(a))
    pivots = convert(factors.exchanges(places, back=False), dtype=np.dtype(np.int32))
    return Tracer(both), Tracer(pivots)


def lu_solve(
    lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Any:  # fmt: skip
    """Solve a x = b, given what `lu_factor` returned for a; `trans` 1 for its transpose, 2 for its adjoint."""
    both, pivots = lu_and_piv
    if not has_tracer((both, pivots, b)):
        return scipy.linalg.lu_solve((both, pivots), b, trans)
    if trans not in (0, 1, 2):
        raise ValueError(f"trans is 0, 1 or 2, not {trans!r}")
    both, b = inexact(values(both), values(b))
    vector = len(shape_of(b)) == 1
    b = reshape(b, shape=(*shape_of(b), 1)) if vector else b
    if shape_of(both)[-1] != shape_of(b)[-2]:
        raise ValueError(f"shapes of lu {shape_of(both)} and b {shape_of(b)} are incompatible")
    lead = np.broadcast_shapes(shape_of(both)[:-2], shape_of(b)[:-2])
    both, b = stacked(both, b)
    places = factors.exchanges(convert(values(pivots), dtype=np.dtype(np.int64)), back=True)
    places = broadcast(places, shape=(*lead, shape_of(places)[-1]))
    conjugated = trans == 1 and type_of(both).dtype.kind == "c"
    out = factors.lu_solve(both, places, conjugate(b) if conjugated else b, adjoint=trans != 0)
    out = conjugate(out) if conjugated else out
    return Tracer(reshape(out, shape=shape_of(out)[:-1]) if vector else out)


for _function in (cho_factor, cho_solve, lu_factor, lu_solve):  # one argument or result of them isn't an array
    for _original in present([getattr(scipy.linalg, _function.__name__)]):
        FUNCTIONS[_original] = space_of(_original)[_function.__name__] = _function


_POSITIVE = ("pos", "positive definite")


def _solved(factor: Any, b: Any, lower: bool) -> Any:
    """x in a x = b, given a Cholesky factor of a."""
    factor, b = inexact(factor, b)
    half = _triangular(factor, b, lower, adjoint=not lower)
    return _triangular(factor, half, lower, adjoint=bool(lower))


def _assumed(a: Any, structure: str | None, lower: bool) -> Any:
    """The matrix that SciPy takes `a` for, of which it reads a part."""
    a = square_matrix(a)
    if structure in (None, "general", "gen", "banded"):
        return a
    if structure in ("sym", "symmetric", "her", "hermitian"):
        return of_triangle(a, bool(lower), hermitian=structure in ("her", "hermitian"))
    if structure not in ("diagonal", "tridiagonal"):
        raise ValueError(f"{structure} is not a recognized matrix structure")
    far = np.abs(np.subtract.outer(*2 * (np.arange(shape_of(a)[-1]),)))
    return masked(a, far <= (structure == "tridiagonal"))


@implements(scipy.linalg.solve)
def solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    check_finite: bool = True, assume_a: str | None = None, transposed: bool = False,
) -> Any:  # fmt: skip
    """Solve a x = b. Of a structure that is assumed of a, only the part that defines it is read."""
    a, b = inexact(a, b)
    if transposed and type_of(a).dtype.kind == "c":
        raise NotImplementedError("solve: transposed=True is for real matrices; write solve(a.T, b)")
    if assume_a in ("upper triangular", "lower triangular"):
        return solve_triangular(a, b, int(transposed), assume_a == "lower triangular")
    if assume_a in _POSITIVE:
        return _solved(of_numpy.cholesky(a, upper=not lower), b, lower)
    a = _assumed(a, assume_a, lower)
    return of_numpy.solve(_transposed(a) if transposed else a, b)


@implements(scipy.linalg.inv)
def inv(
    a: Any, overwrite_a: bool = False, check_finite: bool = True, *, assume_a: str | None = None, lower: bool = False
) -> Any:
    """The inverse. Of a structure that is assumed of a, only the part that defines it is read."""
    a = square_matrix(a)
    return solve(a, identity_like(a), lower, assume_a=assume_a)


@implements(scipy.linalg.det)
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant, which SciPy computes in double precision."""
    (a,) = inexact(a)
    return of_numpy.det(convert(a, dtype=np.result_type(type_of(a).dtype, np.float64)))


@implements(scipy.linalg.expm)
def expm(A: Any) -> Any:
    """The matrix exponential."""
    return linalg.expm(square_matrix(A))


@implements(scipy.linalg.eigh)
def eigh(
    a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
    overwrite_b: bool = False, type: int = 1, check_finite: bool = True, subset_by_index: Any = None,
    subset_by_value: Any = None, driver: str | None = None,
) -> Any:  # fmt: skip
    """Eigenvalues and eigenvectors of Hermitian matrices, or of the pair a v = w b v."""
    if subset_by_index is not None or subset_by_value is not None or type != 1:
        raise TypeError("eigh on traced arrays has all eigenvalues, of a v = w b v: take a part of the result")
    if b is None:
        w, v = decompositions.eigh(square_matrix(a), lower=bool(lower))
        return w if eigvals_only else (w, v)
    a, b = inexact(a, b)
    # With b = L L^H: the eigenvectors u of L^-1 a L^-H are L^H v, and v^H b v = 1.
    factor = of_numpy.cholesky(b) if lower else adjoint(of_numpy.cholesky(b, upper=True))
    half = _triangular(factor, of_triangle(a, bool(lower)), True, False)
    inner = hermitian_part(_triangular(factor, adjoint(half), True, False))
    w, u = decompositions.eigh(inner, lower=True)
    return w if eigvals_only else (w, _triangular(factor, u, True, True))


@implements(scipy.linalg.eigvalsh)
def eigvalsh(a: Any, b: Any = None, *, lower: bool = True, **options: Any) -> Any:
    """Eigenvalues of Hermitian matrices, or of the pair a v = w b v."""
    return eigh(a, b, lower=lower, eigvals_only=True, **options)


@implements(scipy.linalg.block_diag)
def block_diag(*arrs: Any) -> Any:
    """A matrix with the given ones along its diagonal; numbers and vectors count as rows."""
    parts = [as_value(a) for a in arrs]
    dtype = promote(*(type_of(a) for a in parts))[0]
    parts = [a if type_of(a).dtype == dtype else convert(a, dtype=dtype) for a in parts]
    if any(len(shape_of(a)) > 2 for a in parts):
        raise ValueError("block_diag on traced arrays takes matrices, vectors and numbers, not stacks of matrices")
    parts = [reshape(a, shape=(1,) * (2 - len(shape_of(a))) + shape_of(a)) for a in parts]
    size = (sum(shape_of(a)[0] for a in parts), sum(shape_of(a)[1] for a in parts))
    box: list = [np.zeros(size, dtype)]
    row = column = 0
    for a in parts:
        height, width = shape_of(a)
        index = (slice(row, row + height, 1), slice(column, column + width, 1))
        box = [bind_update(scatter_slice, box, a, index=index, mode="set")]
        row, column = row + height, column + width
    return box[0]


@implements(scipy.linalg.toeplitz)
def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix with constant diagonals whose first column is c and first row r (by default the conjugate of c)."""
    c = as_value(c)
    r = conjugate(c) if r is None else as_value(r)
    if len(shape_of(c)) != 1 or len(shape_of(r)) != 1:
        raise ValueError("toeplitz on traced arrays takes vectors, one column and one row")
    (m,), (n,) = shape_of(c), shape_of(r)
    below, above = (np.maximum(d, 0) for d in (np.subtract.outer(np.arange(m), np.arange(n)) * [[[1]], [[-1]]]))
    if not m or not n:
        return np.zeros((m, n), promote(type_of(c), type_of(r))[0])
    return where(np.tri(m, n, dtype=bool), gather(c, below, axes=(0,)), gather(r, above, axes=(0,)))
