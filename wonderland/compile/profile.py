"""Time per step of a compiled Program: flat arguments come in, a table of steps and their times goes out.

The Program is compiled once more with a clock around every step; the code that ordinary calls run has none. What a call
changes (written arguments) is copied first, so that profiling changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from wonderland.compile.ir import INT, LONG, POINTER, External, Function, Module, Resident
from wonderland.compile.memory import Buffer
from wonderland.compile.text import count_of, duration
from wonderland.core.forks import loading

WARM_UP, MOST_CALLS, ENOUGH_SECONDS = 2, 1000, 0.3
WORDS = 2  # per step: nanoseconds, times


class Watch:
    """Puts a clock around the steps that are emitted, and keeps what it showed."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []  # depth (inside loops and branches) and description
        self.counts = np.zeros(0, np.int64)
        self._depth = 0
        self._place = Buffer("address")  # of the counts: known when all steps are

    def around(self, out: Any, f: Function, step: Any) -> None:
        """Emit one step, timed."""
        number = len(self.steps)
        self.steps.append((self._depth, str(step)))
        start = f.call(CLOCK)
        self._depth += 1
        step.emit(out, f)
        self._depth -= 1
        taken, base = f.call(CLOCK) - start, out.pointer(f, self._place)
        for word, value in enumerate((taken, 1)):
            at = f.element(LONG, base, WORDS * number + word)
            f.store(f.load(LONG, at) + value, at)

    def finish(self) -> None:
        """Make room for the counts; before the numbers of the table are taken."""
        self.counts: Any = np.zeros(max(WORDS * len(self.steps), 1), np.int64)
        self._place.offset = self.counts.__array_interface__["data"][0]


@dataclass(eq=False, repr=False)
class Profile:
    """How long each step of a call takes. `print` shows it as a table.

    `steps` has a tuple (depth, description, runs per call, seconds per call) for each step, in the order of the code;
    a step of depth 1 or more is part of the loop or branch above it. `seconds` is a whole call, with checking the
    arguments and making the results.
    """

    name: str
    calls: int
    seconds: float
    steps: list[tuple[int, str, float, float]]

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
    with loading():
        from wonderland.compile.stages import compile_program

    timed = compile_program(compiled.source, compiled.written, compiled.name, watch=watch)
    written = set(compiled.written.values())
    args = [np.array(value) if i in written else value for i, value in enumerate(flat_args)]
    for _ in range(WARM_UP):
        timed(*args)
    watch.counts[:] = 0
    calls, start = 0, time.perf_counter()
    while calls < MOST_CALLS and (calls == 0 or time.perf_counter() - start < ENOUGH_SECONDS):
        timed(*args)
        calls += 1
    seconds = (time.perf_counter() - start) / calls
    counts = (watch.counts[: WORDS * len(watch.steps)].reshape(-1, WORDS) / calls).tolist()
    steps = [(*step, runs, taken * 1e-9) for step, (taken, runs) in zip(watch.steps, counts, strict=True)]
    return Profile(compiled.name or "program", calls, seconds, steps)


def _clock() -> Module:
    """A native function that tells the time in nanoseconds."""
    f = Function(CLOCK.name, [], LONG, exported=True)
    now = f.stack(LONG, 2)
    gettime = External("clock_gettime", INT, (INT, POINTER))
    f.call(gettime, f.constant(time.CLOCK_MONOTONIC, INT), now)
    f.ret(f.load(LONG, now) * 1_000_000_000 + f.load(LONG, f.element(LONG, now, 1)))
    return Module(f, as_written=True)


@cache
def _pythons_clock() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(time.perf_counter_ns)


if os.name == "posix":
    CLOCK = Resident(_clock).external("wl_clock", LONG, ())
else:
    CLOCK = External("wl_clock", LONG, (), address=lambda: ctypes.cast(_pythons_clock(), ctypes.c_void_p).value or 0)
