"""Total variation of a signal: piecewise constant y near x, by argmin of strength sum |y_i+1 - y_i| + |y - x|^2 / 2.

Vectors come in and go out. Where y jumps, and which way, is decided by values alone (Condat's direct algorithm, "A
direct algorithm for 1D total variation denoising", 2013); given that, y is the mean of x over each piece, moved by the
strength towards its neighbours, and that formula is what derivatives see.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.compile.jit import jit
from wonderland.control.loops import while_loop
from wonderland.implicit.sets.projections import floats, nonnegative_size
from wonderland.numpy.at import at
from wonderland.transform.derivatives import stop_gradient

SIZES = (32, 1024, 32768)  # to which signals are padded, so that few shapes are compiled


def prox_total_variation(x: Any, strength: Any = 1.0) -> Any:
    """Of f = sum |y_i+1 - y_i|, along the last axis: a signal that is constant in pieces.

    Leading axes of x (..., n) are a batch with one strength for all, or one for each. On each piece y is the mean of x,
    plus strength / length at each end from which it goes up, and minus that where it goes down.
    """
    x = floats(x, "prox_total_variation", 1)
    strength = nonnegative_size(floats(strength, "prox_total_variation"), "prox_total_variation", "strength")
    *lead, n = np.shape(x)
    if 0 in (*lead, n):
        return x
    rows = np.reshape(x, (-1, n))
    count = np.shape(rows)[0]
    strength = np.reshape(np.broadcast_to(strength.astype(x.dtype), lead), (count, 1))

    size = next((size for size in SIZES if size >= count * n), count * n)
    signals, strengths = (
        np.concatenate([np.ravel(v), np.zeros(size - v.size, x.dtype)]) for v in stop_gradient((rows, strength))
    )
    jumps = _jumps(signals, strengths, np.int64(count), np.int64(n))[: count * n]  # of y_i - y_i-1
    jumps = np.reshape(jumps, (count, n)).astype(x.dtype)

    pulled = rows + strength * np.diff(jumps, axis=1, append=np.zeros((count, 1), x.dtype))
    piece = np.ravel(np.cumsum(jumps != 0, axis=1) + n * np.arange(count)[:, None])
    zeros, ones = np.zeros(count * n, x.dtype), np.ones(count * n, x.dtype)
    means = at(zeros)[piece].add(np.ravel(pulled)) / np.maximum(at(zeros)[piece].add(ones), 1)
    return np.reshape(at(means)[piece].get(), np.shape(x))


@jit  # thousands of small decisions: Python's would be 10,000 times slower
def _jumps(x: Any, strengths: Any, count: Any, n: Any) -> Any:
    """1 where y_i > y_i-1, -1 where y_i < y_i-1 and 0 where they are equal, of `count` signals of length n in a row."""

    def row(state: tuple) -> tuple:
        jumps, i = state
        return _jumps_of_row(jumps, x, at(strengths)[i].get(), i * n, (i + 1) * n - 1), i + 1

    start = (np.zeros(np.shape(x), np.int64), np.int64(0))
    return while_loop(lambda state: state[1] < count, row, start)[0]


def _jumps_of_row(jumps: Any, x: Any, strength: Any, begin: Any, final: Any) -> Any:
    """Write the jumps of the signal x[begin], ..., x[final].

    The piece that begins at `start` grows to the right as long as some height between `low` and `high` is possible for
    it, with u the dual variable (between -strength and strength) at its end if it had these heights; `low_end` and
    `high_end` are where u was at its bound, and the piece ends if no height is possible any more.
    """

    def step(state: tuple) -> tuple:
        jumps, i, start, low_end, high_end, low, high, low_u, high_u, _ = state
        last = i == final
        ahead = at(x)[np.minimum(i + 1, final)].get()
        low_next, high_next = low_u + ahead - low, high_u + ahead - high
        down = np.where(last, low_u < 0, low_next < -strength)
        up = np.where(last, high_u > 0, high_next > strength) & ~down
        grows = ~last & ~down & ~up

        # Another element: heights that its dual variable doesn't allow are cut off.
        after = i + 1
        cut_low, cut_high = grows & (low_next >= strength), grows & (high_next <= -strength)
        length = (after - start + 1).astype(x.dtype)
        new_low = low + np.where(cut_low, (low_next - strength) / length, 0)
        new_high = high + np.where(cut_high, (high_next + strength) / length, 0)

        # A jump: a new piece begins with one element. At the end of the signal the other bound stays as it is.
        new = np.where(down, low_end, high_end) + 1
        place = np.minimum(new, final)
        first = at(x)[place].get()
        ends = down | up
        jumps = at(jumps)[place].set(np.where(ends, np.where(up, 1, -1), at(jumps)[place].get()))
        fresh_low, fresh_high = ends & (down | ~last), ends & (up | ~last)
        return (
            jumps,
            np.where(ends, new, np.where(grows, after, i)),
            np.where(ends, new, start),
            np.where(fresh_low, new, np.where(cut_low, after, low_end)),
            np.where(fresh_high, new, np.where(cut_high, after, high_end)),
            np.where(fresh_low, np.where(up, first - 2 * strength, first), new_low),
            np.where(fresh_high, np.where(down, first + 2 * strength, first), new_high),
            np.where(
                ends, np.where(down | ~last, strength, first - strength - low),
                np.where(grows, np.where(cut_low, strength, low_next), low_u),
            ),
            np.where(
                ends, np.where(up | ~last, -strength, first + strength - high),
                np.where(grows, np.where(cut_high, -strength, high_next), high_u),
            ),
            last & ~ends,
        )  # fmt: skip

    first = at(x)[begin].get()
    start = (jumps, begin, begin, begin, begin, first - strength, first + strength, strength, -strength, np.False_)
    return while_loop(lambda state: ~state[-1], step, start)[0]
