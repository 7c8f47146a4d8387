"""Matrix products: the node, its memory, and the calls of GEMM or of a function made for small sizes.

An elementwise kernel that reads a product runs as its epilogue if it can: GEMM hands it the rows of the result as they
are finished, while they are in the cache. It is an ordinary kernel over a range of rows, with any number of results.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from wonderland.compile import gemm, ir, pool, small_gemm
from wonderland.compile.gemm_tile import NAMES, ceil_div
from wonderland.compile.kernel import Kernel
from wonderland.compile.memory import ALIGNMENT, Buffer, round_up
from wonderland.compile.nodes import STEP, Node, Whole, contiguous_strides, joined_axes
from wonderland.compile.scalars import real_dtype
from wonderland.compile.steps import Step
from wonderland.core.types import ArrayType

NANOSECONDS = 0.02  # of a multiply-add
# Multiply-adds up to which GEMM doesn't share one product between threads, up to which sharing many of them is better
# still, and from which many are worth sharing.
SHARED_ALONE, BETTER_TOGETHER, SHARED_TOGETHER = 1 << 20, 1 << 24, 1 << 17
MANY_PRODUCTS, MOST_PRODUCTS = 8, 32  # entries that make a batch worth sharing by entries; most pieces of a batch
MOST_SCRATCH = 1 << 22  # bytes for all pieces together
NO_EPILOGUE = ir.constant(None, ir.POINTER), ir.constant(None, ir.POINTER)
MANY_ROWS = 96  # of a product with an epilogue, which is shared by rows only


Places = tuple[list[tuple[int, ...]], list[tuple[int, ...]]]  # (extent, stride) of each axis


class Contract(Whole):
    """A matrix product by GEMM for each batch entry: extents (batch..., m, n, k), strides of x and y along them.

    If its dtype is complex, extents and strides count the real numbers of which x, y and the result consist.
    """

    def __init__(
        self, type: ArrayType, x: Node, y: Node, sizes: tuple[tuple[int, ...], int, int, int],
        x_strides: tuple[int, ...], y_strides: tuple[int, ...], places: Places | None = None,
    ):  # fmt: skip
        super().__init__(type)
        self.x: Node = x
        self.y: Node = y
        self.batch, self.m, self.n, self.k = sizes
        self.x_strides: tuple[int, ...] = x_strides
        self.y_strides: tuple[int, ...] = y_strides  # (offset, batch strides..., two matrix strides)
        self.places: Places | None = places  # axes of the rows and of the steps of x, if they aren't one each

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.x, self.y)

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return math.prod(self.batch) * self.m * self.n * self.k

    @property
    def nanoseconds(self) -> float:
        return STEP + NANOSECONDS * self.work

    def plan(self, plan: Any, position: int) -> None:
        plan.share_place(self)
        run = RunProduct(self, plan.memory[self.x], plan.memory[self.y], plan.own(self), plan.plan.position)
        run.scratch = plan.scratch(run.scratch_bytes * run.pieces)
        plan.add(run, NANOSECONDS * self.work)

    def __str__(self) -> str:
        batch = f"{math.prod(self.batch)} " if math.prod(self.batch) != 1 else ""
        sizes = f"{self.m}x{self.k} by {self.k}x{self.n}, {self.dtype.name}"
        return f"{batch}product{'s' if batch else ''} {'of windows ' if self.places else ''}{sizes}"


class RunProduct(Step):
    """Matrix products, one for each entry of the batch; many small ones are shared between threads."""

    is_long = True

    def __init__(self, node: Contract, x: Buffer, y: Buffer, out: Buffer, position: int):
        self.node: Contract = node
        self.x: Buffer = x
        self.y: Buffer = y
        self.out: Buffer = out
        self.position: int = position
        self.size: int = real_dtype(node.dtype).itemsize  # of a number
        self.dtype: str = NAMES[self.size]
        strides = node.x_strides[1:-2], node.y_strides[1:-2], contiguous_strides((*node.batch, node.m, node.n))[:-2]
        self.batch: list[tuple[int, ...]] = joined_axes(node.batch, *strides)
        self.total: int = math.prod(node.batch)
        one = node.m * node.n * node.k
        largest = SHARED_ALONE if self.total < MANY_PRODUCTS else BETTER_TOGETHER
        shared = len(self.batch) <= 2 and one < largest and SHARED_TOGETHER <= one * self.total
        placed = node.places is not None
        self.form: str = gemm.form_for(node.n, self.dtype, placed, node.x_strides[-2])
        self.small: bool = not placed and small_gemm.fits((node.m, node.n, node.k), self.size)
        scratch = 0 if self.small else gemm.scratch_bytes(node.m, node.n, node.k, self.dtype, self.form)
        self.scratch_bytes: int = round_up(scratch, ALIGNMENT)
        most = max(MANY_PRODUCTS, min(MOST_PRODUCTS, MOST_SCRATCH // max(self.scratch_bytes, 1)))
        self.pieces: int = min(self.total, most) if shared else 1
        self.scratch: Any = None
        self.epilogue: Kernel | None = None
        self.turns: int = 0  # of the epilogue's outer loop for a row of the product

    @property
    def touched(self) -> list[Buffer]:
        after = [] if self.epilogue is None else [buffer for buffer, _ in self.epilogue.params]
        return [self.x, self.y, self.scratch, self.out, *after]

    @property
    def written(self) -> list[Buffer]:
        return [self.scratch, self.out, *(() if self.epilogue is None else self.epilogue.written)]

    @property
    def result(self) -> Buffer | None:
        node = self.node
        shared = node.m * node.n * node.k >= gemm.PARALLEL_WORK  # otherwise both would run on one thread
        alone = self.small or self.batch or not shared or node.m < MANY_ROWS or node.n <= 1
        return None if alone else self.out

    def offer(self, kernel: Kernel) -> bool | None:
        """The operands must last until the last row is finished, and so must what the kernel reads and writes."""
        if self.result is None or self.epilogue:
            return None
        node = self.node
        turns = kernel.turns_per_row(node)
        if turns is None:
            return None
        written = {buffer.root for buffer in kernel.written}
        if not turns or written & {self.x.root, self.y.root}:
            return False
        self.epilogue = kernel
        self.turns: int = turns
        for buffer in (*(buffer for buffer, _ in kernel.params), *kernel.written):
            buffer.root.touch(self.position)
        return True

    def emit(self, out: Any, f: ir.Function) -> None:
        node, size = self.node, self.size
        x = out.pointer(f, self.x, node.x_strides[0] * size)
        y = out.pointer(f, self.y, node.y_strides[0] * size)
        result = out.pointer(f, self.out)
        if self.small and not self.batch:
            f.call(self._function, x, y, result, out.number(f, node.m), out.number(f, node.k))
            return
        scratch = out.pointer(f, self.scratch)
        sizes = [out.number(f, v) for v in (node.m, node.n, node.k, *node.x_strides[-2:], *node.y_strides[-2:])]
        if node.places is not None:
            axes = [number for group in node.places for number in _filled(group)]
            sizes[3:5] = out.record(f, [out.number(f, v) for v in axes]), out.number(f, 0)
        if self.pieces > 1:
            self._share(out, f, [x, y, result, scratch], sizes)
            return
        with ExitStack() as loops:
            for extent, *strides in self.batch:
                steps = [out.number(f, s * size) for s in strides]
                i = loops.enter_context(f.loop(0, out.number(f, extent)))
                x, y, result = (f.element(ir.BYTE, p, i * by) for p, by in zip((x, y, result), steps, strict=True))
            self._multiply(f, sizes, x, y, result, scratch, self._epilogue(out, f))

    def _multiply(
        self, f: ir.Function, sizes: list[ir.Value], x: ir.Value, y: ir.Value, out: ir.Value, scratch: ir.Value,
        epilogue: tuple[ir.Value, ir.Value] = NO_EPILOGUE,
    ) -> None:  # fmt: skip
        m, n, k, xm, xk, yn, yk = sizes
        if self.small:
            f.call(self._function, x, y, out, m, k)
        else:
            f.call(self._function, m, n, k, x, xm, xk, y, yk, yn, out, n, scratch, *epilogue)

    @cached_property
    def _function(self) -> ir.Function | ir.External:
        """GEMM, or a function for this size."""
        node = self.node
        sizes, x, y = (node.m, node.n, node.k), node.x_strides[-2:], node.y_strides[-2:]
        if node.places is not None:
            return gemm.external(self.dtype, "gemp", self.form)
        if not self.small:
            by_vector = gemm.is_by_vector(*sizes, x, y)
            return gemm.external(self.dtype, "gemv") if by_vector else gemm.external(self.dtype, "gemm", self.form)
        return small_gemm.definition(self.dtype, sizes, x, y)

    def _epilogue(self, out: Any, f: ir.Function) -> tuple[ir.Value, ir.Value]:
        """A function that runs a kernel for some rows of a product, and its context."""
        if self.epilogue is None:
            return NO_EPILOGUE
        body = out.kernel(self.epilogue)
        pointers = out.kernel_arguments(f, self.epilogue)
        task = out.once(f"{body.name}.rows", lambda: _rows_task(body, len(pointers)))
        return f.at(task), out.record(f, [*pointers, out.number(f, self.turns)])

    def _share(self, out: Any, f: ir.Function, pointers: list[ir.Value], sizes: list[ir.Value]) -> None:
        """A batch of products in pieces on the pool."""
        outer, inner = [(1, 0, 0, 0), *self.batch][-2:]
        grain = ceil_div(self.total, self.pieces)
        numbers = [*(s * self.size for s in (*outer[1:], *inner[1:])), inner[0], grain, self.total, self.scratch_bytes]
        words = [*sizes, *(out.number(f, v) for v in numbers)]
        task = out.once(f"{self._function.name}.batch", self._batch_task)
        pieces = out.number(f, ceil_div(self.total, grain))
        f.call(pool.PARALLEL, f.at(task), out.record(f, [*pointers, *words]), pieces)

    def _batch_task(self) -> ir.Function:
        """Products `piece * grain` to `(piece + 1) * grain`."""
        f = ir.Function("", [("context", ir.POINTER), ("piece", ir.LONG)])
        context, piece = f.parameters
        types = [*[ir.POINTER] * 4, *[ir.LONG] * 17]
        if self.node.places is not None:
            types[4 + 3] = ir.POINTER
        fields = [f.load(type, f.element(ir.LONG, context, i)) for i, type in enumerate(types)]
        pointers, scratch, sizes = fields[:3], fields[3], fields[4:11]
        outer, inner, (count, grain, total, size) = fields[11:14], fields[14:17], fields[17:]
        begin, own = piece * grain, f.element(ir.BYTE, scratch, piece * size)
        with f.loop(begin, f.min(begin + grain, total, signed=False)) as i:
            far, near = i // count, i % count
            x, y, out = (
                f.element(ir.BYTE, pointer, far * a + near * b)
                for pointer, a, b in zip(pointers, outer, inner, strict=True)
            )
            self._multiply(f, sizes, x, y, out, own)
        return f

    def __str__(self) -> str:
        if self.epilogue is None:
            return str(self.node)
        follows = f"kernel {self.epilogue.describe()}".replace("\n", "\n  ")
        return f"{self.node}, then on its rows\n  {follows}"


def _filled(axes: list[tuple[int, ...]]) -> list[int]:
    """Extents and strides of as many axes as GEMM takes."""
    return [number for axis in (*[(1, 0)] * (gemm.MOST_AXES - len(axes)), *axes) for number in axis]


def _rows_task(body: ir.Function, count: int) -> ir.Function:
    """The epilogue of a product: a kernel of `count` pointers over a range of rows."""
    f = ir.Function("", [("context", ir.POINTER), ("first", ir.LONG), ("last", ir.LONG)])
    context, first, last = f.parameters
    pointers = [f.load(ir.POINTER, f.element(ir.LONG, context, i)) for i in range(count)]
    turns = f.load(ir.LONG, f.element(ir.LONG, context, count))
    f.call(body, *pointers, first * turns, last * turns)
    return f
