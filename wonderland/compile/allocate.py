"""The memory plan: scheduled regions come in, steps and the buffer of every stored value go out.

Results are written where they are wanted (output arrays, slices of ys, the carried value itself) when nobody reads the
old contents any more; elementwise kernels overwrite an operand that dies; updates happen in place. What is left shares
an arena by lifetime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from wonderland.compile.clusters import PER_ELEMENT, Cluster, Unit
from wonderland.compile.kernel import MOST_CHUNKS
from wonderland.compile.memory import END, Buffer, Memory, MemoryPlan
from wonderland.compile.nest import MOST_PIECES, Nest
from wonderland.compile.nodes import Leaf, Node, Region, Shape
from wonderland.compile.schedule import Schedule
from wonderland.compile.signals import BUDGET
from wonderland.compile.signature import Signature
from wonderland.compile.steps import Copy, Poll, RunKernels, Step
from wonderland.core.types import ArrayType

STEPS_BETWEEN_LOOKS = 8  # at signals, of kinds that rarely take long
NEAR = 8  # steps in which a kernel looks for one to run along with


@dataclass(frozen=True)
class Target:
    """Where an output of a region should be."""

    buffer: Buffer
    guarded: bool = False  # must not be touched by a run that fails


def allocate(region: Region, signature: Signature) -> MemoryPlan:
    """Plan a scheduled Program: its steps, and where its outputs go."""
    plan = MemoryPlan()
    plan.memory.update(zip(signature.leaves, signature.slots, strict=True))
    targets = []
    for i in range(len(region.outputs)):
        old = signature.replaced(i)
        buffer = Buffer("slot", 0, signature.slot(i)) if old is None else plan.memory[old]
        targets.append(Target(buffer, guarded=old is not None))
    plan.steps = RegionPlan(plan, region, targets).steps
    dynamic = [(i, output.base) for i, output in enumerate(region.outputs) if None in output.shape]
    plan.results = [(plan.memory[base], signature.slot(i)) for i, base in dynamic]
    return plan


class RegionPlan:
    """Plans one region: `steps` in order. `targets` says where its outputs should be."""

    def __init__(self, plan: MemoryPlan, region: Region, targets: Sequence[Target | None], polls: bool = True):
        self.plan: MemoryPlan = plan
        self.region: Region = region
        self.polls: bool = polls  # may it look at signals, which is to fail?
        self.memory: Memory = plan.memory
        self.schedule: Schedule = region.schedule
        self.targets: list[Target | None] = [None if i in region.unchanged else t for i, t in enumerate(targets)]
        self.guarded: set[Buffer] = {t.buffer for t in self.targets if t is not None and t.guarded}
        self.units: list[Unit] = self.schedule.units
        self.at: dict[Unit, int] = {unit: i for i, unit in enumerate(self.units)}
        self.uses: dict[Node, list[int]] = {}
        self._find_uses()
        self.late: list[Copy] = []
        self.fresh: set[Node] = set()  # placed in memory that holds nothing before
        self._place_outputs()
        self.steps: list[Step] = []
        self._offering: set[Buffer] = set()  # results of steps that may take along what reads them
        done = [(0, plan.work)]  # steps and work at the start and after each unit
        for position, unit in enumerate(self.units):
            plan.position += 1
            self._touch(unit.reads)
            unit.plan(self, position)
            done.append((len(self.steps), plan.work))
            plan.position += 1
            self._touch((*unit.reads, *unit.results))
        plan.position += 1
        for copy in (*self.late, *plan.final):
            copy.to.touch(plan.position)
            copy.source.touch(plan.position)
        for target in self.targets:
            if target is not None:
                target.buffer.touch(plan.position)
        if polls:
            self._look_at_signals(done)
        self.steps += self.late

    # -- what kinds of nodes ask for --------------------------------------------------------------

    def own(self, node: Node) -> Buffer:
        """The memory that a node is written to."""
        if node not in self.memory:
            self.memory[node] = self.plan.heap() if None in node.shape else self.plan.arena(node.bytes)
        self._touch((node,))
        return self.memory[node]

    def scratch(self, size: int) -> Buffer:
        """Memory for the time of the unit that is being planned."""
        buffer = self.plan.arena(size)
        buffer.touch(self.plan.position)
        return buffer

    def add(self, step: Step, work: float = 0.0) -> None:
        """What comes next, and about how many nanoseconds it takes."""
        self.steps.append(step)
        self.plan.work += work
        if step.result is not None:
            self._offering.add(step.result)

    def add_kernel(self, kernel: Any) -> None:
        """A kernel comes next, or goes along with the product that it reads."""
        self.plan.kernels.append(kernel)
        self.plan.work += kernel.work
        reach = kernel.reach()
        for step in reversed(self.steps if any(buffer in self._offering for buffer, _ in kernel.params) else []):
            taken = step.offer(kernel)
            if taken:
                return
            if taken is not None or not step.is_apart(*reach):
                break
        self._launch(kernel, reach)

    def _launch(self, kernel: Any, reach: tuple[set[Buffer], set[Buffer]]) -> None:
        """A kernel comes next, or in one job with another that it doesn't depend on."""
        for step in islice(reversed(self.steps), NEAR):
            if not step.is_apart(*reach):
                break
            if isinstance(step, RunKernels) and step.join(kernel):
                return
        self.steps.append(RunKernels(kernel, self.plan.position))

    def inner(self, region: Region, targets: Sequence[Target], polls: bool) -> list[Step]:
        """The steps of a region inside this one."""
        return RegionPlan(self.plan, region, targets, polls).steps

    def dies(self, base: Node, position: int) -> bool:
        """Is `base` memory of our own that nobody reads after this unit?"""
        if base.region is not self.region or base not in self.memory:
            return False
        return self.memory[base].place == "arena" and self.uses.get(base, [position])[-1] <= position

    def update(self, node: Node, start: Node, position: int) -> Buffer:
        """The memory of a node that changes what it starts from: that one's, or a copy."""
        if node not in self.memory and self.dies(start, position) and self.units[position].uses_of(start) == 1:
            self.memory[node] = self.memory[start]
        buffer = self.own(node)
        if self.memory[start] is not buffer:
            self.add(Copy(buffer, self.memory[start], start.bytes))
        return buffer

    def share_place(self, node: Node) -> None:
        """A node whose only reader turns it into an output, element by element, is computed in its place."""
        uses = self.uses.get(node, [])
        reader = self.units[uses[0]] if len(uses) == 1 and uses[0] != END else None
        if node in self.memory or reader is None:
            return
        for result in reader.results:
            if result in self.fresh and reader.at_own_element(result, node, self.schedule.costs):
                self.memory[node] = self.memory[result]
                self.fresh.remove(result)
                return

    # -- outputs ----------------------------------------------------------------------------------

    def _place_outputs(self) -> None:
        for i, (node, target) in enumerate(zip(self.region.outputs, self.targets, strict=True)):
            base = node.base
            if target is None or None in base.shape:
                continue
            if not self._place(base, target, self.region.replaces[i]):
                if base not in self.memory:
                    self.memory[base] = self.plan.arena(base.bytes)
                copy = Copy(target.buffer, self.memory[base], base.bytes)
                (self.plan.final if target.guarded else self.late).append(copy)

    def _place(self, node: Node, target: Target, old: Node | None) -> bool:
        """Let a node be computed where it is wanted, if the old value isn't needed by then.

        What is updated in place starts in the same memory, if it has no other use; and so does what that starts from.
        """
        placed = self._place_one(node, target, old)
        last = node if placed else None
        while last is not None:
            unit, start = self.schedule.unit[last], last.starts_from
            alone = (
                start is not None and start is not old and start.bytes == last.bytes
                and self.uses.get(start) == [self.at[unit]] and unit.uses_of(start) == 1
            )  # fmt: skip
            last = start if alone and start is not None and self._place_one(start, target, old) else None
        return placed

    def _place_one(self, node: Node, target: Target, old: Node | None) -> bool:
        if node in self.memory or node not in self.schedule.unit:
            return False
        unit = self.schedule.unit[node]
        position = self.at[unit]
        if target.guarded and position <= self._last_failing:
            return False
        if old is not None and (uses := self.uses.get(old)):
            if uses[-1] > position or (uses[-1] == position and not self._overwrites(unit, node, old)):
                return False
        self.memory[node] = target.buffer
        if old is None:
            self.fresh.add(node)
        return True

    def _overwrites(self, unit: Unit, node: Node, old: Node) -> bool:
        """May a unit write `node` over `old`, which it reads?"""
        if node.starts_from is old:
            return unit.uses_of(old) == 1
        return unit.at_own_element(node, old, self.schedule.costs)

    # -- uses -------------------------------------------------------------------------------------

    def _find_uses(self) -> None:
        for i, unit in enumerate(self.units):
            for base in dict.fromkeys(unit.reads):
                self.uses.setdefault(base, []).append(i)
        for node, target in zip(self.region.outputs, self.targets, strict=True):
            if target is None or node.base.region is self.region:
                self.uses.setdefault(node.base, []).append(END)

    def _touch(self, bases: Sequence[Node]) -> None:
        for base in bases:
            if base in self.memory:
                self.memory[base].touch(self.plan.position)

    @cached_property
    def _last_failing(self) -> int:
        """Where the last unit is that can set the error word."""
        return max((i for i, unit in enumerate(self.units) if unit.can_fail), default=-1)

    # -- clusters ---------------------------------------------------------------------------------

    def add_nests(self, cluster: Cluster, position: int) -> None:
        """Memory for what a cluster writes, and its kernels."""
        if 0 in cluster.space:
            for node in cluster.roles:
                self.own(node)
            return
        self._own_members(cluster, position)
        if cluster.is_long() and max(cluster.levels.values()) == 1:
            self._long(cluster)
        else:
            self._rows(cluster)

    def _own_members(self, cluster: Cluster, position: int) -> None:
        reused: set[Buffer] = {self.memory[n] for n in cluster.roles if n in self.memory}
        for node, role in cluster.roles.items():
            if node not in self.schedule.stored:
                continue
            if node.starts_from is not None:
                reused.add(self.update(node, node.starts_from, position))
            elif node not in self.memory and role in PER_ELEMENT:
                self._overwrite(node, cluster, position, reused)
            self.own(node)

    def _overwrite(self, node: Node, cluster: Cluster, position: int, reused: set[Buffer]) -> None:
        """Let a node overwrite an operand that dies, if there is one."""
        for old in (n for n in cluster.sources if self.dies(n, position) and self.memory[n] not in reused):
            if cluster.at_own_element(node, old, self.schedule.costs):
                self.memory[node] = self.memory[old]
                reused.add(self.memory[old])
                return

    def _nest(self, cluster: Cluster, split: bool = False) -> Nest:
        nest = Nest(cluster, self.schedule, self.memory, self.plan.sites, split)
        self.add_kernel(nest)
        return nest

    def _rows(self, cluster: Cluster) -> None:
        """A kernel, and one more if it sums up its rows in pieces."""
        across = [n for n, role in cluster.roles.items() if role == "across"]
        self._set_apart(cluster, across, MOST_CHUNKS)
        nest = self._nest(cluster)
        if across:
            self._combine(nest, cluster.space[-1:], dict.fromkeys(across, "reduce"), dict.fromkeys(across, 1))

    def _long(self, cluster: Cluster) -> None:
        """Few and long rows: pieces, then a kernel that combines them."""
        pieces = Cluster(cluster.space)
        pieces.reduced = cluster.reduced
        pieces.roles = {n: role for n, role in cluster.roles.items() if role in ("full", "reduce")}
        pieces.levels = {n: cluster.levels[n] for n in pieces.roles}
        self._set_apart(pieces, [n for n, role in pieces.roles.items() if role == "reduce"], MOST_PIECES)
        rest = {n: role for n, role in cluster.roles.items() if role in ("row", "reduce")}
        self._combine(self._nest(pieces, split=True), cluster.rows, rest, {n: cluster.levels[n] for n in rest})

    def _set_apart(self, cluster: Cluster, reductions: Sequence[Node], most: int) -> None:
        """Memory for the pieces of reductions."""
        for node in reductions:
            leaf = cluster.partials[node] = Leaf(ArrayType((most, *node.shape), node.dtype))
            self.memory[leaf] = self.scratch(leaf.bytes)

    def _combine(self, nest: Nest, rows: Shape, roles: dict[Node, str], levels: dict[Node, int]) -> None:
        """A kernel in which reductions read their pieces."""
        rest = Cluster((nest.pieces, *rows))
        rest.reduced, rest.roles, rest.levels = (0,), roles, levels
        for node, partial in nest.cluster.partials.items():
            leaf = rest.override[node] = Leaf(ArrayType(rest.space, node.dtype))
            self.memory[leaf] = self.memory[partial]
        self._nest(rest)

    # -- signals ----------------------------------------------------------------------------------

    def _look_at_signals(self, done: list[tuple[int, float]]) -> None:
        """After some steps, as long as nothing is written that a run which fails leaves alone.

        Where they are depends on kinds of steps, not on sizes: another batch finds the same code.
        """
        start, counted = done[0]
        if self.plan.work - counted < 2 * BUDGET:
            return
        written = (i for i, step in enumerate(self.steps) if self.guarded and step.may_write(self.guarded))
        end = min(next(written, len(self.steps)), len(self.steps) - 1)
        steps, place, looked = list(self.steps), start, start
        self.steps.clear()
        for count, work in done[1:]:
            new = steps[place:count]
            self.steps += new
            place = count
            if count <= end and (count - looked >= STEPS_BETWEEN_LOOKS or any(step.is_long for step in new)):
                self.steps.append(Poll(min(work - counted, 2.0 * BUDGET)))
                counted, looked = work, count
