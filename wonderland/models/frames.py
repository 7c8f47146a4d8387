"""Frame averaging (Puny et al. 2022): any network made invariant or equivariant by an average over a frame.

    f'(x) = 1/|F(x)| sum over g in F(x) of  g f(g^-1 x)        (without the outer g: invariant)

A frame F(x) is a set of group elements that moves with x: F(g x) = g F(x). The whole of a small group is one (the eight
symmetries of a square); for the rotations of a cloud of points the principal axes give one of 2^d elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland import nn

Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # x -> g^-1 x, y -> g y


class FrameAverage(nn.Module):
    """The average of `inner` over `frame(x)`, pairs of functions (x -> g^-1 x, y -> g y); `invariant=True` drops g."""

    def __init__(self, inner: Any, frame: Callable[[Any], Sequence[Pair]], invariant: bool = True):
        self.inner = inner
        self.frame = frame
        self.invariant = invariant

    def __call__(self, x: Any) -> Any:
        total, pairs = 0, self.frame(x)
        for back, forth in pairs:
            y = self.inner(back(x))
            total = total + (y if self.invariant else forth(y))
        return total / len(pairs)


def image_symmetries(x: Any) -> list[Pair]:
    """The eight rotations and reflections of square images (..., H, W): a frame that doesn't depend on the image."""

    def element(turns: int, flip: bool) -> Pair:
        def forth(y: Any) -> Any:
            y = np.flip(y, -1) if flip else y
            return np.rot90(y, turns, (-2, -1))

        def back(y: Any) -> Any:
            y = np.rot90(y, -turns, (-2, -1))
            return np.flip(y, -1) if flip else y

        return back, forth

    return [element(turns, flip) for turns in range(4) for flip in (False, True)]


def principal_frames(x: Any) -> list[Pair]:
    """Rotations and reflections of a cloud of points (..., n, d) about its mean: its principal axes, in all signs.

    Defined where the covariance has different eigenvalues. What goes out, (..., m, d), is turned along.
    """
    d = x.shape[-1]
    mean = x.mean(axis=-2, keepdims=True)
    centred = x - mean
    _, axes = np.linalg.eigh(np.swapaxes(centred, -1, -2) @ centred)  # (..., d, d)

    def element(signs: np.ndarray) -> Pair:
        turn = axes * signs.astype(x.dtype)
        return (lambda y: (y - mean) @ turn), (lambda y: y @ np.swapaxes(turn, -1, -2) + mean)

    return [element(np.array(signs)) for signs in np.ndindex(*(2,) * d) for signs in [[1 - 2 * s for s in signs]]]
