"""Auto-encoders against principal components and closed forms of Gaussians."""

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA

import wonderland as wl
from wonderland import nn, train
from wonderland.core.errors import ArgumentError
from wonderland.generative import AutoEncoder, DenoisingAutoEncoder, LinearAutoEncoder, discarded_spectrum

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def points(count=200, features=6, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(features, features)) * np.array([3.0, 2.0, 1.0, 0.5, 0.3, 0.2])[:features]
    return (rng.normal(size=(count, features)) @ mix.T + rng.normal(size=features)).astype(dtype)


def discarded(x, code):
    """What scikit-learn leaves out, as a mean over samples."""
    left = PCA().fit(x.astype(np.float64)).explained_variance_[code:]
    return left.sum() * (len(x) - 1) / len(x)


@DTYPES
@pytest.mark.parametrize("code", [1, 3])
def test_the_closed_form_is_pca(dtype, code):
    x = points(dtype=dtype)
    model = LinearAutoEncoder(6, code, key=wl.random.key(0), dtype=dtype).fit(x)
    tol = 1e-5 if dtype == np.float32 else 1e-12
    for loss in (model.loss, wl.jit(lambda x: model.loss(x))):
        np.testing.assert_allclose(loss(x), discarded(x, code), rtol=tol)
    np.testing.assert_allclose(discarded_spectrum(x, code), discarded(x, code), rtol=tol)
    pca = PCA(code).fit(x.astype(np.float64))
    np.testing.assert_allclose(model.reconstruct(x), pca.inverse_transform(pca.transform(x)), atol=20 * tol)
    product = np.float64(model.decoder.weight) @ np.float64(model.encoder.weight)  # DE = U_r U_r', without S
    np.testing.assert_allclose(product, pca.components_.T @ pca.components_, atol=20 * tol)
    assert model.reconstruct(x).dtype == dtype and model.encode(x).shape == (200, code)


def test_without_bias_it_is_the_svd():
    x = points()
    model = LinearAutoEncoder(6, 2, bias=False, key=wl.random.key(0), dtype=np.float64).fit(x)
    singular = np.linalg.svd(x, compute_uv=False)
    np.testing.assert_allclose(model.loss(x), np.sum(singular[2:] ** 2) / len(x), rtol=1e-12)
    np.testing.assert_allclose(discarded_spectrum(x, 2, centred=False), np.sum(singular[2:] ** 2) / len(x), rtol=1e-12)


def test_gradients_reach_the_discarded_spectrum():
    x = points()
    model = LinearAutoEncoder(6, 2, key=wl.random.key(1), dtype=np.float64)
    assert model.loss(x) > 1.05 * discarded(x, 2)
    optimizer = train.LBFGS(model, history=30)
    step = wl.jit(lambda model, optimizer, x: optimizer.minimize(lambda m: m.loss(x), model))
    for _ in range(400):
        step(model, optimizer, x)
    np.testing.assert_allclose(model.loss(x), discarded(x, 2), rtol=1e-9)


def deep(dtype=np.float32, seed=0):
    wl.random.seed(seed)
    linear = lambda *sizes: nn.Linear(*sizes, dtype=dtype)
    return AutoEncoder(
        nn.Sequential(linear(2, 32), nn.tanh, linear(32, 1)), nn.Sequential(linear(1, 32), nn.tanh, linear(32, 2))
    )


def test_a_deep_one_follows_a_curve_that_no_line_does():
    rng = np.random.default_rng(0)
    t = rng.uniform(-1, 1, 300)
    x = np.stack([np.sin(2 * t), np.cos(2 * t)], 1).astype(np.float32)
    model = deep()
    loss = lambda model, x: model.loss(x)
    train.fit(model, loss, train.Adam(model, 1e-2), x, epochs=300, batch_size=100, progress=False)
    assert model.loss(x) < 0.05 * discarded(x, 1)


