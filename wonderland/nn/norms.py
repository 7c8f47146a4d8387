"""Normalisation of each sample by itself: over its last axes, groups of channels, or each channel. Nothing is mixed
between the samples of a batch, and (running averages of `InstanceNorm` apart) training and evaluation are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import axis_of, floating
from wonderland.nn.batch_norm import RunningNorm
from wonderland.nn.module import Module
from wonderland.nn.moments import along, mask_along, moments, standardized

Shape = Sequence[int] | int


def _trailing(name: str, shape: Shape) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if not sizes or not all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes):
        raise ArgumentError(f"{name}: the shape of what is normalised is one or more positive integers, got {shape!r}")
    return tuple(map(int, sizes))


def _last_axes(name: str, x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if x.shape[max(x.ndim - len(shape), 0) :] != shape:
        raise ValueError(f"{name} normalises the last axes, of shape {shape}, but x has shape {x.shape}")
    return tuple(range(x.ndim - len(shape), x.ndim))


class LayerNorm(Module):
    """Each sample by the mean and variance over its last axes, which have the shape `normalized_shape`.

        y = (x - mu) / sqrt(sigma^2 + eps) * weight + bias,        x (..., *normalized_shape)

    Weight and bias have that shape. `elementwise_affine=False` leaves both out, `bias=False` the bias; as in PyTorch.

    J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, 2016.
    """

    def __init__(
        self, normalized_shape: Shape, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, *,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self.normalized_shape = _trailing("LayerNorm", normalized_shape)
        self.eps = float(eps)
        self.weight = np.ones(self.normalized_shape, dtype) if elementwise_affine else None
        self.bias = np.zeros(self.normalized_shape, dtype) if elementwise_affine and bias else None

    def __call__(self, x: Any) -> Any:
        """x (..., *normalized_shape) to the same shape."""
        x = floating(x, "LayerNorm: x")
        y = standardized(x, moments(x, _last_axes("LayerNorm", x, self.normalized_shape)), self.eps)
        if self.weight is not None:
            y = y * self.weight
        return y if self.bias is None else y + self.bias


class RMSNorm(Module):
    """Each sample by its root mean square over the last axes: nothing is subtracted, and there is no bias.

        y = x / sqrt(mean x^2 + eps) * weight,        x (..., *normalized_shape)

    `eps=None` is the distance of 1 to the next number of x's dtype, as in PyTorch.

    B. Zhang and R. Sennrich, Root mean square layer normalization, 2019.
    """

    def __init__(
        self, normalized_shape: Shape, eps: float | None = None, elementwise_affine: bool = True, *,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self.normalized_shape = _trailing("RMSNorm", normalized_shape)
        self.eps = None if eps is None else float(eps)
        self.weight = np.ones(self.normalized_shape, dtype) if elementwise_affine else None

    def __call__(self, x: Any) -> Any:
        """x (..., *normalized_shape) to the same shape."""
        x = floating(x, "RMSNorm: x")
        axes = _last_axes("RMSNorm", x, self.normalized_shape)
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
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *,
        channels_last: bool = False, dtype: Any = np.float32,
    ):  # fmt: skip
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: {num_channels} channels can't be divided into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = int(num_groups), int(num_channels), float(eps)
        self.channels_last = bool(channels_last)
        self.weight = np.ones(num_channels, dtype) if affine else None
        self.bias = np.zeros(num_channels, dtype) if affine else None

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """x (N, C, *spatial) to the same shape; positions of the mask (N, *spatial) that are False aren't counted."""
        x = floating(x, "GroupNorm: x")
        axis = axis_of(-1 if self.channels_last else 1, x.shape, "GroupNorm: x")
        if x.shape[axis] != self.num_channels:
            raise ValueError(
                f"GroupNorm has {self.num_channels} channels, but x of shape {x.shape} has {x.shape[axis]} "
                f"along axis {axis}"
            )
        grouped = x.reshape(*x.shape[:axis], self.num_groups, -1, *x.shape[axis + 1 :])
        axes = tuple(a for a in range(1, grouped.ndim) if a != axis)
        inside = None if mask is None else mask_along(mask, x.shape, axis, "GroupNorm")
        found = moments(grouped, axes, None if inside is None else np.expand_dims(inside, axis))
        y = standardized(grouped, found, self.eps).reshape(x.shape)
        if self.weight is not None:
            y = y * along(self.weight, axis, x.ndim) + along(self.bias, axis, x.ndim)
        return y if inside is None else np.where(inside, y, 0)


class InstanceStatistics(RunningNorm):
    """What all instance norms are; `rank` is the number of spatial axes, None for all behind batch and channels."""

    rank: int | None = None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, *, channels_last: bool = False, dtype: Any = np.float32,
    ):  # fmt: skip
        self.channels_last = bool(channels_last)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """x (N, C, *spatial) to the same shape; positions of the mask (N, *spatial) that are False aren't counted."""
        name = type(self).__name__
        x = floating(x, f"{name}: x")
        rank = x.ndim - 2 if self.rank is None else self.rank
        if rank < 1 or x.ndim < rank + 1:
            raise ValueError(f"{name} takes x of shape (N, C, *spatial), got {x.shape}")
        axis = self._axis(x, -1 if self.channels_last else -1 - rank)
        spatial = tuple(range(x.ndim - 1 - rank, x.ndim - 1) if self.channels_last else range(x.ndim - rank, x.ndim))
        inside = None if mask is None else mask_along(mask, x.shape, axis, name)
        if self.training or not self.track_running_stats:
            if math.prod(x.shape[a] for a in spatial) < 2:
                raise ValueError(f"{name}: x of shape {x.shape} has one value for each channel, which has no variance")
            found = moments(x, spatial, inside)
            if self.training and self.track_running_stats:
                batch = tuple(a for a in range(x.ndim) if a != axis)
                if self.momentum is None:
                    self.num_batches_tracked = self.num_batches_tracked + 1
                self._move(np.mean(found.mean, axis=batch), np.mean(found.unbiased(), axis=batch))
        else:
            found = self._tracked(axis, x.ndim)
        y = self._scaled(standardized(x, found, self.eps), axis)
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

    rank = 1


class InstanceNorm2d(InstanceStatistics):
    """`InstanceNorm` of images, (N, C, H, W) or (C, H, W); with `channels_last`, of (N, H, W, C) or (H, W, C)."""

    rank = 2


class InstanceNorm3d(InstanceStatistics):
    """`InstanceNorm` of volumes, (N, C, D, H, W) or (C, D, H, W); with `channels_last`, channels at the end."""

    rank = 3
