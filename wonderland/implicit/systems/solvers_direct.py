"""Direct solvers: factorise once, solve with the factors as often as there are right-hand sides.

A linear solver is a frozen dataclass with two methods. `prepare(A)` gives what is kept, a tree of arrays; `solve(A,
kept, b, transposed)` gives x (n,) for b (m,), of A x = b or, with the same kept arrays, of A' x = b, where A' is the
adjoint. Neither raises for values: where there is no solution it is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.implicit.systems.sparse_systems import sparse_solve
from wonderland.numpy.dispatch import as_function
from wonderland.ops import factors
from wonderland.ops.linalg import triangular_solve

_lu, _lu_solve = as_function(factors.lu), as_function(factors.lu_solve)
_cholesky, _triangular_solve = as_function(factors.cholesky_or_nan), as_function(triangular_solve)
_sparse_solve = as_function(sparse_solve)


def common(b: Any, *arrays: Any) -> tuple[Any, ...]:
    """The arrays in their common dtype."""
    dtype = np.result_type(b.dtype, *(a.dtype for a in arrays))
    return tuple(a if a.dtype == dtype else a.astype(dtype) for a in (b, *arrays))


def require_square(A: Any, solver: str, instead: str = "QR() or LeastSquares()") -> None:
    """Refuse other operators."""
    if A.shape[0] != A.shape[1]:
        raise ArgumentError(
            f"{solver} solves square systems, and this one is {A.shape[0]} x {A.shape[1]}: use {instead}"
        )


def substitute(a: Any, b: Any, lower: bool, adjoint: bool, unit: bool = False) -> Any:
    """x in a x = b (a^H x = b) for a triangle of a (n, n) and b (n,); NaN where there is a zero on the diagonal."""
    b, a = common(b, a)
    if unit:
        return _triangular_solve(a, b[:, None], lower=lower, adjoint=adjoint, unit=True)[:, 0]
    zero = np.diagonal(a) == 0
    regular = a + np.where(np.eye(a.shape[0], dtype=bool) & zero, a.dtype.type(1), a.dtype.type(0))
    x = _triangular_solve(regular, b[:, None], lower=lower, adjoint=adjoint, unit=False)[:, 0]
    return np.where(np.any(zero), x.dtype.type(np.nan), x)


def solve_factors(kept: Any, b: Any, transposed: bool) -> Any:
    """x (n,) by what `factors.lu` gives; NaN, all of it, where there is a zero on the diagonal."""
    b, both = common(b, kept[0])
    if not isinstance(both, Tracer) and not isinstance(b, Tracer):  # one matrix, and LAPACK sees the zero
        return factors.lu_solve.evaluate(both, kept[1], b[:, None], adjoint=transposed)[:, 0]
    x = _lu_solve(both, kept[1], b[:, None], adjoint=transposed)[:, 0]
    return np.where(np.any(np.diagonal(both) == 0), x.dtype.type(np.nan), x)


@dataclass(frozen=True)
class LU:
    """LU with partial pivoting of the dense matrix: for any square one."""

    def prepare(self, A: Any) -> Any:
        """Both factors in one array, and the permutation."""
        require_square(A, "LU")
        a = A.dense()
        return _lu(a) if isinstance(a, Tracer) else factors.lu.evaluate(a)

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, by two substitutions."""
        return solve_factors(kept, b, transposed)


@dataclass(frozen=True)
class Cholesky:
    """Cholesky's factor of the dense matrix, which must be symmetric (Hermitian) and positive definite; else NaN."""

    def prepare(self, A: Any) -> Any:
        """The lower factor L, A = L L^H."""
        require_square(A, "Cholesky")
        return _cholesky(A.dense())

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, by two substitutions; A is its own adjoint."""
        b, low = common(b, kept)
        half = _triangular_solve(low, b[:, None], lower=True, adjoint=False, unit=False)
        return _triangular_solve(low, half, lower=True, adjoint=True, unit=False)[:, 0]


@dataclass(frozen=True)
class QR:
    """QR of the dense matrix, which has full rank: least squares for m > n, the x of least norm for m < n."""

    def prepare(self, A: Any) -> Any:
        """Q and R of the matrix or, if it has more columns than rows, of its adjoint."""
        a = A.dense()
        q, r = np.linalg.qr(a if A.shape[0] >= A.shape[1] else np.conj(a.T))
        return q, r

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """The pseudo-inverse, or its adjoint, times b."""
        b, q, r = common(b, *kept)
        if transposed == (A.shape[0] >= A.shape[1]):  # (Q R)^H x = b, of least norm
            return q @ substitute(r, b, lower=False, adjoint=True)
        return substitute(r, np.conj(q.T) @ b, lower=False, adjoint=False)


@dataclass(frozen=True)
class LeastSquares:
    """The singular value decomposition of the dense matrix, of any shape and rank: least squares of least norm.

    Singular values up to rcond times the largest count as zero; None is eps max(m, n).
    """

    rcond: float | None = None

    def prepare(self, A: Any) -> Any:
        """Singular vectors, and the inverse singular values."""
        a = A.dense()
        finite = np.all(np.isfinite(a))  # LAPACK would raise
        u, s, vh = np.linalg.svd(np.where(finite, a, a.dtype.type(0)), full_matrices=False)
        rcond = np.finfo(a.dtype).eps * max(*A.shape, 1) if self.rcond is None else self.rcond
        if not s.shape[0]:
            return u, s, vh
        large = s > s.dtype.type(rcond) * np.max(s)
        inverse = np.where(large, 1 / np.where(large, s, s.dtype.type(1)), s.dtype.type(0))
        return u, np.where(finite, inverse, s.dtype.type(np.nan)), vh

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """The pseudo-inverse, or its adjoint, times b."""
        u, inverse, vh = kept
        if transposed:
            return u @ (inverse * (vh @ b))
        return np.conj(vh.T) @ (inverse * (np.conj(u.T) @ b))


@dataclass(frozen=True)
class SparseLU:
    """Sparse LU (SuperLU) of a square `Sparse` operator.

    Its factors stay in a cache of ours, found by the pattern and the numbers: tangents, cotangents and later systems
    with the same matrix use them. Compiled code calls it as a function of Python's.
    """

    def prepare(self, A: Any) -> Any:
        """Nothing: the numbers are the operator's own."""
        if not hasattr(A, "pattern"):
            raise ArgumentError(f"SparseLU solves systems with a Sparse operator, got {A}: use LU(), or Sparse(matrix)")
        require_square(A, "SparseLU", "LSMR()")
        return ()

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, by SuperLU."""
        return solve_sparse(A, b, transposed, None)


def solve_sparse(A: Any, b: Any, transposed: bool, incomplete: tuple[float, float] | None) -> Any:
    """x by the factors of a `Sparse` operator."""
    b, data = common(b, A.data)
    if A.flipped:  # its numbers are the conjugates of those whose pattern this is, and the adjoint is that matrix
        data = np.conj(data) if data.dtype.kind == "c" else data
    params: dict[str, Any] = {"structure": A.pattern, "transposed": A.flipped != transposed, "incomplete": incomplete}
    return _sparse_solve(data[None], b[:, None], **params)[:, 0]
