"""Convolutions of 3 x 3 by fewer multiplications: windows and weights of a product come in, its result goes out.

The products are of float32 numbers, and no longer exact where direct ones are: sums and differences of pixels are
multiplied by those of weights, and errors are those of numbers as large as the largest in the window.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from wonderland.compile import ir, winograd_code
from wonderland.compile.gemm_tile import NAMES, ceil_div, tile, types
from wonderland.compile.memory import Buffer
from wonderland.compile.nodes import STEP, Node, Whole
from wonderland.compile.orders import inverse
from wonderland.compile.steps import Step
from wonderland.core.types import ArrayType

LEAST_CHANNELS = 16
LEAST_WORK = 1 << 22  # multiply-adds of the direct product
MOST_WASTE = 1.5  # of results beyond the edge
NANOSECONDS = 0.012  # of a multiply-add of the direct product
SHARED_WORK = 1 << 20  # multiply-adds that are worth threads
WEIGHT_NANOSECONDS = 0.5  # of a number of the weights' transform
# Of the cotangent of weights: tasks with sums of their own, blocks of tiles that are worth one, bytes for all.
MOST_PARTS, LEAST_BLOCKS, PARTS_BYTES = 8, 2, 1 << 21


class MovingWindows(NamedTuple):
    """Windows of 3 x 3 that move by one on images with their channels side by side."""

    sizes: dict[str, int]
    kernel: tuple[int, int, int]  # which of its axes are rows and columns of a window, and channels
    turned: tuple[bool, bool]  # are windows read from the last row or column to the first?


def _images(x: Node, moving: int, fixed: int, columns: int) -> MovingWindows | None:
    """x as windows: axes from `moving` on are (images,) heights and widths, three from `fixed` on a window's."""
    axes = [*zip(x.shape, x.layout[1], strict=True)]
    moving_axes, kernel = axes[moving : moving + len(axes) - 3], axes[fixed : fixed + 3]
    if x.dtype != np.float32 or len(moving_axes) not in (2, 3):
        return None
    (height, by_row), (width, by_column) = moving_axes[-2:]
    images, by_image = moving_axes[0] if len(moving_axes) == 3 else (1, 0)
    of = lambda step: [i for i, (n, s) in enumerate(kernel) if n == 3 and abs(s) == step > 1]
    rows, taps, channels = of(by_row), of(by_column), [i for i, (_, s) in enumerate(kernel) if s == 1]
    found = (*rows, *taps, *channels)
    if len(found) != 3 or len({*found}) != 3 or not (rows and taps):
        return None
    t, depth, down, across = tile(NAMES[4]), kernel[channels[0]][0], ceil_div(height, 2), ceil_div(width, 2)
    fits = depth % t.lanes == 0 and columns % t.columns == 0 and winograd_code.block_of(t, depth, columns)
    work = images * height * width * columns * depth * 9
    if not fits or min(depth, columns) < LEAST_CHANNELS or work < LEAST_WORK:
        return None
    if 4 * down * across > MOST_WASTE * height * width:
        return None
    sizes = {
        "image": by_image, "row": by_row, "column": by_column, "height": height, "width": width, "channels": depth,
        "columns": columns, "tiles": images * down * across, "down": down, "across": across,
        "block": winograd_code.block_of(t, depth, columns), "shared": int(work >= SHARED_WORK),
    }  # fmt: skip
    turned = kernel[rows[0]][1] < 0, kernel[taps[0]][1] < 0
    return MovingWindows(sizes, (rows[0], taps[0], channels[0]), turned)


def lower(builder: Any, x: Node, y: Node, r: int) -> Node | None:
    """Products of windows x and y, (rows of x, columns of y), where both end with the axes that are summed.

    Either rows are the places of windows, and y are weights; or they are the elements of a window, and y are
    cotangents. None if they aren't windows of 3 x 3, or it doesn't pay.
    """
    if not y.in_memory or len(x.shape) < 5 or len(y.shape) != len(x.shape) - r + 1:
        return None
    forward = _images(x, 0, r, y.shape[0]) if len(x.shape) == r + 3 else None
    if forward is not None:
        return _convolution(builder, x, y, r, forward)
    back = _images(x, r, 0, y.shape[0]) if r == 3 and y.layout[1][0] == 1 else None
    return None if back is None or any(back.turned) else _gradient(builder, x, y, back)


def _convolution(builder: Any, x: Node, y: Node, r: int, images: MovingWindows) -> Node:
    offset, (from_, (by_column, *others)) = x.layout[0], y.layout
    steps = []
    for axis, turned, step in zip(images.kernel, images.turned, ("row", "column"), strict=False):
        by = others[axis]
        if turned:  # as the turned weights from the first to the last
            offset, from_, by = offset - 2 * images.sizes[step], from_ + 2 * by, -by
        steps.append(by)
    strides = {"by_column": by_column, "by_row": steps[0], "by_tap": steps[1], "by_channel": others[images.kernel[2]]}
    u = builder.keep(Weights(y.base, from_, strides, images.sizes))
    made = ArrayType((*x.shape[:r], y.shape[0]), x.dtype)
    return builder.keep(Winograd("winograd", made, {"x": (x.base, offset), "u": (u, 0)}, images.sizes))


