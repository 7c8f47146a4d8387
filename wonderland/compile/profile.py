"""Time per step of a compiled Program: flat arguments come in, a table of steps and their times goes out.

The Program is compiled once more with a clock around every step; the code that ordinary calls run has none. What a call
changes (written arguments) is copied first, so that profiling changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from wonderland.compile import llvm
from wonderland.compile.plan import Buffer, Copy, Poll, RunBranch, RunCall, RunGemm, RunKernel, RunLoop

WARM_UP, MOST_CALLS, ENOUGH_SECONDS = 2, 1000, 0.3
WORDS = 2  # per step: nanoseconds, times
DECLARATION = "declare i64 @wl_clock()"


class Watch:
    """Puts a clock around the steps that a driver emits, and keeps what it showed."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []  # depth (inside loops and branches) and description
        self.counts = np.zeros(0, np.int64)
        self._depth = 0
        self._place = Buffer("address")  # of the counts: known when all steps are

    def around(self, driver: Any, f: Any, step: Any, emit: Callable[[Any, Any], None]) -> None:
        """Emit one step, timed."""
        number = len(self.steps)
        self.steps.append((self._depth, step_text(step)))
        driver.declared.add(DECLARATION)
        start = f.let("call i64 @wl_clock()")
        self._depth += 1
        emit(f, step)
        self._depth -= 1
        taken = f.let(f"sub i64 {f.let('call i64 @wl_clock()')}, {start}")
        base = f.let(f"inttoptr i64 {driver.number(f, self._place, self._place)} to ptr")
        for word, value in enumerate((taken, "1")):
            at = f.let(f"getelementptr i64, ptr {base}, i64 {WORDS * number + word}")
            before = f.let(f"load i64, ptr {at}, align 8")
            f.do(f"store i64 {f.let(f'add i64 {before}, {value}')}, ptr {at}, align 8")

    def finish(self) -> None:
        """Make room for the counts; before the driver's numbers are taken."""
        self.counts: Any = np.zeros(max(WORDS * len(self.steps), 1), np.int64)
        self._place.offset = self.counts.__array_interface__["data"][0]


class Profile:
    """How long each step of a call takes. `print` shows it as a table.

    `steps` has a tuple (depth, description, runs per call, seconds per call) for each step, in the order of the code;
    a step of depth 1 or more is part of the loop or branch above it. `seconds` is a whole call, with checking the
    arguments and making the results.
    """

    name: str
    calls: int
    seconds: float

    def __init__(self, name: str, calls: int, seconds: float, watch: Watch):
        self.name, self.calls, self.seconds = name, calls, seconds
        self.steps: list[tuple[int, str, float, float]] = [
            (depth, text, int(watch.counts[WORDS * i + 1]) / calls, int(watch.counts[WORDS * i]) / calls * 1e-9)
            for i, (depth, text) in enumerate(watch.steps)
        ]

    def __str__(self) -> str:
        rows = [("time", "share", "runs", "step")]
        for depth, text, runs, seconds in self.steps:
            first, *rest = text.splitlines()
            rows.append((duration(seconds), self._share(seconds), f"{runs:g}", "  " * depth + first))
            rows += [("", "", "", "  " * depth + line) for line in rest]
        inside = sum(seconds for depth, _, _, seconds in self.steps if depth == 0)
        around = max(self.seconds - inside, 0.0)
        rows.append((duration(around), self._share(around), "1", "call: arguments, results, the clock itself"))
        head = f"{self.name}: {duration(self.seconds)} per call, mean of {count_of(self.calls, 'call')}"
        return "\n".join([head, *(f"{a:>10} {b:>6} {c:>8}  {d}".rstrip() for a, b, c, d in rows)])

    __repr__ = __str__

    def _share(self, seconds: float) -> str:
        return f"{100 * seconds / max(self.seconds, 1e-12):.1f}%"


def profile(compiled: Any, flat_args: Sequence[Any]) -> Profile:
    """Run a compiled Program with clocks in it on these arguments, many times if it is short."""
    watch = Watch()
    timed = type(compiled)(compiled.source, compiled.written, compiled.name, watch)
    written = set(compiled.written.values())
    args = [np.array(value) if i in written else value for i, value in enumerate(flat_args)]
    for _ in range(WARM_UP):
        timed(*args)
    watch.counts[:] = 0
    calls, start = 0, time.perf_counter()
    while calls < MOST_CALLS and (calls == 0 or time.perf_counter() - start < ENOUGH_SECONDS):
        timed(*args)
        calls += 1
    return Profile(compiled.name or "program", calls, (time.perf_counter() - start) / calls, watch)


def step_text(step: Any) -> str:
    """A step for a person to read."""
    if isinstance(step, RunKernel):
        return f"kernel {step.kernel.description}"
    if isinstance(step, RunGemm):
        node = step.node
        batch = f"{step.total} " if step.total != 1 else ""
        text = f"{batch}product{'s' if batch else ''} {node.m}x{node.k} by {node.k}x{node.n}, {node.dtype.name}"
        follows = "" if step.epilogue is None else f"kernel {step.epilogue.description}".replace("\n", "\n  ")
        return f"{text}, then on its rows\n  {follows}" if follows else text
    if isinstance(step, RunCall):
        return f"{step.node.name}, by NumPy"
    if isinstance(step, Copy):
        return f"copy of {size(step.size)}"
    if isinstance(step, Poll):
        return "a look at signals"
    if isinstance(step, RunBranch):
        return f"one of {len(step.bodies)} branches"
    if isinstance(step, RunLoop):
        return "loop" if step.static is None else f"loop of {count_of(step.static, 'turn')}"
    return type(step).__name__


def count_of(number: int, noun: str) -> str:
    """1 buffer, 2 buffers."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Bytes for a person to read."""
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{_short(count / 1024**power)} {' KMGT'[power]}B"


def duration(seconds: float) -> str:
    """A time for a person to read."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{_short(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


@cache
def clock() -> int:
    """Address of a native function that tells the time in nanoseconds."""
    if os.name == "posix":
        _keep.append(llvm.compile_library(CLOCK.replace("$CLOCK", str(int(time.CLOCK_MONOTONIC))), ["wl_clock"]))
        return _keep[-1].address("wl_clock")
    _keep.append(ctypes.CFUNCTYPE(ctypes.c_int64)(time.perf_counter_ns))
    return ctypes.cast(_keep[-1], ctypes.c_void_p).value or 0


_keep: list[Any] = []
CLOCK = """
declare i32 @clock_gettime(i32, ptr)
define i64 @wl_clock() {
  %time = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}
"""
