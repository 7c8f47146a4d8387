"""From the data of a quadratic program to its solution, or the proof that there is none, and the solution's derivative.

Everything here is one program in float64, eager or traced; `quadratic.py` has the arguments and errors of people.
The solver is never differentiated. With the equations that hold the solution (`active_set.Basis`),

    Qx + c - A'y + G'z - lower + upper = 0,    Ax = b,    Gx = h where active,    x = its bound where it is at one

the tangents of x and of the multipliers are solutions of one linear system, of n + m + p unknowns (notes, 1.50-1.54; a
row that is active, or inactive with multiplier 0, has the derivative of the notes' products). Its LU factors are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wonderland.control.custom import custom_jvp
from wonderland.implicit.programs.active_set import Basis, basis, polished
from wonderland.implicit.programs.data import Quadratic, Scale, largest, residual, scaled
from wonderland.implicit.programs.independent import cholesky_or_nan, independent, surely
from wonderland.implicit.programs.interior_point import Reached, interior_point, optimal_point
from wonderland.implicit.programs.kkt import dense_factor, diagonal
from wonderland.implicit.programs.qp_status import INFEASIBLE, NOT_CONVEX, NOT_FINITE, SOLVED, STOPPED, UNBOUNDED
from wonderland.implicit.systems.linear import linear_solve
from wonderland.numpy.sparse import is_sparse

CONVEX = 1e-9  # how negative an eigenvalue of Q may be, in scaled units: rounding
CLASH = 1e-9  # by how much a redundant equation may differ from the others, relative to its right-hand sides


class Certificate(NamedTuple):
    """The proof that there is no solution; zeros if there is one.

    Infeasible: multipliers (Farkas) with -A'y + G'z - lower + upper = 0 and b'y - h'z + (lower bounds)'lower - (upper
    bounds)'upper = 1. Unbounded: a ray x with Qx = 0, Ax = 0, Gx <= 0, within the bounds, and c'x = -1.
    """

    x: Any
    y: Any
    z: Any
    lower: Any
    upper: Any


class Found(NamedTuple):
    """What the solver returns: the solution, and what holds it."""

    x: Any
    y: Any
    z: Any
    lower: Any
    upper: Any
    status: Any
    iterations: Any
    residual: Any
    certificate: Certificate
    basis: Basis


def solve_program(data: tuple, tol: float, maxiter: int) -> Found:
    """Solve the program of `data`, (Q, c, A, b, G, h, lower, upper), of which the bounds may be None."""
    return differentiable(lambda *data: _solve(data, tol, maxiter), _equations)(*data)


def differentiable(solve: Callable[..., Found], equations: Callable[..., Any]) -> Callable[..., Found]:
    """`solve(*data)` with derivatives in the data, by the matrix that `equations` makes (see `_equations`)."""

    @custom_jvp
    def solution(*data: Any) -> Found:
        with np.errstate(all="ignore"):
            return solve(*data)

    @solution.defjvp
    def rule(primals: tuple, tangents: tuple) -> tuple[Found, Found]:
        found = solution(*primals)
        zero = Certificate(*map(np.zeros_like, found.certificate))
        moved = _tangents(primals, tangents, found, equations)
        return found, found._replace(
            **moved, certificate=zero, residual=np.zeros_like(found.residual)
        )  # what is a count or a flag has no tangent

    return solution


def _solve(data: tuple, tol: float, maxiter: int) -> Found:
    finite, data = finite_data(data)
    convex, data = _made_convex(data)
    program = Quadratic(*data)
    kept, clash, refutation = _redundant(program)
    A, b = np.where(kept[:, None], program.A, 0.0), np.where(kept, program.b, 0.0)
    reduced, scale = scaled(Quadratic(program.Q, program.c, A, b, program.G, program.h, program.lower, program.upper))
    factor = dense_factor(reduced)
    state = interior_point(reduced, maxiter, factor)
    point = polished(reduced, optimal_point(state), factor)
    held = basis(reduced, point)
    point = scale.unscaled(point)
    left = residual(program, point)
    status = status_of(finite, convex, clash, state, left, tol)
    answered = (status == SOLVED) | (status == STOPPED)
    known = lambda value: np.where(answered, value, np.nan)
    z, low, up = map(known, program.split(program.where_present(point.z)))
    proof = certificate(program, scale, state, status, clash, refutation)
    return Found(known(point.x), known(point.y), z, low, up, status, state.iterations, known(left), proof, held)


def status_of(finite: Any, convex: Any, clash: Any, state: Reached, left: Any, tol: float) -> Any:
    """What became of a program, of what was seen of its data, where the iteration ended, and the residual there."""
    status = np.where(left <= tol, SOLVED, STOPPED)
    status = np.where(state.status == UNBOUNDED, UNBOUNDED, status)
    status = np.where((state.status == INFEASIBLE) | clash, INFEASIBLE, status)
    return np.where(finite, np.where(convex, status, NOT_CONVEX), NOT_FINITE)


def finite_data(data: tuple) -> tuple[Any, tuple]:
    """Are the data numbers, infinite only where that means that there is no constraint? Other data that are."""
    Q, c, A, b, G, h, lower, upper = data
    finite = np.all(np.isfinite(c)) & np.all(np.isfinite(b)) & np.all(h > -np.inf)  # false for NaN
    for matrix in (Q, A, G):
        finite = finite & np.all(np.isfinite(matrix.data if is_sparse(matrix) else matrix))
    finite = finite if lower is None else finite & np.all(lower < np.inf)
    finite = finite if upper is None else finite & np.all(upper > -np.inf)

    def zeroed(v: Any) -> Any:
        if not is_sparse(v):
            return np.where(finite, v, 0.0)
        return v if finite else type(v)(v.shape)  # a product with 0 would leave NaN

    return finite, tuple(None if v is None else zeroed(v) for v in data)


def _made_convex(data: tuple) -> tuple[Any, tuple]:
    """Is Q positive semidefinite? Other data with a Q that is."""
    Q, *rest = data
    size = np.sqrt(np.maximum(np.diagonal(Q), 0.0))
    size = np.where(size > 0, size, np.sqrt(np.where(largest(Q) > 0, largest(Q), 1.0)))
    unit = Q / size / size[:, None]
    convex = np.all(np.isfinite(np.diagonal(cholesky_or_nan(unit + CONVEX * np.eye(Q.shape[0])))))
    return convex, (np.where(convex, Q, 0.0), *rest)


def _redundant(program: Quadratic) -> tuple[Any, Any, Any]:
    """The equations to keep, (m,) bools; does one that isn't kept contradict them; multipliers y that prove it.

    Redundant equations are combinations of those that are kept: y'A = 0, with y'b = 0 unless they contradict.
    """
    A, b = program.A, program.b
    m = b.shape[0]
    if m == 0:
        return np.zeros(0, bool), np.array(False), np.zeros(0)
    sure = surely(A @ A.T)
    kept, combinations = independent(A, np.ones(m, bool), sure)
    gaps = combinations @ b
    clashes = ~kept & (np.abs(gaps) > CLASH * (np.abs(combinations) @ (1 + np.abs(b))))
    worst = np.arange(m) == np.argmax(np.where(clashes, np.abs(gaps), -1.0))
    proof = np.where(worst, 1 / np.where(gaps == 0, 1.0, gaps), 0.0) @ combinations
    return kept, np.any(clashes), proof


def certificate(
    program: Quadratic, scale: Scale, state: Reached, status: Any, clash: Any, refutation: Any
) -> Certificate:  # fmt: skip
    """The proof that there is no solution, in the units of the program, of what the iteration ended with."""
    ray = state.at.x * scale.x
    ray = ray / -(program.c @ ray)
    y, z = state.at.y * scale.y, np.where(program.present, state.at.z * scale.z, 0.0)
    margin = program.b @ y - program.limit @ z
    y, z = np.where(clash, refutation, y / margin), np.where(clash, 0.0, z / margin)
    own, low, up = program.split(z)
    infeasible, unbounded = status == INFEASIBLE, status == UNBOUNDED
    return Certificate(
        np.where(unbounded, ray, 0.0), *(np.where(infeasible, value, 0.0) for value in (y, own, low, up))
    )


def _tangents(primals: tuple, tangents: tuple, found: Found, equations: Callable[..., Any]) -> dict[str, Any]:
    """Tangents of the solution and of its multipliers, of those of the data; matrices are arrays or operators."""
    Q, _, A, _, G = primals[:5]
    dQ, dc, dA, db, dG, dh, dlower, dupper = tangents
    rows, active, low, up, pinned, _ = found.basis
    m, n = A.shape
    failed = ~((found.status == SOLVED) | (found.status == STOPPED))
    x, y, z = (np.where(failed, 0.0, value) for value in (found.x, found.y, found.z))
    # The tangents of a failed program are zero: the equations of all its unknowns are `it doesn't move`.
    still, rows, own = low | up | pinned | failed, rows & ~failed, active & ~failed
    force = -(dQ @ x + dc - dA.T @ y + dG.T @ z)
    moved = np.zeros(n)
    moved = moved if dlower is None else np.where(low & ~failed, dlower, moved)
    moved = moved if dupper is None else np.where(up & ~failed, dupper, moved)
    right = np.concatenate([
        np.where(still, moved, force), np.where(rows, db - dA @ x, 0.0), np.where(own, dh - dG @ x, 0.0)
    ])  # fmt: skip
    moves = linear_solve(equations(Q, A, G, still, rows, own), right)
    dx, dy, dz = moves[:n], moves[n : n + m], moves[n + m :]
    push = Q @ dx - A.T @ dy + G.T @ dz - force  # (n,): what the bounds have to hold
    low, up = (np.where(flags & ~failed, value, 0.0) for flags, value in ((low, push), (up, -push)))
    return {"x": dx, "y": dy, "z": dz, "lower": low, "upper": up}


def _equations(Q: Any, A: Any, G: Any, still: Any, rows: Any, own: Any) -> Any:
    """[Q -A' G'; A 0 0; G 0 0] with 1 on the diagonal for what has no equation: x that are still, rows of A and G."""
    m, p = A.shape[0], G.shape[0]
    one = lambda flags: diagonal(np.where(flags, 1.0, 0.0))
    H = np.where(still[:, None], 0.0, Q) + one(still)
    top = np.concatenate([H, np.where(still[:, None], 0.0, -A.T), np.where(still[:, None], 0.0, G.T)], axis=1)
    middle = np.concatenate([np.where(rows[:, None], A, 0.0), one(~rows), np.zeros((m, p))], axis=1)
    bottom = np.concatenate([np.where(own[:, None], G, 0.0), np.zeros((p, m)), one(~own)], axis=1)
    return np.concatenate([top, middle, bottom])  # (n + m + p, n + m + p)
