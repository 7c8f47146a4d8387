"""The innermost part of matrix products: one register tile of the result, from k steps of panels of A and B."""

from __future__ import annotations

from functools import cache
from typing import Any

from wonderland.compile.gemm_tile import UNROLL, Tile, begin, fma
from wonderland.compile.ir import LONG, Function, Value

LAST_STEPS = 64  # steps of k before the end of a tile at which C is fetched
AHEAD = 16  # steps of k between a prefetch and its use
# What a kernel gets besides: the strides of A where it lies, or tables of the places of its rows and steps.
HOW = {"packed": "", "direct": " rsa csa", "placed": " row_places& step_places&"}


@cache
def kernel(t: Tile, how: str) -> Function:
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

    # Unrolled with unknown strides, LLVM would keep an address for every row and step, and spill the sums. Two steps of
    # 24 sums are as fast as four, and compiled in half of the time.
    unroll = (UNROLL if len(sums) < 24 else UNROLL // 2) if packed else 1
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
