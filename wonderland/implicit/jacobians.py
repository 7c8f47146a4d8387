"""dF/dx at a point: as a matrix, as a sparse one, or by products alone; whichever a linear solver wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.tracer import unwrap
from wonderland.core.types import shape_of, type_of
from wonderland.implicit.equations import Equations
from wonderland.implicit.sparse_jacobians import is_sparse, sparse_jacobian
from wonderland.implicit.systems.factorized import as_solver
from wonderland.implicit.systems.functions import MOST_DENSE, Jacobian
from wonderland.implicit.systems.krylov import Krylov
from wonderland.implicit.systems.linear import prepared
from wonderland.implicit.systems.operators import Dense, Diagonal, Operator
from wonderland.implicit.systems.solvers_direct import LU, SparseLU
from wonderland.implicit.systems.solvers_gmres import GMRES
from wonderland.implicit.systems.solvers_structured import Division


@dataclass(eq=False)
class Linearised:
    """F (m,) at a point, dF/dx as an operator, the solver for it, and what that keeps (computed when first asked)."""

    value: Any
    operator: Operator
    solver: Any
    _kept: Any = None

    @property
    def kept(self) -> Any:
        if self._kept is None:
            self._kept = prepared(self.operator, self.solver)
        return self._kept

    def solve(self, b: Any) -> Any:
        """x with dF/dx x = b, without derivatives; exact zeros for zeros."""
        x = self.solver.solve(self.operator, self.kept, b, False)
        if isinstance(x, np.ndarray) and isinstance(b, np.ndarray):  # which is shorter
            return x if b.any() else np.zeros_like(x)
        return np.where(np.any(b != 0), x, np.zeros((), x.dtype))

    def backward_error(self, x: Any) -> Any:
        """The least e for which F is zero at some x_j (1 + e_j), |e_j| <= e, to first order; infinite if not known."""
        if not isinstance(self.operator, Dense):
            return np.full((), np.inf, x.dtype)
        moves = np.abs(self.operator.a) @ np.abs(x)  # by so much F changes if x changes by its own size
        parts = np.where(self.value == 0, 0, np.abs(self.value) / np.where(moves > 0, moves, np.nan))
        return np.max(np.where(np.isnan(parts), np.inf, parts), initial=0.0)


def linearised(equations: Equations, theta: Sequence[Any], x: Any, solver: Any) -> Linearised:
    """dF/dx at values theta and an array x, for a linear solver.

    By products for an iterative one, sparse for `SparseLU`, as a matrix for others.
    "auto" is LU up to 1,000 unknowns; above, `SparseLU` where there are few entries, and otherwise GMRES.
    """
    x_value = unwrap(x)
    (n,) = shape_of(x_value)
    if equations.elementwise:
        nothing, ones = [None] * len(theta), np.ones(n, type_of(x_value).dtype)
        value, slope = equations.pushed(theta, x_value, nothing, ones)
        slope = np.zeros_like(ones) if slope is None else slope
        value, slope = handles([value, slope])
        return Linearised(value, Diagonal(slope), Division())
    if solver != "auto":
        solver = as_solver(solver, None)
    else:
        solver = LU() if n <= MOST_DENSE else SparseLU() if is_sparse(equations, theta, x_value) else GMRES()
    if isinstance(solver, SparseLU):
        return Linearised(*sparse_jacobian(equations, theta, x_value), solver)
    if isinstance(solver, Krylov):
        value = equations.residual(theta, x_value)
        return Linearised(handles([value])[0], Jacobian(equations, handles(list(theta)), x, shape_of(value)[0]), solver)
    value, matrix = handles(list(equations.jacobian(theta, x_value)))
    return Linearised(value, Dense(matrix), solver)
