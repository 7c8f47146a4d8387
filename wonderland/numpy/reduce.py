"""NumPy's reductions and products on traced arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.tracer import METHODS, UFUNCS
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements, namespace, operator
from wonderland.numpy.shape import broadcast_to, normalize_axes, normalize_axis, reshape_value
from wonderland.ops import elementwise as ops
from wonderland.ops import reduce
from wonderland.ops.dot import dot as contract
from wonderland.ops.shape import convert


def _kept(out: Any, shape: tuple, axes: tuple[int, ...], keepdims: Any) -> Any:
    if keepdims is np._NoValue or not keepdims:
        return out
    return reshape_value(out, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def _strong(a: Any) -> Any:
    """A reduction of a Python scalar is a NumPy scalar."""
    return convert(a, dtype=type_of(a).dtype) if type_of(a).weak else a


def _refuse(options: dict, name: str) -> None:
    left = [
        k for k, v in options.items() if v is not np._NoValue and v is not None and not (k == "where" and v is True)
    ]
    if left:
        raise TypeError(f"np.{name} on traced arrays doesn't take {', '.join(left)}=")


@implements(np.sum, method="sum")
def sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "sum")
    kind = type_of(a).dtype
    if dtype is None and kind.kind in "biu":  # NumPy sums small integers in int64
        dtype = np.result_type(kind, np.uint64 if kind.kind == "u" else np.int64)
    if dtype is not None and np.dtype(dtype) != kind:
        a = convert(a, dtype=np.dtype(dtype))
    axes = normalize_axes(axis, len(shape_of(a)))
    if not axes:
        return _strong(a)
    return _kept(reduce.sum(a, axes=axes), shape_of(a), axes, keepdims)


@implements(np.mean, method="mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "mean")
    axes = normalize_axes(axis, len(shape_of(a)))
    count = math.prod(shape_of(a)[i] for i in axes)
    if dtype is None and type_of(a).dtype.kind in "biu":
        dtype = np.float64
    return ops.div(sum(a, axis=axes, dtype=dtype, keepdims=keepdims), float(count))


@implements(np.var, method="var")
def var(a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "var")
    a = a if dtype is None else convert(a, dtype=np.dtype(dtype))
    axes = normalize_axes(axis, len(shape_of(a)))
    count = math.prod(shape_of(a)[i] for i in axes)
    centred = ops.sub(a, mean(a, axis=axes, keepdims=True))
    squares = ops.mul(centred, ops.conjugate(centred))
    squares = ops.real(squares) if type_of(squares).dtype.kind == "c" else squares
    return ops.div(sum(squares, axis=axes, keepdims=keepdims), float(count - ddof))


@implements(np.std, method="std")
def std(a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: Any = False, **options: Any) -> Any:
    return ops.sqrt(var(a, axis, dtype, ddof, keepdims, **options))


@implements(np.max, np.amax, method="max")
def max(a: Any, axis: Any = None, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "max")
    axes = normalize_axes(axis, len(shape_of(a)))
    return _kept(reduce.max(a, axes=axes), shape_of(a), axes, keepdims) if axes else _strong(a)


@implements(np.min, np.amin, method="min")
def min(a: Any, axis: Any = None, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "min")
    flip = ops.invert if type_of(a).dtype.kind in "bu" else ops.neg  # order-reversing, and its own inverse
    return flip(max(flip(a), axis=axis, keepdims=keepdims))


@implements(np.any, method="any")
def any(a: Any, axis: Any = None, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "any")
    return ops.gt(sum(ops.ne(a, 0), axis=axis, keepdims=keepdims), 0)


@implements(np.all, method="all")
def all(a: Any, axis: Any = None, keepdims: Any = False, **options: Any) -> Any:
    _refuse(options, "all")
    return ops.eq(sum(ops.eq(a, 0), axis=axis, keepdims=keepdims), 0)


def _ufunc_reduce(f: Any) -> Any:
    def reduction(a: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False, **options: Any) -> Any:
        if dtype is not None:
            options["dtype"] = dtype
        return f(a, axis=axis, keepdims=keepdims, **options)

    return reduction


for _ufunc, _method in ((np.add, "sum"), (np.maximum, "max"), (np.minimum, "min")):
    UFUNCS[_ufunc, "reduce"] = _ufunc_reduce(METHODS[_method])
    namespace[_ufunc.__name__].reduce = _ufunc.reduce


@implements(np.matmul)
def matmul(x: Any, y: Any) -> Any:
    xs, ys = shape_of(x), shape_of(y)
    if not xs or not ys:
        raise ValueError("matmul: an operand is 0-dimensional; use * for scalars")
    if xs[-1] != ys[0 if len(ys) == 1 else -2]:
        raise ValueError(f"matmul: shapes {xs} and {ys} don't fit: {xs[-1]} is not {ys[0 if len(ys) == 1 else -2]}")
    if len(ys) <= 2:
        return contract(x, y, contract=((len(xs) - 1,), (0,)), batch=((), ()))
    if len(xs) == 1:
        out = matmul(reshape_value(x, (1, *xs)), y)
        return reshape_value(out, (*shape_of(out)[:-2], shape_of(out)[-1]))
    head = np.broadcast_shapes(xs[:-2], ys[:-2])
    x, y = broadcast_to(x, (*head, *xs[-2:])), broadcast_to(y, (*head, *ys[-2:]))
    axes, rank = tuple(range(len(head))), len(head) + 2
    return contract(x, y, contract=((rank - 1,), (rank - 2,)), batch=(axes, axes))


operator("matmul", matmul)


@implements(np.dot, method="dot")
def dot(a: Any, b: Any) -> Any:
    if not shape_of(a) or not shape_of(b):
        return ops.mul(a, b)
    last, second = len(shape_of(a)) - 1, len(shape_of(b)) - 2 if len(shape_of(b)) > 1 else 0
    if shape_of(a)[last] != shape_of(b)[second]:
        raise ValueError(f"shapes {shape_of(a)} and {shape_of(b)} not aligned")
    return contract(a, b, contract=((last,), (second,)), batch=((), ()))


@implements(np.inner)
def inner(a: Any, b: Any) -> Any:
    if not shape_of(a) or not shape_of(b):
        return ops.mul(a, b)
    return contract(a, b, contract=((len(shape_of(a)) - 1,), (len(shape_of(b)) - 1,)), batch=((), ()))


@implements(np.outer)
def outer(a: Any, b: Any) -> Any:
    a, b = reshape_value(a, (type_of(a).size,)), reshape_value(b, (type_of(b).size,))
    return contract(a, b, contract=((), ()), batch=((), ()))


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    m, n = len(shape_of(a)), len(shape_of(b))
    if isinstance(axes, (int, np.integer)):
        pairs = (tuple(range(m - axes, m)), tuple(range(axes)))
    else:
        first, second = ((ax,) if isinstance(ax, (int, np.integer)) else tuple(ax) for ax in axes)
        pairs = (tuple(normalize_axis(i, m) for i in first), tuple(normalize_axis(i, n) for i in second))
    return contract(a, b, contract=pairs, batch=((), ()))
