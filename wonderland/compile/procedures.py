"""Native procedures over rows: a `Procedure` node and the memory of its operands come in, a kernel goes out.

What doesn't fit into a loop nest (sorting, substitution, products with sparse matrices) is written as code for one row:
a function `emit(code, out, *operands, scratch)` that gets the row of each array as an `Array` and writes instructions
with `Code`. What a row is, the procedure says: the leading axes of the result number them. They are independent of each
other, and many are shared between threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.compile.emitter import BOOL, Emitter, Scalar, memory_kind
from wonderland.compile.kernels import CHUNK_NANOSECONDS, MOST_CHUNKS, PARALLEL_NANOSECONDS
from wonderland.compile.loops import I64, Kernel, Loops, launcher
from wonderland.compile.nodes import Procedure, base_of, contiguous_strides, layout_of

Number = Scalar | int


class Variable:
    """A scalar that changes; LLVM turns it into a register."""

    code: Code
    name: str
    dtype: np.dtype

    def __init__(self, code: Code, name: str, dtype: np.dtype):
        self.code, self.name, self.dtype = code, name, dtype

    def get(self) -> Scalar:
        return self.code.load(self.name, self.dtype)

    def set(self, value: Scalar) -> None:
        self.code.store(value, self.name, self.dtype)

    def add(self, value: Scalar) -> None:
        """A sum whose order is free."""
        if self.dtype.kind == "f":
            self.set(self.code.let(f"fadd reassoc contract {self.get().typed}, {value.text}", self.dtype))
        else:
            self.set(self.code.add(self.get(), value))


class PointerVariable:
    """A pointer that changes."""

    code: Code
    name: str

    def __init__(self, code: Code, name: str):
        self.code, self.name = code, name

    def get(self) -> str:
        return self.code.let(f"load ptr, ptr {self.name}, align 8", I64).text

    def set(self, pointer: str) -> None:
        self.code.lines.append(f"  store ptr {pointer}, ptr {self.name}, align 8")


class Array:
    """The memory of a row: a pointer, extents and strides (in elements), which are numbers or scalars."""

    code: Code
    pointer: str
    dtype: np.dtype
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    def __init__(self, code: Code, pointer: str, dtype: np.dtype, shape: tuple[Any, ...], strides: tuple[Any, ...]):
        self.code, self.pointer, self.dtype = code, pointer, dtype
        self.shape, self.strides = shape, strides

    def extent(self, axis: int = 0) -> Scalar:
        return self.code.number(self.shape[axis])

    def place(self, *index: Number) -> str:
        """The address of an element."""
        code, total = self.code, None
        for i, stride in zip(index, self.strides, strict=True):
            if stride == 0 and isinstance(stride, int):
                continue
            moved = code.number(i)
            if stride != 1:
                moved = code.mul(moved, code.number(stride))
            total = moved if total is None else code.add(total, moved)
        if total is None:
            return self.pointer
        return code.let(
            f"getelementptr inbounds {memory_kind(self.dtype)}, ptr {self.pointer}, {total.typed}", I64
        ).text

    def load(self, *index: Number) -> Scalar:
        return self.code.load(self.place(*index), self.dtype)

    def store(self, value: Scalar, *index: Number) -> None:
        self.code.store(value, self.place(*index), self.dtype)


class Code(Emitter):
    """Scalar code with variables, loops and conditions."""

    def __init__(self, loops: Loops):
        super().__init__()
        self.loops = loops
        self.allocas: list[str] = []
        self.site = 0  # where the table has the number of what is raised

    def number(self, value: Number) -> Scalar:
        """An integer known when compiling: in the code if small, otherwise from the table."""
        return value if isinstance(value, Scalar) else Scalar(self.loops.cell(("number", value), value), I64)

    def variable(self, start: Scalar) -> Variable:
        name = f"%{self.loops.fresh('var')}"
        self.allocas.append(f"  {name} = alloca {memory_kind(start.dtype)}, align 8")
        variable = Variable(self, name, start.dtype)
        variable.set(start)
        return variable

    def pointer_variable(self, start: str) -> PointerVariable:
        name = f"%{self.loops.fresh('var')}"
        self.allocas.append(f"  {name} = alloca ptr, align 8")
        variable = PointerVariable(self, name)
        variable.set(start)
        return variable

    def buffer(self, pointer: str, dtype: np.dtype) -> Array:
        """Contiguous memory as an array of one axis."""
        return Array(self, pointer, dtype, (), (1,))

    def shifted(self, pointer: str, offset: Number) -> str:
        """A pointer some bytes further."""
        return self.let(f"getelementptr inbounds i8, ptr {pointer}, {self.number(offset).typed}", I64).text

    def start(self, label: str) -> None:
        self.lines += [f"  br label %{label}", f"{label}:"]

    @contextmanager
    def repeat(self, condition: Callable[[], Scalar]) -> Iterator[None]:
        """As long as a condition holds, which is computed before each round."""
        label = self.loops.fresh("while")
        self.start(label)
        self.lines.append(f"  br i1 {condition().text}, label %{label}.body, label %{label}.end")
        self.lines.append(f"{label}.body:")
        yield
        self.lines += [f"  br label %{label}", f"{label}.end:"]

    @contextmanager
    def loop(self, start: Number, stop: Number) -> Iterator[Scalar]:
        """Over the integers from `start` to below `stop`."""
        index, end = self.variable(self.number(start)), self.number(stop)
        with self.repeat(lambda: self.let(f"icmp slt {index.get().typed}, {end.text}", BOOL)):
            i = index.get()
            yield i
            index.set(self.let(f"add nuw nsw {i.typed}, 1", I64))

    @contextmanager
    def when(self, condition: Scalar) -> Iterator[None]:
        label = self.loops.fresh("when")
        self.lines += [f"  br i1 {condition.text}, label %{label}, label %{label}.end", f"{label}:"]
        yield
        self.start(f"{label}.end")

    def fail(self) -> None:
        """Note that the procedure can't be done; it goes on with whatever it has."""
        self.loops.kernel.checks = True
        site = self.load(self.let(f"getelementptr inbounds i64, ptr %t, i64 {self.site}", I64).text, I64)
        self.lines.append(f"  call void @wl_fail(ptr %err, {site.typed}, i64 0)")


