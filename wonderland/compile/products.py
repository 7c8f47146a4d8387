"""Matrix products in a plan: a `Contract` and its memory come in, what the driver needs to call it goes out.

An elementwise kernel that reads a product runs as its epilogue if it can: GEMM hands it the rows of the result as they
are finished, while they are in the cache. It is an ordinary kernel over a range of rows, with any number of results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from wonderland.compile import gemm, small_gemm
from wonderland.compile.entry import round_up
from wonderland.compile.fuse import Cluster, operands_of, squeezed_strides
from wonderland.compile.kernels import Nest
from wonderland.compile.loops import Kernel
from wonderland.compile.nodes import Contract, Gather, base_of, contiguous_strides, layout_of

ALIGNMENT = 64
# Multiply-adds up to which GEMM doesn't share one product between threads, up to which sharing many of them is better
# still, and from which many are worth sharing.
SHARED_ALONE, BETTER_TOGETHER, SHARED_TOGETHER = 1 << 20, 1 << 24, 1 << 17
MANY_PRODUCTS, MOST_PRODUCTS = 8, 32  # entries that make a batch worth sharing by entries; most pieces of a batch
MOST_SCRATCH = 1 << 22  # bytes for all pieces together
MANY_ROWS = 96  # of a product with an epilogue, which is shared by rows only


class RunKernel:
    """Call a kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel


class RunGemm:
    """Matrix products, one for each entry of the batch; many small ones are shared between threads."""

    node: Contract
    x: Any
    y: Any
    out: Any
    position: int

    def __init__(self, node: Contract, x: Any, y: Any, out: Any, position: int):
        self.node, self.x, self.y, self.out, self.position = node, x, y, out, position
        size = node.real_dtype.itemsize
        self.dtype = "f32" if size == 4 else "f64"
        # (extent, strides of x, y and the result), from the outside in
        self.batch: list[tuple[int, int, int, int]] = collapsed_batch(node)
        self.total: int = math.prod(node.batch)
        one = node.m * node.n * node.k
        largest = SHARED_ALONE if self.total < MANY_PRODUCTS else BETTER_TOGETHER
        shared = len(self.batch) <= 2 and one < largest and SHARED_TOGETHER <= one * self.total
        self.small: bool = small_gemm.fits((node.m, node.n, node.k), size)
        scratch = 0 if self.small else gemm.scratch_bytes(node.m, node.n, node.k, self.dtype)
        self.scratch_bytes: int = round_up(scratch, ALIGNMENT)
        most = max(MANY_PRODUCTS, min(MOST_PRODUCTS, MOST_SCRATCH // max(self.scratch_bytes, 1)))
        self.pieces: int = min(self.total, most) if shared else 1
        self.scratch: Any = None
        self.epilogue: Kernel | None = None
        self.row_steps = 0  # turns of the epilogue's outer loop for a row of the product

    @property
    def takes_epilogue(self) -> bool:
        node = self.node
        shared = node.m * node.n * node.k >= gemm.PARALLEL_WORK  # otherwise both would run on one thread
        return shared and not (self.small or self.epilogue or self.batch) and node.m >= MANY_ROWS and node.n > 1


def collapsed_batch(node: Contract) -> list[tuple[int, int, int, int]]:
    """The batch axes of a product, adjacent ones that all three arrays walk as one joined."""
    out: list[tuple[int, int, int, int]] = []
    step = node.m * node.n
    for i in reversed(range(len(node.batch))):
        extent, x, y = node.batch[i], node.x_strides[1 + i], node.y_strides[1 + i]
        if out and x == out[0][1] * out[0][0] and y == out[0][2] * out[0][0]:
            out[0] = (out[0][0] * extent, *out[0][1:])
        elif extent != 1:
            out.insert(0, (extent, x, y, step))
        step *= extent
    return out


def attach(cluster: Cluster, nest: Nest, steps: list[Any]) -> bool:
    """Make a generated kernel the epilogue of the last product that it reads, if nothing stands between them."""
    kernel = nest.kernel
    if not kernel.parallel or kernel.checks or set(cluster.roles.values()) != {"full"}:
        return False
    read = {_root(buffer) for buffer, _ in kernel.params}
    written = {_root(buffer) for buffer in nest.written}
    for step in reversed(steps):
        if isinstance(step, RunGemm):
            touched, changed = (step.x, step.y, step.scratch, step.out), (step.scratch, step.out)
            if step.takes_epilogue and _reads_own_element(cluster, step.node):
                return _attach(step, nest, read, written)
        elif isinstance(step, RunKernel) and not step.kernel.checks:  # one that can fail comes before what is written
            touched, changed = [buffer for buffer, _ in step.kernel.params], step.kernel.written
        else:
            return False
        if written & _roots(touched) or read & _roots(changed):
            return False  # the kernel can't run before this step
    return False


def _attach(step: RunGemm, nest: Nest, read: set, written: set) -> bool:
    """The product's operands must last until its last row is finished, and so must what the kernel reads and writes."""
    rows, turns = step.node.m, nest.extents[0]
    in_order = nest.positions == sorted(nest.positions)
    if written & _roots((step.x, step.y)) or turns % rows or not in_order:
        return False
    step.epilogue, step.row_steps = nest.kernel, turns // rows
    for buffer in read | written:
        buffer.touch(step.position)
    return True


def _reads_own_element(cluster: Cluster, node: Contract) -> bool:
    """Does a cluster read a product, and only at its own element?"""
    identity, found = contiguous_strides(cluster.space), False
    for member in cluster.roles:
        if isinstance(member, Gather) and member.source is node:
            return False
        for operand in operands_of(member):
            if base_of(operand) is node:
                found = True
                if layout_of(operand)[0] or squeezed_strides(operand) != identity:
                    return False
    return found


def _root(buffer: Any) -> Any:
    """The memory that a slice is part of."""
    while buffer.kind == "slice":
        buffer = buffer.data[0]
    return buffer


def _roots(buffers: Iterable[Any]) -> set:
    return {_root(buffer) for buffer in buffers}
