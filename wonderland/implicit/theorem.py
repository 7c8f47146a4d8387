"""The implicit function theorem: what solves F(x, theta) = 0 comes in, its solution with all derivatives goes out.

Where dF/dx isn't singular, the solution is a function of theta with dF/dx dx = -dF/dtheta dtheta. That is one linear
solve at the solution, however it was found; the solver is never differentiated, and where it started has no derivative.
The solution in the rule is the solution with its derivatives again, so there are derivatives of every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.control.custom import CustomCall, custom_p
from wonderland.control.effects import check
from wonderland.core.functions import handles
from wonderland.core.tracer import unwrap
from wonderland.core.tree import tree_map
from wonderland.core.types import type_of
from wonderland.implicit.equations import Equations
from wonderland.implicit.jacobians import linearised
from wonderland.implicit.systems.linear import prepared, solved
from wonderland.implicit.systems.solvers_direct import LeastSquares
from wonderland.ops.elementwise import masked_mul, neg
from wonderland.transform.derivatives import stop_gradient

REGULAR = 0.75  # between 1, of a simple root, and 1/2, of a double one
SINGULAR = (
    "{name}: the solution has no derivative: dF/dx is singular there, or so near to it that rounding decides, and the "
    "implicit function theorem doesn't hold. It is where solutions meet or end (a fold, a multiple root). Ask for the "
    "derivative elsewhere, or for one of least squares: linear_solver=wl.implicit.LeastSquares()"
)


@dataclass(eq=False)
class Implicit:
    """Equations, and how to solve them: `solve(theta, init) -> (x, status, *more)`, on handles; status 0 is success.

    `linear_solver` is the derivative's, "auto" for the one that fits. `strict`: a singular dF/dx raises; otherwise
    derivatives are NaN there, and where the solver failed. `tolerance` is relative: what the solver reaches.
    """

    equations: Equations
    solve: Callable[..., tuple]
    linear_solver: Any
    strict: bool
    tolerance: float

    def __call__(self, theta: Sequence[Any], init: Any) -> list[Any]:
        """Values in, values out; derivatives in theta."""
        count = len(theta)

        def function(*operands: Any) -> list:
            found = self.solve(handles(list(operands[:count])), handles([operands[count]])[0])
            return [unwrap(v) for v in found]

        def rule(*operands: Any) -> tuple[list, list]:
            primals, tangents = operands[: count + 1], operands[count + 1 :]
            outs = list(custom_p(*primals, call=call))
            dx = self.tangent(primals[:count], primals[count], outs[0], outs[1], tangents[:count])
            return outs, [dx, *(None for _ in outs[1:])]

        call = CustomCall(self.equations.name, 0, range(0), function, rule, None, None, exact_zeros=True)
        return list(custom_p(*theta, init, call=call))

    def tangent(self, theta: Sequence[Any], init: Any, x: Any, status: Any, changes: Sequence[Any]) -> Any:
        """dx with dF/dx dx = -dF/dtheta dtheta."""
        _, change = self.equations.pushed(theta, x, changes)
        if change is None:
            return None
        at = linearised(self.equations, theta, handles([x])[0], self.linear_solver)
        kept = prepared(at.operator, at.solver)
        fine = self.regular(theta, init, x, at.solver, at.operator, kept)
        if self.strict:
            check(fine, SINGULAR.format(name=self.equations.name))
        dx = unwrap(solved(at.operator, handles([neg(change)])[0], at.solver, kept))
        if self.strict:
            return dx
        fine = fine & (handles([status])[0] == 0)
        return masked_mul(dx, unwrap(np.where(fine, 1.0, np.nan).astype(type_of(dx).dtype)))

    def regular(self, theta: Sequence[Any], init: Any, x: Any, solver: Any, operator: Any, kept: Any) -> Any:
        """Isn't dF/dx singular? From a regular solution, F along a line is that far off as its slope says.

        With p the direction in which F moves least and t the square root of the tolerance, of x and, unless Newton's
        step at x is small beside x, of where it began, F(x + t p) - F(x) is t times the slope at x + t p; at a root of
        multiplicity m it is 1/m of that, as Newton's steps are.
        """
        n, dtype = type_of(x).shape[0], type_of(x).dtype
        if isinstance(solver, LeastSquares) or n == 0:
            return np.True_
        theta, init, x, operator = tree_map(stop_gradient, (handles(list(theta)), *handles([init, x]), operator))
        some = np.cos(np.arange(1, n + 1) ** 2).astype(dtype)  # in no particular direction
        p = solver.solve(operator, kept, some, False)
        values, nothing = [unwrap(v) for v in theta], [None] * len(theta)
        here = handles([self.equations.residual(values, unwrap(x))])[0]
        t, own = float(np.sqrt(self.tolerance)), np.abs(x)  # of each number: they may be in different units
        exact = (own > 0) & (np.abs(solver.solve(operator, kept, here, False)) <= t * own)
        scale = np.where(exact, own, np.maximum(own, np.abs(init)))
        scale = np.where(scale == 0, np.where(np.all(scale == 0), 1, np.max(scale)), scale)
        far = x + t * p / np.max(np.abs(p) / scale)
        there, slope = handles(list(self.equations.pushed(values, unwrap(far), nothing, unwrap(far - x))))
        return np.sum((there - here) * slope) / np.sum(slope * slope) > REGULAR
