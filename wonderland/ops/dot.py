"""`dot`: any contraction of two arrays, with batch axes. The result's axes: batch, free axes of x, free axes of y.

`contract = (axes of x, axes of y)` are summed over in pairs, `batch = (axes of x, axes of y)` are paired up and kept.
Matrix products, outer products, inner products and einsum of two operands are all this one primitive.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, promote, shape_of
from wonderland.ops.elementwise import conjugate
from wonderland.ops.pattern import blocks
from wonderland.ops.shape import convert, inverse_permutation, transpose
from wonderland.ops.work import Work, count, work

Axes = tuple[tuple[int, ...], tuple[int, ...]]


@cache
def free_axes(rank: int, *used: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that are neither contracted nor batched."""
    taken = {a for axes in used for a in axes}
    return tuple(i for i in range(rank) if i not in taken)


def _infer(x: ArrayType, y: ArrayType, contract: Axes, batch: Axes) -> ArrayType:
    for what, (xs, ys) in (("sum over", contract), ("pair up", batch)):
        for i, j in zip(xs, ys, strict=True):
            if x.shape[i] != y.shape[j]:
                raise ValueError(
                    f"matrix product: can't {what} axis {i} of shape {x.shape} with axis {j} of shape {y.shape}: "
                    f"{x.shape[i]} is not {y.shape[j]}"
                )
    shape = (
        *(x.shape[i] for i in batch[0]),
        *(x.shape[i] for i in free_axes(x.ndim, contract[0], batch[0])),
        *(y.shape[i] for i in free_axes(y.ndim, contract[1], batch[1])),
    )
    return ArrayType(shape, promote(x, y)[0])


def _evaluate(x: Any, y: Any, contract: Axes, batch: Axes) -> Any:
    if type(x) is not np.ndarray or type(y) is not np.ndarray:
        x, y = np.asarray(x), np.asarray(y)
    if not batch[0] and len(contract[0]) == 1 and x.ndim <= 2 and y.ndim <= 2:
        a = x.T if contract[0][0] == 0 else x  # which is itself for a vector
        b = y.T if contract[1][0] == 1 else y
        return np.matmul(a, b)
    x_free, y_free = free_axes(x.ndim, contract[0], batch[0]), free_axes(y.ndim, contract[1], batch[1])
    head = tuple(x.shape[i] for i in batch[0])
    x_shape, y_shape = tuple(x.shape[i] for i in x_free), tuple(y.shape[i] for i in y_free)
    if not contract[0]:  # nothing to sum: no matrix product, which is slow for many tiny matrices
        a = x.transpose(batch[0] + x_free).reshape(head + x_shape + (1,) * len(y_free))
        b = y.transpose(batch[1] + y_free).reshape(head + (1,) * len(x_free) + y_shape)
        return np.multiply(a, b)
    for i, operand in enumerate((x, y)):
        if operand.nbytes > _LARGE and _sees_twice(operand):
            return _in_parts((x, y), i, contract, batch)
    m, n, k = math.prod(x_shape), math.prod(y_shape), math.prod(x.shape[i] for i in contract[0])
    a = x.transpose(batch[0] + x_free + contract[0]).reshape((*head, m, k))
    b = y.transpose(batch[1] + contract[1] + y_free).reshape((*head, k, n))
    out = np.matmul(a, b)
    shape = head + x_shape + y_shape
    if out.shape != shape:
        out = out.reshape(shape)
    return out if shape else out[()]


_LARGE = 1 << 26  # bytes


def _sees_twice(x: np.ndarray) -> bool:
    """Does an array show elements of its memory several times, as windows do?"""
    return x.nbytes > x.itemsize + sum((n - 1) * abs(s) for n, s in zip(x.shape, x.strides, strict=True))


