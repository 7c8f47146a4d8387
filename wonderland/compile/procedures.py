"""Native procedures over rows: the node, its memory, and its kernel.

What doesn't fit into a loop nest (sorting, substitution, products with sparse matrices) is written as code for one row:
a function `(code, *results, *operands, scratch)` that gets the row of each array as an `Array` and writes instructions
with `Code`. What a row is, the procedure says: the leading axes of the results number them. They are independent of
each other, and many are shared between threads. A procedure may ask for several rows at once, one in each of the
`lanes` of vectors: then it gets `Stacked` arrays (see `lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from wonderland.compile import ir
from wonderland.compile.emitter import Emitter, Scalar, memory_type
from wonderland.compile.kernel import CHUNK_NANOSECONDS, MOST_CHUNKS, PARALLEL_NANOSECONDS, Kernel
from wonderland.compile.loops import I64, Loops
from wonderland.compile.memory import ALIGNMENT, Buffer, round_up
from wonderland.compile.nodes import STEP, Node, Several, Shape, contiguous_strides, joined_axes
from wonderland.compile.scalars import literal
from wonderland.compile.sites import OfStack

Number = Scalar | int


class Procedure(Several):
    """Code of its own for each row of the results, whose leading axes, `lead`, number them.

    The operands have these axes too. `scratch` is bytes for what is done at a time, `row_cost` nanoseconds for a row;
    `failure` an exception's class and message; `lanes` how many rows are done at once, None: one, and no vectors.
    """

    def __init__(
        self, name: str, code: Callable, arrays: Sequence[Node], lead: Shape, *, scratch: int, row_cost: float,
        failure: tuple[Any, str] | None, lanes: int | None,
    ):  # fmt: skip
        super().__init__()
        self.name, self.code, self.arrays, self.lead = name, code, tuple(arrays), lead
        self.scratch: int = scratch
        self.row_cost: float = row_cost
        self.failure: tuple[Any, str] | None = failure
        self.lanes: int | None = lanes
        self.can_fail: bool = failure is not None

    @property
    def memory(self) -> tuple[Node, ...]:
        return tuple(n.base for n in self.arrays)

    @property
    def count(self) -> int:
        """Of rows."""
        return math.prod(self.lead)

    @property
    def blocks(self) -> int:
        """How many times its code runs."""
        return -(-self.count // (self.lanes or 1))

    @property
    def nanoseconds(self) -> float:
        return STEP + self.count * self.row_cost

    def plan(self, plan: Any, position: int) -> None:
        for result in self.made:
            plan.own(result)
        work = self.count * self.row_cost
        pieces = min(self.blocks, MOST_CHUNKS, max(2, int(work / CHUNK_NANOSECONDS)))
        pieces = 1 if work < PARALLEL_NANOSECONDS else pieces
        scratch = plan.scratch(round_up(self.scratch, ALIGNMENT) * pieces) if self.scratch else None
        site = None
        if self.failure is not None:
            kind, message = self.failure
            site = plan.plan.sites.number(kind, OfStack(message, self.lead) if self.lead else message)
        plan.add_kernel(RowKernel(self, plan.memory, scratch, site, pieces))

    def __str__(self) -> str:
        return f"{self.name} {', '.join(str(r.type) for r in self.made)}"


class RowKernel(Kernel):
    """The kernel of a procedure."""

    def __init__(self, node: Procedure, memory: Any, scratch: Buffer | None, site: int | None, pieces: int):
        super().__init__()
        self.node: Procedure = node
        self.scratch: Buffer | None = scratch
        self.site: int | None = site
        self.grain: int = -(-node.blocks // pieces)
        self.pieces: int = self.share_work(node.blocks, self.grain)
        made = [(n, (0, contiguous_strides(n.shape))) for n in node.made]
        self.arrays: list[tuple[Node, Any]] = [*made, *((n, n.layout) for n in node.arrays)]
        self.params = [(memory[n.base], offset * n.dtype.itemsize) for n, (offset, _) in self.arrays]
        self.written = {memory[n] for n in node.made}
        if scratch is not None:
            self.params.append((scratch, 0))
            self.written.add(scratch)
        self.checks = node.can_fail
        self.work = node.count * node.row_cost

    def write(self) -> ir.Function:
        node, code = self.node, Code(Loops(self, "noinline"), self.site)
        rank = len(node.lead)
        axes = joined_axes(node.lead, *(strides[:rank] for _, (_, strides) in self.arrays))
        parameters, extra = code.loops.parameters, {}
        begin, end = code.loops.parameter("begin"), code.loops.parameter("end")
        if self.scratch is not None:
            first = code.quotient(begin, code.number(self.grain))
            size = round_up(node.scratch, ALIGNMENT)
            extra["scratch"] = code.shifted(parameters[f"p{len(self.arrays)}"], first * code.number(size))
        with code.loop(begin, end) as block:
            code.rows = self._rows_of(code, block)
            places = [_places(code, row, axes) for row in code.rows]
            given = []
            for i, (n, (_, strides)) in enumerate(self.arrays):
                whole = Array(code, parameters[f"p{i}"], n.dtype, strides=tuple(axis[1 + i] for axis in axes))
                found = [Array(code, whole.place(*place), n.dtype, n.shape[rank:], strides[rank:]) for place in places]
                given.append(found[0] if node.lanes is None else Stacked(found))
            node.code(code, *given, **extra)
        return code.f

    def _rows_of(self, code: Code, block: Scalar) -> list[Scalar]:
        """The numbers of the rows that are done at once; in the last block the last row may be there several times."""
        lanes, last = self.node.lanes or 1, self.node.count - 1
        if lanes == 1:
            return [block]
        return [code.intrinsic("smin", block * lanes + lane, code.number(last)) for lane in range(lanes)]

    def describe(self) -> str:
        names = "x".join(map(str, self.node.made[0].shape))
        parallel = ", parallel" if self.pieces > 1 else ""
        return f"{self.node.name} over {self.node.count} rows of [{names}]{parallel}"


@dataclass(eq=False)
class Array:
    """The memory of a row: a pointer, extents and strides (in elements), which are numbers or scalars."""

    code: Code
    pointer: ir.Value
    dtype: np.dtype
    shape: tuple[Any, ...] = ()
    strides: tuple[Any, ...] = ()

    def extent(self, axis: int = 0) -> Scalar:
        return self.code.number(self.shape[axis])

    def place(self, *index: Number) -> ir.Value:
        """The address of an element."""
        moves = [(i, stride) for i, stride in zip(index, self.strides, strict=True) if stride != 0]
        if not moves:
            return self.pointer
        total = reduce(add, (self.code.number(i) * self.code.number(stride) for i, stride in moves))
        return self.code.f.element(memory_type(self.dtype), self.pointer, total)

    def load(self, *index: Number) -> Scalar:
        return self.code.load(self.place(*index), self.dtype)

    def store(self, value: Scalar, *index: Number) -> None:
        self.code.store(value, self.place(*index), self.dtype)


class Stacked:
    """The memory of several rows, of one shape and one dtype."""

    def __init__(self, rows: Sequence[Array]):
        self.rows: Sequence[Array] = rows
        self.dtype: np.dtype = rows[0].dtype
        self.shape: tuple[Any, ...] = rows[0].shape


class ScalarVariable(Array):
    """A scalar that changes, an array without axes; LLVM turns it into a register."""

    get, set = Array.load, Array.store

    def add(self, value: Scalar) -> None:
        self.set(self.get() + value)


class Code(Emitter):
    """Scalar code with variables, loops and conditions."""

    def __init__(self, loops: Loops, site: int | None):
        super().__init__(loops.f)
        self.loops, loops.e = loops, self
        self.site = site  # the number of what is raised
        self.rows: list[Scalar] = []  # the numbers of those that are being done
        self.when, self.repeat = loops.f.when, loops.f.again_while  # a condition; what computes one before each round

    def number(self, value: Number) -> Scalar:
        """An integer known when compiling: in the code if small, otherwise from the table."""
        return value if isinstance(value, Scalar) else self.loops.tabled(("number", value), value)

    def variable(self, start: Scalar | float) -> ScalarVariable:
        """Its dtype is that of its first value; of numbers of Python, int64 or float64."""
        start = start if isinstance(start, Scalar) else literal(start, np.dtype(type(start)), self)
        made = ScalarVariable(self, self.f.stack(memory_type(start.dtype), align=8), start.dtype)
        made.set(start)
        return made

    def buffer(self, pointer: ir.Value, dtype: np.dtype) -> Array:
        """Contiguous memory as an array of one axis."""
        return Array(self, pointer, dtype, strides=(1,))

    def shifted(self, pointer: ir.Value, offset: Number) -> ir.Value:
        """A pointer some bytes further."""
        return self.f.element(ir.BYTE, pointer, self.number(offset))

    @contextmanager
    def loop(self, start: Number, stop: Number) -> Iterator[Scalar]:
        """Over the integers from `start` to below `stop`."""
        with self.f.loop(self.number(start), self.number(stop)) as i:
            yield Scalar(i.text, I64, self)

    def fail(self, row: Scalar | None = None) -> None:
        """Note that the procedure can't be done for a row; it goes on with whatever it has."""
        if self.site is None:
            raise TypeError("code.fail() raises nothing: give the procedure a failure=(ValueError, 'why')")
        self.loops.fail(self.site, self.rows[0] if row is None else row)


def _places(code: Code, row: Scalar, axes: list) -> list[Scalar]:
    """The place along each axis of the row with a number."""
    found: list[Scalar] = []
    for extent, *_ in reversed(axes[1:]):
        size = code.number(extent)
        found.insert(0, code.remainder(row, size))
        row = code.quotient(row, size)
    return [row, *found] if axes else []
