"""Lowering of contractions: two arrays and the axes to sum over come in; a product by GEMM, or a map and a sum, go out.

Operands are views, in which windows overlap as they please. GEMM reads a matrix with two strides as it lies. An operand
whose rows or steps are several axes that don't make one, as those of windows on an image, is read at *places*: the sum
of the place of a row and the place of a step, which is how strided arrays are. So a convolution is a product, and
nothing is copied for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.compile import taps, winograd
from wonderland.compile.gemm import MOST_AXES
from wonderland.compile.nodes import Node, Number, contiguous_strides, joined_axes
from wonderland.compile.orders import inverse, of_memory, overlaps
from wonderland.compile.products import Contract
from wonderland.core.types import ArrayType, promote
from wonderland.ops.dot import free_axes

SMALL_PRODUCT, SMALL_VECTOR = 64, 8192  # multiply-adds; measured against GEMM
FEW_TERMS = 64  # of sums that are written out, so that they stay in registers
NARROW = 2  # columns up to which windows are rather summed up in a loop than by tiles of a dozen

Axes = tuple[tuple[int, ...], tuple[int, ...]]


def lower(builder: Any, x: Node, y: Node, contract: Axes, batch: Axes) -> Node:
    """A contraction of two arrays; small ones become a product and a sum, others a call of GEMM."""
    dtype = promote(x.type, y.type)[0]
    x, y = builder.convert(x, dtype), builder.convert(y, dtype)
    if _is_better_first(y, contract[1], batch[1]) and not _is_better_first(x, contract[0], batch[0]):
        made = _lower(builder, y, x, (contract[1], contract[0]), (batch[1], batch[0]))
        rows, columns = (len(n.shape) - len(contract[0]) - len(batch[0]) for n in (y, x))
        made = _exchanged(builder, made, len(batch[0]), rows, columns)
    else:
        made = _lower(builder, x, y, contract, batch)
    made.base.product = (x, y, contract, batch, made.layout)
    return made


def _is_better_first(y: Node, contract: Sequence[int], batch: Sequence[int]) -> bool:
    """Does it have an order of its own, with what is contracted innermost, as the channels of images?

    The result then has the same order, if its own axes are the rows of the product.
    """
    order = of_memory(y)
    if order is None or order == tuple(range(len(order))) or y.base.fixed:
        return False
    return order[-1] in contract and len(free_axes(len(y.shape), contract, batch)) > 1


def _lower(builder: Any, x: Node, y: Node, contract: Axes, batch: Axes) -> Node:
    dtype = x.dtype
    free = [free_axes(len(n.shape), *used) for n, *used in zip((x, y), contract, batch, strict=True)]
    outer, inner = [x.shape[i] for i in batch[0]], [x.shape[i] for i in contract[0]]
    rows, columns = [x.shape[i] for i in free[0]], [y.shape[i] for i in free[1]]
    shape = (*outer, *rows, *columns)
    m, n, k = math.prod(rows), math.prod(columns), math.prod(inner)
    if 0 in shape or k == 0:
        return Number(ArrayType(shape, dtype), np.zeros((), dtype)[()])
    x = builder.transpose(x, (*batch[0], *free[0], *contract[0]))
    y = builder.transpose(y, (*batch[1], *free[1], *contract[1]))
    ranks = len(outer), len(rows), len(columns)
    real = dtype.kind == "f"
    if _is_small(m, n, k) or not (real or (dtype.kind == "c" and min(m, n) > 1)):
        return _by_loops(builder, x, y, *ranks)
    by_places = _by_places(builder, x, y, *ranks) if real else None
    if by_places is not None:
        return by_places
    if real and min(m, n) <= NARROW and (overlaps(x) or overlaps(y)):
        return _by_loops(builder, x, y, *ranks)
    x, y = builder.solid(x), builder.solid(y)
    in_blocks = _in_blocks(builder, x, y, *ranks) if real else None
    if in_blocks is not None:
        return in_blocks
    x, y = builder.reshape(x, (*outer, m, k)), builder.reshape(y, (*outer, n, k))
    return (_gemm if real else _complex_gemm)(builder, x, y, ArrayType(shape, dtype))


# -- products of matrices -----------------------------------------------------------------------------


def _gemm(builder: Any, x: Node, y: Node, type: ArrayType) -> Node:
    """A product of x, of shape (batch..., m, k), and y, of shape (batch..., n, k)."""
    *batch, m, k = x.shape
    sizes = (tuple(batch), m, y.shape[-2], k)
    return builder.keep(Contract(type, x.base, y.base, sizes, _flat_layout(x), _flat_layout(y)))


def _flat_layout(x: Node) -> tuple[int, ...]:
    """The offset, then the strides."""
    offset, strides = x.layout
    return offset, *strides


def _exchanged(builder: Any, made: Node, b: int, r: int, c: int) -> Node:
    """A product (batch..., rows..., columns...) with its columns before its rows."""
    return builder.transpose(made, (*range(b), *range(b + r, b + r + c), *range(b, b + r)))


def _in_blocks(builder: Any, x: Node, y: Node, b: int, r: int, c: int) -> Node | None:
    """Rows that lie in blocks, as the pixels of each of many images: a product for each block, as wide as it is."""
    swapped = len(_axes(x, b, b + r)) < 2
    if swapped:
        x, y, r, c = y, x, c, r
    rows, columns = _axes(x, b, b + r), _axes(y, b, b + c)
    if len(rows) != 2 or rows[1][1] != 1 or len(columns) > 1 or min(rows[1][0], *(n for n, _ in columns), 8) < 8:
        return None
    if max(len(_axes(x, b + r, len(x.shape))), len(_axes(y, b + c, len(y.shape)))) > 1:
        return None
    outer, inner = x.shape[:b], math.prod(x.shape[b + r :])
    shape = (*x.shape[b : b + r], *y.shape[b : b + c])
    x = builder.reshape(x, (*outer, rows[0][0], rows[1][0], inner))
    y = builder.reshape(y, (*outer, 1, math.prod(y.shape[b : b + c]), inner))
    y = builder.broadcast(y, (*outer, rows[0][0], *y.shape[-2:]))
    made = _gemm(builder, y, x, ArrayType((*outer, rows[0][0], y.shape[-2], rows[1][0]), x.dtype))
    made = builder.transpose(made, (*range(b + 1), b + 2, b + 1))
    made = builder.reshape(made, (*outer, *shape))
    return _exchanged(builder, made, b, r, c) if swapped else made


def _by_places(builder: Any, x: Node, y: Node, b: int, r: int, c: int) -> Node | None:
    """A product of an operand that is read at places; None if it is no better than a copy, or can't be."""
    windows = [_is_windows(node, b, free) for node, free in ((x, r), (y, c))]
    if not any(windows):
        return None
    swapped = not windows[0]
    if swapped:
        x, y, r, c = y, x, c, r
    outer, rows, columns = x.shape[:b], x.shape[b : b + r], y.shape[b : b + c]
    if math.prod(columns) <= NARROW and (math.prod(x.shape[b + r :]) <= FEW_TERMS or math.prod(rows) <= FEW_TERMS):
        return None
    by_transforms = winograd.lower(builder, x, builder.solid(y), r) if not b and c == 1 else None
    if by_transforms is not None:
        return _exchanged(builder, by_transforms, b, r, c) if swapped else by_transforms
    x, y = _in_order_of(builder, x, b + r, y, b + c)
    row_axes, step_axes = _axes(x, b, b + r), _axes(x, b + r, len(x.shape))
    if max(len(row_axes), len(step_axes)) > MOST_AXES:
        return None
    y = _as_matrix(builder, y, b, c)
    m, n, k = math.prod(rows), math.prod(columns), y.shape[-1]
    type = ArrayType((*outer, *rows, *columns), x.dtype)
    layouts = (*_flat_layout(x)[: b + 1], 0, 0), _flat_layout(y)
    made = builder.keep(Contract(type, x.base, y.base, (outer, m, n, k), *layouts, places=(row_axes, step_axes)))
    return _exchanged(builder, made, b, r, c) if swapped else made


