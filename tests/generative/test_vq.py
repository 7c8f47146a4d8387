"""Vector quantisation: nearest codes by SciPy, straight-through gradients and averages by their definitions."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import wonderland as wl
from wonderland import nn, train
from wonderland.core.errors import ArgumentError
from wonderland.generative import VQVAE, VectorQuantizer

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
UPDATES = pytest.mark.parametrize("update", ["gradient", "ema"])
BOTH = pytest.mark.parametrize("run", [lambda f: f, wl.jit], ids=["eager", "jitted"])


def quantizer(dtype=np.float64, codes=7, width=3, **settings):
    return VectorQuantizer(codes, width, key=wl.random.key(0), dtype=dtype, **settings)


def vectors(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@DTYPES
@UPDATES
@BOTH
def test_the_nearest_code(run, update, dtype):
    layer, z = quantizer(dtype, update=update, axis=1).eval(), vectors(4, 3, 5, 2, dtype=dtype)
    found = run(lambda layer, z: layer(z))(layer, z)
    flat = np.moveaxis(z, 1, -1).reshape(-1, 3)
    distances = cdist(flat, layer.codebook, "sqeuclidean")
    np.testing.assert_array_equal(found.tokens, distances.argmin(1).reshape(4, 5, 2))
    factor = 1.25 if update == "gradient" else 0.25
    tol = {"rtol": 1e-4, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-12}
    np.testing.assert_allclose(found.losses, factor * distances.min(1).reshape(4, 5, 2), **tol)
    assert found.values.dtype == dtype and found.values.shape == z.shape
    np.testing.assert_allclose(found.values, layer.decode_tokens(found.tokens), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run(lambda z: layer.encode_tokens(z))(z), found.tokens)
    decoded = run(lambda tokens: layer.decode_tokens(tokens))(found.tokens)
    np.testing.assert_array_equal(np.moveaxis(decoded, 1, -1), layer.codebook[found.tokens])


@UPDATES
@BOTH
def test_straight_through_gradients_are_their_definition(run, update):
    layer, z, weight = quantizer(update=update, commitment=0.4), vectors(6, 3), vectors(6, 3, seed=1)

    def loss(layer, z):
        found = layer(z)
        return np.sum(np.sin(found.values) * weight) + np.sum(found.losses)

    of_layer, of_z = run(wl.grad(loss, (0, 1)))(layer.eval(), z)
    tokens = layer.encode_tokens(z)
    chosen = layer.codebook[tokens]
    np.testing.assert_allclose(of_z, np.cos(chosen) * weight + 2 * 0.4 * (z - chosen), rtol=1e-12)
    if update == "ema":
        assert not list(layer.named_parameters()) and not wl.tree_leaves(of_layer)
        return
    expected = np.zeros((7, 3))  # 2 (e - z) of those that chose it, and nothing by the values
    np.add.at(expected, tokens, 2 * (chosen - z))
    np.testing.assert_allclose(of_layer.codebook, expected, rtol=1e-12)


@DTYPES
@BOTH
def test_moving_averages(run, dtype):
    layer, z = quantizer(dtype, update="ema", decay=0.8), vectors(40, 3, dtype=dtype)
    counts, sums, book = np.ones(7), layer.codebook.astype(np.float64).copy(), layer.codebook.copy()
    step = run(lambda layer, z: layer(z).tokens)
    for _ in range(3):
        tokens = cdist(z, book).argmin(1)
        np.testing.assert_array_equal(step(layer, z), tokens)
        hot = np.eye(7)[tokens]
        counts, sums = 0.8 * counts + 0.2 * hot.sum(0), 0.8 * sums + 0.2 * hot.T @ z
        book = sums / counts[:, None]
        np.testing.assert_allclose(layer.codebook, book, rtol=1e-5 if dtype == np.float32 else 1e-12)
        np.testing.assert_allclose(layer.usage, counts, rtol=1e-5)
    before = layer.codebook.copy()
    step(layer.eval(), z)
    np.testing.assert_array_equal(layer.codebook, before)  # evaluation changes nothing


@UPDATES
def test_dead_codes_come_back(update):
    z = vectors(200, 3) + 10  # far away from all codes: one of them is the nearest to all
    layer = quantizer(update=update, restart=0.5, decay=0.5, codes=20)
    step = wl.jit(lambda layer, z: layer(z).tokens)
    used = [len(np.unique(step(layer, z))) for _ in range(6)]
    assert used[0] <= 3
    if update == "gradient":
        assert used[-1] <= 3
        layer.restart_codes(z)
    assert len(np.unique(layer.encode_tokens(z))) > 10
    assert np.all(layer.usage > 0)


@UPDATES
def test_fill_and_perplexity(update):
    layer, z = quantizer(update=update, codes=4), vectors(100, 3)
    layer.fill(z, wl.random.key(1))
    assert np.all(cdist(layer.codebook, z).min(1) < 1e-12)
    np.testing.assert_allclose(layer.perplexity(np.array([0, 1, 2, 3])), 4)
    np.testing.assert_allclose(layer.perplexity(np.array([[0, 0], [2, 2]])), 2)
    np.testing.assert_allclose(wl.jit(layer.perplexity)(np.array([3, 3])), 1)


@UPDATES
def test_averages_find_the_centres_of_clusters(update):
    rng = np.random.default_rng(0)
    centres = np.array([[4.0, 0, 0], [0, 4, 0], [0, 0, 4], [-4, -4, -4]])
    z = (centres[rng.integers(0, 4, 400)] + 0.1 * rng.normal(size=(400, 3))).astype(np.float32)
    layer = quantizer(np.float32, codes=4, update=update, decay=0.9)
    layer.codebook[...] = centres + rng.normal(size=(4, 3))
    if update == "ema":
        layer.sums[...] = layer.codebook
        step = wl.jit(lambda layer, z: layer(z).tokens)
        for _ in range(100):
            step(layer, z)
    else:
        optimizer = train.Adam(layer, 0.05)
        train.fit(layer, lambda layer, z: np.mean(layer(z).losses), optimizer, z, epochs=30, progress=False)
    np.testing.assert_allclose(layer.codebook, centres, atol=0.05)


def autoencoder(update, dtype=np.float32):
    wl.random.seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 16, 4, stride=4, dtype=dtype), nn.relu, nn.Conv2d(16, 4, 1, dtype=dtype))
    decoder = nn.Sequential(nn.Conv2d(4, 16, 1, dtype=dtype), nn.relu, nn.ConvTranspose2d(16, 1, 4, 4, dtype=dtype))
    return VQVAE(encoder, decoder, VectorQuantizer(32, 4, update=update, axis=1, restart=0.1, dtype=dtype))


@UPDATES
def test_a_vqvae_learns_images_of_few_parts(update):
    """Images of 2 x 2 tiles out of 8: as many tokens, and no error left to speak of."""
    rng = np.random.default_rng(0)
    tiles = rng.normal(size=(8, 4, 4))
    numbers = rng.integers(0, 8, (256, 2, 2))
    x = np.block([[tiles[numbers[:, i, j]] for j in (0, 1)] for i in (0, 1)])[:, None].astype(np.float32)
    model = autoencoder(update)
    model.quantizer.fill(model.encode(x))
    optimizer = train.Adam(model, 3e-3)
    for _ in range(4):
        model.quantizer.restart_codes(model.encode(x))
        train.fit(model, lambda model, x: model.loss(x), optimizer, x, epochs=15, progress=False)
    model.eval()
    tokens = model.encode_tokens(x)
    assert tokens.shape == (256, 2, 2) and tokens.dtype.kind == "i" and tokens.max() < 32
    pairs = {(int(a), int(b)) for a, b in zip(numbers.ravel(), tokens.ravel())}
    assert len({b for _, b in pairs}) == len(pairs) >= 7  # a token stands for one tile
    np.testing.assert_array_equal(model.decode_tokens(tokens), model.reconstruct(x))
    assert np.mean((model.reconstruct(x) - x) ** 2) < 0.1 * np.var(x)


@DTYPES
def test_the_loss_eager_and_jitted(dtype):
    model, x = autoencoder("gradient", dtype).eval(), vectors(5, 1, 8, 8, dtype=dtype)
    loss = lambda model, x: model.loss(x)
    value, gradient = wl.value_and_grad(loss)(model, x)
    jitted, compiled = wl.jit(wl.value_and_grad(loss))(model, x)
    found = model.quantizer(model.encode(x))
    exact = np.sum((x - model.reconstruct(x)) ** 2) / 5 + np.sum(found.losses) / 5
    np.testing.assert_allclose([value, jitted], exact, rtol=1e-4 if dtype == np.float32 else 1e-12)
    for a, b in zip(wl.tree_leaves(gradient), wl.tree_leaves(compiled), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=1e-3 if dtype == np.float32 else 1e-9, atol=1e-4)


def test_what_is_refused():
    with pytest.raises(ArgumentError, match='update is "gradient" or "ema"'):
        quantizer(update="kmeans")
    with pytest.raises(ArgumentError, match="from 0 to below 1"):
        quantizer(decay=1.0)
    with pytest.raises(ArgumentError, match=r"width 3 along axis -1, got z of shape \(3, 4\)"):
        quantizer()(np.ones((3, 4)))
