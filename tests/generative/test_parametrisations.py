"""Predictions of each kind, made of known data and noise, give back the noise."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    GaussianMixture,
    as_denoiser,
    edm_denoiser,
    from_epsilon,
    from_frame,
    to_epsilon,
    to_frame,
)

RNG = np.random.default_rng(0)
X0, EPSILON = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3))
LEVELS = [0.03, 1.0, 40.0, np.geomspace(0.01, 50, 5)]


def true(prediction, sigma):
    """Each prediction by its own definition, in the frame it comes from."""
    level = np.reshape(sigma, (-1, 1))
    if prediction == "v":  # Salimans & Ho 2022: alpha epsilon - sigma x, with alpha^2 + sigma^2 = 1
        angle = np.arctan(level)
        return np.cos(angle) * EPSILON - np.sin(angle) * X0
    return {"epsilon": EPSILON, "x0": X0, "flow": EPSILON - X0}[prediction]


@pytest.mark.parametrize("sigma", LEVELS, ids=str)
@pytest.mark.parametrize("prediction", ["epsilon", "x0", "v", "flow"])
def test_both_ways(prediction, sigma):
    x = X0 + np.reshape(sigma, (-1, 1)) * EPSILON
    value = true(prediction, sigma)
    np.testing.assert_allclose(to_epsilon(value, x, sigma, prediction), EPSILON, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(from_epsilon(EPSILON, x, sigma, prediction), value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sigma", LEVELS, ids=str)
@pytest.mark.parametrize("frame", ["ve", "vp", "flow"])
@pytest.mark.parametrize("prediction", ["epsilon", "x0", "v", "flow"])
def test_models_become_denoisers(prediction, frame, sigma):
    level = np.reshape(sigma, (-1, 1))
    t, angle = level / (1 + level), np.arctan(level)
    framed = {
        "ve": X0 + level * EPSILON, "vp": np.cos(angle) * X0 + np.sin(angle) * EPSILON,
        "flow": (1 - t) * X0 + t * EPSILON,
    }[frame]  # fmt: skip

    def model(x, time, scale):
        np.testing.assert_allclose(x, framed, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(time, sigma / (1 + sigma) if frame == "flow" else sigma)
        return scale * true(prediction, sigma)

    x = X0 + level * EPSILON
    found = as_denoiser(model, prediction, frame)(x, sigma, scale=1.0)
    np.testing.assert_allclose(found, EPSILON, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(to_frame(x, sigma, frame), framed, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(from_frame(framed, sigma, frame), x, rtol=1e-12, atol=1e-14)


def test_time_is_what_the_model_wants():
    seen = []
    as_denoiser(lambda x, t: seen.append(t) or x, time=lambda sigma: 10 * sigma)(X0, 2.0)
    assert seen == [20.0]


def test_preconditioning():
    """Of Gaussian data with the deviation sigma_data the best network is zero, whatever the noise."""
    zero = edm_denoiser(lambda x, noise: 0 * x, sigma_data=0.5)
    exact = GaussianMixture([1.0], np.zeros((1, 3)), 0.25).denoiser()
    for sigma in LEVELS:
        np.testing.assert_allclose(zero(X0, sigma), exact(X0, sigma), rtol=1e-12)

    def network(x, noise):
        return x * 0.3 + noise

    sigma, s = 0.7, 0.5
    root = np.sqrt(sigma**2 + s**2)
    data = s**2 / root**2 * X0 + sigma * s / root * network(X0 / root, np.log(sigma) / 4)  # table 1
    np.testing.assert_allclose(X0 - sigma * edm_denoiser(network, s)(X0, sigma), data, rtol=1e-12)


@pytest.mark.parametrize("prediction", ["epsilon", "x0", "v", "flow"])
def test_single_precision_and_jit(prediction):
    f = as_denoiser(lambda x, sigma: x * 0.5, prediction)
    x = np.float32(X0)
    for sigma in (np.float32(0.5), np.geomspace(0.1, 2, 5, dtype=np.float32)):
        assert f(x, sigma).dtype == np.float32
        compiled = wl.jit(f)(x, sigma)
        assert compiled.dtype == np.float32
        np.testing.assert_allclose(compiled, f(X0, np.float64(sigma)), rtol=1e-5, atol=1e-5)


def test_unknown_names():
    with pytest.raises(ArgumentError, match='"epsilon", "x0", "v" or "flow": got \'noise\''):
        as_denoiser(lambda x, sigma: x, "noise")
    with pytest.raises(ArgumentError, match='"ve", "vp" or "flow": got \'xx\''):
        as_denoiser(lambda x, sigma: x, frame="xx")
