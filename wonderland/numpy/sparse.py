"""Products of SciPy's sparse matrices with traced arrays: `A @ x`, `x @ A`, `A.dot(x)` and, for spmatrix, `A * x`.

A sparse matrix comes in as its numbers and its `CompressedRows`; the numbers are an operand of the primitive, so they
are captured like any array's, the structure is a parameter. SciPy is imported only by who has a matrix of its already.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.tracer import PROPERTIES, Tracer
from wonderland.core.types import ArrayType, promote, shape_of, type_of
from wonderland.numpy.dispatch import FOREIGN
from wonderland.ops.elementwise import conjugate, mul
from wonderland.ops.index import gather
from wonderland.ops.reduce import sum
from wonderland.ops.shape import broadcast, convert, reshape, transpose
from wonderland.ops.work import Work, count, work


class CompressedRows:
    """Where a sparse matrix has its numbers, by compressed rows. Compared by identity."""

    __slots__ = ("indices", "indptr", "shape")

    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    def __init__(self, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]):
        self.indices, self.indptr, self.shape = indices, indptr, shape

    def matrix(self, data: Any, transposed: bool) -> Any:
        """The matrix with these numbers."""
        with loading():
            from scipy.sparse import csr_array

        matrix = csr_array((np.asarray(data), self.indices, self.indptr), shape=self.shape)
        return matrix.T if transposed else matrix

    def places(self, transposed: bool) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of each number."""
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        return (self.indices, rows) if transposed else (rows, self.indices)

    def repeated(self, count: int) -> CompressedRows:
        """That of a matrix with this one `count` times along its diagonal."""
        (m, n), steps = self.shape, np.arange(count)[:, None]
        indices = (self.indices + n * steps).ravel()
        ends = (self.indptr[1:] + len(self.indices) * steps).ravel()
        return CompressedRows(indices, np.concatenate(([0], ends)), (count * m, count * n))


def _infer(data: ArrayType, x: ArrayType, structure: CompressedRows, transposed: bool) -> ArrayType:
    rows, columns = structure.shape[::-1] if transposed else structure.shape
    if x.ndim not in (1, 2) or x.shape[0] != columns:
        raise ValueError(
            f"a sparse matrix of shape {(rows, columns)} can't be multiplied with an array of shape {x.shape}"
        )
    return ArrayType((rows, *x.shape[1:]), promote(data, x)[0])


def _evaluate(data: Any, x: Any, structure: CompressedRows, transposed: bool) -> Any:
    kind = _infer(type_of(data), type_of(x), structure, transposed)
    return np.asarray(structure.matrix(data, transposed) @ x, kind.dtype)


def _transpose(ct: Any, data: Any, x: Any, structure: CompressedRows, transposed: bool) -> tuple:
    if isinstance(x, Linear):
        out = sparse_dot(conjugate(data), ct, structure=structure, transposed=not transposed)
        return None, out if type_of(out).dtype == x.dtype else convert(out, dtype=x.dtype)
    rows, columns = structure.places(transposed)
    out = mul(gather(ct, rows, axes=(0,)), conjugate(gather(x, columns, axes=(0,))))
    out = sum(out, axes=(1,)) if len(shape_of(x)) == 2 else out
    return out if type_of(out).dtype == data.dtype else convert(out, dtype=data.dtype), None


