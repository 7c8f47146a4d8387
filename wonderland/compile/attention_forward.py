"""Attention forward, tile by tile.

A task has a block of queries of a head: it goes through the keys that these see, block by block, keeping for each query
the largest logit so far, the sum of exponentials and the weighted sum of values, which are corrected when there is a
larger logit (Milakov and Gimelshein 2018; Dao et al. 2022). Tiles of which nothing is seen are left out.
"""

from __future__ import annotations

import math
from typing import Any

from wonderland.compile import attention_tiles as tiles
from wonderland.compile.attention_tiles import Visible, queries_of
from wonderland.compile.gemm_tile import Fields, Tile, begin, ceil_div, round_up
from wonderland.compile.ir import Function
from wonderland.compile.vecmath.log import log

KEY_TILES = 32  # of a block of keys

# Strides are those of the batch, of heads (or groups), and of queries or keys; `low` and `high` are the band.
WORDS = """
    next q* k* v* bias* mask& out* lse* scratch*
    heads group queries keys width values low high scale
    qn qh qt kn kh kt vn vh vt bn bh bt bj mn mh mt mj on oh ot
    blocks total lanes room
"""


def room(t: Tile, width: Any, values: Any) -> list[Any]:
    """Elements of scratch: queries, logits, the result, and for each query the maximum, the sum and a factor."""
    each = queries_of(t)
    ld, padded = each + t.columns, round_up(values, t.rows)
    return [width * ld, KEY_TILES * t.rows * t.columns, padded * ld, each, each, each]


def block(t: Tile) -> Function:
    """A block of queries of one head."""
    f, (context, number, scratch) = begin(t, "block", "context& number scratch*")
    words = Fields(f, t, WORDS, context)
    heads, group, queries, keys, width, values = words.get("heads group queries keys width values")
    low, high, scale, blocks = words.get("low high scale blocks")
    each, across, one = queries_of(t), f.integer(t.columns), f.constant(1)
    ld = f.integer(each + t.columns)
    head, first = number // blocks, number % blocks * each
    n, h = head // heads, head % heads
    rows = f.min(queries - first, each)

    q, qt = tiles.rows_of(words, "q", "q", n, h)
    k, kt = tiles.rows_of(words, "k", "k", n, h // group)
    v, vt = tiles.rows_of(words, "v", "v", n, h // group)
    out, ot = tiles.rows_of(words, "out", "o", n, h)
    packed, s, result, top, sums, factor = tiles.places(scratch, room(t, width, values))
    columns = ceil_div(rows, t.columns)
    f.call(tiles.pack(t), q.at(first * qt), qt, rows, width, scale, packed, ld, columns * t.columns)
    fill, zero = tiles.fill(t), f.constant(0)
    f.call(fill, result, round_up(values, t.rows) * ld, zero)
    f.call(fill, sums, f.integer(each), zero)
    f.call(fill, top, f.integer(each), f.constant(tiles.double_bits(tiles.lowest(t))))

    logits, visible = tiles.product(t, update=False), Visible(f, t, words, n, h)
    soften, update = tiles.soften(t), tiles.product(t, update=True)
    end, step = f.min(keys, first + rows + high), KEY_TILES * t.rows
    with f.loop(f.max(first + low, 0), end, step) as j0, f.loop(0, columns) as c:
        i0, here = first + c * t.columns, c * t.columns
        start, stop = f.max(j0, i0 + low), f.min(f.min(j0 + step, end), i0 + t.columns + high)
        with f.when(start < stop):
            count = stop - start
            with f.loop(0, count, t.rows) as r:
                a, b = k.at((start + r) * kt), packed.at(here)
                f.call(logits, width, a, kt, one, count - 1 - r, b, ld, s.at(r * t.columns), across)
            visible.apply(s, across, count, start, i0)
            f.call(soften, s, count, top.at(here), sums.at(here), factor)
            with f.loop(0, values, t.rows) as d:
                a, to = v.at(start * vt).at(d), result.at(d * ld).at(here)
                f.call(update, count, a, one, vt, values - 1 - d, s, across, to, ld, factor)

    lse = words.get("lse")[0].at(head * queries + first)
    with f.loop(0, rows) as i:
        total = sums.load(i)
        nothing = total.equals(0.0)
        lse.store(f.select(nothing, -math.inf, top.load(i) + log(total)), i)
        sums.store(f.select(nothing, 0.0, 1.0 / total), i)
    f.call(tiles.unpack(t), result, ld, rows, values, sums, out.at(first * ot), ot)
    return f
