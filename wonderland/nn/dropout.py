"""Dropout: of single numbers, of channels, of whole branches."""

from __future__ import annotations

from typing import Any

from wonderland.nn.noise import Random, inexact, kept, masked, probability


class Dropout(Random):
    """Each number is 0 with probability `p`, and otherwise divided by 1 - p: inverted dropout.

        y = m * x / (1 - p),    m ~ Bernoulli(1 - p)

    That is in training mode; in evaluation mode y = x, the expected value. `nn.monte_carlo` drops there, too.

    N. Srivastava et al., Dropout: a simple way to prevent neural networks from overfitting, 2014.
    """

    def __init__(self, p: float = 0.5, *, key: Any = None):
        self.p: float = probability(p, "Dropout")
        super().__init__(key)

    def __call__(self, x: Any) -> Any:
        """x of any shape to the same shape."""
        x = inexact(x, "Dropout")
        return self.dropped(x, self.p, x.shape) if self.training else x


class ChannelDropout(Random):
    """What Dropout1d, 2d and 3d are: all positions of a channel are dropped together."""

    rank: int = 0

    def __init__(self, p: float = 0.5, *, channels_last: bool = False, key: Any = None):
        self.p: float = probability(p, type(self).__name__)
        self.channels_last: bool = bool(channels_last)
        super().__init__(key)

    def __call__(self, x: Any) -> Any:
        """x (..., C, *spatial) to the same shape."""
        x = inexact(x, type(self).__name__)
        if x.ndim < self.rank + 1:
            raise ValueError(f"{type(self).__name__} has {self.rank} spatial axes and one of channels, got {x.shape}")
        if not self.training:
            return x
        ones = (1,) * self.rank
        lead = x.shape[: x.ndim - self.rank - 1]
        shape = (*lead, *ones, x.shape[-1]) if self.channels_last else (*lead, x.shape[len(lead)], *ones)
        return self.dropped(x, self.p, shape)


class Dropout1d(ChannelDropout):
    """Whole channels of (..., C, L) are dropped, with probability `p`; with `channels_last`, of (..., L, C)."""

    rank = 1


class Dropout2d(ChannelDropout):
    """Whole channels of images (..., C, H, W) are dropped, with probability `p`: spatial dropout.

    With `channels_last`, images are (..., H, W, C).

    J. Tompson et al., Efficient object localization using convolutional networks, 2015.
    """

    rank = 2


class Dropout3d(ChannelDropout):
    """Whole channels of volumes (..., C, D, H, W) are dropped, with probability `p`."""

    rank = 3


class StochasticDepth(Random):
    """A whole branch is dropped with probability `p`, and otherwise divided by 1 - p: `x + drop(branch(x))`.

    `mode="row"` decides for each sample (along the first axis), "batch" for all at once. In evaluation mode the branch
    is what it is. Also known as DropPath.

    G. Huang et al., Deep networks with stochastic depth, 2016.
    """

    def __init__(self, p: float, mode: str = "row", *, key: Any = None):
        self.p: float = probability(p, "StochasticDepth")
        if mode not in ("row", "batch"):
            raise ValueError(f'StochasticDepth: mode is "row" or "batch", got {mode!r}')
        self.mode = mode
        super().__init__(key)

    def __call__(self, x: Any) -> Any:
        """x (N, ...) to the same shape."""
        x = inexact(x, "StochasticDepth")
        if not self.training:
            return x
        if self.mode == "batch":
            key = self.next_key()
            return masked(x, self.p, lambda: kept(key, self.p, (1,) * x.ndim))
        if not x.ndim:
            raise ValueError('StochasticDepth drops samples along the first axis, and x has none: use mode="batch"')
        return self.dropped(x, self.p, (x.shape[0], *(1,) * (x.ndim - 1)))
