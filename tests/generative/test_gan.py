"""Adversarial networks: losses and penalties by their formulas, and a Gaussian that is learned."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train
from wonderland.core.errors import ArgumentError
from wonderland.generative import GAN, discriminator_loss, generator_loss, gradient_penalty


def test_losses_by_their_formulas(rng):
    x, made = rng.normal(size=(2, 20, 3))
    blind = lambda x: 0.0 * x[:, 0]
    np.testing.assert_allclose(discriminator_loss(blind, x, made), 2 * np.log(2))
    np.testing.assert_allclose(generator_loss(blind, made), np.log(2))
    logits = lambda x: x @ np.array([1.0, -2.0, 0.5])
    sigmoid = lambda s: 1 / (1 + np.exp(-s))
    by_hand = -np.mean(np.log(sigmoid(logits(x)))) - np.mean(np.log(1 - sigmoid(logits(made))))
    np.testing.assert_allclose(discriminator_loss(logits, x, made), by_hand)
    np.testing.assert_allclose(generator_loss(logits, made), -np.mean(np.log(sigmoid(logits(made)))))


def test_penalties_of_a_linear_discriminator_and_their_second_order(rng):
    x, made, w = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.normal(size=3)
    r1 = lambda w: gradient_penalty(lambda x: x @ w, x)
    np.testing.assert_allclose(r1(w), w @ w / 2)
    np.testing.assert_allclose(wl.grad(r1)(w), w)
    np.testing.assert_allclose(wl.jit(wl.grad(r1))(w), w)
    length = np.sqrt(w @ w)
    between = lambda w: gradient_penalty(lambda x: x @ w, x, made, wl.random.key(0))
    np.testing.assert_allclose(between(w), (length - 1) ** 2, rtol=1e-9)
    np.testing.assert_allclose(wl.grad(between)(w), 2 * (length - 1) * w / length, rtol=1e-9)


def test_penalties_of_a_quadratic_discriminator(rng):
    """D = a |x|^2 / 2: dD/dx = a x, R1 = a^2 E|x|^2 / 2."""
    x = rng.normal(size=(7, 2, 2))
    r1 = lambda a: gradient_penalty(lambda x: a * np.sum(x**2, axis=(1, 2)) / 2, x)
    np.testing.assert_allclose(wl.grad(r1)(3.0), 3.0 * np.mean(np.sum(x**2, axis=(1, 2))))


@pytest.mark.parametrize("penalty", ["r1", "wgan-gp", None])
def test_a_step_moves_both_networks_and_compiled_as_eager(penalty, rng):
    def made():
        g, d = nn.Linear(2, 3, key=wl.random.key(0)), nn.Linear(3, 1, key=wl.random.key(1))
        gan = GAN(g, d, latent=2, penalty=penalty)
        return gan, (train.SGD(g, 0.1), train.SGD(d, 0.1))

    x = rng.normal(size=(8, 3)).astype(np.float32)
    update = lambda gan, optimizers, x, key: gan.update(optimizers, x, key)
    results = []
    for f in (update, wl.jit(update)):
        gan, optimizers = made()
        before = [part.weight.copy() for part in (gan.generator, gan.discriminator)]
        losses = f(gan, optimizers, x, wl.random.key(2))
        after = [part.weight for part in (gan.generator, gan.discriminator)]
        assert all(np.any(a != b) for a, b in zip(before, after, strict=True))
        results.append([*losses, gan.generator.weight, gan.discriminator.weight])
    for eager, compiled in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=2e-5, atol=1e-6)


def test_a_gaussian_is_learned():
    rng = np.random.default_rng(0)
    mixing, mean = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([2.0, -1.0])
    data = (rng.normal(size=(4096, 2)) @ mixing.T + mean).astype(np.float32)
    generator = nn.Linear(2, 2, key=wl.random.key(0))
    discriminator = nn.Sequential(
        nn.Linear(2, 32, key=wl.random.key(1)), nn.leaky_relu, nn.Linear(32, 32, key=wl.random.key(2)), nn.leaky_relu,
        nn.Linear(32, 1, key=wl.random.key(3)),
    )  # fmt: skip
    gan = GAN(generator, discriminator, latent=2, strength=0.5)
    optimizers = tuple(train.Adam(part, 3e-3, betas=(0.5, 0.9)) for part in (generator, discriminator))
    step = wl.jit(lambda gan, optimizers, x, key: gan.update(optimizers, x, key))
    for i in range(1500):
        step(gan, optimizers, data[rng.integers(len(data), size=256)], wl.random.key(i))
    found = generator.weight @ generator.weight.T
    np.testing.assert_allclose(generator.bias, mean, atol=0.15)
    np.testing.assert_allclose(found, mixing @ mixing.T, atol=0.25)
    assert gan.sample(wl.random.key(0), 7).shape == (7, 2)


def test_wrong_penalty():
    with pytest.raises(ArgumentError, match="penalty is one of"):
        GAN(None, None, 2, penalty="r2")
