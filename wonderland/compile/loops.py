"""Loops as text: the parts of an LLVM function that every kernel has.

A `Scope` is the inside of one loop. Nothing of a loop is text until it is closed, so that a value can still be put into
a loop further out. Extents and strides up to 16 are written into the code; others, and the 1/n of a mean, are read from
a table at run time, so that another batch size gives the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.compile.emitter import Emitter, Scalar, memory_kind
from wonderland.compile.hints import TWICE
from wonderland.compile.nodes import Number
from wonderland.compile.routine import Routine
from wonderland.compile.scalars import literal

BAKED = 16  # numbers up to this are part of the code
I64, FLOAT32, FLOAT64 = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.float64)


class Access:
    """A strided way through memory: strides along the loops, in elements."""

    __slots__ = ("dtype", "param", "strides")

    dtype: np.dtype
    param: int
    strides: tuple[int, ...]

    def __init__(self, param: int, dtype: np.dtype, strides: tuple[int, ...]):
        self.param, self.dtype, self.strides = param, dtype, strides


class Kernel:
    """The text of a function with `@NAME` for its name, and what to call it with."""

    def __init__(self) -> None:
        self.text = ""
        self.params: list[tuple[Any, int]] = []  # (buffer, offset in bytes)
        self.written: set[Any] = set()  # buffers
        self.table: list[int] = []
        self.needed: set[tuple[str, str]] = set()
        self.routines: dict[str, Routine] = {}
        self.declared: set[str] = set()
        self.checks = False  # takes the address of the error word
        self.parallel = False
        self.description = ""


class Scope:
    """The inside of one loop: lines so far, and what is known there."""

    def __init__(self, parent: Scope | None, dims: frozenset[int], label: str):
        self.parent = parent
        self.dims = dims
        self.label = label
        self.head = label
        self.lines: list[str] = []
        self.memo: dict[Any, Scalar] = {}
        self.pointers: dict[Any, str] = {}
        self.index = ""
        self.dim = -1
        self.shift = ""  # a block of columns starts here
        self.bounds: tuple[str, str] = ("0", "0")
        self.chain: list[Scope] = [*(parent.chain if parent else []), self]


class Loops:
    """Opens and closes loops, and finds addresses in them."""

    def __init__(self) -> None:
        self.e: Emitter = Emitter()
        self.kernel: Kernel = Kernel()
        self.symbols: list[str] = []
        self.cells: dict[tuple[Any, ...], str] = {}
        self.labels: int = 0
        self.deep = False  # do the elements have long chains of operations?
        self.current: Any = None  # the scope that code goes into

    def cell(self, key: tuple[Any, ...], value: int) -> str:
        """A number that the code reads: a literal if small, otherwise from the table."""
        if -BAKED <= value <= BAKED:
            return str(value)
        if key not in self.cells:
            at = len(self.kernel.table)
            self.kernel.table.append(value)
            name = f"%n{at}"
            self.symbols += [f"  %n{at}.at = getelementptr inbounds i64, ptr %t, i64 {at}",
                             f"  {name} = load i64, ptr %n{at}.at, align 8, !invariant.load !0"]  # fmt: skip
            self.cells[key] = name
        return self.cells[key]

    def number(self, number: Number, outermost: Scope, rare: bool) -> Scalar:
        """A constant. The 1/n of a mean, or the n where its use is rare, may follow from a shape: from the table."""
        n, inverse = _count(number)
        if n is None or not (inverse or rare):
            return literal(number.value, number.dtype)
        if number not in outermost.memo:
            e = self.at(outermost)
            count = e.let(f"sitofp i64 {self.cell(('count', number), n)} to double", FLOAT64)
            value = e.div(e.constant(1.0, FLOAT64), count) if inverse else count
            outermost.memo[number] = e.convert(value, number.dtype)
        return outermost.memo[number]

    def fresh(self, prefix: str) -> str:
        self.labels += 1
        return f"{prefix}{self.labels}"

    def open(self, parent: Scope, dim: int, start: str, stop: str) -> Scope:
        """A loop inside another; nothing of it is text until it is closed."""
        scope = Scope(parent, parent.dims | {dim} if dim >= 0 else parent.dims, self.fresh("L"))
        scope.index = f"%{scope.head}.i"
        scope.dim = dim
        scope.bounds = (start, stop)
        return scope

    def close(self, scope: Scope, sums: Sequence[tuple[str, str, str, str]] = ()) -> None:
        """Put a loop into its parent; `sums` are (name, kind, start, next) of what is carried around it."""
        parent = scope.parent
        assert parent is not None
        head, (start, stop) = scope.head, scope.bounds
        exit = f"{head}.exit"
        innermost = not any(line.startswith("  br ") for line in scope.lines)
        hint = f", {TWICE}" if self.deep and innermost else ""
        lines = [f"  br label %{head}", f"{head}:"]
        lines.append(f"  {scope.index} = phi i64 [ {start}, %{parent.label} ], [ {scope.index}.next, %{scope.label} ]")
        for name, kind, first, following in sums:
            lines.append(f"  {name} = phi {kind} [ {first}, %{parent.label} ], [ {following}, %{scope.label} ]")
        lines += scope.lines
        lines += [
            f"  {scope.index}.next = add nuw nsw i64 {scope.index}, 1",
            f"  {scope.index}.more = icmp ult i64 {scope.index}.next, {stop}",
            f"  br i1 {scope.index}.more, label %{head}, label %{exit}{hint}",
            f"{exit}:",
        ]
        parent.lines += lines
        parent.label = exit

    def at(self, scope: Scope) -> Emitter:
        self.e.lines = scope.lines
        self.current = scope
        return self.e

    def pointer(self, access: Access, scope: Scope) -> str:
        """The address of an access's current element, computed loop by loop."""
        known = scope.pointers.get(access)
        if known is not None:
            return known
        if scope.parent is None:
            text = f"%p{access.param}"
        else:
            text = self.pointer(access, scope.parent)
            stride = access.strides[scope.dim] if scope.dim >= 0 or scope.shift else 0
            if stride:
                text = self.advance(text, access, scope.shift or scope.index, stride, scope)
        scope.pointers[access] = text
        return text

    def place(self, access: Access, scope: Scope) -> Scalar:
        """Like `pointer`, for an index that is a value: the sum of indices times strides."""
        if access not in scope.memo:
            if scope.parent is None:
                total = Scalar("0", I64)
            else:
                total, e = self.place(access, scope.parent), self.at(scope)
                stride = access.strides[scope.dim] if scope.dim >= 0 or scope.shift else 0
                if stride:
                    moved = Scalar(scope.shift or scope.index, I64)
                    if stride != 1:
                        moved = e.mul(moved, Scalar(self.cell(("index", access.strides, stride), stride), I64))
                    total = moved if total.text == "0" else e.add(total, moved)
            scope.memo[access] = total
        return scope.memo[access]

    def fail_unless(self, fine: Scalar, site: int, index: str, scope: Scope) -> None:
        """Set the error word if a condition doesn't hold, and go on."""
        bad, on = self.fresh("bad"), self.fresh("on")
        at = len(self.kernel.table)
        self.kernel.table.append(site)
        scope.lines += [
            f"  br i1 {fine.text}, label %{on}, label %{bad}", f"{bad}:",
            f"  %{bad}.at = getelementptr inbounds i64, ptr %t, i64 {at}",
            f"  %{bad}.site = load i64, ptr %{bad}.at, align 8",
            f"  call void @wl_fail(ptr %err, i64 %{bad}.site, i64 {index})", f"  br label %{on}", f"{on}:",
        ]  # fmt: skip
        scope.label = on

    def advance(self, pointer: str, access: Access, index: str, stride: int, scope: Scope) -> str:
        e = self.at(scope)
        if stride != 1:
            key = (access.param, access.strides, stride)
            index = e.let(f"mul nsw i64 {index}, {self.cell(('stride', *key), stride)}", I64).text
        return e.let(f"getelementptr inbounds {memory_kind(access.dtype)}, ptr {pointer}, i64 {index}", I64).text


