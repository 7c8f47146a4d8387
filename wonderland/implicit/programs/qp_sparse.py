"""Quadratic programs with sparse matrices: the same interior point, with SciPy's sparse LU.

Q, A and G come as `Sparse` operators, whose numbers may be traced. The solver runs on values: in compiled code, under
`vmap` and in loops Python calls it (`host_call`). The derivative is one sparse linear system of a fixed pattern, in
the numbers of the matrices too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.control.effects import host_call
from wonderland.core.forks import loading
from wonderland.core.tracer import Tracer
from wonderland.core.tree import leaves
from wonderland.implicit.programs.active_set import Basis, basis, polished, strictly_active
from wonderland.implicit.programs.data import Optimum, Quadratic, residual, scaled
from wonderland.implicit.programs.interior_point import interior_point, optimal_point
from wonderland.implicit.programs.kkt import REGULAR, Factor, Solve
from wonderland.implicit.programs.qp_solver import (
    CONVEX,
    Certificate,
    Found,
    certificate,
    differentiable,
    finite_data,
    status_of,
)
from wonderland.implicit.programs.qp_status import SOLVED, STOPPED
from wonderland.implicit.systems.functions import MOST_DENSE
from wonderland.implicit.systems.operators_sparse import Sparse

DEPENDENT = 1e-11  # squared, what is left of a row of length one: products of rows have half of the digits
CLEAN = 1e-12  # a residual that is as good as none
NOISE = 1e-14  # added to those products, so that the rounding that a dependent row leaves isn't blown up


def solve_sparse(data: tuple, tol: float, maxiter: int) -> Found:
    """`qp_solver.solve_program` where Q, A and G are `Sparse`."""

    def plain(*data: Any) -> Found:
        Q, c, A, b, G, h, lower, upper = data
        Q, A, G = (M.pattern.matrix(M.data, M.flipped) for M in (Q, A, G))
        with np.errstate(all="ignore"):
            return _solve((Q, c, A, b, G, h, lower, upper), tol, maxiter)

    def solve(*data: Any) -> Found:
        if not any(isinstance(leaf, Tracer) for leaf in leaves(data)):
            return plain(*data)
        m, n, p = data[2].shape[0], data[2].shape[1], data[4].shape[0]
        return host_call(plain, _types(n, m, p), *data)

    return differentiable(solve, _equations)(*data)


def _types(n: int, m: int, p: int) -> Found:
    number, vectors = ((), np.float64), [((k,), np.float64) for k in (n, m, p, n, n)]
    flags = [((k,), np.bool_) for k in (m, p, n, n, n)]
    whole = ((), np.int64)
    return Found(*vectors, whole, whole, number, Certificate(*vectors), Basis(*flags, ((), np.bool_)))  # type: ignore[arg-type]


def _solve(data: tuple, tol: float, maxiter: int) -> Found:
    finite, data = finite_data(data)
    convex = _is_convex(data[0])
    program = Quadratic(data[0] if convex else data[0] * 0, *data[1:])
    reduced, scale = scaled(program)
    factor = sparse_factor(reduced)
    state = interior_point(reduced, maxiter, factor)
    kept = _independent(reduced.A, np.ones(len(reduced.b), bool))  # the others are redundant
    point = _without_redundant(reduced, polished(reduced, optimal_point(state), factor), kept)
    held = _basis(reduced, point, kept)
    point = scale.unscaled(point)
    left = residual(program, point)
    status = status_of(finite, convex, False, state, left, tol)
    known = lambda value: np.where((status == SOLVED) | (status == STOPPED), value, np.nan)
    z, low, up = map(known, program.split(program.where_present(point.z)))
    proof = certificate(program, scale, state, status, False, np.zeros(len(data[3])))
    return Found(known(point.x), known(point.y), z, low, up, status, state.iterations, known(left), proof, held)


def sparse_factor(program: Quadratic) -> Factor:
    """`kkt.dense_factor` by sparse LU of a larger matrix, in which the rows of G stay as sparse as they are."""
    with loading():
        from scipy.sparse import block_array, diags_array
        from scipy.sparse.linalg import splu

    (m, n), p = program.A.shape, program.G.shape[0]

    def factorise(inverse: Any) -> Solve:
        own, low, up = program.split(inverse)
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

    return factorise


def _pivots(matrix: Any) -> np.ndarray | None:
    """Those of the elimination of a symmetric matrix without exchanges; None if it can't be done."""
    with loading():
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

    try:
        factors = splu(
            csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # exactly singular
        return None
    if not np.array_equal(factors.perm_r, factors.perm_c):
        return None
    return factors.U.diagonal()[factors.perm_c]


def _is_convex(Q: Any) -> bool:
    """Is Q positive semidefinite? All pivots of Q plus a little are positive then."""
    with loading():
        from scipy.sparse import diags_array

    if Q.nnz == 0:
        return True
    size = np.sqrt(np.maximum(Q.diagonal(), 0.0))
    size = np.where(size > 0, size, np.sqrt(abs(Q).max() or 1.0))
    pivots = _pivots((Q / size[:, None]) / size + diags_array(np.full(len(size), CONVEX)))
    return pivots is not None and bool(np.all(pivots > 0))


def _basis(program: Quadratic, point: Optimum, kept: np.ndarray) -> Basis:
    """`active_set.basis`, with the equations that are kept; of a large program, x is taken to be unique."""
    if sum(program.A.shape) + program.G.shape[0] <= MOST_DENSE:
        Q, A, G = (M.toarray() for M in (program.Q, program.A, program.G))
        A = np.where(kept[:, None], A, 0.0)
        return basis(Quadratic(Q, program.c, A, program.b, G, program.h, program.lower, program.upper), point)
    with loading():
        from scipy.sparse import vstack

    strict, weak = strictly_active(program, point)
    own, low, up = program.split(strict)
    both = low & up
    wanted = np.concatenate([kept, own])
    rows = vstack([program.A, program.G], format="csr") * np.where(low | up, 0.0, 1.0)
    chosen = _independent(rows.tocsr(), wanted)
    degenerate = np.any(weak) | np.any(both) | np.any(wanted & ~chosen)
    m = len(kept)
    return Basis(chosen[:m], chosen[m:], low, up & ~both, np.zeros(len(low), bool), degenerate)


def _without_redundant(program: Quadratic, point: Optimum, kept: np.ndarray) -> Optimum:
    """The point with multiplier 0 for equations that aren't kept: those that are take over what they did."""
    with loading():
        from scipy.sparse import csc_array, diags_array
        from scipy.sparse.linalg import splu

    if kept.all():
        return point
    rows, force = program.A[kept], program.A.T @ point.y
    y = np.where(kept, point.y, 0.0)
    if kept.any():
        factors = splu(csc_array(rows @ rows.T + diags_array(np.full(rows.shape[0], NOISE))))
        for _ in range(3):  # products of rows have half of the digits: the next time, with what the last one left
            y[kept] += factors.solve(rows @ (force - rows.T @ y[kept]))
    new = point._replace(y=y)
    return new if residual(program, new) <= max(residual(program, point), CLEAN) else point


def _independent(rows: Any, wanted: np.ndarray) -> np.ndarray:
    """Rows, of those that are wanted, none of which is a combination of others: bools.

    The pivots of their products with each other are the squared distances of rows to what rows before them span.
    """
    with loading():
        from scipy.sparse import diags_array

    rows = rows[wanted]
    length = np.sqrt((rows * rows).sum(axis=1))
    rows = rows / np.where(length > 0, length, 1.0)[:, None]
    pivots = _pivots(rows @ rows.T + diags_array(np.full(rows.shape[0], NOISE))) if rows.shape[0] else length
    chosen = wanted.copy()
    chosen[wanted] = length > 0 if pivots is None else pivots > DEPENDENT
    return chosen


def _equations(Q: Sparse, A: Sparse, G: Sparse, still: Any, rows: Any, own: Any) -> Sparse:
    """`qp_solver._equations`: every place that may have a number has one, so the pattern doesn't depend on values."""
    with loading():
        from scipy.sparse import coo_array

    (m, n), p = A.shape, G.shape[0]
    (qi, qj), (ai, aj), (gi, gj) = (M.pattern.places(M.flipped) for M in (Q, A, G))  # Q has all of its diagonal
    y, z = np.arange(n, n + m), np.arange(n + m, n + m + p)
    number = lambda flags: np.where(flags, 1.0, 0.0)
    entries = [
        (qi, qj, np.where(still[qi], np.where(qi == qj, 1.0, 0.0), Q.data)),
        (aj, y[ai], np.where(still[aj], 0.0, -A.data)), (gj, z[gi], np.where(still[gj], 0.0, G.data)),
        (y[ai], aj, np.where(rows[ai], A.data, 0.0)), (y, y, number(~rows)),
        (z[gi], gj, np.where(own[gi], G.data, 0.0)), (z, z, number(~own)),
    ]  # fmt: skip
    i, j, data = (np.concatenate(part) for part in zip(*entries, strict=True))
    return Sparse(coo_array((np.ones(len(i)), (i, j)), shape=(n + m + p, n + m + p)), data)


def symmetric_part(Q: Sparse) -> Sparse:
    """(Q + Q')/2, with all of its diagonal in the pattern."""
    with loading():
        from scipy.sparse import coo_array, csr_array, eye_array

    rows, columns = Q.pattern.places(Q.flipped)
    n, last = Q.shape[0], len(rows)
    places = csr_array((np.arange(1, last + 1), (rows, columns)), shape=(n, n))
    union = (places != 0) + (places.T != 0) + eye_array(n, dtype=bool)
    i, j = union.tocoo().coords
    number = np.pad(Q.data, (1, 0))  # 0 where there is none
    there = lambda a, b: number[np.asarray(places[a, b]).reshape(-1)]
    return Sparse(coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), (there(i, j) + there(j, i)) / 2)
