"""Resampling of images by affine maps, bilinear: what rotation, zoom, shear and resized crops are made of.

A map says, for each pixel of the result, where to read: rows [a b t] in (row, column) from the centres of the images.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def identity(n: int) -> np.ndarray:
    """n maps (n, 2, 3) that move nothing."""
    return np.tile(np.eye(2, 3), (n, 1, 1))


def rotation(angle: np.ndarray) -> np.ndarray:
    """Maps that turn the picture by so many radians, anticlockwise."""
    out = identity(len(angle))
    out[:, 0, 0] = out[:, 1, 1] = np.cos(angle)
    out[:, 0, 1], out[:, 1, 0] = np.sin(angle), -np.sin(angle)
    return out


def scaling(down: Any, across: Any) -> np.ndarray:
    """Maps that read so many times as far from the centre."""
    out = identity(len(down))
    out[:, 0, 0], out[:, 1, 1] = down, across
    return out


def shearing(down: Any, across: Any) -> np.ndarray:
    """Maps that read rows shifted by `down` per column, and columns by `across` per row."""
    out = identity(len(down))
    out[:, 0, 1], out[:, 1, 0] = down, across
    return out


def shifting(down: Any, across: Any) -> np.ndarray:
    """Maps that read so many pixels further down and to the right."""
    out = identity(len(down))
    out[:, 0, 2], out[:, 1, 2] = down, across
    return out


def resample(x: np.ndarray, maps: np.ndarray, fill: float | None, size: tuple[int, int] | None = None) -> np.ndarray:
    """Images (n, c, h, w) read where the maps (n, 2, 3) say; of another size if one is given.

    Outside of an image is the value `fill`; with None, the nearest pixel of it.
    """
    n, channels, height, width = x.shape
    out_height, out_width = size or (height, width)
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    rows = (np.arange(out_height)[:, None] - (out_height - 1) / 2).astype(dtype)
    columns = (np.arange(out_width) - (out_width - 1) / 2).astype(dtype)
    a = maps.astype(dtype)[:, :, :, None, None]
    source = a[:, :, 0] * rows + (a[:, :, 1] * columns + a[:, :, 2])  # (n, 2, h', w'), from the centre
    if fill is not None:  # one pixel around, from which on all is `fill`
        x = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=fill)
        height, width = height + 2, width + 2
    r, s = source[:, 0], source[:, 1]
    r, s = (np.clip(p + dtype((k - 1) / 2), 0, k - 1) for p, k in ((r, height), (s, width)))
    top, left = (np.minimum(p.astype(np.intp), max(k - 2, 0)) for p, k in ((r, height), (s, width)))
    v, u = ((place - first).astype(x.dtype).reshape(-1, 1) for place, first in ((r, top), (s, left)))
    corner = (top * width + left + (np.arange(n) * (height * width))[:, None, None]).ravel()
    below, right = width * (height > 1), int(width > 1)
    pixels = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(-1, channels)
    read = lambda offset: pixels.take(corner + offset, 0, mode="clip")
    upper = read(0)
    upper += u * (read(right) - upper)
    lower = read(below)
    lower += u * (read(below + right) - lower)
    upper += v * (lower - upper)
    return np.ascontiguousarray(np.moveaxis(upper.reshape(n, out_height, out_width, channels), -1, 1))
