"""Emission: planned steps come in, a module of LLVM IR and its table of numbers go out.

`run(slots, arena, table)` calls the kernels and GEMM with their memory; loops and branches are native functions of the
same three arguments (counters live in cells at the head of the arena). Nothing in the text depends on addresses,
offsets or large extents: they are in the table. It returns 0, or the error word: a site's number, and 16 bits further
up the offending index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.compile import ir, signals
from wonderland.compile.calls import Callbacks
from wonderland.compile.kernel import Kernel, launcher
from wonderland.compile.memory import Buffer, MemoryPlan
from wonderland.compile.steps import Copy, Step

MOST_STEPS = 200  # in one function
MANY_STEPS = 24  # that take so long that the code between them needn't be fast, but should be there soon
FEW_COPIES = 4  # that are written out one by one
MOST_INLINED = 3  # calls of a kernel that LLVM may inline: equal kernels are compiled once
PARAMETERS = [("slots", "ptr noalias"), ("arena", "ptr"), ("table", "ptr noalias readonly")]
FREE = ir.External("free", ir.VOID, (ir.POINTER,))


def emit(plan: MemoryPlan, callbacks: Callbacks, watch: Any = None) -> Emission:
    """The module of a planned Program. `watch` puts a clock around steps."""
    out = Emission(plan, callbacks, watch)
    main = ir.Function("main", PARAMETERS, attributes=ir.RARE if len(plan.steps) > MANY_STEPS else "")
    out.steps(main, plan.steps)
    out.finish(main)
    return out


class Emission:
    """A module under construction: what steps ask for while they write themselves into it."""

    def __init__(self, plan: MemoryPlan, callbacks: Callbacks, watch: Any):
        self.plan: MemoryPlan = plan
        self.callbacks: Callbacks = callbacks
        self.watch: Any = watch
        self.module: ir.Module = ir.Module()
        self.polls = False  # does something look at signals?
        self.slots, self.arena, self.table = (ir.Value(ir.POINTER, f"%{name}") for name, _ in PARAMETERS)
        self._numbers: list[int | Buffer] = []
        self._behind: list[tuple[Buffer, Sequence[int | Buffer]]] = []
        self._cells: dict[Buffer, int] = {}
        self._once: dict[str, ir.Function] = {}
        self._calls: Counter[ir.Function] = Counter()  # of each kernel
        self._failing: set[ir.Function] = set()  # functions that leave early if something fails

    def numbers(self) -> np.ndarray:
        """The table; after buffers have their places."""
        numbers = list(self._numbers)
        for place, words in self._behind:
            place.offset = len(numbers)
            numbers += words
        return np.array([n.offset if isinstance(n, Buffer) else n for n in numbers] or [0], np.int64)

    # -- memory and numbers -----------------------------------------------------------------------

    def number(self, f: ir.Function, value: int | Buffer) -> ir.Value:
        """A number, or a buffer's offset, from the table. What a person would call structure (0, 1) is written out."""
        return f.constant(value) if isinstance(value, int) and value in (0, 1) else self.entry(f, value)

    def entry(self, f: ir.Function, value: int | Buffer) -> ir.Value:
        """A number that is in the table whatever it is: counts may be 1 for some sizes, and not for others."""
        new = len(self._numbers)
        at = self._cells.setdefault(value, new) if isinstance(value, Buffer) else new
        if at == new:
            self._numbers.append(value)
        return f.load(ir.LONG, f.element(ir.LONG, self.table, at), invariant=True)

    def behind(self, f: ir.Function, words: Sequence[int | Buffer]) -> ir.Value:
        """The address of words behind the table; how many they are may depend on shapes, and isn't in the text."""
        place = Buffer("table")
        self._behind.append((place, words))
        return f.element(ir.LONG, self.table, self.number(f, place))

    def cell(self, f: ir.Function, index: int) -> ir.Value:
        """The address of a word at the head of the arena."""
        return f.element(ir.LONG, self.arena, index)

    def slot(self, f: ir.Function, index: int) -> ir.Value:
        return f.element(ir.POINTER, self.slots, index)

    def pointer(self, f: ir.Function, buffer: Buffer, offset: int = 0) -> ir.Value:
        """The address of a buffer, and `offset` bytes further."""
        if buffer.place == "slot":
            found = f.load(ir.POINTER, self.slot(f, buffer.data), invariant=True)
        elif buffer.place == "arena":
            found = f.element(ir.BYTE, self.arena, self.number(f, buffer))
        elif buffer.place == "address":
            found = self.number(f, buffer).convert(ir.POINTER)
        elif buffer.place == "heap":
            found = f.load(ir.POINTER, self.cell(f, buffer.data))
        else:
            base, counter, stride, start = buffer.data
            t = f.load(ir.LONG, self.cell(f, counter))
            step = f.mul(t, self.number(f, stride), "nsw")
            found = f.element(ir.BYTE, self.pointer(f, base, start), step)
        return f.element(ir.BYTE, found, self.number(f, offset)) if offset else found

    def length(self, f: ir.Function, buffer: Buffer) -> ir.Value:
        """The leading extent of a dynamic value."""
        place = self.cell(f, buffer.data + 1) if buffer.place == "heap" else self.slot(f, buffer.data + 1)
        return f.load(ir.LONG, place)

    def record(self, f: ir.Function, words: Sequence[ir.Value]) -> ir.Value:
        """Words side by side on the stack."""
        array = f.stack(ir.array(ir.LONG, max(len(words), 1)), align=8)
        for i, word in enumerate(words):
            f.store(word, f.element(ir.LONG, array, i))
        return array

    # -- functions --------------------------------------------------------------------------------

    def steps(self, f: ir.Function, steps: Sequence[Step]) -> None:
        """Emit steps, in parts if there are many."""
        if len(steps) > MOST_STEPS:  # LLVM's time grows faster than a function: the parts stay apart
            for i in range(0, len(steps), MOST_STEPS):
                self.call(f, "part", steps[i : i + MOST_STEPS], ir.RARE)
            return
        for step in steps:
            if self.watch is None:
                step.emit(self, f)
            else:
                self.watch.around(self, f, step)

    def call(self, f: ir.Function, name: str, steps: Sequence[Step], attributes: str = "") -> None:
        """Steps as a function of their own, and its call."""
        part = ir.Function(f.fresh(f"{f.name}.{name}"), PARAMETERS, attributes=attributes)
        self.steps(part, steps)
        f.call(part, self.slots, self.arena, self.table)
        if part in self._failing:
            self.leave_if_failed(f)

    def once(self, name: str, make: Callable[[], ir.Function]) -> ir.Function:
        """A function that several steps may call."""
        if name not in self._once:
            self._once[name] = make()
            self._once[name].name = name
        return self._once[name]

    def kernel(self, kernel: Kernel) -> ir.Function:
        """The function of a kernel; equal ones share it."""
        function = self.module.share(kernel.write(), "k")
        self._calls[function] += 1
        return function

    def kernel_arguments(self, f: ir.Function, kernel: Kernel) -> list[ir.Value]:
        """The pointers that a kernel is called with; after its code is written."""
        pointers = [self.pointer(f, buffer, offset) for buffer, offset in kernel.params]
        at = len(self._numbers)
        self._numbers += kernel.table
        pointers.append(f.element(ir.LONG, self.table, at))
        return [*pointers, self.arena] if kernel.checks else pointers

    def run_kernel(self, f: ir.Function, kernel: Kernel) -> None:
        """Call a kernel. One of many calls only says where in the table it stands: LLVM is done with it sooner."""
        body = self.kernel(kernel)
        function = self.once(f"{body.name}.all", lambda: launcher(body)) if kernel.parallel else body
        places = [buffer.place for buffer, _ in kernel.params]
        if self._calls[body] <= MOST_INLINED or kernel.checks or not {"slot", "arena"}.issuperset(places):
            f.call(function, *self.kernel_arguments(f, kernel))
            return
        kinds = "".join(place[0] for place in places)
        listed = self.once(f"{function.name}.{kinds}", lambda: _by_table(function, places))
        at = len(self._numbers)
        for buffer, offset in kernel.params:
            self._numbers += [buffer.data if buffer.place == "slot" else buffer, offset]
        self._numbers += kernel.table
        f.call(listed, self.slots, self.arena, f.element(ir.LONG, self.table, at))

    def leave(self, f: ir.Function) -> None:
        """End a run that failed."""
        self._failing.add(f)
        f.ret()

    def leave_if_failed(self, f: ir.Function) -> None:
        """What follows may write to memory that a run which fails leaves alone."""
        with f.when(f.load(ir.LONG, self.arena).differs(0)):
            self.leave(f)

    def _copies(self, f: ir.Function, copies: Sequence[Copy]) -> None:
        """Copies of buffers; many from the arena to what was given are a loop over a list of them."""
        listed = [c for c in copies if (c.to.place, c.source.place) == ("slot", "arena") and c.size]
        if len(listed) <= FEW_COPIES:
            listed = []
        for copy in copies:
            if copy not in listed:
                copy.emit(self, f)
        if listed:
            words = self.behind(f, [word for c in listed for word in (c.to.data, c.source, c.size)])
            with f.loop(0, self.number(f, 3 * len(listed)), 3) as i:
                slot, source, size = (f.load(ir.LONG, f.element(ir.LONG, words, i + part)) for part in range(3))
                to = f.load(ir.POINTER, f.element(ir.POINTER, self.slots, slot))
                f.copy(to, f.element(ir.BYTE, self.arena, source), size)

    # -- the module -------------------------------------------------------------------------------

    def finish(self, main: ir.Function) -> None:
        """Write `run`, and complete the module."""
        f, plan = ir.Function("run", PARAMETERS, ir.LONG, exported=True), self.plan
        f.store(f.constant(0), self.arena)
        if self.polls:
            f.store(f.constant(signals.BUDGET), self.cell(f, signals.BUDGET_WORD))
            f.store(f.constant(0), self.cell(f, signals.TIME_WORD))
        for heap in plan.heaps:
            for i in range(3):
                f.store(f.constant(0), self.cell(f, heap.data + i))
        f.call(main, self.slots, self.arena, self.table)
        code = f.load(ir.LONG, self.arena)
        if plan.final or plan.results:
            with f.when(code.equals(0)):
                self._copies(f, plan.final)
                for buffer, slot in plan.results:
                    cells = self.cell(f, buffer.data)
                    f.store(f.load(ir.POINTER, cells), self.slot(f, slot))
                    f.store(self.length(f, buffer), self.slot(f, slot + 1))
                    f.store(f.constant(None, ir.POINTER), cells)
        for heap in plan.heaps:
            f.call(FREE, f.load(ir.POINTER, self.cell(f, heap.data)))
        f.ret(code)
        for kernel, count in self._calls.items():
            if count > MOST_INLINED:
                kernel.attributes = "noinline"
        self.module.add(f)


def _by_table(kernel: ir.Function, places: Sequence[str]) -> ir.Function:
    """A kernel that finds its memory in a table, in which its own follows: a slot or an offset, and bytes further."""
    f = ir.Function("", PARAMETERS, attributes="noinline")
    slots, arena, table = f.parameters
    pointers = []
    for i, place in enumerate(places):
        first, further = (f.load(ir.LONG, f.element(ir.LONG, table, 2 * i + part)) for part in range(2))
        is_slot = place == "slot"
        start = f.load(ir.POINTER, f.element(ir.POINTER, slots, first)) if is_slot else f.element(ir.BYTE, arena, first)
        pointers.append(f.element(ir.BYTE, start, further))
    f.call(kernel, *pointers, f.element(ir.LONG, table, 2 * len(places)))
    return f
