"""Matrix times vector, for the generator of matrix products: the register tile comes in, functions of IR go out.

They read the matrix once, in the order of memory: dot products of its rows if those are contiguous, otherwise sums of
its columns. A large matrix is cut into chunks for the pool, along the sum too if there are few rows; the cut depends on
the sizes alone.
"""

from __future__ import annotations

from wonderland.compile.gemm_emit import Fields, Function, Tile, Value

PARALLEL_VECTOR_BYTES = 1 << 19  # of a matrix, from which its product with a vector is shared
DOT_ROWS = 4  # rows of a matrix that share the loads of the vector
AXPY_COLUMNS = 4  # columns of a matrix that are added in one pass over the result
AXPY_BYTES = 1 << 14  # of a result that is summed at a time, in L1
VECTOR_CHUNK = 1 << 15  # matrix elements that are worth a task
VECTOR_CHUNKS = 16  # most cuts of matrix times vector along k

# M x in chunks of height x depth; those of the same columns of M write the same vector of partial sums.
VECTOR = ["m", "k", "ptr_matrix", "rs", "cs", "ptr_x", "incx", "ptr_partial", "height", "depth"]


def scratch_elements(m: int, n: int, k: int) -> int:
    """Elements of scratch that a product with m = 1 or n = 1 needs."""
    return k + max(m, n) * max(1, min(VECTOR_CHUNKS, m * n * k // VECTOR_CHUNK))


def _chunk(f: Function, fields: Fields) -> tuple[Value, Value, Value, Value, str]:
    """Rows top..bottom and columns start..stop of a chunk, and where its sums go."""
    m, k, height, depth = (fields.get(name) for name in ("m", "k", "height", "depth"))
    across = f.ceil_div(m, height)
    part = f.div("%chunk", across)
    top = f.mul(f.sub("%chunk", f.mul(part, across)), height)
    start = f.mul(part, depth)
    bottom, stop = f.min(m, f.add(top, height)), f.min(k, f.add(start, depth))
    return top, bottom, start, stop, f.at(fields.get("ptr_partial"), f.mul(part, m))


def dot_task(t: Tile) -> Function:
    """partial_i = sum_p M_ip x_p with M contiguous along p, as is x: four rows share the loads of x."""
    f = Function(t, "dot_task", "pi", "context chunk")
    fields = Fields(f, "%context", VECTOR)
    top, bottom, start, stop, partial = _chunk(f, fields)
    matrix, rs, x = (fields.get(name) for name in ("ptr_matrix", "rs", "ptr_x"))

    def dots(i: Value, count: int, parts: int) -> None:
        """Rows i, ..., i + count - 1, each summed in `parts` vectors."""
        rows = [f.at(matrix, f.mul(f.add(i, r), rs)) for r in range(count)]
        sums = [[f.variable(t.vector, "zeroinitializer", 64) for _ in range(parts)] for _ in rows]
        size = f.sub(stop, start)
        whole = f.add(start, f.sub(size, f.let(f"urem i64 {size}, {parts * t.lanes}")))
        with f.loop(start, whole, parts * t.lanes) as p:
            for part in range(parts):
                factor = f.load(f.at(f.at(x, p), part * t.lanes), t.vector)
                for row, cells in zip(rows, sums, strict=True):
                    value = f.load(f.at(f.at(row, p), part * t.lanes), t.vector)
                    f.store(f.fma(value, factor, f.load(cells[part], t.vector, 64)), cells[part], t.vector, 64)
        totals = []
        for cells in sums:
            values = [f.load(cell, t.vector, 64) for cell in cells]
            while len(values) > 1:
                pairs = zip(values[::2], values[1::2], strict=True)
                values = [f.let(f"fadd {t.vector} {left}, {right}") for left, right in pairs]
            call = f"@llvm.vector.reduce.fadd.{t.suffix}({t.scalar} -0.0, {t.vector} {values[0]})"
            totals.append(f.variable(t.scalar, f.let(f"call reassoc {t.scalar} {call}")))
        with f.loop(whole, stop) as p:
            factor = f.load(f.at(x, p))
            for row, total in zip(rows, totals, strict=True):
                f.store(f.fma_scalar(f.load(f.at(row, p)), factor, f.load(total, align=8)), total, align=8)
        for r, total in enumerate(totals):
            f.store(f.load(total, align=8), f.at(partial, f.add(i, r)))

    fours = f.add(top, f.let(f"and i64 {f.sub(bottom, top)}, {-DOT_ROWS}"))
    with f.loop(top, fours, DOT_ROWS) as i:
        dots(i, DOT_ROWS, 2)
    with f.loop(fours, bottom) as i:
        dots(i, 1, 8)
    return f


def axpy_task(t: Tile) -> Function:
    """partial = sum_p M_:p x_p with M contiguous along its rows' index: the sums stay in L1."""
    f = Function(t, "axpy_task", "pi", "context chunk")
    fields = Fields(f, "%context", VECTOR)
    top, bottom, start, stop, partial = _chunk(f, fields)
    matrix, cs, x, incx = (fields.get(name) for name in ("ptr_matrix", "cs", "ptr_x", "incx"))
    whole = f.add(top, f.let(f"and i64 {f.sub(bottom, top)}, {-t.lanes}"))
    with f.loop(top, bottom) as i:
        f.store("0.0", f.at(partial, i))

    def columns(p: Value, count: int) -> None:
        factors = [f.load(f.at(x, f.mul(f.add(p, q), incx))) for q in range(count)]
        spread = [f.broadcast(factor) for factor in factors]
        sources = [f.at(matrix, f.mul(f.add(p, q), cs)) for q in range(count)]
        with f.loop(top, whole, t.lanes) as i:
            total = f.load(f.at(partial, i), t.vector)
            for source, factor in zip(sources, spread, strict=True):
                total = f.fma(f.load(f.at(source, i), t.vector), factor, total)
            f.store(total, f.at(partial, i), t.vector)
        with f.loop(whole, bottom) as i:
            total = f.load(f.at(partial, i))
            for source, factor in zip(sources, factors, strict=True):
                total = f.fma_scalar(f.load(f.at(source, i)), factor, total)
            f.store(total, f.at(partial, i))

    whole_steps = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-AXPY_COLUMNS}"))
    with f.loop(start, whole_steps, AXPY_COLUMNS) as p:
        columns(p, AXPY_COLUMNS)
    with f.loop(whole_steps, stop) as p:
        columns(p, 1)
    return f


def matrix_vector(t: Tile) -> Function:
    """y_i = (y_i) + sum_p M[i*rs + p*cs] x[p*incx] where rs or cs is 1."""
    f = Function(t, "matrix_vector", "iipiipipiip", "m k matrix rs cs x incx y incy accumulate scratch")
    context = f.space(f"[{len(VECTOR)} x i64]", 8)
    fields = Fields(f, context, VECTOR)
    partial = f.at("%scratch", "%k")
    fields.put(m="%m", k="%k", ptr_matrix="%matrix", rs="%rs", cs="%cs", ptr_x="%x", incx="%incx")
    fields.put(ptr_partial=partial)
    by_rows = f.compare("eq", "%cs", 1)
    with f.when(f.both(by_rows, f.compare("ne", "%incx", 1))):
        with f.loop(0, "%k") as p:
            f.store(f.load(f.at("%x", f.mul(p, "%incx"))), f.at("%scratch", p))
        fields.put(ptr_x="%scratch")

    # Chunks of about equal work; along k only as far as the rows alone don't make enough of them.
    work = f.mul("%m", "%k")
    shared = f.compare("sge", work, PARALLEL_VECTOR_BYTES // t.bytes)
    most_rows = f.choose(by_rows, f.round_up(f.add(f.div(VECTOR_CHUNK, "%k"), 1), DOT_ROWS), AXPY_BYTES // t.bytes)
    height = f.round_up(f.ceil_div("%m", f.ceil_div("%m", most_rows)), DOT_ROWS)
    down = f.ceil_div("%m", height)
    chunks = f.min(VECTOR_CHUNKS, f.div(work, VECTOR_CHUNK))
    depth = f.round_up(f.ceil_div("%k", f.max(1, f.div(chunks, down))), 64)
    parts = f.ceil_div("%k", depth)
    fields.put(height=height, depth=depth)
    task = f.choose(by_rows, "@dot_task", "@axpy_task", "ptr")
    f.call("@run", "ppib", task, context, f.mul(down, parts), shared)

    with f.loop(1, parts) as part:
        f.accumulate(partial, f.at(partial, f.mul(part, "%m")), "%m")
    adding = f.compare("ne", "%accumulate", 0)
    with f.loop(0, "%m") as i:
        place, value = f.at("%y", f.mul(i, "%incy")), f.variable(t.scalar, f.load(f.at(partial, i)))
        with f.when(adding):
            f.store(f.let(f"fadd {t.scalar} {f.load(place)}, {f.load(value, align=8)}"), value, align=8)
        f.store(f.load(value, align=8), place)
    return f
