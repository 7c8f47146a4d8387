"""np.linalg's norms, condition numbers and ranks on traced arrays.

The derivative of a norm at 0 is 0, the subgradient of least length, and never NaN.
"""

from __future__ import annotations

from typing import Any

from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.join import as_value
from wonderland.numpy.linear_algebra import hermitian_matrix, inv, matrix
from wonderland.numpy.missing import np
from wonderland.numpy.shape import normalize_axis
from wonderland.ops import decompositions, reduce
from wonderland.ops import elementwise as ops
from wonderland.ops.math import pow
from wonderland.ops.matrices import real_dtype
from wonderland.ops.shape import convert, reshape, transpose


def _inexact(x: Any) -> Any:
    x = as_value(x)
    kind = type_of(x)
    return x if kind.dtype.kind in "fc" and not kind.weak else convert(x, dtype=np.result_type(kind.dtype, np.float64))


def _maximum(x: Any, axes: tuple[int, ...]) -> Any:
    return reduce.max(x, axes=axes)


def _minimum(x: Any, axes: tuple[int, ...]) -> Any:
    return ops.neg(reduce.max(ops.neg(x), axes=axes))


def _squares(x: Any) -> Any:
    """|x|^2, without a square root in between."""
    if type_of(x).dtype.kind == "c":
        return ops.add(ops.mul(ops.real(x), ops.real(x)), ops.mul(ops.imag(x), ops.imag(x)))
    return ops.mul(x, x)


def _power_or_zero(x: Any, power: Any) -> Any:
    """A power of numbers that aren't negative, whose derivative at 0 is 0."""
    zero = ops.eq(x, 0)
    one = np.ones((), type_of(x).dtype)[()]
    safe = ops.where(zero, one, x)
    raised = ops.sqrt(safe) if power == 0.5 else pow(safe, power)
    return ops.where(zero, np.zeros((), type_of(x).dtype)[()], raised)


def _vector(x: Any, order: Any, axes: tuple[int, ...]) -> Any:
    if order is None or order == 2 or order == "fro":
        return _power_or_zero(reduce.sum(_squares(x), axes=axes), 0.5)
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order '{order}' for vectors")
    if order == np.inf:
        return _maximum(ops.abs(x), axes)
    if order == -np.inf:
        return _minimum(ops.abs(x), axes)
    if order == 0:
        return reduce.sum(convert(ops.ne(x, 0), dtype=real_dtype(type_of(x).dtype)), axes=axes)
    if order == 1:
        return reduce.sum(ops.abs(x), axes=axes)
    order = float(order)
    if order < 0:  # an element 0 makes it 0
        return pow(reduce.sum(pow(ops.abs(x), order), axes=axes), 1 / order)
    return _power_or_zero(reduce.sum(_power_or_zero(ops.abs(x), order), axes=axes), 1 / order)


def _singular_values(x: Any) -> Any:
    """Singular values, of which those that are 0 have derivative 0."""
    s = decompositions.svd(matrix(x), full=False)[1]
    zero = np.zeros((), type_of(s).dtype)[()]
    return ops.where(ops.eq(s, 0), zero, s)


def _matrices_last(x: Any, axes: tuple[int, int]) -> Any:
    rank = len(shape_of(x))
    order = (*(i for i in range(rank) if i not in axes), *axes)
    return x if order == tuple(range(rank)) else transpose(x, permutation=order)


def _matrix(x: Any, order: Any, axes: tuple[int, int]) -> Any:
    if order in (None, "fro", "f"):
        return _vector(x, None, tuple(sorted(axes)))
    x = _matrices_last(x, axes)
    last = len(shape_of(x)) - 1
    if order in (2, -2, "nuc"):
        s = _singular_values(x)
        if order == "nuc":
            return reduce.sum(s, axes=(last - 1,))
        return (_maximum if order == 2 else _minimum)(s, (last - 1,))
    if order in (1, -1, np.inf, -np.inf):
        summed = reduce.sum(ops.abs(x), axes=(last - 1 if order in (1, -1) else last,))
        return (_maximum if order > 0 else _minimum)(summed, (last - 1,))
    raise ValueError("Invalid norm order for matrices.")


def _kept(out: Any, shape: tuple, axes: tuple[int, ...]) -> Any:
    return reshape(out, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = _inexact(x)
    shape = shape_of(x)
    rank = len(shape)
    given = range(rank) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes: tuple[int, ...] = tuple(normalize_axis(a, rank) for a in given)
    if (len(axes) > 2 or not axes) and (axis is not None or ord is not None):
        raise ValueError("Improper number of dimensions to norm.")
    if len(set(axes)) < len(axes):
        raise ValueError("Duplicate axes given.")
    if len(axes) == 2 and not (axis is None and ord is None):
        out = _matrix(x, ord, (axes[0], axes[1]))
    else:
        out = _vector(x, ord, axes)
    return _kept(out, shape, axes) if keepdims else out


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    x = _inexact(x)
    shape = shape_of(x)
    given = range(len(shape)) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(normalize_axis(a, len(shape)) for a in given))
    out = _vector(x, ord, axes)
    return _kept(out, shape, axes) if keepdims else out


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return norm(x, ord, (-2, -1), keepdims)


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    x = matrix(x)
    if p in (None, 2, -2):
        s = decompositions.svd(x, full=False)[1]
        last = (len(shape_of(s)) - 1,)
        ends = (_maximum(s, last), _minimum(s, last))
        return ops.div(*(reversed(ends) if p == -2 else ends))
    return ops.mul(norm(x, p, (-2, -1)), norm(inv(x), p, (-2, -1)))


def _per_matrix(limit: Any) -> Any:
    """One number per matrix, for all of its singular values."""
    limit = as_value(limit)
    return reshape(limit, shape=(*shape_of(limit), 1))


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    if len(shape_of(A)) < 2:
        largest = _vector(_inexact(A), np.inf, tuple(range(len(shape_of(A)))))
        return convert(ops.ne(largest, 0), dtype=np.dtype(np.int64))
    A = hermitian_matrix(A) if hermitian else matrix(A)
    s = decompositions.svd(A, full=False)[1]
    last = len(shape_of(s)) - 1
    if tol is None:
        rtol = max(shape_of(A)[-2:]) * float(np.finfo(type_of(s).dtype).eps) if rtol is None else _per_matrix(rtol)
        largest = _maximum(s, (last,)) if shape_of(s)[-1] else np.zeros(shape_of(s)[:-1], type_of(s).dtype)
        tol = ops.mul(_per_matrix(largest), rtol)
    else:
        tol = _per_matrix(tol)
    return reduce.sum(convert(ops.gt(s, tol), dtype=np.dtype(np.int64)), axes=(last,))
