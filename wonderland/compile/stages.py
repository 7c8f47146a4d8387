"""The compiler from the top: a closed Program comes in, a native function of its flat arguments goes out.

| stage | what comes out |
|---|---|
| `passes` | a shorter Program that computes the same |
| `lower` | a region of nodes: what is to be computed, on strided memory |
| `schedule` | units in order: clusters of nodes that become one loop nest, and nodes by themselves |
| `allocate` | a memory plan: steps in order, and the buffers they read and write |
| `emit` | a module of LLVM IR |
| `build` | machine code, kept by its text, and the native function that Python calls |
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from wonderland.compile import insight, llvm, passes
from wonderland.compile.allocate import allocate
from wonderland.compile.build import build
from wonderland.compile.calls import Callbacks
from wonderland.compile.compiled import Compiled
from wonderland.compile.emit import emit
from wonderland.compile.lower import lower_program
from wonderland.compile.schedule import schedule
from wonderland.compile.signature import Signature
from wonderland.core.program import Program


def compile_program(
    program: Program, written: dict[int, int] | None = None, name: str = "", taken: Container[int] = (),
    watch: Any = None, groups: Sequence[int] = (),
) -> Compiled:  # fmt: skip
    """Compile a closed Program. `written[output] = input`: that output replaces the contents of that input.

    Written outputs that are in `taken` are among the results too, as the arrays that they were written to. `watch` puts
    clocks around the steps. `groups`: of each input, as the entry's `Input` has it.
    """
    done = Compiled(program, dict(written or {}), name, taken)
    with insight.progress(name, program):
        with done.timing("passes"):
            done.stages = passes.optimize(program)
        signature = Signature(done.program, done.written, taken, groups)
        with llvm.lock:
            with done.timing("lower"):
                region = lower_program(done.program, signature)
            with done.timing("schedule"):
                schedule(region)
            with done.timing("allocate"):
                plan = allocate(region, signature)
            with done.timing("emit"):
                emission = emit(plan, Callbacks(), watch)
            with done.timing("build"):
                build(done, signature, emission)
    insight.debug(done)
    return done
