"""MobileNet (Howard et al. 2017): depthwise separable convolutions, s*s*c + c*c' weights instead of s*s*c*c'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn


def separable(channels: int, out: int, stride: int = 1, kernel: int = 3, dtype: Any = np.float32) -> Any:
    """A depthwise convolution mixes pixels, then one of 1 x 1 mixes channels; each with batch norm and ReLU."""
    across = nn.Conv2d(
        channels, channels, kernel, stride=stride, padding=kernel // 2, groups=channels, bias=False, dtype=dtype
    )
    return nn.Sequential(
        across, nn.BatchNorm2d(channels, dtype=dtype), nn.relu,
        nn.Conv2d(channels, out, 1, bias=False, dtype=dtype), nn.BatchNorm2d(out, dtype=dtype), nn.relu,
    )  # fmt: skip


class MobileNet(nn.Module):
    """Images (..., channels, H, W) to logits. `blocks` are (output channels, stride); `width` scales all channels."""

    def __init__(
        self, classes: int = 10, channels: int = 3, width: float = 1.0,
        blocks: Sequence[tuple[int, int]] = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)),
        dtype: Any = np.float32,
    ):  # fmt: skip
        now = int(32 * width)
        layers = [
            nn.Conv2d(channels, now, 3, padding=1, bias=False, dtype=dtype),
            nn.BatchNorm2d(now, dtype=dtype),
            nn.relu,
        ]
        for out, stride in blocks:
            layers.append(separable(now, int(out * width), stride, dtype=dtype))
            now = int(out * width)
        self.features: Any = nn.Sequential(*layers)
        self.classifier: Any = nn.Linear(now, classes, dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return self.classifier(self.features(x).mean(axis=(-2, -1)))
