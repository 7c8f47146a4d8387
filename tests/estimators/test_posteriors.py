"""Posteriors by Laplace, variational inference and Hamiltonian Monte Carlo equal conjugate and other closed forms."""

import numpy as np
import pytest
from scipy import special

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.estimators import (
    BayesianLinearRegression,
    effective_sample_size,
    hmc,
    laplace_approximation,
    r_hat,
    variational_inference,
)

KEY = wl.random.key(0)
ALPHA, BETA = 0.7, 2.0


def regression(w, X, y):
    """log p(y | w) p(w) of Gaussian linear regression."""
    rest, d = y - X @ w, X.shape[1]
    likelihood = 0.5 * X.shape[0] * np.log(BETA / (2 * np.pi)) - 0.5 * BETA * np.sum(rest**2)
    return likelihood + 0.5 * d * np.log(ALPHA / (2 * np.pi)) - 0.5 * ALPHA * np.sum(w**2)


@pytest.fixture(scope="module")
def conjugate():
    """Data with correlated features, and the exact posterior."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 3)) @ np.array([[1, 0.8, 0], [0, 0.5, 0.3], [0, 0, 2]])
    y = X @ [1.0, -1, 0.5] + rng.normal(size=25) / np.sqrt(BETA)
    return (X, y), BayesianLinearRegression(alpha=ALPHA, beta=BETA, fit_intercept=False).fit(X, y)


def test_laplace_is_exact_for_a_gaussian(conjugate):
    data, exact = conjugate
    found = laplace_approximation(regression, np.zeros(3), KEY, args=data)
    np.testing.assert_allclose(found.mean, exact.coef_, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, exact.covariance_, rtol=1e-8, atol=1e-12)
    assert found.log_evidence == pytest.approx(exact.log_evidence_, rel=1e-10)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_the_nearest_gaussian_of_any_covariance_is_the_posterior(conjugate, scale):
    data, exact = conjugate
    found = variational_inference(regression, np.full(3, 2.0), KEY, args=data, scale=scale, steps=2000)
    np.testing.assert_allclose(found.mean, exact.coef_, atol=1e-4)
    np.testing.assert_allclose(found.covariance, exact.covariance_, rtol=1e-3, atol=1e-5)
    assert found.log_evidence == pytest.approx(exact.log_evidence_, abs=1e-4)
    bounds = found.details["elbo"]
    assert bounds.shape == (2000,)
    assert np.mean(bounds[-100:]) == pytest.approx(exact.log_evidence_, abs=1e-3)
    if scale:
        assert bounds[0] < exact.log_evidence_ - 10


def test_the_nearest_diagonal_gaussian_has_the_inverse_diagonal_of_the_precision(conjugate):
    data, exact = conjugate
    found = variational_inference(
        regression, np.zeros(3), KEY, args=data, family="mean_field", steps=3000, samples=32, scale=0.3
    )
    variances = 1 / np.diag(np.linalg.inv(exact.covariance_))
    np.testing.assert_allclose(np.diag(found.covariance), variances, rtol=0.02)
    assert np.all(found.covariance == np.diag(np.diag(found.covariance)))
    np.testing.assert_allclose(found.mean, exact.coef_, atol=1e-5)  # by mirrored pairs
    # the bound is below the evidence by KL(q || p)
    gap = 0.5 * (np.linalg.slogdet(exact.covariance_)[1] - np.sum(np.log(variances)))
    assert found.log_evidence == pytest.approx(exact.log_evidence_ - gap, abs=0.05)
    assert np.all(variances < np.diag(exact.covariance_))


@pytest.mark.parametrize("mass", ["dense", "diagonal"])
def test_chains_have_the_posteriors_moments(conjugate, mass):
    data, exact = conjugate
    found = hmc(regression, np.zeros(3), KEY, args=data, mass=mass, draws=1500)
    assert found.samples.shape == (4, 1500, 3)
    table = found.summary()
    sd = np.sqrt(np.diag(exact.covariance_))
    assert np.all(table.r_hat < 1.01) and np.all(table.ess > 1000)
    assert np.max(np.abs(found.mean - exact.coef_) / sd * np.sqrt(table.ess)) < 4
    assert np.max(np.abs(found.covariance - exact.covariance_) / np.outer(sd, sd)) < 0.1
    np.testing.assert_allclose(table.sd, sd, rtol=0.06)
    expected = exact.coef_[:, None] + sd[:, None] * special.ndtri([0.05, 0.5, 0.95])
    assert np.max(np.abs(table.quantiles - expected) / sd[:, None]) < 0.12
    assert 0.6 < found.details["acceptance"] < 0.98 and found.details["divergences"] == 0


def log_gamma(x, shape):
    """x = log t, t ~ Gamma(shape): skew, with known moments, and the integral Gamma(shape)."""
    return np.sum(shape * x - np.exp(x))


def test_a_skew_posterior():
    shape = 3.0
    evidence = special.gammaln(shape)
    laplace = laplace_approximation(log_gamma, np.zeros(1), KEY, args=(shape,))
    assert laplace.mean == pytest.approx(np.log(shape)) and laplace.covariance[0, 0] == pytest.approx(1 / shape)
    stirling = shape * np.log(shape) - shape + 0.5 * np.log(2 * np.pi / shape)
    assert laplace.log_evidence == pytest.approx(stirling, rel=1e-10)
    nearest = variational_inference(log_gamma, np.zeros(1), KEY, args=(shape,), steps=3000, samples=32, draws=20000)
    # max of shape m - exp(m + s2 / 2) + 1/2 log 2 pi e s2 over m and s2
    assert nearest.covariance[0, 0] == pytest.approx(1 / shape, rel=0.02)
    assert nearest.mean[0] == pytest.approx(np.log(shape) - 1 / (2 * shape), abs=0.005)
    best = shape * np.log(shape) - 0.5 - shape + 0.5 * np.log(2 * np.pi * np.e / shape)
    assert nearest.log_evidence == pytest.approx(best, abs=0.005) and best < evidence
    chains = hmc(log_gamma, np.zeros(1), KEY, args=(shape,), draws=3000)
    error = np.sqrt(special.polygamma(1, shape) / chains.summary().ess[0])
    assert abs(chains.mean[0] - special.digamma(shape)) < 4 * error
    assert chains.covariance[0, 0] == pytest.approx(special.polygamma(1, shape), rel=0.08)
    # E.3.10: E exp x = shape by the plain mean over samples
    assert chains.average(lambda x: np.exp(x[0])) == pytest.approx(shape, rel=0.05)


def test_units_of_unknowns_dont_matter():
    """Standard deviations from 1e-3 to 1e3, strongly correlated."""
    correlation = np.full((3, 3), 0.95) + 0.05 * np.eye(3)
    sizes = np.array([1e-3, 1.0, 1e3])
    covariance = correlation * np.outer(sizes, sizes)
    precision = np.linalg.inv(covariance)
    found = hmc(lambda x: -0.5 * x @ precision @ x, np.zeros(3), KEY, draws=1500)
    assert np.max(np.abs(found.covariance / covariance - 1)) < 0.15
    assert np.all(found.summary().r_hat < 1.02)


def test_trees_names_and_what_is_printed():
    data = np.array([1.2, 0.7, 2.1, 1.6])

    def log_density(at):
        scale = np.exp(at["log_scale"])
        return -np.sum(0.5 * ((data - at["mean"][0]) / scale) ** 2 + at["log_scale"]) - 0.5 * np.sum(at["mean"] ** 2)

    start = {"mean": np.zeros(2), "log_scale": 0.0}
    found = laplace_approximation(log_density, start, KEY, draws=500)
    assert found.names == ["log_scale", "mean[0]", "mean[1]"]
    assert found.unravel(found.mean)["mean"].shape == (2,)
    assert found.average(lambda at: at["mean"]).shape == (2,)
    lines = str(found.summary()).splitlines()
    assert len(lines) == 4 and lines[0].split() == ["mean", "sd", "5%", "50%", "95%", "R-hat", "ESS"]
    assert lines[1].split()[0] == "log_scale"
    same = variational_inference(log_density, start, KEY, steps=100)
    again = variational_inference(log_density, start, KEY, steps=100)
    np.testing.assert_array_equal(same.samples, again.samples)


def test_chains_start_where_the_density_is():
    found = hmc(lambda x: np.sum(np.log(x) - x), np.array([0.05]), KEY, jitter=3.0, draws=1500)  # Gamma(2), x > 0
    assert np.all(found.samples > 0)
    assert found.mean[0] == pytest.approx(2, abs=5 * np.sqrt(2 / found.summary().ess[0]))


def test_effective_sample_size_of_an_autoregression():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 4000, 3))
    factors = np.array([0.0, 0.6, 0.9])
    for i in range(1, 4000):
        draws[:, i] = factors * draws[:, i - 1] + np.sqrt(1 - factors**2) * draws[:, i]
    np.testing.assert_allclose(effective_sample_size(draws), 16000 * (1 - factors) / (1 + factors), rtol=0.15)
    assert effective_sample_size(draws[:, :, 1]) == effective_sample_size(draws)[1]


def test_r_hat_sees_chains_that_disagree():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 2000, 4))
    draws[0, :, 1] += 1.0
    draws[0, :, 2] *= 3.0  # the same mean, another width
    draws[:, :, 3] += np.linspace(0, 2, 2000)  # all go the same way
    found = r_hat(draws)
    assert found[0] < 1.003 and np.all(found[1:] > 1.05)
    # Gaussian chains of means m: the pooled variance is 1 + var(m); ranks change it little
    assert found[1] == pytest.approx(np.sqrt(1 + np.var([1, 0, 0, 0, 1, 0, 0, 0], ddof=1)), rel=0.03)
    assert np.isnan(r_hat(np.ones((2, 10))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laplace_approximation(lambda x: -(x**2), np.zeros(2), KEY), r"one number, got shape \(2,\): sum it"),
        (lambda: laplace_approximation(lambda x: np.sum(np.log(x)), np.zeros(2), KEY), "-inf at the start"),
        (lambda: laplace_approximation(lambda x: np.sum(x), np.zeros(2), KEY), "is the log density bounded"),
        (lambda: laplace_approximation(lambda x: np.sum(x), np.zeros(0), KEY), "the start is real numbers"),
        (lambda: variational_inference(lambda x: -x @ x, np.zeros(2), KEY, family="low_rank"), "family is one of"),
        (lambda: variational_inference(lambda x: -x @ x, np.zeros(2), KEY, scale=[1.0, -1]), "scale is a number above"),
        (lambda: variational_inference(lambda x: -x @ x, np.zeros(2), KEY, steps=0), "at least one step"),
        (lambda: hmc(lambda x: -x @ x, np.zeros(2), KEY, draws=0), "at least 4 draws"),
        (lambda: hmc(lambda x: -x @ x, np.zeros(2), KEY, target=80), "target is between 0 and 1"),
        (lambda: hmc(lambda x: -x @ x, np.zeros(2), KEY, mass="unit"), "mass is one of"),
        (lambda: r_hat(np.zeros(10)), r"\(chains, draws\)"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(ArgumentError, match=message), np.errstate(divide="ignore"):
        call()
