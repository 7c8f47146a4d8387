"""From the user's function of trees to vectors, and from a solver's answer to a result or an error.

`Setting` has the unknowns as a vector x, everything else that the function depends on as values theta (what it closes
over, then its parameters), and the function between them. `solution` runs a solver on equations, within the implicit
function theorem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.control.effects import check
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import type_of
from wonderland.implicit.equations import Equations, Flat
from wonderland.implicit.hoisting import Hoisted, fingerprint
from wonderland.implicit.jacobians import Linearised
from wonderland.implicit.limits import check_tolerance, check_whole
from wonderland.implicit.methods.convergence import share, size
from wonderland.implicit.reports import Report, Status
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.systems.solvers_direct import Cholesky
from wonderland.implicit.tasks import Task
from wonderland.implicit.theorem import Implicit
from wonderland.transform.derivatives import quiet
from wonderland.transform.trees import tree_ravel

TOLERANCES = {8: 1e-12, 4: 1e-5}  # by the bytes of a number


class Setting:
    """A function f(x, *params) and where x starts, flat: `x` (n,) and `theta`; `unravel` makes the tree of a vector."""

    x: Any
    unravel: Callable[[Any], Any]
    structure: tree.Structure

    def __init__(self, f: Callable, init: Any, params: Sequence[Any], name: str, others: Sequence[Any] = ()):
        check_function(f, name)
        self.name: str = f"{name}: {getattr(f, '__name__', type(f).__name__)}"
        init = number_leaves(init, name)
        self.x, self.unravel = tree_ravel(init)
        leaves, structure = tree.flatten(init)
        self.layout: Any = structure, tuple((np.shape(leaf), np.result_type(leaf), type(leaf)) for leaf in leaves)
        if self.x.dtype.kind == "c":
            raise ArgumentError(
                f"{name}: the unknowns are complex. Solve for their real and imaginary parts: F of (re, im), which "
                "returns (out.real, out.imag)"
            )
        self.hoisted: Hoisted = Hoisted(f, others)
        leaves, self.structure = tree.flatten(tuple(params))
        for i, leaf in enumerate(leaves):
            try:
                type_of(unwrap(leaf))
            except TypeError as error:
                raise ArgumentError(
                    f"{name}: leaf {i} of the parameters: {error} Or let the function close over it."
                ) from None
        self.theta: list[Any] = [*self.hoisted.values, *(unwrap(leaf) for leaf in leaves)]

    def key(self, kind: str) -> Any:
        """What tells equations of this kind from others, so that they are recorded once; None if nothing does."""
        made = None if self.hoisted.handles else fingerprint(self.hoisted.f)
        return None if made is None else (kind, made, self.layout, self.structure)

    def call(self, f: Callable, theta: Sequence[Any], x: Any, *more: Any) -> Any:
        """f(x, *more, *params) of trees, for values; f holds the same handles as the function of the setting."""
        count = len(self.hoisted.values)
        params = self.structure.unflatten(handles(list(theta[count:])))
        return self.hoisted.running(f, theta[:count], self.unravel(handles([x])[0]), *more, *params)

    def flat(self, expected: str) -> Flat:
        """(*theta, x) -> the function's result as a vector; "x": as many numbers as x has; "number"; or "any"."""

        def function(*args: Any) -> Any:
            *theta, x = args
            out = self.call(self.hoisted.f, theta, x)
            if out is None:
                raise ArgumentError(f"{self.name} returned None: is there a return missing?")
            if expected == "number":
                out = out if isinstance(out, Tracer) else np.asarray(out)
                if out.dtype.kind not in "biufc":
                    raise ArgumentError(f"{self.name} must return one number, got {out.dtype}")
                self.check_real(out)
                if out.shape != ():
                    raise ArgumentError(f"{self.name} must return one number, got shape {out.shape}. np.sum of it?")
                return unwrap(out * np.ones((), self.x.dtype))
            vector = tree_ravel(out)[0]
            self.check_real(vector)
            if expected == "x" and vector.shape != self.x.shape:
                raise ArgumentError(
                    f"{self.name} must return as many numbers as there are unknowns, {self.x.shape[0]}, got "
                    f"{vector.shape[0]}. For more equations than unknowns use wl.implicit.least_squares."
                )
            return unwrap(vector if vector.dtype == self.x.dtype else vector.astype(self.x.dtype))

        return function

    def check_real(self, out: Any) -> None:
        """Raises where the function returns complex numbers: to drop a part of them would be another equation."""
        if out.dtype.kind == "c":
            raise ArgumentError(f"{self.name} must return real numbers, got {out.dtype}. Return (out.real, out.imag)?")


def number_leaves(init: Any, name: str) -> Any:
    """A tree of floats, of where a solver starts."""
    if init is None:  # a tree without leaves, which nobody means
        raise ArgumentError(f"{name}: where it starts is None: expected a number, an array or a tree of them")
    return tree.tree_map(lambda leaf: _as_float(leaf, name), init)


def _as_float(leaf: Any, name: str) -> Any:
    try:
        kind = type_of(unwrap(leaf)).dtype.kind
    except TypeError as error:
        raise ArgumentError(f"{name}: where it starts has a leaf that is no number: {error}") from None
    return leaf if kind in "fc" else leaf * 1.0


