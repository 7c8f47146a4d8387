"""`linear_solve`: a matrix, an operator or a linear function and a right-hand side come in, the solution goes out.

Systems that aren't square are solved as larger ones that are: with r = b - A x, least squares is r + A x = b, A' r = 0,
and the solution of least norm x + A' l = 0, A x = b. So they have the derivatives of every linear system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.functions import handles
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, type_of
from wonderland.implicit.systems.factorized import Factorized, as_operator, as_solver, bare
from wonderland.implicit.systems.functions import LinearFunction, MatrixFree
from wonderland.implicit.systems.operators import Operator
from wonderland.implicit.systems.solvers_direct import LeastSquares, common
from wonderland.implicit.systems.system import System, linear_solve_p, zero_for_zero
from wonderland.numpy.dispatch import as_function
from wonderland.numpy.sparse import is_sparse
from wonderland.ops.linalg import lstsq
from wonderland.transform.derivatives import stop_gradient
from wonderland.transform.trees import tree_ravel
from wonderland.transform.vmap import vmap

_lstsq = as_function(lstsq)


def linear_solve(A: Any, b: Any, solver: Any = "auto", *, like: Any = None) -> Any:
    """x with A x = b; with as many derivatives as are asked for, in A and in b.

    A is a matrix, or a stack of them as for `np.linalg.solve`; a `scipy.sparse` matrix or array; an `Operator`
    (`Diagonal`, `Tridiagonal`, `PositiveDefinite`, ...); what `factorize` made of one of these; or a linear function
    `v -> A v` of trees, whose argument is like b (`like` is an example of it if not).

    `solver` is a solver's name, such as "lu", "cholesky", "cg", "gmres", or an object with its settings,
    `CG(tol=1e-8)`; "auto" takes the one that fits what is known of A. Where A isn't square, x is the least-squares
    solution, or the one of least norm.

    A singular matrix gives NaN, for its own element of a batch alone, and a right-hand side of zeros exact zeros,
    whatever A is. The derivative is A dx = db - dA x, by what the solver keeps of A: a Hessian costs one factorisation.
    """
    if callable(A) and not isinstance(A, Operator):
        vector, unravel = tree_ravel(b)
        if vector.dtype.kind not in "fc":
            vector, unravel = tree_ravel(tree.tree_map(lambda leaf: leaf * 1.0, b))
        like = unravel(vector) if like is None else like
        operator = LinearFunction(A, like)
        if operator.shape[0] != vector.shape[0]:
            raise ArgumentError(
                f"linear_solve: {operator.hoisted.name} returns {operator.shape[0]} numbers for an argument like that, "
                f"and b has {vector.shape[0]}. `like=` is an example of its argument."
            )
        return tree_ravel(like)[1](_columns(operator, vector, solver))
    b = b if isinstance(b, Tracer) else np.asarray(b)
    b = b if b.dtype.kind in "fc" else b.astype(np.float64)
    if isinstance(A, (Operator, Factorized)) or is_sparse(A):
        return _columns(A, b, solver)
    A = A if isinstance(A, Tracer) else np.asarray(A)
    if A.ndim < 2:
        raise ArgumentError(f"linear_solve: expected a matrix, or a stack of them, got an array of shape {A.shape}")
    if b.ndim == 0 or b.shape[-2 if b.ndim > 1 else 0] != A.shape[-2]:
        raise ArgumentError(
            f"linear_solve: a matrix of shape {A.shape} and a right-hand side of shape {b.shape} don't fit. As for "
            "np.linalg.solve, b is one vector (n,), or matrices (..., n, k) whose columns are solved for."
        )
    if A.ndim == 2 and b.ndim <= 2:
        return _columns(A, b, solver)
    if b.ndim <= 2:
        return vmap(lambda A: linear_solve(A, b, solver))(A)
    if A.ndim == 2:
        return vmap(lambda b: linear_solve(A, b, solver))(b)
    lead = np.broadcast_shapes(A.shape[:-2], b.shape[:-2])
    A, b = np.broadcast_to(A, (*lead, *A.shape[-2:])), np.broadcast_to(b, (*lead, *b.shape[-2:]))
    return vmap(lambda A, b: linear_solve(A, b, solver))(A, b)


def _columns(A: Any, b: Any, solver: Any) -> Any:
    """For one right-hand side (m,), or the columns of (m, k)."""
    if isinstance(A, Factorized):
        A, solver, kept = A.A, A.solver, A.kept
    else:
        A = as_operator(A)
        solver = as_solver(solver, A)
        kept = None
    if b.ndim not in (1, 2) or b.shape[0] != A.shape[0]:
        raise ArgumentError(
            f"linear_solve: expected a right-hand side ({A.shape[0]},) for {A}, or columns, got {b.shape}"
        )
    # Of any rank: NumPy's, whose derivative is known. That by what is kept of A would be for full rank alone.
    if isinstance(solver, LeastSquares) and (kept is None or _is_traced(A)):
        rcond = np.finfo(A.dtype).eps * max(*A.shape, 1) if solver.rcond is None else solver.rcond
        b, a = common(b, A.dense())
        x = _lstsq(a, b if b.ndim == 2 else b[:, None], rcond=float(rcond))
        return x if b.ndim == 2 else x[:, 0]
    if kept is None:
        kept = prepared(A, solver)
        solver = bare(solver, kept)
    if b.ndim == 2:
        return vmap(lambda v: solved(A, v, solver, kept), in_axes=1, out_axes=1)(b)
    return solved(A, b, solver, kept)


def _is_traced(A: Operator) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in tree.leaves(A))


def _holds_function(A: Any) -> bool:
    """Is it an operator with a function of the user's in it?"""
    if isinstance(A, MatrixFree):
        return True
    return isinstance(A, Operator) and any(_holds_function(getattr(A, name)) for name in A.leaves)


