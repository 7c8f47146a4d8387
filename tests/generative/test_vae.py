"""Variational auto-encoders against probabilistic PCA, factor analysis, and densities of SciPy."""

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA, FactorAnalysis

import wonderland as wl
from wonderland import nn, train
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    VAE,
    BernoulliLikelihood,
    CholeskyLikelihood,
    ConditionalVAE,
    GaussianLikelihood,
    cubature,
    diagonal_gaussian_kl,
    gaussian_kl,
)  # fmt: skip

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
NORMAL = stats.norm.logpdf


def points(count=150, features=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(features, features)) * np.array([2.0, 1.5, 0.6, 0.4, 0.3])[:features]
    return (rng.normal(size=(count, features)) @ mix.T + rng.normal(size=features)).astype(dtype)


def linear_vae(features=5, latent=2, dtype=np.float64, cls=VAE, **settings):
    keys = wl.random.split(wl.random.key(5))
    encoder = nn.Linear(features, 2 * latent, key=keys[0], dtype=dtype)
    decoder = nn.Linear(latent, features, key=keys[1], dtype=dtype)
    return cls(encoder, decoder, latent, key=wl.random.key(6), dtype=dtype, **settings)


def trained(model, x, steps):
    """By L-BFGS, on the exact ELBO: log p(x | z) is quadratic in z, so that the cubature has no error."""
    noise = cubature(model.latent)
    optimizer = train.LBFGS(model, history=30)
    step = wl.jit(lambda model, optimizer, x: optimizer.minimize(lambda m: m.loss(x, noise=noise), model))
    for _ in range(steps):
        step(model, optimizer, x)
    return -float(model.loss(x, noise=noise))


# The optimum of a linear VAE -----------------------------------------------------------------------------------------


def test_the_optimum_is_probabilistic_pca():
    x = points()
    count, features = x.shape
    model = linear_vae(variance="scalar")
    found = trained(model, x, 500)
    # scikit-learn divides by n - 1: its covariance is c = n / (n - 1) times the most likely one, whose score is higher
    # by (features / 2) (log c + 1/c - 1).
    c = count / (count - 1)
    pca = PCA(2).fit(x)
    np.testing.assert_allclose(found, pca.score(x) + features / 2 * (np.log(c) + 1 / c - 1), rtol=1e-9)
    np.testing.assert_allclose(np.exp(2 * model.likelihood.log_sigma), pca.noise_variance_ / c, rtol=1e-4)
    # at the optimum q is the posterior: importance sampling has no variance, and the bound no gap
    exact = stats.multivariate_normal(x.mean(0), pca.get_covariance() / c).logpdf(x)
    np.testing.assert_allclose(model.elbo(x, noise=cubature(2)), exact, atol=1e-3)
    np.testing.assert_allclose(model.log_likelihood(x, samples=4, chunk=2), exact, atol=1e-3)


def test_the_optimum_with_a_variance_for_each_output_is_factor_analysis():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(400, 6)) * np.linspace(0.5, 1.0, 6)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 6)) + noise
    analysis = FactorAnalysis(2, tol=1e-12, max_iter=2000, svd_method="lapack").fit(x)
    found = trained(linear_vae(6, variance="output", shape=(6,)), x, 300)
    np.testing.assert_allclose(found, analysis.score(x), rtol=1e-9)


# Densities and divergences -------------------------------------------------------------------------------------------


@DTYPES
def test_likelihoods_have_the_constants_of_densities(dtype):
    rng = np.random.default_rng(0)
    x, mean = rng.normal(size=(2, 4, 3, 2)).astype(dtype)
    logs = rng.normal(size=(4, 3, 2)).astype(dtype)
    tol = {"rtol": 3e-5 if dtype == np.float32 else 1e-12}
    total = lambda terms: terms.reshape(4, -1).sum(1)
    cases = [
        (GaussianLikelihood(sigma=0.5), mean, total(NORMAL(x, mean, 0.5))),
        (GaussianLikelihood("scalar", 0.3, dtype=dtype), mean, total(NORMAL(x, mean, 0.3))),
        (GaussianLikelihood("output", 0.3, (3, 2), dtype), mean, total(NORMAL(x, mean, 0.3))),
        (GaussianLikelihood("decoder"), np.concatenate([mean, logs], 1), total(NORMAL(x, mean, np.exp(logs / 2)))),
    ]
    for likelihood, output, expected in cases:
        for log_prob in (likelihood.log_prob, wl.jit(lambda x, o, likelihood=likelihood: likelihood.log_prob(x, o))):
            found = log_prob(x, output)
            assert found.dtype == dtype and found.shape == (4,)
            np.testing.assert_allclose(found, expected, **tol)
        np.testing.assert_array_equal(likelihood.mean(output), mean)
    bits = (x > 0).astype(dtype)
    exact = total(stats.bernoulli.logpmf(bits, 1 / (1 + np.exp(-mean.astype(np.float64)))))
    np.testing.assert_allclose(BernoulliLikelihood().log_prob(bits, mean), exact, **tol)


