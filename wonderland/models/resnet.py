"""Residual networks (He et al. 2016) and ResNeXt (Xie et al. 2017): h = ReLU(x + F(x)), or pre-activated h = x + F(x).

Names of parameters are torchvision's, so its weights load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn


class BasicBlock(nn.Module):
    """Two convolutions 3 x 3. `drop` is the probability that training leaves the branch out (stochastic depth)."""

    expansion = 1

    def __init__(
        self, channels: int, width: int, stride: int = 1, groups: int = 1, base: int = 64, drop: float = 0.0,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self.conv1: Any = _conv(channels, width, 3, stride, dtype=dtype)
        self.bn1: Any = nn.BatchNorm2d(width, dtype=dtype)
        self.conv2: Any = _conv(width, width, 3, dtype=dtype)
        self.bn2: Any = nn.BatchNorm2d(width, dtype=dtype)
        self.downsample: Any = _shortcut(channels, width, stride, dtype)
        self.drop: Any = nn.StochasticDepth(drop)

    def __call__(self, x: Any) -> Any:
        h = nn.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return nn.relu(_skip(self.downsample, x) + self.drop(h))


class Bottleneck(nn.Module):
    """1 x 1 to fewer channels, 3 x 3 (in groups: ResNeXt), 1 x 1 to four times as many."""

    expansion = 4

    def __init__(
        self, channels: int, width: int, stride: int = 1, groups: int = 1, base: int = 64, drop: float = 0.0,
        dtype: Any = np.float32,
    ):  # fmt: skip
        inner, out = int(width * (base / 64)) * groups, 4 * width
        self.conv1: Any = _conv(channels, inner, 1, dtype=dtype)
        self.bn1: Any = nn.BatchNorm2d(inner, dtype=dtype)
        self.conv2: Any = _conv(inner, inner, 3, stride, groups, dtype)
        self.bn2: Any = nn.BatchNorm2d(inner, dtype=dtype)
        self.conv3: Any = _conv(inner, out, 1, dtype=dtype)
        self.bn3: Any = nn.BatchNorm2d(out, dtype=dtype)
        self.downsample: Any = _shortcut(channels, out, stride, dtype)
        self.drop: Any = nn.StochasticDepth(drop)

    def __call__(self, x: Any) -> Any:
        h = nn.relu(self.bn1(self.conv1(x)))
        h = nn.relu(self.bn2(self.conv2(h)))
        return nn.relu(_skip(self.downsample, x) + self.drop(self.bn3(self.conv3(h))))


class PreActivation(nn.Module):
    """Normalisation and ReLU before each convolution; the sum isn't touched (He et al. 2016b)."""

    expansion = 1

    def __init__(
        self, channels: int, width: int, stride: int = 1, groups: int = 1, base: int = 64, drop: float = 0.0,
        dtype: Any = np.float32,
    ):  # fmt: skip
        self.bn1: Any = nn.BatchNorm2d(channels, dtype=dtype)
        self.conv1: Any = _conv(channels, width, 3, stride, dtype=dtype)
        self.bn2: Any = nn.BatchNorm2d(width, dtype=dtype)
        self.conv2: Any = _conv(width, width, 3, dtype=dtype)
        change = stride != 1 or channels != width
        self.downsample: Any | None = _conv(channels, width, 1, stride, dtype=dtype) if change else None
        self.drop: Any = nn.StochasticDepth(drop)

    def __call__(self, x: Any) -> Any:
        h = nn.relu(self.bn1(x))
        x = x if self.downsample is None else self.downsample(h)
        h = self.conv1(h)
        return x + self.drop(self.conv2(nn.relu(self.bn2(h))))


class ResNet(nn.Module):
    """Images (..., channels, H, W) to logits (..., classes).

    `layers` are the blocks of each of the stages, whose channels double and whose sizes halve. `stem="small"` is for
    images of 32 x 32: a convolution 3 x 3 without pooling; "large" is the paper's, 7 x 7 with stride 2, then pooling.
    `drop` is the last block's probability of stochastic depth; it grows linearly from 0.
    """

    def __init__(
        self, block: Any, layers: Sequence[int], classes: int = 1000, channels: int = 3, stem: str = "large",
        groups: int = 1, base: int = 64, width: int = 64, drop: float = 0.0, dtype: Any = np.float32,
    ):  # fmt: skip
        if stem not in ("large", "small"):
            raise ValueError(f'stem is "large" or "small", got {stem!r}')
        kernel, stride, padding = (7, 2, 3) if stem == "large" else (3, 1, 1)
        self.conv1: Any = nn.Conv2d(channels, width, kernel, stride=stride, padding=padding, bias=False, dtype=dtype)
        self.bn1: Any = nn.BatchNorm2d(width, dtype=dtype)
        self.pool: Any | None = nn.MaxPool2d(3, stride=2, padding=1) if stem == "large" else None
        rates, now = iter(np.linspace(0, drop, sum(layers)).tolist()), width
        for stage, count in enumerate(layers):
            blocks = []
            for i in range(count):
                step = 2 if stage > 0 and i == 0 else 1
                blocks.append(block(now, width * 2**stage, step, groups, base, next(rates), dtype))
                now = width * 2**stage * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages: int = len(layers)
        self.norm: Any | None = nn.BatchNorm2d(now, dtype=dtype) if block is PreActivation else None
        self.fc: Any = nn.Linear(now, classes, dtype=dtype)

    def __call__(self, x: Any) -> Any:
        x = nn.relu(self.bn1(self.conv1(x)))
        x = x if self.pool is None else self.pool(x)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)  # (..., width * 2**stage * expansion, H / 2**stage, W / 2**stage)
        x = x if self.norm is None else nn.relu(self.norm(x))
        return self.fc(x.mean(axis=(-2, -1)))


def resnet18(**options: Any) -> ResNet:
    """Two basic blocks a stage; options are `ResNet`'s."""
    return ResNet(BasicBlock, (2, 2, 2, 2), **options)


def resnet34(**options: Any) -> ResNet:
    """3, 4, 6 and 3 basic blocks."""
    return ResNet(BasicBlock, (3, 4, 6, 3), **options)


def resnet50(**options: Any) -> ResNet:
    """3, 4, 6 and 3 bottlenecks."""
    return ResNet(Bottleneck, (3, 4, 6, 3), **options)


def resnext50(**options: Any) -> ResNet:
    """ResNet-50 with 32 groups of 4 channels."""
    return ResNet(Bottleneck, (3, 4, 6, 3), groups=32, base=4, **options)


def _conv(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1, dtype: Any = np.float32) -> Any:
    padding = kernel // 2
    return nn.Conv2d(channels, out, kernel, stride=stride, padding=padding, groups=groups, bias=False, dtype=dtype)


def _shortcut(channels: int, out: int, stride: int, dtype: Any) -> Any:
    """None where x fits as it is."""
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(_conv(channels, out, 1, stride, dtype=dtype), nn.BatchNorm2d(out, dtype=dtype))


def _skip(shortcut: Any, x: Any) -> Any:
    return x if shortcut is None else shortcut(x)
