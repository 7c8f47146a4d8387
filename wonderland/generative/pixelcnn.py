"""PixelCNN: images as sequences, each pixel given those above it and to its left.

p(x) = prod_i p(x_i | x_1 .. x_{i-1}), in raster order, by convolutions whose kernels are zero at and after their centre
(van den Oord et al. 2016). Pixels are whole numbers from 0 to levels - 1; all probabilities of an image are one pass,
sampling takes one pass a pixel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland import nn, random
from wonderland.control.loops import fori_loop
from wonderland.core.errors import ArgumentError
from wonderland.generative.tokens import labels_of, whole_below
from wonderland.nn.arguments import array
from wonderland.nn.building import positive, recipe
from wonderland.numpy.at import at
from wonderland.numpy.convolution import conv
from wonderland.transform.vmap import vmap


class MaskedConv2d(nn.Module):
    """A convolution that sees what comes before a pixel in raster order, and, unless `first`, the pixel itself.

    (..., in, h, w) becomes (..., out, h, w); the kernel is odd, and the image padded by zeros.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, *, first: bool = False, key: Any = None,
        dtype: Any = np.float32,
    ):  # fmt: skip
        if kernel_size % 2 == 0:
            raise ArgumentError(f"MaskedConv2d: the kernel has a centre, so its size is odd; got {kernel_size}")
        self.inner: Any = nn.Conv2d(
            in_channels, out_channels, kernel_size, padding=kernel_size // 2, key=key, dtype=dtype
        )  # fmt: skip
        seen = np.arange(kernel_size**2) < kernel_size**2 // 2 + (0 if first else 1)
        mask = seen.reshape(kernel_size, kernel_size).astype(dtype)
        mask.flags.writeable = False  # a buffer, not trained
        self.mask: Any = mask

    def __call__(self, x: Any) -> Any:
        """The maps of what came before."""
        half = self.mask.shape[0] // 2
        out = conv(x, self.inner.weight * self.mask, padding=half)
        return out + self.inner.bias[:, None, None]


class PixelCNN(nn.Module):
    """Images (B, h, w) of whole numbers below `levels` to logits (B, levels, h, w) of each pixel given those before.

    A masked convolution that doesn't see the pixel, then `layers` residual ones that see it, width `channels`. With
    `classes`, an image's label shifts the maps of every layer.
    """

    def __init__(
        self, levels: int, channels: int = 32, layers: int = 4, kernel_size: int = 3, classes: int | None = None, *,
        key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.levels: int = positive(levels, "PixelCNN: levels")
        keys = iter(recipe(self, None, False, key, dtype).keys(2 * layers + 3))
        self.first: Any = MaskedConv2d(1, channels, 7, first=True, key=next(keys), dtype=dtype)
        self.blocks: list[Any] = [
            MaskedConv2d(channels, channels, kernel_size, key=next(keys), dtype=dtype) for _ in range(layers)
        ]
        self.label: Any = None if classes is None else nn.Embedding(classes, channels, key=next(keys), dtype=dtype)
        self.head: Any = nn.Conv2d(channels, self.levels, 1, key=next(keys), dtype=dtype)

    def __call__(self, images: Any, labels: Any = None) -> Any:
        """The logits (B, levels, h, w)."""
        if (labels is None) != (self.label is None):
            raise ArgumentError("PixelCNN: labels are for models with classes=, and such models need them")
        images = array(images)
        if images.ndim != 3:
            raise ArgumentError(f"PixelCNN: images are (B, h, w), without an axis of channels, got {images.shape}")
        dtype = self.first.inner.weight.dtype
        x = (images.astype(dtype) / max(self.levels - 1, 1) - 0.5)[:, None]
        shift = 0.0
        if self.label is not None:
            labels = labels_of(labels, self.label.weight.shape[0], images.shape[0], "PixelCNN")
            shift = self.label(labels)[:, :, None, None]
        h = self.first(x) + shift
        for block in self.blocks:
            h = h + nn.relu(block(nn.relu(h)) + shift)
        return self.head(nn.relu(h))

    def log_prob(self, images: Any, labels: Any = None) -> Any:
        """log p(x) of each image, (B,)."""
        images = self._pixels(images)
        logs = nn.log_softmax(self(images, labels), axis=1)
        chosen = np.take_along_axis(logs, images[:, None], axis=1)
        return np.sum(chosen, axis=(1, 2, 3))

    def loss(self, images: Any, labels: Any = None) -> Any:
        """-log p(x) per pixel, on average, in nats."""
        return -np.mean(self.log_prob(images, labels)) / math.prod(np.shape(images)[1:])

    def sample(self, key: Any, shape: tuple[int, int, int], labels: Any = None, given: Any = None) -> Any:
        """Images (B, h, w), pixel by pixel. `given`, like them, has pixels that are kept where it isn't negative."""
        count, height, width = shape
        start = np.zeros(shape, np.int64)
        if given is not None:
            given = array(given)
            if given.shape != tuple(shape):
                raise ArgumentError(f"PixelCNN: given pixels are like the images, {tuple(shape)}, got {given.shape}")
            start = self._pixels(np.where(given < 0, 0, given))
        keys = vmap(lambda i: random.fold_in(key, i))(np.arange(count))  # of each image, whatever the batch

        def pixel(i: Any, images: Any) -> Any:
            row, column = i // width, i % width
            logits = self(images, labels)[:, :, row, column]
            drawn = _draw(keys, i, logits)
            if given is not None:
                drawn = np.where(at(given)[:, row, column].get() < 0, drawn, at(start)[:, row, column].get())
            return at(images)[:, row, column].set(drawn)

        return fori_loop(0, height * width, pixel, start)

    def _pixels(self, images: Any) -> Any:
        return whole_below(images, self.levels, "PixelCNN: pixels")


def _draw(keys: Any, i: Any, logits: Any) -> Any:
    """One class for each row of logits (B, levels), by the key of its image and the number of the pixel."""
    return vmap(lambda key, row: random.categorical(random.fold_in(key, i), None, row))(keys, logits)
