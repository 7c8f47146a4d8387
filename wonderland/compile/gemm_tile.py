"""What matrix products are written with: an element type comes in, the register tile of this machine goes out.

Parameters of functions and words in memory are named in one line: `a*` points to numbers of the product's type
(`Elements`), `task&` to anything, the others are integers. The formulas of sizes are for integers of Python and of the
code alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from wonderland.compile import ir, llvm, pool
from wonderland.compile.ir import AS_IT_IS, BOOL, INT, LONG, POINTER, RARE, VOID, Function, Number, Value, constant

UNROLL = 4  # steps of k in one turn of the kernel's loop
NAMES = {4: "f32", 8: "f64"}  # of the element types, by their bytes


@dataclass(frozen=True)
class Tile:
    """Shape of the register tile, `rows` broadcasts of A times `vectors` vectors of B, and of the blocks around it."""

    dtype: str
    lanes: int
    rows: int
    vectors: int
    panel: int = 24 << 10  # bytes of a panel of B (KC x tile columns), which stays in L1 while panels of A pass
    chunk: int = 112 << 10  # bytes of A in one task (MC x KC), which stays in L2
    ahead: tuple[int, int] | None = None  # steps between a prefetch of A, of B, and its use

    @property
    def scalar(self) -> str:
        return ir.FLOATS[self.dtype]

    @property
    def bytes(self) -> int:
        return ir.bytes_of(self.scalar)

    @property
    def vector(self) -> str:
        return ir.vector(self.scalar, self.lanes)

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def starts(self) -> range:
        """The first column of each vector."""
        return range(0, self.columns, self.lanes)

    def stack(self, f: Function, count: int) -> Elements:
        """So many numbers, as long as the call lasts."""
        return Elements(self, f.stack(ir.array(self.scalar, count), align=64))

    def lanes_below(self, limit: Value, first: int) -> Value:
        """Mask of the lanes first, first + 1, ... that are below the limit."""
        f = limit.code
        return f.splat(limit, self.lanes) > f.lanes(range(first, first + self.lanes))

    def transpose(self, vectors: list[Value]) -> list[Value]:
        """A square block (what it lacks is undefined), by swapping off-diagonal blocks of 1, 2, 4, ... elements."""
        f, size, block = vectors[0].code, self.lanes, 1
        rows = vectors + [ir.undefined(self.vector)] * (size - len(vectors))
        while block < size:
            first = [lane if not lane & block else size + lane - block for lane in range(size)]
            second = [lane + block if not lane & block else size + lane for lane in range(size)]
            for i in (i for i in range(size) if not i & block):
                upper, lower = rows[i], rows[i + block]
                rows[i], rows[i + block] = f.shuffle(upper, lower, first), f.shuffle(upper, lower, second)
            block *= 2
        return rows

    @property
    def depth(self) -> int:
        """Steps of k that are packed at a time (KC)."""
        return max(192, self.panel // (self.columns * self.bytes))

    @property
    def most_steps(self) -> int:
        """Of a block: k is cut into equal parts of whole turns."""
        return self.depth + UNROLL

    @property
    def chunk_rows(self) -> int:
        """Most rows of A in one task (MC)."""
        return max(1, self.chunk // (self.depth * self.bytes * self.rows)) * self.rows


@cache
def tile(dtype: str, form: str = "") -> Tile:
    """The register tile of this machine for "f32" or "f64"; "wide" and "narrow" are those for products of few columns.

    Forms that this machine has no use for are the same tile.
    """
    if dtype not in ir.FLOATS:
        raise ValueError(f'the GEMM generator makes "f32" and "f64", got {dtype!r}')
    width = llvm.vector_bytes()
    lanes = width // ir.bytes_of(ir.FLOATS[dtype])
    if llvm.target_machine().triple.startswith(("x86_64", "i386", "i686")):
        # 16 registers: 12 sums, 2 vectors of B, a broadcast. 32: 24 sums, as tall or as wide as measured best with
        # AVX-512, where a deep panel of B comes from L2 in time if it is fetched ahead, and C is written half as often.
        if width < 64:
            return Tile(dtype, lanes, 12, 1, 12 << 10) if form == "narrow" else Tile(dtype, lanes, 6, 2)
        rows, vectors, panel = {"": (12, 2, 64), "wide": (6, 4, 160), "narrow": (24, 1, 32)}[form]
        return Tile(dtype, lanes, rows, vectors, panel << 10, 256 << 10, (32, 8))
    return Tile(dtype, lanes, 8, 3)


# -- functions and memory -----------------------------------------------------------------------------


class Elements(Value):
    """A pointer to numbers of the product's type."""

    __slots__ = ("tile",)

    def __init__(self, tile: Tile, pointer: Value):
        super().__init__(POINTER, pointer.text, pointer.code)
        self.tile: Tile = tile

    def at(self, index: Number) -> Elements:
        place = self.code.element(self.tile.scalar, self, index, inbounds=False)
        return self if place is self else Elements(self.tile, place)

    def further(self, size: Number) -> Elements:
        """So many bytes."""
        return Elements(self.tile, self.code.element(ir.BYTE, self, size, inbounds=False))

    def aligned(self) -> Elements:
        """The first place from here on at which a cache line starts."""
        place = self.convert(LONG)
        return self.further(((place + 63) & -64) - place)

    def load(self, index: Number = 0, type: str = "") -> Value:
        return self.code.load(type or self.tile.scalar, self.at(index), self.tile.bytes)

    def vector(self, index: Number = 0) -> Value:
        return self.load(index, self.tile.vector)

    def store(self, value: Number, index: Number = 0) -> None:
        value = value if isinstance(value, Value) else constant(value, self.tile.scalar)
        self.code.store(value, self.at(index), self.tile.bytes)

    def load_lanes(self, mask: Value) -> Value:
        """A vector with zeros where the mask is false, and nothing is read."""
        t, align = self.tile, constant(self.tile.bytes, INT)
        values = (self, align, mask, constant(0, t.vector))
        return self.code.intrinsic("masked.load", *values, returns=t.vector, over=(t.vector, POINTER))

    def store_lanes(self, value: Value, mask: Value) -> None:
        values = (value, self, constant(self.tile.bytes, INT), mask)
        self.code.intrinsic("masked.store", *values, returns=VOID, over=(value.type, POINTER))

    def accumulate(self, source: Elements, count: Value) -> None:
        """self[i] += source[i]"""
        t, whole = self.tile, count & -self.tile.lanes
        for start, stop, step, type in ((0, whole, t.lanes, t.vector), (whole, count, 1, t.scalar)):
            with self.code.loop(start, stop, step) as i:
                self.store(self.load(i, type) + source.load(i, type), i)

    def prefetch(self, to_write: bool = False) -> None:
        words = (constant(word, INT) for word in (to_write, 3, 1))  # 3: into all caches, 1: of data
        self.code.intrinsic("prefetch", self, *words, returns=VOID, over=(POINTER,))


