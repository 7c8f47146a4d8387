"""Log-likelihoods by the probability flow against those of mixtures; steps that choose themselves."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    AdaptiveHeun,
    GaussianMixture,
    UniPC,
    invert,
    karras,
    log_likelihood,
    log_linear,
    sample,
)

MIXTURE = GaussianMixture([0.5, 0.5], [[-1.0, 0.5], [1.0, -0.5]], [0.2, 0.1])  # its mean is 0
FULL = GaussianMixture(
    [0.4, 0.6], [[-1.0, 0.5, 0.0], [1.0, -0.5, 0.3]], np.stack([np.diag([0.1, 0.3, 0.2]) + 0.05, np.eye(3) * 0.2])
)
KEY = wl.random.key(5)
X = MIXTURE.sample(KEY, 6)
FAR = 80 * np.random.default_rng(0).normal(size=(8, 2))


def test_of_data():
    """With nothing known but the denoiser: noise of 1e-3 and N(0, 500^2) stand for the ends."""
    found = wl.jit(lambda x: log_likelihood(MIXTURE.denoiser(), x, log_linear(150, 1e-3, 500.0)))(X)
    np.testing.assert_allclose(found, MIXTURE.log_prob(X), atol=1e-4)


@pytest.mark.parametrize("mixture", [MIXTURE, FULL], ids=["2", "3"])
def test_between_known_ends(mixture):
    """The order of the method is 4: half the step, a 16th of the error."""
    x = mixture.sample(KEY, 5).reshape(5, -1, 1)
    errors = []
    for n in (50, 100, 200):
        prior, sigmas = lambda x: mixture.noisy(30.0).log_prob(x[..., 0]), log_linear(n, 0.02, 30.0, zero=False)
        found = wl.jit(lambda x, s=sigmas, p=prior: log_likelihood(mixture.denoiser(), x, s, prior=p))(x)
        errors.append(np.abs(found - mixture.noisy(0.02).log_prob(x[..., 0])).max())
    assert errors[-1] < 1e-6
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 4, atol=0.35)


def test_hutchinsons_estimate_is_unbiased():
    sigmas = log_linear(40, 0.02, 30.0)
    prior = MIXTURE.noisy(30.0).log_prob
    run = wl.jit(lambda x, key: log_likelihood(MIXTURE.denoiser(), x, sigmas, "hutchinson", key, 50, prior))
    x = np.concatenate([X, X[:3]])
    found = np.stack([run(x, wl.random.key(i)) for i in range(20)])
    exact = log_likelihood(MIXTURE.denoiser(), x, sigmas, prior=prior)
    spread = found.std(axis=0, ddof=1) / np.sqrt(20)
    assert np.all(np.abs(found.mean(axis=0) - exact) < 4.5 * spread) and np.all(spread > 0)
    np.testing.assert_allclose(run(X, wl.random.key(1)), found[1][:6], rtol=1e-9)  # no sample knows its batch


def test_precision_stays():
    for divergence in ("exact", "hutchinson"):
        f = lambda x, d=divergence: log_likelihood(MIXTURE.denoiser(), x, log_linear(60, 0.01, 50.0), d, key=KEY)
        for run in (f, wl.jit(f)):
            assert run(X.astype(np.float32)).dtype == np.float32
            np.testing.assert_allclose(run(X.astype(np.float32)), f(X), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adaptive_steps_meet_their_tolerance(dtype):
    fine = wl.jit(lambda x: sample(MIXTURE.denoiser(), x, karras(2000), UniPC(3)))(FAR)
    errors = []
    for tol in (1e-2, 1e-3, 1e-4):
        run = lambda x, tol=tol: sample(MIXTURE.denoiser(), x, karras(2), AdaptiveHeun(tol, tol))
        found = wl.jit(run)(FAR.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(run(FAR.astype(dtype)), found, rtol=1e-3, atol=1e-3)
        errors.append(np.abs(found - fine).max())
        assert errors[-1] < 20 * tol
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_adaptive_samples_do_not_know_their_batch():
    run = lambda x: sample(MIXTURE.denoiser(), x, karras(2, 0.01, 80.0, zero=False), AdaptiveHeun())
    np.testing.assert_allclose(run(FAR)[:3], run(FAR[:3]), rtol=1e-10)
    noise = invert(MIXTURE.denoiser(), run(FAR), karras(2, 0.01, 80.0, zero=False), AdaptiveHeun(1e-5, 1e-5))
    np.testing.assert_allclose(noise, FAR, rtol=0.02, atol=0.2)


def test_what_is_not_done_is_not_a_number():
    assert np.isnan(sample(MIXTURE.denoiser(), FAR, karras(2), AdaptiveHeun(max_steps=3))).all()


def test_errors():
    epsilon = MIXTURE.denoiser()
    for call, said in [
        (lambda: log_likelihood(epsilon, X, karras(5), "trace"), '"exact" or "hutchinson": got \'trace\''),
        (lambda: log_likelihood(epsilon, X, karras(5), "hutchinson"), "give a key"),
        (lambda: wl.jit(lambda s: log_likelihood(epsilon, X, s))(karras(5)), "close over the sigmas"),
        (lambda: sample(epsilon, X, karras(5), AdaptiveHeun(), trajectory=True), "it has no trajectory"),
        (lambda: AdaptiveHeun(0.0, 0.0), "nor both 0"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            call()
