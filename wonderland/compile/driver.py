"""The native `run(slots, arena, table)`: steps come in, a whole module of LLVM IR and its table of numbers go out.

`run` calls the kernels and GEMM with their memory; loops and branches are native functions of the same three arguments
(counters live in cells at the head of the arena). Nothing in the text depends on addresses, offsets or large extents:
they are in the table. It returns 0, or the error word: a site's number, and 16 bits further up the offending index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.compile import signals, small_gemm, vecmath
from wonderland.compile.entry_layout import RAISED
from wonderland.compile.hints import with_loop_hints
from wonderland.compile.loops import Kernel
from wonderland.compile.nodes import Number
from wonderland.compile.plan import Buffer, Copy, Plan, Poll, RunBranch, RunCall, RunGemm, RunKernel, RunLoop
from wonderland.compile.routine import Routine

MOST_STEPS = 200  # in one function
MOST_INLINED = 3  # calls of a kernel that LLVM may inline: equal kernels are compiled once
ARGUMENTS = "ptr noalias %slots, ptr %arena, ptr noalias readonly %table"
PASSED = "ptr %slots, ptr %arena, ptr %table"

# The error numbers; from the third on they are sites: failing indices and conditions.
OUT_OF_MEMORY, FIRST_SITE = 1, RAISED + 1

HELPERS = f"""
define internal void @wl_fail(ptr %err, i64 %site, i64 %index) cold noinline {{
  %old = load i64, ptr %err, align 8
  %first = icmp eq i64 %old, 0
  br i1 %first, label %set, label %done
set:
  %high = shl i64 %index, 16
  %code = or i64 %high, %site
  store i64 %code, ptr %err, align 8
  br label %done
done:
  ret void
}}

