"""Views of an image, for optical illusions: functions of images (..., H, W) with their inverses.

A view is an orthogonal map of the pixels (a permutation of them, or their signs), so noise of N(0, I) stays what it is,
and the average of what a denoiser says about several views is noise again (notes, 3.21; Geng et al. 2024, Visual
anagrams). Low and high pass lose what they filter out and have no inverse: they are mixed by `hybrid` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracebacks import publish as _publish
from wonderland.nn.arguments import array as _array
from wonderland.nn.arguments import floating as _floating

__all__ = [
    "PixelView", "flip", "high_pass", "hybrid", "identity", "illusion", "inner_circle", "jigsaw", "low_pass", "negate",
    "permute", "rotate",
]  # fmt: skip

Denoiser = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class PixelView:
    """An image as another one: `view(x)` of x (..., H, W), and `view.inverse`, or None where there is none."""

    name: str
    function: Callable[[Any], Any]
    inverse: Callable[[Any], Any] | None

    def __call__(self, x: Any) -> Any:
        return self.function(_array(x))


def _itself(x: Any) -> Any:
    return x


def identity() -> PixelView:
    """The image as it is."""
    return PixelView("identity", _itself, _itself)


def negate() -> PixelView:
    """Black as white: -x, for images about 0."""
    minus = lambda x: -_floating(x)  # of bytes it would be 256 - x
    return PixelView("negate", minus, minus)


def flip(axis: int = -2) -> PixelView:
    """Upside down; with `axis=-1`, left and right exchanged."""
    if axis not in (-1, -2):
        raise ArgumentError(f"flip: axis is -2 (upside down) or -1 (left and right), not {axis!r}")
    turn = lambda x: np.flip(x, axis)
    return PixelView("flip", turn, turn)


def rotate(degrees: int = 180) -> PixelView:
    """Turned counter-clockwise by 90, 180 or 270 degrees; by 90 and 270 for square images."""
    if degrees % 90:
        raise ArgumentError(
            f"rotate: {degrees} degrees would mix pixels, and noise wouldn't stay noise: use a multiple of 90"
        )
    turns = degrees // 90

    def turned(x: Any, k: int) -> Any:
        if k % 2 and x.shape[-1] != x.shape[-2]:
            raise ArgumentError(f"rotate: by {degrees} degrees turn square images, not {x.shape[-2]} x {x.shape[-1]}")
        return np.rot90(x, k, axes=(-2, -1))

    return PixelView(f"rotate {degrees}", lambda x: turned(x, turns), lambda x: turned(x, -turns))


def permute(order: Any) -> PixelView:
    """Pixels in another order: pixel i of the view (row by row) is pixel order[i] of the image; `order` (H W,)."""
    order = np.asarray(order).ravel()
    if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ArgumentError(f"permute: order has each number from 0 to {len(order) - 1} once")
    back = np.argsort(order)

    def ordered(x: Any, order: np.ndarray) -> Any:
        if x.shape[-2] * x.shape[-1] != len(order):
            raise ArgumentError(f"permute: {len(order)} pixels are ordered, and an image is {x.shape[-2:]}")
        return np.take(x.reshape(*x.shape[:-2], -1), order, axis=-1).reshape(x.shape)

    return PixelView("permute", lambda x: ordered(x, order), lambda x: ordered(x, back))


def jigsaw(size: int, pieces: int = 4, seed: int = 0) -> PixelView:
    """Pieces of a square image, `pieces` x `pieces` squares, in another order (which depends on the seed)."""
    if pieces < 1 or size % pieces:
        raise ArgumentError(f"jigsaw: an image of {size} pixels can't be cut into {pieces} equal pieces")
    side = size // pieces
    places = np.arange(size * size).reshape(pieces, side, pieces, side).transpose(0, 2, 1, 3)
    moved = np.random.default_rng(seed).permutation(pieces * pieces)
    cut = places.reshape(pieces * pieces, side, side)[moved]
    order = cut.reshape(pieces, pieces, side, side).transpose(0, 2, 1, 3).ravel()
    return PixelView("jigsaw", (whole := permute(order)).function, whole.inverse)


def inner_circle(size: int, degrees: int = 180, radius: float | None = None) -> PixelView:
    """The disk in the middle turned by a multiple of 90 degrees, of `radius` (0.35 of the size), the rest as it is."""
    across = np.arange(size) - (size - 1) / 2
    inside = across[:, None] ** 2 + across**2 <= (0.35 * size if radius is None else radius) ** 2
    places = np.arange(size * size).reshape(size, size)
    turned = np.asarray(rotate(degrees)(places))
    return PixelView("inner circle", (whole := permute(np.where(inside, turned, places))).function, whole.inverse)


# Illusions -----------------------------------------------------------------------------------------------------------


def illusion(denoisers: Denoiser | Sequence[Denoiser], views: Sequence[PixelView]) -> Denoiser:
    """One denoiser for images that are something in each of several views:

        epsilon(x, sigma) = 1/N sum_i v_i^-1(epsilon_i(v_i(x), sigma))

    `denoisers` are as many as views, such as a network guided to other classes, or one for all of them. With the
    identity only, it is that denoiser, bit for bit.

        sample(illusion([guided(network, sixes, 3.0), guided(network, nines, 3.0)], [identity(), rotate(180)]), ...)
    """
    views = [*views]
    each = [denoisers] * len(views) if callable(denoisers) else [*denoisers]
    if not views or len(each) != len(views):
        raise ArgumentError(f"illusion: a denoiser for each view, and {len(each)} came for {len(views)} views")
    for view in views:
        if not isinstance(view, PixelView):
            raise ArgumentError(f"illusion: views are like views.flip(), or a PixelView with its inverse: got {view!r}")
        if view.inverse is None:
            raise ArgumentError(f"illusion: {view.name} has no inverse: mix low and high passes by views.hybrid")

    def denoiser(x: Any, sigma: Any) -> Any:
        mean: Any = None
        for i, (view, of_view) in enumerate(zip(views, each)):
            found = view.inverse(of_view(view(x), sigma))  # type: ignore[misc]
            # This form of the mean is exact for equal terms, whatever their number.
            mean = found if mean is None else mean + (found - mean) / (i + 1)
        return mean

    return denoiser


def _gaussian(size: int, width: float) -> np.ndarray:
    """The matrix of a Gaussian filter along an axis; images go on at their borders as mirrored there."""
    matrix = np.zeros((size, size))
    reach = int(np.ceil(4 * width))
    weight = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    for shift, w in zip(range(-reach, reach + 1), weight / weight.sum()):
        at = (np.arange(size) + shift) % (2 * size)
        np.add.at(matrix, (np.arange(size), np.minimum(at, 2 * size - 1 - at)), w)
    return matrix


def low_pass(width: float = 1.0) -> PixelView:
    """The image through a Gaussian filter `width` pixels wide: what one sees from afar. It has no inverse."""
    if not 0 < width < np.inf:
        raise ArgumentError(f"low_pass: the width of the filter is more than 0, and finite, not {width!r}")

    def blurred(x: Any) -> Any:
        x = _floating(x)  # the filter, too, would be rounded to integers
        down, across = (_gaussian(x.shape[axis], width).astype(x.dtype) for axis in (-2, -1))
        return down @ x @ across.T

    return PixelView("low pass", blurred, None)


def high_pass(width: float = 1.0) -> PixelView:
    """What a low pass of that width leaves out: what one sees from near. It has no inverse."""
    low = low_pass(width)
    return PixelView("high pass", lambda x: x - low(x), None)


def hybrid(far: Denoiser, near: Denoiser, width: float = 1.0) -> Denoiser:
    """A denoiser for images that are one thing from afar and another from near:

        epsilon(x, sigma) = low(epsilon_far(x, sigma)) + high(epsilon_near(x, sigma))

    No view: low and high pass can't be inverted, but their sum is the identity (Geng et al. 2024, Factorized
    diffusion). So of two equal denoisers it is that one, up to rounding.
    """
    low, high = low_pass(width), high_pass(width)
    return lambda x, sigma: low(far(x, sigma)) + high(near(x, sigma))


_publish(__name__, globals(), __all__)
