"""Sparse operators: a pattern that is fixed, and its numbers, which are the leaf.

A matrix of scipy.sparse comes in. Equal patterns are one object, so that a matrix that is made anew in every call finds
what was compiled, and factorised, for the last one.
"""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.tracer import Tracer
from wonderland.implicit.systems.operators import Operator
from wonderland.implicit.systems.solvers_direct import SparseLU
from wonderland.implicit.systems.solvers_lsmr import LSMR
from wonderland.numpy.dispatch import as_function
from wonderland.numpy.sparse import CompressedRows, is_sparse, sparse_dot

_sparse_dot = as_function(sparse_dot)


class SharedRows(CompressedRows):
    """A pattern that is the only one of its content."""

    __slots__ = ("__weakref__",)

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{len(self.indices)} of {m}x{n}"


_PATTERNS: WeakValueDictionary[Any, SharedRows] = WeakValueDictionary()


def shared_rows(indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> SharedRows:
    """The pattern of this content."""
    indices, indptr = (np.array(x, np.int32) for x in (indices, indptr))
    key = ((int(shape[0]), int(shape[1])), indices.tobytes(), indptr.tobytes())
    found = _PATTERNS.get(key)
    if found is None:
        found = _PATTERNS[key] = SharedRows(indices, indptr, key[0])
    return found


class Sparse(Operator):
    """A matrix of scipy.sparse, by its pattern, which is fixed, and its numbers, which have derivatives.

    `data` are other numbers for the places of `matrix`, traced ones for instance, in the order of `matrix.data`; the
    matrix is then in the formats csr, csc or coo. Numbers that are stored and zero belong to the pattern.
    """

    leaves: ClassVar[tuple[str, ...]] = ("data",)
    static: ClassVar[tuple[str, ...]] = ("pattern", "flipped")

    def __init__(self, matrix: Any, data: Any = None):
        if not is_sparse(matrix):
            raise ArgumentError(f"Sparse: expected a matrix or an array of scipy.sparse, got {type(matrix).__name__}")
        if data is None:
            rows = matrix.tocsr(copy=True)
            rows.sum_duplicates()  # sorts, too
            self.data: Any = rows.data if rows.data.dtype.kind in "fc" else rows.data.astype(np.float64)
        else:
            rows, order = _numbered(matrix)
            data = data if isinstance(data, Tracer) else np.asarray(data)
            if data.shape != matrix.data.shape:
                raise ArgumentError(
                    f"Sparse: expected data of shape {matrix.data.shape}, as the matrix has, got {data.shape}"
                )
            data = data if data.dtype.kind in "fc" else data.astype(np.float64)
            self.data = data if order is None else data[order]
        self.pattern: SharedRows = shared_rows(rows.indices, rows.indptr, rows.shape)
        self.flipped: bool = False  # is it the transpose of what the pattern says?

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.pattern.shape
        return (n, m) if self.flipped else (m, n)

    def matvec(self, v: Any) -> Any:
        return _sparse_dot(self.data, v, structure=self.pattern, transposed=self.flipped)

    def transposed(self) -> Sparse:
        out = object.__new__(Sparse)
        out.data = np.conj(self.data) if self.data.dtype.kind == "c" else self.data
        out.pattern, out.flipped = self.pattern, not self.flipped
        return out

    def dense(self) -> Any:
        return _sparse_dot(
            self.data, np.eye(self.shape[1], dtype=self.dtype), structure=self.pattern, transposed=self.flipped
        )

    def diagonal(self) -> Any:
        rows, columns = self.pattern.places(self.flipped)
        there = np.flatnonzero(rows == columns)
        places = np.full(min(self.shape), len(rows))
        places[rows[there]] = there
        return np.pad(self.data, (0, 1))[places]

    def expanded(self) -> Operator:
        return self if isinstance(self.data, Tracer) else SciPyProducts(self)

    def default_solver(self) -> Any:
        """Sparse LU; LSMR where it isn't square."""
        return SparseLU() if self.shape[0] == self.shape[1] else LSMR()


class SciPyProducts(Operator):
    """A `Sparse` operator whose numbers are known, with SciPy's matrix made once for many products."""

    leaves: ClassVar[tuple[str, ...]] = ("of",)
    static: ClassVar[tuple[str, ...]] = ("matrix",)

    def __init__(self, of: Sparse):
        self.of: Sparse = of
        self.matrix: Any = of.pattern.matrix(of.data, of.flipped)

    @property
    def shape(self) -> tuple[int, int]:
        return self.of.shape

    def matvec(self, v: Any) -> Any:
        return self.of.matvec(v) if isinstance(v, Tracer) else self.matrix @ v

    def transposed(self) -> Operator:
        return self.of.transposed().expanded()


def _numbered(matrix: Any) -> tuple[Any, np.ndarray | None]:
    """The matrix in compressed rows, and where its numbers were (None: they have their order)."""
    if matrix.format not in ("csr", "csc", "coo"):
        raise ArgumentError(
            f"Sparse: data= needs a matrix in csr, csc or coo format, got {matrix.format}: use .tocsr()"
        )
    if matrix.format == "csr" and matrix.has_canonical_format:
        return matrix, None
    with loading():
        from scipy.sparse import csr_array

    whole = matrix.tocoo()
    order = np.lexsort((whole.col, whole.row))
    row, column = whole.row[order], whole.col[order]
    if np.any((row[1:] == row[:-1]) & (column[1:] == column[:-1])):
        raise ArgumentError("Sparse: data= needs a matrix without duplicates: call matrix.sum_duplicates() first")
    indptr = np.searchsorted(row, np.arange(matrix.shape[0] + 1))
    return csr_array((np.ones(len(order)), column, indptr), shape=matrix.shape), order
