"""Steps: what the native code does, one after the other, in memory that is planned. Each knows how it is emitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wonderland.compile import ir, signals
from wonderland.compile.kernel import Kernel, launcher
from wonderland.compile.memory import Buffer
from wonderland.compile.text import size


class Step(ABC):
    """Something that is done."""

    bodies: Sequence[list[Step]] = ()  # steps that are part of it

    @property
    def touched(self) -> Iterable[Buffer] | None:
        """The memory that it reads or writes; None: nothing may be moved over it."""
        return None

    @property
    def written(self) -> Iterable[Buffer] | None:
        """The memory that it writes; None: it may be any."""
        return None

    @abstractmethod
    def emit(self, out: Any, f: ir.Function) -> None:
        """Write it into a function; `out` is the `Emission`."""

    @abstractmethod
    def __str__(self) -> str:
        """It, for a person to read."""

    def offer(self, kernel: Kernel) -> bool | None:
        """Take a kernel along that would come after it: was it taken? None: look further."""
        return None

    def may_write(self, buffers: set[Buffer]) -> bool:
        """May it write to one of these?"""
        return self.written is None or not buffers.isdisjoint(self.written)


@dataclass(eq=False)
class RunKernel(Step):
    """Call a kernel."""

    kernel: Kernel

    @property
    def touched(self) -> Iterable[Buffer] | None:
        """One that can fail comes before what is written."""
        return None if self.kernel.checks else [buffer for buffer, _ in self.kernel.params]

    @property
    def written(self) -> Iterable[Buffer]:
        return self.kernel.written

    def emit(self, out: Any, f: ir.Function) -> None:
        body = out.kernel(self.kernel)
        function = out.once(f"{body.name}.all", lambda: launcher(body)) if self.kernel.parallel else body
        f.call(function, *out.kernel_arguments(f, self.kernel))
        if self.kernel.checks:
            out.leave_if_failed(f)

    def __str__(self) -> str:
        return f"kernel {self.kernel.describe()}"


@dataclass(eq=False)
class Copy(Step):
    """Copy whole buffers."""

    to: Buffer
    source: Buffer
    size: int

    def emit(self, out: Any, f: ir.Function) -> None:
        if self.size:
            to, source = out.pointer(f, self.to), out.pointer(f, self.source)
            f.copy(to, source, self.size if self.size <= 16 else out.number(f, self.size))

    def __str__(self) -> str:
        return f"copy of {size(self.size)}"


@dataclass(eq=False)
class Poll(Step):
    """Count work, in nanoseconds; when enough is done, look at signals, and leave if they stop the run."""

    work: float

    def emit(self, out: Any, f: ir.Function) -> None:
        place = out.cell(f, signals.BUDGET_WORD)
        left = f.load(ir.LONG, place) - out.number(f, math.ceil(self.work))
        f.store(left, place)
        with f.when(left < 0):
            f.call(signals.POLL, out.arena)
            out.polls = True
            out.leave_if_failed(f)

    def __str__(self) -> str:
        return "a look at signals"
