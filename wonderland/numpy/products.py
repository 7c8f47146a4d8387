"""NumPy's products of two arrays on traced arrays: all of them are the primitive `dot`, with axes arranged around it.

`pairwise` is the general form, by labelled axes as in einsum; `einsum` is built on it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonderland.core.level import Traced
from wonderland.core.tracer import UFUNCS, Tracer
from wonderland.core.types import broadcast_shapes, promote, shape_of, type_of
from wonderland.numpy.dispatch import implements, namespace, operator, present, values
from wonderland.numpy.join import stack
from wonderland.numpy.missing import np
from wonderland.numpy.shape import normalize_axis, reshape_value, transpose_value
from wonderland.ops import elementwise as ops
from wonderland.ops.dot import dot as contract
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import convert

_NONE = ((), ())


def as_value(x: Any) -> Any:
    """An operand as an array or traced value: lists are made arrays, Python scalars NumPy's (products aren't weak)."""
    if isinstance(x, Traced):
        return x if x.shape or not x.type.weak else convert(x, dtype=x.dtype)
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (list, tuple)) and _has_traced(x):
        return stack([as_value(item) for item in x])
    return np.asarray(x)[()]


def _has_traced(x: Any) -> bool:
    return any(_has_traced(item) for item in x) if isinstance(x, (list, tuple)) else isinstance(x, Traced)


def take_index(x: Any, axis: int, index: int | slice) -> Any:
    """`x[..., index, ...]`, an int or a resolved slice at one axis."""
    key = tuple(index if i == axis else slice(0, n, 1) for i, n in enumerate(shape_of(x)))
    return slice_primitive(x, index=key)


def pairwise(
    x: Any, x_labels: Sequence[Any], y: Any, y_labels: Sequence[Any], kept: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """One contraction of two arrays with labelled axes: the result, and the labels of its axes.

    Labels that both have are paired up: kept if they are in `kept`, else summed over. Labels of one array alone must
    be kept ones, and no label stands twice in an array.
    """
    both = [a for a in x_labels if a in y_labels]
    batch, summed = [a for a in both if a in kept], [a for a in both if a not in kept]
    out = contract(
        x, y,
        contract=(tuple(map(x_labels.index, summed)), tuple(map(y_labels.index, summed))),
        batch=(tuple(map(x_labels.index, batch)), tuple(map(y_labels.index, batch))),
    )  # fmt: skip
    return out, [*batch, *(a for a in x_labels if a not in both), *(a for a in y_labels if a not in both)]


def _broadcast_product(x: Any, x_core: Sequence, y: Any, y_core: Sequence, out_core: Sequence) -> Any:
    """A product whose leading axes broadcast. An axis that only one operand really has is a free axis of the product.

    Nothing is repeated in memory, and the sum over the repetitions, in the derivative, is part of a contraction.
    """
    xs, ys = shape_of(x), shape_of(y)
    heads = xs[: len(xs) - len(x_core)], ys[: len(ys) - len(y_core)]
    shape = broadcast_shapes(*heads)
    operands, labels = [], []
    for value, head, core in ((x, heads[0], x_core), (y, heads[1], y_core)):
        first = len(shape) - len(head)
        real = [i for i, n in enumerate(head) if n != 1 or shape[first + i] == 1]
        tail = shape_of(value)[len(head) :]
        operands.append(reshape_value(value, (*(head[i] for i in real), *tail)))
        labels.append([*(first + i for i in real), *core])
    goal = [*range(len(shape)), *out_core]
    out, order = pairwise(operands[0], labels[0], operands[1], labels[1], goal)
    return transpose_value(out, tuple(order.index(a) for a in goal))


def _mismatch(name: str, xs: tuple, ys: tuple, m: int, n: int) -> ValueError:
    return ValueError(f"{name}: shapes {xs} and {ys} don't fit: {m} is not {n}")


def _check_rank(name: str, *operands: tuple[tuple, int]) -> None:
    for i, (shape, least) in enumerate(operands):
        if len(shape) < least:
            hint = "; use * for scalars" if name == "matmul" else ""
            raise ValueError(f"{name}: operand {i} has shape {shape}, and needs at least {least} dimension(s){hint}")


@implements(np.matmul)
def matmul(x: Any, y: Any) -> Any:
    if not isinstance(x, (Traced, np.ndarray)) or not isinstance(y, (Traced, np.ndarray)):
        x, y = as_value(x), as_value(y)
    xs, ys = x.shape, y.shape
    if not xs or not ys:
        _check_rank("matmul", (xs, 1), (ys, 1))
    inner_y = ys[0 if len(ys) == 1 else -2]
    if xs[-1] != inner_y:
        raise _mismatch("matmul", xs, ys, xs[-1], inner_y)
    if len(ys) <= 2:
        return contract(x, y, contract=((len(xs) - 1,), (0,)), batch=_NONE)
    if len(xs) == 1:
        return _broadcast_product(x, ["k"], y, ["k", "n"], ["n"])
    return _broadcast_product(x, ["m", "k"], y, ["k", "n"], ["m", "n"])


operator("matmul", matmul)


def vecdot(x: Any, y: Any) -> Any:
    """The inner product of the last axes; the first operand is conjugated."""
    x, y = ops.conjugate(as_value(x)), as_value(y)
    _check_rank("vecdot", (shape_of(x), 1), (shape_of(y), 1))
    if shape_of(x)[-1] != shape_of(y)[-1]:
        raise _mismatch("vecdot", shape_of(x), shape_of(y), shape_of(x)[-1], shape_of(y)[-1])
    return _broadcast_product(x, ["k"], y, ["k"], [])


def matvec(x: Any, y: Any) -> Any:
    """Matrices (the last two axes) times vectors (the last axis)."""
    x, y = as_value(x), as_value(y)
    _check_rank("matvec", (shape_of(x), 2), (shape_of(y), 1))
    if shape_of(x)[-1] != shape_of(y)[-1]:
        raise _mismatch("matvec", shape_of(x), shape_of(y), shape_of(x)[-1], shape_of(y)[-1])
    return _broadcast_product(x, ["m", "k"], y, ["k"], ["m"])


def vecmat(x: Any, y: Any) -> Any:
    """Vectors (the last axis, conjugated) times matrices (the last two axes)."""
    x, y = ops.conjugate(as_value(x)), as_value(y)
    _check_rank("vecmat", (shape_of(x), 1), (shape_of(y), 2))
    if shape_of(x)[-1] != shape_of(y)[-2]:
        raise _mismatch("vecmat", shape_of(x), shape_of(y), shape_of(x)[-1], shape_of(y)[-2])
    return _broadcast_product(x, ["k"], y, ["k", "n"], ["n"])


def _last(x: Any, axes: Any) -> Any:
    """The given axes moved to the end."""
    rank = len(shape_of(x))
    axes = [normalize_axis(a, rank) for a in (axes if isinstance(axes, (tuple, list)) else (axes,))]
    return transpose_value(x, (*(i for i in range(rank) if i not in axes), *axes))


def _placed(x: Any, axes: Any) -> Any:
    """The last axes moved to the given places."""
    rank = len(shape_of(x))
    axes = [normalize_axis(a, rank) for a in (axes if isinstance(axes, (tuple, list)) else (axes,))]
    rest = iter(range(rank - len(axes)))
    return transpose_value(x, tuple(rank - len(axes) + axes.index(i) if i in axes else next(rest) for i in range(rank)))


def _with_axes(original: Any) -> None:
    """Let a product that NumPy has as a generalised ufunc take `axes`, `axis` and `keepdims` as those do."""
    plain = UFUNCS[original]

    def traced(*args: Any, **options: Any) -> Any:
        return moved(*args, **options) if options else plain(*args)

    def moved(*args: Any, axes: Any = None, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        if axes is None and axis is None and not keepdims:
            return plain(*args, **options)
        if original is not np.vecdot and (axis is not None or keepdims):
            raise TypeError(f"np.{original.__name__} takes axes=, not axis= or keepdims=")
        x, y = (as_value(values(a)) for a in args)
        if axes is None:
            axes = [-1 if axis is None else axis] * 2
        out = plain(Tracer(_last(x, axes[0])), Tracer(_last(y, axes[1])), **options)._get()
        if keepdims:
            out = _placed(reshape_value(out, (*shape_of(out), 1)), axes[2] if len(axes) == 3 else axes[0])
        elif len(axes) == 3:
            out = _placed(out, axes[2])
        return Tracer(out)

    def function(*args: Any, **kwargs: Any) -> Any:
        return traced(*args, **kwargs) if any(isinstance(a, Tracer) for a in args) else original(*args, **kwargs)

    function.__name__, function.__doc__ = original.__name__, f"NumPy's `{original.__name__}`, on traced arrays too."
    UFUNCS[original] = traced
    namespace[original.__name__] = function


for _original, _function in {np.vecdot: vecdot, np.matvec: matvec, np.vecmat: vecmat}.items():
    implements(_original)(_function)
for _original in present([np.vecdot, np.matvec, np.vecmat, np.matmul]):
    _with_axes(_original)


def _aligned(name: str, a: Any, i: int, b: Any, j: int) -> None:
    xs, ys = shape_of(a), shape_of(b)
    if xs[i] != ys[j]:
        raise ValueError(f"{name}: shapes {xs} and {ys} not aligned: {xs[i]} (dim {i}) != {ys[j]} (dim {j})")


@implements(np.dot, method="dot")
def dot(a: Any, b: Any) -> Any:
    a, b = as_value(a), as_value(b)
    if not shape_of(a) or not shape_of(b):
        return ops.mul(a, b)
    last, second = len(shape_of(a)) - 1, max(len(shape_of(b)) - 2, 0)
    _aligned("dot", a, last, b, second)
    return contract(a, b, contract=((last,), (second,)), batch=_NONE)


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    a, b = (reshape_value(x, (type_of(x).size,)) for x in (as_value(a), as_value(b)))
    _aligned("vdot", a, 0, b, 0)
    return contract(ops.conjugate(a), b, contract=((0,), (0,)), batch=_NONE)


@implements(np.inner)
def inner(a: Any, b: Any) -> Any:
    a, b = as_value(a), as_value(b)
    if not shape_of(a) or not shape_of(b):
        return ops.mul(a, b)
    i, j = len(shape_of(a)) - 1, len(shape_of(b)) - 1
    _aligned("inner", a, i, b, j)
    return contract(a, b, contract=((i,), (j,)), batch=_NONE)


@implements(np.outer)
def outer(a: Any, b: Any) -> Any:
    a, b = (reshape_value(x, (type_of(x).size,)) for x in (as_value(a), as_value(b)))
    return contract(a, b, contract=_NONE, batch=_NONE)


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = as_value(a), as_value(b)
    m, n = len(shape_of(a)), len(shape_of(b))
    if not isinstance(axes, (list, tuple, np.ndarray)):
        count = int(axes)
        if count > min(m, n):
            raise ValueError(f"tensordot: shapes {shape_of(a)} and {shape_of(b)} don't both have {count} axes to sum")
        pairs = (tuple(range(m - count, m)), tuple(range(count)))
    else:
        first, second = ((ax,) if np.ndim(ax) == 0 else tuple(ax) for ax in axes)
        pairs = (tuple(normalize_axis(i, m) for i in first), tuple(normalize_axis(i, n) for i in second))
    if len(pairs[0]) != len(pairs[1]) or any(
        shape_of(a)[i] != shape_of(b)[j] for i, j in zip(*pairs, strict=True)
    ):  # fmt: skip
        raise ValueError(
            f"tensordot: shape-mismatch for sum: axes {list(pairs[0])} of shape {shape_of(a)} and axes "
            f"{list(pairs[1])} of shape {shape_of(b)}"
        )
    for side, shape in zip(pairs, (shape_of(a), shape_of(b)), strict=True):
        if len(set(side)) != len(side):
            raise ValueError(f"tensordot: an axis of shape {shape} stands twice in {list(side)}")
    return contract(a, b, contract=pairs, batch=_NONE)


@implements(np.kron)
def kron(a: Any, b: Any) -> Any:
    a, b = as_value(a), as_value(b)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    xs, ys = ((1,) * (rank - len(shape_of(x))) + shape_of(x) for x in (a, b))
    out = contract(reshape_value(a, xs), reshape_value(b, ys), contract=_NONE, batch=_NONE)
    out = transpose_value(out, tuple(i for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for i in pair))
    return reshape_value(out, tuple(m * n for m, n in zip(xs, ys, strict=True)))


@implements(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = as_value(a), as_value(b)
    if not shape_of(a) or not shape_of(b):
        raise ValueError("At least one array has zero dimension")
    a, b = _last(a, axisa), _last(b, axisb)
    if not {shape_of(a)[-1], shape_of(b)[-1]} <= {2, 3}:
        raise ValueError(
            f"incompatible dimensions for cross product (dimension must be 2 or 3), got shapes {shape_of(a)} and "
            f"{shape_of(b)}"
        )
    dtype = promote(type_of(a), type_of(b))[0]
    (a0, a1, *a2), (b0, b1, *b2) = (
        [take_index(x, len(shape_of(x)) - 1, i) for i in range(shape_of(x)[-1])]
        for x in (v if type_of(v).dtype == dtype else convert(v, dtype=dtype) for v in (a, b))
    )
    last = ops.sub(ops.mul(a0, b1), ops.mul(a1, b0))
    if not a2 and not b2:  # vectors in the plane: a number each
        return last
    if not a2:
        first, second = ops.mul(a1, b2[0]), ops.neg(ops.mul(a0, b2[0]))
    elif not b2:
        first, second = ops.neg(ops.mul(a2[0], b1)), ops.mul(a2[0], b0)
    else:
        first = ops.sub(ops.mul(a1, b2[0]), ops.mul(a2[0], b1))
        second = ops.sub(ops.mul(a2[0], b0), ops.mul(a0, b2[0]))
    return stack([first, second, last], normalize_axis(axisc, len(shape_of(last)) + 1))