def _in_parts(operands: tuple, which: int, contract: Axes, batch: Axes) -> Any:
    """The same, in parts along an axis of one operand: products copy windows, which take many times the memory."""
    large = operands[which]
    axis = int(np.argmax(large.shape))
    step = max(large.shape[axis] * _LARGE // large.nbytes, 1)
    paired = next((pair for pair in (contract, batch) if axis in pair[which]), None)
    cuts = {which: axis}  # operand -> axis
    if paired is not None:
        cuts = {i: axes[paired[which].index(axis)] for i, axes in enumerate(paired)}

    def part(start: int) -> Any:
        piece = slice(start, start + step)
        cut = (a[(slice(None),) * cuts[i] + (piece,)] if i in cuts else a for i, a in enumerate(operands))
        return _evaluate(*cut, contract=contract, batch=batch)

    parts = map(part, range(0, large.shape[axis], step))
    if paired is contract:
        return sum(parts)
    lead, free = len(batch[0]), [free_axes(a.ndim, contract[i], batch[i]) for i, a in enumerate(operands)]
    place = batch[which].index(axis) if paired is batch else lead + which * len(free[0]) + free[which].index(axis)
    return np.concatenate(list(parts), place)


@cache
def _transposed_axes(rank_x: int, rank_y: int, contract: Axes, batch: Axes, of_x: bool) -> tuple[Axes, Axes, Any]:
    """The contraction that gives a cotangent: what to sum over, what to pair up, and how to reorder what comes out.

    For x it is that of the cotangent with y; for y that of x with the cotangent, whose result has y's order of axes as
    often as not, so that nothing is moved.
    """
    n_batch = len(batch[0])
    x_free, y_free = free_axes(rank_x, contract[0], batch[0]), free_axes(rank_y, contract[1], batch[1])
    ct_batch = tuple(range(n_batch))
    ct_x = tuple(range(n_batch, n_batch + len(x_free)))
    ct_y = tuple(range(n_batch + len(x_free), n_batch + len(x_free) + len(y_free)))
    if of_x:  # result: batch, free axes of x, then the contracted axes in the order in which y has them
        summed, paired = (ct_y, y_free), (ct_batch, batch[1])
        order = (*batch[0], *x_free, *(i for _, i in sorted(zip(contract[1], contract[0], strict=True))))
    else:  # result: batch, the contracted axes in the order in which x has them, then the free axes of y
        summed, paired = (x_free, ct_x), (batch[0], ct_batch)
        order = (*batch[1], *(j for _, j in sorted(zip(contract[0], contract[1], strict=True))), *y_free)
    back = inverse_permutation(order) if order != tuple(range(len(order))) else None
    return summed, paired, back


def _transpose_rule(ct: Any, x: Any, y: Any, contract: Axes, batch: Axes) -> tuple:
    of_x = isinstance(x, Linear)
    summed, paired, back = _transposed_axes(len(x.shape), len(y.shape), contract, batch, of_x)
    goal = x if of_x else y
    factors = (ct, conjugate(y)) if of_x else (conjugate(x), ct)
    out = dot(*factors, contract=summed, batch=paired)
    out = out if back is None else transpose(out, permutation=back)
    out = out if out.dtype is goal.dtype else convert(out, dtype=goal.dtype)
    return (out, None) if of_x else (None, out)


def _batch_rule(size: int, args: tuple, batched: tuple, contract: Axes, batch: Axes) -> Any:
    x, y = args
    shifted = tuple(
        tuple(tuple(a + b for a in axes) for axes, b in zip(pair, batched, strict=True)) for pair in (contract, batch)
    )
    if all(batched):
        (bx, by) = shifted[1]
        return dot(x, y, contract=shifted[0], batch=((0, *bx), (0, *by)))
    out = dot(x, y, contract=shifted[0], batch=shifted[1])
    # The batch axis is the first free axis of the batched operand; bring it to the front.
    n_batch = len(batch[0])
    at = n_batch if batched[0] else n_batch + len(free_axes(len(shape_of(x)), shifted[0][0], shifted[1][0]))
    rank = len(shape_of(out))
    order = (at, *(i for i in range(rank) if i != at))
    return transpose(out, permutation=order) if at else out


def _pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    x, y = types
    contract, batch = params["contract"], params["batch"]
    x_free, y_free = free_axes(x.ndim, contract[0], batch[0]), free_axes(y.ndim, contract[1], batch[1])
    extents = [[t.shape[i] for i in axes] for t, axes in ((x, batch[0]), (x, x_free), (y, y_free), (x, contract[0]))]
    b, m, n, k = map(math.prod, extents)
    of_x, of_y = (
        lambda a: a.transpose(batch[0] + x_free + contract[0]).reshape(b, m, k),
        lambda a: a.transpose(batch[1] + y_free + contract[1]).reshape(b, n, k),
    )
    outs = np.arange(b * m * n).reshape(b, m, n)
    return [
        _factor_pattern(outs, of_x(np.arange(x.size).reshape(x.shape)), y, of_y),
        _factor_pattern(outs.transpose(0, 2, 1), of_y(np.arange(y.size).reshape(y.shape)), x, of_x),
    ]


def _factor_pattern(outs: np.ndarray, own: np.ndarray, other: Any, arranged: Any) -> tuple:
    """What outputs (b, m, n) read of a factor whose elements are numbered (b, m, k), the other one being (b, n, k)."""
    factor = arranged(np.not_equal(other, 0)) if isinstance(other, np.ndarray) else None
    if factor is None or factor.all():
        b, m, n = outs.shape
        return blocks(outs.reshape(b * m, n), own.reshape(b * m, own.shape[-1]))
    part, column, term = np.nonzero(factor)
    return outs[part, :, column].ravel(), own[part, :, term].ravel()


def _cost(types: tuple, outs: tuple, params: dict) -> Work:
    terms = math.prod(types[0].shape[i] for i in params["contract"][0])
    return work(outs[0], count(outs[0]) * terms, count(outs[0]) * max(terms - 1, 0))


dot: Primitive = Primitive(
    "dot",
    _evaluate,
    _infer,
    balanced=True,
    transpose=_transpose_rule,
    batch=_batch_rule,
    pattern=_pattern,
    lower=lambda builder, x, y, contract, batch: builder.dot(x, y, contract, batch),
    bilinear=True,
    cost=_cost,
)
