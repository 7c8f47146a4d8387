"""The generator of matrix products: an element type comes in, LLVM IR or the address of its code goes out.

    void wl_gemm_f32(i64 m, i64 n, i64 k, ptr A, i64 rsa, i64 csa, ptr B, i64 rsb, i64 csb,
                     ptr C, i64 ldc, i64 accumulate, ptr scratch)

    C[i*ldc + j] = (accumulate ? C[i*ldc + j] : 0) + sum_p A[i*rsa + p*csa] * B[p*rsb + j*csb]

    void wl_gemm_rows_f32(the same, ptr epilogue, ptr context)

    also calls `epilogue(context, first, last)` for rows first <= i < last of C as soon as they are finished and still
    in the cache: exactly once for each row, on whichever thread finished it.

Strides count elements and may have any sign or be zero. `scratch` belongs to the call: as many bytes as
`scratch_bytes(m, n, k, dtype)` says, in any alignment. So the code allocates nothing, and any number of
threads may be inside it.

The way of the data (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015): the product is cut into
blocks whose operands fit the caches, each block is packed into panels as wide as the register tile, and the
tile kernel runs over the panels. Packing and tiles are tasks of the pool. Where packing doesn't pay, the
kernel reads the operand where it lies. Vectors (m = 1 or n = 1) have their own loops, which read the matrix
once in the order of memory. The cut along k depends on nothing but the sizes and strides: results are the
same to the bit for any number of threads.
"""

from __future__ import annotations

import ctypes
from functools import cache

from wonderland.compile import llvm, pool
from wonderland.compile.entry import round_up
from wonderland.compile.gemm_emit import Fields, Function, Tile, tile
from wonderland.compile.gemm_vector import axpy_task, dot_task, matrix_vector, scratch_elements
from wonderland.compile.hints import with_loop_hints

BLOCK_ROWS = 2048  # of A packed at a time; bounds the scratch
BLOCK_COLUMNS = 2048
CHUNK_COLUMNS = 512
CHUNK_WORK = 1 << 17  # multiply-adds that are worth a task
MOST_CHUNKS = 64
WHOLE_ROW_TILES = 4  # least tiles down a chunk of whole rows
PARALLEL_WORK = 1 << 21  # multiply-adds from which a product is shared between threads
SMALL_BYTES = 1 << 16  # of an operand that needn't be packed
FEW_TILES = 8  # of a result that is rather shared along k
SPLIT_DEPTH, MOST_PARTS = 1024, 16  # least steps of k in a part, most parts
UNROLL = 4  # steps of k in one turn of the kernel's loop
AHEAD = 16  # steps of k between a prefetch and its use
PACK_AHEAD = 8  # rows of B between a prefetch and its use in packing


def scratch_bytes(m: int, n: int, k: int, dtype: str) -> int:
    """Bytes of scratch that a product of these sizes needs, whatever the strides."""
    t = tile(dtype)
    if m <= 0 or n <= 0 or k <= 0:
        return 0
    if m == 1 or n == 1:
        return max(_panel_bytes(t, m, n, k), scratch_elements(m, n, k) * t.bytes + 128)
    parts, depth = _split(t, m, n, k)
    if parts > 1:
        return parts * (round_up(m * n * t.bytes, 64) + round_up(_panel_bytes(t, m, n, depth), 64)) + 128
    return _panel_bytes(t, m, n, k)


def _panel_bytes(t: Tile, m: int, n: int, k: int) -> int:
    """Bytes of the panels of one block."""
    rows, columns = round_up(min(m, BLOCK_ROWS), t.rows), round_up(min(n, BLOCK_COLUMNS), t.columns)
    return (rows + columns) * min(k, t.depth) * t.bytes + 128