def _batch(size: int, args: tuple, batched: tuple, structure: CompressedRows, transposed: bool) -> Any:
    data, x = args
    params = {"structure": structure, "transposed": transposed}
    if batched[0]:  # one matrix each: all of them along one diagonal
        params["structure"] = structure.repeated(size)
        x = x if batched[1] else broadcast(x, shape=(size, *shape_of(x)))
        n, *rest = shape_of(x)[1:]
        columns = reshape(x, shape=(size * n, *rest))
        out = sparse_dot(reshape(data, shape=(size * len(structure.indices),)), columns, **params)
        return reshape(out, shape=(size, shape_of(out)[0] // size, *rest))
    n, *rest = shape_of(x)[1:]
    order = (1, 0, 2)[: 2 + len(rest)]
    columns = reshape(transpose(x, permutation=order), shape=(n, size * (rest[0] if rest else 1)))
    out = sparse_dot(data, columns, **params)
    return transpose(reshape(out, shape=(shape_of(out)[0], size, *rest)), permutation=order)


def _lower(builder: Any, data: Any, x: Any, structure: CompressedRows, transposed: bool) -> Any:
    kind = _infer(data.type, x.type, structure, transposed)
    rows, columns = structure.places(transposed)
    if len(rows) == 0 or kind.size == 0:
        return builder.broadcast(builder.constant(np.zeros((), kind.dtype)), kind.shape)
    m, n = kind.shape[0], x.shape[0]
    order = np.argsort(rows, kind="stable") if transposed else np.arange(len(rows))
    # What SciPy takes on trust: an index out of range must not lead out of the memory.
    inside = 0 <= rows.min() <= rows.max() < m and 0 <= columns.min() <= columns.max() < n
    if len(rows) != data.shape[0] or not inside:
        raise ValueError(f"a sparse matrix of shape {(m, n)} has indices out of range")
    ends = np.searchsorted(rows[order], np.arange(m + 1))
    x = builder.reshape(builder.convert(x, kind.dtype), (1, n, kind.size // m))
    operands = [
        builder.constant(np.stack([ends[:-1], ends[1:]], 1).astype(np.int64)),
        builder.constant(np.asarray(columns, np.int64)[order][None]),
        builder.reshape(builder.convert(data, kind.dtype), (1, len(rows))),
        x,
    ]
    if transposed:
        operands.append(builder.constant(order.astype(np.int64)[None]))
    k = kind.size // m
    out = ArrayType((m, k), kind.dtype)
    made = builder.procedure(
        "sparse product", partial(_multiply_row, columns=k), operands, out, 1, cost=(2 + 0.5 * k) * len(rows) / m + 5
    )
    return builder.reshape(made, kind.shape)


def _multiply_row(code: Any, out: Any, ends: Any, places: Any, data: Any, x: Any, *order: Any, columns: int) -> None:
    """One row of the matrix times x: its numbers from one end to the other, each with a row of x."""
    start, stop = ends.load(0), ends.load(1)

    def number(i: Any) -> Any:
        return data.load(order[0].load(i)) if order else data.load(i)

    if columns == 1:
        total = code.variable(code.constant(0, out.dtype))
        with code.loop(start, stop) as i:
            total.set(code.add(total.get(), code.mul(number(i), x.load(places.load(i), 0))))
        out.store(total.get(), 0)
        return
    with code.loop(0, columns) as c:
        out.store(code.constant(0, out.dtype), c)
    with code.loop(start, stop) as i:
        factor, place = number(i), places.load(i)
        with code.loop(0, columns) as c:
            out.store(code.add(out.load(c), code.mul(factor, x.load(place, c))), c)


def _pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    data, x = types
    rows, columns = params["structure"].places(params["transposed"])
    k = x.shape[1] if x.ndim == 2 else 1
    place = np.arange(data.size)
    if isinstance(data, np.ndarray) and not data.all():
        place = np.flatnonzero(data)
        rows, columns = rows[place], columns[place]
    out, read = ((index.astype(np.intp)[:, None] * k + np.arange(k)).ravel() for index in (rows, columns))
    return [(out, np.repeat(place, k)), (out, read)]


def _cost(types: tuple, outs: tuple, params: dict) -> Work:
    products = types[0].size * (types[1].shape[1] if types[1].ndim == 2 else 1)
    return work(outs[0], products, max(products - count(outs[0]), 0))


sparse_dot: Primitive = Primitive(
    "sparse_dot",
    _evaluate,
    _infer,
    bilinear=True,
    transpose=_transpose,
    batch=_batch,
    pattern=_pattern,
    lower=_lower,
    cost=_cost,
)


def is_sparse(value: Any) -> bool:
    """Is it one of SciPy's sparse matrices or arrays, of two dimensions?"""
    return hasattr(value, "tocsr") and len(getattr(value, "shape", ())) == 2


def _product(matrix: Any, x: Any, transposed: bool) -> Any:
    csr = matrix.tocsr()
    structure = CompressedRows(csr.indices, csr.indptr, csr.shape)
    return sparse_dot(csr.data, x, structure=structure, transposed=transposed)


def _left(self: Tracer, matrix: Any) -> Tracer:
    """`matrix @ self`."""
    return Tracer(_product(matrix, self._get(), False))


def _right(self: Tracer, matrix: Any) -> Tracer:
    """`self @ matrix`."""
    x = self._get()
    if len(shape_of(x)) != 2:
        return Tracer(_product(matrix, x, True))
    out = _product(matrix, transpose(x, permutation=(1, 0)), True)
    return Tracer(transpose(out, permutation=(1, 0)))


def _foreign(product: Any, applies: Any) -> Any:
    return lambda self, other: product(self, other) if applies(other) else NotImplemented


def _is_spmatrix(value: Any) -> bool:
    return is_sparse(value) and isinstance(value, sys.modules["scipy.sparse"].spmatrix)


FOREIGN["__rmatmul__"] = _foreign(_left, is_sparse)
FOREIGN["__matmul__"] = _foreign(_right, is_sparse)
FOREIGN["__rmul__"] = _foreign(_left, _is_spmatrix)
FOREIGN["__mul__"] = _foreign(_right, _is_spmatrix)

# SciPy asks np.asanyarray what the other operand is. Its products give way to the operand's own operator only if that
# is a lone object; COO's `dot` goes on to `@` only if it isn't.
_ANSWERS = {"_matmul_dispatch": np.empty((), object), "dot": np.empty(0)}


def _answer_to_scipy(caller: Any) -> np.ndarray | None:
    """What `np.asarray(tracer)` gives if the caller is a product of scipy.sparse."""
    answer = _ANSWERS.get(caller.f_code.co_name)
    return answer if str(caller.f_globals.get("__name__")).startswith("scipy.sparse.") else None


PROPERTIES["__array__"] = _answer_to_scipy
