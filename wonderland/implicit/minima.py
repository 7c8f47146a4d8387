"""Optima: `minimize` and `least_squares`, a function and a guess in, the minimiser out, differentiable to any order.

The equations of a minimiser are that the gradient is zero there; the implicit function theorem does the rest. Its
dF/dx is the Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.implicit.equations import Equations
from wonderland.implicit.methods.names import method_of
from wonderland.implicit.solving import Setting, solution
from wonderland.implicit.tasks import Task, gradient_of, half_square, stationary


def minimize(
    f: Callable, init: Any, *params: Any, solver: Any = "auto", tol: float | None = None, maxiter: int = 1000,
    linear_solver: Any = "auto", full: bool = False,
) -> Any:  # fmt: skip
    """x at a minimum of f(x, *params), found from `init`; otherwise as `root`, for the equations that df/dx = 0.

    `solver` is "newton", "bfgs", "lbfgs" or "newton_cg" ("auto": BFGS up to 100 unknowns, L-BFGS above), or an object
    with settings; `ProjectedGradient(projection)` minimises over a set, `ProximalGradient(prox)` f plus the function
    that the proximal operator belongs to. The minimum is a local one; a point where df/dx = 0 and the Hessian isn't
    positive semidefinite (a saddle, a maximum) counts as failure, up to 1,000 unknowns; above it isn't looked at.
    """
    method = method_of(solver, "minimize")
    setting = Setting(f, init, params, "minimize", others=[method])
    if solver == "auto":
        method = method_of("bfgs" if setting.x.shape[0] <= 100 else "lbfgs", "minimize")
    objective = setting.flat("number")
    gradient = gradient_of(objective)
    key = setting.key
    equations = gradient_of_it = Equations(gradient, setting.name, key=key("gradient"))
    objective_of = Equations(objective, setting.name, key=key("objective"))
    proximal_of = None
    if hasattr(method, "operator"):  # of a minimum over a set, where the gradient isn't zero
        proximal = method.operator(setting)
        equations = Equations(stationary(proximal, gradient), setting.name)
        proximal_of = Equations(proximal, setting.name)
    make = lambda theta: Task(
        equations, theta, linear_solver, objective_of=objective_of, gradient_of=gradient_of_it, proximal_of=proximal_of
    )
    advice = "Is there a minimum? Start nearer to it, try another solver, or allow more with maxiter= and tol=."
    return solution(setting, equations, method, make, tol, maxiter, full, linear_solver, advice)


def least_squares(
    r: Callable, init: Any, *params: Any, solver: Any = "lm", tol: float | None = None, maxiter: int = 200,
    linear_solver: Any = "auto", full: bool = False,
) -> Any:  # fmt: skip
    """x at a minimum of 1/2 |r(x, *params)|^2, found from `init`; otherwise as `root`, for (dr/dx)' r = 0.

    r returns any number of residuals, in any tree. `solver` is "lm" (Levenberg and Marquardt), "gauss_newton", or one
    of `minimize`'s. The derivative is exact also where the residuals aren't zero: it has the second derivatives of r.
    """
    setting = Setting(r, init, params, "least_squares")
    method = method_of(solver, "least_squares")
    residuals = setting.flat("any")
    objective = half_square(residuals)
    key = setting.key
    equations = Equations(gradient_of(objective), setting.name, key=key("gradient of squares"))
    objective_of = Equations(objective, setting.name, key=key("half square"))
    residuals_of = Equations(residuals, setting.name, key=key("residuals"))
    make = lambda theta: Task(
        equations, theta, linear_solver, objective_of=objective_of, gradient_of=equations, residuals_of=residuals_of
    )
    advice = "Start nearer to the solution, try another solver, or allow more with maxiter= and tol=."
    return solution(setting, equations, method, make, tol, maxiter, full, linear_solver, advice)
