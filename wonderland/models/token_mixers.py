"""What can stand where a transformer has attention: layers in which tokens see each other, (..., T, width) to the same.

`PoolMixer`, `ShiftMixer` and `ConvolutionMixer` are of pictures, (..., H, W, width).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.nn.arguments import array
from wonderland.nn.building import recipe
from wonderland.nn.placing import wrong_shape


class TokenMLP(nn.Module):
    """y = (W_outer gelu(W_inner x^T))^T, (..., tokens, width) to the same shape: one network for all channels.

    The number of tokens is fixed. Tolstikhin et al. 2021, MLP-Mixer.
    """

    def __init__(self, tokens: int, hidden: int | None = None, *, key: Any = None, dtype: Any = np.float32):
        self.feed: Any = nn.FeedForward(tokens, hidden, key=key, dtype=dtype)

    def __call__(self, x: Any) -> Any:
        x = array(x)
        if x.ndim < 2 or x.shape[-2] != self.feed.width:
            raise wrong_shape(self, f"(..., {self.feed.width}, width), with {self.feed.width} tokens", x.shape)
        return np.swapaxes(self.feed(np.swapaxes(x, -2, -1)), -2, -1)


class PoolMixer(nn.Module):
    """y = mean of the window around each token - the token itself, (..., H, W, width) to the same; nothing is trained.

    The token is taken away because the block adds it again. Yu et al. 2022, MetaFormer is actually what you need.
    """

    def __init__(self, kernel: int = 3):
        if kernel % 2 == 0:
            raise ValueError(f"PoolMixer: kernel is odd, as many tokens on each side, got {kernel}")
        self.pool: Any = nn.AvgPool2d(kernel, 1, kernel // 2, count_include_pad=False, channels_last=True)

    def __call__(self, x: Any) -> Any:
        return self.pool(x) - x


class FourierMixer(nn.Module):
    """y = Re(F_T x F_width), F the Fourier matrices, (..., T, width) to the same; nothing is trained.

    Lee-Thorp et al. 2022, FNet: mixing tokens with Fourier transforms.
    """

    def __call__(self, x: Any) -> Any:
        x = array(x)
        if x.ndim < 2:
            raise wrong_shape(self, "(..., T, width)", x.shape)
        return np.real(np.fft.fft2(x, axes=(-2, -1)))


class ConvolutionMixer(nn.Module):
    """y = W depthwise(x), (..., H, W, width) to the same: a filter for each channel, then a matrix for each token."""

    def __init__(self, width: int, kernel: int = 3, *, key: Any = None, dtype: Any = np.float32):
        keys = recipe(self, None, False, key, dtype).keys(2)
        self.depthwise: Any = nn.Conv2d(
            width, width, kernel, padding="same", groups=width, channels_last=True, key=keys[0], dtype=dtype
        )
        self.pointwise: Any = nn.Linear(width, width, key=keys[1], dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return self.pointwise(self.depthwise(x))


class ShiftMixer(nn.Module):
    """y = W_outer shift(gelu(W_inner x)), (..., H, W, width) to the same. Yu et al. 2022, S2-MLP."""

    def __init__(self, width: int, *, key: Any = None, dtype: Any = np.float32):
        keys = recipe(self, None, False, key, dtype).keys(2)
        self.inner: Any = nn.Linear(width, width, key=keys[0], dtype=dtype)
        self.outer: Any = nn.Linear(width, width, key=keys[1], dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return self.outer(spatial_shift(nn.gelu(self.inner(x))))


def spatial_shift(x: Any) -> Any:
    """A picture (..., H, W, C) with each quarter of its channels moved by one place: down, up, right and left.

    What has no neighbour to come from stays as it is; channels beyond four equal quarters move with the last one. Yu et
    al. 2022, S2-MLP.
    """
    x = array(x)
    if x.ndim < 3:
        raise ValueError(f"spatial_shift takes a picture (..., H, W, C), got shape {x.shape}")
    quarter = x.shape[-1] // 4
    down, up, right = (x[..., k * quarter : (k + 1) * quarter] for k in range(3))
    left = x[..., 3 * quarter :]
    moved = [
        np.concatenate([down[..., :1, :, :], down[..., :-1, :, :]], axis=-3),
        np.concatenate([up[..., 1:, :, :], up[..., -1:, :, :]], axis=-3),
        np.concatenate([right[..., :1, :], right[..., :-1, :]], axis=-2),
        np.concatenate([left[..., 1:, :], left[..., -1:, :]], axis=-2),
    ]
    return np.concatenate(moved, axis=-1)
