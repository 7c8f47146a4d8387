"""The generator of matrix products: an element type comes in, a module of LLVM IR or the address of its code goes out.

    void wl_gemm_f32(i64 m, i64 n, i64 k, ptr A, i64 rsa, i64 csa, ptr B, i64 rsb, i64 csb, ptr C, i64 ldc,
                     ptr scratch, ptr epilogue, ptr context)

    C[i*ldc + j] = sum_p A[i*rsa + p*csa] * B[p*rsb + j*csb]

An `epilogue` that isn't null is called as `epilogue(context, first, last)` for rows first <= i < last of C as soon as
they are finished and still in the cache: exactly once for each row, on whichever thread finished it. Strides count
elements and may have any sign or be zero. `scratch` belongs to the call: as many bytes as `scratch_bytes(m, n, k,
dtype)` says, in any alignment. So the code allocates nothing, and any number of threads may be inside it.

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
from wonderland.compile.gemm_low import FEW_ROWS, MANY_COLUMNS, low_blocks
from wonderland.compile.gemm_pack import PACKED_PANELS, pack_columns, pack_rows, pack_tall, pack_wide
from wonderland.compile.gemm_tile import (
    UNROLL,
    Fields,
    Tile,
    at_most,
    begin,
    ceil_div,
    fma,
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
LAST_STEPS = 64  # steps of k before the end of a tile at which C is fetched
AHEAD = 16  # steps of k between a prefetch and its use
MOST_AXES = 4  # of the rows, and of the steps, of an operand at places


def scratch_bytes(m: int, n: int, k: int, dtype: str) -> int:
    """Bytes of scratch that a product of these sizes needs, whatever the strides."""
    t = tile(dtype, has_few_columns(n, dtype))
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


def has_few_columns(n: int, dtype: str) -> bool:
    """Is a product of so many columns one for the tile that is as wide as they are?"""
    wide, t = tile(dtype, True), tile(dtype)
    return wide != t and n <= 2 * wide.columns and round_up(n, wide.columns) <= round_up(n, t.columns)


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
def external(dtype: str, kind: str = "gemm", few_columns: bool = False) -> ir.External:
    """The function for products of matrices ("gemm"), with a vector, or of A at places, for other modules to call."""
    parameters = tuple(type for _, type in types(_words(PARAMETERS, kind == "gemp")))
    code = ir.Resident(partial(definition, dtype, kind, few_columns))
    return code.external(_name(kind, tile(dtype, few_columns)), VOID, parameters)


def _name(kind: str, t: Tile) -> str:
    return f"wl_{kind}_{t.dtype}{'' if t == tile(t.dtype) else '_wide'}"


def definition(dtype: str, kind: str = "gemm", few_columns: bool = False) -> ir.Module:
    """The function for "f32" or "f64", and what it calls."""
    t = tile(dtype, few_columns)
    return ir.Module(_gemv(t) if kind == "gemv" else _gemm(t, kind == "gemp"), as_written=True)


# A product in parts along k, each with its own result and panels behind `parts`.
SPLIT = "m n k a* rsa csa b* rsb csb parts* depth size panels"
# One block of a product. Columns of B from `packed_from` on are packed, by chunks of their own; A, if `pack_a`, by the
# chunk that multiplies it, into memory that no other thread sees: a shared panel is paid for on its way between cores.
BLOCK = """
    m n k a* rsa csa b* rsb csb c* ldc accumulate columns* pack_a packed_from
    chunk_rows chunk_columns column_chunks epilogue& context& packs packed
