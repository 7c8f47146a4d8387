"""Matrix times vector, for the generator of matrix products: the register tile comes in, functions of IR go out.

They read the matrix once, in the order of memory: dot products of its rows if those are contiguous, otherwise sums of
its columns. A large matrix is cut into chunks for the pool, along the sum too if there are few rows; the cut depends on
the sizes alone.
"""

from __future__ import annotations

from wonderland.compile.gemm_tile import Elements, Fields, Tile, at_most, begin, ceil_div, fma, round_up, run, share
from wonderland.compile.ir import Function, Value, constant

PARALLEL_VECTOR_BYTES = 1 << 19  # of a matrix, from which its product with a vector is shared
DOT_ROWS = 4  # rows of a matrix that share the loads of the vector
AXPY_COLUMNS = 8  # columns of a matrix that are added in one pass over the result
AXPY_BYTES = 1 << 14  # of a result that is summed at a time, in L1
VECTOR_CHUNK = 1 << 15  # matrix elements that are worth a task
VECTOR_CHUNKS = 16  # most cuts of matrix times vector along k

# M x in chunks of height x depth; those of the same columns of M write the same vector of partial sums.
VECTOR = "m k matrix* rs cs x* incx partial* height depth"


def scratch_elements(m: int, n: int, k: int) -> int:
    """Elements of scratch that a product with m = 1 or n = 1 needs."""
    return k + max(m, n) * max(1, min(VECTOR_CHUNKS, m * n * k // VECTOR_CHUNK))


def _chunk(f: Function, fields: Fields, chunk: Value) -> tuple[Value, Value, Value, Value, Elements]:
    """Rows top..bottom and columns start..stop of a chunk, and where its sums go."""
    m, k, height, depth, partial = fields.get("m k height depth partial")
    across = ceil_div(m, height)
    part = chunk // across
    top, start = (chunk - part * across) * height, part * depth
    return top, f.min(m, top + height), start, f.min(k, start + depth), partial.at(part * m)


def _dot_task(t: Tile) -> Function:
    """partial_i = sum_p M_ip x_p with M contiguous along p, as is x: four rows share the loads of x."""
    f, (context, chunk) = begin(t, "dot_task", "context& chunk")
    fields = Fields(f, t, VECTOR, context)
    top, bottom, start, stop, partial = _chunk(f, fields, chunk)
    matrix, rs, x = fields.get("matrix rs x")

    def dots(i: Value, count: int, parts: int) -> None:
        """Rows i, ..., i + count - 1, each summed in `parts` vectors."""
        rows = [matrix.at((i + r) * rs) for r in range(count)]
        sums = [[f.variable(0, t.vector) for _ in range(parts)] for _ in rows]
        size = stop - start
        whole = start + (size - size % (parts * t.lanes))
        with f.loop(start, whole, parts * t.lanes) as p:
            for part in range(parts):
                factor = x.at(p).vector(part * t.lanes)
                for row, cells in zip(rows, sums, strict=True):
                    cells[part].set(fma(row.at(p).vector(part * t.lanes), factor, cells[part].get()))
        totals = []
        for cells in sums:
            values = [cell.get() for cell in cells]
            while len(values) > 1:
                values = [left + right for left, right in zip(values[::2], values[1::2], strict=True)]
            zero = constant(-0.0, t.scalar)
            total = f.intrinsic("vector.reduce.fadd", zero, *values, returns=t.scalar, over=[t.vector], flags="reassoc")
            totals.append(f.variable(total))
        with f.loop(whole, stop) as p:
            factor = x.load(p)
            for row, total in zip(rows, totals, strict=True):
                total.set(fma(row.load(p), factor, total.get()))
        for r, total in enumerate(totals):
            partial.store(total.get(), i + r)

    fours = top + ((bottom - top) & -DOT_ROWS)
    with f.loop(top, fours, DOT_ROWS) as i:
        dots(i, DOT_ROWS, 2)
    with f.loop(fours, bottom) as i:
        dots(i, 1, 8)
    return f


def _axpy_task(t: Tile) -> Function:
    """partial = sum_p M_:p x_p with M contiguous along its rows' index: the sums stay in L1."""
    f, (context, chunk) = begin(t, "axpy_task", "context& chunk")
    fields = Fields(f, t, VECTOR, context)
    top, bottom, start, stop, partial = _chunk(f, fields, chunk)
    matrix, cs, x, incx = fields.get("matrix cs x incx")
    whole = top + ((bottom - top) & -t.lanes)
    with f.loop(top, bottom) as i:
        partial.store(0.0, i)

    def columns(p: Value, count: int) -> None:
        factors = [x.load((p + q) * incx) for q in range(count)]
        spread = [f.splat(factor, t.lanes) for factor in factors]
        sources = [matrix.at((p + q) * cs) for q in range(count)]
        parts = ((top, whole, t.lanes, t.vector, spread), (whole, bottom, 1, t.scalar, factors))
        for first, last, step, type, by in parts:
            with f.loop(first, last, step) as i:
                total = partial.load(i, type)
                for source, factor in zip(sources, by, strict=True):
                    total = fma(source.load(i, type), factor, total)
                partial.store(total, i)

    whole_steps = start + ((stop - start) & -AXPY_COLUMNS)
    with f.loop(start, whole_steps, AXPY_COLUMNS) as p:
        columns(p, AXPY_COLUMNS)
    with f.loop(whole_steps, stop) as p:
        columns(p, 1)
    return f


def matrix_vector(t: Tile) -> Function:
    """y_i = sum_p M[i*rs + p*cs] x[p*incx] where rs or cs is 1."""
    f, parameters = begin(t, "matrix_vector", "m k matrix* rs cs x* incx y* incy scratch*")
    m, k, matrix, rs, cs, x, incx, y, incy, scratch = parameters
    partial = scratch.at(k)
    fields = Fields(f, t, VECTOR)
    fields.put(m=m, k=k, matrix=matrix, rs=rs, cs=cs, x=x, incx=incx, partial=partial)
    by_rows = cs.equals(1)
    with f.when(by_rows & incx.differs(1)):
        with f.loop(0, k) as p:
            scratch.store(x.load(p * incx), p)
        fields.put(x=scratch)

    # Chunks of about equal work; along k only as far as the rows alone don't make enough of them.
    work = m * k
    shared = work >= PARALLEL_VECTOR_BYTES // t.bytes
    most_rows = f.select(by_rows, round_up(f.integer(VECTOR_CHUNK) // k + 1, DOT_ROWS), AXPY_BYTES // t.bytes)
    height = at_most(m, most_rows, DOT_ROWS)
    down = ceil_div(m, height)
    chunks = f.min(work // VECTOR_CHUNK, VECTOR_CHUNKS)
    depth = share(k, f.max(chunks // down, 1), 64)
    parts = ceil_div(k, depth)
    fields.put(height=height, depth=depth)
    task = f.select(by_rows, f.at(_dot_task(t)), f.at(_axpy_task(t)))
    f.call(run(), task, fields.pointer, down * parts, shared)

    with f.loop(1, parts) as part:
        partial.accumulate(partial.at(part * m), m)
    with f.loop(0, m) as i:
        y.store(partial.load(i), i * incy)
    return f