def tolerance_of(tol: float | None, dtype: np.dtype, name: str) -> float:
    """That asked for, or the dtype's."""
    if tol is None:
        return TOLERANCES.get(dtype.itemsize, 1e-2)
    return check_tolerance(tol, name)


def solution(
    setting: Setting, equations: Equations, method: Any, make: Callable[[Sequence[Any]], Task], tol: float | None,
    maxiter: int, full: bool, linear_solver: Any, advice: str,
) -> Any:  # fmt: skip
    """The tree x that a method finds, with its derivatives; `full` adds a report, otherwise failure raises."""
    tolerance = tolerance_of(tol, setting.x.dtype, setting.name)
    maxiter = check_whole(maxiter, f"{setting.name}: maxiter")

    def solve(theta: list, init: Any) -> tuple:
        problem = make([unwrap(t) for t in theta])
        is_minimum = np.True_
        with quiet():  # solvers try points where functions overflow
            x, count, error = method.solve(problem, init, tolerance, maxiter)
            converged = error <= tolerance  # a NaN isn't
            minimum = problem.objective_of is not None and problem.proximal_of is None
            if x.shape[0] <= MOST_POLISHED and (minimum or not getattr(method, "newton", False)):
                at = problem.linearised(x)
                if minimum:
                    is_minimum = not_indefinite(at)
                new, converged = polished(problem, at, init, x, converged, tolerance)
                converged = converged & ~np.isnan(error)
                loose = tolerance > np.finfo(x.dtype).eps ** TIGHT
                if loose or problem.objective_of is not None or equations.elementwise:
                    x = new  # otherwise it is exact enough, and dF/dx at x is what the derivative needs: it is shared
            if not full and is_minimum is np.True_ and isinstance(converged, (bool, np.bool_)) and converged:
                return x, np.int64(0), count, error  # nobody asks for more
            residual = size(problem.residual(x))
        failed = np.where(np.isfinite(residual) & ~np.isnan(error), OUT, NOT_FINITE)
        failed = np.where((count < maxiter) & (failed == OUT), STAGNATED, failed)
        status = np.where(converged, np.where(is_minimum, 0, NO_MINIMUM), failed)
        if not full:
            check(
                converged, f"{setting.name}: {FAILED} {advice}", count, residual, error, tolerance,
            )  # fmt: skip
            if is_minimum is not np.True_:
                check(is_minimum, f"{setting.name}: {SADDLE}")
        return x, status, count, residual

    implicit = Implicit(equations, solve, linear_solver, not full, tolerance)
    x, *report = handles(list(implicit(setting.theta, unwrap(setting.x))))
    return (setting.unravel(x), Report(*report)) if full else setting.unravel(x)


OUT, NOT_FINITE, STAGNATED, NO_MINIMUM = (
    int(s) for s in (Status.OUT_OF_ITERATIONS, Status.NOT_FINITE, Status.STAGNATED, Status.NO_MINIMUM)
)  # fmt: skip
MOST_POLISHED = 1000  # unknowns
TIGHT = 0.65  # a tolerance of this power of eps leaves nothing to polish
FAILED = "no convergence after {} iterations: the residual is {:.3g}, the relative error about {:.3g} (asked: {:.3g})."
SADDLE = (
    "the gradient is zero where it ended, but that is no minimum: the Hessian has a negative eigenvalue there (a "
    "saddle, or a maximum). Start elsewhere, not where symmetry holds x on a ridge."
)


def polished(problem: Task, at: Linearised, init: Any, x: Any, converged: Any, tol: float) -> tuple[Any, Any]:
    """x after one of Newton's steps, if it is a solution and that makes the next step smaller; and is it a solution?

    The step tells how far x is off, more surely than the solver that came there. x isn't a solution if some number of
    the step is larger than the square root of the tolerance, of x and of where it began; it is one if all are smaller,
    and those of the next step below the tolerance.
    """
    s = -at.solve(at.value)
    following = -at.solve(problem.residual(x + s))
    scale = np.maximum(np.abs(x), np.abs(init))
    far = np.any(np.abs(s) > np.maximum(np.sqrt(tol) * scale, 100 * tol * size(scale)))  # not, if it is NaN
    close = (share(s, x) <= np.sqrt(tol)) & (share(following, x + s) <= tol)
    converged = (converged & ~(far & ~(at.backward_error(x) <= tol))) | close
    better = size(following) <= size(s)
    return np.where(converged & better, x + s, x), converged


def not_indefinite(at: Linearised) -> Any:
    """Has the Hessian no negative eigenvalue, but for rounding? True where it isn't a matrix."""
    if not isinstance(at.operator, Dense):
        return np.True_
    hessian = at.operator.a
    n, scale = hessian.shape[0], np.sqrt(np.finfo(hessian.dtype).eps) * size(np.ravel(hessian))
    low = Cholesky().prepare(Dense(hessian + np.where(scale == 0, 1, scale) * np.eye(n, dtype=hessian.dtype)))
    return np.all(np.isfinite(low))
