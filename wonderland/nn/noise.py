"""Layers that draw random numbers: each owns a key, a buffer, which every call in training mode replaces by its child.

So the numbers are those of the key and of how often the layer was called, in eager and compiled code, and go on where
they were when a model is loaded from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import array, floating
from wonderland.nn.module import Buffer, Module, evaluating
from wonderland.random.keys import checked


class Random(Module):
    """A layer with a key of its own; without one given, the next of the stream that `wl.random.seed` starts."""

    _rows: tuple[int, int] = (0, 0)  # the first sample and how many there are, while `nn.part_of_batch` is in force

    def __init__(self, key: Any = None):
        key = random.next_key() if key is None else checked(key)
        self.key: Any = Buffer(np.array(key, np.uint32))

    def next_key(self) -> Any:
        """A key that wasn't used before; the layer's own advances."""
        keys = random.split(self.key)
        self.key = keys[0]
        return keys[1]

    def drawn(self, draw: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...]) -> Any:
        """`draw(shape)`; of a part of a batch, what the whole batch would have had there along the first axis."""
        first, rows = self._rows
        if not first or not shape or shape[0] % rows:
            return draw(shape)
        first *= shape[0] // rows  # an axis may be joined with that of the samples
        return draw((first + shape[0], *shape[1:]))[first:]

    def dropped(self, x: Any, p: float, shape: tuple[int, ...]) -> Any:
        """x / (1 - p) or 0, by a mask of a shape whose first axis is that of the samples."""
        key = self.next_key()
        return masked(x, p, lambda: self.drawn(lambda shape: kept(key, p, shape), shape))


def probability(p: Any, name: str) -> float:
    """A number between 0 and 1, of one that is given."""
    if isinstance(p, (int, float, np.number)) and 0 <= p <= 1:
        return float(p)
    raise ValueError(f"{name}: p is the probability of dropping, a number from 0 to 1, got {p!r}")


def inexact(x: Any, name: str) -> Any:
    """An array of floating-point or complex numbers."""
    x = array(x)
    return x if x.dtype.kind == "c" else floating(x, f"{name}: x")


def kept(key: Any, p: float, shape: tuple[int, ...]) -> Any:
    """Bools: False with probability p, to 2^-32."""
    return random.bits(key, shape) >= np.uint32(min(round(p * 2**32), 2**32 - 1))


def masked(x: Any, p: float, mask: Callable[[], Any]) -> Any:
    """x / (1 - p) where a mask, which broadcasts with x, is True, and 0 elsewhere."""
    if p == 0:
        return x
    if p == 1:
        return np.zeros_like(x)
    return np.where(mask(), x * (1 / (1 - p)), 0)


@contextmanager
def part_of_batch(model: Module, first: int, rows: int) -> Iterator[Any]:
    """`with nn.part_of_batch(model, first, rows):` samples are numbers first, first + 1, ... of a larger batch.

    Random layers draw for them what they would draw in the whole batch, whichever rank they are on. A part has `rows`
    samples, along the first axis.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"nn.part_of_batch takes a Module first, got {type(model).__name__}")
    if first < 0 or rows < 1:
        raise ArgumentError(f"nn.part_of_batch: a part has a first sample and at least one row, got {first}, {rows}")
    layers = [module for _, module in model.named_modules() if isinstance(module, Random)]
    before = [vars(layer).get("_rows") for layer in layers]
    for layer in layers:
        layer._rows = (int(first), int(rows))
    try:
        yield model
    finally:
        for layer, old in zip(layers, before, strict=True):
            if old is None:
                del layer._rows  # the class has it
            else:
                layer._rows = old


@contextmanager
def monte_carlo(model: Module) -> Iterator[Any]:
    """`with nn.monte_carlo(model):` the model is as after training, but its random layers go on drawing.

    The mean of several calls approximates the expected value over masks, their spread says how sure the model is:

        with nn.monte_carlo(model):
            samples = np.stack([model(x) for _ in range(50)])        # samples.mean(0), samples.std(0)

    Y. Gal and Z. Ghahramani, Dropout as a Bayesian approximation, 2016.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"nn.monte_carlo takes a Module, got {type(model).__name__}")
    layers = [module for _, module in model.named_modules() if isinstance(module, Random)]
    if not layers:
        raise ArgumentError(f"nn.monte_carlo: this {type(model).__name__} has no layer that draws random numbers")
    with evaluating(model):
        for layer in layers:
            layer.training = True
        yield model


class GaussianNoise(Random):
    """x + sigma * z with independent standard normal z, in training mode; x itself in evaluation mode."""

    def __init__(self, sigma: float, key: Any = None):
        if not isinstance(sigma, (int, float, np.number)) or not sigma >= 0:
            raise ValueError(f"GaussianNoise: sigma is a standard deviation, a number of at least 0, got {sigma!r}")
        super().__init__(key)
        self.sigma: float = float(sigma)

    def __call__(self, x: Any) -> Any:
        """x of any shape to the same shape."""
        x = floating(x, "GaussianNoise: x")
        if not self.training or self.sigma == 0:
            return x
        key = self.next_key()
        return x + self.sigma * self.drawn(lambda shape: random.normal(key, shape, dtype=x.dtype), x.shape)


class Cutout(Random):
    """A square of each image, at a random place, is 0 in training mode; in evaluation mode images stay as they are.

    `size` is the side, or (height, width). Its centre is uniform over the pixels, so that a part of it may lie outside
    of the image. Images are (..., C, H, W), with `channels_last` (..., H, W, C); all channels lose the same square.

    T. DeVries and G. W. Taylor, Improved regularization of convolutional neural networks with cutout, 2017.
    """

    def __init__(self, size: int | tuple[int, int], *, channels_last: bool = False, key: Any = None):
        sides = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
        if len(sides) != 2 or not all(isinstance(n, (int, np.integer)) and n > 0 for n in sides):
            raise ValueError(f"Cutout: size is a positive integer or two of them, (height, width), got {size!r}")
        super().__init__(key)
        self.size: tuple[int, ...] = tuple(map(int, sides))
        self.channels_last: bool = bool(channels_last)

    def __call__(self, x: Any) -> Any:
        """Images (..., C, H, W) to the same shape."""
        x = inexact(x, "Cutout")
        if x.ndim < 3:
            raise ValueError(f"Cutout takes images of shape (..., C, H, W) or (..., H, W, C), got {x.shape}")
        if not self.training:
            return x
        axes = (x.ndim - 3, x.ndim - 2) if self.channels_last else (x.ndim - 2, x.ndim - 1)
        images = (*x.shape[:-3], 1, 1, 1)
        inside: Any = True
        for axis, side, key in zip(axes, self.size, random.split(self.next_key()), strict=True):
            extent = x.shape[axis]
            centre = self.drawn(lambda shape, key=key, extent=extent: random.randint(key, shape, 0, extent), images)
            start = centre - side // 2
            places = np.arange(extent).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            inside = inside & (places >= start) & (places < start + side)
        return np.where(inside, 0, x)
