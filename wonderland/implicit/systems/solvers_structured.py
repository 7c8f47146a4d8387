"""The own solvers of structured operators: division, substitution, banded LU, Woodbury's formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.implicit.systems.bands import banded_solve
from wonderland.implicit.systems.solvers_direct import common, solve_factors, substitute
from wonderland.numpy.dispatch import as_function
from wonderland.ops import factors
from wonderland.transform.vmap import vmap

_banded_solve = as_function(banded_solve)
_lu = as_function(factors.lu)


def _require(A: Any, solver: str, attribute: str, kinds: str) -> None:
    if not hasattr(A, attribute):
        raise ArgumentError(f"{solver} solves systems with {kinds}, got {A}: use LU()")


@dataclass(frozen=True)
class Division:
    """For `Diagonal`: b / d, and NaN where d is 0."""

    def prepare(self, A: Any) -> Any:
        """Nothing."""
        _require(A, "Division", "d", "a Diagonal")
        return ()

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """b / d."""
        b, d = common(b, A.d)
        zero = d == 0
        return np.where(
            zero, d.dtype.type(np.nan), b / np.where(zero, d.dtype.type(1), np.conj(d) if transposed else d)
        )


@dataclass(frozen=True)
class Substitution:
    """For `Triangular`: forward or back substitution; NaN if there is a zero on the diagonal."""

    def prepare(self, A: Any) -> Any:
        """Nothing."""
        _require(A, "Substitution", "unit_diagonal", "a Triangular")
        return ()

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, row by row."""
        return substitute(A.a, b, lower=A.lower, adjoint=transposed, unit=A.unit_diagonal)


@dataclass(frozen=True)
class BandedLU:
    """For `Tridiagonal` and `Banded`: LU with partial pivoting within the bands, in O(n); NaN if singular."""

    def prepare(self, A: Any) -> Any:
        """Nothing: the factors cost about what a solve does."""
        _require(A, "BandedLU", "banded", "a Tridiagonal or a Banded")
        return ()

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, by LAPACK, or in native code."""
        banded = A.transposed().banded() if transposed else A.banded()
        b, bands = common(b, banded.bands)
        return _banded_solve(bands, b[:, None], lower=banded.lower, upper=banded.upper)[:, 0]


@dataclass(frozen=True)
class Woodbury:
    """For `LowRankUpdate`, base + u v', with a solver for the base B.

    x = y - B^-1 u (1 + v' B^-1 u)^-1 v' y with y = B^-1 b: one solve with the base, and one with a (k, k) matrix. Where
    the base is close to singular, this loses the digits that LU of the whole would keep.
    """

    base: Any

    def prepare(self, A: Any) -> Any:
        """What the base keeps, B^-1 u, B'^-1 v, and the LU of 1 + v' B^-1 u."""
        _require(A, "Woodbury", "base", "a LowRankUpdate")
        kept = self.base.prepare(A.base)
        columns = lambda x, transposed: vmap(
            lambda column: self.base.solve(A.base, kept, column, transposed), in_axes=1, out_axes=1
        )(x)
        u, v = common(A.u, A.v)
        solved = columns(u, False)
        small = np.eye(u.shape[1], dtype=solved.dtype) + np.conj(v.T) @ solved
        return kept, solved, columns(v, True), _lu(small)

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, by the formula."""
        base, solved_u, solved_v, small = kept
        y = self.base.solve(A.base, base, b, transposed)
        right, left = (A.u, solved_v) if transposed else (A.v, solved_u)
        return y - left @ solve_factors(small, np.conj(right.T) @ y, transposed)