def types(words: str) -> list[tuple[str, str]]:
    """Names and types of a line of words."""
    return [(word.rstrip("*&"), POINTER if word[-1] in "*&" else LONG) for word in words.split()]


def _typed(t: Tile, words: str, values: Sequence[Value]) -> list[Any]:
    return [Elements(t, v) if word[-1] == "*" else v for word, v in zip(words.split(), values, strict=True)]


def begin(t: Tile, name: str, words: str, attributes: str = "noinline", **options: Any) -> tuple[Function, list[Any]]:
    """A function and its parameters. LLVM leaves its loops as they are written."""
    f = Function(name, types(words), attributes=attributes, hint=AS_IT_IS, **options)
    return f, _typed(t, words, f.parameters)


class Fields:
    """What the tasks of a product share: named words in memory, of 8 bytes each."""

    def __init__(self, f: Function, t: Tile, words: str, pointer: Value | None = None):
        """Without a pointer they are new, on the stack."""
        self._f, self._tile = f, t
        self._words: dict[str, str] = {word.rstrip("*&"): word for word in words.split()}
        self.pointer: Value = f.stack(ir.array(LONG, len(self._words)), align=8) if pointer is None else pointer

    def place(self, name: str) -> Value:
        """The address of a word."""
        return self._f.element(LONG, self.pointer, [*self._words].index(name))

    def get(self, names: str = "") -> list[Any]:
        """Those that are named, or all."""
        words = " ".join(self._words[name] for name in names.split() or self._words)
        return _typed(self._tile, words, [self._f.load(type, self.place(name)) for name, type in types(words)])

    def put(self, **values: Number) -> None:
        for name, value in values.items():
            self._f.store(self._f.integer(value), self.place(name))


@cache
def run() -> Function:
    """All chunks of a task, on the pool or here."""
    parameters = [("task", POINTER), ("context", POINTER), ("chunks", LONG), ("shared", BOOL)]
    f = Function("run", parameters, attributes=RARE, hint=AS_IT_IS)
    task, context, chunks, shared = f.parameters
    with f.when(shared):
        f.call(pool.PARALLEL, task, context, chunks)
    with f.unless(shared), f.loop(0, chunks) as chunk:
        f.call_at(task, VOID, context, chunk)
    return f


# -- formulas -----------------------------------------------------------------------------------------


def ceil_div(a: Any, b: Any) -> Any:
    """a / b, rounded up."""
    return (a + (b - 1)) // b


def round_up(a: Any, b: Any) -> Any:
    """The next multiple of b."""
    return ceil_div(a, b) * b


def share(extent: Any, parts: Any, unit: int) -> Any:
    """How much each of so many parts gets, in whole units."""
    return round_up(ceil_div(extent, parts), unit)


def at_most(extent: Any, most: Any, unit: int) -> Any:
    """The size of equal parts that are no larger than `most`, or than that in whole units."""
    return share(extent, ceil_div(extent, most), unit)


# -- code ---------------------------------------------------------------------------------------------


def fma(a: Value, b: Value, c: Value) -> Value:
    """a * b + c"""
    return a.code.intrinsic("fmuladd", a, b, c)


@contextmanager
def tiles(f: Function, extent: Number, size: int) -> Iterator[Number]:
    """The first element of each tile along an axis; the last tile ends with the axis, and may overlap."""
    if extent == size:
        yield 0
        return
    with f.loop(0, extent, size) as start:
        whole = isinstance(extent, int) and extent % size == 0
        yield start if whole else f.min(start, extent - size)