def _is_windows(x: Node, b: int, r: int) -> bool:
    """Is it a view on windows: of overlapping parts, and no matrix with two strides?"""
    return overlaps(x) and max(len(_axes(x, b, b + r)), len(_axes(x, b + r, len(x.shape)))) > 1


def _axes(x: Node, start: int, stop: int) -> list[tuple[int, ...]]:
    """Axes of a view as (extent, stride), adjacent ones that are walked as one joined."""
    return joined_axes(x.shape[start:stop], x.layout[1][start:stop])


def _in_order_of(builder: Any, x: Node, x_start: int, y: Node, y_start: int) -> tuple[Node, Node]:
    """The contracted axes, in the order in which y has them in memory, so that it needn't be copied."""
    strides = y.layout[1][y_start:]
    order = sorted(range(len(strides)), key=lambda i: -abs(strides[i]))

    def arranged(node: Node, start: int) -> Node:
        return builder.transpose(node, (*range(start), *(start + i for i in order)))

    return arranged(x, x_start), arranged(y, y_start)


def _as_matrix(builder: Any, y: Node, b: int, c: int) -> Node:
    """(batch..., n, k), of two strides: where it lies, or a copy with the columns next to each other."""
    y = builder.solid(y)
    if max(len(_axes(y, b, b + c)), len(_axes(y, b + c, len(y.shape)))) > 1:
        rank = len(y.shape)
        order = (*range(b), *range(b + c, rank), *range(b, b + c))
        y = builder.copy(builder.transpose(y, order))
        y = builder.transpose(y, (*range(b), *range(rank - c, rank), *range(b, rank - c)))
    return builder.reshape(y, (*y.shape[:b], math.prod(y.shape[b : b + c]), math.prod(y.shape[b + c :])))


