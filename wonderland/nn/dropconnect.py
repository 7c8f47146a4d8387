"""DropConnect: single weights of a layer are dropped; after training by the mean, or by matching two moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Module
from wonderland.nn.noise import Random, kept, masked, probability
from wonderland.nn.surgery import with_attributes


class DropConnect(Random):
    """A layer whose weights are each 0 with probability `p`, and otherwise divided by 1 - p, in training mode.

        y = a(u),    u = (M * W) x / (1 - p) + b,    M ~ Bernoulli(1 - p)

    `layer` is a Linear or a convolution, whose bias stays; `activation` is a, without one y = u. There is one mask for
    each call. In evaluation mode u = W x + b, its mean; with `samples=k`, y is the mean of a over k draws of a normal
    that has the mean and variance of u, which differs as a is no linear function:

        u ~ N(W x + b, p / (1 - p) W^2 x^2)

    These draws are always the same; evaluation doesn't change the layer.

    L. Wan et al., Regularization of neural networks using DropConnect, 2013.
    """

    def __init__(
        self, layer: Any, p: float = 0.5, activation: Callable[[Any], Any] | None = None, samples: int = 0, *,
        key: Any = None,
    ):  # fmt: skip
        if not isinstance(layer, Module) or not hasattr(layer, "weight") or not hasattr(layer, "bias"):
            raise ArgumentError(
                f"DropConnect takes a layer with a weight and a bias, such as nn.Linear, got {type(layer).__name__}"
            )
        if not isinstance(samples, (int, np.integer)) or samples < 0:
            raise ValueError(f"DropConnect: samples is the number of draws in evaluation mode, got {samples!r}")
        super().__init__(key)
        self.p: float = probability(p, "DropConnect")
        self.samples: int = int(samples)
        self.layer: Any = layer
        self.activation = activation

    def __call__(self, x: Any) -> Any:
        """x as the layer takes it."""
        activation = self.activation or (lambda u: u)
        weight: Any = self.layer.weight
        if self.training:
            key = self.next_key()
            fewer = None if weight is None else masked(weight, self.p, lambda: kept(key, self.p, weight.shape))
            return activation(with_attributes(self.layer, weight=fewer)(x))
        mean = self.layer(x)
        if not self.samples or self.p in (0, 1):
            return activation(mean)
        squared = with_attributes(self.layer, weight=self.layer.weight**2, bias=None)
        deviation = np.sqrt(np.maximum(self.p / (1 - self.p) * squared(x * x), 1e-30))
        z = random.normal(self.key, (self.samples, *mean.shape), dtype=mean.dtype)
        return np.mean(activation(mean + deviation * z), axis=0)