@DTYPES
def test_a_full_covariance_by_its_factor(dtype):
    rng = np.random.default_rng(1)
    output = rng.normal(size=(5, 3 + 6)).astype(dtype)
    x = rng.normal(size=(5, 3)).astype(dtype)
    likelihood = CholeskyLikelihood()
    factors = np.zeros((5, 3, 3))
    factors[:, *np.tril_indices(3)] = output[:, 3:]
    factors[:, range(3), range(3)] = np.exp(factors[:, range(3), range(3)])
    expected = [stats.multivariate_normal(o[:3], f @ f.T).logpdf(v) for o, f, v in zip(output, factors, x)]
    for log_prob in (likelihood.log_prob, wl.jit(lambda x, o: likelihood.log_prob(x, o))):
        np.testing.assert_allclose(log_prob(x, output), expected, rtol=1e-4 if dtype == np.float32 else 1e-10)
    many = likelihood.sample(np.broadcast_to(output[:1], (100_000, 9)), wl.random.key(0))
    np.testing.assert_allclose(np.cov(many.T), factors[0] @ factors[0].T, rtol=0.05, atol=0.05)


def test_divergences_of_gaussians():
    rng = np.random.default_rng(2)
    mean, logs = rng.normal(size=(2, 3))
    exact = 0.5 * (np.sum(mean**2) + np.sum(np.exp(logs)) - np.sum(logs) - 3)  # A3.14
    np.testing.assert_allclose(diagonal_gaussian_kl(mean, logs), exact, rtol=1e-14)
    other, other_logs = rng.normal(size=(2, 3))
    full = gaussian_kl(mean, np.diag(np.exp(logs)), other, np.diag(np.exp(other_logs)))
    np.testing.assert_allclose(diagonal_gaussian_kl(mean, logs, other, other_logs), full, rtol=1e-12)
    a, b = rng.normal(size=(2, 3, 3))
    first, second = stats.multivariate_normal(mean, a @ a.T), stats.multivariate_normal(other, b @ b.T)
    z = first.rvs(400_000, random_state=0)
    ratio = first.logpdf(z) - second.logpdf(z)
    found = wl.jit(gaussian_kl)(mean, a @ a.T, other, b @ b.T)
    assert abs(found - ratio.mean()) < 4 * ratio.std() / np.sqrt(len(z))


# Bounds --------------------------------------------------------------------------------------------------------------


def exact_evidence(model, x):
    weight, sigma = model.decoder.weight, model.likelihood.sigma
    covariance = weight @ weight.T + sigma**2 * np.eye(len(weight))
    return stats.multivariate_normal(model.decoder.bias, covariance).logpdf(x)


def test_the_importance_weighted_bound_grows_to_the_likelihood():
    x = points(3)
    model = linear_vae(sigma=1.3)
    model.encoder.weight[...], model.encoder.bias[...] = 0, 0  # q = N(0, 1), which is wider than the posterior
    exact = exact_evidence(model, x)
    noise = wl.random.normal(wl.random.key(0), (256_000, 3, 2), dtype=np.float64)
    draws = model.log_weights(x, noise=noise)
    spread = np.var(np.exp(draws - exact), axis=0)  # of p(x, z) / q(z | x), relative to p(x)
    gaps, elbo = [], model.elbo(x, noise=cubature(2))
    for k in (1, 2, 4, 8, 64):
        means = np.mean(np.exp(draws - exact).reshape(-1, k, 3), axis=1)  # their own mean is 1
        gaps.append(np.mean(means - 1 - np.log(means), axis=0))
        bounds = np.log(means)
        error = bounds.std(axis=0) / np.sqrt(len(bounds))
        assert np.all(np.abs(means.mean(axis=0) - 1) < 4 * means.std(axis=0) / np.sqrt(len(means)))
        assert k > 8 or np.all(bounds.mean(axis=0) < -4 * error)  # below log p(x), and not by chance
    assert np.all(np.diff(gaps, axis=0) < 0)  # monotone in K
    np.testing.assert_allclose(exact - gaps[0], elbo, atol=4 * np.max(draws.std(0)) / np.sqrt(len(draws)))
    np.testing.assert_allclose(gaps[-1] * 64, spread / 2, rtol=0.15)  # a gap of variance / 2K, as K grows
    np.testing.assert_allclose(model.iwae(x, noise=noise[:64]), np.log(np.exp(draws[:64]).mean(0)), rtol=1e-12)
    estimate = lambda x: model.log_likelihood(x, samples=50_000, chunk=5000, key=wl.random.key(1))
    for run in (estimate, wl.jit(estimate)):
        np.testing.assert_allclose(run(x), exact, atol=0.02)


