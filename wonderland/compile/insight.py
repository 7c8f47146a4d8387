"""A compiled Program for a person to read: as text, as HTML for a notebook, and a line when compiling takes long."""

from __future__ import annotations

import html
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wonderland.compile.text import count_of, duration, size
from wonderland.core.program import Program, subprograms

MOST_STEPS = 30  # that a summary lists
LONG_COMPILE = 1.0  # seconds
MANY_EQUATIONS = 100  # fewer never take that long


def equation_count(program: Program) -> int:
    """The equations of a Program and of those it holds."""
    return sum(1 + sum(map(equation_count, subprograms(equation))) for equation in program.equations)


def signature(compiled: Any) -> str:
    """Name and types of a compiled function."""
    results = ", ".join(map(str, compiled.source.output_types))
    return f"{compiled.name or 'program'}({', '.join(map(str, compiled.source.input_types))}) -> {results}"


def one_line(compiled: Any) -> str:
    """What a compiled Program is, in a line."""
    steps, kernels = count_of(len(compiled.plan.steps), "step"), count_of(len(compiled.kernels), "kernel")
    return f"<compiled {compiled.name or 'program'}: {steps}, {kernels}, {size(compiled.peak_bytes)}>"


def describe(compiled: Any) -> str:
    """Where the time of compiling went, what the code does step by step, and the memory it takes."""
    facts = [f"  {name + ':':<10} {text}" for name, text in _facts(compiled)]
    return "\n".join([signature(compiled), *facts, "  steps:", *(f"    {line}" for line in _steps(compiled))])


def _facts(compiled: Any) -> list[tuple[str, str]]:
    before, after = equation_count(compiled.source), equation_count(compiled.program)
    buffers = [b for b in compiled.plan.buffers if b.last >= 0]
    apart = sum(b.bytes for b in buffers)
    facts = [
        ("program", f"{count_of(before, 'equation')}, {after:,} after the passes"),
        ("compiled", f"in {duration(compiled.compile_seconds)}; machine code from {compiled.code_from}"),
        ("stages", ", ".join(f"{name} {duration(seconds)}" for name, seconds in compiled.seconds.items())),
        ("memory", f"{size(compiled.peak_bytes)} per call: arena {size(compiled.arena_bytes)} for "
         f"{count_of(len(buffers), 'buffer')} of together {size(apart)}, results {size(compiled.result_bytes)}"
         + (", and what loops of unknown length keep" if compiled.plan.heaps else "")),
    ]  # fmt: skip
    if compiled.written:
        facts.append(("in place", f"{count_of(len(compiled.written), 'result')} written into arguments"))
    return [*facts, ("by NumPy", _by_numpy(compiled) or "nothing")]


def _by_numpy(compiled: Any) -> str:
    return ", ".join(f"{name} ({why})" for name, why in compiled.reasons.items())


def _steps(compiled: Any) -> list[str]:
    steps = list(_nested(compiled.plan.steps, 0))
    lines = []
    for number, (depth, step) in enumerate(steps[:MOST_STEPS]):
        first, *rest = str(step).splitlines()
        indent = "  " * depth
        lines += [f"{number:>3}  {indent}{first}", *(f"     {indent}{line}" for line in rest)]
    return [*lines, f"... and {len(steps) - MOST_STEPS} more"] if len(steps) > MOST_STEPS else lines


def _nested(steps: list, depth: int) -> Iterator[tuple[int, Any]]:
    for step in steps:
        yield depth, step
        for body in step.bodies:
            yield from _nested(body, depth + 1)


def as_html(compiled: Any) -> str:
    """The same for a notebook, with the stages to fold out."""
    rows = "".join(
        f"<tr style='text-align:left'><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in _facts(compiled)
    )
    folded = "".join(
        f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"
        for title, text in _parts(compiled, 4)
        if text
    )
    return f"<div><code>{html.escape(signature(compiled))}</code><table>{rows}</table>{folded}</div>"


def _parts(compiled: Any, level: int) -> Iterator[tuple[str, str]]:
    """What passes between the stages, up to a level of `WONDERLAND_DEBUG`: titles and texts."""
    if level >= 2:
        yield from ((f"Program, {name}", str(program)) for name, program in compiled.stages)
    if level >= 3:
        yield from (("nodes", str(compiled.region)), ("schedule", str(compiled.region.schedule)))
        yield from (("steps", "\n".join(_steps(compiled))), ("memory plan", compiled.memory_plan()))
        yield "by NumPy", _by_numpy(compiled)
    if level >= 4:
        yield "LLVM IR", compiled.ir
    if level >= 5:
        yield "assembly", compiled.assembly()


@contextmanager
def progress(name: str, program: Program) -> Iterator[None]:
    """Say on stderr what is being compiled if it takes more than a second: one line."""
    count = equation_count(program)
    if count < MANY_EQUATIONS:  # not worth a thread
        yield
        return
    start, said = time.perf_counter(), threading.Event()

    def say() -> None:
        said.set()
        end = " " if sys.stderr.isatty() else "\n"  # a terminal gets the time on the same line
        text = f"wonderland: compiling {name or 'a program'} ({count:,} equations) ..."
        print(text, end=end, file=sys.stderr, flush=True)

    timer = threading.Timer(LONG_COMPILE, say)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set() and sys.stderr.isatty():
            print(duration(time.perf_counter() - start), file=sys.stderr, flush=True)


def debug(compiled: Any) -> None:
    """Print what `WONDERLAND_DEBUG` asks for: 1, signature and compile time; above, `_parts`."""
    given = os.environ.get("WONDERLAND_DEBUG") or "0"
    if not given.isdecimal():
        raise ValueError(f"WONDERLAND_DEBUG is a level from 0 to 5, not {given!r}")
    if int(given):
        types = ", ".join(map(str, compiled.source.input_types))
        head = f"wonderland: compiled {compiled.name}({types}) in {compiled.compile_seconds * 1e3:.1f} ms"
        parts = (f"-- {title}\n{text}" for title, text in _parts(compiled, int(given)) if text)
        print("\n".join([head, *parts]), file=sys.stderr)
