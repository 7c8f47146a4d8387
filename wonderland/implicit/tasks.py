"""What a solver of equations sees: functions of the vector x, their derivatives, and Newton's steps.

All of them take and return arrays, traced or not. Every problem has equations F(x) = 0, whose solution is wanted; a
minimisation has an objective besides (F is its gradient), a fixed point the function g (F = x - g(x)), and a
least-squares problem residuals r (F = r' dr/dx).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import type_of
from wonderland.implicit.equations import Equations, Flat
from wonderland.implicit.jacobians import Linearised, linearised
from wonderland.ops.elementwise import sub
from wonderland.transform.derivatives import grad


@dataclass(eq=False)
class Task:
    """One problem for a solver, with the values of theta that it has at the moment."""

    equations: Equations
    theta: Sequence[Any]
    linear_solver: Any
    objective_of: Equations | None = None
    gradient_of: Equations | None = None
    map_of: Equations | None = None
    residuals_of: Equations | None = None
    proximal_of: Equations | None = None  # its theta has the strength at its end

    def _at(self, equations: Equations | None, x: Any) -> Any:
        assert equations is not None
        return handles([equations.residual(self.theta, unwrap(x))])[0]

    def residual(self, x: Any) -> Any:
        """F(x), (n,)."""
        return self._at(self.equations, x)

    def objective(self, x: Any) -> Any:
        """The number to be minimised."""
        return self._at(self.objective_of, x)

    def gradient(self, x: Any) -> Any:
        """That of the objective, (n,)."""
        return self._at(self.gradient_of, x)

    def mapped(self, x: Any) -> Any:
        """g(x), (n,), of which a fixed point is wanted."""
        return self._at(self.map_of, x)

    def residuals(self, x: Any) -> Any:
        """r(x), (m,), whose squares are minimised."""
        return self._at(self.residuals_of, x)

    def proximal(self, x: Any, strength: Any) -> Any:
        """The proximal operator, or the projection, of a minimum over a set: (n,)."""
        assert self.proximal_of is not None
        return handles([self.proximal_of.residual([*self.theta, unwrap(strength)], unwrap(x))])[0]

    def linearised(self, x: Any) -> Linearised:
        """F(x), and dF/dx there as something that solves."""
        return linearised(self.equations, self.theta, x, self.linear_solver)

    def jacobian(self, x: Any) -> tuple[Any, Any]:
        """r (m,) and dr/dx (m, n) of a least-squares problem, F and dF/dx of others."""
        equations = self.residuals_of or self.equations
        return tuple(handles(list(equations.jacobian(self.theta, unwrap(x)))))  # type: ignore[return-value]


def gradient_of(objective: Flat) -> Flat:
    """The function (*theta, x) -> gradient of `objective(*theta, x)` in x, all of them values."""

    def gradient(*args: Any) -> Any:
        *theta, x = args
        return unwrap(grad(lambda x: handles([objective(*theta, unwrap(x))])[0])(Tracer(x)))

    return gradient


def stationary(proximal: Flat, gradient: Flat) -> Flat:
    """The function (*theta, x) -> x - prox(x - gradient, 1), zero at a minimum over a set or with kinks."""

    def equations(*args: Any) -> Any:
        *theta, x = args
        return sub(x, proximal(*theta, np.ones((), type_of(x).dtype)[()], sub(x, gradient(*args))))

    return equations


def half_square(residuals: Flat) -> Flat:
    """The function (*theta, x) -> 1/2 r'r."""

    def objective(*args: Any) -> Any:
        (r,) = handles([residuals(*args)])
        return unwrap(np.sum(r * r) / 2)

    return objective
