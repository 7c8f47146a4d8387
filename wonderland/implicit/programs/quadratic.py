"""Linear and quadratic programs as functions of their data: `qp`, `lp`.

In: matrices and vectors, with any leading axes. Out: the solution and its multipliers, differentiable in every argument
to any order, under `wl.jit` and `wl.vmap`. What is solved, and how, is in `qp_solver.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.control.effects import check
from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.tree import tree_map
from wonderland.implicit.limits import check_tolerance, check_whole
from wonderland.implicit.programs.qp_solver import Certificate as Certificate
from wonderland.implicit.programs.qp_solver import Found, solve_program
from wonderland.implicit.programs.qp_sparse import solve_sparse, symmetric_part
from wonderland.implicit.programs.qp_status import INFEASIBLE, NOT_CONVEX, NOT_FINITE, STOPPED, UNBOUNDED
from wonderland.implicit.systems.operators_sparse import Sparse
from wonderland.numpy.sparse import is_sparse
from wonderland.transform.vmap import vmap

NAMES = ("Q", "c", "A", "b", "G", "h", "lower", "upper")


class QPSolution(NamedTuple):
    """A solution of `qp` or `lp`, with the multipliers of its constraints: Qx + c - A'y + G'z - lower + upper = 0."""

    x: Any  # (n,)
    y: Any  # (m,): of Ax = b: the derivative of the value in b
    z: Any  # (p,): of Gx <= h, at least 0: minus the derivative of the value in h
    lower: Any  # (n,): of the lower bounds, at least 0: the derivative of the value in them
    upper: Any  # (n,): of the upper bounds, at least 0: minus the derivative of the value in them
    value: Any  # 1/2 x'Qx + c'x
    status: Any  # a QPStatus; 0 is solved
    degenerate: Any  # is the derivative a choice among several?
    iterations: Any  # of the interior point
    residual: Any  # the largest relative residual of the optimality conditions
    certificate: Certificate  # the proof, if there is no solution


def qp(
    Q: Any, c: Any, A: Any = None, b: Any = None, G: Any = None, h: Any = None, lower: Any = None, upper: Any = None, *,
    tol: float = 1e-8, maxiter: int = 60, full: bool = False,
) -> QPSolution:  # fmt: skip
    """The x that minimises 1/2 x'Qx + c'x subject to Ax = b, Gx <= h, lower <= x <= upper; and its multipliers.

    Q (n, n) is positive semidefinite; of a matrix that isn't symmetric the symmetric part counts, as in x'Qx. c (n,),
    A (m, n), b (m,), G (p, n), h (p,); the bounds are (n,) or one number. A constraint with an infinite limit is none.
    All may have leading axes, which broadcast: one program each, solved at once.

    A program that has no solution raises `wl.CheckError`, with the proof and its place in the batch; with `full=True`
    its x and multipliers are NaN, `status` says why, `certificate` is the proof, and other elements are as if alone.

    Q, A and G may be matrices of `scipy.sparse`, or `wl.implicit.Sparse(matrix, data)` for derivatives in their
    numbers: then all of it is sparse, solved by SciPy's LU, which compiled code calls.

    float32 is computed in float64, and rounded. `tol` bounds the relative residuals of the optimality conditions.
    """
    return _solved("qp", Q, c, A, b, G, h, lower, upper, tol, maxiter, full)


def lp(
    c: Any, A: Any = None, b: Any = None, G: Any = None, h: Any = None, lower: Any = None, upper: Any = None, *,
    tol: float = 1e-8, maxiter: int = 60, full: bool = False,
) -> QPSolution:  # fmt: skip
    """The x that minimises c'x subject to Ax = b, Gx <= h, lower <= x <= upper: `qp` without Q. There are no bounds
    unless given: for x >= 0 write `lower=0`.

    The solution is a vertex, which stays where it is if c moves a little: its derivative in c is zero almost everywhere
    (the value has one: x). If it isn't unique, the answer is a point inside the set of solutions, and `degenerate`.
    """
    return _solved("lp", None, c, A, b, G, h, lower, upper, tol, maxiter, full)


def _solved(name: str, *args: Any) -> QPSolution:
    *data, tol, maxiter, full = args
    tol, maxiter = check_tolerance(tol, name), check_whole(maxiter, f"{name}: maxiter")
    for i in (1, 3, 5, 6, 7):
        if is_sparse(data[i]) or isinstance(data[i], Sparse):
            raise ArgumentError(f"{name}: {NAMES[i]} is a vector, and can't be sparse: write it out as an array")
    sparse = any(is_sparse(v) or isinstance(v, Sparse) for v in data)
    if sparse and np.shape(data[1]) and np.shape(data[1])[-1] == 0:  # SciPy's LU takes no matrix without numbers
        data = [np.zeros(v.shape) if is_sparse(v) or isinstance(v, Sparse) else v for v in data]
        sparse = False
    data, dtype = _arguments(name, _as_sparse(name, data) if sparse else data)
    method = solve_sparse if sparse else solve_program
    solve = lambda *data: _one(name, data, tol, maxiter, full, method)
    solution = _batched(name, solve, data)(*data)
    if dtype == np.float64:
        return solution
    rounded = lambda value: value.astype(dtype) if value.dtype.kind == "f" else value
    return tree_map(rounded, solution)


def _one(name: str, data: tuple, tol: float, maxiter: int, full: bool, solve: Any) -> QPSolution:
    """One program of complete float64 data."""
    Q, c = data[:2]
    found = solve(data, tol, maxiter)
    if not full:
        _raise_unless_solved(name, found, tol)
    value = found.x @ (Q @ found.x) / 2 + c @ found.x
    x, y, z, low, up, status, iterations, residual, proof, basis = found
    return QPSolution(x, y, z, low, up, value, status, basis.degenerate, iterations, residual, proof)


def _raise_unless_solved(name: str, found: Found, tol: float) -> None:
    status, proof = found.status, found.certificate
    check(status != NOT_FINITE, f"{name}: the data have NaN, or an infinity that isn't a missing constraint")
    check(
        status != NOT_CONVEX,
        f"{name}: Q isn't positive semidefinite: it has a negative eigenvalue, and the program isn't convex",
    )
    check(
        status != INFEASIBLE,
        f"{name}: no x satisfies the constraints. The proof (Farkas) are multipliers with -A'y + G'z - lower + upper = "
        "0 and b'y - h'z + bounds = 1: y = {}, z = {}, lower = {}, upper = {}. full=True returns them instead",
        *proof[1:],
    )  # fmt: skip
    check(
        status != UNBOUNDED,
        f"{name}: the objective has no lower bound: it falls for ever along x = {{}}, which leaves all constraints "
        "satisfied. full=True returns this ray instead",
        proof.x,
    )  # fmt: skip
    check(
        status != STOPPED,
        f"{name}: not solved to tol={tol:g}: the relative residual is {{}} after {{}} iterations. Scale the data, "
        "raise tol or maxiter, or take it as it is with full=True",
        found.residual, found.iterations,
    )  # fmt: skip


# Arguments ------------------------------------------------------------------------------------------------------------


def _arguments(name: str, given: list) -> tuple[tuple, Any]:
    """The data in float64, with empty constraints where there are none, and the dtype of the answer."""
    found: dict[str, Any] = {}
    for key, value in zip(NAMES, given, strict=True):
        found[key] = None if value is None else _array(name, key, value)
    if found["c"] is None or found["c"].ndim == 0:
        raise ArgumentError(f"{name}: c is a vector of shape (n,), got {_shape(found['c'])}")
    n = found["c"].shape[-1]
    dtypes = [value.dtype for value in found.values() if value is not None and len(value.shape)]
    dtype = np.result_type(*dtypes)
    dtype = np.dtype(float) if dtype.kind in "biu" else dtype
    for matrix, right in (("A", "b"), ("G", "h")):
        if (found[matrix] is None) != (found[right] is None):
            there, missing = (right, matrix) if found[matrix] is None else (matrix, right)
            raise ArgumentError(f"{name}: {there} was given without {missing}: constraints need both")
        if found[matrix] is None:
            found[matrix], found[right] = np.zeros((0, n)), np.zeros(0)
        _check_shapes(name, matrix, right, found, n)
    Q = np.zeros((n, n)) if found["Q"] is None else found["Q"]
    if len(Q.shape) < 2 or Q.shape[-2:] != (n, n):
        raise ArgumentError(f"{name}: Q must be (n, n) with the n = {n} of c, got {_shape(Q)}")
    found["Q"] = symmetric_part(Q) if isinstance(Q, Sparse) else (Q + np.swapaxes(Q, -1, -2)) / 2
    for key in ("lower", "upper"):
        value = found[key]
        if value is not None and value.ndim and value.shape[-1] not in (1, n):
            raise ArgumentError(f"{name}: {key} must be (n,) with the n = {n} of c, or one number, got {_shape(value)}")
        if value is not None:
            found[key] = np.broadcast_to(value, (*value.shape[:-1], n))
    in_double = lambda value: tree_map(lambda leaf: leaf.astype(np.float64), value)
    return tuple(None if v is None else in_double(v) for v in found.values()), dtype


def _as_sparse(name: str, given: list) -> list:
    """Data of which a matrix is sparse, with all matrices as `Sparse`."""
    with loading():
        from scipy.sparse import csr_array

    found = list(given)
    n = np.shape(given[1])[-1] if np.ndim(given[1]) else 0
    empty = lambda rows: Sparse(csr_array((rows, n)), np.zeros(0, np.float16))  # whose dtype isn't that of the answer
    for i in (0, 2, 4):
        value = given[i]
        if value is None:  # unless its right-hand side is there
            if i == 0 or given[i + 1] is None:
                found[i], found[i + 1] = empty(0 if i else n), np.zeros(0, np.float16) if i else given[1]
        elif is_sparse(value):
            found[i] = Sparse(value)
        elif not isinstance(value, Sparse):
            array = _array(name, NAMES[i], value)
            if array.ndim != 2:
                raise ArgumentError(
                    f"{name}: {NAMES[i]} has shape {array.shape}, and another matrix is sparse: matrices of sparse "
                    "programs have two axes. Map over others with wl.vmap."
                )
            found[i] = Sparse(csr_array(np.ones(array.shape)), array.reshape(-1))
    return found


def _array(name: str, key: str, value: Any) -> Any:
    ready = isinstance(value, Sparse) or (hasattr(value, "shape") and hasattr(value, "astype"))
    array = value if ready else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ArgumentError(f"{name}: {key} must be real numbers, got {array.dtype}")
    return array


def _check_shapes(name: str, matrix: str, right: str, found: dict[str, Any], n: int) -> None:
    rows, limits = found[matrix], found[right]
    if len(rows.shape) < 2 or rows.shape[-1] != n:
        raise ArgumentError(f"{name}: {matrix} must be (rows, n) with the n = {n} of c, got {_shape(rows)}")
    if limits.ndim < 1 or limits.shape[-1] != rows.shape[-2]:
        raise ArgumentError(
            f"{name}: {right} has a number for each row of {matrix}, ({rows.shape[-2]},), got {_shape(limits)}"
        )


def _shape(value: Any) -> str:
    return "nothing" if value is None else f"shape {value.shape}"


def _batched(name: str, solve: Any, data: tuple) -> Any:
    """`solve` over the leading axes of the data, which broadcast."""
    ranks = (2, 1, 2, 1, 2, 1, 1, 1)
    lead = [() if v is None else v.shape[: len(v.shape) - rank] for v, rank in zip(data, ranks, strict=True)]
    try:
        whole = np.broadcast_shapes(*lead)
    except ValueError:
        shown = ", ".join(str(head) for head in lead if head)
        raise ArgumentError(f"{name}: the leading axes of the arguments don't broadcast: {shown}") from None
    for depth in range(len(whole)):  # from the innermost axis outwards
        axes = tuple(0 if len(head) > depth else None for head in lead)
        solve = vmap(solve, axes)
    if not whole:
        return solve
    return lambda *data: solve(*(_spread(v, head, whole) for v, head in zip(data, lead, strict=True)))


def _spread(value: Any, head: tuple, whole: tuple) -> Any:
    """A leading axis of size one takes the size of the others."""
    goal = whole[len(whole) - len(head) :]
    return value if value is None or head == goal else np.broadcast_to(value, (*goal, *value.shape[len(head) :]))
