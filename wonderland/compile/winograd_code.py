"""Convolutions of 3 x 3 with 16 multiplications for 4 results instead of 36: the native functions.

    void wl_winograd_weights_f32(ptr words)     U = G w G^T, of weights as they lie
    void wl_winograd_f32(ptr words)             the convolution, of images with their channels side by side, and of U

Images are cut into tiles of 4 x 4 that overlap by 2, and each makes 2 x 2 results (Winograd 1980; Lavin and Gray 2016):

    Y = A^T [U * (B^T d B)] A,      summed over the channels in the brackets, which is a product of matrices
                                    (tiles, channels) by (channels, columns) for each of the 16 places of a tile

A task takes so many tiles that their transforms, on its stack, stay in the cache: from x to the transforms V, 16
products M = V U by the kernel of matrix products, from M to the results. A result sees the 9 pixels of its window and
no other. Which task does what depends on sizes alone: results are the same to the bit for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from wonderland.compile import ir
from wonderland.compile.gemm_kernel import kernel
from wonderland.compile.gemm_tile import Elements, Fields, Tile, begin, run, tile
from wonderland.compile.ir import POINTER, RARE, VOID, Function, Value

PLACES = 16  # of a tile
ROOM = 3 << 14  # numbers of a task's transforms, V and M
# Strides of the images and of the weights are in elements; the last tile of a row or column may be half outside.
WORDS = {
    "winograd": "x* u* out* image row column height width channels columns tiles down across block chunks shared",
    "winograd_weights": "w* u* by_column by_row by_tap by_channel channels columns chunks shared",
}


@cache
def external(name: str, dtype: str) -> ir.External:
    """One of the functions, for those who call it from other modules."""
    return ir.Resident(partial(definition, name, dtype)).external(f"wl_{name}_{dtype}", VOID, (POINTER,))


def definition(name: str, dtype: str) -> ir.Module:
    """One of the functions, and what it calls."""
    t = tile(dtype)
    task = _tiles_task(t) if name == "winograd" else _weights_task(t)
    f, (context,) = begin(t, f"wl_{name}_{dtype}", "words&", RARE, exported=True)
    chunks, shared = Fields(f, t, WORDS[name], context).get("chunks shared")
    f.call(run(), f.at(task), context, chunks, shared.differs(0))
    return ir.Module(f, as_written=True)


def block_of(t: Tile, channels: int, columns: int) -> int:
    """How many tiles a task takes: whole tiles of the kernel of products; 0 if none fits."""
    return ROOM // (PLACES * (channels + columns)) // t.rows * t.rows


# -- one axis of a tile -------------------------------------------------------------------------------


def _of_pixels(d: list[Value]) -> list[Value]:
    """B^T d."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _of_products(m: list[Value]) -> list[Value]:
    """A^T m."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _of_weights(t: Tile, g: list[Value]) -> list[Value]:
    """G g."""
    half, even = ir.constant(0.5, t.vector), g[0] + g[2]
    return [g[0], (even + g[1]) * half, (even - g[1]) * half, g[2]]


def _both(transform: Callable[[list[Value]], list[Value]], square: list[list[Value]]) -> list[list[Value]]:
    """A transform of one axis, along both of a square [row][column]."""
    rows = [transform(row) for row in square]
    columns = [transform([row[j] for row in rows]) for j in range(len(rows[0]))]
    return [[column[i] for column in columns] for i in range(len(columns[0]))]


# -- tasks --------------------------------------------------------------------------------------------


def _weights_task(t: Tile) -> Function:
    """U of the columns of a panel, as (place, panel, channel, column of the panel)."""
    f, (context, chunk) = begin(t, "weights_task", "context& chunk")
    w, u, by_column, by_row, by_tap, by_channel, channels, columns = Fields(
        f, t, WORDS["winograd_weights"], context
    ).get("w u by_column by_row by_tap by_channel channels columns")
    with f.loop(0, channels) as c, f.loop(0, t.columns, t.lanes) as v:
        first = w.at((chunk * t.columns + v) * by_column + c * by_channel)

        def read(i: int, j: int, first: Elements = first) -> Value:
            value = ir.undefined(t.vector)
            for lane in range(t.lanes):
                value = f.insert(value, first.at(lane * by_column).load(i * by_row + j * by_tap), f.constant(lane))
            return value

        square = [[read(i, j) for j in range(3)] for i in range(3)]
        to = u.at((chunk * channels + c) * t.columns + v)
        for i, row in enumerate(_both(partial(_of_weights, t), square)):
            for j, value in enumerate(row):
                to.at((4 * i + j) * channels * columns).store(value)
    return f


def _tiles_task(t: Tile) -> Function:
    f, (context, chunk) = begin(t, "tiles_task", "context& chunk", RARE)
    channels, columns, tiles, block, u = Fields(f, t, WORDS["winograd"], context).get("channels columns tiles block u")
    first = chunk * block
    count = f.min(tiles - first, block)
    v = t.stack(f, ROOM)
    m = v.at(PLACES * block * channels)
    f.call(_transformed(t), context, first, count, v)
    with f.loop(0, PLACES) as place, f.loop(0, columns, t.columns) as j:
        panel = u.at((place * columns + j) * channels)
        with f.loop(0, count, t.rows) as i:
            at = place * block + i
            sizes = f.min(count - i, t.rows), f.constant(t.columns), f.constant(0)
            f.call(
                kernel(t, "direct"), channels, v.at(at * channels), panel, f.constant(t.columns),
                m.at(at * columns + j), columns, *sizes, channels, f.constant(1),
            )  # fmt: skip
    f.call(_results(t), context, first, count, m)
    return f


def _place(f: Function, t: Tile, context: Value, number: Value) -> tuple[Value, Value, Value]:
    """The image of a tile, and its first row and column there."""
    down, across = Fields(f, t, WORDS["winograd"], context).get("down across")
    image, inside = number // (down * across), number % (down * across)
    return image, inside // across * 2, inside % across * 2


def _transformed(t: Tile) -> Function:
    """V[place, tile, channel]. What is beyond the last pixel is anything: only results that don't exist see it."""
    f, (context, first, count, v) = begin(t, "transformed", "context& first count v*")
    x, by_image, by_row, by_column, height, width, channels, block = Fields(f, t, WORDS["winograd"], context).get(
        "x image row column height width channels block"
    )
    with f.loop(0, count) as number:
        image, top, left = _place(f, t, context, first + number)
        rows = [x.at(image * by_image + f.min(top + i, height + 1) * by_row) for i in range(4)]
        places = [f.min(left + j, width + 1) * by_column for j in range(4)]
        pixels = [[row.at(place) for place in places] for row in rows]
        with f.loop(0, channels, t.lanes) as c:
            square = [[pixel.vector(c) for pixel in row] for row in pixels]
            for i, row in enumerate(_both(_of_pixels, square)):
                for j, value in enumerate(row):
                    v.at((block * (4 * i + j) + number) * channels).store(value, c)
    return f


def _results(t: Tile) -> Function:
    """2 x 2 results of each tile. One that is outside is written where one inside of the tile comes after it."""
    f, (context, first, count, m) = begin(t, "results", "context& first count m*")
    out, height, width, columns, block = Fields(f, t, WORDS["winograd"], context).get("out height width columns block")
    with f.loop(0, count) as number:
        image, top, left = _place(f, t, context, first + number)
        lower, right = f.min(top + 1, height - 1), f.min(left + 1, width - 1)
        place = lambda row, column: out.at(((image * height + row) * width + column) * columns)
        order = [(1, 1, place(lower, right)), (1, 0, place(lower, left)), (0, 1, place(top, right))]
        with f.loop(0, columns, t.lanes) as k:
            square = [
                [m.at((block * (4 * i + j) + number) * columns).vector(k) for j in range(4)] for i in range(4)
            ]  # fmt: skip
            made = _both(_of_products, square)
            for i, j, to in (*order, (0, 0, place(top, left))):
                to.store(made[i][j], k)
    return f