def _count(number: Number) -> tuple[int | None, bool]:
    """The n of a number n or 1/n, and which it is; None if it isn't of that kind, or small and part of the code."""
    if number.dtype in (FLOAT64, FLOAT32):
        value = float(number.dtype.type(number.value))
        if BAKED < abs(value) < 2**53 and value.is_integer():
            return int(value), False
        if 2**-53 < abs(value) < 1 / BAKED and number.dtype.type(1 / round(1 / value)) == value:
            return round(1 / value), True
    return None, False


def launcher(arguments: list[str], names: list[str]) -> list[str]:
    """`@NAME`: the whole range at once, or in chunks on the pool."""
    n = len(names)
    untyped = [a.replace("noalias ", "").replace("readonly ", "") for a in arguments]
    task = ["define internal void @NAME.task(ptr %c, i64 %chunk) {"]
    for i, name in enumerate(names):
        task += [f"  %c{i} = getelementptr ptr, ptr %c, i64 {i}", f"  {name} = load ptr, ptr %c{i}"]
    task += [
        "  %g.at = getelementptr i64, ptr %t, i64 1", "  %g = load i64, ptr %g.at",
        "  %n.at = getelementptr i64, ptr %t, i64 2", "  %n = load i64, ptr %n.at",
        "  %begin = mul i64 %chunk, %g", "  %stop = add i64 %begin, %g",
        "  %end = call i64 @llvm.umin.i64(i64 %stop, i64 %n)",
        f"  call void @NAME.range({', '.join([*untyped, 'i64 %begin', 'i64 %end'])})", "  ret void", "}",
    ]  # fmt: skip
    run = [
        f"define internal void @NAME({', '.join(untyped)}) noinline {{",
        "  %chunks = load i64, ptr %t", "  %one = icmp eq i64 %chunks, 1",
        "  br i1 %one, label %direct, label %shared", "direct:",
        "  %n.at = getelementptr i64, ptr %t, i64 2", "  %n = load i64, ptr %n.at",
        f"  call void @NAME.range({', '.join([*untyped, 'i64 0', 'i64 %n'])})", "  ret void", "shared:",
        f"  %c = alloca [{n} x ptr]",
    ]  # fmt: skip
    for i, name in enumerate(names):
        run += [f"  %c{i} = getelementptr ptr, ptr %c, i64 {i}", f"  store ptr {name}, ptr %c{i}"]
    run += ["  call void @wl_parallel(ptr @NAME.task, ptr %c, i64 %chunks)", "  ret void", "}"]
    return task + run


