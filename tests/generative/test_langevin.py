"""Langevin dynamics against the variances that its recursion has on Gaussians."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    GaussianMixture,
    IdealDenoiser,
    annealed_langevin,
    karras,
    langevin,
    log_linear,
    mala,
    sample_noise,
)

S2, DELTA = 0.5, 0.3
GAUSSIAN = GaussianMixture([1.0], np.zeros((1, 1)), S2)
MIXTURE = GaussianMixture([0.3, 0.7], [[-1.0, 0.5], [1.0, -0.3]], [0.2, 0.1])
KEY = wl.random.key(3)
N = 10000


def test_every_step_of_the_recursion():
    """y' = (1 - delta / s2) y + sqrt(2 delta) w, with the noise that each step has."""
    x = wanted = np.linspace(-1, 1, 5)[:, None]
    found = langevin(GAUSSIAN.score, x, 4, DELTA, KEY, trajectory=True)
    assert found.shape == (5, 5, 1)
    for k in range(4):
        np.testing.assert_allclose(found[k], wanted, rtol=1e-12)
        wanted = (1 - DELTA / S2) * wanted + np.sqrt(2 * DELTA) * sample_noise(KEY, k + 1, (5, 1))
    np.testing.assert_allclose(langevin(GAUSSIAN.score, x, 4, np.full(4, DELTA), KEY), wanted, rtol=1e-12)


@pytest.mark.parametrize("delta", [0.02, 0.3, 0.7])
def test_stationary_variance(delta):
    """s2 / (1 - delta / (2 s2)): the fixed point of V' = (1 - delta / s2)^2 V + 2 delta, and what samples have."""
    variance = S2 / (1 - delta / (2 * S2))
    assert abs((1 - delta / S2) ** 2 * variance + 2 * delta - variance) < 1e-12
    # What is left of the start has the factor (1 - delta / s2)^k.
    x = wl.jit(lambda x: langevin(GAUSSIAN.score, x, 200, delta, KEY))(np.full((N, 1), 3.0))
    np.testing.assert_allclose(x.var(), variance, rtol=4 * np.sqrt(2 / N))
    assert abs(x.mean()) < 4 * np.sqrt(variance / N)


def test_the_adjusted_algorithm_is_exact_where_the_plain_one_is_not():
    begin = np.zeros((N, 1))
    x, accepted = wl.jit(lambda x: mala(GAUSSIAN.log_prob, x, 60, 0.7, KEY))(begin)
    np.testing.assert_allclose(x.var(), S2, rtol=4 * np.sqrt(2 / N))  # 1.67 without the adjustment
    assert accepted.shape == (N,) and 0.3 < accepted.mean() < 0.95
    np.testing.assert_allclose(np.mean(x**4) / S2**2, 3, rtol=0.1)
    for dtype in (np.float32, np.float64):
        eager, _ = mala(GAUSSIAN.log_prob, begin[:50].astype(dtype), 60, 0.7, KEY)
        assert eager.dtype == dtype
    np.testing.assert_allclose(eager, x[:50], rtol=1e-9)  # and no sample knows its batch


def test_mala_accepts_small_steps_and_refuses_large_ones():
    begin = MIXTURE.sample(KEY, 200)
    shares = [mala(MIXTURE.log_prob, begin, 20, delta, KEY)[1].mean() for delta in (1e-4, 0.05, 5.0)]
    assert shares[0] > 0.99 and shares[2] < 0.1 and shares[0] > shares[1] > shares[2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_annealed(dtype):
    sigmas = log_linear(60, 0.01, 10.0)
    run = lambda key: annealed_langevin(MIXTURE.denoiser(), (3000, 2), sigmas, key, steps=15, dtype=dtype)
    x = wl.jit(run)(KEY)
    assert x.dtype == dtype
    mean = np.array([0.4, -0.06])
    variance = 0.3 * 0.2 + 0.7 * 0.1 + MIXTURE.weights @ (MIXTURE.means - mean) ** 2
    np.testing.assert_allclose(x.mean(axis=0), mean, atol=0.08)
    np.testing.assert_allclose(x.var(axis=0), variance, rtol=0.1)


def test_annealing_finds_data():
    data = np.random.default_rng(0).normal(size=(10, 2, 2))
    x = annealed_langevin(IdealDenoiser(data), (8, 2, 2), karras(20), KEY)
    assert np.abs(x[:, None] - data).max(axis=(2, 3)).min(axis=1).max() < 1e-6
    # Without a 0 the noise of the last level stays.
    x = annealed_langevin(IdealDenoiser(data), (8, 2, 2), karras(20, 0.05, zero=False), KEY)
    assert 1e-3 < np.abs(x[:, None] - data).max(axis=(2, 3)).min(axis=1).max() < 0.3


def test_errors():
    with pytest.raises(ArgumentError, match=r"log_prob takes x \(3, 1\) to \(3,\): it returned \(3, 1\)"):
        mala(lambda x: -(x**2), np.zeros((3, 1)), 5, 0.1, KEY)
    with pytest.raises(ArgumentError, match="a schedule decreases"):
        annealed_langevin(MIXTURE.denoiser(), (3, 2), [0.1, 1.0], KEY)