def chunks(node: Procedure) -> int:
    """In how many pieces the rows of a procedure are done."""
    rows = math.prod(node.shape[: node.rows])
    work = rows * node.cost
    return 1 if work < PARALLEL_NANOSECONDS else min(rows, MOST_CHUNKS, max(2, int(work / CHUNK_NANOSECONDS)))


def procedure_kernel(node: Procedure, memory: Any, scratch: Any, sites: Any) -> Kernel:
    """The kernel that runs a procedure over its rows."""
    loops = Loops()
    kernel = loops.kernel
    code = Code(loops)
    total = math.prod(node.shape[: node.rows])
    grain = -(-total // chunks(node))
    kernel.parallel = True
    kernel.table += [-(-total // grain), grain, total]
    if node.failure is not None:
        code.site = len(kernel.table)
        kernel.table.append(sites.raising(*node.failure))
    layouts = [(0, contiguous_strides(node.shape)), *map(layout_of, node.operands)]
    arrays = [node, *node.operands]
    params = [(memory[base_of(n)], offset * n.dtype.itemsize) for n, (offset, _) in zip(arrays, layouts, strict=True)]
    kernel.params = [*params, *([] if scratch is None else [(scratch, 0)])]
    axes = _collapsed(node.shape[: node.rows], [strides[: node.rows] for _, strides in layouts])

    own = f"%p{len(arrays)}"
    if scratch is not None:
        size = code.number(node.scratch)
        first = code.let(f"udiv i64 %begin, {code.number(grain).text}", I64)
        own = code.shifted(own, code.mul(first, size))
    with code.loop(Scalar("%begin", I64), Scalar("%end", I64)) as row:
        rows = []
        for i, (n, (_, strides)) in enumerate(zip(arrays, layouts, strict=True)):
            moved = Array(code, f"%p{i}", n.dtype, (), tuple(s[i] for _, s in axes)).place(*_places(code, row, axes))
            rows.append(Array(code, moved, n.dtype, n.shape[node.rows :], strides[node.rows :]))
        node.emit(code, *rows, **({} if scratch is None else {"scratch": own}))
    _finish(kernel, code)
    names = "x".join(map(str, node.shape))
    kernel.description = f"{node.name} over {total} rows of [{names}]{', parallel' if kernel.table[0] > 1 else ''}"
    kernel.needed, kernel.declared = code.needed, code.declared
    return kernel


def _collapsed(extents: tuple, strides: list) -> list[tuple[int, list[int]]]:
    """Axes as (extent, stride of each array), adjacent ones that all arrays walk as one joined."""
    out: list[tuple[int, list[int]]] = []
    for axis, extent in reversed(list(enumerate(extents))):
        steps = [s[axis] for s in strides]
        if extent == 1:
            continue
        if out and all(s == inner * out[0][0] for s, inner in zip(steps, out[0][1], strict=True)):
            out[0] = (out[0][0] * extent, out[0][1])
        else:
            out.insert(0, (extent, steps))
    return out


def _places(code: Code, row: Scalar, axes: list) -> list[Scalar]:
    """The place along each axis of the row with a number."""
    found: list[Scalar] = []
    for extent, _ in reversed(axes[1:]):
        size = code.number(extent)
        found.insert(0, code.let(f"urem {row.typed}, {size.text}", I64))
        row = code.let(f"udiv {row.typed}, {size.text}", I64)
    return [row, *found] if axes else []


def _finish(kernel: Kernel, code: Code) -> None:
    arguments = [f"ptr noalias %p{i}" for i in range(len(kernel.params))]
    arguments += ["ptr noalias readonly %t"] + (["ptr %err"] if kernel.checks else [])
    names = [a.split()[-1] for a in arguments]
    text = [f"define internal void @NAME.range({', '.join(arguments)}, i64 %begin, i64 %end) noinline {{", "entry:"]
    text += [*code.loops.symbols, *code.allocas, *code.lines, "  ret void", "}"]
    kernel.text = "\n".join(text + launcher(arguments, names))
