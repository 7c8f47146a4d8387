"""Generative adversarial networks: a generator of samples, and a discriminator that tells them from data.

Goodfellow et al. 2014. The discriminator D gives logits (B,) or (B, 1), of "is data". Losses are the non-saturating
ones; a gradient penalty keeps D smooth, whose own gradient is a derivative of second order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import nn, random
from wonderland.core.errors import ArgumentError
from wonderland.generative.denoising import as_sigma
from wonderland.nn.building import positive
from wonderland.transform.derivatives import grad, stop_gradient, value_and_grad

PENALTIES = ("r1", "wgan-gp", None)


def generator_loss(discriminator: Callable, made: Any) -> Any:
    """-E log D(made), with D the probability of the logits: softplus(-logit)."""
    return np.mean(nn.softplus(-discriminator(made)))


def discriminator_loss(discriminator: Callable, x: Any, made: Any) -> Any:
    """-E log D(x) - E log(1 - D(made))."""
    return np.mean(nn.softplus(-discriminator(x))) + np.mean(nn.softplus(discriminator(made)))


def gradient_penalty(discriminator: Callable, x: Any, made: Any = None, key: Any = None) -> Any:
    """R1, 1/2 E |dD/dx|^2 at data x (Mescheder et al. 2018); both have derivatives in D's parameters.

    With `made` and a key it is that of WGAN-GP, E (|dD/dx| - 1)^2 at random points between x and made (Gulrajani et
    al. 2017).
    """
    if made is not None:
        if np.shape(made) != np.shape(x):
            raise ArgumentError(f"gradient_penalty: one made for each x, {np.shape(x)}, got {np.shape(made)}")
        if key is None:
            raise ArgumentError("gradient_penalty: points between x and made are drawn: give key=wl.random.key(0)")
        share = as_sigma(random.uniform(key, x.shape[:1], dtype=x.dtype), x)
        x = share * x + (1 - share) * made
    slopes = grad(lambda x: np.sum(discriminator(x)))(x)
    squares = np.sum(slopes.reshape(x.shape[0], -1) ** 2, axis=1)
    if made is None:
        return np.mean(squares) / 2
    return np.mean((np.sqrt(squares + 1e-12) - 1) ** 2)


class GAN(nn.Module):
    """A generator z (B, latent) -> samples, a discriminator samples -> logits, and how they are trained together.

    `penalty` is "r1", "wgan-gp" or None, and `strength` what it is multiplied with. `update(optimizers, x, key)` is one
    step of both, for one optimiser of each: under `wl.jit` all of it is one native call.

        gan = wl.generative.GAN(generator, discriminator, latent=8)
        optimizers = (train.Adam(gan.generator, 1e-3), train.Adam(gan.discriminator, 1e-3))
        step = wl.jit(lambda gan, optimizers, x, key: gan.update(optimizers, x, key))
    """

    def __init__(
        self, generator: Any, discriminator: Any, latent: int, *, penalty: str | None = "r1", strength: float = 1.0
    ):
        if penalty not in PENALTIES:
            raise ArgumentError(f"GAN: penalty is one of {PENALTIES}, got {penalty!r}")
        self.generator: Any = generator
        self.discriminator: Any = discriminator
        self.latent: int = positive(latent, "GAN: latent")
        self.penalty: str | None = penalty
        self.strength: float = strength

    def sample(self, key: Any, count: int, dtype: Any = np.float32) -> Any:
        """Samples of `count` normal z."""
        return self.generator(random.normal(key, (count, self.latent), dtype=dtype))

    def __call__(self, z: Any) -> Any:
        """The samples of z."""
        return self.generator(z)

    def update(self, optimizers: tuple[Any, Any], x: Any, key: Any) -> tuple[Any, Any]:
        """One step of the discriminator and one of the generator; their losses."""
        first, second, third = random.split(key, 3)
        made = stop_gradient(self.sample(first, x.shape[0], x.dtype))

        def against(discriminator: Any) -> Any:
            loss = discriminator_loss(discriminator, x, made)
            if self.penalty is None:
                return loss
            between = (made, third) if self.penalty == "wgan-gp" else ()
            return loss + self.strength * gradient_penalty(discriminator, x, *between)

        d_loss, d_gradient = value_and_grad(against)(self.discriminator)
        optimizers[1].update(self.discriminator, d_gradient)
        z = random.normal(second, (x.shape[0], self.latent), dtype=x.dtype)
        g_loss, g_gradient = value_and_grad(lambda g: generator_loss(self.discriminator, g(z)))(self.generator)
        optimizers[0].update(self.generator, g_gradient)
        return g_loss, d_loss
