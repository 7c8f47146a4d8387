"""Loop nests: a cluster and the memory of its values come in, the text of an LLVM function goes out.

The order of the loops is [kept axes] [reduced axes] [inner kept axis]. Without an inner kept axis (the innermost axis
of memory is reduced) sums are registers: row mode. With one, a block of it has its sums in a small array on the stack:
column mode. A row is swept once per level of dependence: a softmax takes its maximum in the first sweep, the sum of
exponentials in the second, and divides in the third. A value that runs along the row goes from element to element in a
register, or in such an array.

How each value is computed, and in which loop, is in `values`.
"""

from __future__ import annotations

import math

from wonderland.compile.emitter import CALL_COST, Emitter, Scalar, lowest, memory_kind
from wonderland.compile.fuse import PER_ELEMENT
from wonderland.compile.loops import I64, Access, Kernel, Scope, launcher
from wonderland.compile.nodes import Gather, Map, Node, Reduce, Scatter, base_of
from wonderland.compile.running import Running
from wonderland.compile.scalars import assembled, literal
from wonderland.compile.values import Values

DEEP, LONG_LOOP = 2 * CALL_COST, 256  # cost and turns of a loop of which two turns are done at a time
SUM_BLOCK = 512  # elements summed in one go, for the sake of rounding errors
LONGEST_KEPT_ROW = 1 << 16  # bytes of a row kept between sweeps
PARALLEL_NANOSECONDS, CHUNK_NANOSECONDS, MOST_CHUNKS = 30_000, 12_000, 64
MOST_PIECES = 32  # of a long row
MOST_INLINED = 100  # cost of scalar code that gains from being inlined where it is called


class Nest(Values):
    """Generates one kernel."""

    work: float

    def generate(self) -> Kernel:
        """The whole function."""
        self._decide_parallel()
        entry = Scope(None, frozenset(), "entry")
        if self.cluster.partials:
            self._place_partials(entry)
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
                self.width: str = self.extent(last)
        row = scopes[-1]
        self._plan_kept()
        self._sweeps(row)
        for scope in reversed(scopes[1:]):
            self.close(scope)
        return self._finish(entry)

    def _place_partials(self, entry: Scope) -> None:
        """Each piece of a reduction has its own sums; those of whole rows are in memory while rows are swept."""
        partials = [n for n in self.stores if n in self.cluster.partials]
        if self.kernel.parallel:
            e = self.at(entry)
            grain = e.load(e.let("getelementptr i64, ptr %t, i64 1", I64).text, I64)
            piece = e.let(f"udiv i64 %begin, {grain.text}", I64)
            for node in partials:
                access, size = self.stores[node], math.prod(node.shape)
                entry.pointers[access] = self.advance(f"%p{access.param}", access, piece.text, size, entry)
        across = [n for n in partials if self.cluster.roles[n] == "across"]
        if across:
            row = self.open(entry, self.outer, "0", self.extent(self.outer))
            for node in across:
                self._store(_neutral(node), self.stores[node], row)
            self.close(row)

    def _decide_parallel(self) -> None:
        k, grain, self.pieces = self.kernel, 1, 1
        # A chain of functions is bound by latency: the next element's is too far away for the processor to see.
        self.deep: bool = self._cost() >= DEEP and bool(self.extents) and self.extents[-1] >= LONG_LOOP
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
        elif k.parallel:
            wanted = 1 if work < PARALLEL_NANOSECONDS else min(MOST_CHUNKS, max(2, int(work / CHUNK_NANOSECONDS)))
            grain = -(-n // min(n, wanted))
            if len(self.extents) == 1 and wanted > 1:
                grain = -(-grain // 64) * 64
        if k.parallel:
            self.pieces: int = -(-n // grain)
            k.table += [self.pieces, grain, n]

    def _cost(self) -> int:
        return sum(n.cost if isinstance(n, Map) else 2 for n in self.cluster.roles)

    def _phase_roots(self, phase: int) -> list[Node]:
        levels, roots = self.cluster.levels, []
        for node, role in self.cluster.roles.items():
            if role == "reduce" and levels[node] == phase + 1:
                roots.append(node)
            elif levels[node] == phase and (
                role in ("across", "scatter") or (role in PER_ELEMENT and node in self.stores)
            ):
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
                if cluster.roles[node] in ("row", "reduce"):
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
        self.at(scope).store(value, pointer, access.dtype)

    def inner(self, parent: Scope) -> Scope:
        """The loop over the block of columns."""
        return self.open(parent, len(self.extents) - 1, "0", self.width)

    def _sweep(self, row: Scope, roots: list[Node]) -> None:
        reductions = [n for n in roots if self.cluster.roles[n] == "reduce"]
        if self.column and reductions:
            init = self.inner(row)
            for node in reductions:
                e = self.at(init)
                e.store(_neutral(node), self._stack_pointer(node, init), node.dtype)
            self.close(init)
        scopes = [row]
        self.running: Running = Running(self)
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
        if role in ("reduce", "across"):
            return self.operand(self._operands(node)[0], False, body)
        if role == "scatter":
            assert isinstance(node, Scatter)
            self._displacement(node, body)
            return self.operand(node.update, False, body)
        return self.member(node, body)

    def _finish_root(self, node: Node, value: Scalar, body: Scope) -> None:
        role = self.cluster.roles[node]
        if role == "across" or (role == "reduce" and self.column):
            assert isinstance(node, Reduce)
            pointer = self.pointer(self.stores[node], body) if role == "across" else self._stack_pointer(node, body)
            e = self.at(body)
            e.store(_combine(e, node.op, e.load(pointer, node.dtype), value), pointer, node.dtype)
        if role in ("across", "reduce"):
            return
        if role == "scatter":
            assert isinstance(node, Scatter)
            pointer = self._indexed_pointer(node, body)
            e = self.at(body)
            if node.mode == "add":
                value = e.add(e.load(pointer, node.dtype), value)
            elif node.mode == "max":
                value = e.maximum(e.load(pointer, node.dtype), value)
            e.store(value, pointer, node.dtype)
            return
        if node in self.stores:
            self._store(value, self.stores[node], body)
        if node in self.kept:
            self.at(body).store(value, self._stack_pointer(node, body), node.dtype)

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
            self.at(scope).store(values[node], self._stack_pointer(node, scope), node.dtype)
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
