"""Section 6 of notes C: divergences, evidence, bounds and gradients, against closed forms and quadrature."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from sklearn.decomposition import PCA

import wonderland as wl
from wonderland import nn
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    LinearGaussian,
    compare_elbo_gradients,
    difference_gradient,
    estimate_evidence,
    evidence,
    exponential_elbo,
    exponential_evidence,
    exponential_gap,
    exponential_optimum,
    gaussian_kl,
    pathwise_gradient,
    probabilistic_pca,
    score_gradient,
    stochastic_backpropagation,
)

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
BOTH = pytest.mark.parametrize("run", [lambda f: f, wl.jit], ids=["eager", "jitted"])


def linear(features=4, latent=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return LinearGaussian(rng.normal(size=(features, latent)).astype(dtype), rng.normal(size=features).astype(dtype),
                          dtype(0.6))  # fmt: skip


# Lemma 6.2 -----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_point_mass_against_a_fair_coin_and_back(run):
    kl = run(nn.kl_divergence)
    np.testing.assert_allclose(kl(np.array([1.0, 0.0]), np.array([0.5, 0.5])), np.log(2), rtol=1e-15)
    assert kl(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == np.inf
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])  # remark 6.1
    np.testing.assert_allclose([kl(p, q), kl(q, p)], [np.log(2), np.inf])


def test_divergences_are_positive_convex_and_no_distance():
    rng = np.random.default_rng(0)
    p, other_p, q, other_q = rng.dirichlet(np.ones(4), (4, 200))
    kl = lambda p, q: nn.kl_divergence(p, q, reduction="none")
    assert np.all(kl(p, q) > 0) and np.all(kl(p, p) == 0)
    for part in (0.2, 0.7):
        mixed = kl(part * p + (1 - part) * other_p, part * q + (1 - part) * other_q)
        assert np.all(mixed <= part * kl(p, q) + (1 - part) * kl(other_p, other_q) + 1e-15)
        assert np.any(mixed > kl(p, q))  # the printed right-hand side, with P and Q twice
    assert np.any(kl(p, q) > kl(p, other_p) + kl(other_p, q))  # no triangle inequality
    assert not np.allclose(kl(p, q), kl(q, p))


@BOTH
def test_divergences_stay_under_diffeomorphisms(run):
    """Affine maps keep Gaussians; exp makes log-normals, whose divergence is integrated."""
    rng = np.random.default_rng(1)
    a, b, move = rng.normal(size=(3, 3, 3))
    mean, other, shift = rng.normal(size=(3, 3))
    before = run(gaussian_kl)(mean, a @ a.T, other, b @ b.T)
    a, b = move @ a, move @ b
    after = run(gaussian_kl)(move @ mean + shift, a @ a.T, move @ other + shift, b @ b.T)
    np.testing.assert_allclose(after, before, rtol=1e-10)
    p, q = stats.lognorm(0.5, scale=np.exp(0.2)), stats.lognorm(0.8, scale=np.exp(-0.3))
    found = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), 0, 60, limit=300)[0]
    plain = gaussian_kl(np.array([0.2]), np.array([[0.25]]), np.array([-0.3]), np.array([[0.64]]))
    np.testing.assert_allclose(plain, found, rtol=1e-7)


# The evidence by samples ---------------------------------------------------------------------------------------------


def proposals(model, x):
    """The prior, the posterior, and a Gaussian between them, as (sample, log density)."""
    mean, covariance = model.posterior(x)
    cases = {"prior": (0 * mean, np.eye(len(mean))), "posterior": (mean, covariance), "wider": (mean, 2 * covariance)}
    for name, (centre, spread) in cases.items():
        factor, law = np.linalg.cholesky(spread), stats.multivariate_normal(centre, spread)
        sample = lambda key, count, c=centre, f=factor: c + wl.random.normal(key, (count, len(c))) @ f.T
        yield name, sample, law.logpdf


def test_naive_monte_carlo_fails_where_importance_sampling_does_not():
    rng = np.random.default_rng(0)
    model = LinearGaussian(rng.normal(size=(20, 6)), np.zeros(20), 0.05)
    x = model.weight @ rng.normal(size=6) + 0.05 * rng.normal(size=20)
    exact = float(model.log_likelihood(x))
    found = {}
    for name, sample, density in proposals(model, x):
        joint = lambda z: model.log_joint(x, z)
        found[name] = estimate_evidence(joint, sample, density, wl.random.key(0), 10_000)
    assert found["prior"].log_evidence < exact - 50 and found["prior"].effective_samples < 2
    best = found["posterior"]  # every weight is p(x): no variance at all
    np.testing.assert_allclose(best.log_evidence, exact, rtol=1e-8)
    assert best.error < 1e-6 and best.effective_samples > 9999.9
    wider = found["wider"]
    assert 100 < wider.effective_samples < 5000 and abs(wider.log_evidence - exact) < 4 * wider.error < 0.2


@DTYPES
@BOTH
def test_evidence_of_weights(run, dtype):
    weights = np.random.default_rng(0).normal(size=(50, 3)).astype(dtype) - 700  # exp of them underflows in float32
    found = run(evidence)(weights)
    w = np.exp(weights.astype(np.float64) + 700)
    tol = {"rtol": 1e-4 if dtype == np.float32 else 1e-10}
    np.testing.assert_allclose(found.log_evidence, np.log(w.mean(0)) - 700, rtol=1e-6)
    np.testing.assert_allclose(found.effective_samples, w.sum(0) ** 2 / (w**2).sum(0), **tol)
    np.testing.assert_allclose(found.error, w.std(0, ddof=1) / np.sqrt(50) / w.mean(0), **tol)
    assert all(part.dtype == dtype for part in found)


# The gap of the bound ------------------------------------------------------------------------------------------------


@DTYPES
@BOTH
def test_the_gap_is_the_divergence_from_the_posterior(run, dtype):
    model, rng = linear(dtype=dtype), np.random.default_rng(2)
    x, mean = rng.normal(size=(5, 4)).astype(dtype), rng.normal(size=(5, 2)).astype(dtype)
    factor = rng.normal(size=(2, 2))
    covariance = (factor @ factor.T + 0.1 * np.eye(2)).astype(dtype)

    def all_of_it(model, x, mean, covariance):
        return model.log_likelihood(x), model.elbo(x, mean, covariance), model.gap(x, mean, covariance)

    evidence, elbo, gap = run(all_of_it)(model, x, mean, covariance)
    law = stats.multivariate_normal(model.mean, np.float64(model.weight) @ model.weight.T + 0.36 * np.eye(4))
    np.testing.assert_allclose(evidence, law.logpdf(x), rtol=1e-4 if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(evidence - elbo, gap, rtol=1e-4 if dtype == np.float32 else 1e-11)
    assert np.all(gap > 0.1) and elbo.dtype == dtype
    assert all(part.dtype == dtype for part in all_of_it(model._replace(sigma=0.6), x, mean, covariance))
    best = model.posterior(x)
    np.testing.assert_allclose(model.elbo(x, *best), evidence, rtol=1e-4 if dtype == np.float32 else 1e-12)


def test_the_elbo_is_the_mean_of_the_log_weights():
    model, x = linear(), np.array([0.3, -1.0, 0.5, 0.8])
    mean, covariance = np.array([0.2, -0.4]), np.array([[0.7, 0.2], [0.2, 0.5]])
    law = stats.multivariate_normal(mean, covariance)
    z = law.rvs(200_000, random_state=0)
    ratio = model.log_joint(x, z) - law.logpdf(z)
    assert abs(model.elbo(x, mean, covariance) - ratio.mean()) < 4 * ratio.std() / np.sqrt(len(z))


def test_probabilistic_pca_is_scikit_learns():
    x = np.random.default_rng(0).normal(size=(80, 5)) @ np.random.default_rng(1).normal(size=(5, 5))
    model, pca = probabilistic_pca(x, 2), PCA(2).fit(x)
    np.testing.assert_allclose(model.covariance, pca.get_covariance() * 79 / 80, rtol=1e-10)
    c = 80 / 79
    score = pca.score(x) + 2.5 * (np.log(c) + 1 / c - 1)
    np.testing.assert_allclose(np.mean(model.log_likelihood(x)), score, rtol=1e-12)
    with pytest.raises(ArgumentError, match="1 to 4 latent numbers, got latent=5"):
        probabilistic_pca(x, 5)


# Example 6.7 ---------------------------------------------------------------------------------------------------------


@DTYPES
@BOTH
def test_example_6_7(run, dtype):
    elbo = run(exponential_elbo)
    np.testing.assert_allclose(elbo(dtype(1), dtype(1), dtype(2)), -1.9189385332, rtol=1e-6)
    tol = 1e-5 if dtype == np.float32 else 1e-12
    law = stats.expon(scale=1 / 0.7)
    for x in (0.5, 2.0, 3.0):
        best = exponential_optimum(dtype(x))
        assert best == dtype(2 / x)
        gradient = run(wl.grad(exponential_elbo, (0, 1)))(best, best, dtype(x))
        np.testing.assert_allclose(gradient, 0, atol=10 * tol)
        log_joint = lambda z, x=x: np.log(1.3) - 1.3 * z + stats.norm.logpdf(x, z)
        exact = law.expect(lambda z, joint=log_joint: joint(z) - law.logpdf(z))
        np.testing.assert_allclose(elbo(dtype(1.3), dtype(0.7), dtype(x)), exact, rtol=1e-6)
        evidence = np.log(integrate.quad(lambda z, joint=log_joint: np.exp(joint(z)), 0, 40)[0])
        np.testing.assert_allclose(run(exponential_evidence)(dtype(1.3), dtype(x)), evidence, rtol=1e-6)
        gap = run(exponential_gap)(dtype(1.3), dtype(0.7), dtype(x))
        np.testing.assert_allclose(gap, evidence - exact, rtol=1e-5)
        assert gap > 0


def test_the_optimum_of_example_6_7_is_not_the_printed_one():
    for x in (0.5, 2.0):
        found = optimize.minimize(lambda p, x=x: -exponential_elbo(*np.exp(p), x), [0.3, -0.2], tol=1e-12).x
        np.testing.assert_allclose(np.exp(found), 2 / x, rtol=1e-4)
        assert exponential_elbo(2 / x, 2 / x, x) > exponential_elbo(1 / x, 1 / x, x)
    assert exponential_elbo(1e4, 1e4, -1.0) > exponential_elbo(1e2, 1e2, -1.0) > exponential_elbo(1.0, 1.0, -1.0)
    with pytest.raises(ValueError, match="has a maximum for x > 0"):
        exponential_optimum(-1.0)


# Gradients -----------------------------------------------------------------------------------------------------------


def test_all_approaches_have_the_same_mean_and_other_variances():
    model, x = linear(), np.array([0.3, -1.0, 0.5, 0.8])
    mean, logs = np.array([0.2, -0.4]), np.array([-0.5, 0.1])
    exact = np.stack(wl.grad(lambda m, s: model.elbo(x, m, np.diag(np.exp(s))), (0, 1))(mean, logs))
    likelihood = lambda z: model.log_joint(x, z) + 0.5 * np.sum(np.log(2 * np.pi) + z**2)
    count = 20_000
    spread = {}
    for name, found in compare_elbo_gradients(likelihood, mean, logs, wl.random.key(0), count).items():
        assert found.shape == (count, 2, 2)
        error = np.maximum(found.std(0) / np.sqrt(count), 1e-12)
        assert np.all(np.abs(found.mean(0) - exact) < 4 * error), name
        spread[name[:4] + name[-8:]] = found.var(axis=0)
    differences, score, baseline, whole, closed, second = spread.values()
    assert np.all(differences > score) and np.all(score > 2 * baseline)
    assert np.all(baseline > whole) and np.all(second[1] < 1e-20)  # of a quadratic log p, second derivatives are exact
    assert closed.sum() > 0


@DTYPES
@BOTH
def test_gradients_of_an_exponential_law(run, dtype):
    """d/dphi E_{Exp(phi)} z^2 = -4 / phi^3, by the score function and by z = -log(u) / phi."""
    phi = np.array(1.5, dtype)
    noise = wl.random.exponential(wl.random.key(0), (100_000,), dtype=dtype)
    square, density = lambda phi, z: z**2, lambda phi, z: np.log(phi) - phi * z
    transform = lambda phi, e: e / phi
    found = {
        "score": run(lambda phi, z: score_gradient(square, phi, z, density))(phi, noise / phi),
        "number": run(lambda phi, z: score_gradient(square, phi, z, density, 0.8))(phi, noise / phi),
        "others": run(lambda phi, z: score_gradient(square, phi, z, density, "others"))(phi, noise / phi),
        "path": run(lambda phi, e: pathwise_gradient(square, phi, e, transform))(phi, noise),
        "difference": run(lambda phi, e: difference_gradient(square, phi, e, transform, 0.05))(phi, noise),
    }
    for name, values in found.items():
        assert values.dtype == dtype and values.shape == (100_000,)
        bias = 0.005 if name == "difference" else 0
        assert abs(values.mean() + 4 / 1.5**3) < 4 * values.std() / np.sqrt(1e5) + bias, name
    assert found["path"].var() < found["others"].var() < found["score"].var()


@DTYPES
@BOTH
def test_bonnet_and_price(run, dtype):
    """E sin(a'z) of a Gaussian is exp(-v/2) sin(a'm), v = sum a_i^2 s_i^2."""
    a = np.array([0.5, -1.0], dtype)
    mean, logs = np.array([0.3, 0.8], dtype), np.array([-0.4, 0.2], dtype)
    exact = wl.grad(lambda m, s: np.exp(-0.5 * np.sum(a**2 * np.exp(s))) * np.sin(np.sum(a * m)), (0, 1))(mean, logs)
    noise = wl.random.normal(wl.random.key(0), (50_000, 2), dtype=dtype)
    f = lambda m, s, e: stochastic_backpropagation(lambda z: np.sin(np.sum(a * z)), m, s, e)
    for found, wanted in zip(run(f)(mean, logs, noise), exact, strict=True):
        assert found.dtype == dtype
        assert np.all(np.abs(found.mean(0) - wanted) < 4 * found.std(0) / np.sqrt(50_000))


def test_what_is_refused():
    one = lambda phi, z: z
    with pytest.raises(ArgumentError, match="a baseline is None"):
        score_gradient(one, np.ones(()), np.ones(3), one, "mean")
    with pytest.raises(ArgumentError, match="at least two"):
        score_gradient(one, np.ones(()), np.ones(1), one, "others")
    with pytest.raises(ArgumentError, match="at least one sample"):
        evidence(np.ones(0))
    with pytest.raises(ArgumentError, match="at least one sample"):
        estimate_evidence(one, one, one, wl.random.key(0), 0)
    with pytest.raises(ArgumentError, match=r"means \(..., d\) and covariances"):
        gaussian_kl(np.ones(2), np.ones(2), np.ones(2), np.eye(2))
