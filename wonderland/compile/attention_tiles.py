"""What attention is written with: an element type comes in, functions of LLVM IR over tiles go out.

Logits and probabilities are kept transposed, a row for each key: the vectors go along the queries, so that maxima, sums
and exponentials of all queries of a vector are found at once, without a sum across lanes. Keys and values are read
where they lie, number by number, as the broadcast factors of register tiles; what is read by vectors (queries,
cotangents, probabilities) is packed, and padded to whole tiles. So any width will do, and any stride but along it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any

from wonderland.compile import ir
from wonderland.compile.gemm_tile import Elements, Fields, Tile, begin, fma, round_up, tile
from wonderland.compile.ir import DOUBLE, INT, Function, Value
from wonderland.compile.vecmath.exp import exp_below

QUERY_TILES = 4  # of a block of queries
FAR = 1 << 30  # further than any two places are apart


def attention_tile(dtype: str) -> Tile:
    """Two vectors of queries, and as many keys as there are registers for."""
    t = tile(dtype)
    return replace(t, rows=t.rows * t.vectors // 2, vectors=2)


def queries_of(t: Tile) -> int:
    """In a block."""
    return QUERY_TILES * t.columns


def lowest(t: Tile) -> float:
    """The largest negative number: where nothing was seen yet, so that -inf less it is no NaN."""
    return -3.4028234663852886e38 if t.dtype == "f32" else -1.7976931348623157e308


def room_for(sizes: list[int]) -> int:
    """Elements of scratch that parts of these sizes take."""
    return sum(round_up(size, 64) for size in sizes)


def places(scratch: Elements, sizes: list[Any]) -> list[Elements]:
    """Parts of the scratch of these sizes, one after the other, each in cache lines of its own."""
    found, start = [], 0
    for size in sizes:
        found.append(scratch.at(start))
        start = round_up(size, 64) + start
    return found


def rows_of(words: Fields, name: str, letter: str, n: Any, head: Any) -> tuple[Elements, Any]:
    """The rows of a head of an array, and the stride from one to the next."""
    pointer, by_batch, by_head, step = words.get(f"{name} {letter}n {letter}h {letter}t")
    return pointer.at(n * by_batch + head * by_head), step


def product(t: Tile, update: bool) -> Function:
    """A tile of sum_p a[r*ra + p*ca] b[p*ldb + column], stored in c, or added to c times a factor for each column.

    Rows beyond `last` repeat it.
    """
    words = "k a* ra ca last b* ldb c* ldc" + (" factor*" if update else "")
    f, (k, a, ra, ca, last, b, ldb, c, ldc, *factor) = begin(t, f"tile_{'update' if update else 'store'}", words)
    sums = {(r, v): f.variable(0, t.vector) for r in range(t.rows) for v in t.starts}
    rows = [a.at(f.min(last, r) * ra) for r in range(t.rows)]
    a_at, b_at = f.variable(0), f.variable(0)
    with f.loop(0, k):
        source = b.at(b_at.get())
        factors = {v: source.vector(v) for v in t.starts}
        for r in range(t.rows):
            value = f.splat(rows[r].load(a_at.get()), t.lanes)
            for v, other in factors.items():
                sums[r, v].set(fma(value, other, sums[r, v].get()))
        a_at.add(ca)
        b_at.add(ldb)
    for (r, v), cell in sums.items():
        place = c.at(r * ldc)
        place.store(fma(place.vector(v), factor[0].vector(v), cell.get()) if update else cell.get(), v)
    return f


def hide(t: Tile) -> Function:
    """-inf for the pairs of a column of tiles outside of the band; row r is `place` + r keys after the first query."""
    f, (s, ld, rows, place, low, high) = begin(t, "hide", "s* ld rows place low high")
    nothing = ir.constant(-math.inf, t.vector, f)
    number = {v: f.lanes(range(v, v + t.lanes), INT) for v in t.starts}
    clamped = lambda x: f.max(f.min(x, FAR), -FAR).convert(INT)
    with f.loop(f.max(high + 1 - place, 0), rows) as r:  # from here on, the first queries don't see the key
        first = f.splat(clamped(place + r - high), t.lanes)
        for v in t.starts:
            at = s.at(r * ld)
            at.store(f.select(number[v] >= first, at.vector(v), nothing), v)
    with f.loop(0, f.min(low - place + (t.columns - 1), rows)) as r:  # up to here, the last ones don't
        last = f.splat(clamped(place + r - low), t.lanes)
        for v in t.starts:
            at = s.at(r * ld)
            at.store(f.select(number[v] <= last, at.vector(v), nothing), v)
    return f


def add_bias(t: Tile) -> Function:
    """bias[query*bi + key*bj] more, for a column of tiles of which `seen` queries are there."""
    f, (s, ld, rows, seen, bias, bi, bj) = begin(t, "add_bias", "s* ld rows seen bias* bi bj")
    with f.loop(0, rows) as r, f.loop(0, seen) as i:
        place = s.at(r * ld)
        place.store(place.load(i) + bias.load(i * bi + r * bj), i)
    return f


def apply_mask(t: Tile) -> Function:
    """-inf where mask[query*mi + key*mj] is false."""
    f, (s, ld, rows, seen, mask, mi, mj) = begin(t, "apply_mask", "s* ld rows seen mask& mi mj")
    with f.loop(0, rows) as r, f.loop(0, seen) as i:
        place = s.at(r * ld)
        there = f.load(ir.BYTE, f.element(ir.BYTE, mask, i * mi + r * mj)).differs(0)
        place.store(f.select(there, place.load(i), -math.inf), i)
    return f


def pack(t: Tile) -> Function:
    """out[w*ld + i] = x[i*stride + w] scale, zero for the places from `rows` to `padded`."""
    f, (x, stride, rows, width, scale, out, ld, padded) = begin(t, "pack", "x* stride rows width scale out* ld padded")
    factor = scalar_of(t, scale)
    factors, whole_rows, whole = f.splat(factor, t.lanes), rows & -t.lanes, width & -t.lanes
    with f.loop(0, whole_rows, t.lanes) as i, f.loop(0, whole, t.lanes) as w:
        block = [x.at((i + lane) * stride).vector(w) * factors for lane in range(t.lanes)]
        for lane, column in enumerate(t.transpose(block)):
            out.at((w + lane) * ld).store(column, i)
    with f.loop(0, rows) as i, f.loop(f.select(i < whole_rows, whole, 0), width) as w:
        out.at(w * ld).store(x.at(i * stride).load(w) * factor, i)
    with f.loop(0, width) as w, f.loop(rows, padded) as i:
        out.at(w * ld).store(0.0, i)
    return f


def unpack(t: Tile) -> Function:
    """out[i*stride + w] = x[w*ld + i] factor[i]."""
    f, (x, ld, rows, width, factor, out, stride) = begin(t, "unpack", "x* ld rows width factor* out* stride")
    whole_rows, whole = rows & -t.lanes, width & -t.lanes
    with f.loop(0, whole_rows, t.lanes) as i, f.loop(0, whole, t.lanes) as w:
        by = factor.vector(i)
        block = [x.at((w + lane) * ld).vector(i) * by for lane in range(t.lanes)]
        for lane, row in enumerate(t.transpose(block)):
            out.at((i + lane) * stride).store(row, w)
    with f.loop(0, rows) as i, f.loop(f.select(i < whole_rows, whole, 0), width) as w:
        out.at(i * stride).store(x.at(w * ld).load(i) * factor.load(i), w)
    return f


def copy(t: Tile) -> Function:
    """out[i*ld + w] = x[i*stride + w] scale, zero beyond the rows and the width up to what is padded."""
    words = "x* stride rows width scale out* ld padded padded_width"
    f, (x, stride, rows, width, scale, out, ld, padded, padded_width) = begin(t, "copy", words)
    factor, whole = scalar_of(t, scale), width & -t.lanes
    factors = f.splat(factor, t.lanes)
    with f.loop(0, rows) as i:
        source, to = x.at(i * stride), out.at(i * ld)
        with f.loop(0, whole, t.lanes) as w:
            to.store(source.vector(w) * factors, w)
        with f.loop(whole, width) as w:
            to.store(source.load(w) * factor, w)
        with f.loop(width, padded_width) as w:
            to.store(0.0, w)
    with f.loop(rows, padded) as i, f.loop(0, padded_width) as w:
        out.at(i * ld).store(0.0, w)
    return f


def fill(t: Tile) -> Function:
    """`count` numbers, a multiple of the lanes."""
    f, (out, count, value) = begin(t, "fill", "out* count value")
    values = f.splat(scalar_of(t, value), t.lanes)
    with f.loop(0, count, t.lanes) as i:
        out.store(values, i)
    return f


def scalar_of(t: Tile, bits: Value) -> Value:
    """A number of the element type from the bits of a double."""
    return bits.bitcast(DOUBLE).convert(t.scalar)


def soften(t: Tile) -> Function:
    """Logits of a column of tiles become exp(s - maximum so far), whose sums go on; `factor` is for what was before."""
    f, (s, rows, top, sums, factor) = begin(t, "soften", "s* rows top* sums* factor*")
    tops = {v: f.variable(top.vector(v)) for v in t.starts}
    with f.loop(0, rows) as r:
        for v, cell in tops.items():
            x, old = s.at(r * t.columns).vector(v), cell.get()
            cell.set(f.select(x > old, x, old))
    added = {v: f.variable(0, t.vector) for v in t.starts}
    highest = {v: cell.get() for v, cell in tops.items()}
    with f.loop(0, rows) as r:
        for v, cell in added.items():
            place = s.at(r * t.columns)
            p = exp_below(place.vector(v) - highest[v])
            place.store(p, v)
            cell.set(cell.get() + p)
    for v, cell in added.items():
        by = exp_below(top.vector(v) - highest[v])
        factor.store(by, v)
        sums.store(fma(sums.vector(v), by, cell.get()), v)
        top.store(highest[v], v)
    return f


def weigh(t: Tile) -> Function:
    """p = exp(s - lse) in the place of s, and p (e + row) in that of e, for a column of tiles."""
    f, (s, e, ld, rows, lse, row) = begin(t, "weigh", "s* e* ld rows lse* row*")
    shift, plus = {v: lse.vector(v) for v in t.starts}, {v: row.vector(v) for v in t.starts}
    with f.loop(0, rows) as r:
        for v in t.starts:
            place, other = s.at(r * ld), e.at(r * ld)
            p = exp_below(place.vector(v) - shift[v])
            place.store(p, v)
            other.store(p * (other.vector(v) + plus[v]), v)
    return f


def read_rows(t: Tile) -> Function:
    """lse and row of a block of queries; where nothing is seen, and beyond the last, the exponentials shall be 0."""
    f, (lse, row, rows, padded, shift, plus) = begin(t, "read_rows", "lse* row* rows padded shift* plus*")
    with f.loop(0, rows) as i:
        x = lse.load(i)
        shift.store(f.select(x.equals(-math.inf), math.inf, x), i)
        plus.store(row.load(i), i)
    with f.loop(rows, padded) as i:
        shift.store(math.inf, i)
        plus.store(0.0, i)
    return f


def keep(t: Tile) -> Function:
    """out[query*stride + key] = w[key*ld + query]."""
    f, (w, ld, rows, seen, out, stride) = begin(t, "keep", "w* ld rows seen out* stride")
    with f.loop(0, seen) as i, f.loop(0, rows) as r:
        out.at(i * stride).store(w.at(r * ld).load(i), r)
    return f


def add_diagonals(t: Tile) -> Function:
    """out[key + (seen - 1 - query)] += w[key*ld + query]."""
    f, (w, ld, rows, seen, out) = begin(t, "add_diagonals", "w* ld rows seen out*")
    whole, order = seen & -t.lanes, range(t.lanes - 1, -1, -1)
    with f.loop(0, rows) as r:
        row, to = w.at(r * ld), out.at(r)
        with f.loop(0, whole, t.lanes) as i:
            place, found = to.at(seen - t.lanes - i), row.vector(i)
            place.store(place.vector() + f.shuffle(found, found, order))
        with f.loop(whole, seen) as i:
            place = to.at(seen - 1 - i)
            place.store(place.load() + row.load(i))
    return f


class Visible:
    """What of a column of tiles is seen: logits outside of the band or the mask become -inf; the bias is added."""

    def __init__(self, f: Function, t: Tile, words: Fields, n: Any, h: Any):
        """In a head of an entry of the batch."""
        self._f, self._t, self._get = f, t, words.get
        self._place = n, h
        self._hide, self._add_bias, self._apply_mask = hide(t), add_bias(t), apply_mask(t)

    def apply(self, s: Elements, ld: Any, rows: Any, key: Any, query: Any) -> None:
        """For so many keys from `key` on, and the queries of a column of tiles from `query` on."""
        f, (n, h), (low, high, queries) = self._f, self._place, self._get("low high queries")
        bias, *of_bias = self._get("bias bn bh bt bj")
        mask, *of_mask = self._get("mask mn mh mt mj")
        seen = f.min(queries - query, self._t.columns)
        first = lambda strides: sum((x * y for x, y in zip((h, query, key), strides[1:], strict=True)), n * strides[0])
        with f.when(bias.differs(None)):
            f.call(self._add_bias, s, ld, rows, seen, bias.at(first(of_bias)), *of_bias[2:])
        with f.when(mask.differs(None)):
            place = f.element(ir.BYTE, mask, first(of_mask), inbounds=False)
            f.call(self._apply_mask, s, ld, rows, seen, place, *of_mask[2:])
        f.call(self._hide, s, ld, rows, key - query, low, high)


def double_bits(x: float) -> int:
    """The bits of a double as an integer."""
    return struct.unpack("<q", struct.pack("<d", x))[0]
