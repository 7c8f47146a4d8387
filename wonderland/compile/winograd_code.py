"""Convolutions of 3 x 3 with 16 multiplications for 4 results instead of 36: the native functions.

    void wl_winograd_weights_f32(ptr words)     U = G w G^T, of weights as they lie
    void wl_winograd_f32(ptr words)             the convolution, of images with their channels side by side, and of U
    void wl_winograd_gradient_f32(ptr words)    the weights' cotangent, of images and of the result's cotangent

Images are cut into tiles of 4 x 4 that overlap by 2, and each makes 2 x 2 results (Winograd 1980; Lavin and Gray 2016):

    Y = A^T [U * (B^T d B)] A,      summed over the channels in the brackets, which is a product of matrices
                                    (tiles, channels) by (channels, columns) for each of the 16 places of a tile

The cotangent of the weights is G^T [sum over tiles of V^T (A ct A^T)] G, with as many multiplications fewer; tasks have
sums of their own, which become one in the end.

A task takes so many tiles that their transforms, on its stack, stay in the cache: from x to the transforms V, 16
products M = V U by the kernel of matrix products, from M to the results. A result sees the 9 pixels of its window and
no other. Which task does what depends on sizes alone: results are the same to the bit for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product

from wonderland.compile import ir
from wonderland.compile.gemm_kernel import kernel
from wonderland.compile.gemm_tile import Fields, Tile, begin, run, tile
from wonderland.compile.ir import POINTER, RARE, VOID, Function, Value

PLACES = 16  # of a tile
ROOM = 3 << 14  # numbers of a task's transforms, V and M
# Strides of the images and of the weights are in elements; the last tile of a row or column may be half outside.
WORDS = {
    "winograd": "x* u* out* image row column height width channels columns tiles down across block chunks shared",
    "winograd_gradient": """
        x* given* parts* out* image row column height width channels columns tiles down across block
        given_image given_row given_column share chunks shared
    """,
    "winograd_weights": "w* u* by_column by_row by_tap by_channel channels columns chunks shared",
}


@cache
def external(name: str, dtype: str) -> ir.External:
    """One of the functions, for those who call it from other modules."""
    return ir.Resident(partial(definition, name, dtype)).external(f"wl_{name}_{dtype}", VOID, (POINTER,))


def definition(name: str, dtype: str) -> ir.Module:
    """One of the functions, and what it calls."""
    t = tile(dtype)
    tasks = {
        "winograd": [(_tiles_task, "chunks")], "winograd_weights": [(_weights_task, "chunks")],
        "winograd_gradient": [(_sums_task, "chunks"), (_cotangent_task, "channels")],
    }  # fmt: skip
    f, (context,) = begin(t, f"wl_{name}_{dtype}", "words&", RARE, exported=True)
    for task, many in tasks[name]:
        chunks, shared = Fields(f, t, WORDS[name], context).get(f"{many} shared")
        f.call(run(), f.at(task(t)), context, chunks, shared.differs(0))
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


def _of_cotangents(y: list[Value]) -> list[Value]:
    """A y."""
    return [y[0], y[0] + y[1], y[0] - y[1], -y[1]]


def _of_sums(t: Tile, u: list[Value]) -> list[Value]:
    """G^T u."""
    half = ir.constant(0.5, t.vector)
    even, odd = (u[1] + u[2]) * half, (u[1] - u[2]) * half
    return [u[0] + even, odd, even + u[3]]


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
    taps = t.stack(f, 9 * t.lanes)  # vectors of columns, which lie anyhow
    with f.loop(0, channels) as c, f.loop(0, t.columns, t.lanes) as v:
        first = w.at((chunk * t.columns + v) * by_column + c * by_channel)
        with f.loop(0, t.lanes) as lane:
            for i, j in product(range(3), range(3)):
                number = first.at(lane * by_column).load(i * by_row + j * by_tap)
                taps.at((3 * i + j) * t.lanes).store(number, lane)
        square = [[taps.vector((3 * i + j) * t.lanes) for j in range(3)] for i in range(3)]
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
    f.call(_transformed(t, "winograd"), context, first, count, v)
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


def _place(f: Function, words: Fields, number: Value) -> tuple[Value, Value, Value]:
    """The image of a tile, and its first row and column there."""
    down, across = words.get("down across")
    image, inside = number // (down * across), number % (down * across)
    return image, inside // across * 2, inside % across * 2


def _transformed(t: Tile, name: str) -> Function:
    """V[place, tile, channel]. What is beyond the last pixel is anything: only results that don't exist see it."""
    f, (context, first, count, v) = begin(t, "transformed", "context& first count v*")
    words = Fields(f, t, WORDS[name], context)
    names = "x image row column height width channels block"
    x, by_image, by_row, by_column, height, width, channels, block = words.get(names)
    with f.loop(0, count) as number:
        image, top, left = _place(f, words, first + number)
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
    words = Fields(f, t, WORDS["winograd"], context)
    out, height, width, columns, block = words.get("out height width columns block")
    with f.loop(0, count) as number:
        image, top, left = _place(f, words, first + number)
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


