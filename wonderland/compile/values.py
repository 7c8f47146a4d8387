"""The values of a kernel: a cluster and the memory of its values come in, the text that computes each value goes out.

First all that is read and written is collected, and the order of the loops follows from it. Then every value is
computed in the outermost loop that it allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wonderland.compile.emitter import Scalar, memory_kind
from wonderland.compile.fuse import PER_ELEMENT, Cluster, Schedule, operands_of, squeezed_strides
from wonderland.compile.loops import I64, Access, Loops, Scope, arrange, varies
from wonderland.compile.nodes import (
    Cumulative,
    Gather,
    Index,
    Map,
    Node,
    Number,
    Scatter,
    base_of,
    contiguous_strides,
    layout_of,
)
from wonderland.compile.running import Running

COLUMN_BYTES, LEAST_COLUMNS = 1 << 14, 512  # of columns summed at a time: whole rows in order are what memory likes
ENOUGH_BLOCKS = 4  # of columns, for the threads to share


class Values(Loops):
    """What one kernel reads, computes and writes; `Nest` puts it into loops."""

    cluster: Cluster
    schedule: Schedule
    memory: dict[Node, Any]
    sites: Any
    extents: list[int]
    positions: list[int]
    outer: int
    sums: int
    column: bool

    def __init__(self, cluster: Cluster, schedule: Schedule, memory: dict[Node, Any], sites: Any, split: bool = False):
        self.cluster, self.schedule, self.memory, self.sites = cluster, schedule, memory, sites
        self.split = split
        super().__init__()
        self.e.report = self._require
        self.written: set[Any] = set()
        self.params: dict[tuple[Any, ...], int] = {}
        self.accesses: dict[tuple[Any, ...], Access] = {}
        self.stores: dict[Node, Access] = {}
        self.deps: dict[Node, frozenset[int]] = {}
        self.slots: dict[Node, str] = {}  # arrays on the stack: sums of columns, row values, kept rows
        self.allocas: list[str] = []
        self.kept: dict[Node, int] = {}
        self.available: set[Node] = set()
        self.running: Running = Running(self)
        self._collect()
        self._arrange()

    # -- what is read and written -----------------------------------------------------------------

    def _operands(self, node: Node) -> tuple[Node, ...]:
        override = self.cluster.override.get(node)
        return (override,) if override is not None else operands_of(node)

    def _inlined(self, base: Node) -> bool:
        return base not in self.cluster.roles and base in self.schedule.costs

    def _expand(self, strides: Sequence[int], row: bool) -> tuple[int, ...]:
        """Strides along the kept axes become strides along all axes."""
        space, reduced = self.cluster.space, self.cluster.reduced or ()
        if not strides:
            return (0,) * len(space)
        if not row:
            return tuple(strides)
        rest = iter(strides)
        return tuple(0 if i in reduced else next(rest) for i in range(len(space)))

    def _access(self, base: Node, offset: int, strides: tuple[int, ...], dtype: np.dtype) -> Access:
        buffer = self.memory[base]
        key = (buffer, offset * dtype.itemsize)
        param = self.params.setdefault(key, len(self.params))
        return self.accesses.setdefault((param, strides, dtype), Access(param, dtype, strides))

    def _read(self, operand: Node, row: bool) -> Access:
        return self._access(
            base_of(operand), layout_of(operand)[0], self._expand(squeezed_strides(operand), row), operand.dtype
        )

    def _indexed(self, node: Gather | Scatter, base: Node, row: bool) -> Access:
        shape = node.update.shape if isinstance(node, Scatter) else node.shape
        offset, strides = node.layout
        squeezed = tuple(s for n, s in zip(shape, strides, strict=True) if n != 1)
        return self._access(base, offset, self._expand(squeezed, row), node.dtype)

    def _collect(self) -> None:
        cluster = self.cluster
        self.reads: dict[tuple[Node, bool], Access] = {}
        self.places: dict[Node, Access] = {}
        self.scalars: dict[Node, None] = {}  # inlined, in order

        def visit(node: Node, row: bool) -> None:
            for operand in self._operands(node):
                base = base_of(operand)
                if isinstance(operand, Index):
                    strides = self._expand(squeezed_strides(operand), row)
                    access = Access(-1, operand.dtype, strides)  # of no memory: it takes part in the order of loops
                    self.reads[operand, row] = self.accesses.setdefault((-1, strides, operand.dtype), access)
                if isinstance(operand, Number) or base in cluster.roles:
                    continue
                if self._inlined(base):
                    visit(base, False)
                    self.scalars[base] = None
                else:
                    self.reads[operand, row] = self._read(operand, row)
            if isinstance(node, Gather):
                self.places[node] = self._indexed(node, node.source, row)

        for node, role in cluster.roles.items():
            visit(node, role == "row")
        for node, role in cluster.roles.items():
            if role == "scatter":
                self.places[node] = self._indexed(node, node, False)  # type: ignore[arg-type]
                self.written.add(self.memory[node])
            elif node in cluster.partials:
                base = cluster.partials[node]
                across = (*(0 for _ in cluster.space[1:]), 1)
                strides = across if role == "across" else self._expand(contiguous_strides(cluster.rows), True)
                self.stores[node] = self._access(base, 0, strides, node.dtype)
                self.written.add(self.memory[base])
            elif node in self.schedule.stored:
                row = role not in PER_ELEMENT
                shape = cluster.rows if row else cluster.space
                self.stores[node] = self._access(node, 0, self._expand(contiguous_strides(shape), row), node.dtype)
                self.written.add(self.memory[node])
        self.kernel.params = list(self.params)

    def _arrange(self) -> None:
        cluster = self.cluster
        stored = set(self.stores.values())
        ordered = any(isinstance(n, Scatter) and n.indices for n in cluster.roles)
        # A short last axis whose index is a value: a loop to unroll, around which the rest of the work is done.
        ordered |= any(a.param < 0 and any(a.strides[-1:]) and cluster.space[-1] <= 4 for a in self.accesses.values())
        weights = {a: 1.5 if a in stored else 1.0 for a in self.accesses.values()}
        order = arrange(cluster.space, cluster.reduced or (), weights, ordered)
        self.extents, self.positions = order.extents, order.positions
        self.outer, self.sums, self.column = order.outer, order.sums, order.column
        for access in self.accesses.values():
            access.strides = tuple(access.strides[i] for i in self.positions)
        self.block: int = self._column_block() if self.column else 0
        self.sum_dims: frozenset[int] = frozenset(range(self.outer, self.outer + self.sums))
        self.kept_dims: frozenset[int] = frozenset(range(len(self.extents))) - self.sum_dims
        for node in (*self.scalars, *cluster.roles):  # in order, so that no chain is followed recursively
            self.dependence(node)

    def _column_block(self) -> int:
        """How many columns are swept together; where they alone are shared between threads, there are some blocks."""
        most = COLUMN_BYTES // max(n.dtype.itemsize for n in self.cluster.roles)
        shared = not (self.outer or self.split)
        while shared and most > LEAST_COLUMNS and self.extents[-1] < most * ENOUGH_BLOCKS:
            most //= 2
        return most

    def extent(self, dim: int) -> str:
        return self.cell(("extent", dim), self.extents[dim])

    # -- values -----------------------------------------------------------------------------------

    def dependence(self, node: Node) -> frozenset[int]:
        """The loops that a member (or inlined scalar) varies with."""
        if node not in self.deps:
            role = self.cluster.roles.get(node)
            if role == "reduce":
                self.deps[node] = self.kept_dims
            elif role == "cumulate":
                self.deps[node] = self.kept_dims | self.sum_dims
            else:
                row = role == "row"
                found = frozenset().union(*(self._operand_dependence(o, row) for o in self._operands(node)))
                if isinstance(node, Gather):
                    found |= varies(self.places[node])
                if self.column and role == "row":
                    found |= self.kept_dims
                self.deps[node] = found
        return self.deps[node]

    def _operand_dependence(self, operand: Node, row: bool) -> frozenset[int]:
        base = base_of(operand)
        if isinstance(operand, Number) and not isinstance(operand, Index):
            return frozenset()
        if base in self.cluster.roles or self._inlined(base):
            return self.dependence(base)
        return varies(self.reads[operand, row])

    def operand(self, operand: Node, row: bool, scope: Scope) -> Scalar:
        base = base_of(operand)
        if isinstance(operand, Index):
            access = self.reads[operand, row]
            return self.place(access, self.home(varies(access), scope))
        if isinstance(operand, Number):
            return self.number(operand, self.home(frozenset(), scope), row or len(self.extents) - 1 not in scope.dims)
        if base in self.cluster.roles or self._inlined(base):
            return self.member(base, scope)
        access = self.reads[operand, row]
        return self.load(access, self.home(varies(access), scope), access)

    def home(self, dims: frozenset[int], scope: Scope) -> Scope:
        """The outermost loop around which a value with this dependence may be computed."""
        return next(s for s in scope.chain if dims <= s.dims)

    def load(self, access: Access, scope: Scope, key: Any) -> Scalar:
        if key not in scope.memo:
            pointer = self.pointer(access, scope)
            scope.memo[key] = self.at(scope).load(pointer, access.dtype)
        return scope.memo[key]

    def member(self, node: Node, scope: Scope) -> Scalar:
        """The value of a member or inlined scalar; what it needs comes first, without recursion: chains are long."""
        value = self._known(node, scope)
        if value is not None:
            return value
        first = self.home(self.dependence(node), scope)
        stack = [(node, first)]
        while stack:
            n, home = stack[-1]
            waiting = [] if n in home.memo else [*self._waiting(n, home)]
            if not waiting:
                stack.pop()
                if n not in home.memo:
                    home.memo[n] = self._emit(n, home)
            stack += reversed(waiting)
        return first.memo[node]

    def _waiting(self, node: Node, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        """The operands that have to be computed first, each with its home."""
        for base in map(base_of, operands_of(node)):
            if (base in self.cluster.roles or self._inlined(base)) and self._known(base, scope) is None:
                yield base, self.home(self.dependence(base), scope)

    def _known(self, node: Node, scope: Scope) -> Scalar | None:
        """A value that is there already, or in memory."""
        for s in scope.chain:
            if node in s.memo:
                return s.memo[node]
        if node in self.slots and (self.column or node in self.available):
            scope.memo[node] = value = self._from_stack(node, scope)
            return value
        if node in self.available:
            return self.load(self.stores[node], self.home(varies(self.stores[node]), scope), node)
        return None

    def _emit(self, node: Node, home: Scope) -> Scalar:
        if isinstance(node, Gather):
            pointer = self._indexed_pointer(node, home)
            return self.at(home).load(pointer, node.dtype)
        if isinstance(node, Cumulative):
            return self.running.step(node, home)
        assert isinstance(node, Map)
        row = self.cluster.roles.get(node) == "row"
        scalars = [self.operand(o, row, home) for o in node.operands]
        value = node.emit(self.at(home), *scalars)
        if node in self.schedule.stored:
            value = value.rounded()  # some read it from memory, rounded: so do all
        return value

    def _stack_pointer(self, node: Node, scope: Scope) -> str:
        """The place of a column's or a kept row's value in its array on the stack."""
        inner = scope.chain[-1]
        kind = memory_kind(node.dtype)
        return self.at(scope).let(f"getelementptr inbounds {kind}, ptr {self.slots[node]}, i64 {inner.index}", I64).text

    def _from_stack(self, node: Node, scope: Scope) -> Scalar:
        pointer = self._stack_pointer(node, scope)
        return self.at(scope).load(pointer, node.dtype)

    def _displacement(self, node: Gather | Scatter, scope: Scope) -> Scalar | None:
        """How far the indices lead, in elements; an index that is out of range is reported and becomes 0."""
        if not node.indices:
            return None
        key = ("displacement", node)
        row = self.cluster.roles[node] == "row"
        dims = frozenset().union(*(self._operand_dependence(i, row) for i in node.indices))
        home = self.home(dims, scope)
        if key in home.memo:
            return home.memo[key]
        self.kernel.checks = True
        total: Scalar | None = None
        for number, (index, (stride, extent, axis)) in enumerate(zip(node.indices, node.places, strict=True)):
            given = self.operand(index, row, home)
            e = self.at(home)
            size = Scalar(self.cell(("size", node, number), extent), I64)
            wrapped = e.select(e.compare("lt", given, e.constant(0, I64)), e.add(given, size), given)
            fine = e.let(f"icmp ult {wrapped.typed}, {size.text}", np.dtype(bool))
            self.fail_unless(fine, self.sites.index(axis, extent), given.text, home)
            safe = e.select(fine, wrapped, e.constant(0, I64))
            moved = e.mul(safe, Scalar(self.cell(("place", node, number), stride), I64))
            total = moved if total is None else e.add(total, moved)
        assert total is not None
        home.memo[key] = total
        return total

    def _require(self, fine: Scalar, kind: type, message: str) -> None:
        self.kernel.checks = True
        self.fail_unless(fine, self.sites.raising(kind, message), "0", self.current)

    def _indexed_pointer(self, node: Gather | Scatter, scope: Scope) -> str:
        displacement = self._displacement(node, scope)
        access = self.places[node]
        pointer = self.pointer(access, scope)
        if displacement is None:
            return pointer
        kind = memory_kind(access.dtype)
        return self.at(scope).let(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {displacement.text}", I64).text