@DTYPES
def test_eager_and_jitted_and_its_gradient(dtype):
    model, x = deep(dtype), points(20, 2, dtype=dtype)
    np.testing.assert_allclose(model.loss(x), np.mean(np.sum((x - model(x)) ** 2, axis=1)), rtol=1e-6)
    loss = lambda model: model.loss(x)
    eager, jitted = wl.grad(loss)(model), wl.jit(wl.grad(loss))(model)
    for a, b in zip(wl.tree_leaves(eager), wl.tree_leaves(jitted), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == np.float32 else 1e-10, atol=1e-5)


# Denoising -----------------------------------------------------------------------------------------------------------


def linear_denoiser(sigma, features=3, dtype=np.float64, **settings):
    keys = wl.random.split(wl.random.key(3))
    encoder = nn.Linear(features, features, bias=False, key=keys[0], dtype=dtype)
    decoder = nn.Linear(features, features, bias=False, key=keys[1], dtype=dtype)
    return DenoisingAutoEncoder(encoder, decoder, sigma, key=wl.random.key(4), **settings)


def test_the_best_denoiser_is_tweedies():
    """For x of N(0, S), E[x | y] = S (S + sigma^2)^-1 y; training finds it up to the noise of its samples."""
    rng = np.random.default_rng(0)
    scales = np.array([2.0, 1.0, 0.3])
    x = (rng.normal(size=(20_000, 3)) * scales).astype(np.float32)
    model = linear_denoiser(0.7, dtype=np.float32)
    train.fit(model, lambda model, x: model.loss(x), train.Adam(model, train.cosine(1e-2, 5 * 79)), x, epochs=5,
              batch_size=256, progress=False)  # fmt: skip
    product = model.decoder.weight @ model.encoder.weight
    np.testing.assert_allclose(product, np.diag(scales**2 / (scales**2 + 0.7**2)), atol=0.02)


def test_the_elbo_of_a_denoiser_is_below_the_likelihood_by_a_divergence():
    """X = A Z + s noise and Z ~ N(0, p^2): log p(x) - E elbo = KL(N(x, sigma^2) || posterior), in closed form."""
    sigma, prior, scale = 0.5, 1.5, 0.4
    model = linear_denoiser(sigma, prior=prior, scale=scale)
    a = model.decoder.weight @ model.encoder.weight
    x = np.array([[0.3, -0.7, 1.1]])
    evidence = stats.multivariate_normal(np.zeros(3), prior**2 * a @ a.T + scale**2 * np.eye(3)).logpdf(x)
    precision = np.eye(3) / prior**2 + a.T @ a / scale**2
    mean = np.linalg.solve(precision, a.T @ x[0] / scale**2)
    kl = 0.5 * (sigma**2 * np.trace(precision) + (x[0] - mean) @ precision @ (x[0] - mean) - 3
                - np.linalg.slogdet(precision)[1] - 3 * np.log(sigma**2))  # fmt: skip
    many = np.broadcast_to(x, (200_000, 3))
    found = model.elbo(many, key=wl.random.key(0))
    error = found.std() / np.sqrt(len(found))
    assert kl > 0.1 and abs(found.mean() - (evidence - kl)) < 4 * error
    loss = model.errors(many, key=wl.random.key(0))
    np.testing.assert_allclose(found + loss / (2 * scale**2), np.full(len(loss), (found + loss / (2 * scale**2))[0]))


def test_noise_of_training_and_of_evaluation():
    model, x = linear_denoiser(0.5), points(10, 3)
    assert model.loss(x) != model.loss(x)
    model.eval()
    assert model.loss(x) == model.loss(x)
    key = wl.random.key(7)
    assert model.loss(x, key) == model.train().loss(x, key)
    np.testing.assert_array_equal(model.errors(x, key)[:4], model.errors(x[:4], key))  # whatever the batch


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="1 to features=6 numbers, got code=7"):
        LinearAutoEncoder(6, 7)
    with pytest.raises(ArgumentError, match="sigma is a standard deviation"):
        linear_denoiser(0.0)
    with pytest.raises(ArgumentError, match=r"of shape \(5, 2\), and not of \(5, 3\)"):
        AutoEncoder(nn.Linear(2, 3), nn.Identity()).loss(np.ones((5, 2), np.float32))
    with pytest.raises(ArgumentError, match="principal directions are of vectors"):
        discarded_spectrum(np.ones((5, 2, 2)), 1)
