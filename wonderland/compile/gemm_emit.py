"""What the matrix product is written in: the register tile, and a function of LLVM IR under construction.

`Function` numbers values and blocks; its methods emit the integer and vector instructions that `gemm` needs, folding
constants on the way. `Fields` are named 64-bit words in memory, shared by the tasks of one product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from wonderland.compile import llvm
from wonderland.compile.hints import AS_IT_IS

Value = str | int

PANEL_BYTES = 24 << 10  # of a panel of B (KC x tile columns), which stays in L1 while panels of A pass
CHUNK_BYTES = 224 << 10  # of A in one task (MC x KC), which stays in L2


@dataclass(frozen=True)
class Tile:
    """Shape of the register tile: `rows` broadcasts of A times `vectors` vectors of B."""

    dtype: str
    scalar: str
    bytes: int
    lanes: int
    rows: int
    vectors: int

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.scalar}>"

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}{self.dtype}"

    @property
    def depth(self) -> int:
        """Steps of k that are packed at a time (KC)."""
        return max(192, PANEL_BYTES // (self.columns * self.bytes))

    @property
    def chunk_rows(self) -> int:
        """Most rows of A in one task (MC)."""
        return max(1, CHUNK_BYTES // (self.depth * self.bytes * self.rows)) * self.rows


@cache
def tile(dtype: str) -> Tile:
    """The register tile of this machine for "f32" or "f64"."""
    if dtype not in ("f32", "f64"):
        raise ValueError(f'the GEMM generator makes "f32" and "f64", got {dtype!r}')
    scalar, size = ("float", 4) if dtype == "f32" else ("double", 8)
    width = llvm.vector_bytes()
    x86 = llvm.target_machine().triple.startswith(("x86_64", "i386", "i686"))
    # 16 registers: 12 sums, 2 vectors of B, a broadcast. 32 registers: 24 sums, 3 vectors of B, broadcasts.
    rows, vectors = (6, 2) if x86 and width < 64 else (8, 3)
    return Tile(dtype, scalar, size, width // size, rows, vectors)


KINDS = {"i": "i64", "p": "ptr", "b": "i1"}


class Function:
    """One IR function being written. Variables live in `alloca`s, which LLVM turns into registers."""

    def __init__(self, t: Tile, name: str, kinds: str, parameters: str, exported: bool = False):
        """`kinds` has a letter per parameter: i(64), p(ointer), b(oolean)."""
        self.tile = t
        typed = ", ".join(f"{KINDS[kind]} %{word}" for kind, word in zip(kinds, parameters.split(), strict=True))
        linkage = "" if exported else "internal "
        self._head = f"define {linkage}void @{name}({typed}) noinline {{\nentry:"
        self._variables: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def text(self) -> str:
        return "\n".join([self._head, *self._variables, *self._lines, "  ret void", "}", ""])

    def emit(self, line: str) -> None:
        self._lines.append("  " + line)

    def let(self, expression: str) -> str:
        self._count += 1
        self.emit(f"%t{self._count} = {expression}")
        return f"%t{self._count}"

    def call(self, name: str, kinds: str, *values: Value) -> None:
        """Call a function that returns nothing."""
        arguments = ", ".join(f"{KINDS[kind]} {value}" for kind, value in zip(kinds, values, strict=True))
        self.emit(f"call void {name}({arguments})")

    def variable(self, kind: str, value: Value, align: int = 8) -> str:
        pointer = self.space(kind, align)
        self.emit(f"store {kind} {value}, ptr {pointer}, align {align}")
        return pointer

    def space(self, kind: str, align: int) -> str:
        self._count += 1
        self._variables.append(f"  %t{self._count} = alloca {kind}, align {align}")
        return f"%t{self._count}"

    def add(self, a: Value, b: Value) -> Value:
        return a if b == 0 else self.let(f"add i64 {a}, {b}")

    def sub(self, a: Value, b: Value) -> str:
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: Value, b: Value) -> Value:
        return a if a == 0 else self.let(f"mul i64 {a}, {b}")

    def div(self, a: Value, b: Value) -> str:
        return self.let(f"udiv i64 {a}, {b}")

    def ceil_div(self, a: Value, b: Value) -> str:
        return self.div(self.add(a, b - 1 if isinstance(b, int) else self.sub(b, 1)), b)

    def round_up(self, a: Value, b: Value) -> Value:
        return self.mul(self.ceil_div(a, b), b)

    def min(self, a: Value, b: Value) -> str:
        return self.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def max(self, a: Value, b: Value) -> str:
        return self.let(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def compare(self, how: str, a: Value, b: Value) -> str:
        return self.let(f"icmp {how} i64 {a}, {b}")

    def exists(self, pointer: str) -> str:
        return self.let(f"icmp ne ptr {pointer}, null")

    def both(self, a: str, b: str) -> str:
        return self.let(f"and i1 {a}, {b}")

    def either(self, a: str, b: str) -> str:
        return self.let(f"or i1 {a}, {b}")

    def choose(self, condition: str, a: Value, b: Value, kind: str = "i64") -> str:
        return self.let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def at(self, base: str, index: Value) -> str:
        """Address of an element."""
        if index == 0:
            return base
        return self.let(f"getelementptr {self.tile.scalar}, ptr {base}, i64 {index}")

    def byte_at(self, base: str, offset: Value) -> str:
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, pointer: str, kind: str | None = None, align: int | None = None) -> str:
        return self.let(f"load {kind or self.tile.scalar}, ptr {pointer}, align {align or self.tile.bytes}")

    def store(self, value: Value, pointer: str, kind: str | None = None, align: int | None = None) -> None:
        self.emit(f"store {kind or self.tile.scalar} {value}, ptr {pointer}, align {align or self.tile.bytes}")

    def broadcast(self, scalar: str) -> str:
        t = self.tile
        one = self.let(f"insertelement {t.vector} poison, {t.scalar} {scalar}, i64 0")
        return self.let(f"shufflevector {t.vector} {one}, {t.vector} poison, <{t.lanes} x i32> zeroinitializer")

    def fma(self, a: str, b: str, c: str) -> str:
        v, name = self.tile.vector, f"@llvm.fmuladd.{self.tile.suffix}"
        return self.let(f"call {v} {name}({v} {a}, {v} {b}, {v} {c})")

    def fma_scalar(self, a: str, b: str, c: str) -> str:
        s, name = self.tile.scalar, f"@llvm.fmuladd.{self.tile.dtype}"
        return self.let(f"call {s} {name}({s} {a}, {s} {b}, {s} {c})")

    def lanes_below(self, limit: Value, first: int) -> str:
        """Mask of the lanes first, first + 1, ... that are below the limit."""
        kind = f"<{self.tile.lanes} x i64>"
        one = self.let(f"insertelement {kind} poison, i64 {limit}, i64 0")
        all_limits = self.let(f"shufflevector {kind} {one}, {kind} poison, <{self.tile.lanes} x i32> zeroinitializer")
        lanes = ", ".join(f"i64 {first + lane}" for lane in range(self.tile.lanes))
        return self.let(f"icmp slt {kind} <{lanes}>, {all_limits}")

    def load_lanes(self, pointer: str, mask: str) -> str:
        t = self.tile
        call = f"@llvm.masked.load.{t.suffix}.p0(ptr {pointer}, i32 {t.bytes}, <{t.lanes} x i1> {mask}"
        return self.let(f"call {t.vector} {call}, {t.vector} zeroinitializer)")

    def store_lanes(self, value: str, pointer: str, mask: str) -> None:
        t = self.tile
        call = f"@llvm.masked.store.{t.suffix}.p0({t.vector} {value}, ptr {pointer}, i32 {t.bytes}"
        self.emit(f"call void {call}, <{t.lanes} x i1> {mask})")

    def transpose(self, vectors: list[str]) -> list[str]:
        """Square block of lanes x lanes, by swapping off-diagonal blocks of 1, 2, 4, ... elements."""
        t, rows, block = self.tile, list(vectors), 1
        while block < t.lanes:
            for i in (i for i in range(t.lanes) if not i & block):
                upper, lower = rows[i], rows[i + block]
                first = [lane if not lane & block else t.lanes + lane - block for lane in range(t.lanes)]
                second = [lane + block if not lane & block else t.lanes + lane for lane in range(t.lanes)]
                for row, order in ((i, first), (i + block, second)):
                    indices = ", ".join(f"i32 {lane}" for lane in order)
                    operands = f"{t.vector} {upper}, {t.vector} {lower}"
                    rows[row] = self.let(f"shufflevector {operands}, <{t.lanes} x i32> <{indices}>")
            block *= 2
        return rows

    def accumulate(self, to: str, source: str, count: Value) -> None:
        """to[i] += source[i]"""
        t = self.tile
        whole = self.let(f"and i64 {count}, {-t.lanes}")
        for start, stop, step, kind in ((0, whole, t.lanes, t.vector), (whole, count, 1, t.scalar)):
            with self.loop(start, stop, step) as i:
                old, new = self.load(self.at(to, i), kind), self.load(self.at(source, i), kind)
                self.store(self.let(f"fadd {kind} {old}, {new}"), self.at(to, i), kind)

    @contextmanager
    def loop(self, start: Value, stop: Value, step: Value = 1) -> Iterator[str]:
        """for (i = start; i < stop; i += step)"""
        counter = self.variable("i64", start)
        self._count += 1
        name = f"loop{self._count}"
        self.emit(f"br label %{name}")
        self._lines.append(f"{name}:")
        index = self.load(counter, "i64", 8)
        more = self.compare("slt", index, stop)
        self.emit(f"br i1 {more}, label %{name}.body, label %{name}.exit")
        self._lines.append(f"{name}.body:")
        yield index
        self.store(self.add(index, step), counter, "i64", 8)
        self.emit(f"br label %{name}, {AS_IT_IS}")
        self._lines.append(f"{name}.exit:")

    @contextmanager
    def tiles(self, extent: Value, size: int) -> Iterator[Value]:
        """The first element of each tile along an axis; the last tile ends with the axis, and may overlap."""
        if extent == size:
            yield 0
            return
        with self.loop(0, extent, size) as start:
            whole = isinstance(extent, int) and extent % size == 0
            yield start if whole else self.min(start, self.sub(extent, size))

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        self._count += 1
        name = f"when{self._count}"
        self.emit(f"br i1 {condition}, label %{name}, label %{name}.exit")
        self._lines.append(f"{name}:")
        yield
        self.emit(f"br label %{name}.exit")
        self._lines.append(f"{name}.exit:")

    def unless(self, condition: str):
        return self.when(self.let(f"xor i1 {condition}, true"))

    def return_when(self, condition: str) -> None:
        self._count += 1
        name = f"return{self._count}"
        self.emit(f"br i1 {condition}, label %{name}, label %{name}.exit")
        self._lines += [f"{name}:", "  ret void", f"{name}.exit:"]


class Fields:
    """A task's context: named 8-byte words behind a pointer."""

    def __init__(self, function: Function, pointer: str, names: list[str]):
        self._function, self._pointer, self._names = function, pointer, names

    def _slot(self, name: str) -> tuple[str, str]:
        slot = self._function.let(f"getelementptr i64, ptr {self._pointer}, i64 {self._names.index(name)}")
        return slot, "ptr" if name.startswith("ptr_") else "i64"

    def get(self, name: str) -> str:
        slot, kind = self._slot(name)
        return self._function.load(slot, kind, 8)

    def all(self) -> list[str]:
        return [self.get(name) for name in self._names]

    def put(self, **values: Value) -> None:
        for name, value in values.items():
            slot, kind = self._slot(name)
            self._function.store(value, slot, kind, 8)
