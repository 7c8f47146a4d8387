"""Attention of few queries, as when a text is continued: row by row, with all logits of a row in L1.

A task is one query of a head. Keys before the first and behind the last that it sees aren't read: of a cache that is
nearly empty, most aren't.
"""

from __future__ import annotations

import math

from wonderland.compile import attention_tiles as tiles
from wonderland.compile import ir
from wonderland.compile.attention_forward import WORDS
from wonderland.compile.gemm_tile import Fields, Tile, begin, fma, round_up
from wonderland.compile.ir import Function, Value
from wonderland.compile.vecmath.exp import exp_below
from wonderland.compile.vecmath.log import log

KEYS = 4  # whose dot products share the loads of the query
VECTORS = 4  # of a row of values that are summed at a time
ALTERNATELY = 2  # sums of values, of keys in turn
EIGHT = 8  # bytes of a mask that are looked at together


def room(t: Tile, keys: int) -> list[int]:
    """Elements of scratch: the logits of a row, and a factor."""
    return [round_up(keys, t.lanes) + 1]


def row(t: Tile) -> Function:
    """A query of one head."""
    f, (context, number, s) = begin(t, "row", "context& number scratch*")
    words = Fields(f, t, WORDS, context)
    heads, group, queries, keys, width, values = words.get("heads group queries keys width values")
    low, high, scale, bias, mask = words.get("low high scale bias mask")
    head, i = number // queries, number % queries
    n, h = head // heads, head % heads
    of_pair = lambda strides: n * strides[0] + h * strides[1] + i * strides[2]
    of_mask, of_bias = words.get("mn mh mt mj"), words.get("bn bh bt bj")
    seen = f.element(ir.BYTE, mask, of_pair(of_mask), inbounds=False)
    sees = lambda j: f.load(ir.BYTE, f.element(ir.BYTE, seen, j * of_mask[3], inbounds=False)).differs(0)

    begun, ended = f.variable(f.max(i + low, 0)), f.variable(f.min(keys, i + high + 1))
    contiguous = of_mask[3].equals(1)
    with f.when(mask.differs(None)):
        with f.when(contiguous), f.forever() as leave:
            leave(ended.get() - begun.get() < EIGHT)
            leave(f.load(ir.LONG, f.element(ir.BYTE, seen, ended.get() - EIGHT), 1).differs(0))
            ended.add(-EIGHT)
        with f.forever() as leave:
            leave(begun.get() >= ended.get())
            leave(sees(begun.get()))
            begun.add(1)
        with f.forever() as leave:
            leave(begun.get() >= ended.get())
            leave(sees(ended.get() - 1))
            ended.add(-1)
    first = begun.get()
    count = f.max(ended.get() - first, 0)

    q, qt = tiles.rows_of(words, "q", "q", n, h)
    k, kt = tiles.rows_of(words, "k", "k", n, h // group)
    f.call(_logits(t), q.at(i * qt), k.at(first * kt), kt, width, scale, s, count)
    with f.when(bias.differs(None)):
        more = bias.at(of_pair(of_bias))
        with f.loop(0, count) as j:
            s.store(s.load(j) + more.load((first + j) * of_bias[3]), j)
    nothing = ir.constant(-math.inf, t.vector, f)
    with f.when(mask.differs(None)):
        whole = f.select(contiguous, count & -t.lanes, 0)
        with f.loop(0, whole, t.lanes) as j:
            there = f.load(ir.vector(ir.BYTE, t.lanes), f.element(ir.BYTE, seen, first + j), 1).differs(0)
            s.store(f.select(there, s.vector(j), nothing), j)
        with f.loop(whole, count) as j:
            s.store(f.select(sees(first + j), s.load(j), -math.inf), j)

    with f.loop(count, round_up(count, t.lanes)) as j:
        s.store(-math.inf, j)
    highest = f.variable(tiles.lowest(t), t.vector)
    with f.loop(0, count, t.lanes) as j:
        x, old = s.vector(j), highest.get()
        highest.set(f.select(x > old, x, old))
    largest = f.intrinsic("vector.reduce.fmax", highest.get(), returns=t.scalar, over=[t.vector])
    top, sums = f.splat(largest, t.lanes), f.variable(0, t.vector)
    with f.loop(0, count, t.lanes) as j:
        p = exp_below(s.vector(j) - top)
        s.store(p, j)
        sums.set(sums.get() + p)
    total = _across(f, t, sums.get())
    unseen = total.equals(0.0)
    lse = words.get("lse")[0]
    lse.store(f.select(unseen, -math.inf, largest + log(total)), head * queries + i)

    v, vt = tiles.rows_of(words, "v", "v", n, h // group)
    out, ot = tiles.rows_of(words, "out", "o", n, h)
    factor = s.at(round_up(keys, t.lanes))
    factor.store(f.select(unseen, 0.0, 1.0 / total))
    f.call(_mixed(t), s, count, v.at(first * vt), vt, values, factor, out.at(i * ot))
    return f


def _across(f: Function, t: Tile, x: Value) -> Value:
    """The sum of the lanes."""
    zero = ir.constant(-0.0, t.scalar)
    return f.intrinsic("vector.reduce.fadd", zero, x, returns=t.scalar, over=[t.vector], flags="reassoc")


def _logits(t: Tile) -> Function:
    """s_j = scale q . k_j, of keys with contiguous numbers."""
    f, (q, k, kt, width, scale, s, count) = begin(t, "logits", "q* k* kt width scale s* count")
    whole, factor = width & -t.lanes, tiles.scalar_of(t, scale)

    def dots(j: Value, several: int) -> None:
        rows = [k.at((j + r) * kt) for r in range(several)]
        sums = [f.variable(0, t.vector) for _ in rows]
        with f.loop(0, whole, t.lanes) as w:
            x = q.vector(w)
            for row, cell in zip(rows, sums, strict=True):
                cell.set(fma(row.vector(w), x, cell.get()))
        totals = [f.variable(_across(f, t, cell.get())) for cell in sums]
        with f.loop(whole, width) as w:
            x = q.load(w)
            for row, cell in zip(rows, totals, strict=True):
                cell.set(fma(row.load(w), x, cell.get()))
        for r, cell in enumerate(totals):
            s.store(cell.get() * factor, j + r)

    fours = count & -KEYS
    with f.loop(0, fours, KEYS) as j:
        dots(j, KEYS)
    with f.loop(fours, count) as j:
        dots(j, 1)
    return f


def _mixed(t: Tile) -> Function:
    """out = factor sum_j p_j v_j; a key whose p is 0 isn't read."""
    f, (p, count, v, vt, values, factor, out) = begin(t, "mixed", "p* count v* vt values factor* out*")

    def part(w: Value, vectors: int, type: str) -> None:
        step = t.lanes if type == t.vector else 1
        spread = lambda x: f.splat(x, t.lanes) if type == t.vector else x
        sums = [[f.variable(0, type) for _ in range(vectors)] for _ in range(ALTERNATELY)]  # each waits for itself

        def add(j: Value, cells: list) -> None:
            weight = p.load(j)
            with f.when(weight.differs(0.0)):
                by, source = spread(weight), v.at(j * vt).at(w)
                for i, cell in enumerate(cells):
                    cell.set(fma(source.load(i * step, type), by, cell.get()))

        whole = count & -ALTERNATELY
        with f.loop(0, whole, ALTERNATELY) as j:
            for r, cells in enumerate(sums):
                add(j + r, cells)
        with f.loop(whole, count) as j:
            add(j, sums[0])
        by = spread(factor.load())
        for i, cells in enumerate(zip(*sums, strict=True)):
            out.at(w).store(sum((cell.get() for cell in cells[1:]), cells[0].get()) * by, i * step)

    block = VECTORS * t.lanes
    blocks, whole = values - values % block, values & -t.lanes
    with f.loop(0, blocks, block) as w:
        part(w, VECTORS, t.vector)
    with f.loop(blocks, whole, t.lanes) as w:
        part(w, 1, t.vector)
    with f.loop(whole, values) as w:
        part(w, 1, t.scalar)
    return f