"""
# What a kernel gets besides: the strides of A where it lies, or tables of the places of its rows and steps.
HOW = {"packed": "", "direct": " rsa csa", "placed": " row_places& step_places&"}


@cache
def _kernel(t: Tile, how: str) -> Function:
    """One register tile: rows x columns of C from k steps. Packed A has its strides built in and is padded
    with zeros; otherwise rows beyond the last repeat it, so that only A is read, and are dropped."""
    f, parameters = begin(t, f"kernel_{how}", "k a* b* rsb c* ldc rows columns accumulate" + HOW[how])
    k, a, b, rsb, c, ldc, rows, columns, accumulate, *where = parameters
    packed, placed = how == "packed", how == "placed"
    sums = {(r, v): f.variable(0, t.vector) for r in range(t.rows) for v in t.starts}
    last = [] if packed else [f.min(rows - 1, r) for r in range(t.rows)]
    a_rows = [a.at(f.load(LONG, f.element(LONG, where[0], r)) if placed else r * where[0]) for r in last]
    c_rows = [c.at(r * ldc) for r in range(t.rows)]
    if not t.ahead:
        for row in c_rows:
            row.prefetch(to_write=True)
    a_offset, b_offset = f.variable(0), f.variable(0)

    def steps(count: int) -> None:
        a_at, b_at = a_offset.get(), b_offset.get()
        totals = {place: cell.get() for place, cell in sums.items()}
        panel = a.at(a_at)
        for step in range(count):
            source = b.at(b_at)
            factors = {v: source.vector(v) for v in t.starts}
            if packed and t.ahead:
                _prefetch(source.at(t.ahead[1] * t.columns), t.columns)
                if step % 2 == 0:
                    _prefetch(panel.at((step + t.ahead[0]) * t.rows), 2 * t.rows)
            if how == "direct":  # rows of B may lie pages apart, which the hardware doesn't foresee
                b.at(b_at + rsb * AHEAD).prefetch()
            at = f.load(LONG, f.element(LONG, where[1], a_at + step)) if placed else a_at
            for r in range(t.rows):
                value = f.splat(panel.load(step * t.rows + r) if packed else a_rows[r].load(at), t.lanes)
                totals |= {(r, v): fma(value, factor, totals[r, v]) for v, factor in factors.items()}
            b_at += rsb
            a_at += where[1] if how == "direct" else 0
        for place, cell in sums.items():
            cell.set(totals[place])
        a_offset.set(a_at + {"packed": count * t.rows, "placed": count, "direct": 0}[how])
        b_offset.set(b_at)

    # Unrolled with unknown strides, LLVM would keep an address for every row and step, and spill the sums.
    unroll = UNROLL if packed else 1
    whole = k & -unroll
    start: Value | int = 0
    if t.ahead:  # C comes into the cache while the last steps run
        start = f.max(whole - LAST_STEPS, 0)
        with f.loop(0, start, unroll):
            steps(unroll)
        for row in c_rows:
            _prefetch(row, t.columns, to_write=True)
    with f.loop(start, whole, unroll):
        steps(unroll)
    if unroll > 1:
        with f.loop(whole, k):
            steps(1)

    full = rows.equals(t.rows) & columns.equals(t.columns)
    adding = accumulate.differs(0)
    with f.when(full):
        with f.when(adding):
            for (r, v), cell in sums.items():
                c_rows[r].store(c_rows[r].vector(v) + cell.get(), v)
        with f.unless(adding):
            for (r, v), cell in sums.items():
                c_rows[r].store(cell.get(), v)
    with f.unless(full):
        spilled = t.stack(f, t.rows * t.columns)
        for (r, v), cell in sums.items():
            spilled.store(cell.get(), r * t.columns + v)
        f.call(_store_edge(t), spilled, c, ldc, rows, columns, accumulate)
    return f


def _prefetch(place: Any, count: int, to_write: bool = False) -> None:
    """The lines of so many numbers."""
    for line in range(0, count, 64 // place.tile.bytes):
        place.at(line).prefetch(to_write)


@cache
def _store_edge(t: Tile) -> Function:
    """The part of a tile that lies inside C."""
    f, (sums, c, ldc, rows, columns, accumulate) = begin(t, "store_edge", "sums* c* ldc rows columns accumulate")
    old_columns = f.select(accumulate.differs(0), columns, 0)
    for v in t.starts:
        mask, old_mask = t.lanes_below(columns, v), t.lanes_below(old_columns, v)
        with f.loop(0, rows) as r:
            place = c.at(r * ldc).at(v)
            place.store_lanes(place.load_lanes(old_mask) + sums.at(r * t.columns).vector(v), mask)
    return f


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
    kernel_packed, kernel_direct = _kernel(t, "packed"), _kernel(t, "direct")
    m, k, a, rsa, csa, pack_a = block.get("m k a rsa csa pack_a")
    packed = pack_a.differs(0)
    own = t.stack(f, t.chunk_rows * t.most_steps)
    with f.when(packed):
        whole = f.select(rsa.equals(1), (bottom - top) // t.rows, 0)
        f.call(pack_tall(t), k, a.at(top), csa, whole, own)
        with f.loop(top + whole * t.rows, bottom, t.rows) as i:
            f.call(pack_rows(t), k, a.at(i * rsa), rsa, csa, f.min(m - i, t.rows), own.at((i - top) * k))

    def multiply(i: Value, *rest: Value) -> None:
        with f.when(packed):
            f.call(kernel_packed, k, own.at((i - top) * k), *rest)
        with f.unless(packed):
            f.call(kernel_direct, k, a.at(i * rsa), *rest, rsa, csa)

    return multiply


def _multiply_placed(f: Function, t: Tile, block: Fields, top: Value, bottom: Value) -> Callable:
    """The same for A at places, of which tables are made for the chunk."""
    kernel, fill = _kernel(t, "placed"), _fill_places(t)
    k, a, places, first_step = block.get("k a places first_step")
    row_places, step_places = (f.stack(ir.array(LONG, n), align=8) for n in (_most_rows(t, True), t.most_steps))
    f.call(fill, places, top, bottom - top, row_places)
    f.call(fill, f.element(LONG, places, 2 * MOST_AXES), first_step, k, step_places)

    def multiply(i: Value, *rest: Value) -> None:
        f.call(kernel, k, a, *rest, f.element(LONG, row_places, i - top), step_places)

    return multiply


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


def _gemm(t: Tile, placed: bool) -> Function:
    name = _name("gemp" if placed else "gemm", t)
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
    if not placed:
        lies_well = csb.equals(1) & (m <= 4 * t.rows) & (n * k <= NEAR_BYTES // t.bytes)
        low = (m <= FEW_ROWS) & (n >= MANY_COLUMNS) & (elements * k >= PARALLEL_WORK)
        with f.when(low & ~lies_well):
            f.call(low_blocks(t, PARAMETERS, _kernel(t, "packed")), *rest)
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


def _gemv(t: Tile) -> Function:
    """A row times a matrix is the transposed matrix times a column."""
    f, parameters = begin(t, f"wl_gemv_{t.dtype}", PARAMETERS, RARE, exported=True)
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


def _most_rows(t: Tile, placed: bool) -> int:
    """In a chunk. Windows overlap, and need no room."""
    return 2 * t.chunk_rows if placed else t.chunk_rows


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
    pack_a = f.constant(False, ir.BOOL) if placed else ~(a_is_small | few_columns)
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
        down = f.max(ceil_div(m, _most_rows(t, placed)), f.min(ceil_div(chunks, across), most_down))
        chunk_rows, chunk_columns = share(m, down, t.rows), share(columns, across, t.columns)
        down, across = ceil_div(m, chunk_rows), ceil_div(columns, chunk_columns)
        block.put(chunk_rows=chunk_rows, chunk_columns=chunk_columns, column_chunks=across)
        block.put(packs=packs, packed=0)
        f.call(run(), f.at(_block_task(t, placed)), block.pointer, packs + down * across, shared)
    return f
