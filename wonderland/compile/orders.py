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

Order = tuple[int, ...]
LEAST = 4096  # elements from which the order matters
MOVED = 1 << 15  # elements that are rather transposed at once than read across


def inverse(order: Sequence[int]) -> Order:
    """The permutation that undoes this one."""
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
    """The axes of a value, from the farthest apart to the closest in memory; None if it has elements several times."""
    strides = node.layout[1]
    axes = [i for i, n in enumerate(node.shape) if n != 1]
    if isinstance(node, Number) or any(strides[i] == 0 for i in axes) or overlaps(node):
        return None
    far = sorted(axes, key=lambda i: -abs(strides[i]))
    if far == axes:
        return tuple(range(len(strides)))
    return (*(i for i, n in enumerate(node.shape) if n == 1), *far)


def chosen(nodes: Sequence[Node], shape: Sequence[int]) -> Order:
    """The order to compute a function of values in: that of what was computed, unless what was given outweighs it."""
    plain = tuple(range(len(shape)))
    if len(shape) < 2 or math.prod(shape) < LEAST:
        return plain
    given, votes = 0, Counter[Order]()
    for node in nodes:
        order = of_memory(node) if node.shape == tuple(shape) else None
        if order == plain:
            given += node.base.fixed
        elif order is not None and not node.base.fixed:
            votes[order] += 1
    best, count = votes.most_common(1)[0] if votes else (plain, 0)
    return best if count > given else plain


def is_fixed(nodes: Sequence[Node], shape: Sequence[int]) -> bool:
    """Does a function of values have the order of one that was given?"""
    return any(node.base.fixed for node in nodes if node.shape == tuple(shape))


def in_order(builder: Any, node: Node, order: Order) -> Node:
    """A value with its axes in an order, moved there if it would be read across."""
    node = builder.transpose(node, order)
    if math.prod(node.shape) < MOVED or transposes.moves(node) is None:
        return node
    copies = builder.region.copies
    key = (node.base, node.shape, node.layout)
    if key not in copies:
        copies[key] = builder.copy(node)
    return copies[key]
