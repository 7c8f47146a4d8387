"""Locally connected layers: convolutions whose weights aren't shared, but are others at each place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import random
from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, Recipe, fill, recipe, start
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, placed, wrong_shape
from wonderland.numpy.pooling import unfold
from wonderland.numpy.spatial import padding_pairs, per_axis
from wonderland.ops.windows import window_count

Sizes = int | Sequence[int]


class _LocallyConnected(Module):
    rank: int = 0
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        input_size: Sizes | None,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        bias: bool | Init = True,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        rank = self.rank
        self.in_channels: int | None = None
        self.out_channels: int = 0
        with placed(self):
            self.input_size: Any = None if input_size is None else per_axis(input_size, rank, "input_size")
            self.kernel_size: Any = per_axis(kernel_size, rank, "kernel_size")
            self.dilation: Any
            self.stride: Any
            self.stride, self.dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
            self.padding: Any = padding_pairs(padding, rank)
        self.weight = self.bias = None
        sizes = {"in_channels": in_channels, "out_channels": out_channels}
        start(self, sizes, recipe(self, init, bias, key, dtype), known=input_size is not None)

    def _make(self, how: Recipe) -> None:
        inputs: Any = self.input_size
        whole = [n + before + after for n, (before, after) in zip(inputs, self.padding, strict=True)]
        places = tuple(map(window_count, whole, self.kernel_size, self.stride, self.dilation))
        if 0 in places:
            raise ValueError(f"{type(self).__name__}: a kernel of {self.kernel_size} doesn't fit into {inputs}")
        of_weight, of_bias = how.keys(2)
        out, count = self.out_channels, math.prod(places)
        shape: Any = (self.in_channels, *self.kernel_size)
        if how.init is None:
            weight = initialisers.fan_in_uniform(of_weight, (count * out, *shape), how.dtype)
        else:  # each place has the weight of a convolution
            weight = np.stack([how.weight(key, (out, *shape)) for key in random.split(of_weight, count)])
        self.weight: Any = weight.reshape(*places, out, *shape)
        bias = how.bias_of(of_bias, (count * out,), math.prod(shape))
        self.bias: Any = None if bias is None else bias.reshape(*places, out)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.weight)
        rank = self.rank
        if (self.in_channels is None or self.input_size is None) and x.ndim > rank:
            fill(self, in_channels=x.shape[-rank - 1], input_size=tuple(x.shape[-rank:]))
        if x.shape[-rank - 1 :] != (self.in_channels, *(self.input_size or ())):
            raise wrong_shape(self, f"(..., {self.in_channels}, {', '.join(map(str, self.input_size or ()))})", x.shape)
        places, out = self.weight.shape[:rank], self.out_channels
        lead = x.shape[: -rank - 1]
        batch = x.reshape(-1, *x.shape[-rank - 1 :])
        # (batch, in * kernel, places)
        patches = unfold(batch, self.kernel_size, self.dilation, self.padding, self.stride)
        weight = self.weight.reshape(math.prod(places), out, -1)
        y = patches.transpose(2, 0, 1) @ weight.transpose(0, 2, 1)  # a product for each place: (places, batch, out)
        if self.bias is not None:
            y = y + self.bias.reshape(-1, 1, out)
        return y.transpose(1, 2, 0).reshape(*lead, out, *places)


class LocallyConnected1d(_LocallyConnected):
    """y_op = b_po + sum_ck w_pock x_c,p+k, at each place p: (..., in, n) becomes (..., out, m).

    `weight` is (m, out, in, kernel) and `bias` (m, out): those of a `Conv1d` for each place, whose arguments these are.
    `input_size` is n; it and `in_channels` are filled by `nn.build`, if they are None.
    """

    rank = 1


class LocallyConnected2d(_LocallyConnected):
    """y_op = b_po + sum_ck w_pock x_c,p+k, at each place p: (..., in, h, w) becomes (..., out, h', w').

    `weight` is (h', w', out, in, *kernel) and `bias` (h', w', out): those of a `Conv2d` for each place. `input_size` is
    (h, w); it and `in_channels` are filled by `nn.build`, if they are None.
    """

    rank = 2
