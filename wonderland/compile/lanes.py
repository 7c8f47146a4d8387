"""Vectors whose lanes are matrices: what code for several small matrices at once is written with.

A procedure that does `width` rows at once computes with vectors of so many numbers, one of each matrix: code for one
matrix is code for all of them. What one lane does and another doesn't is a `select`. With a width of 1 numbers are
scalars, and the code is the same. The matrices of a block lie in scratch memory element by element (`Interleaved`); for
tiny ones all loops are written out, and LLVM keeps them in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.compile import ir
from wonderland.compile.gemm_tile import NAMES, tile
from wonderland.compile.loops import I64
from wonderland.compile.procedures import Code, Stacked
from wonderland.compile.scalars import TYPES, Scalar, Unsupported, literal

SMALL = 64  # rows and columns of matrices that are done so; LAPACK does larger ones, which no longer fit into a cache
TINY = 300  # multiply-adds up to which loops are written out: LLVM's time grows faster than the code
Index = Scalar | int  # of a row or column: a number of the code, or one that is known


def check(dtype: np.dtype) -> None:
    """Refuse numbers that there is no code for."""
    if dtype.kind != "f" or dtype.itemsize not in NAMES:
        raise Unsupported(f"matrices of {dtype}")


def width_for(count: int, dtype: np.dtype) -> int:
    """How many of `count` matrices are done at once: a whole vector of the machine's, or fewer if there are few."""
    width = tile(NAMES[dtype.itemsize]).lanes
    while width // 2 >= max(count, 1):
        width //= 2
    return width


def written_out(n: int, columns: int = 0) -> bool:
    """Are the loops over n rows of n and so many more numbers written out?"""
    return n * n * (n + columns) <= TINY


def bytes_for(rows: int, columns: int, width: int, dtype: np.dtype) -> int:
    """Scratch memory for so many matrices, element by element."""
    return rows * columns * width * dtype.itemsize


def cost_of(n: int, columns: float, width: int) -> float:
    """Nanoseconds for one matrix of n rows, if n steps work on all of it."""
    return 5.0 + n * columns * (1.0 + 0.5 * n / width)


