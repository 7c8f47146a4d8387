"""Small matrix products: sizes and strides come in, the text of an LLVM function made for them goes out.

    void name(ptr x, ptr y, ptr out, i64 m, i64 k)     out[i*n + j] = sum_p x[i*xm + p*xk] * y[p*yk + j*yn]

Sizes and strides are constants, so little is decided at run time: register tiles run over the operands where they lie.
Only a `y` whose columns aren't next to each other is first copied, to the stack. There are no edge tiles: the last tile
of a row or column of tiles overlaps the one before, and writes the same numbers again. A large m or k isn't part of the
code: it is often the size of a batch, and another one gives the same text.
"""

from __future__ import annotations

from dataclasses import replace

from wonderland.compile.gemm_emit import Function, Tile, Value, tile

MOST_WORK = 1 << 20  # multiply-adds
MOST_BYTES = 1 << 15  # of y, which stays in L1
LARGE = 32  # m and k above it aren't part of the code

Sizes = tuple[int, int, int]
Strides = tuple[int, int]


def fits(sizes: Sizes, size: int) -> bool:
    """Is a product of these sizes (m, n, k) and bytes per element better off without packing and blocking?"""
    m, n, k = sizes
    return m * n * k <= MOST_WORK and n * k * size <= MOST_BYTES and m > 1 and n > 1


def name(dtype: str, sizes: Sizes, x_strides: Strides, y_strides: Strides) -> str:
    """The name of the function of a product; `x_strides` are (xm, xk), `y_strides` (yn, yk)."""
    m, k = _written(sizes, y_strides)
    numbers = (m, sizes[1], k, *x_strides, *y_strides)
    return f"wl_small_{dtype}_" + "_".join(str(v).replace("-", "r").strip("%") for v in numbers)


def _written(sizes: Sizes, y_strides: Strides) -> tuple[Value, Value]:
    """m and k as the code has them: numbers or parameters."""
    m, _, k = sizes
    return m if m <= LARGE else "%m", k if k <= LARGE or y_strides[0] != 1 else "%k"


def definition(dtype: str, sizes: Sizes, x_strides: Strides, y_strides: Strides) -> str:
    """The text of the function; the module must go through `with_loop_hints`."""
    n = sizes[1]
    m, k = _written(sizes, y_strides)
    lanes = min(tile(dtype).lanes, 1 << (n.bit_length() - 1))
    t = _tile(replace(tile(dtype), lanes=lanes), *(v if isinstance(v, int) else 1 << 20 for v in (m, n, k)))
    f = Function(t, name(dtype, sizes, x_strides, y_strides), "pppii", "x y out m k")
    y, yk = "%y", y_strides[1]
    if y_strides[0] != 1:
        y, yk = f.space(f"[{n * sizes[2]} x {t.scalar}]", 64), n
        _pack(f, n, sizes[2], y_strides, y)
    # Vectors in a row of a tile: side by side, unless the matrix is narrower than they are together.
    columns = [min(v * lanes, n - lanes) for v in range(t.vectors)]
    width = columns[-1] + lanes
    with f.tiles(n, width) as j, f.tiles(m, t.rows) as i:
        x = f.at("%x", f.mul(i, x_strides[0]))
        _run_tile(f, k, x, x_strides, f.at(y, j), yk, f.at(f.at("%out", f.mul(i, n)), j), n, columns)
    return f.text()


def declarations(dtype: str) -> set[str]:
    """What the functions of an element type call."""
    lanes = [1 << i for i in range(tile(dtype).lanes.bit_length())]
    vectors = [(f"<{n} x {tile(dtype).scalar}>", f"v{n}{dtype}") for n in lanes]
    return {f"declare {v} @llvm.fmuladd.{suffix}({v}, {v}, {v})" for v, suffix in vectors}


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
    f: Function, k: Value, x: str, x_strides: Strides, y: str, yk: int, out: str, ldc: int, columns: list[int]
) -> None:
    t = f.tile
    sums = [[f.variable(t.vector, "zeroinitializer", 64) for _ in columns] for _ in range(t.rows)]
    with f.loop(0, k) as p:  # unrolling it gains nothing
        x_at, y_at = f.at(x, f.mul(p, x_strides[1])), f.at(y, f.mul(p, yk))
        values = [f.load(f.at(y_at, c), t.vector) for c in columns]
        for r, row in enumerate(sums):
            factor = f.broadcast(f.load(f.at(x_at, r * x_strides[0])))
            for cell, value in zip(row, values, strict=True):
                f.store(f.fma(factor, value, f.load(cell, t.vector, 64)), cell, t.vector, 64)
    for r, row in enumerate(sums):
        for cell, c in zip(row, columns, strict=True):
            f.store(f.load(cell, t.vector, 64), f.at(out, r * ldc + c), t.vector)


def _pack(f: Function, n: int, k: int, strides: Strides, to: str) -> None:
    """Copy y to rows of n: by square blocks where it is contiguous along k."""
    t, (yn, yk) = f.tile, strides
    if yk == 1 and k >= t.lanes:
        with f.tiles(n, t.lanes) as j, f.tiles(k, t.lanes) as p:
            source = f.at(f.at("%y", f.mul(j, yn)), p)
            rows = f.transpose([f.load(f.at(source, lane * yn), t.vector) for lane in range(t.lanes)])
            place = f.at(f.at(to, f.mul(p, n)), j)
            for lane, row in enumerate(rows):
                f.store(row, f.at(place, lane * n), t.vector)
        return
    with f.loop(0, n) as j, f.loop(0, k) as p:
        value = f.load(f.at("%y", f.add(f.mul(j, yn), f.mul(p, yk))))
        f.store(value, f.at(to, f.add(f.mul(p, n), j)))
