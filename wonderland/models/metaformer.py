"""MetaFormer: a transformer in which anything may mix the tokens. Pooling, a Fourier transform, a shift will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.token_mixers import ConvolutionMixer, FourierMixer, PoolMixer, ShiftMixer
from wonderland.nn.arguments import array
from wonderland.nn.building import recipe
from wonderland.nn.placing import wrong_shape
from wonderland.nn.transformer import make_norm


class MetaFormerBlock(nn.Module):
    """A layer that mixes tokens, then a feed-forward network for each of them: (..., tokens, width) to the same.

        order="pre"     x = x + s1 * mixer(norm1(x));  x = x + s2 * feed(norm2(x))
        order="post"    x = norm1(x + mixer(x));       x = norm2(x + feed(x))                (FNet)

    `mixer` is any layer that keeps the shape. s1 and s2 are trained, one number for each channel, and start at `scale`;
    without it they are 1. `drop` is of stochastic depth. Yu et al. 2022, MetaFormer is actually what you need.
    """

    def __init__(
        self, width: int, mixer: Any, hidden: int | None = None, *, activation: Any = "gelu", norm: Any = "layer",
        eps: float = 1e-5, order: str = "pre", scale: float | None = None, drop: float = 0.0, key: Any = None,
        dtype: Any = np.float32,
    ):  # fmt: skip
        if order not in ("pre", "post"):
            raise ValueError(f'MetaFormerBlock: order is "pre" or "post", got {order!r}')
        self.order: str = order
        keys = recipe(self, None, False, key, dtype).keys(2)
        self.norm1: Any = make_norm(norm, width, eps, True, dtype)
        self.mixer: Any = mixer
        self.norm2: Any = make_norm(norm, width, eps, True, dtype)
        self.feed: Any = nn.FeedForward(width, hidden, activation, key=keys[0], dtype=dtype)
        self.scale1: Any = None if scale is None else np.full(width, scale, dtype)
        self.scale2: Any = None if scale is None else np.full(width, scale, dtype)
        self.drop: Any = nn.StochasticDepth(drop, key=keys[1]) if drop else None

    def __call__(self, x: Any) -> Any:
        x = self._added(x, self.mixer, self.norm1, self.scale1)
        return self._added(x, self.feed, self.norm2, self.scale2)

    def _added(self, x: Any, branch: Callable, norm: Any, scale: Any) -> Any:
        y = branch(norm(x) if self.order == "pre" else x)
        y = y if scale is None else scale * y
        y = x + (y if self.drop is None else self.drop(y))
        return y if self.order == "pre" else norm(y)


class AsTokens(nn.Module):
    """A layer of sequences (..., T, width), for pictures (..., H, W, width)."""

    _unprefixed = ("layer",)

    def __init__(self, layer: Any):
        self.layer: Any = layer

    def __call__(self, x: Any) -> Any:
        height, width = x.shape[-3:-1]
        return self.layer(x.reshape(*x.shape[:-3], height * width, x.shape[-1])).reshape(x.shape)


MIXERS: dict[str, Callable[..., Any]] = {  # functions of width, key and dtype
    "pool": lambda width, key, dtype: PoolMixer(),
    "fourier": lambda width, key, dtype: AsTokens(FourierMixer()),
    "convolution": lambda width, key, dtype: ConvolutionMixer(width, 7, key=key, dtype=dtype),
    "shift": lambda width, key, dtype: ShiftMixer(width, key=key, dtype=dtype),
    "attention": lambda width, key, dtype: AsTokens(
        nn.MultiHeadAttention(width, max(1, width // 32), head_width=min(32, width), key=key, dtype=dtype)
    ),
}


class MetaFormer(nn.Module):
    """Images (..., channels, height, width) to logits (..., classes), in stages of ever fewer and wider tokens.

        h = patches(x);   h = block_l(h) in each stage, h = smaller(h) before the next;   logits = head(mean(norm(h)))

    `stages` are (width, blocks). `mixer` is "pool", "fourier", "convolution", "shift" or "attention", or a function of
    width, key and dtype that makes a layer of (..., H, W, width); or a list of these, one for each stage. `patch` is
    kernel, stride and padding of the first convolution, `smaller` those of the ones between stages. The default is
    PoolFormer-S12; its norm is over channels and places together. Yu et al. 2022.
    """

    def __init__(
        self, stages: Sequence[tuple[int, int]] = ((64, 2), (128, 2), (320, 6), (512, 2)), mixer: Any = "pool",
        classes: int = 1000, *, channels: int = 3, expansion: int = 4, norm: Any = "group",
        patch: tuple[int, int, int] = (7, 4, 2), smaller: tuple[int, int, int] = (3, 2, 1),
        scale: float | None = 1e-5, drop: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        mixers = list(mixer) if isinstance(mixer, (list, tuple)) else [mixer] * len(stages)
        if len(mixers) != len(stages):
            raise ValueError(f"MetaFormer: {len(mixers)} mixers for {len(stages)} stages: one, or one for each")
        makers = [_maker(mixer) for mixer in mixers]
        if norm == "group":
            norm = lambda width: nn.GroupNorm(1, width, channels_last=True, dtype=dtype)
        depth = sum(count for _, count in stages)
        keys = iter(recipe(self, None, False, key, dtype).keys(2 * depth + len(stages) + 1))
        rates = iter(np.linspace(0, drop, depth).tolist())
        self.channels: int = channels
        self.embeddings: list[Any] = []
        self.stages: list[list[Any]] = []
        for stage, (width, count) in enumerate(stages):
            kernel, stride, padding = smaller if stage else patch
            options: dict[str, Any] = {"channels_last": True, "key": next(keys), "dtype": dtype}
            self.embeddings.append(nn.Conv2d(channels, width, kernel, stride=stride, padding=padding, **options))
            self.stages.append(
                [
                    MetaFormerBlock(
                        width, makers[stage](width, next(keys), dtype), expansion * width, norm=norm, scale=scale,
                        drop=next(rates), key=next(keys), dtype=dtype,
                    )
                    for _ in range(count)
                ]
            )  # fmt: skip
            channels = width
        self.norm: Any = make_norm(norm, channels, 1e-5, True, dtype)
        self.head: Any = nn.Linear(channels, classes, key=next(keys), dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return self.head(np.mean(self.hidden(x), axis=(-3, -2)))

    def hidden(self, x: Any) -> Any:
        """The vectors of the last stage, (..., H, W, width)."""
        x = array(x)
        if x.ndim < 3 or x.shape[-3] != self.channels:
            raise wrong_shape(self, f"(..., {self.channels}, height, width)", x.shape)
        leading = x.shape[:-3]
        x = np.moveaxis(x.reshape(-1, *x.shape[-3:]), 1, -1)  # (B, H, W, C)
        for embedding, blocks in zip(self.embeddings, self.stages, strict=True):
            x = embedding(x)
            for block in blocks:
                x = block(x)
        x = self.norm(x)
        return x.reshape(*leading, *x.shape[1:])


def _maker(mixer: Any) -> Callable:
    if callable(mixer):
        return mixer
    if mixer not in MIXERS:
        raise ValueError(
            f"MetaFormer: mixer is a function of width, key and dtype, or one of {[*MIXERS]}, got {mixer!r}"
        )
    return MIXERS[mixer]