def prepared(A: Operator, solver: Any) -> Any:
    """What a solver keeps of an operator, which has no derivative."""
    if not _is_traced(A):
        return solver.prepare(A)
    return tree.tree_map(stop_gradient, solver.prepare(tree.tree_map(stop_gradient, A)))


def solved(A: Operator, b: Any, solver: Any, kept: Any) -> Any:
    """x (n,) with A x = b (m,), by what the solver keeps of A; differentiable in A and b."""
    m, n = A.shape
    if m != n:
        square, zeros = Augmented(A), np.zeros(n, b.dtype)
        if m > n:
            return solved(square, np.concatenate([b, zeros]), AugmentedSolver(solver), kept)[m:]
        return solved(square, np.concatenate([zeros, b]), AugmentedSolver(solver), kept)[:n]
    dtype = np.result_type(A.dtype, b.dtype)
    b = b if b.dtype == dtype else b.astype(dtype)
    leaves, structure = tree.flatten((A, kept))
    values = [unwrap(leaf) for leaf in leaves]
    types = tuple(ArrayType(t.shape, t.dtype) for t in map(type_of, values))
    free = _holds_function(A) or _holds_function(kept)
    make = _system if free else _shared_system  # a function is held no longer than it is needed
    system = make(solver, structure, types, ArrayType(b.shape, dtype))
    return handles([linear_solve_p(*values, unwrap(b), system=system)])[0]


def _system(solver: Any, structure: tree.Structure, types: tuple, right: ArrayType) -> System:
    def function(apply: Callable) -> Callable:
        def f(*operands: Any) -> Any:
            *given, v = handles(list(operands))
            A, kept = structure.unflatten(given)
            return unwrap(apply(A, kept, v))

        return f

    functions = [
        function(lambda A, kept, v: A.matvec(v)),
        function(lambda A, kept, v: A.transposed().matvec(v)),
        zero_for_zero(function(lambda A, kept, v: solver.solve(A, kept, v, False))),
        zero_for_zero(function(lambda A, kept, v: solver.solve(A, kept, v, True))),
    ]
    return System(functions, types, right, right)


_shared_system = lru_cache(maxsize=256)(_system)  # so that equal solves of a Program are seen to be equal


class Augmented(Operator):
    """[1 A; A' 0] for an A (m, n) with m > n, [1 A'; A 0] otherwise."""

    leaves: ClassVar[tuple[str, ...]] = ("of",)

    def __init__(self, of: Operator):
        self.of = of

    @property
    def shape(self) -> tuple[int, int]:
        size = sum(self.of.shape)
        return size, size

    @property
    def dtype(self) -> np.dtype:
        return self.of.dtype

    @property
    def tall(self) -> Operator:
        """A or A', whichever has more rows."""
        m, n = self.of.shape
        return self.of if m > n else self.of.transposed()

    def matvec(self, v: Any) -> Any:
        m = max(self.of.shape)
        return np.concatenate([v[:m] + self.tall.matvec(v[m:]), self.tall.transposed().matvec(v[:m])])

    def transposed(self) -> Operator:
        return self

    def dense(self) -> Any:
        a = self.tall.dense()
        m, n = a.shape
        above = np.concatenate([np.eye(m, dtype=a.dtype), a], axis=1)
        return np.concatenate([above, np.concatenate([np.conj(a.T), np.zeros((n, n), a.dtype)], axis=1)], axis=0)


@dataclass(frozen=True)
class AugmentedSolver:
    """r + T x = f and T' r = g by what solves with T = A or A': x = T+ (f - T'+ g), r = f - T x."""

    of: Any

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """r and x, one after the other."""
        m, flipped = max(A.of.shape), A.of.shape[0] < A.of.shape[1]
        f, g = b[:m], b[m:]
        rest = f - self.of.solve(A.of, kept, g, not flipped)
        x = self.of.solve(A.of, kept, rest, flipped)
        return np.concatenate([f - A.tall.matvec(x), x])
