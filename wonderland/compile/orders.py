"""The order of axes in memory that values are computed in.

What a function is called with has NumPy's order, and so do its results. What is between, the compiler may arrange: a
product of windows has its channels last, and a function of it is computed in that order, too, as NumPy's own functions
keep the order of what they get. Nothing is moved until something wants it otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from wonderland.compile import transposes
from wonderland.compile.nodes import Node, Number
from wonderland.core.program import Program, Var

Order = tuple[int, ...]
LEAST = 4096  # elements from which the order matters
MOVED = 1 << 15  # elements that are rather transposed at once than read across


def inverse(order: Sequence[int]) -> Order:
    """The permutation that brings axes in this order back; of some of the axes, too."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def overlaps(node: Node) -> bool:
    """Does a view show elements several times, otherwise than by repeating all of them along an axis?"""
    reach = 0
    for stride, extent in sorted((abs(s), n) for n, s in zip(node.shape, node.layout[1], strict=True) if s):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def of_memory(node: Node) -> Order | None:
    """The axes of a value, from the farthest apart to the closest in memory; None if it doesn't have an order.

    Axes along which it is repeated are loops around the closest one.
    """
    strides = node.layout[1]
    axes = [i for i, n in enumerate(node.shape) if n != 1 and strides[i]]
    if isinstance(node, Number) or len(axes) < 2 or overlaps(node):
        return None
    far = sorted(axes, key=lambda i: -abs(strides[i]))
    if far == axes:
        return tuple(range(len(strides)))
    repeated = [i for i, n in enumerate(node.shape) if n != 1 and not strides[i]]
    return (*(i for i, n in enumerate(node.shape) if n == 1), *far[:-1], *repeated, far[-1])


def becoming_results(program: Program) -> set[Var]:
    """The variables of which results are elementwise functions: they are wanted in NumPy's order in the end."""
    found = {v for v in program.outputs if isinstance(v, Var)}
    for equation in reversed(program.equations):
        if equation.primitive.elementwise and not found.isdisjoint(equation.outputs):
            shape = equation.outputs[0].type.shape
            found.update(v for v in equation.inputs if isinstance(v, Var) and v.type.shape == shape)
    return found


def chosen(nodes: Sequence[Node], shape: Sequence[int], becomes_result: bool) -> Order:
    """The order to compute a function of values in: that of what was computed, unless what was given outweighs it.

    Of equal weights what was computed wins, as images that pass through layers; unless the function becomes a result,
    as an optimiser's moments.
    """
    plain = tuple(range(len(shape)))
    if len(shape) < 2 or math.prod(shape) < LEAST:
        return plain
    given, votes = 0, Counter[Order]()
    for node in nodes:
        order = of_memory(node)
        size = math.prod(n for n, stride in zip(node.shape, node.layout[1], strict=True) if stride)
        if order == plain and node.base.fixed:
            given += size
        elif order not in (plain, None) and not node.base.fixed:
            votes[order] += size
    best, count = votes.most_common(1)[0] if votes else (plain, 0)
    return best if count > given or (count == given and not becomes_result) else plain


def is_fixed(nodes: Sequence[Node], order: Order) -> bool:
    """Does a function of values have the order of one that was given?"""
    return order == tuple(range(len(order))) and any(n.base.fixed and of_memory(n) is not None for n in nodes)


def in_order(builder: Any, node: Node, order: Order) -> Node:
    """A value with its axes in an order, moved there if it would be read across."""
    node = builder.transpose(node, order)
    if isinstance(node, Number):
        return node
    once = [slice(0, n if stride else 1, 1) for n, stride in zip(node.shape, node.layout[1], strict=True)]
    part = builder.slice(node, once)
    if part.type.size < MOVED or overlaps(part) or transposes.moves(part) is None:
        return node
    copies, key = builder.region.copies, (part.base, part.shape, part.layout)
    if key not in copies:
        copies[key] = builder.copy(part)
    return builder.broadcast(copies[key], node.shape)
