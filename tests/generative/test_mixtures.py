"""Gaussian mixtures against SciPy's densities, closed-form posteriors and quadrature."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import GaussianMixture, IdealDenoiser, gaussian_flow

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-1.0, 0.5], [2.0, 1.0], [0.3, -2.0]])
FULL = np.array([[[0.5, 0.2], [0.2, 0.3]], [[1.0, -0.4], [-0.4, 0.6]], [[0.2, 0.0], [0.0, 0.7]]])
FORMS = {
    "matrices": FULL,
    "diagonals": np.array([[0.5, 0.3], [1.0, 0.6], [0.2, 0.7]]),
    "numbers": np.array([0.5, 1.0, 0.2]),
    "one number": 0.4,
}
X = np.random.default_rng(0).normal(size=(7, 2)) * 2


def matrices(form):
    """Each form as (K, d, d), by its definition."""
    given = FORMS[form]
    if form == "matrices":
        return given
    variances = given if form == "diagonals" else np.outer(given * np.ones(3), np.ones(2))
    return np.stack([np.diag(row) for row in variances])


def density(x, covariances):
    return sum(w * multivariate_normal(m, c).pdf(x) for w, m, c in zip(WEIGHTS, MEANS, covariances, strict=True))


def posterior(y, sigma, covariances):
    """The mean and covariance of x0 given y, by the formulas of Gaussian conditioning, component by component."""
    noisy = covariances + sigma**2 * np.eye(2)
    parts = np.array([w * multivariate_normal(m, c).pdf(y) for w, m, c in zip(WEIGHTS, MEANS, noisy, strict=True)])
    parts /= parts.sum()
    means = [m + c @ np.linalg.solve(n, y - m) for m, c, n in zip(MEANS, covariances, noisy, strict=True)]
    spreads = [c - c @ np.linalg.solve(n, c) for c, n in zip(covariances, noisy, strict=True)]
    mean = sum(p * m for p, m in zip(parts, means, strict=True))
    second = sum(p * (s + np.outer(m, m)) for p, m, s in zip(parts, means, spreads, strict=True))
    return mean, second - np.outer(mean, mean)


@pytest.mark.parametrize("form", FORMS)
def test_densities_are_scipys(form):
    mixture = GaussianMixture(WEIGHTS, MEANS, FORMS[form])
    np.testing.assert_allclose(mixture.log_prob(X), np.log(density(X, matrices(form))), rtol=1e-12)
    np.testing.assert_allclose(wl.jit(mixture.log_prob)(X), np.log(density(X, matrices(form))), rtol=1e-12)
    np.testing.assert_allclose(mixture.score(X), wl.grad(lambda x: np.sum(mixture.log_prob(x)))(X), rtol=1e-11)
    noisy = matrices(form) + 0.49 * np.eye(2)
    np.testing.assert_allclose(mixture.noisy(0.7).log_prob(X), np.log(density(X, noisy)), rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.05, 0.8, 6.0])
@pytest.mark.parametrize("form", FORMS)
def test_tweedie_is_the_posterior(form, sigma):
    mixture = GaussianMixture(WEIGHTS, MEANS, FORMS[form])
    means, covariances = zip(*(posterior(y, sigma, matrices(form)) for y in X), strict=True)
    np.testing.assert_allclose(mixture.posterior_mean(X, sigma), means, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(mixture.posterior_covariance(X, sigma), covariances, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(wl.jit(mixture.posterior_covariance)(X, sigma), covariances, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(mixture.posterior_covariance(X[0], sigma), covariances[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(X - sigma * mixture.denoiser()(X, sigma), means, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_a_noise_level_for_each_sample(form):
    mixture = GaussianMixture(WEIGHTS, MEANS, FORMS[form])
    sigmas = np.geomspace(0.1, 10, len(X))
    each = [mixture.posterior_covariance(y, s) for y, s in zip(X, sigmas, strict=True)]
    np.testing.assert_allclose(mixture.posterior_covariance(X, sigmas), each, rtol=1e-10)
    each = [mixture.denoiser()(y[None], s)[0] for y, s in zip(X, sigmas, strict=True)]
    np.testing.assert_allclose(mixture.denoiser()(X, sigmas), each, rtol=1e-12)


def test_posteriors_by_quadrature():
    """In one dimension E[x0 | y] is a ratio of integrals."""
    mixture = GaussianMixture([0.3, 0.7], [[-1.0], [1.5]], [0.2, 0.5])
    x, y, sigma = np.linspace(-10, 10, 4001), 0.4, 0.9
    weight = np.exp(mixture.log_prob(x[:, None]) - (y - x) ** 2 / (2 * sigma**2))
    mean = np.sum(weight * x) / weight.sum()
    np.testing.assert_allclose(mixture.posterior_mean(np.array([y]), sigma), [mean], rtol=1e-10)
    variance = np.sum(weight * (x - mean) ** 2) / weight.sum()
    np.testing.assert_allclose(mixture.posterior_covariance(np.array([y]), sigma), [[variance]], rtol=1e-10)


def test_far_out_and_point_masses():
    mixture = GaussianMixture(WEIGHTS, MEANS, 0.0)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_allclose(mixture.posterior_mean(np.array([1e4, 0.0]), 0.3), MEANS[1], rtol=1e-8)
    far = GaussianMixture(WEIGHTS, MEANS, FULL).log_prob(np.array([[1e5, -1e5]]))
    assert np.isfinite(far).all() and far[0] < -1e9
    line = GaussianMixture([1.0], [[0.0, 0.0]], np.array([[[1.0, 1.0], [1.0, 1.0]]]))  # on the diagonal
    np.testing.assert_allclose(line.posterior_mean(np.array([3.0, 1.0]), 1e-3), [2.0, 2.0], rtol=1e-6)
    samples = line.sample(wl.random.key(0), 100)
    np.testing.assert_allclose(samples[:, 0], samples[:, 1], atol=1e-7)


def test_derivatives_in_the_parameters():
    mixture = GaussianMixture(WEIGHTS, MEANS, FULL)
    gradient = wl.grad(lambda mixture: np.sum(mixture.log_prob(X)))(mixture)
    assert isinstance(gradient, GaussianMixture)
    step = 1e-6 * np.eye(6).reshape(6, 3, 2)
    slopes = [np.sum(np.log(density_of(MEANS + s)) - np.log(density_of(MEANS - s))) / 2e-6 for s in step]
    np.testing.assert_allclose(gradient.means.ravel(), slopes, rtol=1e-6)
    assert abs(np.sum(gradient.weights * WEIGHTS)) < 1e-12  # weights are relative


def density_of(means):
    return sum(w * multivariate_normal(m, c).pdf(X) for w, m, c in zip(WEIGHTS, means, FULL, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_samples_have_the_moments(form):
    mixture = GaussianMixture(WEIGHTS, MEANS, FORMS[form])
    samples = mixture.sample(wl.random.key(1), 20000)
    mean = WEIGHTS @ MEANS
    second = matrices(form) + MEANS[:, :, None] * MEANS[:, None, :]
    covariance = np.einsum("k,kij->ij", WEIGHTS, second) - np.outer(mean, mean)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=4 * np.sqrt(covariance.max() / 20000))
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=0.08)
    assert np.array_equal(mixture.sample(wl.random.key(1), 10), samples[:10])


def test_single_precision_stays():
    mixture = GaussianMixture(*(np.float32(a) for a in (WEIGHTS, MEANS, FULL)))
    x = np.float32(X)
    for f in (mixture.log_prob, mixture.score, lambda x: mixture.denoiser()(x, np.float32(0.5)),
              lambda x: mixture.posterior_mean(x, 0.5), lambda x: mixture.posterior_covariance(x, 0.5)):  # fmt: skip
        assert f(x).dtype == np.float32 and wl.jit(f)(x).dtype == np.float32
    assert mixture.sample(wl.random.key(0), 3).dtype == np.float32
    np.testing.assert_allclose(mixture.score(x), GaussianMixture(WEIGHTS, MEANS, FULL).score(X), rtol=2e-5, atol=2e-5)


def test_the_flow_of_a_gaussian_solves_its_equation():
    """dx/dsigma = epsilon(x, sigma), by a derivative of the closed form."""
    mean, covariance = MEANS[0], FULL[0]
    epsilon = GaussianMixture([1.0], mean[None], covariance[None]).denoiser()
    slope = wl.jvp(lambda end: gaussian_flow(X, mean, covariance, 3.0, end), (0.7,), (1.0,))[1]
    np.testing.assert_allclose(slope, epsilon(gaussian_flow(X, mean, covariance, 3.0, 0.7), 0.7), rtol=1e-12)
    np.testing.assert_allclose(gaussian_flow(X, mean, covariance, 2.0, 2.0), X, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chunk", [3, 100])
def test_the_ideal_denoiser_is_that_of_point_masses(chunk, dtype):
    data = np.random.default_rng(1).normal(size=(10, 2, 2)).astype(dtype) + dtype(3)
    ideal = IdealDenoiser(data, chunk=chunk)
    exact = GaussianMixture(np.ones(10), data.reshape(10, -1).astype(float), 0.0).denoiser()
    tolerance = 1e-10 if dtype == np.float64 else 2e-3
    for sigma in (0.01, 0.5, 20.0):
        x = data[:5] + dtype(sigma) * np.random.default_rng(2).normal(size=(5, 2, 2)).astype(dtype)
        for f in (ideal, wl.jit(ideal)):
            found = f(x, dtype(sigma))
            assert found.dtype == dtype and found.shape == x.shape
            np.testing.assert_allclose(found, exact(x.astype(float), sigma), rtol=tolerance, atol=tolerance)
    levels = np.geomspace(0.1, 2, 5).astype(dtype)
    wanted = exact(x.astype(float), levels.astype(float))
    np.testing.assert_allclose(ideal(x, levels), wanted, rtol=tolerance, atol=tolerance)


def test_errors_say_the_shapes():
    with pytest.raises(ArgumentError, match=r"weights of shape \(2,\) and means of shape \(3, 2\)"):
        GaussianMixture([0.5, 0.5], MEANS, 1.0)
    with pytest.raises(ArgumentError, match=r"matrices \(3, 2, 2\), variances \(3, 2\).*got shape \(2, 2\)"):
        GaussianMixture(WEIGHTS, MEANS, np.eye(2))
    with pytest.raises(ArgumentError, match=r"like the data \(10, 2\): got shape \(4, 3\)"):
        IdealDenoiser(np.zeros((10, 2)))(np.zeros((4, 3)), 1.0)
