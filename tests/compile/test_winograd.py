"""Convolutions of 3 x 3 by fewer multiplications, in compiled code: values, derivatives, edges, and when they are made.

Numbers are small integers, of which all sums, halves and products are exact: the result is that of the definition.
"""

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import winograd

TRANSFORMED = "convolution by transforms"


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(winograd, "LEAST_WORK", 0)
    monkeypatch.setattr(winograd, "MOST_WASTE", 4)


def numbers(rng, *shape):
    return rng.integers(-3, 4, shape).astype(np.float32)


def steps(f, *args):
    return [str(step) for step in wl.jit(f).inspect(*args).plan.steps]


SHAPES = [(1, 2, 2), (3, 4, 4), (2, 5, 4), (2, 4, 7), (1, 9, 9), (13, 6, 10), (40, 3, 3)]


@pytest.mark.parametrize("channels", [(16, 96), (48, 96)], ids=str)  # multiples of any tile's columns
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_derivatives(shape, channels, rng):
    """Against NumPy's products of windows, in double precision."""
    n, height, width = shape
    x, w = numbers(rng, n, height, width, channels[0]), numbers(rng, channels[1], channels[0], 3, 3)
    ct = numbers(rng, n, height, width, channels[1])
    conv = lambda x, w: wl.conv(x, w, padding=1, channels="last")

    def all_of_it(x, w, ct):
        y, pull = wl.vjp(conv, x, w)
        return y, *pull(ct)

    found = wl.jit(all_of_it)(x, w, ct)
    made = " ".join(steps(all_of_it, x, w, ct))
    assert TRANSFORMED in made and "weights by transforms" in made
    surrounded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(surrounded, (3, 3), (1, 2))  # (n, h, w, c, 3, 3)
    np.testing.assert_array_equal(found[0], np.einsum("nhwcij,ocij->nhwo", windows, w, optimize=True))
    np.testing.assert_array_equal(found[2], np.einsum("nhwcij,nhwo->ocij", windows, ct, optimize=True))
    back = np.zeros_like(surrounded)
    for i, j in np.ndindex(3, 3):
        back[:, i : i + height, j : j + width] += ct.astype(np.float64) @ w[..., i, j]
    np.testing.assert_array_equal(found[1], back[:, 1:-1, 1:-1])


def test_without_padding_and_without_a_batch(rng):
    x, w = numbers(rng, 7, 8, 96), numbers(rng, 96, 96, 3, 3)
    conv = lambda x, w: wl.conv(x, w, channels="last")
    assert TRANSFORMED in " ".join(steps(conv, x, w))
    np.testing.assert_array_equal(wl.jit(conv)(x, w), conv(x, w))
    part = x[1:7, ::-1]  # what lies elsewhere in memory, from the last to the first
    np.testing.assert_array_equal(wl.jit(lambda x, w: conv(x[1:7, ::-1], w))(x, w), conv(part, w))
    reversed_weights = lambda x, w: conv(x, np.swapaxes(w, 0, 1)[..., ::-1])
    np.testing.assert_array_equal(wl.jit(reversed_weights)(x, w), reversed_weights(x, w))


def test_a_result_sees_its_window_and_nothing_else(rng):
    x, w = rng.normal(size=(1, 9, 8, 16)).astype(np.float32), rng.normal(size=(96, 16, 3, 3)).astype(np.float32)
    conv = wl.jit(lambda x: wl.conv(x, w, padding=1, channels="last"))
    for place in np.ndindex(9, 8):
        hurt = x.copy()
        hurt[0, *place, 3] = np.nan
        seen = np.zeros((9, 8), bool)
        seen[max(place[0] - 1, 0) : place[0] + 2, max(place[1] - 1, 0) : place[1] + 2] = True
        found = conv(hurt)[0]
        np.testing.assert_array_equal(np.isnan(found).all(-1), seen)
        np.testing.assert_array_equal(found[~seen], conv(x)[0][~seen])


def test_errors_are_as_small_as_direct_ones(rng):
    x, w = rng.normal(size=(8, 12, 12, 64)), rng.normal(size=(64, 64, 3, 3)) / 24
    conv = lambda x, w: wl.conv(x, w, padding=1, channels="last")
    found = wl.jit(conv)(x.astype(np.float32), w.astype(np.float32))
    exact = conv(x.astype(np.float32).astype(np.float64), w.astype(np.float32).astype(np.float64))
    assert np.max(np.abs(found - exact)) < 4e-6  # numbers of size 1; direct sums in float32: 2e-6 to 3e-6


@pytest.mark.parametrize(
    "kind, channels, dtype, options",
    [
        ("a stride", 32, np.float32, {"stride": 2}), ("a dilation", 32, np.float32, {"dilation": 2}),
        ("doubles", 32, np.float64, {}), ("groups", 32, np.float32, {"groups": 2}), ("few channels", 8, np.float32, {}),
    ],
)  # fmt: skip
def test_other_convolutions_are_direct(kind, channels, dtype, options, rng):
    w = numbers(rng, 32, channels // options.get("groups", 1), 3, 3).astype(dtype)
    x = numbers(rng, 2, 8, 8, channels).astype(dtype)
    conv = lambda x, w: wl.conv(x, w, padding=1, channels="last", **options)
    assert TRANSFORMED not in " ".join(steps(conv, x, w))
    np.testing.assert_array_equal(wl.jit(conv)(x, w), conv(x, w))
