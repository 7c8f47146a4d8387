"""Solvers of equations by their names: which there are for which problem."""

from __future__ import annotations

from typing import Any

from wonderland.core.errors import ArgumentError
from wonderland.implicit.methods.anderson import Anderson
from wonderland.implicit.methods.broyden import Broyden
from wonderland.implicit.methods.levenberg import GaussNewton, LevenbergMarquardt
from wonderland.implicit.methods.newton import Newton
from wonderland.implicit.methods.newton_cg import NewtonCG
from wonderland.implicit.methods.picard import Picard
from wonderland.implicit.methods.quasi_newton import BFGS, LBFGS
from wonderland.implicit.methods.trust_region import TrustRegion

ROOTS: dict[str, Any] = {
    "newton": Newton, "trust_region": TrustRegion, "broyden": Broyden, "lm": LevenbergMarquardt
}  # fmt: skip
MINIMA: dict[str, Any] = {"newton": Newton, "bfgs": BFGS, "lbfgs": LBFGS, "newton_cg": NewtonCG}
METHODS: dict[str, dict[str, Any]] = {
    "root": ROOTS,
    "fixed_point": {"anderson": Anderson, "picard": Picard, **ROOTS},
    "minimize": MINIMA,
    "least_squares": {"lm": LevenbergMarquardt, "gauss_newton": GaussNewton, **MINIMA},
}


def method_of(solver: Any, problem: str) -> Any:
    """A solver as it is, or the one of a name."""
    if not isinstance(solver, str):
        if not hasattr(solver, "solve") or isinstance(solver, type):
            raise ArgumentError(
                f"{problem}: expected a solver such as wl.implicit.Newton(), or its name, got {solver!r}"
            )
        known = [method for methods in METHODS.values() for method in methods.values()]
        if type(solver) in known and type(solver) not in METHODS[problem].values():
            raise ArgumentError(f"{problem}: {solver!r} doesn't solve this. {_expected(problem)}")
        if hasattr(solver, "operator") and problem != "minimize":
            raise ArgumentError(f"{problem}: {type(solver).__name__} is a solver of minimize. {_expected(problem)}")
        return solver
    if solver == "auto":
        if problem == "minimize":  # by the number of unknowns
            return None
        solver = next(iter(METHODS[problem]))
    if solver not in METHODS[problem]:
        raise ArgumentError(f"{problem}: there is no solver {solver!r}. {_expected(problem)}")
    return METHODS[problem][solver]()


def _expected(problem: str) -> str:
    return f"Expected one of {', '.join(map(repr, METHODS[problem]))}, or an object with settings"
