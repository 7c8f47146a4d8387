"""Convolutions of 3 x 3 by fewer multiplications: windows and weights of a product come in, its result goes out.

The products are of float32 numbers, and no longer exact where direct ones are: sums and differences of pixels are
multiplied by those of weights, and errors are those of numbers as large as the largest in the window.
"""

from __future__ import annotations

import math
from typing import Any

from wonderland.compile import ir, winograd_code
from wonderland.compile.gemm_tile import NAMES, Tile, ceil_div, tile, types
from wonderland.compile.memory import Buffer
from wonderland.compile.nodes import STEP, Node, Whole
from wonderland.compile.steps import Step
from wonderland.core.types import ArrayType

LEAST_CHANNELS = 16
LEAST_WORK = 1 << 22  # multiply-adds of the direct product
MOST_WASTE = 1.5  # of results beyond the edge
NANOSECONDS = 0.012  # of a multiply-add of the direct product
SHARED_WORK = 1 << 20  # multiply-adds that are worth threads


def lower(builder: Any, x: Node, y: Node, r: int) -> Node | None:
    """Windows x (images, height, width, and 3 x 3 x channels in any order), weights y (columns, the same).

    None if they aren't of that kind, or it doesn't pay.
    """
    if x.dtype.itemsize != 4 or r not in (2, 3) or len(x.shape) != r + 3 or len(y.shape) != 4 or not y.in_memory:
        return None
    (height, by_row), (width, by_column) = [*zip(x.shape, x.layout[1], strict=True)][r - 2 : r]
    taps = _taps(x, r, (by_row, by_column))
    if taps is None or min(by_row, by_column) <= 0:
        return None
    *kernel, channel = taps
    t, channels, columns = tile(NAMES[4]), x.shape[r + channel], y.shape[0]
    down, across, images = ceil_div(height, 2), ceil_div(width, 2), math.prod(x.shape[: r - 2])
    fits = channels % t.lanes == 0 and columns % t.columns == 0 and winograd_code.block_of(t, channels, columns)
    work = images * height * width * columns * channels * 9
    if not fits or min(channels, columns) < LEAST_CHANNELS or work < LEAST_WORK:
        return None
    if 4 * down * across > MOST_WASTE * height * width:
        return None
    offset = x.layout[0]
    weights = y.layout[0], y.layout[1][0], y.layout[1][1 + channel]
    steps = []
    for axis, step in zip(kernel, (by_row, by_column), strict=True):
        by = y.layout[1][1 + axis]
        if x.layout[1][r + axis] != step:  # from the last to the first: as the reversed weights from the first
            offset, weights, by = offset - 2 * step, (weights[0] + 2 * by, *weights[1:]), -by
        steps.append(by)
    u = builder.keep(Weights(y.base, (*weights, *steps), channels, columns, t))
    by_image = x.layout[1][0] if r == 3 else 0
    sizes = {
        "image": by_image, "row": by_row, "column": by_column, "height": height, "width": width, "channels": channels,
        "columns": columns, "tiles": images * down * across, "down": down, "across": across,
    }  # fmt: skip
    return builder.keep(Winograd(ArrayType((*x.shape[:r], columns), x.dtype), x.base, offset, u, sizes, t))


def _taps(x: Node, r: int, steps: tuple[int, int]) -> tuple[int, int, int] | None:
    """Which of the summed axes are the rows and columns of a 3 x 3 window that moves by one, and its channels."""
    axes = [*zip(x.shape, x.layout[1], strict=True)][r:]
    of = lambda step: [i for i, (n, s) in enumerate(axes) if n == 3 and abs(s) == step]
    rows, columns, channels = of(steps[0]), of(steps[1]), [i for i, (_, s) in enumerate(axes) if s == 1]
    found = (*rows, *columns, *channels)
    return found if len(rows) == len(columns) == len(channels) == 1 and len({*found}) == 3 else None  # type: ignore


class Weights(Whole):
    """U = G w G^T, of weights at (offset, strides of columns, channels, rows and taps of the kernel)."""

    def __init__(self, w: Node, layout: tuple[int, ...], channels: int, columns: int, t: Tile):
        super().__init__(ArrayType((winograd_code.PLACES, columns // t.columns, channels, t.columns), w.dtype))
        self.w: Node = w
        self.layout_of_w: tuple[int, ...] = layout

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.w,)

    @property
    def nanoseconds(self) -> float:
        return STEP + 0.5 * self.type.size

    def plan(self, plan: Any, position: int) -> None:
        offset, by_column, by_channel, by_row, by_tap = self.layout_of_w
        _, panels, channels, width = self.shape
        numbers = {
            "by_column": by_column, "by_row": by_row, "by_tap": by_tap, "by_channel": by_channel, "channels": channels,
            "columns": panels * width, "chunks": panels, "shared": int(self.type.size >= SHARED_WORK >> 4),
        }  # fmt: skip
        places = {"w": (plan.memory[self.w], offset * self.dtype.itemsize), "u": (plan.own(self), 0)}
        plan.add(RunWinograd("winograd_weights", str(self), places, "u", numbers), self.nanoseconds)

    def __str__(self) -> str:
        return f"transform of weights, {self.shape[2]} by {self.shape[1] * self.shape[3]} channels"


class Winograd(Whole):
    """The convolution; the result is contiguous."""

    def __init__(self, type: ArrayType, x: Node, offset: int, u: Node, sizes: dict[str, int], t: Tile):
        super().__init__(type)
        self.x, self.offset, self.u, self.sizes, self.tile = x, offset, u, sizes, t

    @property
    def memory(self) -> tuple[Node, ...]:
        return (self.x, self.u)

    @property
    def work(self) -> int:
        """Multiply-adds of the direct product."""
        return self.type.size * self.sizes["channels"] * 9

    @property
    def nanoseconds(self) -> float:
        return STEP + NANOSECONDS * self.work

    def plan(self, plan: Any, position: int) -> None:
        block = winograd_code.block_of(self.tile, self.sizes["channels"], self.sizes["columns"])
        numbers = {
            **self.sizes, "block": block, "chunks": ceil_div(self.sizes["tiles"], block),
            "shared": int(self.work >= SHARED_WORK),
        }  # fmt: skip
        places = {
            "x": (plan.memory[self.x], self.offset * self.dtype.itemsize), "u": (plan.memory[self.u], 0),
            "out": (plan.own(self), 0),
        }  # fmt: skip
        plan.add(RunWinograd("winograd", str(self), places, "out", numbers), NANOSECONDS * self.work)

    def __str__(self) -> str:
        rows = math.prod(self.shape[:-1])
        return f"convolution by transforms {rows}x{9 * self.sizes['channels']} by {self.shape[-1]}, {self.dtype.name}"


class RunWinograd(Step):
    """A call of one of the functions."""

    is_long = True

    def __init__(self, name: str, text: str, places: dict[str, tuple[Buffer, int]], made: str, numbers: dict[str, int]):
        self.name, self.text, self.places, self.made, self.numbers = name, text, places, made, numbers

    @property
    def touched(self) -> list[Buffer]:
        return [buffer for buffer, _ in self.places.values()]

    @property
    def written(self) -> list[Buffer]:
        return [self.places[self.made][0]]

    def emit(self, out: Any, f: ir.Function) -> None:
        words = [
            out.pointer(f, *self.places[name]) if type == ir.POINTER else out.entry(f, self.numbers[name])
            for name, type in types(winograd_code.WORDS[self.name])
        ]
        f.call(winograd_code.external(self.name, NAMES[4]), out.record(f, words))

    def __str__(self) -> str:
        return self.text
