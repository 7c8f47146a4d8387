"""Loop nests: a cluster and the memory of its values come in, the text of an LLVM function goes out.

The order of the loops is [kept axes] [reduced axes] [inner kept axis]. Without an inner kept axis (the innermost axis
of memory is reduced) sums are registers: row mode. With one, a block of it has its sums in a small array on the stack:
column mode. A row is swept once per level of dependence: a softmax takes its maximum in the first sweep, the sum of
exponentials in the second, and divides in the third. A value that runs along the row goes from element to element in a
register, or in such an array.

Every value is computed in the outermost loop that it allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wonderland.compile.emitter import CALL_COST, Emitter, Scalar, lowest, memory_kind
from wonderland.compile.fuse import PER_ELEMENT, Cluster, Schedule, operands_of, squeezed_strides
from wonderland.compile.loops import I64, Access, Kernel, Loops, Scope, arrange, launcher, varies
from wonderland.compile.nodes import (
    Cumulative,
    Gather,
    Index,
    Map,
    Node,
    Number,
    Reduce,
    Scatter,
    base_of,
    contiguous_strides,
    layout_of,
)
from wonderland.compile.running import Running
from wonderland.compile.scalars import assembled, literal

COLUMN_BYTES, LEAST_COLUMNS = 1 << 14, 512  # of columns summed at a time: whole rows in order are what memory likes
DEEP, LONG_LOOP = 2 * CALL_COST, 256  # cost and turns of a loop of which two turns are done at a time
SUM_BLOCK = 512  # elements summed in one go, for the sake of rounding errors
LONGEST_KEPT_ROW = 1 << 16  # bytes of a row kept between sweeps
PARALLEL_NANOSECONDS, CHUNK_NANOSECONDS, MOST_CHUNKS = 30_000, 12_000, 64
MOST_PIECES = 32  # of a long row
ENOUGH_BLOCKS = 4  # of columns, for the threads to share
MOST_INLINED = 100  # cost of scalar code that gains from being inlined where it is called


class Nest(Loops):
    """Generates one kernel."""

    def __init__(self, cluster: Cluster, schedule: Schedule, memory: dict[Node, Any], sites: Any, split: bool = False):
        self.cluster, self.schedule, self.memory, self.sites = cluster, schedule, memory, sites
        self.split = split
        super().__init__()
        self.e.report = self._require
        self.written: set[Any] = set()
        self.params: dict[tuple, int] = {}
        self.accesses: dict[tuple, Access] = {}
        self.stores: dict[Node, Access] = {}
        self.deps: dict[Node, frozenset[int]] = {}
        self.slots: dict[Node, str] = {}  # arrays on the stack: sums of columns, row values, kept rows
        self.allocas: list[str] = []
        self.kept: dict[Node, int] = {}
        self.available: set[Node] = set()
        self.running = Running(self)
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
            elif self.split and role == "reduce":
                base = cluster.partials[node]
                strides = self._expand(contiguous_strides(cluster.rows), True)
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
        self.block = self._column_block() if self.column else 0
        self.sum_dims = frozenset(range(self.outer, self.outer + self.sums))
        self.kept_dims = frozenset(range(len(self.extents))) - self.sum_dims
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

    # -- the nest ---------------------------------------------------------------------------------

    def generate(self) -> Kernel:
        """The whole function."""
        self._decide_parallel()
        entry = Scope(None, frozenset(), "entry")
        if self.split:
            self._move_partials(entry)
        scopes = [entry]
        for dim in range(self.outer):
            first = dim == 0 and self.kernel.parallel and not self.split
            start, stop = ("%begin", "%end") if first else ("0", self.extent(dim))
            scopes.append(self.open(scopes[-1], dim, start, stop))
        self.width = ""
        if self.column:
            last = len(self.extents) - 1
            n = self.extents[last]
            if n > self.block:
                blocks = -(-n // self.block)
                first = self.outer == 0 and self.kernel.parallel and not self.split
                bounds = ("%begin", "%end") if first else ("0", self.cell(("blocks",), blocks))
                block = self.open(scopes[-1], -1, *bounds)
                scopes.append(block)
                e = self.at(block)
                block.shift = e.let(f"mul nuw nsw i64 {block.index}, {self.block}", I64).text
                left = e.let(f"sub nuw nsw i64 {self.extent(last)}, {block.shift}", I64)
                self.width = e.intrinsic("umin", left, Scalar(str(self.block), I64)).text
            else:
                self.width = self.extent(last)
        row = scopes[-1]
        self._plan_kept()
        self._sweeps(row)
        for scope in reversed(scopes[1:]):
            self.close(scope)
        return self._finish(entry)

    def _move_partials(self, entry: Scope) -> None:
        """Each piece of a long row has its own sums."""
        e = self.at(entry)
        grain = e.load(e.let("getelementptr i64, ptr %t, i64 1", I64).text, I64)
        piece = e.let(f"udiv i64 %begin, {grain.text}", I64)
        rows = math.prod(self.cluster.rows)
        for node, access in self.stores.items():
            if self.cluster.roles[node] == "reduce":
                entry.pointers[access] = self.advance(f"%p{access.param}", access, piece.text, rows, entry)

    def _decide_parallel(self) -> None:
        k = self.kernel
        # A chain of functions is bound by latency: the next element's is too far away for the processor to see.
        self.deep = self._cost() >= DEEP and bool(self.extents) and self.extents[-1] >= LONG_LOOP
        elements = math.prod(self.extents)
        work = self.work = elements * (0.1 * len(self.accesses) + 0.05 * self._cost())
        k.parallel = (elements >= 4096 or work > PARALLEL_NANOSECONDS / 4) and bool(self.extents)
        if any(isinstance(n, Scatter) and n.indices for n in self.cluster.roles):
            k.parallel = False
        n = self.extents[self.outer if self.split else 0] if self.extents else 1
        if self.outer == 0 and self.column and not self.split:
            n = -(-self.extents[-1] // self.block)
            if n == 1:
                k.parallel = False
        elif self.outer == 0 and not self.split and self.sums:
            k.parallel = False
        if self.split:
            k.parallel = True
            grain = -(-n // MOST_PIECES)
            self.pieces = -(-n // grain)
            k.table += [self.pieces, grain, n]
        elif k.parallel:
            wanted = 1 if work < PARALLEL_NANOSECONDS else min(MOST_CHUNKS, max(2, int(work / CHUNK_NANOSECONDS)))
            grain = -(-n // min(n, wanted))
            if len(self.extents) == 1 and wanted > 1:
                grain = -(-grain // 64) * 64
            k.table += [-(-n // grain), grain, n]

    def _cost(self) -> int:
        return sum(n.cost if isinstance(n, Map) else 2 for n in self.cluster.roles)

    def _phase_roots(self, phase: int) -> list[Node]:
        levels, roots = self.cluster.levels, []
        for node, role in self.cluster.roles.items():
            if role == "reduce" and levels[node] == phase + 1:
                roots.append(node)
            elif levels[node] == phase and (role == "scatter" or (role in PER_ELEMENT and node in self.stores)):
                roots.append(node)
            elif self.kept.get(node) == phase:
                roots.append(node)
        return roots

    @property
    def phases(self) -> int:
        return max(self.cluster.levels.values(), default=0) + 1

    def _plan_kept(self) -> None:
        """Costly values that several sweeps need are kept in a row on the stack, if it is short."""
        if self.sums != 1 or self.column or self.extents[-1] * 8 > LONGEST_KEPT_ROW:
            return
        roles = self.cluster.roles
        while True:
            first_seen: dict[Node, int] = {}
            again: Node | None = None
            for phase in range(self.phases):
                stack = [o for root in self._phase_roots(phase) for o in (
                    [root] if roles[root] == "full" else map(base_of, self._operands(root)))]  # fmt: skip
                visited: set[Node] = set()  # a graph has far more paths than nodes
                while stack:
                    node = base_of(stack.pop())
                    if node in visited or roles.get(node) != "full" or not isinstance(node, (Map, Gather)):
                        continue
                    visited.add(node)
                    if node in self.stores and self.cluster.levels[node] < phase:
                        continue
                    if node in self.kept and self.kept[node] < phase:
                        continue
                    seen = first_seen.setdefault(node, phase)
                    if seen < phase and isinstance(node, Map) and node.cost >= CALL_COST:
                        again = node
                        self.kept[node] = seen
                        break
                    stack += self._operands(node)
                if again is not None:
                    break
            if again is None:
                return

    def _stack_array(self, node: Node, count: str) -> None:
        name = f"%{self.fresh('s')}"
        self.allocas.append(f"  {name} = alloca {memory_kind(node.dtype)}, i64 {count}, align 64")
        self.slots[node] = name

    def _sweeps(self, row: Scope) -> None:
        cluster = self.cluster
        for node in self.kept:
            self._stack_array(node, self.extent(self.outer))
        if self.column:
            width = str(min(self.extents[-1], self.block))
            for node, role in cluster.roles.items():
                if role == "reduce" or (role == "row" and self._is_read_later(node)):
                    self._stack_array(node, width)
        for phase in range(self.phases):
            roots = self._phase_roots(phase)
            if roots:
                self._sweep(row, roots)
                self.available |= {n for n in roots if cluster.roles[n] in PER_ELEMENT}
            if self.column:
                self._column_rows(row, phase + 1)
        if not self.column:
            for node, access in self.stores.items():
                if cluster.roles[node] not in PER_ELEMENT:
                    self._store(self.member(node, row), access, row)

    def _is_read_later(self, node: Node) -> bool:
        """Does a later sweep, or what follows from it, read this row value?"""
        levels, roles = self.cluster.levels, self.cluster.roles
        return any(
            (roles[n] != "row" or levels[n] > levels[node]) and any(base_of(o) is node for o in self._operands(n))
            for n in roles
        )

    def _store(self, value: Scalar, access: Access, scope: Scope) -> None:
        pointer = self.pointer(access, scope)
        self.at(scope).store(value, pointer)

    def inner(self, parent: Scope) -> Scope:
        """The loop over the block of columns."""
        return self.open(parent, len(self.extents) - 1, "0", self.width)

    def _sweep(self, row: Scope, roots: list[Node]) -> None:
        reductions = [n for n in roots if self.cluster.roles[n] == "reduce"]
        if self.column and reductions:
            init = self.inner(row)
            for node in reductions:
                e = self.at(init)
                e.store(_neutral(node), self._stack_pointer(node, init))
            self.close(init)
        scopes = [row]
        self.running = Running(self)
        for dim in range(self.outer, self.outer + self.sums):
            bounds = ("%begin", "%end") if self.split and dim == self.outer else ("0", self.extent(dim))
            n = self.extents[dim]
            last = dim == self.outer + self.sums - 1
            if last and not self.column and n > 2 * SUM_BLOCK and any(map(_rounds, reductions)):
                scopes.append(self._blocked(scopes[-1], bounds))
                block = scopes[-1]
                e = self.at(block)
                start = e.let(f"mul nuw nsw i64 {block.index}, {SUM_BLOCK}", I64)
                if bounds[0] != "0":
                    start = e.let(f"add nuw nsw i64 {start.text}, {bounds[0]}", I64)
                stop = e.let(f"add nuw nsw i64 {start.text}, {SUM_BLOCK}", I64)
                stop = e.intrinsic("umin", stop, Scalar(bounds[1], I64))
                bounds = (start.text, stop.text)
            scopes.append(self.open(scopes[-1], dim, *bounds))
            if self.cluster.reverse:
                e = self.at(scopes[-1])
                last = e.let(f"sub nuw nsw i64 {self.extent(dim)}, 1", I64)
                scopes[-1].shift = e.let(f"sub nuw nsw i64 {last.text}, {scopes[-1].index}", I64).text
        if self.column:
            scopes.append(self.inner(scopes[-1]))
        body = scopes[-1]
        values = {n: self._root_value(n, body) for n in roots}
        for node in roots:
            self._finish_root(node, values[node], body)
        sums = {} if self.column else {n: values[n] for n in reductions}
        if self.column and self.running.found:
            self.running.start(row, min(self.extents[-1], self.block))
        for depth in range(len(scopes) - 1, 0, -1):
            scope = scopes[depth]
            carried = [] if self.column else self.running.carried(depth, scope is body)
            for node, value in sums.items():
                assert isinstance(node, Reduce)
                start = _neutral(node).parts
                so_far = tuple(Scalar(f"%{self.fresh('a')}", part.dtype) for part in start)
                total = sums[node] = _combine(self.at(scope), node.op, assembled(so_far), value, "nsz ")
                parts = zip(so_far, start, total.parts, strict=True)
                carried += [(now.text, now.kind, first.text, following.text) for now, first, following in parts]
            self.close(scope, carried)
        row.memo.update(sums)

    def _blocked(self, parent: Scope, bounds: tuple[str, str]) -> Scope:
        """A loop over blocks of a long sum."""
        e = self.at(parent)
        length = bounds[1] if bounds[0] == "0" else e.let(f"sub nuw nsw i64 {bounds[1]}, {bounds[0]}", I64).text
        up = e.let(f"add nuw nsw i64 {length}, {SUM_BLOCK - 1}", I64)
        count = e.let(f"udiv i64 {up.text}, {SUM_BLOCK}", I64)
        return self.open(parent, -1, "0", count.text)

    def _root_value(self, node: Node, body: Scope) -> Scalar:
        role = self.cluster.roles[node]
        if role == "reduce":
            return self.operand(self._operands(node)[0], False, body)
        if role == "scatter":
            assert isinstance(node, Scatter)
            self._displacement(node, body)
            return self.operand(node.update, False, body)
        return self.member(node, body)

    def _finish_root(self, node: Node, value: Scalar, body: Scope) -> None:
        role = self.cluster.roles[node]
        if role == "reduce":
            if self.column:
                assert isinstance(node, Reduce)
                pointer = self._stack_pointer(node, body)
                e = self.at(body)
                e.store(_combine(e, node.op, e.load(pointer, node.dtype), value), pointer)
            return
        if role == "scatter":
            assert isinstance(node, Scatter)
            pointer = self._indexed_pointer(node, body)
            e = self.at(body)
            if node.mode == "add":
                value = e.add(e.load(pointer, node.dtype), value)
            elif node.mode == "max":
                value = e.maximum(e.load(pointer, node.dtype), value)
            e.store(value, pointer)
            return
        if node in self.stores:
            self._store(value, self.stores[node], body)
        if node in self.kept:
            self.at(body).store(value, self._stack_pointer(node, body))

    def _column_rows(self, row: Scope, level: int) -> None:
        """After a sweep: what follows from the sums, one column after the other."""
        roles, levels = self.cluster.roles, self.cluster.levels
        rows = [n for n, role in roles.items() if role == "row" and levels[n] == level]
        stored = [n for n in self.stores if roles[n] in ("row", "reduce") and levels[n] == level]
        if not rows and not stored:
            return
        scope = self.inner(row)
        arrays = {n: self.slots.pop(n) for n in rows if n in self.slots}
        values = {n: self.member(n, scope) for n in (*rows, *stored)}
        self.slots.update(arrays)
        for node in arrays:
            self.at(scope).store(values[node], self._stack_pointer(node, scope))
        for node in stored:
            self._store(values[node], self.stores[node], scope)
        self.close(scope)

    def _finish(self, entry: Scope) -> Kernel:
        k = self.kernel
        pointers = {}
        for i, (buffer, _) in enumerate(k.params):
            pointers.setdefault(buffer, []).append(i)
        shared = {i for buffer, found in pointers.items() if buffer in self.written and len(found) > 1 for i in found}
        arguments = [f"ptr {'' if i in shared else 'noalias '}%p{i}" for i in range(len(k.params))]
        arguments += ["ptr noalias readonly %t"] + (["ptr %err"] if k.checks else [])
        names = [a.split()[-1] for a in arguments]
        extra = ["i64 %begin", "i64 %end"] if k.parallel else []
        suffix = ".range" if k.parallel else ""
        inline = " noinline" if self.extents or self._cost() > MOST_INLINED else ""
        text = [f"define internal void @NAME{suffix}({', '.join([*arguments, *extra])}){inline} {{", "entry:"]
        text += [*self.symbols, *self.allocas, *entry.lines, "  ret void", "}"]
        if k.parallel:
            text += launcher(arguments, names)
        k.text = "\n".join(text)
        k.description = describe(self)
        return k


def _neutral(node: Node) -> Scalar:
    assert isinstance(node, Reduce)
    return literal(lowest(node.dtype) if node.op == "max" else int(node.op == "mul"), node.dtype)


def _rounds(node: Node) -> bool:
    """Is it a sum in which rounding errors add up?"""
    return isinstance(node, Reduce) and node.op == "add" and node.dtype.kind in "fc"


def _combine(e: Emitter, op: str, x: Scalar, y: Scalar, flags: str = "") -> Scalar:
    """One step of a reduction: the only place where the order of operations is free."""
    if op == "max":
        # Whichever zero comes out: that of NumPy depends on their places, too. (LLVM sums up registers faster then, but
        # no longer vectorises the maximum of two arrays.)
        return e.intrinsic("maximum", x, y, flags=flags) if x.dtype.kind == "f" else e.maximum(x, y)
    if x.dtype.kind == "c" and op == "add":
        return assembled(tuple(_combine(e, op, a, b) for a, b in zip(x.parts, y.parts, strict=True)))
    if x.dtype.kind == "f":
        operation = "fadd reassoc contract" if op == "add" else "fmul reassoc"
        return e.let(f"{operation} {x.typed}, {y.text}", x.dtype)
    return e.add(x, y) if op == "add" else e.mul(x, y)


def describe(nest: Nest) -> str:
    """A cluster for a person to read."""
    cluster = nest.cluster
    what = "reducing" if "reduce" in cluster.roles.values() else "along"
    head = f"over {list(cluster.space)}" + (f", {what} axes {list(cluster.reduced)}" if cluster.reduced else "")
    mode = "column mode" if nest.column else "row mode" if nest.sums else "elementwise"
    lines = [f"{head}: {mode}, loops {nest.extents}{', parallel' if nest.kernel.parallel else ''}"]
    counts: dict[str, int] = {}
    for node, role in cluster.roles.items():
        kind = type(node).__name__.lower()
        name = kind if kind == role else f"{role} {kind}"
        counts[name] = counts.get(name, 0) + 1
    lines.append("  " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return "\n".join(lines)
