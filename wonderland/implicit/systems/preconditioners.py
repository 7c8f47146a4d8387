"""Preconditioners: operators M that are close to the inverse of A and cheap to apply.

Iterative solvers take one as `preconditioner=`: an operator or a function v -> M v, or one of the classes here, whose
`prepare(A)` makes the operator from A when it is factorised, or solved with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.implicit.systems.operators import Diagonal, Operator
from wonderland.implicit.systems.solvers_direct import require_square, solve_sparse
from wonderland.transform.vmap import vmap


@dataclass(frozen=True)
class Jacobi:
    """One over the diagonal of A; 1 where that is 0."""

    def prepare(self, A: Any) -> Operator:
        """The operator."""
        require_square(A, "Jacobi")
        d = A.diagonal()
        zero = d == 0
        return Diagonal(np.where(zero, d.dtype.type(1), 1 / np.where(zero, d.dtype.type(1), d)))


@dataclass(frozen=True)
class IncompleteLU:
    """Incomplete sparse LU of a `Sparse` A (`scipy.sparse.linalg.spilu`).

    Numbers below `drop_tol` of a row are dropped, and the factors may have `fill_factor` times the numbers of A.
    """

    drop_tol: float = 1e-4
    fill_factor: float = 10.0

    def prepare(self, A: Any) -> Operator:
        """The operator."""
        if not hasattr(A, "pattern"):
            raise ArgumentError(f"IncompleteLU takes a Sparse operator, got {A}: use Jacobi(), or Sparse(matrix)")
        require_square(A, "IncompleteLU")
        return IncompleteInverse(A, float(self.drop_tol), float(self.fill_factor))


class IncompleteInverse(Operator):
    """What `IncompleteLU` makes of a `Sparse` operator: the inverse of its incomplete factors."""

    leaves: ClassVar[tuple[str, ...]] = ("matrix",)
    static: ClassVar[tuple[str, ...]] = ("drop_tol", "fill_factor", "adjoint")

    def __init__(self, matrix: Any, drop_tol: float, fill_factor: float, adjoint: bool = False):
        self.matrix: Any = matrix
        self.drop_tol, self.fill_factor, self.adjoint = drop_tol, fill_factor, adjoint

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def matvec(self, v: Any) -> Any:
        return solve_sparse(self.matrix, v, self.adjoint, (self.drop_tol, self.fill_factor))

    def transposed(self) -> IncompleteInverse:
        return IncompleteInverse(self.matrix, self.drop_tol, self.fill_factor, not self.adjoint)

    def dense(self) -> Any:
        return vmap(self.matvec, out_axes=1)(np.eye(self.shape[0], dtype=self.dtype))
