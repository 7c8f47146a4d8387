"""Loops and branches: the nodes, whose regions are planned inside that around them, and their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from wonderland.compile import ir, signals
from wonderland.compile.allocate import Target
from wonderland.compile.loops import note_failure
from wonderland.compile.memory import Buffer
from wonderland.compile.nodes import STEP, Leaf, Node, Region, Several, contiguous_strides
from wonderland.compile.sites import OUT_OF_MEMORY
from wonderland.compile.steps import Poll, Step
from wonderland.compile.text import count_of

LOOP_NANOSECONDS = 1e5


class Nested(Several):
    """A node that runs regions."""

    @property
    def can_fail(self) -> bool:
        return any(region.can_fail for region in self.regions)

    @property
    def has_effect(self) -> bool:
        return any(region.has_effect for region in self.regions)

    def captured(self) -> list[Node]:
        return [n for region in self.regions for n in region.captured()]


class Branch(Nested):
    """One of several regions, chosen by an integer (clamped)."""

    def __init__(self, index: Node, regions: list[Region]):
        super().__init__()
        self.index: Node = index
        self.regions = regions

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.index, *self.captured())

    @property
    def nanoseconds(self) -> float:
        return STEP + max((region.nanoseconds for region in self.regions), default=0.0)

    def plan(self, plan: Any, position: int) -> None:
        targets = [Target(plan.own(r)) for r in self.results]
        polls = plan.polls and not plan.guarded
        plan.add(RunBranch(plan.memory[self.index], [plan.inner(region, targets, polls) for region in self.regions]))


@dataclass(eq=False)
class RunBranch(Step):
    """One of several lists of steps."""

    index: Buffer
    bodies: Sequence[list[Step]]

    def emit(self, out: Any, f: ir.Function) -> None:
        index = f.load(ir.LONG, out.pointer(f, self.index))
        labels, done = [f.fresh("branch") for _ in self.bodies], f.fresh("chosen")
        f.switch(f.min(f.max(index, 0), len(self.bodies) - 1), labels)
        for label, body in zip(labels, self.bodies, strict=True):
            f.start(label)
            out.call(f, "branch", body)
            f.jump(done)
        f.start(done)

    def __str__(self) -> str:
        return f"one of {len(self.bodies)} branches"


class Loop(Nested):
    """A region run many times, then that of its condition if there is one; `wonderland.control` has the three forms."""

    def __init__(self, initial: Sequence[Node], xs: Sequence[Node], length: int | Node | None, reverse: bool):
        super().__init__()
        self.initial, self.xs, self.length, self.reverse = tuple(initial), tuple(xs), length, reverse
        self.carry: tuple[Leaf, ...] = ()
        self.slices: tuple[Leaf, ...] = ()  # of xs
        self.pace: int = 0  # nanoseconds of a turn, if the loop looks at signals

    @property
    def can_fail(self) -> bool:
        return self.pace > 0 or any(region.can_fail for region in self.regions)

    @property
    def memory(self) -> tuple[Node, ...]:
        own, length = {*self.carry, *self.slices}, (self.length,) if isinstance(self.length, Node) else ()
        return (*length, *self.initial, *(x.base for x in self.xs), *(n for n in self.captured() if n not in own))

    @property
    def turn(self) -> float:
        """Nanoseconds of a turn, as estimated."""
        return STEP + sum(region.nanoseconds for region in self.regions)

    @property
    def nanoseconds(self) -> float:
        """Without what the loop counts itself."""
        turns = signals.GROUP if self.pace else self.length  # those after the last group aren't counted
        return turns * self.turn if isinstance(turns, int) else 0.0

    def plan(self, plan: Any, position: int) -> None:
        for leaf, initial, result in zip(self.carry, self.initial, self.results, strict=False):
            plan.memory[leaf] = plan.update(result, initial.base, position)
        run = RunLoop(self, plan.plan.cell())
        if isinstance(self.length, Node):
            run.length = plan.memory[self.length]
        for leaf, x in zip(self.slices, self.xs, strict=True):
            offset, strides = x.layout if None not in x.shape else (0, contiguous_strides((1, *x.shape[1:])))
            size = x.dtype.itemsize
            place = (plan.memory[x.base], run.counter, strides[0] * size, offset * size)
            plan.memory[leaf] = Buffer("slice", leaf.bytes, place)
        results, polls = list(self.results[len(self.carry) :]), self.pace > 0
        targets = [Target(plan.memory[leaf]) for leaf in self.carry]
        body, *conditions = self.regions
        for condition in conditions:
            run.count, predicate = plan.own(results.pop(0)), plan.scratch(1)
            run.condition, run.predicate = plan.inner(condition, [Target(predicate)], polls), predicate
        for result in results:
            row = math.prod(result.shape[1:]) * result.dtype.itemsize
            buffer = plan.own(result)
            if buffer.place == "heap":
                run.heaps.append((buffer, row))
            targets.append(Target(Buffer("slice", row, (buffer, run.counter, row, 0))))
        run.body = plan.inner(body, targets, polls)
        run.bodies = [run.condition, run.body]
        if run.predicate is not None:
            run.predicate.touch(plan.plan.position)
        plan.add(run, LOOP_NANOSECONDS)


@dataclass(eq=False)
class RunLoop(Step):
    """Steps again and again."""

    node: Loop
    counter: int  # a cell
    length: Buffer | None = None
    predicate: Buffer | None = None
    count: Buffer | None = None
    heaps: list[tuple[Buffer, int]] = field(default_factory=list)  # growing results and the bytes of a row
    condition: list[Step] = field(default_factory=list)
    body: list[Step] = field(default_factory=list)

    def emit(self, out: Any, f: ir.Function) -> None:
        if self.node.length == 0:
            return
        trip: ir.Value | None = None
        if isinstance(self.node.length, int):
            trip = out.number(f, self.node.length)
        elif self.length is not None:
            trip = f.load(ir.LONG, out.pointer(f, self.length))
        if trip is not None:
            for buffer, row in self.heaps:
                _reserve(out, f, buffer, trip * out.number(f, row))
                f.store(trip, out.cell(f, buffer.data + 1))
        turn = f.variable(0)
        with f.again_while(lambda: self._goes_on(out, f, turn, trip)):
            t = turn.get()
            f.store(trip - 1 - t if self.node.reverse and trip is not None else t, out.cell(f, self.counter))
            turn.set(f.add(t, 1, "nuw nsw"))
            if trip is None:
                for buffer, row in self.heaps:
                    _reserve(out, f, buffer, turn.get() * out.number(f, row))
            out.call(f, "body", self.body)
            if self.node.pace:
                self._poll(out, f, turn.get())
        if trip is None:
            assert self.count is not None
            for place in (*(out.cell(f, b.data + 1) for b, _ in self.heaps), out.pointer(f, self.count)):
                f.store(turn.get(), place)

    def _goes_on(self, out: Any, f: ir.Function, turn: ir.Variable, trip: ir.Value | None) -> ir.Value:
        fine = f.load(ir.LONG, out.arena).equals(0)
        if trip is not None:
            return (turn.get() < trip) & fine
        assert self.predicate is not None
        out.call(f, "condition", self.condition)
        return f.load(ir.BYTE, out.pointer(f, self.predicate)).differs(0) & fine

    def _poll(self, out: Any, f: ir.Function, turn: ir.Value) -> None:
        """Count the work of a turn; if it is little, that of several at once."""
        pace = self.node.pace
        if pace * signals.GROUP > signals.BUDGET:
            Poll(pace).emit(out, f)
            return
        with f.when((turn & (signals.GROUP - 1)).equals(0)):
            Poll(pace * signals.GROUP).emit(out, f)

    def __str__(self) -> str:
        return f"loop of {count_of(self.node.length, 'turn')}" if isinstance(self.node.length, int) else "loop"


def _reserve(out: Any, f: ir.Function, buffer: Buffer, size: ir.Value) -> None:
    """Make room in a growing buffer, or leave with the error word set."""
    enough = f.call(reserve(), out.cell(f, buffer.data), size, out.arena)
    with f.unless(enough):
        out.leave(f)


@cache
def reserve() -> ir.Function:
    """Room for so many bytes in a growing buffer, whose cells are pointer, length, capacity: is there?"""
    parameters = [("cells", ir.POINTER), ("bytes", ir.LONG), ("err", ir.POINTER)]
    f = ir.Function("wl_reserve", parameters, ir.BOOL)
    cells, size, err = f.parameters
    place = f.element(ir.LONG, cells, 2)
    capacity = f.load(ir.LONG, place)
    with f.when(capacity.below(size)):
        larger = f.max(f.max(capacity << 1, 4096, signed=False), size, signed=False)
        realloc = ir.External("realloc", ir.POINTER, (ir.POINTER, ir.LONG))
        new = f.call(realloc, f.load(ir.POINTER, cells), larger)
        with f.when(new.equals(None)):
            f.call(note_failure(), err, f.constant(OUT_OF_MEMORY), f.constant(0))
            f.ret(f.constant(False, ir.BOOL))
        f.store(new, cells)
        f.store(larger, place)
    f.ret(f.constant(True, ir.BOOL))
    return f
