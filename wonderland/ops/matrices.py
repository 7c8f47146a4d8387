"""Stacks of matrices (..., m, n) of values, and the rules that the primitives of linear algebra share.

Values come in (arrays or traced values) and go out; what is done to them is written with other primitives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.dot import dot
from wonderland.ops.elementwise import add, conjugate, mul, where
from wonderland.ops.index import scatter_slice
from wonderland.ops.index import slice as part
from wonderland.ops.pattern import as_type, blocks
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.shape import broadcast, reshape, transpose

# Matrices of values ---------------------------------------------------------------------------------------------------


def product(*factors: Any) -> Any:
    """The product of stacks of matrices with the same leading axes, from the left."""
    out = factors[0]
    for y in factors[1:]:
        rank = len(shape_of(out))
        axes = tuple(range(rank - 2))
        out = dot(out, y, contract=((rank - 1,), (rank - 2,)), batch=(axes, axes))
    return out


def adjoint(x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    rank = len(shape_of(x))
    return conjugate(transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2)))


def hermitian_part(x: Any) -> Any:
    """(x + x^H) / 2: of a change of a Hermitian matrix, the part that keeps it so."""
    return mul(add(x, adjoint(x)), 0.5)


def of_triangle(x: Any, lower: bool, hermitian: bool = True) -> Any:
    """The Hermitian (or symmetric) matrix of which x has one triangle: the other isn't read.

    The imaginary part of a Hermitian diagonal isn't read either.
    """
    n = shape_of(x)[-1]
    weights = np.tri(n) - 0.5 * np.eye(n)  # the diagonal is in both halves
    weights = (weights if lower else weights.T).astype(real_dtype(type_of(x).dtype))
    half = mul(masked(x, weights != 0), weights)
    other = adjoint(half)
    return add(half, other if hermitian else conjugate(other))


def masked(x: Any, mask: np.ndarray) -> Any:
    """The elements where the mask is true, and zeros."""
    return where(mask, x, np.zeros((), type_of(x).dtype)[()])


def lower_part(x: Any, below: int = 0) -> Any:
    """The lower triangle, `below` diagonals under the main one."""
    return masked(x, np.tri(shape_of(x)[-2], shape_of(x)[-1], -below, dtype=bool))


def upper_part(x: Any) -> Any:
    """The upper triangle."""
    return masked(x, ~np.tri(shape_of(x)[-2], shape_of(x)[-1], -1, dtype=bool))


def diagonal(x: Any) -> Any:
    """The main diagonal of square matrices."""
    n = shape_of(x)[-1]
    return reduce_sum(masked(x, np.eye(n, dtype=bool)), axes=(len(shape_of(x)) - 1,))


def trace(x: Any) -> Any:
    """The trace of square matrices."""
    rank = len(shape_of(x))
    return reduce_sum(masked(x, np.eye(shape_of(x)[-1], dtype=bool)), axes=(rank - 2, rank - 1))


def as_rows(v: Any) -> Any:
    """Vectors (..., n) as (..., 1, n): to scale columns by."""
    shape = shape_of(v)
    return reshape(v, shape=(*shape[:-1], 1, shape[-1]))


def as_columns(v: Any) -> Any:
    """Vectors (..., n) as (..., n, 1): to scale rows by."""
    return reshape(v, shape=(*shape_of(v), 1))


def scalars(v: Any) -> Any:
    """Numbers (...) as (..., 1, 1): to scale matrices by."""
    return reshape(v, shape=(*shape_of(v), 1, 1))


def identity_like(x: Any) -> Any:
    """Identity matrices for square stacks."""
    kind = type_of(x)
    return np.broadcast_to(np.eye(kind.shape[-1], dtype=kind.dtype), kind.shape)


def _place(head: tuple, size: tuple[int, int], row: int, column: int) -> tuple:
    return (*(slice(0, h, 1) for h in head), slice(row, row + size[0], 1), slice(column, column + size[1], 1))


def block(x: Any, size: tuple[int, int], row: int = 0, column: int = 0) -> Any:
    """The block of that size at (row, column) of each matrix."""
    *head, m, n = shape_of(x)
    return x if size == (m, n) else part(x, index=_place(tuple(head), size, row, column))


def embedded(x: Any, size: tuple[int, int], row: int = 0, column: int = 0) -> Any:
    """Larger matrices, zero but for x as their block at (row, column)."""
    kind = type_of(x)
    head, own = kind.shape[:-2], kind.shape[-2:]
    index = _place(head, own, row, column)
    return x if size == own else scatter_slice(np.zeros((*head, *size), kind.dtype), x, index=index, mode="set")


def total(*terms: Any) -> Any:
    """The sum of tangents, of which some may be None."""
    given = [t for t in terms if t is not None]
    out = given[0] if given else None
    for t in given[1:]:
        out = add(out, t)
    return out


def real_dtype(dtype: np.dtype) -> np.dtype:
    """float32 of complex64, and so on."""
    return np.finfo(dtype).dtype


# Rules that all share -------------------------------------------------------------------------------------------------


def square(a: ArrayType) -> None:
    """Refuse what isn't a stack of square matrices, in NumPy's words."""
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError(f"Last 2 dimensions of the array must be square, not {a.shape[-2:]}")


def same_square(a: ArrayType, **params: Any) -> ArrayType:
    """The type of a function from square matrices to square matrices."""
    square(a)
    return ArrayType(a.shape, a.dtype)


def block_pattern(primitive: Primitive) -> Callable:
    """Each element of a result depends on all elements of the matrices at its place in the stack."""

    def pattern(types: tuple[ArrayType, ...], params: dict) -> list:
        inferred = primitive.infer(*map(as_type, types), **params)
        outs = inferred if primitive.multiple else (inferred,)
        count = math.prod(types[0].shape[:-2])
        numbers = lambda t: np.arange(t.size).reshape(count, t.size // max(count, 1))
        rows = [[blocks(numbers(out), numbers(t)) for t in types] for out in outs]
        return rows if primitive.multiple else rows[0]

    return pattern


def stacked_batch(primitive: Primitive) -> Callable:
    """A batch is one more leading axis, which operands without one get by repetition."""

    def batch(size: int, args: tuple, batched: tuple, **params: Any) -> Any:
        full = [a if b else broadcast(a, shape=(size, *shape_of(a))) for a, b in zip(args, batched, strict=True)]
        out = primitive(*full, **params)
        return (out, (True,) * len(out)) if primitive.multiple else out

    return batch


def with_shared_rules(
    primitive: Primitive, batch: Callable = stacked_batch, pattern: Callable = block_pattern
) -> Primitive:
    """The primitive with its batch and pattern rules filled in."""
    primitive.batch = batch(primitive)
    primitive.pattern = pattern(primitive)
    return primitive
