"""Quadratic programs with sparse matrices: the same interior point, with sparse LU; values only, no tracing.

The derivative is in c, b, h and the bounds; the matrices are constants. Unlike dense programs they aren't looked at for
redundant equations, dependent active constraints and negative eigenvalues: where that makes the derivative's system
singular, tangents are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.custom import custom_jvp
from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.level import concrete
from wonderland.core.tracer import Tracer, unwrap
from wonderland.implicit.programs.active_set import Basis, polished, strictly_active
from wonderland.implicit.programs.data import Quadratic, residual, scaled
from wonderland.implicit.programs.interior_point import interior_point, optimal_point
from wonderland.implicit.programs.kkt import REGULAR
from wonderland.implicit.programs.qp_solver import Certificate, Found, certificate, finite_data, status_of
from wonderland.implicit.programs.qp_status import SOLVED, STOPPED
from wonderland.implicit.systems.linear import linear_solve


def solve_sparse(data: tuple, tol: float, maxiter: int) -> Found:
    """`qp_solver.solve_program` where Q, A and G are csr_arrays."""
    Q, c, A, b, G, h, lower, upper = data

    @custom_jvp
    def solution(*vectors: Any) -> Found:
        if any(isinstance(v, Tracer) for v in vectors):
            raise ArgumentError(
                "qp: programs with sparse matrices are solved by SciPy's sparse LU, outside of jit, vmap and traced "
                "loops. Make the matrices dense there (Q.toarray())."
            )
        with np.errstate(all="ignore"):
            c, b, h, lower, upper = vectors
            return _solve((Q, c, A, b, G, h, lower, upper), tol, maxiter)

    @solution.defjvp
    def rule(primals: tuple, tangents: tuple) -> tuple[Found, Found]:
        found = solution(*primals)
        zero = Certificate(*map(np.zeros_like, found.certificate))
        moved = _tangents(Q, A, G, tangents, found)
        return found, found._replace(**moved, certificate=zero, residual=np.zeros_like(found.residual))

    return solution(c, b, h, lower, upper)


def _solve(data: tuple, tol: float, maxiter: int) -> Found:
    finite, data = finite_data(data)
    program = Quadratic(*data)
    reduced, scale = scaled(program)
    state = interior_point(reduced, maxiter, sparse_factor)
    point = polished(reduced, optimal_point(state), sparse_factor)
    strict, weak = strictly_active(reduced, point)
    own, low, up = program.split(strict)
    both = low & up
    every, none = np.ones(len(program.b), bool), np.zeros(len(low), bool)
    held = Basis(every, own, low, up & ~both, none, np.any(weak) | np.any(both))
    point = scale.unscaled(point)
    left = residual(program, point)
    status = status_of(finite, True, False, state, left, tol)
    known = lambda value: np.where((status == SOLVED) | (status == STOPPED), value, np.nan)
    z, low, up = map(known, program.split(program.where_present(point.z)))
    proof = certificate(program, scale, state, status, False, np.zeros(len(data[3])))
    return Found(known(point.x), known(point.y), z, low, up, status, state.iterations, known(left), proof, held)


def sparse_factor(program: Quadratic, inverse: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """`kkt.dense_factor` by sparse LU of a larger matrix, in which the rows of G stay as sparse as they are."""
    with loading():
        from scipy.sparse import block_array, diags_array
        from scipy.sparse.linalg import splu

    own, low, up = program.split(inverse)
    (m, n), p = program.A.shape, program.G.shape[0]
    rows = program.G * np.sqrt(own)[:, None]
    blocks = [
        [program.Q + diags_array(low + up + REGULAR), -program.A.T, rows.T],
        [program.A, diags_array(np.full(m, REGULAR)), None],
        [rows, None, -diags_array(np.ones(p))],
    ]
    kept = splu(block_array(blocks, format="csc"))

    def solve(r1: Any, r2: Any) -> tuple[Any, Any]:
        found = kept.solve(np.concatenate([r1, r2, np.zeros((p, r1.shape[1]))]))
        return found[:n], found[n : n + m]

    return solve


def _tangents(Q: Any, A: Any, G: Any, tangents: tuple, found: Found) -> dict[str, Any]:
    """As those of `qp_solver`, with a sparse matrix that no tangent goes into."""
    with loading():
        from scipy.sparse import block_array, diags_array

    dc, db, dh, dlower, dupper = tangents
    value = lambda flags: np.asarray(concrete(unwrap(flags), "a sparse program"))
    status = value(found.status)
    fine = (status == SOLVED) | (status == STOPPED)
    rows, own, low, up = (value(flags) & fine for flags in found.basis[:4])
    still = low | up | ~fine
    m, n = A.shape
    one = lambda flags: diags_array(np.where(flags, 1.0, 0.0))
    blocks = [
        [one(~still) @ Q + one(still), -(one(~still) @ A.T), one(~still) @ G.T],
        [one(rows) @ A, one(~rows), None],
        [one(own) @ G, None, one(~own)],
    ]
    whole = block_array(blocks, format="csr")
    moved = np.zeros(n)
    moved = moved if dlower is None else np.where(low, dlower, moved)
    moved = moved if dupper is None else np.where(up, dupper, moved)
    right = np.concatenate([np.where(still, moved, -dc), np.where(rows, db, 0.0), np.where(own, dh, 0.0)])
    moves = linear_solve(whole, right)
    dx, dy, dz = moves[:n], moves[n : n + m], moves[n + m :]
    push = Q @ dx - A.T @ dy + G.T @ dz + dc
    low, up = (np.where(flags, value, 0.0) for flags, value in ((low, push), (up, -push)))
    return {"x": dx, "y": dy, "z": dz, "lower": low, "upper": up}