class Lanes:
    """Writes code in which each lane has a number of its own matrix."""

    def __init__(self, code: Code, dtype: np.dtype, written_out: bool):
        self.code: Code = code
        self.f: ir.Function = code.f
        self.width: int = len(code.rows)
        self.dtype: np.dtype = dtype
        self.written_out: bool = written_out  # are loops written out, turn by turn?
        self.type: str = self.wide(TYPES[dtype])  # of a number in each lane
        self.index_type: str = self.wide(ir.INT)  # of an index in each lane

    def wide(self, type: str) -> str:
        return type if self.width == 1 else ir.vector(type, self.width)

    # -- numbers ----------------------------------------------------------------------------------

    def constant(self, value: float) -> ir.Value:
        """The same number in all lanes."""
        return ir.constant(value, self.type, self.f)

    def index(self, i: Index) -> ir.Value:
        """The same index in all lanes."""
        if isinstance(i, int):
            return ir.constant(i, self.index_type, self.f)
        one = self.f.convert(i, ir.INT)
        return one if self.width == 1 else self.f.splat(one, self.width)

    def abs(self, x: ir.Value) -> ir.Value:
        return self.f.intrinsic("fabs", x)

    def sqrt(self, x: ir.Value) -> ir.Value:
        return self.f.intrinsic("sqrt", x)

    def sum_of(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x y + z, rounded once."""
        return self.f.intrinsic("fmuladd", x, y, z)

    def where(self, mask: ir.Value, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        x, y = (v if isinstance(v, ir.Value) else self.constant(v) for v in (x, y))
        return self.f.select(mask, x, y)

    def any(self, mask: ir.Value) -> ir.Value:
        """Is it true in one of the lanes?"""
        if self.width == 1:
            return mask
        return self.f.bitcast(mask, f"i{self.width}").differs(0)

    def lane(self, x: ir.Value, lane: int) -> ir.Value:
        return x if self.width == 1 else self.f.extract(x, lane)

    def together(self, numbers: Sequence[ir.Value]) -> ir.Value:
        """One number for each lane."""
        if self.width == 1:
            return numbers[0]
        whole = ir.undefined(self.wide(numbers[0].type))
        for lane, number in enumerate(numbers):
            whole = self.f.insert(whole, number, lane)
        return whole

    def variable(self, start: ir.Value | float) -> ir.Variable:
        return self.f.variable(start if isinstance(start, ir.Value) else self.constant(start))

    # -- control ----------------------------------------------------------------------------------

    def each(self, start: Index, stop: Index, body: Callable[[Any], None], backwards: bool = False) -> None:
        """`body(i)` for the integers from `start` to below `stop`, or from the last to the first."""
        if isinstance(start, int) and isinstance(stop, int) and (self.written_out or stop - start <= 1):
            for i in reversed(range(start, stop)) if backwards else range(start, stop):
                body(i)
            return
        first, last = (i if isinstance(i, Scalar) else literal(i, I64, self.code) for i in (start, stop))
        with self.code.loop(first, last) as i:
            body(last + first - 1 - i if backwards else i)

    def where_any(self, mask: ir.Value, body: Callable[[], None]) -> None:
        """Do what matters in lanes with a true mask; `body` itself leaves the others alone."""
        if self.written_out:
            body()
            return
        with self.f.when(self.any(mask)):
            body()

    def fail(self, mask: ir.Value) -> None:
        """Note that the matrices with a true mask can't be done."""
        with self.f.when(self.any(mask)):
            for lane, row in enumerate(self.code.rows):  # the first counts
                with self.f.when(self.lane(mask, lane)):
                    self.code.fail(row)

    # -- memory -----------------------------------------------------------------------------------

    def interleaved(self, rows: int, columns: int, scratch: ir.Value | None) -> Interleaved:
        """Memory for a matrix in each lane: on the stack, or at a place."""
        place = self.f.stack(ir.array(self.type, rows * columns), align=64) if scratch is None else scratch
        return Interleaved(self, place, columns, self.type)

    def read(self, x: Stacked, *index: Index | list[Scalar]) -> ir.Value:
        """An element of each matrix; an index is a list of those of each lane, if they differ."""
        return self.together([row.load(*at) for row, at in zip(x.rows, self._lanes_of(index), strict=True)])

    def write(self, value: ir.Value, x: Stacked, *index: Index | list[Scalar]) -> None:
        for lane, (row, at) in enumerate(zip(x.rows, self._lanes_of(index), strict=True)):
            row.store(Scalar(self.lane(value, lane).text, x.dtype, self.code), *at)

    def has_blocks(self, x: Stacked) -> bool:
        """Can `width` numbers of a row of x be read at once, for all lanes?"""
        whole = self.width > 1 and self.width == tile(NAMES[x.dtype.itemsize]).lanes
        return whole and not self.written_out and x.rows[0].strides[-1] == 1

    def read_block(self, x: Stacked, i: Index, j: Index) -> list[ir.Value]:
        """The elements (i, j), (i, j + 1), ... of each matrix, `width` of them: through registers, not one by one."""
        numbers = x.dtype.itemsize
        rows = [self.f.load(self.type, row.place(i, j), align=numbers) for row in x.rows]
        return tile(NAMES[numbers]).transpose(rows)

    def write_block(self, values: list[ir.Value], x: Stacked, i: Index, j: Index) -> None:
        """What `read_block` reads."""
        numbers = x.dtype.itemsize
        for row, value in zip(x.rows, tile(NAMES[numbers]).transpose(values), strict=True):
            self.f.store(value, row.place(i, j), align=numbers)

    def _lanes_of(self, index: Sequence[Any]) -> list[list[Any]]:
        return [[i[lane] if isinstance(i, list) else i for i in index] for lane in range(self.width)]

    def indices(self, x: ir.Value) -> list[Scalar]:
        """An index of each lane, to read or write there."""
        long = [self.f.convert(self.lane(x, lane), ir.LONG) for lane in range(self.width)]
        return [Scalar(number.text, I64, self.code) for number in long]


class Interleaved:
    """A matrix in each lane: element (i, j) of all of them side by side."""

    def __init__(self, lanes: Lanes, pointer: ir.Value, columns: int, type: str):
        self.lanes, self.pointer, self.columns, self.type = lanes, pointer, columns, type

    def _place(self, i: Any, j: Any) -> ir.Value:
        return self.lanes.f.element(self.type, self.pointer, i * self.columns + j)

    def __getitem__(self, at: tuple[Index, Index]) -> ir.Value:
        return self.lanes.f.load(self.type, self._place(*at))

    def __setitem__(self, at: tuple[Index, Index], value: ir.Value) -> None:
        self.lanes.f.store(value, self._place(*at))

    def swap(self, mask: ir.Value | None, i: Index, j: Index, start: Index = 0) -> None:
        """Exchange two rows from a column on, in the lanes with a true mask."""

        def column(c: Index) -> None:
            x, y, f = self[i, c], self[j, c], self.lanes.f
            self[i, c] = y if mask is None else f.select(mask, y, x)
            self[j, c] = x if mask is None else f.select(mask, x, y)

        self.lanes.each(start, self.columns, column)


def load(w: Lanes, to: Interleaved, x: Stacked, first: int = 0, flipped: bool = False) -> None:
    """A matrix as columns of another; `flipped`: as its transpose."""
    rows, columns = x.shape

    def put(i: Index, j: Index, value: ir.Value) -> None:
        to[(j, i) if flipped else (i, first + j)] = value

    def row(i: Index) -> None:
        def block(b: Index) -> None:
            for t, value in enumerate(w.read_block(x, i, b * w.width)):
                put(i, b * w.width + t, value)

        blocks = columns // w.width if w.has_blocks(x) else 0
        w.each(0, blocks, block)
        w.each(blocks * w.width, columns, lambda j: put(i, j, w.read(x, i, j)))

    w.each(0, rows, row)


def store(w: Lanes, a: Interleaved, out: Stacked, first: int = 0) -> None:
    """Columns of a matrix as a result."""
    rows, columns = out.shape

    def row(i: Index) -> None:
        def block(b: Index) -> None:
            w.write_block([a[i, first + b * w.width + t] for t in range(w.width)], out, i, b * w.width)

        blocks = columns // w.width if w.has_blocks(out) else 0
        w.each(0, blocks, block)
        w.each(blocks * w.width, columns, lambda j: w.write(a[i, first + j], out, i, j))

    w.each(0, rows, row)
