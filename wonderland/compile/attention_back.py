"""The transpose of attention's derivative, tile by tile.

A task has a segment of the keys of a group, and goes through all queries that see some of them. For a block of queries
and one of keys it finds p = exp(s - lse) and w = p (ct v^T + row), and adds p^T ct to the cotangents of the values and
w^T q to those of the keys, which it keeps for the segment, and w k to those of the queries. Of these each segment has
its own part, and they are summed up afterwards, in order: no two tasks write to the same memory.
"""

from __future__ import annotations

from typing import Any

from wonderland.compile import attention_tiles as tiles
from wonderland.compile.attention_tiles import queries_of
from wonderland.compile.gemm_tile import Elements, Fields, Tile, begin, ceil_div, round_up
from wonderland.compile.ir import Function

BLOCK_TILES = 16  # of keys

# `dq` has a part for each segment; `dw` is null, or for w itself; `dd` is null, or for the sums of w along diagonals:
# `reach` numbers for each head, `span` for each segment. Strides are those of the batch, of heads (or groups), and of
# queries or keys; `low` and `high` are the band.
WORDS = """
    next q* k* v* bias* mask& lse* given* row* dq* dk* dv* dw* dd* scratch*
    heads group queries keys width values low high scale
    qn qh qt kn kh kt vn vh vt bn bh bt bj mn mh mt mj gn gh gt xn xh xt yn yh yt zn zh zt
    segments segment part reach span total lanes room
"""


def room(t: Tile, width: Any, values: Any, keys: Any) -> list[Any]:
    """Elements of scratch: queries and cotangents packed, and as rows; p and w; cotangents of the queries, and of the
    keys and values of the segment; for each query lse, row, and the scale; and a 1 for each column."""
    each, rows = queries_of(t), BLOCK_TILES * t.rows
    ld, wide, deep = each + t.columns, round_up(width, t.columns), round_up(values, t.columns)
    kept = round_up(keys, t.rows)
    rest = [round_up(width, t.rows) * ld, kept * wide, kept * deep, each, each, each, t.columns]
    return [width * ld, values * ld, each * wide, each * deep, rows * ld, rows * ld, *rest]


