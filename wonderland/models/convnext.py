"""ConvNeXt (Liu et al. 2022): a depthwise 7 x 7, then two layers that act on each pixel, wide in the middle.

Names of parameters are torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn


class ConvNeXtBlock(nn.Module):
    """x + scale * (depthwise 7 x 7, layer norm, 4 times as many channels, GELU, back): (..., C, H, W) to the same."""

    def __init__(self, channels: int, scale: float = 1e-6, drop: float = 0.0, dtype: Any = np.float32):
        self.layer_scale: Any = np.full((channels, 1, 1), scale, dtype)
        self.block: Any = nn.Sequential(
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels, dtype=dtype),
            _channels_last,
            nn.LayerNorm(channels, eps=1e-6, dtype=dtype),
            nn.Linear(channels, 4 * channels, dtype=dtype),
            nn.gelu,
            nn.Linear(4 * channels, channels, dtype=dtype),
            _channels_first,
        )
        self.drop: Any = nn.StochasticDepth(drop)

    def __call__(self, x: Any) -> Any:
        return x + self.drop(self.layer_scale * self.block(x))


class ConvNeXt(nn.Module):
    """Images (..., channels, H, W) to logits. `stages` are (channels, blocks); the default is ConvNeXt-Tiny's."""

    def __init__(
        self, stages: Sequence[tuple[int, int]] = ((96, 3), (192, 3), (384, 9), (768, 3)), classes: int = 1000,
        channels: int = 3, patch: int = 4, drop: float = 0.0, scale: float = 1e-6, dtype: Any = np.float32,
    ):  # fmt: skip
        rates = iter(np.linspace(0, drop, sum(count for _, count in stages)).tolist())
        now = stages[0][0]
        layers: list[Any] = [
            nn.Sequential(nn.Conv2d(channels, now, patch, stride=patch, dtype=dtype), ChannelNorm(now, dtype))
        ]
        for width, count in stages:
            if width != now:
                layers.append(nn.Sequential(ChannelNorm(now, dtype), nn.Conv2d(now, width, 2, stride=2, dtype=dtype)))
            layers.append(nn.Sequential(*[ConvNeXtBlock(width, scale, next(rates), dtype) for _ in range(count)]))
            now = width
        self.features: Any = nn.Sequential(*layers)
        self.classifier: Any = nn.Sequential(ChannelNorm(now, dtype), _flatten, nn.Linear(now, classes, dtype=dtype))

    def __call__(self, x: Any) -> Any:
        return self.classifier(self.features(x).mean(axis=(-2, -1), keepdims=True))


class ChannelNorm(nn.Module):
    """Layer norm over the channels of (..., C, H, W), pixel by pixel."""

    def __init__(self, channels: int, dtype: Any = np.float32, eps: float = 1e-6):
        self.bias: Any
        self.weight: Any
        self.weight, self.bias = np.ones(channels, dtype), np.zeros(channels, dtype)
        self.eps = eps

    def __call__(self, x: Any) -> Any:
        centred = x - x.mean(axis=-3, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-3, keepdims=True) + self.eps)
        return scaled * self.weight[:, None, None] + self.bias[:, None, None]


def _channels_last(x: Any) -> Any:
    return np.moveaxis(x, -3, -1)


def _channels_first(x: Any) -> Any:
    return np.moveaxis(x, -1, -3)


def _flatten(x: Any) -> Any:
    return x.reshape(*x.shape[:-3], -1)
