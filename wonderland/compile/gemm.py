"""The generator of matrix products: an element type comes in, a module of LLVM IR or the address of its code goes out.

    void wl_gemm_f32(i64 m, i64 n, i64 k, ptr A, i64 rsa, i64 csa, ptr B, i64 rsb, i64 csb, ptr C, i64 ldc,
                     ptr scratch, ptr epilogue, ptr context)

    C[i*ldc + j] = sum_p A[i*rsa + p*csa] * B[p*rsb + j*csb]

An `epilogue` that isn't null is called as `epilogue(context, first, last)` for rows first <= i < last of C as soon as
they are finished and still in the cache: exactly once for each row, on whichever thread finished it. Strides count
elements and may have any sign or be zero. `scratch` belongs to the call: as many bytes as `scratch_bytes(m, n, k,
dtype, form)` says, in any alignment. So the code allocates nothing, and any number of threads may be inside it.

The way of the data (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015): the product is cut into blocks whose
operands fit the caches, each block is packed into panels as wide as the register tile, and the tile kernel runs over
the panels. Packing and tiles are tasks of the pool. Where packing doesn't pay, the kernel reads the operand where it
lies. The cut along k depends on nothing but the sizes and strides: results are the same to the bit for any number of
threads. `wl_gemv_f32`, of the same parameters, multiplies with a vector (m = 1 or n = 1): see `gemm_vector`.

`wl_gemp_f32` reads A at *places*, A[row_places[i] + step_places[p]], as the windows of an image lie. Instead of `rsa`
and `csa` it gets a table, (extent, stride) of `MOST_AXES` axes of the rows and then of the steps, from the outside in,
and the number of the first step, which is 0 but for parts along k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from wonderland.compile import ir, pool
from wonderland.compile.gemm_kernel import kernel
from wonderland.compile.gemm_low import FEW_ROWS, MANY_COLUMNS, low_blocks
from wonderland.compile.gemm_pack import PACKED_PANELS, pack_columns, pack_placed, pack_rows, pack_tall, pack_wide
from wonderland.compile.gemm_tile import (
    UNROLL,
    Fields,
    Tile,
    at_most,
    begin,
    ceil_div,
    round_up,
    run,
    share,
    tile,
    types,
)
from wonderland.compile.gemm_vector import matrix_vector, scratch_elements
from wonderland.compile.ir import LONG, RARE, VOID, Function, Value

BLOCK_COLUMNS = 2048
CHUNK_COLUMNS = 64  # least columns of a chunk
CHUNK_TILES = 4  # least tiles down a chunk
CHUNK_WORK = 1 << 17  # multiply-adds that are worth a task
MOST_CHUNKS, FEW_CHUNKS = 24, 12  # chunks of rows; few of them are cut into columns, too
PARALLEL_WORK = 1 << 21  # multiply-adds from which a product is shared between threads
SMALL_BYTES = 1 << 16  # of an operand that needn't be packed
NEAR_BYTES = 1 << 21  # of an operand that is read where it lies if it is used a few times
FEW_TILES, MANY_BLOCKS = 64, 16  # of a result that is rather shared along k: so few tiles, or so many blocks of k
SPLIT_DEPTH, MOST_PARTS, SPLIT_BYTES = 1024, 16, 1 << 21  # least steps of k in a part, most parts, bytes for all
PACKED_WINDOWS = 192  # columns from which windows are packed, though their places aren't side by side
MOST_AXES = 4  # of the rows, and of the steps, of an operand at places


def scratch_bytes(m: int, n: int, k: int, dtype: str, form: str = "") -> int:
    """Bytes of scratch that a product of these sizes needs, whatever the strides."""
    t = tile(dtype, form)
    if m <= 0 or n <= 0 or k <= 0:
        return 0
    whole = _panel_bytes(t, min(n, BLOCK_COLUMNS), min(k, t.depth))
    by_vector = scratch_elements(m, n, k) * t.bytes + 128 if m == 1 or n == 1 else 0
    size = _part_bytes(t, m, n)
    parts = min(k // SPLIT_DEPTH, SPLIT_BYTES // size, MOST_PARTS)
    few = ceil_div(m, t.rows) * ceil_div(n, t.columns) <= FEW_TILES
    split = parts > 1 and (few or k >= MANY_BLOCKS * t.depth) and m * n * k >= PARALLEL_WORK
    return max(whole, by_vector, parts * size + 128 if split else 0)


def _part_bytes(t: Tile, m: Any, n: Any) -> Any:
    """Bytes of the result and the panels of a part along k."""
    return round_up(m * n * t.bytes, 64) + round_up(_panel_bytes(t, n, round_up(t.depth, UNROLL)), 64)


def form_for(n: int, dtype: str, placed: bool = False, row_stride: int = 0) -> str:
    """The form of the tile for a product of so many columns, by how A lies.

    Windows that aren't packed are best read with one vector of B, as each number is then the operand of one
    instruction, or with so many that it is worth a register. Two dozen rows of a matrix may begin at the same place of
    their pages, and then crowd each other out of L1: so many only if they lie side by side.
    """
    t, wide, narrow = (tile(dtype, form) for form in ("", "wide", "narrow"))
    if narrow != t and n <= narrow.columns and (placed or row_stride == 1):
        return "narrow"
    if wide == t or n > (PACKED_WINDOWS - 1 if placed else 2 * wide.columns):
        return ""
    if round_up(n, wide.columns) <= round_up(n, narrow.columns if placed else t.columns):
        return "wide"
    return "narrow" if placed else ""


def _panel_bytes(t: Tile, n: Any, k: Any) -> Any:
    """Bytes of the panels of B in one block."""
    return round_up(n, t.columns) * k * t.bytes + 128


NULL = ir.constant(None, ir.POINTER)
PARAMETERS = "m n k a* rsa csa b* rsb csb c* ldc scratch* epilogue& context&"


def _words(line: str, placed: bool) -> str:
    """A line of words; of A at places it has, instead of strides, the table of its axes and the number of a step."""
    return line.replace("rsa csa", "places& first_step") if placed else line


def is_by_vector(m: int, n: int, k: int, a_strides: Sequence[int], b_strides: Sequence[int]) -> bool:
    """Is it a product of a vector and a matrix that is contiguous along one of its axes: one for `wl_gemv`?"""
    return min(m, n, k) > 0 and ((n == 1 and 1 in a_strides) or (m == 1 and 1 in b_strides))


@cache
def external(dtype: str, kind: str = "gemm", form: str = "") -> ir.External:
    """The function for products of matrices ("gemm"), with a vector, or of A at places, for other modules to call."""
    parameters = tuple(type for _, type in types(_words(PARAMETERS, kind == "gemp")))
    code = ir.Resident(partial(definition, dtype, kind, form))
    return code.external(_name(dtype, kind, form), VOID, parameters)


def _name(dtype: str, kind: str, form: str) -> str:
    return f"wl_{kind}_{dtype}{form and f'_{form}'}"


def definition(dtype: str, kind: str = "gemm", form: str = "") -> ir.Module:
    """The function for "f32" or "f64", and what it calls."""
    t, name = tile(dtype, form), _name(dtype, kind, form)
    return ir.Module(_gemv(t, name) if kind == "gemv" else _gemm(t, name, kind == "gemp"), as_written=True)


# A product in parts along k, each with its own result and panels behind `parts`.
SPLIT = "m n k a* rsa csa b* rsb csb parts* depth size panels"
# One block of a product. Columns of B from `packed_from` on are packed, by chunks of their own; A, if `pack_a`, by the
# chunk that multiplies it, into memory that no other thread sees: a shared panel is paid for on its way between cores.
BLOCK = """
    m n k a* rsa csa b* rsb csb c* ldc accumulate columns* pack_a packed_from
    chunk_rows chunk_columns column_chunks epilogue& context& packs packed