def _complex_gemm(builder: Any, x: Node, y: Node, type: ArrayType) -> Node:
    """One product of real matrices: the pairs of x are a row of twice the length, y has a row i y below each row.

    (a + i b) y = a y + b (i y), and the pairs of the rows of y are twice the columns, as they are in the result.
    """
    *outer, n, k = y.shape
    if k > 1 and x.layout[1][-1] != 1:
        x = builder.copy(x)
    order = (*range(len(outer)), len(outer) + 1, len(outer))
    rows = builder.reshape(builder.transpose(y, order), (*outer, k, 1, n))
    turned = builder.map(_turned_if, [builder.constant(np.array([[False], [True]])), rows], type.dtype)
    y = builder.memory(turned)
    offset, strides = x.layout
    x_strides = (*(2 * s for s in (offset, *strides[:-1])), 1)
    y_strides = (0, *(2 * s for s in contiguous_strides(y.shape)[:-3]), 1, 2 * n)
    return builder.keep(Contract(type, x.base, y, (tuple(outer), x.shape[-2], 2 * n, 2 * k), x_strides, y_strides))


def _turned_if(e: Any, turn: Any, z: Any) -> Any:
    """i z if turn, else z."""
    return e.select(turn, e.complex(e.neg(e.imag(z)), e.real(z)), z)


# -- a map and a sum ----------------------------------------------------------------------------------


def _by_loops(builder: Any, x: Node, y: Node, b: int, r: int, c: int) -> Node:
    """The sum of products of x, of shape (batch..., rows..., summed...), and y, (batch..., columns..., summed...)."""
    outer, rows, columns, inner = x.shape[:b], x.shape[b : b + r], y.shape[b : b + c], x.shape[b + r :]
    by_rows, windowed = _inner_is_contracted(y, b, c), overlaps(x) or overlaps(y)
    x = builder.reshape(x, (*outer, *rows, *([1] * c), *inner))
    y = builder.reshape(y, (*outer, *([1] * r), *columns, *inner))
    if windowed:
        return _summed_windows(builder, *((x, y) if overlaps(x) else (y, x)), b + r + c)
    if not by_rows:  # sum over the axes before the columns: the loop over columns is the inner one
        order = (*range(b + r), *range(b + r + c, b + r + c + len(inner)), *range(b + r, b + r + c))
        x, y = builder.transpose(x, order), builder.transpose(y, order)
    start = b + r + c if by_rows else b + r
    product = builder.map(_multiplied, [x, y], x.dtype)
    return builder.reduce(product, tuple(range(start, start + len(inner))), "add") if inner else product


def _is_small(m: int, n: int, k: int) -> bool:
    """Is a product better off as a map and a sum: done before a call is, or nothing but a map or a sum?"""
    return m * n * k <= (SMALL_VECTOR if m == 1 or n == 1 else SMALL_PRODUCT) or m == n == 1 or k == 1


def _inner_is_contracted(y: Node, b: int, c: int) -> bool:
    """Should the loop over the contracted axes be innermost? When the columns of y aren't contiguous in memory."""
    if c == 0 or not y.in_memory or math.prod(y.shape[b : b + c]) == 1:
        return True
    last = b + c - 1
    return math.prod(y.shape[b + c :]) != 1 and (y.shape[last] == 1 or abs(y.layout[1][last]) > 1)


def _multiplied(e: Any, x: Any, y: Any) -> Any:
    return e.mul(x, y)


def _summed_windows(builder: Any, x: Node, y: Node, start: int) -> Node:
    """The sum of x * y over the axes from `start` on, in the order in which the windows x lie in memory."""
    shape = np.broadcast_shapes(x.shape, y.shape)  # y has columns, too, if there are several for each channel
    if y.in_memory:
        by_taps = taps.lower(builder, builder.broadcast(x, shape), builder.broadcast(y, shape), start)
        if by_taps is not None:
            return by_taps
    rank, strides = len(x.shape), x.layout[1]
    far = sorted(range(rank), key=lambda i: -abs(strides[i]) if x.shape[i] != 1 else 0)
    order = [i for i in far if i < start]
    if math.prod(x.shape[start:]) > FEW_TERMS:
        product = builder.map(_multiplied, [builder.transpose(node, far) for node in (x, y)], x.dtype)
        made = builder.reduce(product, [k for k, i in enumerate(far) if i >= start], "add")
    else:
        x, y = (builder.transpose(node, (*order, *range(start, rank))) for node in (x, y))
        factors = builder.copy(builder.transpose(y, (*range(start, rank), *range(start))))
        places = [*np.ndindex(*x.shape[start:])]
        whole = [slice(0, n, 1) for n in x.shape[:start]]
        read = [builder.slice(x, (*whole, *place)) for place in places]
        weights = [builder.slice(factors, (*place, *(slice(0, n, 1) for n in y.shape[:start]))) for place in places]
        made = builder.map(_sum_of_products, [*read, *weights], x.dtype)
    return builder.transpose(made, inverse(order))


def _sum_of_products(e: Any, *factors: Any) -> Any:
    half = len(factors) // 2
    total = e.mul(factors[0], factors[half])
    for x, y in zip(factors[1:half], factors[half + 1 :], strict=True):
        total = e.add(total, e.mul(x, y))
    return total
