"""LeNet-5: the convolutional network of LeCun et al. (1998), with ReLU and max-pooling as it is used today."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn


class LeNet(nn.Module):
    """Images (..., channels, size, size) to logits (..., classes). `size` is 28 (MNIST) or 32 (the paper's)."""

    def __init__(self, classes: int = 10, channels: int = 1, size: int = 28, dtype: Any = np.float32):
        padding = 2 if size == 28 else 0  # the paper's images are 32 x 32
        side = ((size + 2 * padding - 4) // 2 - 4) // 2
        self.features: Any = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=padding, dtype=dtype), nn.relu, nn.MaxPool2d(2),  # (B, 6, 14, 14)
            nn.Conv2d(6, 16, 5, dtype=dtype), nn.relu, nn.MaxPool2d(2),                         # (B, 16, 5, 5)
        )  # fmt: skip
        self.classifier: Any = nn.Sequential(
            nn.Flatten(-3), nn.Linear(16 * side * side, 120, dtype=dtype), nn.relu,
            nn.Linear(120, 84, dtype=dtype), nn.relu, nn.Linear(84, classes, dtype=dtype),
        )  # fmt: skip

    def __call__(self, x: Any) -> Any:
        return self.classifier(self.features(x))