def _gradient(builder: Any, x: Node, y: Node, images: MovingWindows) -> Node:
    sizes, (offset, strides) = dict(images.sizes), y.layout
    by_image, by_row, by_column = (0, *strides[1:])[-3:]
    sizes |= {"given_image": by_image, "given_row": by_row, "given_column": by_column}
    made = ArrayType((3, 3, sizes["channels"], sizes["columns"]), x.dtype)
    node = builder.keep(
        Winograd("winograd_gradient", made, {"x": (x.base, x.layout[0]), "given": (y.base, offset)}, sizes)
    )
    return builder.transpose(node, (*inverse(images.kernel), 3))


class Weights(Whole):
    """U = G w G^T, of weights at an offset and with strides; a panel of columns is what a product takes at a time."""

    def __init__(self, w: Node, offset: int, strides: dict[str, int], sizes: dict[str, int]):
        wide = tile(NAMES[4]).columns
        shape = winograd_code.PLACES, sizes["columns"] // wide, sizes["channels"], wide
        super().__init__(ArrayType(shape, w.dtype))
        self.w, self.offset, self.strides, self.sizes = w, offset, strides, sizes

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.w,)

    @property
    def nanoseconds(self) -> float:
        return STEP + WEIGHT_NANOSECONDS * self.type.size

    def plan(self, plan: Any, position: int) -> None:
        numbers = {**self.sizes, **self.strides, "chunks": self.shape[1]}
        places = {"w": (plan.memory[self.w], self.offset * self.dtype.itemsize), "u": (plan.own(self), 0)}
        plan.add(RunWinograd("winograd_weights", str(self), places, ["u"], numbers), self.nanoseconds)

    def __str__(self) -> str:
        return f"transform of weights, {self.sizes['channels']} by {self.sizes['columns']} channels"


class Winograd(Whole):
    """The convolution, or the cotangent of its weights, of nodes at offsets; the result is contiguous."""

    def __init__(self, name: str, type: ArrayType, arrays: dict[str, tuple[Node, int]], sizes: dict[str, int]):
        super().__init__(type)
        self.name, self.arrays, self.sizes = name, arrays, sizes

    @property
    def memory(self) -> tuple[Node, ...]:
        return tuple(node for node, _ in self.arrays.values())

    @property
    def work(self) -> int:
        """Multiply-adds of the direct product."""
        tiles, depth, columns = (self.sizes[name] for name in ("tiles", "channels", "columns"))
        return 36 * tiles * depth * columns

    @property
    def nanoseconds(self) -> float:
        return STEP + NANOSECONDS * self.work

    def plan(self, plan: Any, position: int) -> None:
        size = self.dtype.itemsize
        places = {name: (plan.memory[node], at * size) for name, (node, at) in self.arrays.items()}
        places["out"] = plan.own(self), 0
        numbers, blocks = dict(self.sizes), ceil_div(self.sizes["tiles"], self.sizes["block"])
        numbers["chunks"], made = blocks, ["out"]
        if self.name == "winograd_gradient":
            part = winograd_code.PLACES * numbers["channels"] * numbers["columns"] * size
            parts = max(1, min(MOST_PARTS, blocks // LEAST_BLOCKS, PARTS_BYTES // part))
            numbers["share"] = ceil_div(blocks, parts) * numbers["block"]
            numbers["chunks"] = ceil_div(numbers["tiles"], numbers["share"])
            places["parts"], made = (plan.scratch(numbers["chunks"] * part), 0), ["out", "parts"]
        plan.add(RunWinograd(self.name, str(self), places, made, numbers), NANOSECONDS * self.work)

    def __str__(self) -> str:
        s = self.sizes
        if self.name == "winograd":
            rows = math.prod(self.shape[:-1])
            return f"convolution by transforms {rows}x{9 * s['channels']} by {s['columns']}, {self.dtype.name}"
        return f"convolution's weights by transforms, {s['channels']} by {s['columns']} channels, {self.dtype.name}"


class RunWinograd(Step):
    """A call of one of the functions."""

    is_long = True

    def __init__(
        self, name: str, text: str, places: dict[str, tuple[Buffer, int]], made: list[str], numbers: dict[str, int]
    ):  # fmt: skip
        self.name, self.text, self.places, self.made, self.numbers = name, text, places, made, numbers

    @property
    def touched(self) -> list[Buffer]:
        return [buffer for buffer, _ in self.places.values()]

    @property
    def written(self) -> list[Buffer]:
        return [self.places[name][0] for name in self.made]

    def emit(self, out: Any, f: ir.Function) -> None:
        words = [
            out.pointer(f, *self.places[name]) if type == ir.POINTER else out.entry(f, self.numbers[name])
            for name, type in types(winograd_code.WORDS[self.name])
        ]
        f.call(winograd_code.external(self.name, NAMES[4]), out.record(f, words))

    def __str__(self) -> str:
        return self.text
