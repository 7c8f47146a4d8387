"""Small results of large values that are made out of nothing: a map comes in, the same over another shape goes out.

Random bits are computed over blocks and their words, which for those who use them is another shape of the same memory:
they can't share a loop. A mask made of them, one byte for eight, is therefore computed where the bits are, and only the
mask has memory. It is what dropout keeps for the backward pass.
"""

from __future__ import annotations

from typing import Any

from wonderland.compile.members import Map
from wonderland.compile.nodes import Index, Node, Number
from wonderland.core.types import ArrayType

MOST_LINKS = 8  # maps between a value and what is made of it


def narrowed(builder: Any, node: Map) -> Node:
    """A new map; or its value as a view of one over the shape of the larger value that it is made of."""
    chain, source = [node], _only_array(node)
    while isinstance(source, Map) and not _is_out_of_nothing(source) and len(chain) < MOST_LINKS:
        chain.append(source)
        source = _only_array(source)
    if source is None or source.base is source or not _is_out_of_nothing(source.base):
        return builder.keep(node)
    made, in_order = source.base, Node(source.type).layout
    larger = made.dtype.itemsize > node.dtype.itemsize
    if not larger or source.layout != in_order or any(link.is_costly or link.can_fail for link in chain):
        return builder.keep(node)
    value: Any = made
    for link in reversed(chain):
        operands = [_spread(builder, o, made) if _is_number(o) else value for o in link.operands]
        value = builder.keep(Map(ArrayType(made.shape, link.dtype), link.function, operands, link.cost))
        value.origin = link.origin
    return builder.view(value, node.shape, *in_order)


def _is_number(operand: Node) -> bool:
    """Is it the same everywhere?"""
    return (isinstance(operand, Number) and not isinstance(operand, Index)) or operand.base.type.size == 1


def _spread(builder: Any, number: Node, like: Node) -> Node:
    return builder.view(number, like.shape, number.layout[0], (0,) * len(like.shape))


def _only_array(node: Map) -> Node | None:
    """The one operand that isn't a number, if there is only one."""
    arrays = {(id(o.base), o.layout): o for o in node.operands if not _is_number(o)}
    return next(iter(arrays.values())) if len(arrays) == 1 else None


def _is_out_of_nothing(node: Node) -> bool:
    """Is it made of places and a few numbers in memory, so that no loop over an array is there to join?"""
    return isinstance(node, Map) and bool(node.operands) and all(
        isinstance(o, Number) or not any(o.layout[1]) for o in node.operands
    )  # fmt: skip