def _sums_task(t: Tile) -> Function:
    """The sums of a share of the tiles, (place, channel, column)."""
    f, (context, chunk) = begin(t, "sums_task", "context& chunk", RARE)
    channels, columns, tiles, block, share, parts = Fields(f, t, WORDS["winograd_gradient"], context).get(
        "channels columns tiles block share parts"
    )
    own, v = parts.at(chunk * (PLACES * channels * columns)), t.stack(f, ROOM)
    z = v.at(PLACES * block * channels)
    begun = chunk * share
    with f.loop(begun, f.min(begun + share, tiles), block) as first:
        count = f.min(f.min(tiles, begun + share) - first, block)
        f.call(_transformed(t, "winograd_gradient"), context, first, count, v)
        f.call(_spread(t), context, first, count, z)
        more = (first > begun).convert(ir.LONG, signed=False)
        with f.loop(0, PLACES) as place, f.loop(0, columns, t.columns) as j, f.loop(0, channels, t.rows) as c:
            f.call(
                kernel(t, "direct"), count, v.at(place * block * channels + c), z.at(place * block * columns + j),
                columns, own.at((place * channels + c) * columns + j), columns, f.min(channels - c, t.rows),
                f.constant(t.columns), more, f.constant(1), channels,
            )  # fmt: skip
    return f


def _spread(t: Tile) -> Function:
    """A ct A^T, (place, tile, column), of the 2 x 2 cotangents of each tile: 0 where there is no result."""
    f, (context, first, count, z) = begin(t, "spread", "context& first count z*")
    words = Fields(f, t, WORDS["winograd_gradient"], context)
    names = "given given_image given_row given_column height width columns block"
    given, by_image, by_row, by_column, height, width, columns, block = words.get(names)
    none = ir.constant(0, t.vector)
    with f.loop(0, count) as number:
        image, top, left = _place(f, words, first + number)
        is_row, is_column = top + 1 < height, left + 1 < width
        lower, right = f.min(top + 1, height - 1), f.min(left + 1, width - 1)
        place = lambda row, column: given.at(image * by_image + row * by_row + column * by_column)
        pixels = [[place(i, j) for j in (left, right)] for i in (top, lower)]
        with f.loop(0, columns, t.lanes) as k:
            square = [[pixel.vector(k) for pixel in row] for row in pixels]
            square[0][1] = f.select(is_column, square[0][1], none)
            square[1] = [f.select(is_row, value, none) for value in square[1]]
            square[1][1] = f.select(is_column, square[1][1], none)
            for i, row in enumerate(_both(_of_cotangents, square)):
                for j, value in enumerate(row):
                    z.at((block * (4 * i + j) + number) * columns).store(value, k)
    return f


def _cotangent_task(t: Tile) -> Function:
    """The cotangent of the weights of a channel, (row, tap, channel, column): the tasks' sums, in order."""
    f, (context, c) = begin(t, "cotangent_task", "context& chunk")
    channels, columns, chunks, parts, out = Fields(f, t, WORDS["winograd_gradient"], context).get(
        "channels columns chunks parts out"
    )
    size = PLACES * channels * columns
    with f.loop(0, columns, t.lanes) as k:
        at = parts.at(c * columns + k)
        sums = [f.variable(at.vector(place * channels * columns)) for place in range(PLACES)]
        with f.loop(1, chunks) as part:
            for place, total in enumerate(sums):
                total.set(total.get() + at.vector(part * size + place * channels * columns))
        square = [[sums[4 * i + j].get() for j in range(4)] for i in range(4)]
        for i, row in enumerate(_both(partial(_of_sums, t), square)):
            for j, value in enumerate(row):
                out.at(((3 * i + j) * channels + c) * columns).store(value, k)
    return f