class _Segment:
    """The code of a task."""

    def __init__(self, t: Tile):
        self.f, (context, number, scratch) = begin(t, "segment", "context& number scratch*")
        self.t, f = t, self.f
        self.words: Fields = Fields(f, t, WORDS, context)
        get = self.words.get
        self.queries, self.width, self.values, self.scale = get("queries width values scale")
        self.low, self.high, self.dw, self.dd, self.reach = get("low high dw dd reach")
        self.each, self.ld = queries_of(t), f.integer(queries_of(t) + t.columns)
        self.one, self.zero, self.unscaled = f.constant(1), f.constant(0), f.constant(tiles.double_bits(1.0))
        self.pack, self.copy, self.fill = tiles.pack(t), tiles.copy(t), tiles.fill(t)
        self.product, self.update = tiles.product(t, update=False), tiles.product(t, update=True)
        self.weigh, self.unpack, self.keep = tiles.weigh(t), tiles.unpack(t), tiles.keep(t)
        self.along = tiles.add_diagonals(t)
        self.heads, self.group, self.keys, segments, segment = get("heads group keys segments segment")
        groups = self.heads // self.group
        own, self.which = number // segments, number % segments
        self.n, self.g = own // groups, own % groups
        self.first = self.which * segment  # key
        self.last = f.min(self.keys, self.first + segment)
        self.k, self.kt = tiles.rows_of(self.words, "k", "k", self.n, self.g)
        self.v, self.vt = tiles.rows_of(self.words, "v", "v", self.n, self.g)
        self.wide, self.deep = round_up(self.width, t.columns), round_up(self.values, t.columns)
        parts = tiles.places(scratch, room(t, self.width, self.values, segment))
        self.q_packed, self.ct_packed, self.q_rows, self.ct_rows, self.p, self.w, self.dq, self.dk, self.dv = parts[:9]
        self.lse, self.row, self.scales, self.ones = parts[9:]

    def write(self) -> None:
        """All heads of the group."""
        f, t, g = self.f, self.t, self.g
        kept = self.last - self.first
        padded = round_up(kept, t.rows)
        f.call(self.fill, self.dk, padded * self.wide, self.zero)
        f.call(self.fill, self.dv, padded * self.deep, self.zero)
        f.call(self.fill, self.scales, f.integer(self.each), self.scale)
        f.call(self.fill, self.ones, f.integer(t.columns), self.unscaled)
        with f.loop(g * self.group, (g + 1) * self.group) as h:
            self._head(h, self.which * self.words.get("part")[0])
        for name, letter, found, ld, width in (
            ("dk", "y", self.dk, self.wide, self.width), ("dv", "z", self.dv, self.deep, self.values),
        ):  # fmt: skip
            out, step = tiles.rows_of(self.words, name, letter, self.n, g)
            to = out.at(self.first * step)
            f.call(self.copy, found, ld, kept, width, self.unscaled, to, step, kept, width)

    def _head(self, h: Any, part: Any) -> None:
        """All queries of a head."""
        f, t, ld = self.f, self.t, self.ld
        visible = tiles.Visible(f, t, self.words, self.n, h)
        (q, qt), (ct, gt), (dq, xt) = (
            tiles.rows_of(self.words, name, letter, self.n, h)
            for name, letter in (("q", "q"), ("given", "g"), ("dq", "x"))
        )
        first_row = (self.n * self.heads + h) * self.queries
        lse, row = (x.at(first_row) for x in self.words.get("lse row"))
        dw = self.dw.at(first_row * self.keys)
        dd = self.dd.at(self.which * self.words.get("span")[0]).at((self.n * self.heads + h) * self.reach)
        with f.when(self.dd.differs(None)):
            f.call(self.copy, self.dq, *[self.zero] * 4, dd, self.reach, self.one, self.reach)
        with f.loop(0, self.queries, self.each) as q0:
            rows = f.min(self.queries - q0, self.each)
            start, stop = f.max(self.first, q0 + self.low), f.min(self.last, q0 + rows + self.high)
            out, seen = dq.at(part).at(q0 * xt), start < stop
            with f.when(self.dw.differs(None)):
                to = dw.at(q0 * self.keys + self.first)
                f.call(self.copy, self.dq, *[self.zero] * 4, to, self.keys, rows, self.last - self.first)
            with f.unless(seen):
                f.call(self.copy, self.dq, *[self.zero] * 4, out, xt, rows, self.width)
            with f.when(seen):
                columns = ceil_div(rows, t.columns)
                padded = columns * t.columns
                for x, step, width, scale, packed, copied, padded_width in (
                    (q, qt, self.width, self.scale, self.q_packed, self.q_rows, self.wide),
                    (ct, gt, self.values, self.unscaled, self.ct_packed, self.ct_rows, self.deep),
                ):
                    args = (x.at(q0 * step), step, rows, width, scale)
                    f.call(self.pack, *args, packed, ld, padded)
                    f.call(self.copy, *args, copied, padded_width, padded, padded_width)
                f.call(tiles.read_rows(t), lse.at(q0), row.at(q0), rows, padded, self.lse, self.row)
                f.call(self.fill, self.dq, round_up(self.width, t.rows) * ld, self.zero)
                size = BLOCK_TILES * t.rows
                aligned = self.first + (start - self.first) // size * size
                with f.loop(aligned, stop, size) as j0:
                    self._block(q0, j0, columns, visible, dw, dd)
                f.call(self.unpack, self.dq, ld, rows, self.width, self.scales, out, xt)

    def _block(self, q0: Any, j0: Any, columns: Any, visible: tiles.Visible, dw: Elements, dd: Elements) -> None:
        """A block of queries and one of keys: p and w by columns of tiles, then what they add to, by rows of tiles."""
        f, t, ld, one = self.f, self.t, self.ld, self.one
        count = f.min(self.last - j0, BLOCK_TILES * t.rows)
        k, v = self.k.at(j0 * self.kt), self.v.at(j0 * self.vt)
        with f.loop(0, columns) as c:
            here = c * t.columns
            i0 = q0 + here
            top, bottom = f.max(i0 + self.low - j0, 0) // t.rows * t.rows, f.min(i0 + self.high - j0 + t.columns, count)
            with f.when(top < bottom):
                with f.loop(top, bottom, t.rows) as r:
                    place, last = r * ld + here, count - 1 - r
                    a, b = k.at(r * self.kt), self.q_packed.at(here)
                    f.call(self.product, self.width, a, self.kt, one, last, b, ld, self.p.at(place), ld)
                    a, b = v.at(r * self.vt), self.ct_packed.at(here)
                    f.call(self.product, self.values, a, self.vt, one, last, b, ld, self.w.at(place), ld)
                keys = f.min(round_up(bottom - top, t.rows), count - top)
                p, w = self.p.at(top * ld).at(here), self.w.at(top * ld).at(here)
                visible.apply(p, ld, keys, j0 + top, i0)
                f.call(self.weigh, p, w, ld, keys, self.lse.at(here), self.row.at(here))
                with f.loop(0, self.width, t.rows) as d:
                    a, to = k.at(top * self.kt).at(d), self.dq.at(d * ld).at(here)
                    f.call(self.update, keys, a, one, self.kt, self.width - 1 - d, w, ld, to, ld, self.ones)
                with f.when(self.dw.differs(None)):
                    to = dw.at(i0 * self.keys).at(j0 + top)
                    f.call(self.keep, w, ld, keys, f.min(self.queries - i0, t.columns), to, self.keys)
                with f.when(self.dd.differs(None)):
                    seen = f.min(self.queries - i0, t.columns)
                    f.call(self.along, w, ld, keys, seen, dd.at(j0 + top - i0 + self.queries - seen))
        shift, offset = t.columns.bit_length() - 1, j0 - q0
        with f.loop(0, count, t.rows) as r:
            left = f.max(f.shift_right(r + offset - self.high, f.constant(shift), signed=True), 0)
            end = r + offset - self.low + (t.rows + t.columns - 1)
            right = f.min(f.shift_right(end, f.constant(shift), signed=True), columns)
            with f.when(left < right):
                depth, here, kept = (right - left) * t.columns, left * t.columns, j0 - self.first + r
                for a, b, to, wide in (
                    (self.p, self.ct_rows, self.dv, self.deep), (self.w, self.q_rows, self.dk, self.wide),
                ):  # fmt: skip
                    a, b = a.at(r * ld).at(here), b.at(here * wide)
                    with f.loop(0, wide, t.columns) as d:
                        args = (depth, a, ld, one, f.integer(t.rows - 1), b.at(d), wide)
                        f.call(self.update, *args, to.at(kept * wide).at(d), wide, self.ones)


def segment(t: Tile) -> Function:
    """A task: a segment of the keys of one group."""
    code = _Segment(t)
    code.write()
    return code.f
