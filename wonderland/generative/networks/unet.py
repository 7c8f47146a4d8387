"""`UNet`: the noise in images, by convolutions at several resolutions, with attention at the low ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.core.errors import ArgumentError
from wonderland.generative.networks.conditioning import NoiseEmbedding, preconditioned
from wonderland.generative.networks.unet_blocks import UNetAttention, UNetBlock, groups_of
from wonderland.nn.arguments import array, demand
from wonderland.nn.building import positive, recipe
from wonderland.numpy.pooling import resize


class UNet(nn.Module):
    """Images (B, channels, H, W) and noise levels to the noise in them, of the same shape.

        down:   h = block(h, e), as often as `blocks` says, then half the size, for each of `multiples` but the last
        middle: block, attention, block
        up:     h = block([h, what was there on the way down], e), then twice the size

    Level l has width * multiples[l] channels; `attention` are the levels that have it, besides the middle. Sizes may
    be odd. `sigma_data` is the standard deviation of the data.

    The condition is a class (B,) with `classes` (-1 is none), or with `context` a sequence that attention layers look
    at: vectors (B, S, context), or, with `tokens`, integers (B, S) below `tokens` (-1 is none), which it embeds.
    Ho et al. 2020; Rombach et al. 2022.
    """

    def __init__(
        self, channels: int = 1, width: int = 32, multiples: Sequence[int] = (1, 2), blocks: int = 1, *,
        attention: Sequence[int] = (), heads: int = 4, classes: int | None = None, context: int | None = None,
        tokens: int | None = None, dropout: float = 0.0, sigma_data: float = 0.5, key: Any = None,
        dtype: Any = np.float32,
    ):  # fmt: skip
        if classes is not None and context is not None:
            raise ArgumentError("UNet: the condition is a class or a sequence: give classes= or context=, not both")
        if tokens is not None and context is None:
            raise ArgumentError("UNet: tokens are embedded as vectors of context= numbers: give both")
        self.sigma_data: float = float(sigma_data)
        self.dtype: Any = np.dtype(dtype)
        widths = [positive(width, "UNet: width") * positive(m, "UNet: multiples") for m in multiples]
        levels = len(widths)
        if not levels or not {*attention} <= {*range(levels)}:
            raise ArgumentError(
                f"UNet: multiples has a number for each level, and attention are some of the levels 0 to {levels - 1}: "
                f"got multiples={tuple(multiples)} and attention={tuple(attention)}"
            )
        positive(blocks, "UNet: blocks")
        keys = iter(recipe(self, None, True, key, dtype).keys(8 * levels * (blocks + 2) + 16))
        E = 4 * width
        made: dict[str, Any] = {"dtype": dtype, "channels_last": True}
        conv = lambda i, o, stride=1, **more: nn.Conv2d(i, o, 3, stride, padding=1, key=next(keys), **made, **more)
        block = lambda i, o: UNetBlock(i, o, E, dropout, key=next(keys), dtype=dtype)
        attend = lambda c: UNetAttention(c, heads, context, key=next(keys), dtype=dtype)
        self.embedding: Any = NoiseEmbedding(E, classes, key=next(keys), dtype=dtype)
        self.tokens: Any = None
        if tokens is not None:
            self.tokens = nn.Embedding(tokens + 1, context, key=next(keys), dtype=dtype)  # type: ignore[arg-type]
        self.context: int | None = context
        self.enter: Any = conv(channels, width)
        self.down: list[Any] = []
        self.halve: list[Any] = []
        kept, c = [width], width  # channels of what the way up gets from the way down
        for level, wide in enumerate(widths):
            for _ in range(blocks):
                self.down.append([block(c, wide), attend(wide) if level in attention else None])
                kept.append(c := wide)
            if level < levels - 1:
                self.halve.append(conv(c, c, 2))
                kept.append(c)
        self.middle: list[Any] = [block(c, c), attend(c), block(c, c)]
        self.up: list[Any] = []
        self.double: list[Any] = []
        for level, wide in reversed([*enumerate(widths)]):
            for _ in range(blocks + 1):
                self.up.append([block(c + kept.pop(), wide), attend(wide) if level in attention else None])
                c = wide
            if level:
                self.double.append(conv(c, c))
        self.blocks: int = blocks
        self.norm: Any = nn.GroupNorm(groups_of(c), c, **made)
        self.leave: Any = conv(c, channels, init=nn.init.zeros, bias=nn.init.zeros)

    def __call__(self, x: Any, sigma: Any, condition: Any = None) -> Any:
        def function(h: Any, sigma: Any) -> Any:
            return self._function(h, sigma, condition)

        return preconditioned(function, x, sigma, self.sigma_data, self.dtype)

    def _function(self, h: Any, sigma: Any, condition: Any) -> Any:
        context = None if self.context is None else self._sequence(h, condition)
        e = nn.silu(self.embedding(sigma, condition if self.context is None else None))  # (B, E)
        h = self.enter(np.moveaxis(h, 1, -1))  # (B, H, W, C) from here on: convolutions are faster
        kept = [h]
        for i, (block, attend) in enumerate(self.down):
            h = _attended(block(h, e), attend, context)
            kept.append(h)
            level, last = divmod(i + 1, self.blocks)
            if not last and level <= len(self.halve):
                h = self.halve[level - 1](h)
                kept.append(h)
        first, attend, second = self.middle
        h = second(attend(first(h, e), context), e)
        for i, (block, attend) in enumerate(self.up):
            h = _attended(block(np.concatenate([h, kept.pop()], axis=-1), e), attend, context)
            level, last = divmod(i + 1, self.blocks + 1)
            if not last and level <= len(self.double):
                h = self.double[level - 1](resize(h, kept[-1].shape[1:-1], channels="last"))
        return np.moveaxis(self.leave(nn.silu(self.norm(h))), -1, 1)

    def _sequence(self, h: Any, condition: Any) -> Any:
        """The condition as vectors (B, S, context): embedded, and zeros where there is none."""
        if condition is None:
            if self.tokens is None:
                return np.zeros((h.shape[0], 1, self.context or 0), self.dtype)
            condition = np.full((h.shape[0], 1), -1)
        condition = array(condition)
        if self.tokens is not None:
            if condition.ndim != 2 or condition.dtype.kind not in "iu":
                raise ArgumentError(
                    f"this UNet's conditions are whole numbers (B, S), got {condition.dtype} of shape {condition.shape}"
                )
            condition, count = condition.astype(np.int64), self.tokens.num_embeddings - 1
            demand(condition < count, f"tokens are numbers below {count}: got {{}}", condition)
            return self.tokens(np.where(condition < 0, count, condition))
        if condition.ndim != 3 or condition.shape[-1] != self.context:
            raise ArgumentError(f"this UNet's conditions are (B, S, {self.context}), got shape {condition.shape}")
        return condition.astype(self.dtype)


def _attended(h: Any, attend: Any, context: Any) -> Any:
    return h if attend is None else attend(h, context)
