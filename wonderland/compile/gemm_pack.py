"""Packing: the operands of a block of a matrix product, in panels as wide as the register tile."""

from __future__ import annotations

from functools import cache

from wonderland.compile import ir
from wonderland.compile.gemm_tile import Tile, begin
from wonderland.compile.ir import LONG, Function

PACKED_PANELS = 4  # panels that one packing task packs
PACK_AHEAD = 8  # rows of B between a prefetch and its use in packing


@cache
def pack_rows(t: Tile) -> Function:
    """A panel of A: out[p*R + r] = a[r*rsa + p*csa] for the R rows of a tile, zero beyond the last."""
    f, (k, a, rsa, csa, rows, out) = begin(t, "pack_rows", "k a* rsa csa rows out*")
    full = rows.equals(t.rows)
    done = f.variable(0)
    with f.when(full & csa.equals(1)):
        # Whole vectors are stored, so each step spills over into the next, which is written later: the last
        # step of the panel must not be one of these.
        steps = (k - 1) // t.lanes * t.lanes
        sources = [a.at(r * rsa) for r in range(t.rows)]
        with f.loop(0, steps, t.lanes) as p:
            parts = [sources[first : first + t.lanes] for first in range(0, t.rows, t.lanes)]
            groups = [t.transpose([source.vector(p) for source in part]) for part in parts]
            place = out.at(p * t.rows)
            for lane in range(t.lanes):
                for number, group in enumerate(groups):
                    place.store(group[lane], lane * t.rows + number * t.lanes)
        done.set(steps)
    sources = [a.at(f.min(rows - 1, r) * rsa) for r in range(t.rows)]
    inside = [rows > r for r in range(t.rows)]
    with f.loop(done.get(), k) as p:
        place = out.at(p * t.rows)
        for r, source in enumerate(sources):
            place.store(f.select(inside[r], source.load(p * csa), 0.0), r)
    return f


@cache
def pack_placed(t: Tile) -> Function:
    """A panel of A at places: out[p*R + r] = a[row_places[r] + step_places[p]], zero beyond the last row."""
    f, (k, a, row_places, step_places, rows, out) = begin(t, "pack_placed", "k a* row_places& step_places& rows out*")
    sources = [a.at(f.load(LONG, f.element(LONG, row_places, f.min(rows - 1, r)))) for r in range(t.rows)]
    inside = [rows > r for r in range(t.rows)]
    full = rows.equals(t.rows)
    for whole, condition in ((True, f.when(full)), (False, f.unless(full))):
        with condition, f.loop(0, k) as p:
            step, place = f.load(LONG, f.element(LONG, step_places, p)), out.at(p * t.rows)
            for r, source in enumerate(sources):
                value = source.load(step)
                place.store(value if whole else f.select(inside[r], value, 0.0), r)
    return f


@cache
def pack_tall(t: Tile) -> Function:
    """Panels of A one below the other, where A is contiguous along its columns: in the order of memory."""
    f, (k, a, csa, panels, out) = begin(t, "pack_tall", "k a* csa panels out*")
    with f.loop(0, k) as p:
        source, place = a.at(p * csa), out.at(p * t.rows)
        source.at(csa * PACK_AHEAD).prefetch()
        with f.loop(0, panels) as q:
            place.at(q * (t.rows * k)).store(source.load(q * t.rows, ir.vector(t.scalar, t.rows)))
    return f


@cache
def pack_columns(t: Tile) -> Function:
    """A panel of B: out[p*N + j] = b[p*rsb + j*csb] for the N columns of a tile, zero beyond the last."""
    f, (k, b, rsb, csb, columns, out) = begin(t, "pack_columns", "k b* rsb csb columns out*")
    full = columns.equals(t.columns)
    done = f.variable(0)
    with f.when(csb.equals(1)):
        with f.when(full), f.loop(0, k) as p:
            for v in t.starts:
                out.at(p * t.columns).store(b.at(p * rsb).vector(v), v)
        with f.unless(full):
            masks = [t.lanes_below(columns, v) for v in t.starts]
            with f.loop(0, k) as p:
                for v, mask in zip(t.starts, masks, strict=True):
                    out.at(p * t.columns).store(b.at(p * rsb).at(v).load_lanes(mask), v)
        done.set(k)
    with f.when(full & rsb.equals(1)):
        start = done.get()  # everything is done already if both strides are 1
        steps = f.max(start, k // t.lanes * t.lanes)
        with f.loop(0, t.columns, t.lanes) as j:
            sources = [b.at((j + lane) * csb) for lane in range(t.lanes)]
            with f.loop(start, steps, t.lanes) as p:
                place = out.at(p * t.columns + j)
                for lane, row in enumerate(t.transpose([source.vector(p) for source in sources])):
                    place.store(row, lane * t.columns)
        done.set(steps)
    with f.loop(done.get(), k) as p, f.loop(0, t.columns) as j:
        value = b.at(p * rsb).load(f.min(j, columns - 1) * csb)
        out.at(p * t.columns).store(f.select(j < columns, value, 0.0), j)
    return f


@cache
def pack_wide(t: Tile) -> Function:
    """All panels of a task at once, where B is contiguous along its rows: whole cache lines, in the order of memory."""
    f, (k, b, rsb, out) = begin(t, "pack_wide", "k b* rsb out*")
    panels = [out.at(k * (q * t.columns)) for q in range(PACKED_PANELS)]
    with f.loop(0, k) as p:
        source = b.at(p * rsb)
        ahead = source.at(rsb * PACK_AHEAD)
        for line in range(0, PACKED_PANELS * t.columns, 64 // t.bytes):
            ahead.at(line).prefetch()
        for q, panel in enumerate(panels):
            for v in t.starts:
                panel.at(p * t.columns).store(source.vector(q * t.columns + v), v)
    return f