def test_the_elbo_is_the_mean_over_its_samples():
    x, model = points(4), linear_vae(sigma=0.8)
    noise = wl.random.normal(wl.random.key(2), (6, 4, 2), dtype=np.float64)
    single = [model.elbo(x, noise=noise[i : i + 1]) for i in range(6)]
    np.testing.assert_allclose(model.elbo(x, noise=noise), np.mean(single, axis=0), rtol=1e-12)
    one = model.iwae(x, noise=noise[:1])  # K = 1: log p - log q, whose mean is the ELBO
    ratio = model.log_weights(x, noise=noise[:1])[0]
    np.testing.assert_allclose(one, ratio, rtol=1e-12)
    likelihood, kl = model.terms(x, noise=noise)
    np.testing.assert_allclose(linear_vae(sigma=0.8, beta=3).loss(x, noise=noise), np.mean(3 * kl - likelihood))
    np.testing.assert_allclose(
        linear_vae(sigma=0.8, objective="iwae").loss(x, noise=noise), -np.mean(model.iwae(x, noise=noise))
    )


@DTYPES
@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "bernoulli"}, {"variance": "fixed", "samples": 3}, {"variance": "scalar", "beta": 2.0},
        {"variance": "output", "shape": (5,)}, {"variance": "decoder"}, {"variance": "full"},
        {"objective": "iwae", "samples": 4},
    ],
    ids=str,
)  # fmt: skip
def test_eager_and_jitted(dtype, settings):
    x = np.clip(points(6, dtype=dtype), 0, 1)
    outputs = {"decoder": 10, "full": 20}.get(settings.get("variance"), 5)
    keys = wl.random.split(wl.random.key(5))
    encoder = nn.Linear(5, 4, key=keys[0], dtype=dtype)
    model = VAE(encoder, nn.Linear(2, outputs, key=keys[1], dtype=dtype), 2, dtype=dtype, **settings)
    key = wl.random.key(0)
    loss = lambda model, x: model.loss(x, key=key)
    value, gradient = wl.value_and_grad(loss)(model, x)
    jitted, compiled = wl.jit(wl.value_and_grad(loss))(model, x)
    assert np.asarray(value).dtype == dtype
    tol = {"rtol": 2e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(value, jitted, **tol)
    for a, b in zip(wl.tree_leaves(gradient), wl.tree_leaves(compiled), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, **tol)
    assert model.reconstruct(x).shape == (6, 5) and model.sample(7, key=key).shape == (7, 5)
    assert model.sample(7, noisy=True, key=key).dtype == dtype == model.sample(7, key=key).dtype
    if dtype == np.float64:
        wl.testing.check_grads(lambda w: loss(changed(model, w), x), (np.array(encoder.weight),), order=1)


def changed(model, weight):
    other = VAE(nn.Linear(5, 4, dtype=np.float64), model.decoder, 2, samples=model.samples, beta=model.beta)
    other.encoder.weight, other.encoder.bias = weight, model.encoder.bias
    other.likelihood, other.objective = model.likelihood, model.objective
    return other


def test_noise_depends_on_the_key_and_the_sample_alone():
    x, model, key = points(8), linear_vae(samples=3), wl.random.key(0)
    np.testing.assert_allclose(model.elbo(x, key=key)[:3], model.elbo(x[:3], key=key), rtol=1e-12)
    assert not np.allclose(model.elbo(x), model.elbo(x))
    model.eval()
    np.testing.assert_array_equal(model.elbo(x), model.elbo(x))


def test_it_is_trained_and_validated_by_fit():
    x = points(100, dtype=np.float32)
    model = linear_vae(dtype=np.float32, variance="scalar", samples=2)
    key = model.key.copy()
    history = train.fit(model, lambda model, x: model.loss(x), train.Adam(model, 1e-2), x[:80], epochs=30,
                        validation=x[80:], progress=False)  # fmt: skip
    for name in ("loss", "validation_loss"):
        assert history[name][-1] < history[name][0]
    assert not np.array_equal(model.key, key)  # new noise for each batch


def test_samples_have_the_covariance_of_the_model():
    model = linear_vae(sigma=0.5)
    weight = model.decoder.weight
    for noisy in (False, True):
        found = np.cov(model.sample(100_000, noisy=noisy, key=wl.random.key(0)).T)
        np.testing.assert_allclose(found, weight @ weight.T + noisy * 0.25 * np.eye(5), atol=0.02)


# Conditions ----------------------------------------------------------------------------------------------------------


class WithLabel(nn.Module):
    """A linear layer of x and of a label as one of two unit vectors."""

    def __init__(self, inputs, outputs, seed):
        self.layer = nn.Linear(inputs + 2, outputs, key=wl.random.key(seed), dtype=np.float64)

    def __call__(self, x, label):
        return self.layer(np.concatenate([x, label[:, None] == np.arange(2)], axis=1))


class OfLabel(nn.Module):
    def __init__(self, outputs):
        self.table = np.zeros((2, outputs))

    def __call__(self, label):
        return self.table[label]


@pytest.mark.parametrize("prior", [False, True])
def test_a_conditional_vae_is_one_gaussian_for_each_label(prior):
    """Its best bound is at least the likelihood of PCA with a mean for each label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    x = points(200, 3) + 3.0 * labels[:, None]
    centred = x.copy()
    for k in (0, 1):
        centred[labels == k] -= x[labels == k].mean(0)
    model = ConditionalVAE(WithLabel(3, 2, 0), WithLabel(1, 3, 1), 1, variance="scalar", dtype=np.float64,
                           prior=OfLabel(2) if prior else None, key=wl.random.key(0))  # fmt: skip
    noise = cubature(1)
    optimizer = train.LBFGS(model, history=30)
    step = wl.jit(lambda m, o, x, c: o.minimize(lambda m: m.loss(x, c, noise=noise), m))
    for _ in range(300):
        step(model, optimizer, x, labels)
    c = 200 / 199
    pca = PCA(1).fit(centred).score(centred) + 1.5 * (np.log(c) + 1 / c - 1)
    found = -float(model.loss(x, labels, noise=noise))
    if prior:  # a variance of the code for each label
        assert found >= pca - 1e-9
    else:
        np.testing.assert_allclose(found, pca, rtol=1e-7)
    new = model.sample(2, np.array([0, 1]), key=wl.random.key(3))
    assert new.shape == (2, 3) and model.log_likelihood(x, labels, samples=10, key=wl.random.key(0)).shape == (200,)


# What is refused -----------------------------------------------------------------------------------------------------


def test_errors_say_what_was_expected():
    x = points(4)
    with pytest.raises(ArgumentError, match=r"means and log variances, \(B, 6\), and not \(4, 4\)"):
        VAE(nn.Linear(5, 4, dtype=np.float64), nn.Linear(3, 5, dtype=np.float64), 3).elbo(x)
    with pytest.raises(ArgumentError, match="likelihood is"):
        linear_vae(likelihood="poisson")
    with pytest.raises(ArgumentError, match="variance is one of"):
        linear_vae(variance="learned")
    with pytest.raises(ArgumentError, match=r"write shape=x.shape\[1:\]"):
        linear_vae(variance="output")
    with pytest.raises(ArgumentError, match=r"use wl\.generative\.ConditionalVAE"):
        linear_vae().loss(x, np.zeros(4))
    with pytest.raises(ArgumentError, match="takes a condition for each sample"):
        linear_vae(cls=ConditionalVAE).loss(x)
    with pytest.raises(ArgumentError, match=r"each of 3 samples, got one of shape \(2,\)"):
        linear_vae(cls=ConditionalVAE).sample(3, np.zeros(2))
    with pytest.raises(ArgumentError, match=r"noise is \(L, 2\) or \(L, 4, 2\)"):
        linear_vae().elbo(x, noise=np.ones((3, 3)))
    with pytest.raises(ArgumentError, match="no KL divergence to weigh"):
        linear_vae(objective="iwae", beta=2.0)
    with pytest.raises(ArgumentError, match=r"\(N, n \+ n \(n\+1\) / 2\)"):
        linear_vae(6, variance="full").elbo(points(4, 5) @ np.ones((5, 6)))
