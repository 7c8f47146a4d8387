"""Steps: what the native code does, one after the other, in memory that is planned. Each knows how it is emitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from wonderland.compile import ir, signals
from wonderland.compile.kernel import Kernel, launcher
from wonderland.compile.memory import Buffer
from wonderland.compile.text import size


class Step(ABC):
    """Something that is done."""

    @property
    def bodies(self) -> Sequence[list[Step]]:
        """Steps that are part of it."""
        return ()

    @property
    def touched(self) -> Iterable[Buffer] | None:
        """The memory that it reads or writes; None: nothing may be moved over it."""
        return None

    @property
    def written(self) -> Iterable[Buffer]:
        """The memory that it writes, where `touched` is known."""
        return ()

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
        return self.touched is None or not buffers.isdisjoint(self.written)


class RunKernel(Step):
    """Call a kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    @property
    def touched(self) -> Iterable[Buffer] | None:
        """One that can fail comes before what is written."""
        return None if self.kernel.checks else [buffer for buffer, _ in self.kernel.params]

    @property
    def written(self) -> Iterable[Buffer]:
        return self.kernel.written

    def may_write(self, buffers: set[Buffer]) -> bool:
        return not buffers.isdisjoint(self.written)

    def emit(self, out: Any, f: ir.Function) -> None:
        body = out.kernel(self.kernel)
        function = out.once(f"{body.name}.all", lambda: launcher(body)) if self.kernel.parallel else body
        f.call(function, *out.kernel_arguments(f, self.kernel))
        if self.kernel.checks:
            out.leave_if_failed(f)

    def __str__(self) -> str:
        return f"kernel {self.kernel.describe()}"


class Copy(Step):
    """Copy whole buffers."""

    def __init__(self, to: Buffer, source: Buffer, size: int):
        self.to: Buffer = to
        self.source: Buffer = source
        self.size: int = size

    def emit(self, out: Any, f: ir.Function) -> None:
        if self.size:
            to, source = out.pointer(f, self.to), out.pointer(f, self.source)
            f.copy(to, source, self.size if self.size <= 16 else out.number(f, self.size))

    def __str__(self) -> str:
        return f"copy of {size(self.size)}"


class Poll(Step):
    """Count work; when enough is done, look at signals, and leave if they stop the run."""

    def __init__(self, work: float):
        self.work: int = math.ceil(work)

    def emit(self, out: Any, f: ir.Function) -> None:
        place = out.cell(f, signals.BUDGET_WORD)
        left = f.load(ir.LONG, place) - out.number(f, self.work)
        f.store(left, place)
        with f.when(left < 0):
            f.call(signals.POLL, out.arena)
            out.polls = True
            out.leave_if_failed(f)

    def __str__(self) -> str:
        return "a look at signals"
