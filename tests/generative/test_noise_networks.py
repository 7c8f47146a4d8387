"""Networks that know the noise: shapes, dtypes, conditions, preconditioning, and what they begin as."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn
from wonderland.core.errors import ArgumentError
from wonderland.generative import DiT, TimeMLP, UNet
from wonderland.generative.networks.conditioning import preconditioned

rng = np.random.default_rng(0)
MADE = {
    "mlp": (lambda: TimeMLP(2, (8, 8), classes=3, sigma_data=0.5), (2,)),
    "u-net": (lambda: UNet(1, 8, (1, 2), classes=3), (1, 8, 8)),
    "u-net of three levels": (lambda: UNet(3, 4, (1, 2, 2), 2, attention=(1,), heads=2, classes=3), (3, 7, 9)),
    "transformer": (lambda: DiT(8, 2, 1, 16, 2, 2, classes=3), (1, 8, 8)),
}


def drawn(make):
    """A network whose last layers, which begin as zeros, aren't."""
    wl.random.seed(0)
    network = make()
    for _, weight in network.named_parameters():
        if not np.any(weight):
            weight[...] = 0.3 * rng.standard_normal(weight.shape)
    return network


@pytest.mark.parametrize(("make", "shape"), MADE.values(), ids=MADE)
def test_networks_begin_as_the_denoiser_of_a_gaussian(make, shape):
    """E[epsilon | x] = sigma x / (sigma^2 + s^2) of N(0, s^2), at all levels."""
    wl.random.seed(0)
    x, sigma = rng.standard_normal((3, *shape)).astype(np.float32), np.float32([0.01, 1, 50])
    level = sigma.reshape(-1, *(1 for _ in shape))
    found = make()(x, sigma, np.array([0, 2, -1]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, level * x / (level**2 + 0.25), rtol=1e-5)


@pytest.mark.parametrize(("make", "shape"), MADE.values(), ids=MADE)
def test_samples_levels_and_classes_are_told_apart(make, shape):
    network = drawn(make)
    x = rng.standard_normal((4, *shape)).astype(np.float32)
    labels = np.array([0, 1, 2, -1])
    sigma = np.float32([0.1, 0.5, 2, 10])
    whole = network(x, sigma, labels)
    assert whole.shape == x.shape and np.all(np.isfinite(whole))
    for i in range(4):  # each sample for itself
        one = network(x[i : i + 1], sigma[i], labels[i : i + 1])[0]
        np.testing.assert_allclose(one, whole[i], rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(network(x, 0.5), network(x, np.full(4, 0.5), np.full(4, -1)), rtol=1e-3, atol=1e-5)
    other = network(x, sigma, np.array([1, 2, 0, 0]))
    assert np.all(np.max(np.abs(other - whole).reshape(4, -1), 1) > 1e-3)
    assert np.all(np.isfinite(network(x, 0.0))) and network(x.astype(np.float64), 0.5).dtype == np.float64
    compiled = wl.jit(lambda network, x, sigma, labels: network(x, sigma, labels))(network, x, sigma, labels)
    np.testing.assert_allclose(compiled, whole, rtol=2e-3, atol=2e-5)


def test_preconditioning_is_that_of_the_paper():
    x, sigma, s = rng.standard_normal((3, 2)), np.array([0.1, 1.0, 7.0]), 0.5
    function = lambda x, sigma: np.tanh(x) + sigma[:, None]
    level = sigma[:, None]
    c_skip, c_out = s**2 / (level**2 + s**2), level * s / np.sqrt(level**2 + s**2)
    x0 = c_skip * x + c_out * function(x / np.sqrt(level**2 + s**2), sigma)
    found = preconditioned(function, x, sigma, s, np.float64)
    np.testing.assert_allclose(found, (x - x0) / level, rtol=1e-11)


def test_a_sequence_as_condition():
    """Tokens, or vectors; no condition is that of -1 only."""
    x = rng.standard_normal((2, 1, 8, 8)).astype(np.float32)
    named = drawn(lambda: UNet(1, 8, (1, 2), context=6, tokens=5))
    words = np.array([[0, 1, 4], [2, 2, -1]])
    found = named(x, 0.5, words)
    assert np.max(np.abs(found[0] - named(x, 0.5, words[::-1])[0])) > 1e-4
    np.testing.assert_allclose(named(x, 0.5), named(x, 0.5, np.full((2, 3), -1)), rtol=1e-3, atol=1e-5)
    seen = drawn(lambda: UNet(1, 8, (1, 2), context=6))
    vectors = rng.standard_normal((2, 3, 6)).astype(np.float32)
    assert np.max(np.abs(seen(x, 0.5, vectors) - seen(x, 0.5))) > 1e-4
    np.testing.assert_allclose(seen(x, 0.5), seen(x, 0.5, np.zeros((2, 3, 6))), rtol=1e-3, atol=1e-5)
    with pytest.raises(ArgumentError, match=r"\(B, S, 6\), got shape \(2, 6\)"):
        seen(x, 0.5, vectors[:, 0])


def test_what_networks_refuse():
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(ArgumentError, match="made without classes"):
        TimeMLP(2, (4,))(x, 1.0, np.array([0, 1]))
    with pytest.raises(ArgumentError, match="classes are integers"):
        TimeMLP(2, (4,), classes=2)(x, 1.0, np.array([0.0, 1.0]))
    with pytest.raises(ArgumentError, match="classes= or context=, not both"):
        UNet(classes=2, context=3)
    with pytest.raises(ArgumentError, match="give both"):
        UNet(tokens=3)
    with pytest.raises(ArgumentError, match="one for each sample"):
        TimeMLP(2, (4,))(x, np.ones(3))


def test_dropout_in_training_only():
    wl.random.seed(0)
    network = drawn(lambda: UNet(1, 8, (1,), dropout=0.5))
    x = rng.standard_normal((1, 1, 8, 8)).astype(np.float32)
    assert not np.array_equal(network(x, 1.0), network(x, 1.0))
    with nn.evaluating(network):
        np.testing.assert_array_equal(network(x, 1.0), network(x, 1.0))
