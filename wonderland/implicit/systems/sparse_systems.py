"""Systems with sparse matrices: a primitive that factorises by SuperLU, complete or incomplete, and keeps the factors.

A matrix comes in as its numbers and its `CompressedRows`. SuperLU's factors are no array that a Program could hold:
they stay in `FACTORS`, found by the structure and the numbers, and every solve with the same matrix (tangents,
cotangents, higher orders, inside compiled code too) finds them there. `FACTORS.made` counts factorisations.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of
from wonderland.numpy.sparse import CompressedRows, sparse_dot
from wonderland.ops.elementwise import conjugate, neg
from wonderland.ops.linalg import solver_batch, solver_pattern
from wonderland.ops.matrices import total, with_shared_rules
from wonderland.ops.shape import reshape
from wonderland.ops.work import Work, work


class KeptFactors:
    """The factors of the matrices that were used last, up to some bytes of them."""

    def __init__(self, limit: int = 256 * 2**20):
        self.made: int = 0  # factorisations so far
        self.limit: int = limit
        self._factors: OrderedDict[Any, Any] = OrderedDict()  # None: singular
        self._bytes: int = 0
        self._lock: Any = threading.Lock()

    def of(self, data: np.ndarray, structure: CompressedRows, incomplete: tuple[float, float] | None) -> Any:
        """SuperLU's object for the *transposed* matrix, of which compressed rows are the columns; None if singular."""
        key = (structure, incomplete, data.dtype.str, data.tobytes())
        with self._lock:
            if key in self._factors:
                self._factors.move_to_end(key)
                return self._factors[key]
        factors = _factorise(data, structure, incomplete)
        with self._lock:
            self.made += 1
            if key not in self._factors:
                self._factors[key] = factors
                self._bytes += _bytes(key, factors)
            while self._bytes > self.limit and len(self._factors) > 1:
                self._bytes -= _bytes(*self._factors.popitem(last=False))
        return factors


def _bytes(key: tuple, factors: Any) -> int:
    return len(key[-1]) + (0 if factors is None else factors.nnz * (np.dtype(key[-2]).itemsize + 4))


def _factorise(data: np.ndarray, structure: CompressedRows, incomplete: tuple[float, float] | None) -> Any:
    with loading():
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import spilu, splu

    if not np.all(np.isfinite(data)):
        return None
    matrix = csc_array((data, structure.indices, structure.indptr), shape=structure.shape)
    try:
        if incomplete is None:
            return splu(matrix)
        return spilu(matrix, drop_tol=incomplete[0], fill_factor=incomplete[1])
    except RuntimeError:  # exactly singular
        return None


FACTORS: KeptFactors = KeptFactors()


def _infer(data: ArrayType, b: ArrayType, structure: CompressedRows, **params: Any) -> ArrayType:
    n, m = structure.shape
    if n != m:
        raise ValueError(f"a sparse matrix of shape {structure.shape} has no LU solve: it must be square; try LSMR()")
    if data.shape != (*b.shape[:-2], 1, len(structure.indices)) or b.shape[-2] != n:
        raise ValueError(
            f"sparse_solve: numbers of shape {data.shape} and right-hand sides of shape {b.shape} don't fit a matrix "
            f"of shape {structure.shape} with {len(structure.indices)} numbers"
        )
    return ArrayType(b.shape, np.result_type(data.dtype, b.dtype))


def _evaluate(data: Any, b: Any, structure: CompressedRows, transposed: bool, incomplete: tuple | None) -> Any:
    kind = np.result_type(data, b)
    data, b = data.astype(kind, copy=False), b.astype(kind, copy=False)
    out = np.empty_like(b)
    if not b.size:
        return out
    for place in np.ndindex(b.shape[:-2]):
        factors = FACTORS.of(np.ascontiguousarray(data[(*place, 0)]), structure, incomplete)
        if factors is None:
            out[place] = np.nan
        elif transposed:  # a^H x = b: what is factorised is the transpose, without the conjugation
            out[place] = np.conj(factors.solve(np.ascontiguousarray(np.conj(b[place])), "N"))
        else:
            out[place] = factors.solve(np.ascontiguousarray(b[place]), "T")
    return out


def _change(ddata: Any, x: Any, structure: CompressedRows, transposed: bool) -> Any:
    """The product of the matrices with numbers ddata (..., 1, nnz), or their adjoints, and x (..., n, k)."""
    *head, _, count = shape_of(ddata)
    n, k = shape_of(x)[-2:]
    stack = int(np.prod(head))
    numbers = reshape(conjugate(ddata) if transposed else ddata, shape=(stack * count,))
    whole = structure if stack == 1 else structure.repeated(stack)
    out = sparse_dot(numbers, reshape(x, shape=(stack * n, k)), structure=whole, transposed=transposed)
    return reshape(out, shape=(*head, n, k))


def _jvp(primals: tuple, tangents: tuple, structure: CompressedRows, transposed: bool, incomplete: Any) -> tuple:
    params: dict = {"structure": structure, "transposed": transposed, "incomplete": incomplete}
    (data, b), (ddata, db) = primals, tangents
    x = sparse_solve(data, b, **params)
    change = None if ddata is None else neg(_change(ddata, x, structure, transposed))
    return x, sparse_solve(data, total(db, change), **params)


def _cost(types: tuple, outs: tuple, params: dict) -> Work:
    products = 2 * types[0].size * outs[0].shape[-1]  # factors that fill nothing in; how much they do, nobody knows
    return work(outs[0], products, products)


# x in a x = b, or a^H x = b if `transposed`, for numbers (..., 1, nnz) and b (..., n, k); NaN where a is singular. With
# `incomplete`, the tolerance below which numbers are dropped and the factor by which they may fill in, x is that of the
# incomplete factors, and the derivative in the numbers that of the exact solution.
sparse_solve: Primitive = with_shared_rules(
    Primitive(
        "sparse_solve",
        _evaluate,
        _infer,
        jvp=_jvp,
        transpose=lambda ct, data, b, structure, transposed, incomplete: (
            None,
            sparse_solve(data, ct, structure=structure, transposed=not transposed, incomplete=incomplete),
        ),
        linear=(1,),
        analytic=lambda types, params: not params["transposed"] or types[0].dtype.kind != "c",
        cost=_cost,
    ),
    solver_batch,
    solver_pattern,
)
