"""Launches: kernels that don't depend on each other come in, one job of the pool goes out.

An optimiser updates every array of a tree by the same few operations: many kernels of one text, most of them too short
to be worth waking a thread. Here the pieces of all of them are one range of work. What differs between kernels is data,
a block of words: which function, where its memory is, its own table. The code grows with the number of different
functions only. Each piece is the one that the kernel alone would have had, so that results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from wonderland.compile import ir, pool
from wonderland.compile.kernel import CHUNK_NANOSECONDS, PARALLEL_NANOSECONDS, Kernel
from wonderland.compile.memory import Buffer

ARENA, NOWHERE = -1, -2  # what an address counts from, if it isn't a slot; minus the place in the context
CONTEXT = 4  # words: slots, arena, null, the block; then the functions
PIECE, POINTER = 3, 3  # words of a piece (place of its kernel, begin, end) and of a pointer (base, offset, offset)
PLACES = ("slot", "arena", "address")  # where memory is found by a number, the same throughout a run


def may_share(kernel: Kernel) -> bool:
    """Can a kernel run in one job with others that it doesn't depend on?"""
    return not kernel.checks and all(buffer.place in PLACES for buffer, _ in kernel.params)


def is_worth_sharing(kernel: Kernel) -> bool:
    """Is it worth waking threads for, or nearly?"""
    return kernel.parallel and kernel.work > PARALLEL_NANOSECONDS / 4


def emit(out: Any, f: ir.Function, kernels: Sequence[Kernel]) -> None:
    """The job. `out` is the `Emission`."""
    functions = [out.kernel(kernel) for kernel in kernels]  # their tables are complete when they are written
    tasks: dict[ir.Function, ir.Function] = {}
    entries = []
    for body, kernel in zip(functions, kernels, strict=True):
        tasks[body] = out.once(f"{body.name}.piece", partial(_piece, body, kernel))
        entries.append([list(tasks).index(body), *_entry(kernel)])
    chunks = list(_chunks(kernels))
    block = out.behind(f, _block(chunks, entries))
    context = [out.slots, out.arena, ir.constant(None, ir.POINTER), block, *(f.at(task) for task in tasks.values())]
    f.call(pool.PARALLEL, f.at(out.once("wl_pieces", _pieces)), out.record(f, context), out.number(f, len(chunks)))


def _chunks(kernels: Sequence[Kernel]) -> Iterator[list[tuple[int, int, int]]]:
    """The pieces of all kernels, as (number of the kernel, begin, end); small ones share a chunk."""
    chunk, work = [], 0.0
    enough = CHUNK_NANOSECONDS if sum(k.work for k in kernels) > PARALLEL_NANOSECONDS else float("inf")
    for number, kernel in enumerate(kernels):
        pieces, grain, total = kernel.table[:3] if kernel.parallel else (1, 1, 1)
        for begin in range(0, total, grain):
            if chunk and work + kernel.work / pieces > enough:
                yield chunk
                chunk, work = [], 0.0
            chunk.append((number, begin, min(begin + grain, total)))
            work += kernel.work / pieces
    yield chunk


def _entry(kernel: Kernel) -> Iterator[int | Buffer]:
    """The memory of a kernel as numbers, then its table."""
    for buffer, offset in kernel.params:
        yield {"slot": buffer.data, "arena": ARENA, "address": NOWHERE}[buffer.place]
        yield 0 if buffer.place == "slot" else buffer
        yield offset
    yield from kernel.table


def _block(chunks: list[list[tuple[int, int, int]]], entries: list[list[Any]]) -> list[int | Buffer]:
    """Where the pieces of each chunk begin, the pieces, the kernels; places are counted from the start."""
    first = len(chunks) + 1
    starts, places = [first], [first + PIECE * sum(map(len, chunks))]
    for chunk in chunks:
        starts.append(starts[-1] + PIECE * len(chunk))
    for entry in entries[:-1]:
        places.append(places[-1] + len(entry))
    pieces = [word for chunk in chunks for number, *bounds in chunk for word in (places[number], *bounds)]
    return [*starts, *pieces, *(word for entry in entries for word in entry)]


def _pieces() -> ir.Function:
    """The task of the pool: the pieces of a chunk, one after the other."""
    f = ir.Function("", [("context", ir.POINTER), ("chunk", ir.LONG)])
    context, chunk = f.parameters
    block = f.load(ir.POINTER, f.element(ir.LONG, context, CONTEXT - 1))
    first, last = (f.load(ir.LONG, f.element(ir.LONG, block, chunk + i)) for i in range(2))
    with f.loop(first, last, PIECE) as at:
        place, begin, end = (f.load(ir.LONG, f.element(ir.LONG, block, at + i)) for i in range(PIECE))
        entry = f.element(ir.LONG, block, place)
        task = f.load(ir.POINTER, f.element(ir.LONG, context, f.load(ir.LONG, entry) + CONTEXT))
        f.call_at(task, ir.VOID, context, f.element(ir.LONG, entry, 1), begin, end)
    return f


def _piece(body: ir.Function, kernel: Kernel) -> ir.Function:
    """A piece of a kernel whose memory is given by numbers."""
    parameters = [("context", ir.POINTER), ("given", ir.POINTER), ("begin", ir.LONG), ("end", ir.LONG)]
    f = ir.Function("", parameters)
    context, given, *bounds = f.parameters
    slots, pointers = f.load(ir.POINTER, context), []
    for i in range(0, POINTER * len(kernel.params), POINTER):
        base, start, offset = (f.load(ir.LONG, f.element(ir.LONG, given, i + j)) for j in range(POINTER))
        other = f.element(ir.LONG, context, f.neg(base))
        place = f.select(base < 0, other, f.element(ir.LONG, slots, base, inbounds=False))
        pointers.append(f.element(ir.BYTE, f.load(ir.POINTER, place), start + offset, inbounds=False))
    table = f.element(ir.LONG, given, POINTER * len(kernel.params))
    f.call(body, *pointers, table, *(bounds if kernel.parallel else ()))
    return f
