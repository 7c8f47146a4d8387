"""Batch normalisation: each channel by the mean and variance that it has in the batch, or had in training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.nn.arguments import array, axis_of, demand
from wonderland.nn.building import Recipe, fill, recipe, start
from wonderland.nn.module import Buffer, Module
from wonderland.nn.moments import Moments, along, mask_along, moments, real_numbers, reduction, standardized
from wonderland.nn.placing import place_of, placed, wrong_channels, wrong_shape
from wonderland.transform.derivatives import stop_gradient


class RunningNorm(Module):
    """A layer with a weight and a bias for each channel, and averages of means and variances over batches."""

    running_mean: Any
    running_var: Any
    num_batches_tracked: Any
    _sums: Any  # what `nn.update_statistics` adds up while it runs: count, mean, sum of squared deviations
    _ranks: int = 0  # the number of the sum over ranks, while `nn.synchronize` is in force

    def __init__(
        self, channels: int | None, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
        dtype: Any,
    ):  # fmt: skip
        self.channels: int | None = None
        self.eps: float = float(eps)
        self.momentum: float | None = None if momentum is None else float(momentum)
        self.affine: bool = bool(affine)
        self.track_running_stats: bool = bool(track_running_stats)
        self.weight: Any = None
        self.bias: Any = None
        start(self, {"channels": channels}, recipe(self, None, affine, None, dtype))

    def _make(self, how: Recipe) -> None:
        size, dtype = self.channels, how.dtype
        if self.affine:
            self.weight, self.bias = np.ones(size, dtype), np.zeros(size, dtype)  # type: ignore[arg-type]
        if self.track_running_stats:
            self.running_mean = Buffer(np.zeros(size, dtype))  # type: ignore[arg-type]
            self.running_var = Buffer(np.ones(size, dtype))  # type: ignore[arg-type]
            self.num_batches_tracked = Buffer(np.zeros((), np.int64))

    def reset_running_stats(self) -> None:
        """Averages as they were before training: means 0, variances 1, and no batches."""
        if self.track_running_stats:
            self.running_mean, self.running_var, self.num_batches_tracked = (
                np.zeros_like(self.running_mean), np.ones_like(self.running_var), np.zeros((), np.int64),
            )  # fmt: skip

    def _checked(self, x: Any, axis: int) -> tuple[Any, int]:
        """The input and the axis of its channels, counted from the front."""
        x = real_numbers(self, x, self.weight)
        with placed(self):
            axis = axis_of(axis, x.shape, "x")
        if self.channels is None:
            fill(self, channels=x.shape[axis])
        if x.shape[axis] != self.channels:
            raise wrong_channels(self, self.channels, axis, x.shape)
        return x, axis

    def _scaled(self, x: Any, found: Moments, axis: int) -> Any:
        if self.weight is None:
            return standardized(x, found, self.eps)
        return standardized(x, found, self.eps, along(self.weight, axis, x.ndim), along(self.bias, axis, x.ndim))

    def _tracked(self, axis: int, ndim: int) -> Moments:
        return Moments(along(self.running_mean, axis, ndim), along(self.running_var, axis, ndim), 0)

    def _move(self, mean: Any, variance: Any) -> None:
        """The running averages, one batch further."""
        dtype = self.running_mean.dtype
        factor = self.momentum
        if factor is None:
            factor = 1 / self.num_batches_tracked.astype(dtype)
        mean, variance = stop_gradient((mean.astype(dtype), variance.astype(dtype)))
        self.running_mean = (1 - factor) * self.running_mean + factor * mean.reshape(-1)
        self.running_var = (1 - factor) * self.running_var + factor * variance.reshape(-1)


class BatchStatistics(RunningNorm):
    """What all batch norms are; `channel_axis` says where the channels of an array are."""

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """x of any shape with its channels on one axis; the result has its shape.

        With a `mask`, of the shape of x without the channels, positions that are False aren't counted, and are 0 in the
        result.
        """
        x = array(x)
        x, axis = self._checked(x, self.channel_axis(x))
        if mask is not None:
            mask = mask_along(mask, x.shape, axis, type(self).__name__)
        if self.training or not self.track_running_stats:
            found = self._statistics(x, axis, mask)
        else:
            found = self._tracked(axis, x.ndim)
        y = self._scaled(x, found, axis)
        return y if mask is None else np.where(mask, y, 0)

    def channel_axis(self, x: Any) -> int:
        """The axis of x that has the channels."""
        raise NotImplementedError

    def _statistics(self, x: Any, axis: int, mask: Any) -> Moments:
        others = tuple(a for a in range(x.ndim) if a != axis)
        if not self._ranks and math.prod(x.shape[a] for a in others) < 2:
            raise ValueError(
                f"{place_of(self)}: an input of shape {x.shape} has {math.prod(x.shape[a] for a in others)} value for "
                "each channel, which has no variance. In training give it larger batches (drop a last batch of 1), or "
                "call model.eval()."
            )
        found = moments(x, others, mask, reduction(self._ranks))
        if not isinstance(found.count, float):
            demand(found.count > 1, "BatchNorm: a channel has {} values, which have no variance", found.count)
        if self.training and self.track_running_stats:
            self.num_batches_tracked: Any = self.num_batches_tracked + 1
            self._move(found.mean, found.unbiased())
            if "_sums" in vars(self):
                self._add_up(found)
        return found

    def _add_up(self, found: Moments) -> None:
        """Join the batch to all before: count, mean and sum of squared deviations (Chan, Golub and LeVeque, 1983)."""
        count, mean, squares = self._sums
        new_mean, new_variance = (a.reshape(-1).astype(np.float64) for a in stop_gradient((found.mean, found.variance)))
        new = np.asarray(found.count, np.float64) if isinstance(found.count, float) else found.count.reshape(-1)
        total = count + new
        shift = new_mean - mean
        part = new / np.maximum(total, 1)
        self._sums = np.stack([total, mean + shift * part, squares + new_variance * new + shift * shift * count * part])


class BatchNorm(BatchStatistics):
    """Batch normalisation of an array with `channels` along `axis`; all other axes together are the batch.

        y = (x - mu) / sqrt(sigma^2 + eps) * weight + bias

    In training mode mu and sigma^2 are mean and variance (divided by n) of each channel in the batch, and the buffers
    `running_mean` and `running_var` move towards them: r <- (1 - momentum) r + momentum s, the variance divided by
    n - 1. With `momentum=None` they are the averages of all batches. In evaluation mode mu and sigma^2 are these
    buffers; without `track_running_stats` there are none, and batches are normalised by themselves. One value for each
    channel raises in training. `affine=False` leaves weight and bias out. All is as in PyTorch. `channels=None` is
    filled by `nn.build`.

    S. Ioffe and C. Szegedy, Batch normalization, 2015.
    """

    def __init__(
        self, channels: int | None, axis: int = 1, *, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, dtype: Any = np.float32,
    ):  # fmt: skip
        self.axis: int = int(axis)
        super().__init__(channels, eps, momentum, affine, track_running_stats, dtype)

    def channel_axis(self, x: Any) -> int:
        """The axis of x that has the channels."""
        return self.axis


class BatchImages(BatchStatistics):
    """What BatchNorm1d, 2d and 3d are: PyTorch's arguments, and a number of spatial axes."""

    rank: int = 0

    def __init__(
        self, num_features: int | None, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, *, channels_last: bool = False, dtype: Any = np.float32,
    ):  # fmt: skip
        self.channels_last: bool = bool(channels_last)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def channel_axis(self, x: Any) -> int:
        """The axis of x that has the channels."""
        plain = self.rank == 1 and x.ndim == 2  # (batch, channels)
        if x.ndim < self.rank + 2 and not plain:
            spatial = "DHW"[3 - self.rank :] if self.rank > 1 else "L"
            parts = ["N", *spatial, "C"] if self.channels_last else ["N", "C", *spatial]
            raise wrong_shape(self, f"({', '.join(parts)}){' or (N, C)' * (self.rank == 1)}", x.shape)
        return -1 if self.channels_last or plain else -1 - self.rank


class BatchNorm1d(BatchImages):
    """`BatchNorm` of (N, C) or (N, C, L); with `channels_last`, of (N, L, C)."""

    rank = 1


class BatchNorm2d(BatchImages):
    """`BatchNorm` of images (N, C, H, W); with `channels_last`, of (N, H, W, C). More leading axes are batches, too."""

    rank = 2


class BatchNorm3d(BatchImages):
    """`BatchNorm` of volumes (N, C, D, H, W); with `channels_last`, of (N, D, H, W, C)."""

    rank = 3
