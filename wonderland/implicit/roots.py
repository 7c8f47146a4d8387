"""Equations: `root`, `fixed_point`, `inverse`, `bisect`, and `custom_root` for any solver of one's own.

A function and a guess come in, the solution goes out, differentiable to any order in the function's parameters and in
what it closes over. The derivative with respect to the guess is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import numpy as np

from wonderland.control.effects import check, host_call
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.level import Traced
from wonderland.core.tracer import unwrap
from wonderland.core.tree import tree_map
from wonderland.implicit.equations import Equations
from wonderland.implicit.methods.bisection import Bisection
from wonderland.implicit.methods.names import method_of
from wonderland.implicit.solving import Setting, number_leaves, solution, tolerance_of
from wonderland.implicit.tasks import Task
from wonderland.implicit.theorem import Implicit
from wonderland.ops.elementwise import sub
from wonderland.transform.trees import tree_ravel


def root(
    F: Callable, init: Any, *params: Any, solver: Any = "newton", tol: float | None = None, maxiter: int = 100,
    linear_solver: Any = "auto", full: bool = False,
) -> Any:  # fmt: skip
    """x with F(x, *params) = 0, near `init`.

    x is a tree of arrays like `init`, and F returns as many numbers, in any tree. Derivatives, of any order and in both
    modes, are with respect to the parameters and to what F closes over, by dF/dx dx = -dF/dparams; with respect to
    `init` they are zero. Where dF/dx is singular at the solution, asking for one raises.

    `solver` is a name ("newton", "trust_region", "broyden", "lm") or an object with settings. `tol` is relative, by
    default 1e-12 (float32: 1e-5). Failure to converge raises; with `full=True` the result is `(x, report)`, with status
    (0: converged), iterations and residual, and nothing raises: derivatives of what failed are NaN. `linear_solver` is
    that of Newton's steps and of the derivative.

        wl.implicit.root(lambda x, a: x * x - a, 1.0, 2.0)              # sqrt(2)
    """
    setting = Setting(F, init, params, "root")
    method = method_of(solver, "root")
    equations = Equations(setting.flat("x"), setting.name, key=setting.key("root"))
    make = lambda theta: Task(equations, theta, linear_solver)
    advice = "Start nearer to the solution, try solver='trust_region' or 'lm', or allow more with maxiter= and tol=."
    return solution(setting, equations, method, make, tol, maxiter, full, linear_solver, advice)


def fixed_point(
    g: Callable, init: Any, *params: Any, solver: Any = "anderson", tol: float | None = None, maxiter: int = 1000,
    linear_solver: Any = "auto", full: bool = False,
) -> Any:  # fmt: skip
    """x with x = g(x, *params), found from `init`; otherwise as `root`.

    `solver` is "anderson", "picard" (x becomes g(x)), or one of `root`'s, for x - g(x) = 0.
    """
    setting = Setting(g, init, params, "fixed_point")
    method = method_of(solver, "fixed_point")
    flat = setting.flat("x")
    equations = Equations(lambda *args: sub(args[-1], flat(*args)), setting.name, key=setting.key("gap"))
    map_of = Equations(flat, setting.name, key=setting.key("map"))
    make = lambda theta: Task(equations, theta, linear_solver, map_of=map_of)
    advice = "Does it contract? Try solver='newton', start nearer to x, or allow more with maxiter= and tol=."
    return solution(setting, equations, method, make, tol, maxiter, full, linear_solver, advice)


def inverse(f: Callable, init: Any = None, **options: Any) -> Callable:
    """The inverse of f: `inverse(f)(y)` is the x with f(x) = y, its derivative the inverse of f's.

    The search begins at `init`, or at y itself; options are those of `root`. Where f isn't one to one, which x it is
    depends on that.
    """
    check_function(f, "inverse")

    def difference(out: Any, goal: Any) -> Any:
        if np.shape(out) != np.shape(goal):
            raise ArgumentError(f"{inverted.__name__}: f returns shape {np.shape(out)}, y has {np.shape(goal)}")
        return out - goal

    def inverted(y: Any) -> Any:
        def gap(x: Any, y: Any) -> Any:
            return tree_map(difference, f(x), y)

        return root(gap, y if init is None else init, y, **options)

    inverted.__name__ = f"inverse({getattr(f, '__name__', 'f')})"
    return inverted


def bisect(
    F: Callable, low: Any, high: Any, *params: Any, tol: float | None = None, maxiter: int = 200, full: bool = False
) -> Any:
    """x between `low` and `high` with F(x, *params) = 0, where F has different signs; for each element of arrays.

    F is elementwise: element i of what it returns depends on element i of x alone. It is slow and sure: each step
    halves the interval. Otherwise as `root`.
    """
    check_function(F, "bisect")
    low, high = (number_leaves(end, "bisect") for end in (low, high))
    try:
        low, high = (tree_map(lambda end, other: end + 0.0 * other, *ends) for ends in ((low, high), (high, low)))
    except ValueError as error:
        raise ArgumentError(f"bisect: the ends of the interval don't fit together: {error}") from None

    def function(x: Any, high: Any, *params: Any) -> Any:  # `high` may be traced
        return F(x, *params)

    function.__name__ = getattr(F, "__name__", type(F).__name__)
    setting = Setting(function, low, (tree_ravel(high)[0], *params), "bisect")
    method = Bisection(len(setting.hoisted.values))
    equations = Equations(setting.flat("x"), setting.name, elementwise=True, key=setting.key("root"))
    make = lambda theta: Task(equations, theta, "auto")
    advice = "F must be continuous, with different signs at the ends of the interval (or zero at one of them)."
    return solution(setting, equations, method, make, tol, maxiter, full, "auto", advice)


def custom_root(
    solver: Callable, *, linear_solver: Any = "auto", tol: float | None = None, full: bool = False
) -> Callable[..., Any]:
    """Derivatives for any solver of equations: `custom_root(solver)(F, init, *params)`.

    `solver(F, init, *params)` returns x, like `init`, with F(x, *params) = 0; it may be SciPy's, or anything else, and
    is never differentiated. In compiled code and under `vmap` it is part of the code if it can be recorded; otherwise
    Python calls it with arrays (`wl.host_call`). The solution is taken as it is: `tol` says how exact it is (for the
    test that dF/dx isn't singular), a NaN raises.

        solve = wl.implicit.custom_root(lambda F, x, *params: scipy.optimize.root(F, x, params).x)
        x = solve(F, init, a)
    """
    check_function(solver, "custom_root")

    def solve_equations(F: Callable, init: Any, *params: Any) -> Any:
        setting = Setting(F, init, params, "custom_root", others=[solver])
        equations = Equations(setting.flat("x"), setting.name)
        count = len(setting.hoisted.values)

        def run(theta: Any, x: Any) -> Any:
            captured, given = theta[:count], setting.structure.unflatten(theta[count:])
            out = setting.hoisted.running(solver, [unwrap(c) for c in captured], F, setting.unravel(x), *given)
            vector = tree_ravel(out)[0]
            if vector.shape != setting.x.shape:
                raise ArgumentError(
                    f"{setting.name}: the solver must return x like init, {setting.x.shape[0]} numbers, got "
                    f"{vector.shape[0]}"
                )
            return vector.astype(setting.x.dtype)

        def solve(theta: list, x: Any) -> tuple:
            if not any(isinstance(unwrap(v), Traced) for v in (*theta, x)):
                found = run(theta, x)
            else:
                try:
                    with without_tracebacks():
                        found = run(theta, x)
                except Exception:  # of whatever kind, from code that wasn't written for traced values
                    found = host_call(run, x, theta, x)
            if not full:
                check(np.all(np.isfinite(found)), f"{setting.name}: the solver returned NaN or infinity")
            return found, np.int64(0)

        tolerance = tolerance_of(tol, setting.x.dtype, setting.name)
        implicit = Implicit(equations, solve, linear_solver, not full, tolerance)
        return setting.unravel(handles(list(implicit(setting.theta, unwrap(setting.x))))[0])

    return solve_equations


@contextmanager
def without_tracebacks() -> Iterator[None]:
    """Code that wasn't written for traced values (MINPACK in SciPy) prints the errors that it meets: not here."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            yield
    finally:
        text = said.getvalue()
        if text and "Traceback" not in text:
            sys.stderr.write(text)
