"""Receptive fields (definition D7.5): which pixels of the input a pixel of the output is computed from.

They are read off the network itself, by the sparsity pattern of its Jacobian: no formula per layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wonderland import sparse
from wonderland.core.errors import ArgumentError


class ReceptiveField(NamedTuple):
    """`pixels[i, j]`: is the pixel in it? `size` and `first` are those of its bounding box, axis by axis."""

    pixels: np.ndarray
    size: tuple[int, ...]
    first: tuple[int, ...]


def receptive_field(f: Callable, shape: tuple[int, ...], at: tuple[int, ...] | None = None) -> ReceptiveField:
    """The pixels that an output pixel of `f` depends on, for an input of shape (channels, *size).

        receptive_field(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)), (3, 16, 16)).size     # (5, 5)

    `at` is the output's pixel, its middle if not given. Layers that look at all pixels (batch norm in training mode)
    make it the whole image: call `model.eval()` before.
    """
    if not isinstance(shape, (tuple, list)) or len(shape) < 2:
        got = f"an array: write x.shape[1:] of {shape.shape}" if isinstance(shape, np.ndarray) else shape
        raise ArgumentError(f"receptive_field takes the shape (channels, *size) of an image or a sequence, got {got}")

    def pixel(x: Any) -> Any:
        y = f(x[None])[0]  # a batch of one: batch norm asks for one
        place = tuple(n // 2 for n in y.shape[1:]) if at is None else at
        if len(place) != y.ndim - 1 or any(not -n <= i < n for i, n in zip(place, y.shape[1:], strict=False)):
            raise ArgumentError(f"at={at} is no pixel of the output, whose shape is {y.shape} (channels, *size)")
        return y[(slice(None), *place)]

    pattern = sparse.jacobian_pattern(pixel, np.zeros(shape, np.float32))
    seen: np.ndarray = np.any(np.asarray(pattern.sum(axis=0)).reshape(shape), axis=0)
    places = np.nonzero(seen)
    if not len(places[0]):
        return ReceptiveField(seen, (0,) * seen.ndim, (0,) * seen.ndim)
    first, last = [int(p.min()) for p in places], [int(p.max()) for p in places]
    return ReceptiveField(seen, tuple(b - a + 1 for a, b in zip(first, last, strict=True)), tuple(first))
