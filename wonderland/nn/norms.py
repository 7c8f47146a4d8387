"""Normalisation of each sample by itself: over its last axes, groups of channels, or each channel. Nothing is mixed
between the samples of a batch, and (running averages of `InstanceNorm` apart) training and evaluation are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.nn.arguments import array, axis_of
from wonderland.nn.batch_norm import RunningNorm
from wonderland.nn.building import Recipe, fill, positive, recipe, start
from wonderland.nn.module import Module
from wonderland.nn.moments import mask_along, moments, pooled, real_numbers, standardized
from wonderland.nn.placing import place_of, placed, wrong_channels, wrong_shape

Shape = Sequence[int] | int


class TrailingNorm(Module):
    """A layer that normalises the last axes, and has parameters of their shape; None is filled with the last one's."""

    def _begin(self, normalized_shape: Shape | None, eps: float | None, scale: bool, shift: bool, dtype: Any) -> None:
        self.normalized_shape: tuple[int, ...] | None = None
        self.eps: float | None = None if eps is None else float(eps)
        self.elementwise_affine: bool = bool(scale)
        self.weight: Any = None
        self.bias: Any = None
        how = recipe(self, None, bool(shift), None, dtype)
        if normalized_shape is None:
            self._recipe = how
            return
        sizes = tuple(normalized_shape) if isinstance(normalized_shape, Sequence) else (normalized_shape,)
        self.normalized_shape = tuple(positive(n, f"{type(self).__name__}: normalized_shape") for n in sizes)
        self._make(how)

    def _make(self, how: Recipe) -> None:
        if self.elementwise_affine:
            self.weight = np.ones(self.normalized_shape, how.dtype)  # type: ignore[arg-type]
            self.bias = np.zeros(self.normalized_shape, how.dtype) if how.bias else None  # type: ignore[arg-type]

    def _checked(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """The input, and the axes that are normalised."""
        x = real_numbers(self, x, self.weight)
        if self.normalized_shape is None and x.ndim:
            fill(self, normalized_shape=x.shape[-1:])
        shape: tuple[int, ...] = self.normalized_shape  # type: ignore[assignment]
        if x.shape[max(x.ndim - len(shape), 0) :] != shape:
            raise wrong_shape(self, f"(..., {', '.join(map(str, shape))})", x.shape)
        return x, tuple(range(x.ndim - len(shape), x.ndim))


class LayerNorm(TrailingNorm):
    """Each sample by the mean and variance over its last axes, which have the shape `normalized_shape`.

        y = (x - mu) / sqrt(sigma^2 + eps) * weight + bias,        x (..., *normalized_shape)

    Weight and bias have that shape. `elementwise_affine=False` leaves both out, `bias=False` the bias; as in PyTorch.

    J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, 2016.
    """

    def __init__(
        self, normalized_shape: Shape | None, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, *,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self._begin(normalized_shape, eps, elementwise_affine, bias, dtype)

    def __call__(self, x: Any) -> Any:
        """x (..., *normalized_shape) to the same shape."""
        x, axes = self._checked(x)
        y = standardized(x, moments(x, axes), self.eps)  # type: ignore[arg-type]
        if self.weight is not None:
            y = y * self.weight
        return y if self.bias is None else y + self.bias


class RMSNorm(TrailingNorm):
    """Each sample by its root mean square over the last axes: nothing is subtracted, and there is no bias.

        y = x / sqrt(mean x^2 + eps) * weight,        x (..., *normalized_shape)

    `eps=None` is the distance of 1 to the next number of x's dtype, as in PyTorch.

    B. Zhang and R. Sennrich, Root mean square layer normalization, 2019.
    """

    def __init__(
        self, normalized_shape: Shape | None, eps: float | None = None, elementwise_affine: bool = True, *,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self._begin(normalized_shape, eps, elementwise_affine, False, dtype)

    def __call__(self, x: Any) -> Any:
        """x (..., *normalized_shape) to the same shape."""
        x, axes = self._checked(x)
        eps = float(np.finfo(x.dtype).eps) if self.eps is None else self.eps
        y = x * (1 / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + eps))
        return y if self.weight is None else y * self.weight


class GroupNorm(Module):
    """Each sample's channels in `num_groups` groups, each by its mean and variance over channels and positions.

        y = (x - mu) / sqrt(sigma^2 + eps) * weight + bias,        x (N, C, *spatial)

    Weight and bias are one number for each of `num_channels`. With one group this is layer normalisation of the whole
    sample, with as many as channels instance normalisation. `channels_last`: x is (N, *spatial, C).

    Y. Wu and K. He, Group normalization, 2018.
    """

    def __init__(
        self, num_groups: int, num_channels: int | None, eps: float = 1e-5, affine: bool = True, *,
        channels_last: bool = False, dtype: Any = np.float32,
    ):  # fmt: skip
        self.eps: float
        self.num_groups: int
        self.num_groups, self.eps = positive(num_groups, "GroupNorm: num_groups"), float(eps)
        self.num_channels: int | None = None
        self.affine: bool
        self.channels_last: bool
        self.affine, self.channels_last = bool(affine), bool(channels_last)
        self.weight: Any = None
        self.bias: Any = None
        start(self, {"num_channels": num_channels}, recipe(self, None, affine, None, dtype))

    def _make(self, how: Recipe) -> None:
        size: int = self.num_channels  # type: ignore[assignment]
        if size % self.num_groups:
            raise ValueError(f"GroupNorm: {size} channels can't be divided into {self.num_groups} groups")
        if self.affine:
            self.weight, self.bias = np.ones(size, how.dtype), np.zeros(size, how.dtype)

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """x (N, C, *spatial) to the same shape; positions of the mask (N, *spatial) that are False aren't counted."""
        x = real_numbers(self, x, self.weight)
        with placed(self):
            axis = axis_of(-1 if self.channels_last else 1, x.shape, "x")
        if self.num_channels is None:
            fill(self, num_channels=x.shape[axis])
        if x.shape[axis] != self.num_channels:
            raise wrong_channels(self, self.num_channels, axis, x.shape)
        inside = None if mask is None else mask_along(mask, x.shape, axis, "GroupNorm")
        spatial = tuple(a for a in range(1, x.ndim) if a != axis)
        found = pooled(moments(x, spatial, inside), axis, self.num_groups)
        channels = (-1, *(1,) * (x.ndim - axis - 1))
        factors = [] if self.weight is None else [self.weight.reshape(channels), self.bias.reshape(channels)]
        y = standardized(x, found, self.eps, *factors)
        return y if inside is None else np.where(inside, y, 0)


class InstanceStatistics(RunningNorm):
    """What all instance norms are; `rank` is the number of spatial axes, None for all behind batch and channels."""

    rank: int | None = None

    def __init__(
        self, num_features: int | None, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, *, channels_last: bool = False, dtype: Any = np.float32,
    ):  # fmt: skip
        self.channels_last: bool = bool(channels_last)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """x (N, C, *spatial) to the same shape; positions of the mask (N, *spatial) that are False aren't counted."""
        name = type(self).__name__
        x = array(x)
        rank = x.ndim - 2 if self.rank is None else self.rank
        if rank < 1 or x.ndim < rank + 1:
            raise wrong_shape(self, "(N, C, *spatial)", x.shape)
        x, axis = self._checked(x, -1 if self.channels_last else -1 - rank)
        spatial = tuple(range(x.ndim - 1 - rank, x.ndim - 1) if self.channels_last else range(x.ndim - rank, x.ndim))
        inside = None if mask is None else mask_along(mask, x.shape, axis, name)
        if self.training or not self.track_running_stats:
            if math.prod(x.shape[a] for a in spatial) < 2:
                raise ValueError(
                    f"{place_of(self)}: an input of shape {x.shape} has one value for each channel of a sample, which "
                    "has no variance"
                )
            found = moments(x, spatial, inside)
            if self.training and self.track_running_stats:
                batch = tuple(a for a in range(x.ndim) if a != axis)
                if self.momentum is None:
                    self.num_batches_tracked: Any = self.num_batches_tracked + 1
                self._move(np.mean(found.mean, axis=batch), np.mean(found.unbiased(), axis=batch))
        else:
            found = self._tracked(axis, x.ndim)
        y = self._scaled(x, found, axis)
        return y if inside is None else np.where(inside, y, 0)


class InstanceNorm(InstanceStatistics):
    """Each channel of each sample by its mean and variance over all positions.

        y = (x - mu) / sqrt(sigma^2 + eps) * weight + bias,        x (N, C, *spatial)

    PyTorch's, with its defaults: no weight and bias (`affine`), no running averages; with `track_running_stats`, in
    evaluation mode the averages of training are used. `channels_last`: x is (N, *spatial, C).

    D. Ulyanov, A. Vedaldi and V. Lempitsky, Instance normalization, 2016.
    """


class InstanceNorm1d(InstanceStatistics):
    """`InstanceNorm` of (N, C, L) or (C, L); with `channels_last`, of (N, L, C) or (L, C)."""

    rank: int = 1


class InstanceNorm2d(InstanceStatistics):
    """`InstanceNorm` of images, (N, C, H, W) or (C, H, W); with `channels_last`, of (N, H, W, C) or (H, W, C)."""

    rank: int = 2


class InstanceNorm3d(InstanceStatistics):
    """`InstanceNorm` of volumes, (N, C, D, H, W) or (C, D, H, W); with `channels_last`, channels at the end."""

    rank: int = 3
