"""Small matrix products: sizes and strides come in, a function of LLVM IR made for them goes out.

    void name(ptr x, ptr y, ptr out, i64 m, i64 k)     out[i*n + j] = sum_p x[i*xm + p*xk] * y[p*yk + j*yn]

Sizes and strides are constants, so little is decided at run time: register tiles run over the operands where they lie.
Only a `y` whose columns aren't next to each other is first copied, to the stack. There are no edge tiles: the last tile
of a row or column of tiles overlaps the one before, and writes the same numbers again. A large m or k isn't part of the
code: it is often the size of a batch, and another one gives the same function.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakValueDictionary

from wonderland.compile import llvm
from wonderland.compile.gemm_tile import Elements, Tile, begin, fma, tile, tiles
from wonderland.compile.ir import Function, Number

MOST_WORK = 1 << 20  # multiply-adds
MOST_BYTES = 1 << 15  # of y, which stays in L1
LARGE = 32  # m and k above it aren't part of the code

Sizes = tuple[int, int, int]
Strides = tuple[int, ...]  # two

_known: WeakValueDictionary[tuple, Function] = WeakValueDictionary()  # as long as a module has them


def fits(sizes: Sizes, size: int) -> bool:
    """Is a product of these sizes (m, n, k) and bytes per element better off without packing and blocking?"""
    m, n, k = sizes
    return m * n * k <= MOST_WORK and n * k * size <= MOST_BYTES and m > 1 and n > 1


def definition(dtype: str, sizes: Sizes, x_strides: Strides, y_strides: Strides) -> Function:
    """The function of a product; `x_strides` are (xm, xk), `y_strides` (yn, yk)."""
    m, n, k = sizes
    m, k = m if m <= LARGE else None, k if k <= LARGE or y_strides[0] != 1 else None
    key = (tile(dtype), m, n, k, x_strides, y_strides)
    with llvm.lock:
        return _known.get(key) or _known.setdefault(key, _product(*key))


def _product(t: Tile, m: int | None, n: int, k: int | None, x_strides: Strides, y_strides: Strides) -> Function:
    """Sizes that are None are parameters."""
    numbers = ("m" if m is None else m, n, "k" if k is None else k, *x_strides, *y_strides)
    t = replace(t, lanes=min(t.lanes, 1 << (n.bit_length() - 1)))
    t = _tile(t, *(1 << 20 if size is None else size for size in (m, n, k)))
    name = f"wl_small_{t.dtype}_" + "_".join(str(v).replace("-", "r") for v in numbers)
    f, (x, y, out, rows, depth) = begin(t, name, "x* y* out* m k")
    yk = y_strides[1]
    if y_strides[0] != 1 and k is not None:
        y, yk = _packed(f, t, y, n, k, y_strides), n
    # Vectors in a row of a tile: side by side, unless the matrix is narrower than they are together.
    columns = [min(start, n - t.lanes) for start in t.starts]
    with tiles(f, n, columns[-1] + t.lanes) as j, tiles(f, rows if m is None else m, t.rows) as i:
        place = out.at(i * n).at(j)
        _run_tile(f, depth if k is None else k, x.at(i * x_strides[0]), x_strides, y.at(j), yk, place, n, columns)
    return f


def _tile(t: Tile, m: int, n: int, k: int) -> Tile:
    """The register tile with the least work: few wasted rows and columns, enough sums to hide their latency."""
    budget, across = t.rows * t.vectors, -(-n // t.lanes)

    def cost(rows: int, vectors: int) -> float:
        tiles = -(-m // rows) * -(-across // vectors)
        return tiles * (k * max(rows * vectors, rows + vectors, 8) / 2 + rows * vectors + 10)

    shapes = [(r, v) for v in range(1, min(across, 4) + 1) for r in range(1, min(m, budget // v) + 1)]
    rows, vectors = min(shapes, key=lambda shape: cost(*shape))
    return replace(t, rows=rows, vectors=vectors)


def _run_tile(
    f: Function, k: Number, x: Elements, x_strides: Strides, y: Elements, yk: int, out: Elements, ldc: int,
    columns: list[int],
) -> None:  # fmt: skip
    t = out.tile
    sums = {(r, c): f.variable(0, t.vector) for r in range(t.rows) for c in columns}
    with f.loop(0, k) as p:  # unrolling it gains nothing
        x_at, y_at = x.at(p * x_strides[1]), y.at(p * yk)
        values = {c: y_at.vector(c) for c in columns}
        for r in range(t.rows):
            factor = f.splat(x_at.load(r * x_strides[0]), t.lanes)
            for c, value in values.items():
                sums[r, c].set(fma(factor, value, sums[r, c].get()))
    for (r, c), cell in sums.items():
        out.store(cell.get(), r * ldc + c)


def _packed(f: Function, t: Tile, y: Elements, n: int, k: int, strides: Strides) -> Elements:
    """A copy of y in rows of n: by square blocks where it is contiguous along k."""
    yn, yk = strides
    to = t.stack(f, n * k)
    if yk == 1 and k >= t.lanes:
        with tiles(f, n, t.lanes) as j, tiles(f, k, t.lanes) as p:
            source, place = y.at(j * yn).at(p), to.at(p * n).at(j)
            for lane, row in enumerate(t.transpose([source.vector(lane * yn) for lane in range(t.lanes)])):
                place.store(row, lane * n)
    else:
        with f.loop(0, n) as j, f.loop(0, k) as p:
            to.store(y.load(j * yn + p * yk), p * n + j)
    return to
