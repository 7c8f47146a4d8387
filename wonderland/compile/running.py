"""Values that run along a row: the part of a loop nest that carries them from element to element.

In row mode such a value is a register carried around the loop; in column mode, where a block of rows is swept together,
it is a small array on the stack.
"""

from __future__ import annotations

from typing import Any

from wonderland.compile.emitter import Emitter, Scalar, memory_kind
from wonderland.compile.loops import I64, Scope
from wonderland.compile.nodes import Cumulative
from wonderland.compile.scalars import literal, named


class Running:
    """The running values of one sweep: each one's name before an element, and its value there."""

    def __init__(self, nest: Any):
        self.nest = nest
        self.found: dict[Cumulative, tuple[str, Scalar]] = {}

    @staticmethod
    def _place(e: Emitter, node: Cumulative, name: str, index: str) -> str:
        return e.let(f"getelementptr inbounds {memory_kind(node.dtype)}, ptr {name}, i64 {index}", I64).text

    def step(self, node: Cumulative, body: Scope) -> Scalar:
        """The value at an element, from the one before."""
        nest = self.nest
        scalars = [nest.operand(o, False, body) for o in node.operands]
        name, e = f"%{nest.fresh('r')}", nest.at(body)
        if nest.column:
            pointer = self._place(e, node, name, body.chain[-1].index)
            value = node.emit(e, e.load(pointer, node.dtype), *scalars)
            e.store(value, pointer, node.dtype)
        else:
            value = node.emit(e, named(name, node.dtype), *scalars)
        value = value.rounded()  # as the next element sees it
        self.found[node] = (name, value)
        return value

    def start(self, row: Scope, width: int) -> None:
        """Column mode, before the sweep: the arrays of a block of columns."""
        nest = self.nest
        init = nest.inner(row)
        for node, (name, _) in self.found.items():
            nest.allocas.append(f"  {name} = alloca {memory_kind(node.dtype)}, i64 {width}, align 64")
            e = nest.at(init)
            pointer = self._place(e, node, name, init.index)
            e.store(literal(node.start, node.dtype), pointer, node.dtype)
        nest.close(init)

    def carried(self, depth: int, innermost: bool) -> list[tuple[str, str, str, str]]:
        """Row mode: what goes around the loop at this depth of the sweep; an inner loop goes on where it is."""
        out = []
        for node, (name, value) in self.found.items():
            before = literal(node.start, node.dtype) if depth == 1 else named(f"{name}.{depth - 1}", node.dtype)
            now = named(name if innermost else f"{name}.{depth}", node.dtype)
            for part, start, following in zip(now.parts, before.parts, value.parts, strict=True):
                out.append((part.text, part.kind, start.text, following.text))
        return out
