"""Factors that a user keeps: `factorize(A)` does what a solver prepares once, for many right-hand sides.

Also what arguments mean: arrays and matrices of scipy.sparse as operators, names as solvers; and how a solve went.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import register_node
from wonderland.implicit.reports import Report, Status
from wonderland.implicit.systems.krylov import Krylov, scaled_norm
from wonderland.implicit.systems.operators import Dense, Operator
from wonderland.implicit.systems.operators_sparse import Sparse
from wonderland.implicit.systems.solvers_direct import LU, QR, Cholesky, LeastSquares, SparseLU
from wonderland.implicit.systems.solvers_gmres import GMRES
from wonderland.implicit.systems.solvers_krylov import CG, MINRES, BiCGStab
from wonderland.implicit.systems.solvers_lsmr import LSMR
from wonderland.numpy.sparse import is_sparse
from wonderland.transform.derivatives import stop_gradient

_SOLVERS: dict[str, Any] = {
    "lu": LU, "cholesky": Cholesky, "qr": QR, "least_squares": LeastSquares, "sparse_lu": SparseLU, "cg": CG,
    "minres": MINRES, "bicgstab": BiCGStab, "gmres": GMRES, "lsmr": LSMR,
}  # fmt: skip


def as_operator(A: Any) -> Any:
    """An operator as it is; an array as `Dense`, a matrix of scipy.sparse as `Sparse`."""
    if isinstance(A, Operator):
        return A
    return Sparse(A) if is_sparse(A) else Dense(A)


def as_solver(solver: Any, A: Any) -> Any:
    """A solver as it is, the one of a name, or the default of the operator for "auto"."""
    if not isinstance(solver, str):
        if not (hasattr(solver, "prepare") and hasattr(solver, "solve")) or isinstance(solver, type):
            raise ArgumentError(f"expected a linear solver such as wl.implicit.LU(), or its name, got {solver!r}")
        return solver
    if solver == "auto":
        return A.default_solver()
    if solver not in _SOLVERS:
        raise ArgumentError(f"there is no linear solver {solver!r}: expected 'auto' or one of {', '.join(_SOLVERS)}")
    return _SOLVERS[solver]()


def bare(solver: Any, kept: Any) -> Any:
    """The solver without its preconditioner: the arrays of that are in what was kept, and no static data."""
    if isinstance(solver, Krylov) and isinstance(kept, Operator):
        return replace(solver, preconditioner=None)
    return solver


class Factorized:
    """An operator A, a solver, and what the solver keeps of A: for `linear_solve(factorized, b)`. A tree, as A is."""

    def __init__(self, A: Any, solver: Any, kept: Any):
        self.A: Any = A
        self.solver: Any = solver
        self.kept: Any = kept

    @property
    def shape(self) -> tuple[int, int]:
        """That of A."""
        return self.A.shape

    def __repr__(self) -> str:
        return f"Factorized({self.A}, {self.solver})"


register_node(
    Factorized,
    lambda node: ((node.A, node.kept), node.solver),
    lambda static, children: Factorized(children[0], static, children[1]),
)


def factorize(A: Any, solver: Any = "auto") -> Factorized:
    """Prepare A, an operator, an array or a matrix of scipy.sparse, for many solves: `linear_solve(factorized, b)`.

    Derivatives in A are those of the solves; the factors themselves are kept without.
    """
    A = as_operator(A)
    solver = as_solver(solver, A)
    kept = stop_gradient(solver.prepare(A))
    return Factorized(A, bare(solver, kept), kept)


def solve_with_report(A: Any, b: Any, solver: Any = "auto") -> tuple[Any, Report]:
    """x with A x = b, and how the solver got there: `(x, Report(status, iterations, residual))`. It never raises.

    For looking at a solver; derivatives go through its code. `linear_solve` has them by the implicit function theorem.
    """
    made = A if isinstance(A, Factorized) else factorize(A, solver)
    b = b if hasattr(b, "dtype") else np.asarray(b)
    b = b if b.dtype.kind in "fc" else b.astype(np.float64)
    if b.shape != (made.shape[0],):
        raise ArgumentError(f"expected a right-hand side of shape ({made.shape[0]},) for {made.A}, got {b.shape}")
    if isinstance(made.solver, Krylov):
        return made.solver.run(made.A, made.kept, b)
    x = made.solver.solve(made.A, made.kept, b)
    residual = scaled_norm(b - made.A.matvec(x))
    return x, Report(np.where(np.isfinite(residual), int(Status.CONVERGED), int(Status.NOT_FINITE)), 0, residual)
