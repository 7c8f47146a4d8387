"""VGG (Simonyan and Zisserman 2015): blocks of 3 x 3 convolutions, each followed by pooling; channels double."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn


def vgg_block(channels: int, out: int, layers: int = 2, norm: bool = False, dtype: Any = np.float32) -> list[Any]:
    """`layers` convolutions 3 x 3 that keep the size, then max-pooling that halves it: (C, H, W) to (out, H/2, W/2)."""
    block: list[Any] = []
    for i in range(layers):
        block += [nn.Conv2d(channels if i == 0 else out, out, 3, padding=1, dtype=dtype)]
        block += [nn.BatchNorm2d(out, dtype=dtype), nn.ReLU()] if norm else [nn.ReLU()]
    return [*block, nn.MaxPool2d(2)]


class VGG(nn.Module):
    """Images (..., channels, H, W) to logits. `blocks` are (layers, channels) of each block.

    The default is VGG-11's; torchvision's weights load with `pooled=7, hidden=4096`: its names are `features.N`,
    `classifier.N`.
    """

    def __init__(
        self, blocks: Sequence[tuple[int, int]] = ((1, 64), (1, 128), (2, 256), (2, 512), (2, 512)), classes: int = 10,
        channels: int = 3, hidden: int = 512, pooled: int = 1, norm: bool = False, dropout: float = 0.5,
        dtype: Any = np.float32,
    ):  # fmt: skip
        layers: list[Any] = []
        for count, out in blocks:
            layers += vgg_block(channels, out, count, norm, dtype)
            channels = out
        self.features: Any = nn.Sequential(*layers)
        self.avgpool: Any = nn.AdaptiveAvgPool2d(pooled)
        self.classifier: Any = nn.Sequential(
            nn.Linear(channels * pooled**2, hidden, dtype=dtype), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, hidden, dtype=dtype), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, classes, dtype=dtype),
        )  # fmt: skip

    def __call__(self, x: Any) -> Any:
        x = self.avgpool(self.features(x))  # (..., C, pooled, pooled)
        return self.classifier(x.reshape(*x.shape[:-3], -1))
