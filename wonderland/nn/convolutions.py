"""Convolutions of sequences, images and volumes, and their transposes, with weights. `wl.conv` computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.nn.building import Init, Recipe, fill, recipe, start
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, placed, wrong_shape
from wonderland.numpy.convolution import conv, conv_transpose
from wonderland.numpy.spatial import padding_pairs, per_axis

Sizes = int | Sequence[int]
Padding = str | int | Sequence[Any]
MODES = ("zeros", "circular", "reflect", "replicate")


class _Filter(Module):
    """What convolutions and their transposes have in common: channels, a kernel, how it moves."""

    rank: int = 0
    weight: Any
    bias: Any

    def _begin(
        self, kernel_size: Sizes, stride: Sizes, dilation: Sizes, groups: int, channels_last: bool
    ) -> None:  # fmt: skip
        name, rank = type(self).__name__, self.rank
        self.in_channels: Any
        self.out_channels: Any
        self.in_channels, self.out_channels = None, 0
        self.kernel_size: Any = _axes(name, kernel_size, rank, "kernel_size")
        self.stride: Any = _axes(name, stride, rank, "stride")
        self.dilation: Any = _axes(name, dilation, rank, "dilation")
        self.groups: Any
        (self.groups,) = _axes(name, groups, 1, "groups")
        self.channels_last: bool = bool(channels_last)
        self.weight = self.bias = None

    def _start(self, in_channels: Any, out_channels: Any, how: Recipe) -> None:
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if isinstance(count, int) and count % self.groups:
                raise ValueError(f"{type(self).__name__}: groups={self.groups} must divide {name}={count}")
        start(self, {"in_channels": in_channels, "out_channels": out_channels}, how)

    def _shaped(self, how: Recipe, first: int, second: int) -> None:
        """Draw a weight (first, second / groups, *kernel), and the bias of its fan."""
        of_weight, of_bias = how.keys(2)
        shape = (first, second // self.groups, *self.kernel_size)
        self.weight: Any = how.weight(of_weight, shape)
        self.bias: Any = how.bias_of(of_bias, (self.out_channels,), int(np.prod(shape[1:])))

    def _image(self, x: Any) -> Any:
        """The input, with the axes and channels that the layer takes."""
        x = numbers(self, x, self.weight)
        axis = -1 if self.channels_last else -self.rank - 1
        if self.in_channels is None and x.ndim > self.rank:
            fill(self, in_channels=x.shape[axis])
        if x.ndim <= self.rank or x.shape[axis] != self.in_channels:
            spatial = ", ".join(("length",) if self.rank == 1 else ("depth", "height", "width")[-self.rank :])
            shown = (
                f"(..., {spatial}, {self.in_channels})"
                if self.channels_last
                else f"(..., {self.in_channels}, {spatial})"
            )
            raise wrong_shape(self, shown, x.shape)
        return x


class _Convolution(_Filter):
    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool | Init = True,
        padding_mode: str = "zeros",
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
        channels_last: bool = False,
    ):
        self._begin(kernel_size, stride, dilation, groups, channels_last)
        name = type(self).__name__
        if isinstance(padding, str):
            if padding not in ("same", "valid", "causal"):
                raise ValueError(f"{name}: padding is 'same', 'valid', 'causal' or numbers, not {padding!r}")
            if padding == "same" and self.stride != (1,) * self.rank:
                raise ValueError(f"{name}: padding='same' needs stride=1, not {self.stride}; give numbers")
            self.padding: Any = padding
        else:
            self.padding: Any = _pairs(name, padding, self.rank)
        if padding_mode not in MODES:
            raise ValueError(f"{name}: padding_mode is one of {', '.join(map(repr, MODES))}, not {padding_mode!r}")
        self.padding_mode: Any = padding_mode
        self._start(in_channels, out_channels, recipe(self, init, bias, key, dtype))

    def _make(self, how: Recipe) -> None:
        if self.in_channels % self.groups:  # type: ignore[operator]
            raise ValueError(f"{type(self).__name__}: groups={self.groups} must divide in_channels={self.in_channels}")
        self._shaped(how, self.out_channels, self.in_channels)  # type: ignore[arg-type]

    def __call__(self, x: Any) -> Any:
        x = self._image(x)
        with placed(self):
            return conv(
                x, self.weight, self.stride, self.padding, self.dilation, self.groups, bias=self.bias,
                padding_mode=self.padding_mode, channels="last" if self.channels_last else "first",
            )  # fmt: skip


class Conv1d(_Convolution):
    """y_o = b_o + sum_c w_oc * x_c, * the correlation along one axis: (..., in, n) becomes (..., out, m).

    `weight` is (out, in / groups, kernel), `bias` (out,), drawn as PyTorch's, whose arguments these are. `padding` is
    also "same", "valid" or "causal" (all before), or a pair (before, after) for each axis; `channels_last=True` takes
    (..., n, in). m = (n + padding - dilation (kernel - 1) - 1) // stride + 1. `nn.build` fills `in_channels=None`.
    """

    rank = 1


class Conv2d(_Convolution):
    """y_o = b_o + sum_c w_oc * x_c, * the correlation of images: (..., in, h, w) becomes (..., out, h', w').

    `weight` is (out, in / groups, *kernel). The arguments are those of `Conv1d`, one number for both axes, or two.
    """

    rank = 2


class Conv3d(_Convolution):
    """y_o = b_o + sum_c w_oc * x_c, * the correlation of volumes: (..., in, d, h, w) becomes (..., out, d', h', w').

    `weight` is (out, in / groups, *kernel). The arguments are those of `Conv1d`, one number for all axes, or three.
    """

    rank = 3


class _TransposedConvolution(_Filter):
    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool | Init = True,
        dilation: Sizes = 1,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
        channels_last: bool = False,
    ):
        self._begin(kernel_size, stride, dilation, groups, channels_last)
        name = type(self).__name__
        self.padding: Any = _pairs(name, padding, self.rank)
        self.output_padding: Any = _axes(name, output_padding, self.rank, "output_padding", 0)
        self._start(in_channels, out_channels, recipe(self, init, bias, key, dtype))

    def _make(self, how: Recipe) -> None:
        if self.in_channels % self.groups:  # type: ignore[operator]
            raise ValueError(f"{type(self).__name__}: groups={self.groups} must divide in_channels={self.in_channels}")
        self._shaped(how, self.in_channels, self.out_channels)  # type: ignore[arg-type]

    def __call__(self, x: Any) -> Any:
        x = self._image(x)
        with placed(self):
            return conv_transpose(
                x, self.weight, self.stride, self.padding, self.output_padding, self.groups, self.dilation,
                bias=self.bias, channels="last" if self.channels_last else "first",
            )  # fmt: skip


class ConvTranspose1d(_TransposedConvolution):
    """The transpose of a `Conv1d` of the same arguments, and a bias: (..., in, n) becomes (..., out, m).

    `weight` is (in, out / groups, kernel), as in PyTorch, whose arguments these are;
    m = (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
    """

    rank = 1


class ConvTranspose2d(_TransposedConvolution):
    """The transpose of a `Conv2d` of the same arguments, and a bias: (..., in, h, w) becomes (..., out, h', w').

    `weight` is (in, out / groups, *kernel). The arguments are those of `ConvTranspose1d`.
    """

    rank = 2


class ConvTranspose3d(_TransposedConvolution):
    """The transpose of a `Conv3d` of the same arguments, and a bias: (..., in, d, h, w) becomes (..., out, d', h', w').

    `weight` is (in, out / groups, *kernel). The arguments are those of `ConvTranspose1d`.
    """

    rank = 3


def _axes(layer: str, value: Any, rank: int, name: str, least: int = 1) -> tuple[int, ...]:
    try:
        return per_axis(value, rank, name, least)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{layer}: {error}") from None


def _pairs(layer: str, padding: Any, rank: int) -> Any:
    try:
        return padding_pairs(padding, rank)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{layer}: {error}") from None
