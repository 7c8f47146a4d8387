"""Many seeds through one Program, as many at a time as memory allows.

A Program of one seed (a tangent, a cotangent) comes in; what it gives for a whole row of them goes out, by batched
passes over chunk after chunk. In recorded code the chunks are a loop, so that code doesn't grow with their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.later import Slot
from wonderland.core.level import bind_update, running
from wonderland.core.program import Program, Record, hoist
from wonderland.core.tracer import Tracer
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import eq, mul
from wonderland.ops.index import np_slice, scatter_slice, slice
from wonderland.ops.shape import convert, reshape, zeros_like_type
from wonderland.ops.work import bytes_of, peak_bytes
from wonderland.transform.batch import Batch, BatchedValue, materialize
from wonderland.transform.programs import record

# Bytes of a batched pass, beside what it returns: in compiled code what stays in the cache is faster.
EAGER_BUDGET, COMPILED_BUDGET = 2**28, 2**24
MOST_CONSTANT = 512  # unit vectors that compiled code has as constants


loop: Slot[..., Sequence[Any]] = Slot("loop")  # the primitive that loops


def batched(f: Callable[[list[Any]], Sequence[Any]], seeds: Sequence[Any]) -> list[Any]:
    """`f` on values that have a batch at axis 0; so have the results."""
    size = shape_of(seeds[0])[0]
    with Batch(size) as level:
        outs = f([BatchedValue(level, seed) for seed in seeds])
        return [materialize(size, *level.split(out)) for out in outs]


def unit_vectors(numbers: Any, types: Sequence[ArrayType], colors: np.ndarray | None = None) -> list[Any]:
    """The unit vectors of a tree that have these numbers: for each leaf an array (count, *leaf.shape).

    Elements are numbered one after another; or they have `colors`, and those of one colour are 1 together.
    """
    out, start = [], 0
    for t in types:
        stop = start + t.size
        own = np.arange(start, stop) if colors is None else colors[start:stop]
        ones = eq(reshape(numbers, shape=(*shape_of(numbers), 1)), own)
        out.append(reshape(convert(ones, dtype=t.dtype), shape=(*shape_of(numbers), *t.shape)))
        start = stop
    return out


def check_chunks(chunk_size: Any, memory_budget: Any, name: str) -> None:
    """Refuse what says no number of seeds."""
    whole = isinstance(chunk_size, (int, np.integer)) and not isinstance(chunk_size, bool) and chunk_size > 0
    if not (whole or chunk_size is None or chunk_size == "auto"):
        raise ArgumentError(
            f'{name}: chunk_size is how many seeds go through in one batched pass: a positive integer, "auto" (as many '
            f"as memory_budget allows) or None (all at once), not {chunk_size!r}"
        )
    number = isinstance(memory_budget, (int, float, np.number)) and not isinstance(memory_budget, bool)
    if memory_budget is not None and not (number and memory_budget > 0):
        raise ArgumentError(f"{name}: memory_budget is a positive number of bytes, not {memory_budget!r}")


def chunk_of(program: Program, chunk_size: Any, memory_budget: float | None) -> int | None:
    """How many seeds go through a Program at once; None for all."""
    if chunk_size != "auto":
        return chunk_size
    if memory_budget == math.inf:
        return None
    if memory_budget is None:
        memory_budget = COMPILED_BUDGET if recording() else EAGER_BUDGET
    seed = sum(bytes_of(v.type) for v in program.inputs) + peak_bytes(program)
    return max(1, int(memory_budget // max(1, seed)))


def recording() -> Record | None:
    """The level that writes down what is done, if there is one."""
    return next((level for level in reversed(running()) if isinstance(level, Record) and level.once), None)


def in_chunks(f: Callable[[Any], Sequence[Any]], total: int, size: int | None) -> list[Any]:
    """`f(numbers)`, which returns values (count, ...), on 0, 1, ..., total - 1, `size` of them at a time."""
    level = recording()
    if size is None or size >= total:
        numbers = np.arange(total)
        # A variable has its unit vectors computed where they are used; few of them are better kept as constants.
        return list(f(level.atom(numbers) if level and total > MOST_CONSTANT else numbers))
    if level:
        return _scanned(f, total, size)
    outs: list = []
    for start in range(0, total, size):
        stop = min(start + size, total)
        parts = f(np.arange(start, stop))
        if not start:
            outs = [zeros_like_type(ArrayType((total, *shape_of(p)[1:]), type_of(p).dtype), real=True) for p in parts]
        for k, value in enumerate(parts):
            box, outs[k] = [outs[k]], None
            index = (np_slice(start, stop, 1), *(np_slice(0, n, 1) for n in shape_of(value)[1:]))
            outs[k] = bind_update(scatter_slice, box, value, index=index, mode="set")
    return outs


def _scanned(f: Callable[[Any], Sequence[Any]], total: int, size: int) -> list:
    """The chunks as a loop; the last one is filled up with its last number."""
    count = -(-total // size)
    size = -(-total // count)
    numbers = np.minimum(np.arange(count * size), total - 1).reshape(count, size)
    body, captured = hoist(record(f, [ArrayType((size,), numbers.dtype)]))
    outs = loop(
        *captured, numbers, body=body, condition=None, n_consts=len(captured), n_carry=0, length=count, reverse=False
    )
    flat = [reshape(out, shape=(count * size, *shape_of(out)[2:])) for out in outs]
    return [part(out, 0, total, 0) for out in flat]


def sweep(
    f: Callable[[list[Any]], Sequence[Any]], types: Sequence[ArrayType], size: int | None, factor: complex = 1
) -> list[Any]:
    """`f` on all unit vectors (those of complex leaves times `factor`): values (total, ...)."""

    def chunk(numbers: Any) -> list:
        seeds = unit_vectors(numbers, types)
        if factor != 1:
            seeds = [mul(s, factor) if t.dtype.kind == "c" else s for s, t in zip(seeds, types, strict=True)]
        return batched(f, seeds)

    return in_chunks(chunk, sum(t.size for t in types), size)


def element(value: Any, k: int) -> Any:
    """Element k of a value, counted in C's order."""
    if type(value) is np.ndarray:
        return value.flat[k]
    shape = shape_of(value)
    return Tracer(value)[tuple(map(int, np.unravel_index(k, shape)))]._get() if shape else value


def part(value: Any, start: int, stop: int, axis: int) -> Any:
    """`value[start:stop]` along an axis."""
    index = [np_slice(0, n, 1) for n in shape_of(value)]
    index[axis] = np_slice(start, stop, 1)
    return slice(value, index=tuple(index))