"""


def _pack_task(t: Tile, placed: bool) -> Function:
    """Panels of B."""
    f, (context, chunk) = begin(t, "pack_task", "context& chunk", RARE)
    block = Fields(f, t, _words(BLOCK, placed), context)
    n, k, b, rsb, csb, out, first = block.get("n k b rsb csb columns packed_from")
    start = first + chunk * (PACKED_PANELS * t.columns)
    with f.when((start + PACKED_PANELS * t.columns <= n) & csb.equals(1)):
        f.call(pack_wide(t), k, b.at(start), rsb, out.at((start - first) * k))
        f.ret()
    with f.loop(start, f.min(n, start + PACKED_PANELS * t.columns), t.columns) as j:
        place = out.at((j - first) * k)
        f.call(pack_columns(t), k, b.at(j * csb), rsb, csb, f.min(n - j, t.columns), place)
    return f


def _tile_task(t: Tile, placed: bool) -> Function:
    """The tiles of a chunk of C: a panel of B stays in L1 while the panels of A pass."""
    f, (context, chunk) = begin(t, "tile_task", "context& chunk")
    block = Fields(f, t, _words(BLOCK, placed), context)
    m, n, k, b, rsb, c, ldc, accumulate = block.get("m n k b rsb c ldc accumulate")
    columns, first = block.get("columns packed_from")
    height, width, across = block.get("chunk_rows chunk_columns column_chunks")
    down = chunk // across
    top, left = down * height, (chunk - down * across) * width
    bottom = f.min(m, top + height)
    multiply = (_multiply_placed if placed else _multiply_strided)(f, t, block, top, bottom)
    with f.loop(left, f.min(n, left + width), t.columns) as j:
        in_panel = j >= first
        panel = f.select(in_panel, columns.at((j - first) * k), b.at(j))
        stride = f.select(in_panel, t.columns, rsb)
        wide = f.min(n - j, t.columns)
        with f.loop(top, bottom, t.rows) as i:
            multiply(i, panel, stride, c.at(i * ldc).at(j), ldc, f.min(m - i, t.rows), wide, accumulate)
    epilogue, context = block.get("epilogue context")
    with f.when(epilogue.differs(None)):
        f.call_at(epilogue, VOID, context, top, bottom)
    return f


def _block_task(t: Tile, placed: bool) -> Function:
    """First chunks that pack, then chunks of tiles, which wait until everything is packed: chunks begin in order."""
    f, (context, chunk) = begin(t, "block_task", "context& chunk", RARE)
    block = Fields(f, t, _words(BLOCK, placed), context)
    (packs,) = block.get("packs")
    with f.when(chunk < packs):
        f.call(_pack_task(t, placed), context, chunk)
        f.atomic("add", block.place("packed"), f.constant(1), "release")
        f.ret()
    pool.wait(f, lambda: f.load(LONG, block.place("packed"), order="acquire") >= packs)
    f.call(_tile_task(t, placed), context, chunk - packs)
    return f


def _multiply_strided(f: Function, t: Tile, block: Fields, top: Value, bottom: Value) -> Callable:
    """The kernel of a tile at row i: of A packed, or where it lies."""
    m, k, a, rsa, csa, pack_a = block.get("m k a rsa csa pack_a")

    def multiply(i: Value, *rest: Value) -> None:
        f.call(kernel(t, "direct"), k, a.at(i * rsa), *rest, rsa, csa)

    if t == tile(t.dtype, "narrow") != tile(t.dtype):  # of so few columns that A is never packed
        return multiply
    packed, own = pack_a.differs(0), t.stack(f, t.chunk_rows * t.most_steps)
    with f.when(packed):
        whole = f.select(rsa.equals(1), (bottom - top) // t.rows, 0)
        f.call(pack_tall(t), k, a.at(top), csa, whole, own)
        with f.loop(top + whole * t.rows, bottom, t.rows) as i:
            f.call(pack_rows(t), k, a.at(i * rsa), rsa, csa, f.min(m - i, t.rows), own.at((i - top) * k))
    return _if_packed(f, t, packed, lambda i: (k, own.at((i - top) * k)), multiply)


def _multiply_placed(f: Function, t: Tile, block: Fields, top: Value, bottom: Value) -> Callable:
    """The same for A at places, of which tables are made for the chunk."""
    fill = _fill_places(t)
    m, k, a, places, first_step, pack_a = block.get("m k a places first_step pack_a")
    row_places, step_places = (f.stack(ir.array(LONG, n), align=8) for n in (_most_rows(t), t.most_steps))
    f.call(fill, places, top, bottom - top, row_places)
    f.call(fill, f.element(LONG, places, 2 * MOST_AXES), first_step, k, step_places)

    def multiply(i: Value, *rest: Value) -> None:
        f.call(kernel(t, "placed"), k, a, *rest, f.element(LONG, row_places, i - top), step_places)

    if not _packs_windows(t):
        return multiply
    packed, own = pack_a.differs(0), t.stack(f, t.chunk_rows * t.most_steps)
    with f.when(packed), f.loop(top, bottom, t.rows) as i:
        rows = f.element(LONG, row_places, i - top)
        f.call(pack_placed(t), k, a, rows, step_places, f.min(m - i, t.rows), own.at((i - top) * k))
    return _if_packed(f, t, packed, lambda i: (k, own.at((i - top) * k)), multiply)


def _if_packed(f: Function, t: Tile, packed: Value, panel: Callable, otherwise: Callable) -> Callable:
    """The kernel of a tile at row i: of a panel, if A is packed."""

    def multiply(i: Value, *rest: Value) -> None:
        with f.when(packed):
            f.call(kernel(t, "packed"), *panel(i), *rest)
        with f.unless(packed):
            otherwise(i, *rest)

    return multiply


def _packs_windows(t: Tile) -> bool:
    """Is it a tile for so many columns that windows may be packed?"""
    return t == tile(t.dtype)


def _fill_places(t: Tile) -> Function:
    """Places number `first`, first + 1, ... of `MOST_AXES` axes (extent, stride), from the outside in."""
    f, (axes, first, count, out) = begin(t, "fill_places", "axes& first count out&")
    words = [f.load(LONG, f.element(LONG, axes, i)) for i in range(2 * MOST_AXES)]
    extents, strides = words[::2], words[1::2]
    digits, rest = [], first
    for extent in reversed(extents[1:]):
        digits.insert(0, f.variable(rest % extent))
        rest = rest // extent
    digits.insert(0, f.variable(rest))
    done = f.variable(0)
    with f.again_while(lambda: done.get() < count):
        start, inner = done.get(), digits[-1].get()
        place = inner * strides[-1]
        for digit, stride in zip(digits[:-1], strides[:-1], strict=True):
            place += digit.get() * stride
        run = f.min(extents[-1] - inner, count - start)
        with f.loop(0, run) as i:
            f.store(place + i * strides[-1], f.element(LONG, out, start + i))
        done.set(start + run)
        digits[-1].set(extents[-1])  # a run ends with its axis, or is the last
        for digit, outer, extent in reversed([*zip(digits[1:], digits[:-1], extents[1:], strict=True)]):
            full = digit.get().equals(extent)
            outer.set(f.select(full, outer.get() + 1, outer.get()))
            digit.set(f.select(full, 0, digit.get()))
    return f


def _gemm(t: Tile, name: str, placed: bool) -> Function:
    f, parameters = begin(t, name, _words(PARAMETERS, placed), RARE, exported=True)
    m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, scratch, epilogue, context = parameters

    def finish() -> None:
        """Everything is done."""
        with f.when(epilogue.differs(None)):
            f.call_at(epilogue, VOID, context, f.integer(0), m)
        f.ret()

    with f.when((m <= 0) | (n <= 0)):
        f.ret()
    with f.when(k <= 0):
        with f.loop(0, m) as i, f.loop(0, n) as j:
            c.at(i * ldc).store(0.0, j)
        finish()
    scratch = scratch.aligned()

    # Few tiles and long sums: parts along k, then their sum.
    blocks = _blocks(t, placed)
    few = ceil_div(m, t.rows) * ceil_div(n, t.columns) <= FEW_TILES
    elements, size = m * n, _part_bytes(t, m, n)
    parts = f.min(f.min(k // SPLIT_DEPTH, f.integer(SPLIT_BYTES) // size), MOST_PARTS)
    with f.when((parts > 1) & (few | (k >= MANY_BLOCKS * t.depth)) & (elements * k >= PARALLEL_WORK)):
        depth = share(k, parts, UNROLL)
        parts = ceil_div(k, depth)
        result = round_up(elements * t.bytes, 64)
        fields = Fields(f, t, _words(SPLIT, placed))
        steps_of_a = {"places": rsa, "first_step": csa} if placed else {"rsa": rsa, "csa": csa}
        fields.put(m=m, n=n, k=k, a=a, **steps_of_a, b=b, rsb=rsb, csb=csb)
        fields.put(parts=scratch, depth=depth, size=size, panels=result)
        f.call(run(), f.at(_split_task(t, blocks, placed)), fields.pointer, parts, f.constant(True, ir.BOOL))
        f.call(_sum_parts(t), m, n, scratch, parts, size, c, ldc)
        finish()
    rest = (m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, scratch, epilogue, context)
    if not placed and t == tile(t.dtype):  # the other forms are for fewer columns than that
        lies_well = csb.equals(1) & (m <= 4 * t.rows) & (n * k <= NEAR_BYTES // t.bytes)
        low = (m <= FEW_ROWS) & (n >= MANY_COLUMNS) & (elements * k >= PARALLEL_WORK)
        with f.when(low & ~lies_well):
            f.call(low_blocks(t, PARAMETERS, kernel(t, "packed")), *rest)
            f.ret()
    f.call(blocks, *rest)
    return f


def _sum_parts(t: Tile) -> Function:
    """The parts of a product along k, `size` bytes apart, become one."""
    f, (m, n, scratch, parts, size, c, ldc) = begin(t, "sum_parts", "m n scratch* parts size c* ldc")
    with f.loop(1, parts) as part:
        scratch.accumulate(scratch.further(part * size), m * n)
    with f.loop(0, m) as i, f.loop(0, n) as j:
        c.at(i * ldc).store(scratch.at(i * n).load(j), j)
    return f


def _gemv(t: Tile, name: str) -> Function:
    """A row times a matrix is the transposed matrix times a column."""
    f, parameters = begin(t, name, PARAMETERS, RARE, exported=True)
    m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, scratch, *_ = parameters
    times_vector, scratch, column = matrix_vector(t), scratch.aligned(), n.equals(1)
    with f.when(column):
        f.call(times_vector, m, k, a, rsa, csa, b, rsb, c, ldc, scratch)
    with f.unless(column):
        f.call(times_vector, n, k, b, csb, rsb, a, csa, c, f.integer(1), scratch)
    return f


def _split_task(t: Tile, blocks: Function, placed: bool) -> Function:
    """One part of a product along k."""
    f, (context, chunk) = begin(t, "split_task", "context& chunk", RARE)
    m, n, k, a, rsa, csa, b, rsb, csb, parts, depth, size, panels = Fields(f, t, _words(SPLIT, placed), context).get()
    start, own = chunk * depth, parts.further(chunk * size)
    rest = (b.at(start * rsb), rsb, csb, own, n, own.further(panels), NULL, NULL)
    a, csa = (a, csa + start) if placed else (a.at(start * csa), csa)
    f.call(blocks, m, n, f.min(depth, k - start), a, rsa, csa, *rest)
    return f


def _most_rows(t: Tile) -> int:
    """In a chunk of windows that are read where they lie: they overlap, and need less room."""
    return 2 * t.chunk_rows


def _blocks(t: Tile, placed: bool) -> Function:
    """A product block by block, each packed and multiplied by tasks; the scratch is aligned."""
    f, parameters = begin(t, "blocks", _words(PARAMETERS, placed), RARE)
    m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, scratch, epilogue, context = parameters
    follows = epilogue.differs(None)
    # Packing pays when the panels are used often, unless the operand sits in the nearest caches anyway.
    most = f.select(csa.equals(1), f.integer(SMALL_BYTES // t.bytes), SMALL_BYTES // 4 // t.bytes)
    a_is_small = m * k <= most  # read across its rows, a small one isn't in L1
    b_is_small = k * n <= SMALL_BYTES // t.bytes
    few_columns, few_rows = n <= 256 // t.bytes, m <= 4 * t.rows
    pack_a = n >= PACKED_WINDOWS if placed else ~(a_is_small | few_columns)
    most_rows = f.select(pack_a, f.integer(t.chunk_rows), _most_rows(t)) if placed else t.chunk_rows
    direct_b = csb.equals(1) & (b_is_small | few_rows)
    depth, width = at_most(k, t.depth, UNROLL), at_most(n, BLOCK_COLUMNS, t.columns)
    block = Fields(f, t, _words(BLOCK, placed))
    block.put(rsb=rsb, csb=csb, ldc=ldc, pack_a=pack_a.convert(LONG, signed=False))
    with f.loop(0, n, width) as j0, f.loop(0, k, depth) as p0:
        last = (p0 + depth >= k) & (j0 + width >= n)
        if placed:
            block.put(a=a, places=rsa, first_step=csa + p0)
        else:
            block.put(a=a.at(p0 * csa), rsa=rsa, csa=csa)
        block.put(b=b.at(p0 * rsb + j0 * csb), c=c.at(j0))
        block.put(accumulate=p0.differs(0).convert(LONG, signed=False))
        block.put(epilogue=f.select(last, epilogue, NULL), context=context)
        columns, steps = f.min(width, n - j0), f.min(depth, k - p0)
        block.put(m=m, n=columns, k=steps)
        packed_from = f.select(direct_b, columns // t.columns * t.columns, 0)
        packs = ceil_div(columns - packed_from, PACKED_PANELS * t.columns)
        block.put(columns=scratch, packed_from=packed_from)

        work = m * columns * steps
        shared = work >= PARALLEL_WORK
        chunks = f.min(f.max(work // CHUNK_WORK, 1), MOST_CHUNKS)
        # So many rows that a panel of B is worth its way to L1, and so many columns that a panel of A is worth packing;
        # with an epilogue whole rows.
        most_down = ceil_div(m, CHUNK_TILES * t.rows)
        across = f.min(ceil_div(f.min(chunks, FEW_CHUNKS), most_down), ceil_div(columns, CHUNK_COLUMNS))
        across = f.select(follows, 1, across)
        down = f.max(ceil_div(m, most_rows), f.min(ceil_div(chunks, across), most_down))
        chunk_rows, chunk_columns = share(m, down, t.rows), share(columns, across, t.columns)
        down, across = ceil_div(m, chunk_rows), ceil_div(columns, chunk_columns)
        block.put(chunk_rows=chunk_rows, chunk_columns=chunk_columns, column_chunks=across)
        block.put(packs=packs, packed=0)
        f.call(run(), f.at(_block_task(t, placed)), block.pointer, packs + down * across, shared)
    return f
