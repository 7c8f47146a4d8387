"""The memory plan: a region comes in, steps and the buffer of every stored value go out.

Results are written where they are wanted (output arrays, slices of ys, the carried value itself) when nobody reads the
old contents any more; elementwise kernels overwrite an operand that dies; updates happen in place. What is left shares
an arena by lifetime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

from wonderland.compile.arena import Holes
from wonderland.compile.entry import round_up
from wonderland.compile.fuse import (
    PER_ELEMENT,
    Cluster,
    Schedule,
    Step,
    Unit,
    memory_of,
    operands_of,
    results_of,
    squeezed_strides,
)
from wonderland.compile.graph import Builder
from wonderland.compile.kernels import MOST_CHUNKS, MOST_PIECES, Kernel, Nest
from wonderland.compile.nodes import (
    Branch,
    Call,
    Contract,
    Gather,
    Leaf,
    Loop,
    Node,
    Number,
    Procedure,
    Region,
    Result,
    Scatter,
    Shape,
    base_of,
    can_fail,
    contiguous_strides,
    is_whole,
    layout_of,
)
from wonderland.compile.procedures import chunks, procedure_kernel
from wonderland.compile.products import ALIGNMENT, RunGemm, RunKernel, attach
from wonderland.compile.signals import BUDGET
from wonderland.core.types import ArrayType

END = 1 << 60


class Buffer:
    """Memory: where it is (`kind`, `data`), how large, and from when to when it is in use."""

    __slots__ = ("bytes", "data", "first", "kind", "last", "offset")

    first: int
    last: int

    def __init__(self, kind: str, size: int = 0, data: Any = None):
        self.kind: str = kind  # slot, constant, arena, slice, heap
        self.data: Any = data
        self.bytes: int = size
        self.first, self.last = END, -1
        self.offset: int = 0

    def touch(self, position: int) -> None:
        self.first, self.last = min(self.first, position), max(self.last, position)


class Memory(dict[Any, Any]):
    """The buffer of each stored node; constants are where they are."""

    def __missing__(self, node: Node) -> Buffer:
        if not (isinstance(node, Leaf) and node.name == "constant"):
            raise KeyError(node)
        self[node] = buffer = Buffer("constant", 0, node.source.__array_interface__["data"][0])
        return buffer


class Target:
    """Where an output of a region should be; `old` is the leaf whose value is there before."""

    def __init__(self, buffer: Buffer, old: Node | None = None, guarded: bool = False):
        self.buffer = buffer
        self.old = old
        self.guarded = guarded  # must not be touched by a run that fails


class Copy:
    """Copy whole buffers."""

    to: Buffer
    source: Buffer
    size: int

    def __init__(self, to: Buffer, source: Buffer, size: int):
        self.to, self.source, self.size = to, source, size


class RunCall:
    """Let NumPy do it: pointers to operands and results."""

    node: Call
    operands: list[Any]
    results: list[Buffer]

    def __init__(self, node: Call, operands: list[Any], results: list[Buffer]):
        self.node, self.operands, self.results = node, operands, results


class RunBranch:
    """One of several lists of steps."""

    index: Buffer
    bodies: list[list[Any]]

    def __init__(self, index: Buffer, bodies: list[list[Any]]):
        self.index, self.bodies = index, bodies


class RunLoop:
    """Steps again and again."""

    def __init__(self) -> None:
        self.counter = 0  # a cell
        self.static: int | None = None
        self.length: Buffer | None = None
        self.reverse = False
        self.condition: list[Any] | None = None
        self.predicate: Buffer | None = None
        self.count: Buffer | None = None
        self.heaps: list[tuple[Buffer, int]] = []  # growing results and the bytes of a row
        self.body: list[Any] = []
        self.pace = 0  # work of a turn to count; 0 if it needn't be


class Poll:
    """Count work; when enough is done, look at signals."""

    def __init__(self, work: float):
        self.work: int = math.ceil(work)


class Plan:
    """Plans a Program; afterwards `steps`, `buffers` and `cells` are what the driver needs."""

    def __init__(self, sites: Any):
        self.sites = sites
        self.memory: Memory = Memory()
        self.buffers: list[Buffer] = []
        self.cells: int = 8  # 64-bit words at the head of the arena; the first is the error word
        self.heaps: list[Buffer] = []
        self.position = 0
        self.steps: list[Any] = []
        self.kernels: list[Kernel] = []
        self.final: list[Copy] = []
        self.work: float = 0.0

    @property
    def constants(self) -> list[Any]:
        """The arrays whose addresses are in use."""
        return [node.source for node in self.memory if isinstance(node, Leaf) and node.name == "constant"]

    def arena(self, size: int) -> Buffer:
        buffer = Buffer("arena", size)
        self.buffers.append(buffer)
        return buffer

    def cell(self, count: int = 1) -> int:
        self.cells += count
        return self.cells - count

    def heap(self) -> Buffer:
        """Memory of a length that only the run knows: cells for pointer, length, capacity."""
        buffer = Buffer("heap", 0, self.cell(3))
        self.heaps.append(buffer)
        return buffer

    def finish(self) -> int:
        """Give every arena buffer its offset; returns the bytes of the arena."""
        holes = Holes(round_up(self.cells * 8, ALIGNMENT))
        active: list[tuple[int, int, int]] = []  # (last use, offset, bytes), the next to die first
        for buffer in sorted((b for b in self.buffers if b.last >= 0), key=lambda b: b.first):
            size = round_up(max(buffer.bytes, 1), ALIGNMENT)
            while active and active[0][0] < buffer.first:
                holes.give(*heappop(active)[1:])
            buffer.offset = holes.take(size)
            heappush(active, (buffer.last, buffer.offset, size))
        return holes.top


class RegionPlan:
    """Plans one region: `steps` in order. `targets` says where its outputs should be."""

    plan: Plan
    region: Region
    memory: Memory

    def __init__(self, plan: Plan, region: Region, targets: Sequence[Target | None], polls: bool = True):
        self.plan, self.region, self.memory = plan, region, plan.memory
        self.polls = polls  # may it look at signals, which is to fail?
        self.targets: list[Target | None] = list(targets)
        self._own_outputs()
        self.schedule: Schedule = Schedule(region)
        self.units: list[Unit] = self.schedule.units
        self.at: dict[Unit, int] = {unit: i for i, unit in enumerate(self.units)}
        self.uses: dict[Node, list[int]] = {}
        self._find_uses()
        self.late: list[Copy] = []
        self.fresh: set[Node] = set()  # placed in memory that holds nothing before
        self._place_outputs()
        self.steps: list[Any] = []
        done = [(0, plan.work)]  # steps and work at the start and after each unit
        for unit in self.units:
            plan.position += 1
            for base in self._reads(unit):
                self._touch(base)
            self._run(unit)
            done.append((len(self.steps), plan.work))
            plan.position += 1
            for base in (*self._reads(unit), *results_of(unit)):
                self._touch(base)
        plan.position += 1
        for copy in (*self.late, *plan.final):
            copy.source.touch(plan.position)
            copy.to.touch(plan.position)
        for target in self.targets:
            if target is not None:
                target.buffer.touch(plan.position)
        if polls:
            self._look_at_signals(done)
        self.steps += self.late

    # -- outputs ----------------------------------------------------------------------------------

    def _own_outputs(self) -> None:
        """Make every output a value of this region that is nobody else's output."""
        region, builder, taken = self.region, Builder(self.region), set()
        for i, (node, target) in enumerate(zip(region.outputs, self.targets, strict=True)):
            base = base_of(node)
            if target is not None and target.old is base and is_whole(node):
                self.targets[i] = None  # stays as it is
                continue
            if (
                base.region is not region or isinstance(base, (Number, Leaf)) or not is_whole(node) or base in taken
            ) and target is not None:
                region.outputs[i] = base = builder.copy(node)
            taken.add(base_of(region.outputs[i]))

    def _place_outputs(self) -> None:
        for node, target in zip(self.region.outputs, self.targets, strict=True):
            base = base_of(node)
            if target is None or None in base.shape:
                continue
            if not self._place(base, target):
                if base not in self.memory:
                    self.memory[base] = self.plan.arena(base.bytes)
                copy = Copy(target.buffer, self.memory[base], base.bytes)
                (self.plan.final if target.guarded else self.late).append(copy)

    def _place(self, node: Node, target: Target) -> bool:
        """Let a node be computed where it is wanted, if the old value isn't needed by then.

        What is updated in place starts in the same memory, if it has no other use; and so does what that starts from.
        """
        placed = self._place_one(node, target)
        last = node if placed else None
        while last is not None:
            unit, start = self.schedule.unit[last], self._starts_from(last)
            alone = (
                start is not None and start is not target.old and start.bytes == last.bytes
                and self.uses.get(start) == [self.at[unit]] and self._count(unit, start) == 1
            )  # fmt: skip
            last = start if alone and start is not None and self._place_one(start, target) else None
        return placed

    def _place_one(self, node: Node, target: Target) -> bool:
        if node in self.memory or node not in self.schedule.unit:
            return False
        unit = self.schedule.unit[node]
        position = self.at[unit]
        if target.guarded and position <= self.last_failing:
            return False
        if target.old is not None and (uses := self.uses.get(target.old)):
            if uses[-1] > position or (uses[-1] == position and not self._overwrites(unit, node, target.old)):
                return False
        self.memory[node] = target.buffer
        if target.old is None:
            self.fresh.add(node)
        return True

    @staticmethod
    def _starts_from(node: Node) -> Node | None:
        if isinstance(node, Scatter):
            return node.target
        if isinstance(node, Result) and isinstance(node.of, Loop) and node.index < len(node.of.initial):
            return base_of(node.of.initial[node.index])
        return None

    def _overwrites(self, unit: Unit, node: Node, old: Node) -> bool:
        """May a unit write `node` over `old`, which it reads?"""
        if self._starts_from(node) is old:
            return self._count(unit, old) == 1
        return isinstance(unit, Cluster) and self._same_element(unit, node, old)

    def _same_element(self, cluster: Cluster, node: Node, old: Node) -> bool:
        """Does a kernel read `old` only at the element where it writes `node`, and not after it has?"""
        if cluster.roles[node] not in PER_ELEMENT:
            return False
        if old.bytes != node.bytes or old.dtype.itemsize != node.dtype.itemsize:
            return False
        roles = cluster.roles
        last_sweep = max(level - (roles[n] == "reduce") for n, level in cluster.levels.items() if roles[n] != "row")
        if cluster.levels[node] != last_sweep:
            return False
        if old in cluster.targets:
            return False
        identity = contiguous_strides(cluster.space)
        members = list(cluster.roles)
        seen = set(members)
        while members:
            member = members.pop()
            if isinstance(member, Gather) and member.source is old:
                return False
            row = cluster.roles.get(member) == "row"
            for operand in operands_of(member):
                base = base_of(operand)
                if base is old and (row or layout_of(operand)[0] or squeezed_strides(operand) != identity):
                    return False
                if base in self.schedule.costs and base not in seen:
                    seen.add(base)
                    members.append(base)
        return True

    def _count(self, unit: Unit, base: Node) -> int:
        if isinstance(unit, Step):
            return sum(n is base for n in memory_of(unit.node))
        assert isinstance(unit, Cluster)
        return 1 + (base in unit.sources and bool(unit.space))  # a single element is read before it is written

    # -- uses -------------------------------------------------------------------------------------

    def _reads(self, unit: Unit) -> list[Node]:
        if isinstance(unit, Cluster):
            return [*unit.sources, *unit.targets]
        assert isinstance(unit, Step)
        return list(memory_of(unit.node))

    def _find_uses(self) -> None:
        for i, unit in enumerate(self.units):
            for base in self._reads(unit):
                found = self.uses.setdefault(base, [])
                if not found or found[-1] != i:
                    found.append(i)
        for node, target in zip(self.region.outputs, self.targets, strict=True):
            base = base_of(node)
            if target is None or base.region is self.region:
                self.uses.setdefault(base, []).append(END)

    def _touch(self, base: Node) -> None:
        buffer = self.memory.get(base)
        while buffer is not None:
            buffer.touch(self.plan.position)
            buffer = buffer.data[0] if buffer.kind == "slice" else None

    @cached_property
    def last_failing(self) -> int:
        """Where the last unit is that can set the error word."""
        return max((i for i, unit in enumerate(self.units) if self._can_fail(unit)), default=-1)

    def _can_fail(self, unit: Unit) -> bool:
        if isinstance(unit, Cluster):
            return any(map(can_fail, unit.roles))
        assert isinstance(unit, Step)
        return can_fail(unit.node)

    def _dies(self, base: Node, position: int) -> bool:
        """Is `base` memory of our own that nobody reads after this unit?"""
        buffer = self.memory.get(base)
        return (
            base.region is self.region and buffer is not None and buffer.kind == "arena"
            and self.uses.get(base, [position])[-1] <= position
        )  # fmt: skip

    # -- units ------------------------------------------------------------------------------------

    def _run(self, unit: Unit) -> None:
        if isinstance(unit, Cluster):
            self._cluster(unit)
            return
        assert isinstance(unit, Step)
        node = unit.node
        if isinstance(node, Contract):
            self._share_place(node)
            run = RunGemm(node, self.memory[node.x], self.memory[node.y], self._own(node), self.plan.position)
            run.scratch = self._scratch(run.scratch_bytes * run.pieces)
            self.steps.append(run)
            self.plan.work += 0.02 * math.prod(node.batch) * node.m * node.n * node.k
        elif isinstance(node, Procedure):
            out = self._own(node)
            scratch = self._scratch(round_up(node.scratch, ALIGNMENT) * chunks(node)) if node.scratch else None
            kernel = procedure_kernel(node, self.memory, scratch, self.plan.sites)
            kernel.written = {out} if scratch is None else {out, scratch}
            self.plan.kernels.append(kernel)
            self.steps.append(RunKernel(kernel))
            self.plan.work += math.prod(node.shape[: node.rows]) * node.cost
        elif isinstance(node, Call):
            operands = [n if isinstance(n, Number) else (n, self.memory[base_of(n)]) for n in node.operands]
            self.steps.append(RunCall(node, operands, [self._own(r) for r in node.results]))
        elif isinstance(node, Branch):
            self._branch(node)
        elif isinstance(node, Loop):
            self._loop(node, self.at[unit])

    def _share_place(self, node: Contract) -> None:
        """A product whose only reader turns it into an output, element by element, is computed in its place."""
        uses = self.uses.get(node, [])
        reader = self.units[uses[0]] if len(uses) == 1 and uses[0] != END else None
        if node in self.memory or not isinstance(reader, Cluster):
            return
        for member in reader.roles:
            if member in self.fresh and self._same_element(reader, member, node):
                self.memory[node] = self.memory[member]
                self.fresh.remove(member)
                return

    def _scratch(self, size: int) -> Buffer:
        buffer = self.plan.arena(size)
        buffer.touch(self.plan.position)
        return buffer

    def _own(self, node: Node) -> Buffer:
        if node not in self.memory:
            self.memory[node] = self.plan.heap() if None in node.shape else self.plan.arena(node.bytes)
        self._touch(node)
        return self.memory[node]

    def _cluster(self, cluster: Cluster) -> None:
        if 0 in cluster.space:
            for node in cluster.roles:
                self._own(node)
            return
        position = self.at[cluster]
        reused: set[Buffer] = {self.memory[n] for n in cluster.roles if n in self.memory}
        for node, role in cluster.roles.items():
            if node not in self.schedule.stored:
                continue
            if isinstance(node, Scatter):
                self._prepare_update(cluster, node, position)
                reused.add(self.memory[node])
            elif node not in self.memory and role in PER_ELEMENT:
                for old in cluster.sources:
                    if (
                        self._dies(old, position) and self.memory[old] not in reused
                        and self._same_element(cluster, node, old)
                    ):  # fmt: skip
                        self.memory[node] = self.memory[old]
                        reused.add(self.memory[old])
                        break
            self._own(node)
        if cluster.is_long() and max(cluster.levels.values()) == 1:
            self._long(cluster)
        else:
            self._rows(cluster)

    def _kernel(self, nest: Nest) -> None:
        kernel = nest.generate()
        kernel.needed, kernel.declared, kernel.routines = nest.e.needed, nest.e.declared, nest.e.routines
        kernel.written = nest.written
        self.plan.kernels.append(kernel)
        if not attach(nest.cluster, nest, self.steps):
            self.steps.append(RunKernel(kernel))
        self.plan.work += nest.work

    def _prepare_update(self, cluster: Cluster, node: Scatter, position: int) -> None:
        """An update in place, or after a copy of what it starts from."""
        start = node.target
        if node not in self.memory and self._dies(start, position) and self._count(cluster, start) == 1:
            self.memory[node] = self.memory[start]
        buffer = self._own(node)
        if self.memory[start] is not buffer:
            self.steps.append(Copy(buffer, self.memory[start], node.bytes))

    def _rows(self, cluster: Cluster) -> None:
        """A kernel, and one more if it sums up its rows in pieces."""
        across = [n for n, role in cluster.roles.items() if role == "across"]
        self._set_apart(cluster, across, MOST_CHUNKS)
        nest = Nest(cluster, self.schedule, self.memory, self.plan.sites)
        self._kernel(nest)
        if across:
            rest = self._pieces(nest, across, cluster.space[-1:])
            rest.roles, rest.levels = dict.fromkeys(across, "reduce"), dict.fromkeys(across, 1)
            self._kernel(Nest(rest, self.schedule, self.memory, self.plan.sites))

    def _long(self, cluster: Cluster) -> None:
        """Few and long rows: pieces, then a kernel that combines them."""
        pieces = Cluster(cluster.space)
        pieces.reduced = cluster.reduced
        reductions = [n for n, role in cluster.roles.items() if role == "reduce"]
        for node, role in cluster.roles.items():
            if role in ("full", "reduce"):
                pieces.roles[node], pieces.levels[node] = role, cluster.levels[node]
        self._set_apart(pieces, reductions, MOST_PIECES)
        nest = Nest(pieces, self.schedule, self.memory, self.plan.sites, split=True)
        self._kernel(nest)
        rest = self._pieces(nest, reductions, cluster.rows)
        for node, role in cluster.roles.items():
            if role in ("row", "reduce"):
                rest.roles[node], rest.levels[node] = role, cluster.levels[node]
        self._kernel(Nest(rest, self.schedule, self.memory, self.plan.sites))

    def _set_apart(self, cluster: Cluster, reductions: list[Node], most: int) -> None:
        """Memory for the pieces of reductions."""
        for node in reductions:
            leaf = cluster.partials[node] = Leaf(ArrayType((most, *node.shape), node.dtype), "partial sums")
            self.memory[leaf] = self._scratch(leaf.bytes)

    def _pieces(self, nest: Nest, reductions: list[Node], rows: Shape) -> Cluster:
        """A cluster without members yet in which reductions read their pieces."""
        rest = Cluster((nest.pieces, *rows))
        rest.reduced = (0,)
        for node in reductions:
            leaf = Leaf(ArrayType((nest.pieces, *rows), node.dtype), "partial sums")
            self.memory[leaf] = self.memory[nest.cluster.partials[node]]
            rest.override[node] = leaf
        return rest

    def _branch(self, node: Branch) -> None:
        buffers = [self._own(r) for r in node.results]
        polls = self.polls and not any(target is not None and target.guarded for target in self.targets)
        bodies = []
        for region in node.regions:
            targets = [Target(b) for b in buffers]
            bodies.append(RegionPlan(self.plan, region, targets, polls).steps)
        self.steps.append(RunBranch(self.memory[node.index], bodies))

    def _loop(self, node: Loop, position: int) -> None:
        plan, run, polls = self.plan, RunLoop(), node.pace > 0
        n = len(node.carry)
        for i, (leaf, initial) in enumerate(zip(node.carry, node.initial, strict=True)):
            result, base = node.results[i], base_of(initial)
            if result not in self.memory and self._dies(base, position) and self._count_in(node, base) == 1:
                self.memory[result] = self.memory[base]
            buffer = self._own(result)
            self.memory[leaf] = buffer
            if self.memory[base] is not buffer:
                self.steps.append(Copy(buffer, self.memory[base], base.bytes))
        run.counter = plan.cell()
        run.reverse, run.pace = node.reverse, node.pace
        if isinstance(node.length, int):
            run.static = node.length
        elif node.length is not None:
            run.length = self.memory[node.length]
        for leaf in node.slices:
            x = leaf.source
            offset, strides = layout_of(x) if None not in x.shape else (0, contiguous_strides((1, *x.shape[1:])))
            size = x.dtype.itemsize
            place = (self.memory[base_of(x)], run.counter, strides[0] * size, offset * size)
            self.memory[leaf] = Buffer("slice", leaf.bytes, place)
        results = list(node.results[n:])
        targets: list[Target | None] = [Target(self.memory[leaf], leaf) for leaf in node.carry]
        if node.condition is not None:
            run.count = self._own(results.pop(0))
            predicate = plan.arena(1)
            predicate.touch(plan.position)
            run.predicate = predicate
            run.condition = RegionPlan(plan, node.condition, [Target(predicate)], polls).steps
        for result in results:
            row = math.prod(result.shape[1:]) * result.dtype.itemsize
            buffer = self._own(result)
            if buffer.kind == "heap":
                run.heaps.append((buffer, row))
            targets.append(Target(Buffer("slice", row, (buffer, run.counter, row, 0))))
        run.body = RegionPlan(plan, node.body, targets, polls).steps
        if run.predicate is not None:
            run.predicate.touch(plan.position)
        self.steps.append(run)
        plan.work += 1e5

    def _look_at_signals(self, done: list[tuple[int, float]]) -> None:
        """Between long steps, as long as nothing is written that a run which fails leaves alone."""
        guarded = {target.buffer for target in self.targets if target is not None and target.guarded}
        end = next((i for i, step in enumerate(self.steps) if _may_write(step, guarded)), len(self.steps))
        steps, (place, counted) = list(self.steps), done[0]
        self.steps.clear()
        for count, work in done[1:]:
            self.steps += steps[place:count]
            place = count
            if work - counted >= BUDGET and count <= end and count < len(steps):
                self.steps.append(Poll(min(work - counted, 2.0 * BUDGET)))
                counted = work

    @staticmethod
    def _count_in(node: Loop, base: Node) -> int:
        return sum(n is base for n in memory_of(node))


def _may_write(step: Any, buffers: set[Buffer]) -> bool:
    """May a step write to one of these?"""
    if not buffers:
        return False
    if isinstance(step, RunKernel):
        return not buffers.isdisjoint(step.kernel.written)
    if isinstance(step, RunGemm):
        return step.out in buffers or (step.epilogue is not None and not buffers.isdisjoint(step.epilogue.written))
    return True
