"""The transpose of attention's derivative, tile by tile.

A task has a segment of the keys of a group, and goes through all queries that see some of them. For a block of queries
and one of keys it finds p = exp(s - lse) and w = p (ct v^T + row), and adds p^T ct to the cotangents of the values, w^T q
to those of the keys, which it keeps for the segment, and w k to those of the queries, of which each segment has its own
part: these are summed up afterwards, in order. So no two tasks write to the same memory.
"""

from __future__ import annotations

import math
from typing import Any

from wonderland.compile import attention_tiles as tiles
from wonderland.compile.attention_tiles import queries_of
from wonderland.compile.gemm_tile import Elements, Fields, Tile, begin, ceil_div, round_up
from wonderland.compile.ir import Function

BLOCK_TILES = 16  # of keys

# `dq` has a part for each segment; `dw` is null, or has w itself.
WORDS = """
    q* k* v* bias* mask& lse* ct* row* dq* dk* dv* dw* scratch*
    heads group queries keys width values low high scale
    qn qh qt kn kh kt vn vh vt bn bh bt bj mn mh mt mj cn ch ct_t dqn dqh dqt dkn dkh dkt dvn dvh dvt
    segments segment part total grain pieces room
"""


def room(t: Tile, width: Any, values: Any, keys: Any) -> list[Any]:
    """Elements of scratch: queries and cotangents packed, and as rows; p and w; cotangents of the queries, and of the
    keys and values of the segment; for each query lse, row, and a factor; and a factor 1 for each column."""
    each, rows = queries_of(t), BLOCK_TILES * t.rows
    ld, wide, deep = each + t.columns, round_up(width, t.columns), round_up(values, t.columns)
    kept = round_up(keys, t.rows)
    rest = [round_up(width, t.rows) * ld, kept * wide, kept * deep, each, each, each, t.columns]
    return [width * ld, values * ld, each * wide, each * deep, rows * ld, rows * ld, *rest]


def segment(t: Tile) -> Function:
    """A segment of the keys of one group."""
    f, (context, number, scratch) = begin(t, "segment", "context& number scratch*")
    words = Fields(f, t, WORDS, context)
    f.ret()
    return f