def _split(t: Tile, m: int, n: int, k: int) -> tuple[int, int]:
    """How many products of which depth are summed: more than one if the result has too few tiles to share."""
    tiles = -(-m // t.rows) * -(-n // t.columns)
    if tiles > FEW_TILES or k < 2 * SPLIT_DEPTH or m * n * k < PARALLEL_WORK:
        return 1, k
    depth = round_up(-(-k // min(MOST_PARTS, k // SPLIT_DEPTH)), UNROLL)
    return -(-k // depth), depth


@cache
def address(dtype: str, rows: bool = False) -> int:
    """Address of the compiled function, or of the one with an epilogue (`rows`); compiled once per process."""
    with llvm.lock:
        return _library(dtype).address(f"wl_gemm_{'rows_' if rows else ''}{dtype}")


@cache
def _library(dtype: str) -> llvm.Library:
    exports = [f"wl_gemm_{dtype}", f"wl_gemm_rows_{dtype}"]
    library = llvm.compile_library(definition(dtype), exports, {"wl_parallel": pool.address()})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # its address is handed out for good
    return library


@cache
def definition(dtype: str) -> str:
    """IR of the functions for "f32" or "f64"; the linker must be given `wl_parallel`."""
    t = tile(dtype)
    functions = [
        _kernel(t, packed=True),
        _kernel(t, packed=False),
        _store_edge(t),
        _pack_rows(t),
        _pack_columns(t),
        _pack_wide(t),
        _pack_task(t),
        _tile_task(t),
        _run(t),
        dot_task(t),
        axpy_task(t),
        matrix_vector(t),
        _blocks(t),
        _split_task(t),
        _gemm_rows(t),
        _gemm(t),
    ]
    lane_mask = f"<{t.lanes} x i1>"
    declarations = f"""
declare void @wl_parallel(ptr, ptr, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare {t.vector} @llvm.fmuladd.{t.suffix}({t.vector}, {t.vector}, {t.vector})
declare {t.scalar} @llvm.fmuladd.{t.dtype}({t.scalar}, {t.scalar}, {t.scalar})
declare {t.scalar} @llvm.vector.reduce.fadd.{t.suffix}({t.scalar}, {t.vector})
declare {t.vector} @llvm.masked.load.{t.suffix}.p0(ptr, i32, {lane_mask}, {t.vector})
declare void @llvm.masked.store.{t.suffix}.p0({t.vector}, ptr, i32, {lane_mask})
"""
    text = declarations + "\n".join(function.text() for function in functions)
    return llvm.AS_WRITTEN + with_loop_hints(text)


# A product in parts along k, each with its own result and panels behind `ptr_parts`.
SPLIT = ["m", "n", "k", "ptr_a", "rsa", "csa", "ptr_b", "rsb", "csb", "ptr_parts", "depth", "size", "panels"]
# One block of a product. Columns of B from `packed_from` on are packed; A is packed if `pack_a`.
BLOCK = [
    "m", "n", "k", "ptr_a", "rsa", "csa", "ptr_b", "rsb", "csb", "ptr_c", "ldc", "accumulate",
    "ptr_rows", "ptr_columns", "pack_a", "packed_from", "row_groups",
    "chunk_rows", "chunk_columns", "column_chunks", "first_row", "ptr_epilogue", "ptr_context",
]  # fmt: skip
KINDS, PARAMETERS = "iiipiipiipiip", "m n k a rsa csa b rsb csb c ldc accumulate scratch"


def _kernel(t: Tile, packed: bool) -> Function:
    """One register tile: rows x columns of C from k steps. Packed A has its strides built in and is padded
    with zeros; otherwise rows beyond the last repeat it, so that only A is read, and are dropped."""
    f = Function(
        t,
        "kernel_packed" if packed else "kernel_direct",
        "ipiipipiiii",
        "k a rsa csa b rsb c ldc rows columns accumulate",
    )
    zero = "zeroinitializer"
    sums = [[f.variable(t.vector, zero, 64) for _ in range(t.vectors)] for _ in range(t.rows)]
    a_rows = ["%a"] * t.rows
    if not packed:
        last = f.sub("%rows", 1)
        a_rows = [f.at("%a", f.mul(f.min(r, last), "%rsa")) for r in range(t.rows)]
    for r in range(t.rows):
        f.emit(f"call void @llvm.prefetch.p0(ptr {f.at('%c', f.mul(r, '%ldc'))}, i32 1, i32 3, i32 1)")
    a_offset, b_offset = f.variable("i64", 0), f.variable("i64", 0)
    distance = f.mul("%rsb", AHEAD)

    def steps(count: int) -> None:
        a_at, b_at = f.load(a_offset, "i64", 8), f.load(b_offset, "i64", 8)
        totals = [[f.load(cell, t.vector, 64) for cell in row] for row in sums]
        for step in range(count):
            row = f.at("%b", b_at)
            columns = [f.load(f.at(row, v * t.lanes), t.vector) for v in range(t.vectors)]
            if not packed:  # rows of B may lie pages apart, which the hardware doesn't foresee
                ahead = f.at("%b", f.add(b_at, distance))
                f.emit(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
            for r in range(t.rows):
                place = f.at(f.at(a_rows[r], a_at), step * t.rows + r) if packed else f.at(a_rows[r], a_at)
                value = f.broadcast(f.load(place))
                totals[r] = [f.fma(value, columns[v], totals[r][v]) for v in range(t.vectors)]
            b_at = f.add(b_at, "%rsb")
            if not packed:
                a_at = f.add(a_at, "%csa")
        for row, values in zip(sums, totals, strict=True):
            for cell, value in zip(row, values, strict=True):
                f.store(value, cell, t.vector, 64)
        f.store(f.add(a_at, count * t.rows) if packed else a_at, a_offset, "i64", 8)
        f.store(b_at, b_offset, "i64", 8)

    # Unrolled with unknown strides, LLVM would keep an address for every row and step, and spill the sums.
    unroll = UNROLL if packed else 1
    whole = f.let(f"and i64 %k, {-unroll}")
    with f.loop(0, whole, unroll):
        steps(unroll)
    if packed:
        with f.loop(whole, "%k"):
            steps(1)

    full = f.both(f.compare("eq", "%rows", t.rows), f.compare("eq", "%columns", t.columns))
    adding = f.compare("ne", "%accumulate", 0)
    with f.when(full):
        with f.when(adding):
            for r in range(t.rows):
                row = f.at("%c", f.mul(r, "%ldc"))
                for v in range(t.vectors):
                    old = f.load(f.at(row, v * t.lanes), t.vector)
                    total = f.let(f"fadd {t.vector} {old}, {f.load(sums[r][v], t.vector, 64)}")
                    f.store(total, f.at(row, v * t.lanes), t.vector)
        with f.unless(adding):
            for r in range(t.rows):
                row = f.at("%c", f.mul(r, "%ldc"))
                for v in range(t.vectors):
                    f.store(f.load(sums[r][v], t.vector, 64), f.at(row, v * t.lanes), t.vector)
    with f.unless(full):
        spilled = f.space(f"[{t.rows * t.columns} x {t.scalar}]", 64)
        for r in range(t.rows):
            for v in range(t.vectors):
                place = f.at(spilled, r * t.columns + v * t.lanes)
                f.store(f.load(sums[r][v], t.vector, 64), place, t.vector)
        f.call("@store_edge", "ppiiii", spilled, "%c", "%ldc", "%rows", "%columns", "%accumulate")
    return f


def _store_edge(t: Tile) -> Function:
    """The part of a tile that lies inside C."""
    f = Function(t, "store_edge", "ppiiii", "sums c ldc rows columns accumulate")
    old_columns = f.choose(f.compare("ne", "%accumulate", 0), "%columns", 0)
    for v in range(t.vectors):
        mask, old_mask = f.lanes_below("%columns", v * t.lanes), f.lanes_below(old_columns, v * t.lanes)
        with f.loop(0, "%rows") as r:
            place = f.at(f.at("%c", f.mul(r, "%ldc")), v * t.lanes)
            value = f.load(f.at(f.at("%sums", f.mul(r, t.columns)), v * t.lanes), t.vector)
            f.store_lanes(f.let(f"fadd {t.vector} {f.load_lanes(place, old_mask)}, {value}"), place, mask)
    return f


def _pack_rows(t: Tile) -> Function:
    """A panel of A: out[p*R + r] = a[r*rsa + p*csa] for the R rows of a tile, zero beyond the last."""
    f = Function(t, "pack_rows", "ipiiip", "k a rsa csa rows out")
    full = f.compare("eq", "%rows", t.rows)
    done = f.variable("i64", 0)
    with f.when(f.both(full, f.compare("eq", "%rsa", 1))):
        kind = f"<{t.rows} x {t.scalar}>"
        with f.loop(0, "%k") as p:
            f.store(f.load(f.at("%a", f.mul(p, "%csa")), kind), f.at("%out", f.mul(p, t.rows)), kind)
        f.store("%k", done, "i64", 8)
    with f.when(f.both(full, f.compare("eq", "%csa", 1))):
        # Whole vectors are stored, so each step spills over into the next, which is written later: the last
        # step of the panel must not be one of these.
        steps = f.mul(f.div(f.sub("%k", 1), t.lanes), t.lanes)
        sources = [f.at("%a", f.mul(r, "%rsa")) for r in range(t.rows)]
        with f.loop(0, steps, t.lanes) as p:
            groups = []
            for first in range(0, t.rows, t.lanes):
                rows = [f.load(f.at(source, p), t.vector) for source in sources[first : first + t.lanes]]
                groups.append(f.transpose(rows + ["poison"] * (t.lanes - len(rows))))
            place = f.at("%out", f.mul(p, t.rows))
            for lane in range(t.lanes):
                for number, group in enumerate(groups):
                    f.store(group[lane], f.at(place, lane * t.rows + number * t.lanes), t.vector)
        f.store(steps, done, "i64", 8)
    last = f.sub("%rows", 1)
    sources = [f.at("%a", f.mul(f.min(r, last), "%rsa")) for r in range(t.rows)]
    inside = [f.compare("slt", r, "%rows") for r in range(t.rows)]
    with f.loop(f.load(done, "i64", 8), "%k") as p:
        offset, place = f.mul(p, "%csa"), f.at("%out", f.mul(p, t.rows))
        for r in range(t.rows):
            value = f.choose(inside[r], f.load(f.at(sources[r], offset)), "0.0", t.scalar)
            f.store(value, f.at(place, r))
    return f


def _pack_columns(t: Tile) -> Function:
    """A panel of B: out[p*N + j] = b[p*rsb + j*csb] for the N columns of a tile, zero beyond the last."""
    f = Function(t, "pack_columns", "ipiiip", "k b rsb csb columns out")
    full = f.compare("eq", "%columns", t.columns)
    done = f.variable("i64", 0)
    with f.when(f.compare("eq", "%csb", 1)):
        with f.when(full):
            with f.loop(0, "%k") as p:
                source, place = f.at("%b", f.mul(p, "%rsb")), f.at("%out", f.mul(p, t.columns))
                for v in range(t.vectors):
                    f.store(f.load(f.at(source, v * t.lanes), t.vector), f.at(place, v * t.lanes), t.vector)
        with f.unless(full):
            masks = [f.lanes_below("%columns", v * t.lanes) for v in range(t.vectors)]
            with f.loop(0, "%k") as p:
                source, place = f.at("%b", f.mul(p, "%rsb")), f.at("%out", f.mul(p, t.columns))
                for v in range(t.vectors):
                    f.store(f.load_lanes(f.at(source, v * t.lanes), masks[v]), f.at(place, v * t.lanes), t.vector)
        f.store("%k", done, "i64", 8)
    with f.when(f.both(full, f.compare("eq", "%rsb", 1))):
        start = f.load(done, "i64", 8)  # everything is done already if both strides are 1
        steps = f.max(start, f.mul(f.div("%k", t.lanes), t.lanes))
        with f.loop(0, t.columns, t.lanes) as j:
            sources = [f.at("%b", f.mul(f.add(j, lane), "%csb")) for lane in range(t.lanes)]
            with f.loop(start, steps, t.lanes) as p:
                rows = f.transpose([f.load(f.at(source, p), t.vector) for source in sources])
                place = f.at("%out", f.add(f.mul(p, t.columns), j))
                for lane, row in enumerate(rows):
                    f.store(row, f.at(place, lane * t.columns), t.vector)
        f.store(steps, done, "i64", 8)
    last = f.sub("%columns", 1)
    with f.loop(f.load(done, "i64", 8), "%k") as p:
        source, place = f.at("%b", f.mul(p, "%rsb")), f.at("%out", f.mul(p, t.columns))
        with f.loop(0, t.columns) as j:
            value = f.load(f.at(source, f.mul(f.min(j, last), "%csb")))
            f.store(f.choose(f.compare("slt", j, "%columns"), value, "0.0", t.scalar), f.at(place, j))
    return f


PACKED_PANELS = 4  # panels that one packing task packs


def _pack_wide(t: Tile) -> Function:
    """All panels of a task at once, where B is contiguous along its rows: whole cache lines, in the order of memory."""
    f = Function(t, "pack_wide", "ipip", "k b rsb out")
    panels = [f.at("%out", f.mul(q * t.columns, "%k")) for q in range(PACKED_PANELS)]
    with f.loop(0, "%k") as p:
        source = f.at("%b", f.mul(p, "%rsb"))
        ahead = f.at(source, f.mul("%rsb", PACK_AHEAD))
        for line in range(0, PACKED_PANELS * t.columns, 64 // t.bytes):
            f.emit(f"call void @llvm.prefetch.p0(ptr {f.at(ahead, line)}, i32 0, i32 3, i32 1)")
        for q, panel in enumerate(panels):
            place = f.at(panel, f.mul(p, t.columns))
            for v in range(t.vectors):
                value = f.load(f.at(source, q * t.columns + v * t.lanes), t.vector)
                f.store(value, f.at(place, v * t.lanes), t.vector)
    return f


def _pack_task(t: Tile) -> Function:
    """Chunks 0..row_groups-1 pack panels of A, the later ones panels of B."""
    f = Function(t, "pack_task", "pi", "context chunk")
    block = Fields(f, "%context", BLOCK)
    k, groups = block.get("k"), block.get("row_groups")
    of_a = f.compare("slt", "%chunk", groups)
    with f.when(of_a):
        m, a, rsa, csa, out = (block.get(name) for name in ("m", "ptr_a", "rsa", "csa", "ptr_rows"))
        start = f.mul("%chunk", PACKED_PANELS * t.rows)
        with f.loop(start, f.min(m, f.add(start, PACKED_PANELS * t.rows)), t.rows) as i:
            source, place = f.at(a, f.mul(i, rsa)), f.at(out, f.mul(i, k))
            rows = f.min(t.rows, f.sub(m, i))
            f.call("@pack_rows", "ipiiip", k, source, rsa, csa, rows, place)
    with f.unless(of_a):
        n, b, rsb, csb, out = (block.get(name) for name in ("n", "ptr_b", "rsb", "csb", "ptr_columns"))
        first = block.get("packed_from")
        start = f.add(first, f.mul(f.sub("%chunk", groups), PACKED_PANELS * t.columns))
        full = f.compare("sle", f.add(start, PACKED_PANELS * t.columns), n)
        wide = f.both(full, f.compare("eq", csb, 1))
        with f.when(wide):
            f.call("@pack_wide", "ipip", k, f.at(b, start), rsb, f.at(out, f.mul(f.sub(start, first), k)))
        f.return_when(wide)
        with f.loop(start, f.min(n, f.add(start, PACKED_PANELS * t.columns)), t.columns) as j:
            source, place = f.at(b, f.mul(j, csb)), f.at(out, f.mul(f.sub(j, first), k))
            columns = f.min(t.columns, f.sub(n, j))
            f.call("@pack_columns", "ipiiip", k, source, rsb, csb, columns, place)
    return f


def _tile_task(t: Tile) -> Function:
    """The tiles of a chunk of C: a panel of B stays in L1 while the panels of A pass."""
    f = Function(t, "tile_task", "pi", "context chunk")
    block = Fields(f, "%context", BLOCK)
    m, n, k, a, rsa, csa, b, rsb, _, c, ldc, accumulate = (block.get(name) for name in BLOCK[:12])
    rows, columns, pack_a, first, _, height, width, across = (block.get(name) for name in BLOCK[12:20])
    packed = f.compare("ne", pack_a, 0)
    down = f.div("%chunk", across)
    top = f.mul(down, height)
    bottom = f.min(m, f.add(top, height))
    left = f.mul(f.sub("%chunk", f.mul(down, across)), width)
    with f.loop(left, f.min(n, f.add(left, width)), t.columns) as j:
        in_panel = f.compare("sge", j, first)
        panel = f.choose(in_panel, f.at(columns, f.mul(f.sub(j, first), k)), f.at(b, j), "ptr")
        stride = f.choose(in_panel, t.columns, rsb)
        wide = f.min(t.columns, f.sub(n, j))
        with f.loop(top, bottom, t.rows) as i:
            high = f.min(t.rows, f.sub(m, i))
            place = f.at(f.at(c, f.mul(i, ldc)), j)
            rest = (panel, stride, place, ldc, high, wide, accumulate)
            with f.when(packed):
                f.call("@kernel_packed", "ipiipipiiii", k, f.at(rows, f.mul(i, k)), 0, 0, *rest)
            with f.unless(packed):
                f.call("@kernel_direct", "ipiipipiiii", k, f.at(a, f.mul(i, rsa)), rsa, csa, *rest)
    first_row, epilogue, context = (block.get(name) for name in BLOCK[20:])
    with f.when(f.exists(epilogue)):
        f.call(epilogue, "pii", context, f.add(first_row, top), f.add(first_row, bottom))
    return f


def _run(t: Tile) -> Function:
    """All chunks of a task, on the pool or here."""
    f = Function(t, "run", "ppib", "task context chunks shared")
    with f.when("%shared"):
        f.call("@wl_parallel", "ppi", "%task", "%context", "%chunks")
    with f.unless("%shared"), f.loop(0, "%chunks") as chunk:
        f.call("%task", "pi", "%context", chunk)
    return f


def _gemm(t: Tile) -> Function:
    f = Function(t, f"wl_gemm_{t.dtype}", KINDS, PARAMETERS, exported=True)
    arguments = [f"%{name}" for name in PARAMETERS.split()]
    f.call(f"@wl_gemm_rows_{t.dtype}", KINDS + "pp", *arguments, "null", "null")
    return f


def _gemm_rows(t: Tile) -> Function:
    f = Function(t, f"wl_gemm_rows_{t.dtype}", KINDS + "pp", PARAMETERS + " epilogue context", exported=True)
    follows = f.exists("%epilogue")

    def finish(condition: str) -> None:
        """Leave, if everything is done."""
        with f.when(f.both(condition, follows)):
            f.call("%epilogue", "pii", "%context", 0, "%m")
        f.return_when(condition)

    f.return_when(f.either(f.compare("sle", "%m", 0), f.compare("sle", "%n", 0)))
    with f.when(f.compare("sle", "%k", 0)):
        with f.when(f.compare("eq", "%accumulate", 0)), f.loop(0, "%m") as i, f.loop(0, "%n") as j:
            f.store("0.0", f.at(f.at("%c", f.mul(i, "%ldc")), j))
    finish(f.compare("sle", "%k", 0))
    number = f.let("ptrtoint ptr %scratch to i64")
    aligned = f.let(f"and i64 {f.add(number, 63)}, -64")
    scratch = f.byte_at("%scratch", f.sub(aligned, number))

    # A row times a matrix is the transposed matrix times a column.
    column = f.compare("eq", "%n", 1)
    a_unit = f.either(f.compare("eq", "%rsa", 1), f.compare("eq", "%csa", 1))
    by_column = f.both(column, a_unit)
    with f.when(by_column):
        f.call(
            "@matrix_vector",
            "iipiipipiip",
            *"%m %k %a %rsa %csa %b %rsb %c %ldc %accumulate".split(),
            scratch,
        )
    finish(by_column)
    b_unit = f.either(f.compare("eq", "%rsb", 1), f.compare("eq", "%csb", 1))
    by_row = f.both(f.compare("eq", "%m", 1), b_unit)
    with f.when(by_row):
        f.call("@matrix_vector", "iipiipipiip", *"%n %k %b %csb %rsb %a %csa %c 1 %accumulate".split(), scratch)
    finish(by_row)

    # Few tiles and long sums: parts along k, then their sum.
    tiles = f.mul(f.ceil_div("%m", t.rows), f.ceil_div("%n", t.columns))
    few = f.both(f.compare("sle", tiles, FEW_TILES), f.compare("sge", "%k", 2 * SPLIT_DEPTH))
    elements = f.mul("%m", "%n")
    split = f.both(few, f.compare("sge", f.mul(elements, "%k"), PARALLEL_WORK))
    with f.when(split):
        words = f.space(f"[{len(SPLIT)} x i64]", 8)
        depth = f.round_up(f.ceil_div("%k", f.min(MOST_PARTS, f.div("%k", SPLIT_DEPTH))), UNROLL)
        parts = f.ceil_div("%k", depth)
        lines = f.add(f.round_up("%m", t.rows), f.round_up("%n", t.columns))
        panels = f.round_up(f.add(f.mul(f.mul(lines, f.min(depth, t.depth)), t.bytes), 128), 64)
        result = f.round_up(f.mul(elements, t.bytes), 64)
        size = f.add(result, panels)
        fields = Fields(f, words, SPLIT)
        fields.put(**{name: f"%{name.removeprefix('ptr_')}" for name in SPLIT[:9]})
        fields.put(ptr_parts=scratch, depth=depth, size=size, panels=result)
        f.call("@run", "ppib", "@split_task", words, parts, "true")
        with f.loop(1, parts) as part:
            f.accumulate(scratch, f.byte_at(scratch, f.mul(part, size)), elements)
        adding = f.compare("ne", "%accumulate", 0)
        with f.loop(0, "%m") as i, f.loop(0, "%n") as j:
            place = f.at(f.at("%c", f.mul(i, "%ldc")), j)
            value = f.variable(t.scalar, f.load(f.at(f.at(scratch, f.mul(i, "%n")), j)))
            with f.when(adding):
                f.store(f.let(f"fadd {t.scalar} {f.load(place)}, {f.load(value, align=8)}"), value, align=8)
            f.store(f.load(value, align=8), place)
    finish(split)
    f.call("@blocks", KINDS + "pp", *[f"%{name}" for name in PARAMETERS.split()[:-1]], scratch, "%epilogue", "%context")
    return f


def _split_task(t: Tile) -> Function:
    """One part of a product along k."""
    f = Function(t, "split_task", "pi", "context chunk")
    m, n, k, a, rsa, csa, b, rsb, csb, parts, depth, size, panels = Fields(f, "%context", SPLIT).all()
    start = f.mul("%chunk", depth)
    own = f.byte_at(parts, f.mul("%chunk", size))
    left, right = f.at(a, f.mul(start, csa)), f.at(b, f.mul(start, rsb))
    steps = f.min(depth, f.sub(k, start))
    rest = (own, n, 0, f.byte_at(own, panels), "null", "null")
    f.call("@blocks", KINDS + "pp", m, n, steps, left, rsa, csa, right, rsb, csb, *rest)
    return f


def _blocks(t: Tile) -> Function:
    """A product block by block, each packed and multiplied by tasks; the scratch is aligned."""
    f = Function(t, "blocks", KINDS + "pp", PARAMETERS + " epilogue context")
    follows = f.exists("%epilogue")
    # Packing pays when the panels are used often, unless the operand sits in the nearest caches anyway.
    words = f.space(f"[{len(BLOCK)} x i64]", 8)
    block = Fields(f, words, BLOCK)
    most = f.choose(f.compare("eq", "%csa", 1), SMALL_BYTES // t.bytes, SMALL_BYTES // 4 // t.bytes)
    a_is_small = f.compare("sle", f.mul("%m", "%k"), most)  # read across its rows, a small one isn't in L1
    b_is_small = f.compare("sle", f.mul("%k", "%n"), SMALL_BYTES // t.bytes)
    few_columns, few_rows = f.compare("sle", "%n", 256 // t.bytes), f.compare("sle", "%m", 4 * t.rows)
    direct_a = f.either(a_is_small, few_columns)
    direct_b = f.both(f.compare("eq", "%csb", 1), f.either(b_is_small, few_rows))
    pack_a = f.let(f"xor i1 {direct_a}, true")
    depth = f.round_up(f.ceil_div("%k", f.ceil_div("%k", t.depth)), UNROLL)
    height = f.round_up(f.ceil_div("%m", f.ceil_div("%m", BLOCK_ROWS)), t.rows)
    width = f.round_up(f.ceil_div("%n", f.ceil_div("%n", BLOCK_COLUMNS)), t.columns)
    block.put(rsa="%rsa", csa="%csa", rsb="%rsb", csb="%csb", ldc="%ldc", pack_a=f.choose(pack_a, 1, 0))
    with f.loop(0, "%n", width) as j0, f.loop(0, "%m", height) as i0, f.loop(0, "%k", depth) as p0:
        m, n, k = f.min(height, f.sub("%m", i0)), f.min(width, f.sub("%n", j0)), f.min(depth, f.sub("%k", p0))
        a = f.at("%a", f.add(f.mul(i0, "%rsa"), f.mul(p0, "%csa")))
        b = f.at("%b", f.add(f.mul(p0, "%rsb"), f.mul(j0, "%csb")))
        c = f.at("%c", f.add(f.mul(i0, "%ldc"), j0))
        block.put(m=m, n=n, k=k, ptr_a=a, ptr_b=b, ptr_c=c)
        block.put(accumulate=f.choose(f.compare("eq", p0, 0), "%accumulate", 1))
        packed_from = f.choose(direct_b, f.mul(f.div(n, t.columns), t.columns), 0)
        row_groups = f.choose(pack_a, f.ceil_div(m, PACKED_PANELS * t.rows), 0)
        column_groups = f.ceil_div(f.sub(n, packed_from), PACKED_PANELS * t.columns)
        columns = f.at("%scratch", f.choose(pack_a, f.mul(f.round_up(m, t.rows), k), 0))
        block.put(ptr_rows="%scratch", ptr_columns=columns, packed_from=packed_from, row_groups=row_groups)

        work = f.mul(f.mul(m, n), k)
        shared = f.compare("sge", work, PARALLEL_WORK)
        chunks = f.min(MOST_CHUNKS, f.max(1, f.div(work, CHUNK_WORK)))
        down = f.ceil_div(m, t.chunk_rows)
        across = f.max(f.ceil_div(n, CHUNK_COLUMNS), f.min(f.ceil_div(chunks, down), f.ceil_div(n, t.columns)))
        across = f.choose(follows, 1, across)  # whole rows, and so many that a panel of B is worth its way to L1
        least_rows = f.choose(follows, WHOLE_ROW_TILES * t.rows, t.rows)
        down = f.max(down, f.min(f.ceil_div(chunks, across), f.ceil_div(m, least_rows)))
        chunk_rows = f.round_up(f.ceil_div(m, down), t.rows)
        chunk_columns = f.round_up(f.ceil_div(n, across), t.columns)
        down, across = f.ceil_div(m, chunk_rows), f.ceil_div(n, chunk_columns)
        block.put(chunk_rows=chunk_rows, chunk_columns=chunk_columns, column_chunks=across)
        last = f.both(f.compare("sge", f.add(p0, depth), "%k"), f.compare("sge", f.add(j0, width), "%n"))
        block.put(first_row=i0, ptr_epilogue=f.choose(last, "%epilogue", "null", "ptr"), ptr_context="%context")
        packs = f.add(row_groups, column_groups)
        f.call("@run", "ppib", "@pack_task", words, packs, shared)
        f.call("@run", "ppib", "@tile_task", words, f.mul(down, across), shared)
    return f
