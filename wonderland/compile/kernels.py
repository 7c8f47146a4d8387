"""The code of loop nests: a `Nest` comes in, its native function goes out.

The rows of the nest are swept once per level of dependence. How each value is computed, and in which loop, is in
`values`; how loops are written, in `loops`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from wonderland.compile import ir
from wonderland.compile.clusters import PER_ELEMENT
from wonderland.compile.emitter import Emitter, Scalar, lowest
from wonderland.compile.loops import I64, ZERO, Access, Loops, Scope
from wonderland.compile.nodes import Node
from wonderland.compile.scalars import assembled, literal, named
from wonderland.compile.values import Running, Values

if TYPE_CHECKING:
    from wonderland.compile.nest import Nest

SUM_BLOCK = 512  # elements summed in one go, for the sake of rounding errors
SHORT_LOOP = 128  # turns of a loop below which the widest vectors would leave too many over
MOST_INLINED = 100  # cost of scalar code that gains from being inlined where it is called


class Sweeps:
    """Writes one kernel."""

    def __init__(self, nest: Nest):
        self.nest = nest
        self.roles: dict[Node, str] = nest.cluster.roles
        self.levels: dict[Node, int] = nest.cluster.levels
        inline = "noinline" if nest.extents or nest.cost > MOST_INLINED else ""
        self.loops: Loops = Loops(nest, inline, nest.deep, nested=bool(nest.extents))
        self.loops.f.narrow = bool(nest.extents) and nest.extents[-1] < SHORT_LOOP
        self.values: Values = Values(nest, self.loops)

    def write(self) -> ir.Function:
        nest, loops = self.nest, self.loops
        if nest.cluster.partials:
            self._place_partials(loops.outermost)
        scopes = [loops.outermost]
        for dim in range(nest.outer):
            first = dim == nest.shared and nest.parallel and not nest.split
            scopes.append(loops.open(scopes[-1], dim, *(self._range() if first else (ZERO, self._extent(dim)))))
        if nest.column:
            scopes += self._open_block(scopes[-1])
        self._sweep_row(scopes[-1])
        for scope in reversed(scopes[1:]):
            loops.close(scope)
        return loops.f

    def _extent(self, dim: int) -> Scalar:
        return self.loops.tabled(("extent", dim), self.nest.extents[dim])

    def _range(self) -> tuple[Scalar, Scalar]:
        return self.loops.parameter("begin"), self.loops.parameter("end")

    def _open_block(self, parent: Scope) -> list[Scope]:
        """A loop over blocks of columns, if one isn't enough; `width` is how many columns it has."""
        nest, loops, last = self.nest, self.loops, len(self.nest.extents) - 1
        if nest.extents[last] <= nest.block:
            self.width: Scalar = self._extent(last)
            return []
        blocks = loops.tabled(("blocks",), -(-nest.extents[last] // nest.block))
        first = nest.outer == 0 and nest.parallel and not nest.split
        scope = loops.open(parent, -1, *(self._range() if first else (ZERO, blocks)))
        extent, e = self._extent(last), loops.at(scope)
        scope.shift = e.mul(scope.index, e.constant(nest.block, I64))
        self.width = e.intrinsic("umin", e.sub(extent, scope.shift), e.constant(nest.block, I64))
        return [scope]

    def _place_partials(self, entry: Scope) -> None:
        """Each piece of a reduction has its own sums; those of whole rows are in memory while rows are swept."""
        nest, loops = self.nest, self.loops
        partials = [n for n in nest.stores if n in nest.cluster.partials]
        if nest.parallel:
            e = loops.at(entry)
            grain = e.load(loops.element(loops.parameters["t"], I64, e.constant(1, I64), entry), I64)
            piece = e.quotient(loops.parameter("begin"), grain, signed=False)
            for node in partials:
                access, size = nest.stores[node], math.prod(node.shape)
                start = loops.parameters[f"p{access.param}"]
                entry.pointers[access] = loops.advance(start, access, piece, size, entry)
        across = [n for n in partials if self.roles[n] == "across"]
        if across:
            row = loops.open(entry, nest.outer, ZERO, self._extent(nest.outer))
            for node in across:
                self._store(neutral(node), nest.stores[node], row)
            loops.close(row)

    def _sweep_row(self, row: Scope) -> None:
        nest, values = self.nest, self.values
        for node in nest.kept:
            values.stack_array(node, self._extent(nest.outer))
        if nest.column:
            width = literal(min(nest.extents[-1], nest.block), I64)
            for node, role in self.roles.items():
                if role == "reduce" or (role == "row" and self._is_read_later(node)):
                    values.stack_array(node, width)
        for phase in range(nest.phases):
            roots = nest.roots(phase)
            if roots:
                self._sweep(row, roots)
                values.available |= {n for n in roots if self.roles[n] in PER_ELEMENT}
            if nest.column:
                self._column_rows(row, phase + 1)
        if not nest.column:
            for node, access in nest.stores.items():
                if self.roles[node] in ("row", "reduce"):
                    self._store(values.member(node, row), access, row)

    def _is_read_later(self, node: Node) -> bool:
        """Does a later sweep, or what follows from it, read this row value?"""
        return any(
            (self.roles[n] != "row" or self.levels[n] > self.levels[node])
            and any(o.base is node for o in self.nest.operands(n))
            for n in self.roles
        )

    def _store(self, value: Scalar, access: Access, scope: Scope) -> None:
        pointer = self.loops.pointer(access, scope)
        self.loops.at(scope).store(value, pointer, access.dtype)

    def _over_columns(self, parent: Scope) -> Scope:
        """The loop over a block of columns."""
        return self.loops.open(parent, len(self.nest.extents) - 1, ZERO, self.width)

    def _sweep(self, row: Scope, roots: list[Node]) -> None:
        nest, loops, values = self.nest, self.loops, self.values
        reductions: list[Any] = [n for n in roots if self.roles[n] == "reduce"]
        if nest.column and reductions:
            init = self._over_columns(row)
            for node in reductions:
                place = values.stack_pointer(node, init)
                loops.at(init).store(neutral(node), place, node.dtype)
            loops.close(init)
        running = values.running = Running(values)
        scopes = self._open_sweep(row, any(n.op == "add" and n.dtype.kind in "fc" for n in reductions))
        body = scopes[-1]
        found = {n: self._root_value(n, body) for n in roots}
        for node in roots:
            self._finish_root(node, found[node], body)
        sums = {} if nest.column else {n: found[n] for n in reductions}
        if nest.column and running.found:
            init = self._over_columns(row)
            running.start(init)
            loops.close(init)
        for depth in range(len(scopes) - 1, 0, -1):
            scope = scopes[depth]
            carried = [] if nest.column else running.carried(depth, scope is body)
            for node, value in sums.items():
                so_far = named(f"%{loops.f.fresh('a')}", node.dtype, loops.e)
                sums[node] = combine(loops.at(scope), node, so_far, value, "nsz")
                carried += zip(so_far.parts, neutral(node).parts, sums[node].parts, strict=True)
            loops.close(scope, carried)
        row.memo.update(sums)

    def _open_sweep(self, row: Scope, rounds: bool) -> list[Scope]:
        """The loops of a sweep. Long sums are done in blocks, so that rounding errors don't add up (`rounds`)."""
        nest, loops, scopes = self.nest, self.loops, [row]
        for dim in range(nest.outer, nest.outer + nest.sums):
            start, stop = self._range() if nest.split and dim == nest.outer else (ZERO, self._extent(dim))
            last = dim == nest.outer + nest.sums - 1
            if last and not nest.column and nest.extents[dim] > 2 * SUM_BLOCK and rounds:
                e = loops.at(scopes[-1])
                size, more = e.constant(SUM_BLOCK, I64), e.constant(SUM_BLOCK - 1, I64)
                count = e.quotient(e.add(e.sub(stop, start), more), size, signed=False)
                scopes.append(loops.open(scopes[-1], -1, ZERO, count))
                e = loops.at(scopes[-1])
                start = e.add(e.mul(scopes[-1].index, size), start)
                stop = e.intrinsic("umin", e.add(start, size), stop)
            scopes.append(loops.open(scopes[-1], dim, start, stop))
            if nest.cluster.reverse:
                extent, e = self._extent(dim), loops.at(scopes[-1])
                scopes[-1].shift = e.sub(e.sub(extent, e.constant(1, I64)), scopes[-1].index)
        return [*scopes, self._over_columns(scopes[-1])] if nest.column else scopes

    def _root_value(self, node: Any, body: Scope) -> Scalar:
        role = self.roles[node]
        if role in ("reduce", "across"):
            return self.values.operand(self.nest.operands(node)[0], False, body)
        if role == "scatter":
            self.values.displacement(node, body)
            return self.values.operand(node.update, False, body)
        return self.values.member(node, body)

    def _finish_root(self, node: Any, value: Scalar, body: Scope) -> None:
        role, loops, values = self.roles[node], self.loops, self.values
        if role == "across" or (role == "reduce" and self.nest.column):
            across = role == "across"
            pointer = loops.pointer(self.nest.stores[node], body) if across else values.stack_pointer(node, body)
            e = loops.at(body)
            e.store(combine(e, node, e.load(pointer, node.dtype), value), pointer, node.dtype)
        elif role == "scatter":
            pointer = values.indexed_pointer(node, body)
            e = loops.at(body)
            if node.mode != "set":
                value = (e.add if node.mode == "add" else e.maximum)(e.load(pointer, node.dtype), value)
            e.store(value, pointer, node.dtype)
        elif role != "reduce":
            if node in self.nest.stores:
                self._store(value, self.nest.stores[node], body)
            if node in self.nest.kept:
                pointer = values.stack_pointer(node, body)
                loops.at(body).store(value, pointer, node.dtype)

    def _column_rows(self, row: Scope, level: int) -> None:
        """After a sweep: what follows from the sums, one column after the other."""
        values, slots = self.values, self.values.slots
        rows = [n for n, role in self.roles.items() if role == "row" and self.levels[n] == level]
        stored = [n for n in self.nest.stores if self.roles[n] in ("row", "reduce") and self.levels[n] == level]
        if not rows and not stored:
            return
        scope = self._over_columns(row)
        arrays = {n: slots.pop(n) for n in rows if n in slots}
        found = {n: values.member(n, scope) for n in (*rows, *stored)}
        slots.update(arrays)
        for node in arrays:
            pointer = values.stack_pointer(node, scope)
            self.loops.at(scope).store(found[node], pointer, node.dtype)
        for node in stored:
            self._store(found[node], self.nest.stores[node], scope)
        self.loops.close(scope)


def neutral(node: Any) -> Scalar:
    """Where a reduction starts."""
    return literal(lowest(node.dtype) if node.op == "max" else int(node.op == "mul"), node.dtype)


def combine(e: Emitter, node: Any, x: Scalar, y: Scalar, flags: str = "") -> Scalar:
    """One step of a reduction: the only place where the order of operations is free."""
    if node.op == "max":
        # Whichever zero comes out: that of NumPy depends on their places, too. (LLVM sums up registers faster then, but
        # no longer vectorises the maximum of two arrays.)
        return e.intrinsic("maximum", x, y, flags=flags) if x.dtype.kind == "f" else e.maximum(x, y)
    if node.op == "add":
        return assembled(tuple(e.reduced_sum(a, b) for a, b in zip(x.parts, y.parts, strict=True)))
    return e.reduced_product(x, y)