; Cells of a growing buffer: pointer, length, capacity in bytes.
define internal i1 @wl_reserve(ptr %cells, i64 %bytes, ptr %err) {{
  %capacity.at = getelementptr i64, ptr %cells, i64 2
  %capacity = load i64, ptr %capacity.at, align 8
  %enough = icmp ule i64 %bytes, %capacity
  br i1 %enough, label %done, label %grow
grow:
  %twice = shl i64 %capacity, 1
  %least = call i64 @llvm.umax.i64(i64 %twice, i64 4096)
  %size = call i64 @llvm.umax.i64(i64 %least, i64 %bytes)
  %old = load ptr, ptr %cells, align 8
  %new = call ptr @realloc(ptr %old, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %full, label %set
full:
  call void @wl_fail(ptr %err, i64 {OUT_OF_MEMORY}, i64 0)
  ret i1 false
set:
  store ptr %new, ptr %cells, align 8
  store i64 %size, ptr %capacity.at, align 8
  br label %done
done:
  ret i1 true
}}
"""
DECLARATIONS = [
    "declare void @wl_parallel(ptr, ptr, i64)",
    "declare i64 @llvm.umin.i64(i64, i64)",
    "declare i64 @llvm.umax.i64(i64, i64)",
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare i64 @llvm.smax.i64(i64, i64)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare ptr @realloc(ptr, i64)",
    "declare void @free(ptr)",
]
GEMM = "declare void @wl_gemm_{}(i64, i64, i64, ptr, i64, i64, ptr, i64, i64, ptr, i64, i64, ptr{})"


def product_call(product: str, values: Sequence[str]) -> str:
    """The call of GEMM with all its arguments, or of a function for small sizes with the arrays, m and k."""
    if product.startswith("wl_small"):
        m, k, x, y, out = (values[i] for i in (0, 2, 3, 6, 9))
        return f"call void @{product}(ptr {x}, ptr {y}, ptr {out}, i64 {m}, i64 {k})"
    kinds = ["ptr" if i in (3, 6, 9, 12, 13, 14) else "i64" for i in range(len(values))]
    return f"call void @{product}({', '.join(f'{kind} {v}' for kind, v in zip(kinds, values, strict=True))})"


BATCH_FIELDS = (
    "x y out scratch m n k xm xk yn yk x.outer y.outer out.outer x.inner y.inner out.inner inner grain total bytes"
).split()


def batch_task(product: str) -> str:
    """The task of `shared_gemm`: products `piece * grain` to `(piece + 1) * grain`."""
    lines = [f"define internal void @wl_batch.{product}(ptr %c, i64 %piece) {{", "entry:"]
    for i, field in enumerate(BATCH_FIELDS):
        kind = "ptr" if i < 4 else "i64"
        lines += [f"  %{field}.at = getelementptr i64, ptr %c, i64 {i}", f"  %{field} = load {kind}, ptr %{field}.at"]
    lines += [
        "  %begin = mul i64 %piece, %grain",
        "  %stop = add i64 %begin, %grain",
        "  %end = call i64 @llvm.umin.i64(i64 %stop, i64 %total)",
        "  %shift = mul i64 %piece, %bytes",
        "  %own = getelementptr i8, ptr %scratch, i64 %shift",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]",
        "  %i.outer = udiv i64 %i, %inner",
        "  %i.inner = urem i64 %i, %inner",
    ]
    for name in ("x", "y", "out"):
        lines += [
            f"  %{name}.1 = mul i64 %i.outer, %{name}.outer",
            f"  %{name}.2 = mul i64 %i.inner, %{name}.inner",
            f"  %{name}.3 = add i64 %{name}.1, %{name}.2",
            f"  %{name}.4 = getelementptr i8, ptr %{name}, i64 %{name}.3",
        ]
    values = "%m %n %k %x.4 %xm %xk %y.4 %yk %yn %out.4 %n 0 %own".split()
    lines += [
        f"  {product_call(product, values)}",
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %end",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def rows_task(kernel: str, count: int) -> str:
    """The epilogue of a product: a kernel of `count` pointers over a range of rows."""
    lines = [f"define internal void @{kernel}.rows(ptr %c, i64 %first, i64 %last) {{"]
    for i in range(count + 1):
        kind = "ptr" if i < count else "i64"
        lines += [f"  %c{i} = getelementptr i64, ptr %c, i64 {i}", f"  %v{i} = load {kind}, ptr %c{i}"]
    arguments = ", ".join(f"ptr %v{i}" for i in range(count))
    lines += [
        f"  %begin = mul i64 %first, %v{count}",
        f"  %end = mul i64 %last, %v{count}",
        f"  call void @{kernel}.range({arguments}, i64 %begin, i64 %end)",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


class Function:
    """The text of one function of the driver."""

    def __init__(self, name: str):
        self.name = name
        self.lines: list[str] = []
        self.count: int = 0
        self.label = "entry"
        self.attributes = ""
        self.can_fail = False

    def let(self, instruction: str) -> str:
        self.count += 1
        name = f"%x{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label: str = label

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def text(self) -> str:
        body = "\n".join(self.lines)
        return f"define internal void @{self.name}({ARGUMENTS}) {self.attributes}{{\nentry:\n{body}\n  ret void\n}}"


class Driver:
    """Writes the module of a planned Program."""

    def __init__(
        self, plan: Plan, steps: list[Any], dynamic_outputs: list[tuple[Buffer, int]], callbacks: Any, watch: Any = None
    ):
        self.plan = plan
        self.callbacks = callbacks
        self.watch = watch  # puts a clock around steps
        self.table: list[int | Buffer] = []
        self.cells: dict[Any, int] = {}
        self.functions: list[str] = []
        self.kernels: dict[str, str] = {}
        self.calls: Counter[str] = Counter()  # of each kernel
        self.needed: set[tuple[str, str]] = set()
        self.routines: dict[str, Routine] = {}
        self.declared: set[str] = set(DECLARATIONS)
        self.gemms: set[str] = set()
        self.epilogues: dict[str, str] = {}
        self.small: dict[str, str] = {}
        self.batched: set[str] = set()
        main = Function("main")
        self.steps(main, steps)
        self.functions.append(main.text())
        self.ir: str = self._module(dynamic_outputs)

    def numbers(self) -> np.ndarray:
        """The table; after the plan is finished."""
        values = [item.offset if isinstance(item, Buffer) else item for item in self.table] or [0]
        return np.array(values, np.int64)

    # -- small parts ------------------------------------------------------------------------------

    def number(self, f: Function, value: int | Buffer, key: Any = None) -> str:
        """A number from the table. One that a person would call structure (0, 1) is written out."""
        if isinstance(value, int) and value in (0, 1):
            return str(value)
        if key is None or key not in self.cells:
            at = len(self.table)
            self.table.append(value)
            if key is not None:
                self.cells[key] = at
        else:
            at = self.cells[key]
        place = f.let(f"getelementptr inbounds i64, ptr %table, i64 {at}")
        return f.let(f"load i64, ptr {place}, align 8, !invariant.load !0")

    def cell(self, f: Function, index: int) -> str:
        return f.let(f"getelementptr inbounds i64, ptr %arena, i64 {index}")

    def slot(self, f: Function, index: int) -> str:
        return f.let(f"getelementptr inbounds ptr, ptr %slots, i64 {index}")

    def pointer(self, f: Function, buffer: Buffer, offset: int = 0) -> str:
        """The address of a buffer, and `offset` bytes further."""
        if buffer.kind == "slot":
            text = f.let(f"load ptr, ptr {self.slot(f, buffer.data)}, align 8, !invariant.load !0")
        elif buffer.kind == "arena":
            text = f.let(f"getelementptr inbounds i8, ptr %arena, i64 {self.number(f, buffer, buffer)}")
        elif buffer.kind == "constant":
            address = self.number(f, buffer.data, buffer)
            text = f.let(f"inttoptr i64 {address} to ptr")
        elif buffer.kind == "heap":
            text = f.let(f"load ptr, ptr {self.cell(f, buffer.data)}, align 8")
        else:
            base, counter, stride, start = buffer.data
            text = self.pointer(f, base, start)
            t = f.let(f"load i64, ptr {self.cell(f, counter)}, align 8")
            step = f.let(f"mul nsw i64 {t}, {self.number(f, stride)}")
            text = f.let(f"getelementptr inbounds i8, ptr {text}, i64 {step}")
        if offset:
            text = f.let(f"getelementptr inbounds i8, ptr {text}, i64 {self.number(f, offset)}")
        return text

    # -- steps ------------------------------------------------------------------------------------

    def steps(self, f: Function, steps: list[Any]) -> None:
        """Emit steps, in parts if there are many."""
        if len(steps) <= MOST_STEPS:
            for step in steps:
                if self.watch is None:
                    self.step(f, step)
                else:
                    self.watch.around(self, f, step, self.step)
            return
        for i in range(0, len(steps), MOST_STEPS):
            # LLVM's time grows faster than a function: the parts stay apart.
            self.function(f, "part", steps[i : i + MOST_STEPS], "noinline ")

    def function(self, f: Function, name: str, steps: list[Any], attributes: str = "") -> None:
        """Steps as a function of their own, and its call."""
        part = Function(name)
        part.attributes = attributes
        self.steps(part, steps)
        part.name = f"{name}.{len(self.functions)}"
        self.functions.append(part.text())
        f.do(f"call void @{part.name}({PASSED})")
        if part.can_fail:
            self.leave_if_failed(f)

    def step(self, f: Function, step: Any) -> None:
        if isinstance(step, RunKernel):
            self.kernel(f, step)
        elif isinstance(step, Copy):
            self.copy(f, step)
        elif isinstance(step, RunGemm):
            self.gemm(f, step)
        elif isinstance(step, RunCall):
            self.call(f, step)
        elif isinstance(step, RunBranch):
            self.branch(f, step)
        elif isinstance(step, Poll):
            self.poll(f, step.work)
        else:
            self.loop(f, step)

    def kernel(self, f: Function, step: RunKernel) -> None:
        kernel = step.kernel
        arguments = ", ".join(f"ptr {pointer}" for pointer in self.kernel_arguments(f, kernel))
        f.do(f"call void @{self.kernel_name(kernel)}({arguments})")
        if kernel.checks:
            self.leave_if_failed(f)

    def leave_if_failed(self, f: Function) -> None:
        """What follows may write to memory that a run which fails leaves alone."""
        f.can_fail = True
        error = f.let("load i64, ptr %arena, align 8")
        bad, on = f.fresh("failed"), f.fresh("on")
        f.do(f"br i1 {f.let(f'icmp ne i64 {error}, 0')}, label %{bad}, label %{on}")
        f.start(bad)
        f.do("ret void")
        f.start(on)

    def kernel_name(self, kernel: Kernel) -> str:
        """The function of a kernel; equal ones share it."""
        if kernel.text not in self.kernels:
            name = f"k{len(self.kernels)}"
            self.kernels[kernel.text] = name
            self.needed |= kernel.needed
            self.declared |= kernel.declared
            self.routines |= kernel.routines
            for routine in kernel.routines.values():
                self.needed |= routine.needed
                self.declared |= routine.declared
        self.calls[kernel.text] += 1
        return self.kernels[kernel.text]

    def kernel_arguments(self, f: Function, kernel: Kernel) -> list[str]:
        """The pointers that a kernel is called with."""
        pointers = [self.pointer(f, buffer, offset) for buffer, offset in kernel.params]
        at = len(self.table)
        self.table += kernel.table
        pointers.append(f.let(f"getelementptr inbounds i64, ptr %table, i64 {at}"))
        return [*pointers, "%arena"] if kernel.checks else pointers

    def copy(self, f: Function, step: Copy) -> None:
        if step.size:
            to, source = self.pointer(f, step.to), self.pointer(f, step.source)
            size = str(step.size) if step.size <= 16 else self.number(f, step.size)
            f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def gemm(self, f: Function, step: RunGemm) -> None:
        node = step.node
        product = self.product(step)
        size = node.real_dtype.itemsize
        x = self.pointer(f, step.x, node.x_strides[0] * size)
        y = self.pointer(f, step.y, node.y_strides[0] * size)
        out, scratch = self.pointer(f, step.out), self.pointer(f, step.scratch)
        sizes = [self.number(f, v) for v in (node.m, node.n, node.k, *node.x_strides[-2:], *node.y_strides[-2:])]
        if step.pieces > 1:
            self.shared_gemm(f, step, product, [x, y, out, scratch], sizes)
            return
        m, n, k, xm, xk, yn, yk = sizes
        loops = []
        for extent, *strides in step.batch:  # a loop for each batch axis
            steps = [self.number(f, s * size) for s in strides]
            stop = self.number(f, extent)
            head, before, index = f.fresh("batch"), f.label, f.fresh("%b")
            f.do(f"br label %{head}")
            f.start(head)
            loops.append((head, before, index, len(f.lines), stop))
            f.lines.append("")  # the index, once the end of the loop is known
            moved = [f.let(f"mul i64 {index}, {by}") for by in steps]
            x, y, out = (
                f.let(f"getelementptr inbounds i8, ptr {base}, i64 {by}")
                for base, by in zip((x, y, out), moved, strict=True)
            )
        values = [m, n, k, x, xm, xk, y, yk, yn, out, n, "0", scratch]
        f.do(product_call(product, [*values, *(self.epilogue(f, step, step.epilogue) if step.epilogue else ())]))
        for head, before, index, at, stop in reversed(loops):
            following = f.let(f"add nuw nsw i64 {index}, 1")
            more = f.let(f"icmp ult i64 {following}, {stop}")
            exit = f.fresh("batched")
            f.lines[at] = f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{f.label} ]"
            f.do(f"br i1 {more}, label %{head}, label %{exit}")
            f.start(exit)

    def epilogue(self, f: Function, step: RunGemm, kernel: Kernel) -> tuple[str, str]:
        """A function that runs a kernel for some rows of a product, and its context."""
        name, pointers = self.kernel_name(kernel), self.kernel_arguments(f, kernel)
        self.epilogues[name] = rows_task(name, len(pointers))
        array = f.fresh("%rows")
        f.lines.insert(0, f"  {array} = alloca [{len(pointers) + 1} x i64], align 8")
        words = [("ptr", p) for p in pointers] + [("i64", self.number(f, step.row_steps))]
        for i, (kind, value) in enumerate(words):
            f.do(f"store {kind} {value}, ptr {f.let(f'getelementptr i64, ptr {array}, i64 {i}')}, align 8")
        return f"@{name}.rows", array

    def product(self, step: RunGemm) -> str:
        """The name of the function that multiplies: GEMM, or one made for this size."""
        node, dtype = step.node, step.dtype
        if not step.small:
            name = f"rows_{dtype}" if step.epilogue else dtype
            self.gemms.add(name)
            return f"wl_gemm_{name}"
        key = (dtype, (node.m, node.n, node.k), node.x_strides[-2:], node.y_strides[-2:])
        name = small_gemm.name(*key)
        if name not in self.small:
            self.small[name] = small_gemm.definition(*key)
            self.declared |= small_gemm.declarations(dtype)
        return name

    def shared_gemm(self, f: Function, step: RunGemm, product: str, pointers: list[str], sizes: list[str]) -> None:
        """A batch of products in pieces on the pool."""
        size = step.node.real_dtype.itemsize
        outer, inner = [(1, 0, 0, 0), *step.batch][-2:]
        grain = -(-step.total // step.pieces)
        pieces = self.number(f, -(-step.total // grain))
        numbers = [*(s * size for s in outer[1:]), *(s * size for s in inner[1:]), inner[0], grain, step.total]
        words = [*sizes, *(self.number(f, v) for v in (*numbers, step.scratch_bytes))]
        array = f.fresh("%batch")
        f.lines.insert(0, f"  {array} = alloca [{len(BATCH_FIELDS)} x i64], align 8")
        for i, (kind, value) in enumerate([("ptr", p) for p in pointers] + [("i64", w) for w in words]):
            f.do(f"store {kind} {value}, ptr {f.let(f'getelementptr i64, ptr {array}, i64 {i}')}, align 8")
        self.batched.add(product)
        f.do(f"call void @wl_parallel(ptr @wl_batch.{product}, ptr {array}, i64 {pieces})")

    def call(self, f: Function, step: RunCall) -> None:
        """Hand an array of pointers to Python; a dynamic operand's length follows its pointer."""
        pointers: list[str] = []
        for operand in step.operands:
            if isinstance(operand, Number):
                continue
            node, buffer = operand
            pointers.append(self.pointer(f, buffer))
            if None in node.shape:
                pointers.append(f.let(f"inttoptr i64 {self.length(f, buffer)} to ptr"))
        for node, buffer in zip(step.node.results, step.results, strict=True):
            dynamic = None in node.shape
            pointers.append(self.cell(f, buffer.data) if dynamic else self.pointer(f, buffer))
        array = f.fresh("%array")
        f.lines.insert(0, f"  {array} = alloca [{max(len(pointers), 1)} x ptr], align 8")
        for i, pointer in enumerate(pointers):
            f.do(f"store ptr {pointer}, ptr {f.let(f'getelementptr ptr, ptr {array}, i64 {i}')}, align 8")
        address = self.number(f, self.callbacks.add(step))
        self.declared.add(signals.DECLARATIONS["wl_host"])
        function = f.let(f"inttoptr i64 {address} to ptr")
        failed = f.let(f"call i64 @wl_host(ptr {function}, ptr {array})")
        bad, on = f.fresh("bad"), f.fresh("on")
        f.do(f"br i1 {f.let(f'icmp ne i64 {failed}, 0')}, label %{bad}, label %{on}")
        f.start(bad)
        f.can_fail = True
        f.do(f"call void @wl_fail(ptr %arena, i64 {failed}, i64 0)")
        f.do("ret void")
        f.start(on)

    def length(self, f: Function, buffer: Buffer) -> str:
        """The leading extent of a dynamic value."""
        place = self.cell(f, buffer.data + 1) if buffer.kind == "heap" else self.slot(f, buffer.data + 1)
        return f.let(f"load i64, ptr {place}, align 8")

    def branch(self, f: Function, step: RunBranch) -> None:
        index = f.let(f"load i64, ptr {self.pointer(f, step.index)}, align 8")
        low = f.let(f"call i64 @llvm.smax.i64(i64 {index}, i64 0)")
        chosen = f.let(f"call i64 @llvm.smin.i64(i64 {low}, i64 {len(step.bodies) - 1})")
        labels = [f.fresh("branch") for _ in step.bodies]
        done = f.fresh("chosen")
        cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels))
        f.do(f"switch i64 {chosen}, label %{labels[-1]} [ {cases} ]")
        for label, body in zip(labels, step.bodies, strict=True):
            f.start(label)
            self.function(f, "branch", body)
            f.do(f"br label %{done}")
        f.start(done)

    def loop(self, f: Function, step: RunLoop) -> None:
        if step.static == 0:
            return
        trip: str | None = None
        if step.static is not None:
            trip = self.number(f, step.static)
        elif step.length is not None:
            trip = f.let(f"load i64, ptr {self.pointer(f, step.length)}, align 8")
        head, body, done = f.fresh("loop"), f.fresh("body"), f.fresh("done")
        if trip is not None:
            for buffer, row in step.heaps:
                self.reserve(f, buffer, f.let(f"mul i64 {trip}, {self.number(f, row)}"))
                f.do(f"store i64 {trip}, ptr {self.cell(f, buffer.data + 1)}, align 8")
        before = f.label
        f.do(f"br label %{head}")
        f.start(head)
        t = f.fresh("%t")
        at = len(f.lines)
        f.lines.append("")
        error = f.let("load i64, ptr %arena, align 8")
        running = f.let(f"icmp eq i64 {error}, 0")
        if trip is not None:
            inside = f.let(f"icmp slt i64 {t}, {trip}")
        else:
            assert step.condition is not None and step.predicate is not None
            self.function(f, "condition", step.condition)
            byte = f.let(f"load i8, ptr {self.pointer(f, step.predicate)}, align 1")
            inside = f.let(f"icmp ne i8 {byte}, 0")
        more = f.let(f"and i1 {inside}, {running}")
        f.do(f"br i1 {more}, label %{body}, label %{done}")
        f.start(body)
        current = t
        if step.reverse and trip is not None:
            last = f.let(f"sub i64 {trip}, 1")
            current = f.let(f"sub i64 {last}, {t}")
        f.do(f"store i64 {current}, ptr {self.cell(f, step.counter)}, align 8")
        following = f.let(f"add nuw nsw i64 {t}, 1")
        if trip is None:
            for buffer, row in step.heaps:
                self.reserve(f, buffer, f.let(f"mul i64 {following}, {self.number(f, row)}"))
        self.function(f, "body", step.body)
        if step.pace:
            self.poll_in_loop(f, step.pace, following)
        f.do(f"br label %{head}")
        f.lines[at] = f"  {t} = phi i64 [ 0, %{before} ], [ {following}, %{f.label} ]"
        f.start(done)
        if trip is None:
            for buffer, _ in step.heaps:
                f.do(f"store i64 {t}, ptr {self.cell(f, buffer.data + 1)}, align 8")
            assert step.count is not None
            f.do(f"store i64 {t}, ptr {self.pointer(f, step.count)}, align 8")

    def poll_in_loop(self, f: Function, pace: int, turn: str) -> None:
        """Count the work of a turn; if it is little, that of several at once."""
        if pace * signals.GROUP > signals.BUDGET:
            self.poll(f, pace)
            return
        count, on = f.fresh("count"), f.fresh("on")
        several = f.let(f"and i64 {turn}, {signals.GROUP - 1}")
        f.do(f"br i1 {f.let(f'icmp eq i64 {several}, 0')}, label %{count}, label %{on}")
        f.start(count)
        self.poll(f, pace * signals.GROUP)
        f.do(f"br label %{on}")
        f.start(on)

    def poll(self, f: Function, work: int) -> None:
        """Count work; when the budget is used up, look at signals, and leave if they stop the run."""
        self.declared.add(signals.DECLARATIONS["wl_poll"])
        place = self.cell(f, signals.BUDGET_WORD)
        left = f.let(f"sub i64 {f.let(f'load i64, ptr {place}, align 8')}, {self.number(f, work)}")
        f.do(f"store i64 {left}, ptr {place}, align 8")
        look, on = f.fresh("look"), f.fresh("on")
        f.do(f"br i1 {f.let(f'icmp slt i64 {left}, 0')}, label %{look}, label %{on}")
        f.start(look)
        f.do("call void @wl_poll(ptr %arena)")
        self.leave_if_failed(f)
        f.do(f"br label %{on}")
        f.start(on)

    def reserve(self, f: Function, buffer: Buffer, size: str) -> None:
        """Make room in a growing buffer, or leave with the error word set."""
        enough = f.let(f"call i1 @wl_reserve(ptr {self.cell(f, buffer.data)}, i64 {size}, ptr %arena)")
        f.can_fail = True
        full, on = f.fresh("full"), f.fresh("on")
        f.do(f"br i1 {enough}, label %{on}, label %{full}")
        f.start(full)
        f.do("ret void")
        f.start(on)

    # -- the module -------------------------------------------------------------------------------

    def _module(self, dynamic_outputs: list[tuple[Buffer, int]]) -> str:
        f = Function("run")
        f.do("store i64 0, ptr %arena, align 8")
        if signals.DECLARATIONS["wl_poll"] in self.declared:
            for word, value in ((signals.BUDGET_WORD, signals.BUDGET), (signals.TIME_WORD, 0)):
                f.do(f"store i64 {value}, ptr {self.cell(f, word)}, align 8")
        for heap in self.plan.heaps:
            for i in range(3):
                f.do(f"store i64 0, ptr {self.cell(f, heap.data + i)}, align 8")
        f.do(f"call void @main({PASSED})")
        code = f.let("load i64, ptr %arena, align 8")
        if self.plan.final or dynamic_outputs:
            f.do(f"br i1 {f.let(f'icmp eq i64 {code}, 0')}, label %fine, label %end")
            f.start("fine")
            for copy in self.plan.final:
                self.copy(f, copy)
            for buffer, slot in dynamic_outputs:
                cells = self.cell(f, buffer.data)
                f.do(f"store ptr {f.let(f'load ptr, ptr {cells}, align 8')}, ptr {self.slot(f, slot)}, align 8")
                f.do(f"store i64 {self.length(f, buffer)}, ptr {self.slot(f, slot + 1)}, align 8")
                f.do(f"store ptr null, ptr {cells}, align 8")
            f.do("br label %end")
            f.start("end")
        for heap in self.plan.heaps:
            f.do(f"call void @free(ptr {f.let(f'load ptr, ptr {self.cell(f, heap.data)}, align 8')})")
        body = "\n".join(f.lines)
        run = f"define i64 @run({ARGUMENTS}) {{\nentry:\n{body}\n  ret i64 {code}\n}}"
        declared = self.declared | vecmath.intrinsics(self.needed) if self.needed else self.declared
        declared |= {GEMM.format(name, ", ptr, ptr" if name.startswith("rows") else "") for name in self.gemms}
        parts = ["\n".join(sorted(_once(declared))), HELPERS]
        if self.needed:
            parts.append(vecmath.module_text(self.needed))
        parts += [self.routines[name].text for name in sorted(self.routines)]
        parts += [*self.small.values(), *(batch_task(product) for product in sorted(self.batched))]
        parts += [self._kernel_text(text) for text in self.kernels]
        parts += [*self.epilogues.values(), *self.functions, run, "!0 = !{}\n"]
        return with_loop_hints("\n\n".join(parts), 1)

    def _kernel_text(self, text: str) -> str:
        named = text.replace("@NAME", f"@{self.kernels[text]}")
        return named.replace(") {\n", ") noinline {\n", 1) if self.calls[text] > MOST_INLINED else named


def _once(declared: set[str]) -> list[str]:
    """One declaration per function, whatever its attributes."""
    by_name = {line.split("@", 1)[1].split("(", 1)[0]: line for line in sorted(declared)}
    return list(by_name.values())
