"""Values that run along a row: the part of a loop nest that carries them from element to element.

In row mode such a value is a register carried around the loop; in column mode, where a block of rows is swept together,
it is a small array on the stack.
"""

from __future__ import annotations

from typing import Any

from wonderland.compile import ir
from wonderland.compile.emitter import Scalar, memory_type
from wonderland.compile.loops import Scope
from wonderland.compile.scalars import literal, named


class Running:
    """The running values of one sweep: each one's name before an element or its array, and its value there."""

    def __init__(self, values: Any):
        self.values = values
        self.found: dict[Any, tuple[str | ir.Value, Scalar]] = {}

    def step(self, node: Any, body: Scope) -> Scalar:
        """The value at an element, from the one before."""
        values, loops = self.values, self.values.loops
        scalars = [values.operand(o, False, body) for o in node.operands]
        if values.nest.column:
            width = min(values.nest.extents[-1], values.nest.block)
            array = loops.f.stack(memory_type(node.dtype), width, align=64)
            pointer = loops.element(array, node.dtype, body.chain[-1].index, body)
            e = loops.at(body)
            value = node.function(e, e.load(pointer, node.dtype), *scalars)
            e.store(value, pointer, node.dtype)
            name = array
        else:
            name = f"%{loops.f.fresh('r')}"
            value = node.function(loops.at(body), named(name, node.dtype, loops.e), *scalars)
        value = value.rounded()  # as the next element sees it
        self.found[node] = (name, value)
        return value

    def start(self, init: Scope) -> None:
        """Column mode, before the sweep: the arrays of a block of columns."""
        for node, (array, _) in self.found.items():
            loops = self.values.loops
            pointer = loops.element(array, node.dtype, init.index, init)
            loops.at(init).store(literal(node.start, node.dtype), pointer, node.dtype)

    def carried(self, depth: int, innermost: bool) -> list[tuple[Scalar, Scalar, Scalar]]:
        """Row mode: what goes around the loop at this depth of the sweep; an inner loop goes on where it is."""
        out = []
        for node, (name, value) in self.found.items():
            before = literal(node.start, node.dtype) if depth == 1 else named(f"{name}.{depth - 1}", node.dtype)
            now = named(f"{name}" if innermost else f"{name}.{depth}", node.dtype)
            out += zip(now.parts, before.parts, value.parts, strict=True)
        return out
