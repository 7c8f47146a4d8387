"""Kernels: what a kernel reads and writes comes in, a native function over a range of its work goes out.

A kind of kernel is a class with a method `write`: loop nests of fused nodes (`nest`, `kernels`), code for each row of
an array (`procedures`). Its function takes a pointer for each of `params`, then the table of its numbers, then the
error word if it `checks` something, and then, if its work may be shared by threads, which part of it to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from wonderland.compile import ir, pool

if TYPE_CHECKING:
    from wonderland.compile.memory import Buffer

PARALLEL_NANOSECONDS, CHUNK_NANOSECONDS, MOST_CHUNKS = 30_000, 12_000, 64


class Kernel(ABC):
    """A kernel to be written."""

    def __init__(self) -> None:
        self.params: list[tuple[Any, int]] = []  # (buffer, offset in bytes)
        self.written: set[Any] = set()  # buffers
        self.checks: bool = False  # can it fail, and set the error word?
        self.parallel: bool = False  # then the table starts with the pieces of work, the size of one, and that of all
        self.table: list[int] = []  # numbers that the code reads; complete when it is written
        self.work: float = 0.0  # nanoseconds

    @abstractmethod
    def write(self) -> ir.Function:
        """Its code."""

    @abstractmethod
    def describe(self) -> str:
        """It, for a person to read."""

    def turns_per_row(self, product: Any) -> int | None:
        """How many turns it makes for each row of a product that it reads; None if it can't run on finished rows."""
        return None

    def reach(self) -> tuple[set[Buffer], set[Buffer]]:
        """The memory that it reads, and that it writes: it may run before a step that is apart from them."""
        return {buffer.root for buffer, _ in self.params}, {buffer.root for buffer in self.written}

    def share_work(self, total: int, grain: int) -> int:
        """Work may be done in pieces of `grain`; how many there are."""
        self.parallel = True
        pieces = -(-total // grain)
        self.table += [pieces, grain, total]
        return pieces

    def function(self, attributes: str) -> ir.Function:
        """The function to write, with its parameters."""
        buffers = [buffer for buffer, _ in self.params]
        shared = [buffer in self.written and buffers.count(buffer) > 1 for buffer in buffers]
        parameters = [(f"p{i}", "ptr" if several else "ptr noalias") for i, several in enumerate(shared)]
        parameters.append(("t", "ptr noalias readonly"))
        if self.checks:
            parameters.append(("err", "ptr"))
        if self.parallel:
            parameters += [("begin", ir.LONG), ("end", ir.LONG)]
        return ir.Function("", parameters, attributes=attributes)


def launcher(body: ir.Function) -> ir.Function:
    """A function that does the whole work of a kernel at once, or in chunks on the pool."""
    names = [value.text[1:] for value in body.parameters[:-2]]
    task = ir.Function(f"{body.name}.task", [("context", ir.POINTER), ("chunk", ir.LONG)])
    context, chunk = task.parameters
    given = {name: task.load(ir.POINTER, task.element(ir.POINTER, context, i)) for i, name in enumerate(names)}
    grain, total = (task.load(ir.LONG, task.element(ir.LONG, given["t"], i)) for i in (1, 2))
    begin = chunk * grain
    task.call(body, *given.values(), begin, task.min(begin + grain, total, signed=False))

    run = ir.Function(f"{body.name}.all", [(name, ir.POINTER) for name in names], attributes="noinline")
    table = run.parameters[names.index("t")]
    chunks = run.load(ir.LONG, table)
    with run.when(chunks.equals(1)):
        run.call(body, *run.parameters, run.constant(0), run.load(ir.LONG, run.element(ir.LONG, table, 2)))
        run.ret()
    array = run.stack(ir.array(ir.POINTER, len(names)))
    for i, pointer in enumerate(run.parameters):
        run.store(pointer, run.element(ir.POINTER, array, i))
    run.call(pool.PARALLEL, run.at(task), array, chunks)
    return run