def varies(access: Access) -> frozenset[int]:
    """The loops along which an access moves."""
    return frozenset(i for i, s in enumerate(access.strides) if s)


@dataclass
class Order:
    """Loops from the outside in: kept axes, reduced axes, and possibly one kept axis more (column mode)."""

    extents: list[int]
    positions: list[int]  # the axis of the space whose stride each loop has
    outer: int
    sums: int
    column: bool


def arrange(space: tuple[int, ...], reduced: tuple[int, ...], weights: dict[Access, float], ordered: bool) -> Order:
    """The order of the loops: innermost the axis along which most accesses are contiguous.

    Adjacent axes that every access walks as one become one loop. `ordered`: the axes must stay in order.
    """
    rank = len(space)
    inner = rank - 1
    if rank > 1 and not ordered:
        # What is read or written once a row doesn't decide the inner loop.
        counted = {a: w for a, w in weights.items() if not reduced or any(a.strides[i] for i in reduced)}

        def score(i: int) -> tuple[float, int]:
            total = sum(
                weight if access.strides[i] in (1, -1) else 0.25 * weight * (access.strides[i] == 0)
                for access, weight in counted.items()
            )
            return total * (0.3 if space[i] < 4 else 1.0), i

        inner = max(range(rank), key=score)

    def collapse(group: list[int]) -> list[tuple[int, int]]:
        out: list[tuple[int, int]] = []  # (extent, the innermost axis)
        for i in group:
            if out and all(a.strides[out[-1][1]] == a.strides[i] * space[i] for a in weights):
                out[-1] = (out[-1][0] * space[i], i)
            else:
                out.append((space[i], i))
        return out

    kept = [i for i in range(rank) if i not in reduced and i != inner]
    sums = [i for i in range(rank) if i in reduced and i != inner]
    if not reduced:
        groups = [[*kept, inner] if rank else [], [], []]
    elif inner in reduced:
        groups = [kept, [*sums, inner], []]
    else:
        tail = [inner]
        while inner == rank - 1 and tail[0] - 1 in kept:
            tail.insert(0, tail[0] - 1)
        if len(collapse(tail)) > 1:
            tail = tail[-1:]
        groups = [[i for i in kept if i not in tail], sums, tail]
    collapsed = [collapse(group) for group in groups]
    extents = [n for group in collapsed for n, _ in group]
    positions = [last for group in collapsed for _, last in group]
    return Order(extents, positions, len(collapsed[0]), len(collapsed[1]), bool(collapsed[2]))
