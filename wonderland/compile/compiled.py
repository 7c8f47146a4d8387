"""What the compiler made of a Program: call it, or look inside."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from wonderland.compile import insight, llvm, profile
from wonderland.compile.allocate import allocate
from wonderland.compile.entry import MISS, Entry
from wonderland.compile.lower import lower_program
from wonderland.compile.memory import MemoryPlan
from wonderland.compile.nodes import Region
from wonderland.compile.schedule import schedule
from wonderland.compile.signature import Signature
from wonderland.core.program import Program


class Compiled:
    """A compiled Program: call it with flat arguments; it returns a tuple. The rest is for looking inside.

    `print` gives a summary. `source` is the Program as recorded, `stages` what each pass made of it, `program` the last
    of these. `region`, `region.schedule` and `plan` are what lowering, scheduling and allocation made, `ir` is the
    module, and `assembly()` the machine code: `print` any of them. `kernels` are descriptions; `fallbacks` names what
    NumPy evaluates, `reasons` says why. `peak_bytes` is the memory that a call takes beside its arguments: the arena
    and the results (`arena_bytes`, `result_bytes`). `seconds` says where the time of compiling went, `code_from`
    whether LLVM, the disk or this process had the machine code; `profile` measures the steps.
    """

    stages: list[tuple[str, Program]]  # (name, Program) after each pass
    entry: Entry
    ir: str
    code_from: str
    arena_bytes: int
    result_bytes: int
    reasons: dict[str, str]
    fallbacks: tuple[str, ...]

    def __init__(self, source: Program, written: dict[int, int], name: str, taken: Container[int]):
        self.source, self.written, self.name, self._taken = source, written, name, taken
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Note how long a stage takes, without the stages inside it."""
        start, inside = time.perf_counter(), sum(self.seconds.values())
        yield
        self.seconds[stage] = time.perf_counter() - start - (sum(self.seconds.values()) - inside)

    def __call__(self, *flat_args: Any) -> tuple[Any, ...]:
        out = self.entry.call(*flat_args)
        if out is MISS:
            out = self.entry.convert(flat_args)
        return (out,) if len(self.entry.outputs) == 1 else out

    @property
    def program(self) -> Program:
        return self.stages[-1][1]

    @property
    def compile_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def peak_bytes(self) -> int:
        return self.arena_bytes + self.result_bytes

    @property
    def kernels(self) -> list[str]:
        return [kernel.describe() for kernel in self.plan.kernels]

    @property
    def region(self) -> Region:
        """The nodes; `region.schedule` has the units."""
        return self._inside[0]

    @property
    def plan(self) -> MemoryPlan:
        return self._inside[1]

    @cached_property
    def _inside(self) -> tuple[Region, MemoryPlan]:
        """What was between Program and text is made again for those who look: it takes more memory than the code."""
        signature = Signature(self.program, self.written, self._taken)
        region = lower_program(self.program, signature)
        schedule(region)
        plan = allocate(region, signature)
        plan.place_buffers()
        return region, plan

    def assembly(self) -> str:
        """The machine code, for a person to read."""
        return llvm.assembly(self.ir)

    def memory_plan(self) -> str:
        """The buffers of the arena: where they lie, and when they are in use."""
        return str(self.plan)

    def profile(self, *flat_args: Any) -> profile.Profile:
        """Time per step on these flat arguments, which stay as they are."""
        return profile.profile(self, flat_args)

    __str__: Any = insight.describe
    __repr__: Any = insight.one_line
    _repr_html_: Any = insight.as_html
