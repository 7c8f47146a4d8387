"""The values of a kernel: a loop nest comes in, each value is computed in the outermost loop that it allows.

A value that runs along a row is a register carried around the loop (row mode); where a block of columns is swept
together, it is a small array on the stack (column mode).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wonderland.compile import ir
from wonderland.compile.emitter import Scalar, memory_type
from wonderland.compile.loops import I64, ZERO, Access, Loops, Scope
from wonderland.compile.members import Member
from wonderland.compile.nodes import Index, Node, Number
from wonderland.compile.scalars import literal, named

if TYPE_CHECKING:
    from wonderland.compile.nest import Nest


class Values:
    """Where each value of a kernel is: computed already, in memory, in an array on the stack, or to be computed."""

    def __init__(self, nest: Nest, loops: Loops):
        self.nest: Nest = nest
        self.loops: Loops = loops
        self.slots: dict[Node, ir.Value] = {}  # arrays on the stack: sums of columns, row values, kept rows
        self.available: set[Node] = set()  # in memory, since an earlier sweep
        self.running: Running = Running(self)
        loops.e.report = self._require

    def is_row(self, node: Node) -> bool:
        """Has it a value for each row?"""
        return self.nest.cluster.roles.get(node) == "row"

    def operand(self, operand: Node, row: bool, scope: Scope) -> Scalar:
        """An operand of a member at its place."""
        if isinstance(operand, Index):
            access = self.nest.reads[operand, row]
            return self.loops.place(access, self.home(access.varies(), scope))
        if isinstance(operand, Number):
            return self.loops.number(operand, row or len(self.nest.extents) - 1 not in scope.dims)
        if self.nest.computes(operand.base):
            return self.member(operand.base, scope)
        access = self.nest.reads[operand, row]
        return self.load(access, self.home(access.varies(), scope), access)

    def home(self, dims: frozenset[int], scope: Scope) -> Scope:
        """The outermost loop around which a value that varies with these loops may be computed."""
        return next(s for s in scope.chain if dims <= s.dims)

    def load(self, access: Access, scope: Scope, key: Any) -> Scalar:
        if key not in scope.memo:
            pointer = self.loops.pointer(access, scope)
            scope.memo[key] = self.loops.at(scope).load(pointer, access.dtype)
        return scope.memo[key]

    def member(self, node: Node, scope: Scope) -> Scalar:
        """The value of a member or cheap scalar; what it needs comes first, without recursion: chains are long."""
        value = self._known(node, scope)
        if value is not None:
            return value
        first = self.home(self.nest.varies(node), scope)
        stack = [(node, first)]
        while stack:
            n, home = stack[-1]
            waiting = [] if n in home.memo else [*self._waiting(n, home)]
            if not waiting:
                stack.pop()
                if n not in home.memo:
                    home.memo[n] = self._computed(n, home)
            stack += reversed(waiting)
        return first.memo[node]

    def _waiting(self, node: Node, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        """The operands that have to be computed first, each with its home."""
        for base in (o.base for o in node.operands):
            if self.nest.computes(base) and self._known(base, scope) is None:
                yield base, self.home(self.nest.varies(base), scope)

    def _known(self, node: Node, scope: Scope) -> Scalar | None:
        """A value that is there already, or in memory."""
        for s in scope.chain:
            if node in s.memo:
                return s.memo[node]
        if node in self.slots and (self.nest.column or node in self.available):
            pointer = self.stack_pointer(node, scope)
            scope.memo[node] = value = self.loops.at(scope).load(pointer, node.dtype)
            return value
        if node in self.available:
            access = self.nest.stores[node]
            return self.load(access, self.home(access.varies(), scope), node)
        return None

    def _computed(self, node: Node, home: Scope) -> Scalar:
        assert isinstance(node, Member)
        value = node.emit(self, home)
        return value.rounded() if node in self.nest.schedule.stored else value  # some read it from memory: so do all

    def stack_array(self, node: Node, count: Scalar) -> None:
        """An array of a row's or a block of columns' values."""
        self.slots[node] = self.loops.f.stack(memory_type(node.dtype), count, align=64)

    def stack_pointer(self, node: Node, scope: Scope) -> ir.Value:
        """The place of a column's or a kept row's value in its array on the stack."""
        return self.loops.element(self.slots[node], node.dtype, scope.chain[-1].index, scope)

    def displacement(self, node: Any, scope: Scope) -> Scalar | None:
        """How far the indices of a gather or scatter lead, in elements; one that is out of range is reported."""
        places, key, row = node.places, ("displacement", node), self.is_row(node)
        if not places.indices:
            return None
        home = self.home(frozenset().union(*(self.nest.operand_varies(i, row) for i in places.indices)), scope)
        if key in home.memo:
            return home.memo[key]
        total: Scalar | None = None
        for number, (index, (stride, extent, axis)) in enumerate(zip(places.indices, places.steps, strict=True)):
            given = self.operand(index, row, home)
            e = self.loops.at(home)
            size = self.loops.tabled(("size", node, number), extent)
            wrapped = e.select(e.compare("lt", given, e.constant(0, I64)), e.add(given, size), given)
            fine = e.below(wrapped, size)
            self.loops.fail_unless(fine, self.nest.sites.number(axis, extent), given, home)
            safe = e.select(fine, wrapped, e.constant(0, I64))
            moved = e.mul(safe, self.loops.tabled(("place", node, number), stride))
            total = moved if total is None else e.add(total, moved)
        assert total is not None
        home.memo[key] = total
        return total

    def indexed_pointer(self, node: Any, scope: Scope) -> ir.Value:
        """The address that a gather reads, or a scatter writes."""
        displacement = self.displacement(node, scope)
        access = self.nest.places[node]
        pointer = self.loops.pointer(access, scope)
        return pointer if displacement is None else self.loops.element(pointer, access.dtype, displacement, scope)

    def _require(self, fine: Scalar, kind: type, message: str) -> None:
        self.loops.fail_unless(fine, self.nest.sites.number(kind, message), ZERO, self.loops.current)


class Running:
    """The running values of one sweep: each one's name before an element or its array, and its value there."""

    def __init__(self, values: Values):
        self.values = values
        self.found: dict[Any, tuple[Any, Scalar]] = {}

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
