"""Guidance: lambda = 1 to the bit, and classes of a mixture by their own scores."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.generative import TimeMLP, as_sigma, classifier_guided, conditioned, guided

rng = np.random.default_rng(0)
MEANS = np.array([[-2.0, 0.0], [1.0, 1.0], [0.0, 3.0]])


def of_class(x, sigma, label):
    """The denoiser of N(mean of the class, I), and, for class -1, of the mixture of all with equal weights."""
    level = as_sigma(sigma, x)
    each = np.stack([level * (x - mean) / (1 + level**2) for mean in MEANS])  # (3, B, 2)
    weight = np.exp(log_weights(x, sigma)).T[..., None]
    mixture = np.sum(weight * each, 0)
    own = np.sum(each * (label == np.arange(3)[:, None])[..., None], 0)
    return np.where((label < 0)[:, None], mixture, own)


def log_weights(x, sigma):
    """log p(class | x): (B, 3)."""
    square = np.sum((x[:, None] - MEANS) ** 2, -1) / (1 + as_sigma(sigma, x) ** 2)
    logits = -square / 2
    return logits - np.log(np.sum(np.exp(logits), 1, keepdims=True))


@pytest.fixture(scope="module")
def network():
    wl.random.seed(0)
    made = TimeMLP(2, (8,), classes=3)
    made.head.weight[...] = rng.standard_normal((2, 8))
    return made


def test_lambda_one_changes_nothing_to_the_bit(network):
    x, labels = rng.standard_normal((5, 2)).astype(np.float32), np.array([0, 1, 2, 0, 1])
    sigma = np.float32([0.1, 0.5, 1, 2, 3])
    plain = network(x, sigma, labels)
    ones = np.ones(5, np.float32)
    for scale in (1, 1.0, np.float32(1), ones, lambda sigma: ones):
        np.testing.assert_array_equal(guided(network, labels, scale)(x, sigma), plain)
    run = lambda network, x, scale: guided(network, labels, scale)(x, sigma)
    by_condition = wl.jit(lambda network, x: conditioned(network, labels)(x, sigma))(network, x)
    np.testing.assert_array_equal(wl.jit(lambda network, x: run(network, x, 1.0))(network, x), by_condition)
    np.testing.assert_array_equal(wl.jit(run)(network, x, ones), by_condition)
    assert not np.array_equal(guided(network, labels, 2.0)(x, sigma), plain)


def test_guidance_is_its_equation(network):
    x, labels = rng.standard_normal((4, 2)).astype(np.float32), np.array([0, 1, 2, 2])
    with_class, without = network(x, 0.5, labels), network(x, 0.5)
    np.testing.assert_allclose(network(x, 0.5, np.full(4, -1)), without, rtol=1e-5)
    np.testing.assert_allclose(guided(network, labels, 3.0)(x, 0.5), 3 * with_class - 2 * without, rtol=1e-5)
    np.testing.assert_allclose(guided(network, labels, 0)(x, 0.5), without, rtol=1e-6)
    away = guided(network, labels, 3.0, negative=labels[::-1])(x, 0.5)
    np.testing.assert_allclose(away, 3 * with_class - 2 * network(x, 0.5, labels[::-1]), rtol=1e-4, atol=1e-6)
    compiled = wl.jit(lambda network, x, scale: guided(network, labels, scale)(x, 0.5))
    np.testing.assert_allclose(compiled(network, x, 3.0), guided(network, labels, 3.0)(x, 0.5), rtol=1e-5, atol=1e-6)
    interval = guided(network, labels, lambda sigma: np.where(sigma < 0.4, 3.0, 1.0))
    np.testing.assert_array_equal(interval(x, np.float32(0.5)), with_class)


@pytest.mark.parametrize("sigma", [0.2, 1.0, 5.0])
def test_classifier_guidance_gives_the_denoiser_of_the_class(sigma):
    """By Bayes' rule, exactly: the mixture's denoiser and the gradient of log p(class | x) are the class's own."""
    x, labels = 2 * rng.standard_normal((6, 2)), np.array([0, 1, 2, 0, 1, 2])
    free = lambda x, sigma: of_class(x, sigma, np.full(len(labels), -1))
    log_p = lambda x, sigma: log_weights(x, sigma)[np.arange(6), labels]
    by_classifier = classifier_guided(free, log_p)
    np.testing.assert_allclose(by_classifier(x, sigma), of_class(x, sigma, labels), atol=1e-12)
    np.testing.assert_allclose(wl.jit(by_classifier)(x, sigma), by_classifier(x, sigma), atol=1e-12)
    np.testing.assert_array_equal(classifier_guided(free, log_p, 0)(x, sigma), free(x, sigma))
    # Classifier-free guidance of the exact denoisers is classifier guidance with the same scale.
    twice = guided(of_class, labels, 2.0)(x, sigma)
    np.testing.assert_allclose(classifier_guided(free, log_p, 2.0)(x, sigma), twice, atol=1e-11)
