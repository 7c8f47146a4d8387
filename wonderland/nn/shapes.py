"""Layers without parameters that change shapes: `Flatten`, `Unflatten`, `Identity`, `Upsample`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wonderland.nn.arguments import array, axis_of
from wonderland.nn.module import Module
from wonderland.nn.placing import place_of, placed, wrong_shape
from wonderland.numpy.pooling import resize


class Identity(Module):
    """y = x: the place of a layer that isn't there. Arguments are taken, and ignored, as PyTorch does."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __call__(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """Axes `start` to `end` in one: (n, c, h, w) becomes (n, c h w)."""

    def __init__(self, start: int = 1, end: int = -1):
        self.end: int
        self.start: int
        self.start, self.end = start, end

    def __call__(self, x: Any) -> Any:
        x = array(x)
        with placed(self):
            start, end = axis_of(self.start, x.shape, "x"), axis_of(self.end, x.shape, "x")
            if start > end:
                raise ValueError(f"x has shape {x.shape}: axis start={self.start} is behind end={self.end}")
        shape = (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])
        return x.reshape(shape)


class Unflatten(Module):
    """One axis as several: `Unflatten(-1, (3, 32, 32))`; one of the extents may be -1."""

    def __init__(self, axis: int, shape: Sequence[int]):
        self.axis: int
        self.shape: tuple[int, ...]
        self.axis, self.shape = axis, tuple(shape)
        if sum(n == -1 for n in self.shape) > 1 or any(n < -1 for n in self.shape):
            raise ValueError(f"Unflatten: shape={shape!r} are extents, of which one may be -1")

    def __call__(self, x: Any) -> Any:
        x = array(x)
        with placed(self):
            axis = axis_of(self.axis, x.shape, "x")
        known = -math.prod(self.shape) if -1 in self.shape else math.prod(self.shape)
        if known == 0 or (x.shape[axis] % known if -1 in self.shape else x.shape[axis] != known):
            raise ValueError(
                f"{place_of(self)}: axis {axis} of x, of shape {x.shape}, can't be split into {self.shape}"
            )
        inner = [x.shape[axis] // known if n == -1 else n for n in self.shape]
        return x.reshape(*x.shape[:axis], *inner, *x.shape[axis + 1 :])


class Upsample(Module):
    """Images (..., channels, *spatial) in another spatial shape: `size`, or `scale_factor` times as large.

    Both are one number for all spatial axes of (batch, channels, *spatial), or one for each (then with any leading
    axes). `mode` is "nearest" or "linear" (as are "bilinear" and "trilinear"); PyTorch's meaning, see `wl.resize`.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        *,
        channels_last: bool = False,
    ):
        if (size is None) == (scale_factor is None):
            raise ValueError("Upsample: give either size or scale_factor")
        modes = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear"}
        if mode not in modes:
            raise ValueError(f"Upsample: mode is one of {', '.join(map(repr, modes))}, not {mode!r}")
        self.size: Any = tuple(size) if isinstance(size, (list, tuple)) else size
        self.scale_factor: Any = tuple(scale_factor) if isinstance(scale_factor, (list, tuple)) else scale_factor
        self.align_corners: bool
        self.channels_last: bool
        self.mode: str
        self.mode, self.align_corners, self.channels_last = modes[mode], bool(align_corners), channels_last

    def __call__(self, x: Any) -> Any:
        x = array(x)
        goal: Any = self.size
        if goal is None:
            factors = self.scale_factor if isinstance(self.scale_factor, tuple) else (self.scale_factor,) * (x.ndim - 2)
            end = x.ndim - self.channels_last
            if not factors or end - len(factors) < 0:
                raise wrong_shape(self, "(batch, channels, *spatial)", x.shape)
            exact = [n * f for n, f in zip(x.shape[end - len(factors) : end], factors, strict=True)]
            goal = tuple(round(n) for n in exact)
            if any(abs(n - m) > 1e-6 * m for n, m in zip(exact, goal, strict=True)):
                raise ValueError(
                    f"{place_of(self)}: scale_factor={self.scale_factor} times an input of shape {x.shape} isn't a "
                    "whole number of elements: give size="
                )
        with placed(self):
            return resize(x, goal, self.mode, self.align_corners, channels="last" if self.channels_last else "first")
