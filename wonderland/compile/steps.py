"""Steps: what the native code does, one after the other, in memory that is planned. Each knows how it is emitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wonderland.compile import ir, launch, signals
from wonderland.compile.kernel import Kernel
from wonderland.compile.memory import Buffer
from wonderland.compile.text import size

MOST_FRESH = 1 << 16


class Step(ABC):
    """Something that is done."""

    bodies: Sequence[list[Step]] = ()  # steps that are part of it
    is_long: bool = False  # is it of a kind that often takes long?

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

    @property
    def result(self) -> Buffer | None:
        """The memory whose readers it may take along."""
        return None

    def offer(self, kernel: Kernel) -> bool | None:
        """Take a kernel along that would come after it: was it taken? None: look further."""
        return None

    def is_apart(self, read: set[Buffer], written: set[Buffer]) -> bool:
        """Is it all the same if something that reads and writes this memory comes before it?"""
        touched, changed = self.touched, self.written
        if touched is None or changed is None:
            return False
        return written.isdisjoint(b.root for b in touched) and read.isdisjoint(b.root for b in changed)

    def may_write(self, buffers: set[Buffer]) -> bool:
        """May it write to one of these?"""
        return self.written is None or not buffers.isdisjoint(self.written)


class RunKernels(Step):
    """Call a kernel, or several that don't depend on each other: these as one job."""

    def __init__(self, kernel: Kernel, position: int):
        self.kernels: list[Kernel] = [kernel]
        self.position: int = position  # in the plan
        self.fresh: int = 0  # bytes of the arena that are in use here for the sake of kernels that came later
        self._touched: set[Buffer] = {buffer for buffer, _ in kernel.params}
        self._written: set[Buffer] = set(kernel.written)

    @property
    def touched(self) -> Iterable[Buffer] | None:
        """One that can fail comes before what is written."""
        return None if self.kernels[0].checks else self._touched

    @property
    def written(self) -> Iterable[Buffer]:
        return self._written

    def is_apart(self, read: set[Buffer], written: set[Buffer]) -> bool:
        """The same for many in little time: these have no slices of memory."""
        if len(self.kernels) == 1:
            return super().is_apart(read, written)
        return written.isdisjoint(self._touched) and read.isdisjoint(self._written)

    def join(self, kernel: Kernel) -> bool:
        """Take a kernel along that doesn't depend on them, if it needs little memory earlier than it would."""
        worth = len(self.kernels) > 1 or any(map(launch.is_worth_sharing, (*self.kernels, kernel)))
        if not worth or not launch.may_share(self.kernels[0]) or not launch.may_share(kernel):
            return False
        early = [b for b in kernel.written if b.place == "arena" and b.first > self.position]
        fresh = self.fresh + sum(buffer.bytes for buffer in early)
        if fresh > MOST_FRESH:
            return False
        self.fresh = fresh
        self.kernels.append(kernel)
        self._touched |= {buffer for buffer, _ in kernel.params}
        self._written |= kernel.written
        for buffer in early:
            buffer.touch(self.position)
        return True

    def emit(self, out: Any, f: ir.Function) -> None:
        if len(self.kernels) > 1:
            launch.emit(out, f, self.kernels)
            return
        kernel = self.kernels[0]
        out.run_kernel(f, kernel)
        if kernel.checks:
            out.leave_if_failed(f)

    def __str__(self) -> str:
        if len(self.kernels) == 1:
            return f"kernel {self.kernels[0].describe()}"
        described = Counter(kernel.describe() for kernel in self.kernels)
        lines = [f"{count} x kernel {text}" if count > 1 else f"kernel {text}" for text, count in described.items()]
        return "\n".join([f"{len(self.kernels)} kernels in one launch", *lines]).replace("\n", "\n  ")


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
        left = f.load(ir.LONG, place) - out.entry(f, math.ceil(self.work))
        f.store(left, place)
        with f.when(left < 0):
            f.call(signals.POLL, out.arena)
            out.polls = True
            out.leave_if_failed(f)

    def __str__(self) -> str:
        return "a look at signals"
