"""Images in raster order: probabilities add up to one, causality, samples, and exact entropies of what is learned."""

from itertools import product

import numpy as np
import pytest

import wonderland as wl
from wonderland import train
from wonderland.core.errors import ArgumentError
from wonderland.generative import PatchTransformer, RasterGPT


def tokens_model(classes=1):
    return RasterGPT(3, (2, 2), 1, 2, 8, classes=classes, key=wl.random.key(0), dtype=np.float64)


def trained(model, batches, steps, rate=3e-3):
    optimizer = train.Adam(model, rate)

    @wl.jit
    def step(model, optimizer, *batch):
        loss, gradient = wl.value_and_grad(lambda model: model.loss(*batch))(model)
        optimizer.update(model, gradient)
        return loss

    for i in range(steps):
        step(model, optimizer, *batches(i))


def test_probabilities_of_all_grids_add_up_to_one():
    grids = np.array(list(product(range(3), repeat=4))).reshape(-1, 2, 2)
    np.testing.assert_allclose(np.sum(np.exp(tokens_model().log_prob(grids))), 1.0, rtol=1e-12)
    model = tokens_model(classes=2)
    for label in range(2):
        labels = np.full(len(grids), label)
        np.testing.assert_allclose(np.sum(np.exp(model.log_prob(grids, labels))), 1.0, rtol=1e-12)


def test_samples_are_tokens_with_the_probabilities_of_the_model():
    model, count = tokens_model(), 4000
    drawn = model.sample(wl.random.key(0), count)
    assert drawn.shape == (count, 2, 2) and drawn.min() >= 0 and drawn.max() < 3
    firsts = np.array([[a, b] for a, b in product(range(3), repeat=2)])
    grids = np.array(list(product(range(3), repeat=4))).reshape(-1, 2, 2)
    p = np.exp(model.log_prob(grids))
    expected = np.array([p[(grids[:, 0] == pair).all(1)].sum() for pair in firsts]) * count
    found = np.array([(drawn[:, 0] == pair).all(1).sum() for pair in firsts])
    assert np.sum((found - expected) ** 2 / expected) < 26.1  # 0.1 %, 8 degrees of freedom


def test_labels_decide():
    """Grids of one token each, that of the label."""
    model = RasterGPT(4, (2, 2), 1, 2, 16, classes=4, key=wl.random.key(0))
    labels = np.arange(16) % 4
    grids = np.broadcast_to(labels[:, None, None], (16, 2, 2))
    trained(model, lambda i: (grids, labels), 80, 1e-2)
    made = model.sample(wl.random.key(1), labels=np.arange(4), temperature=0.0)
    np.testing.assert_array_equal(made, np.broadcast_to(np.arange(4)[:, None, None], (4, 2, 2)))


def test_a_patch_depends_on_those_before_it_alone(rng):
    model = PatchTransformer(2, 4, components=2, width=8, heads=2, key=wl.random.key(0), dtype=np.float64)
    x = rng.normal(size=(1, 4, 2))
    for which in range(3):
        slopes = wl.jacobian(lambda x, which=which: np.sum(model(x)[which][0].reshape(4, -1) ** 2, axis=1))(x)[:, 0]
        moved = np.any(slopes != 0, axis=2)  # (patch, patch)
        np.testing.assert_array_equal(moved, np.tri(4, k=-1, dtype=bool))


def test_the_density_of_a_patch_integrates_to_one():
    model = PatchTransformer(1, 2, components=3, width=8, heads=2, key=wl.random.key(0), dtype=np.float64)
    grid = np.linspace(-12, 12, 401)
    x, y = np.meshgrid(grid, grid[::8], indexing="ij")
    pairs = np.stack([x.ravel(), y.ravel()], axis=1)[:, :, None]
    density = np.exp(model.log_prob(pairs)).reshape(x.shape)
    total = np.trapezoid(np.trapezoid(density, grid, axis=0), grid[::8])
    np.testing.assert_allclose(total, 1.0, atol=2e-3)


def test_an_autoregression_is_learned():
    """x_t = 0.8 x_{t-1} + 0.6 e: every number has the entropy of N(0, 0.36), the first that of N(0, 1)."""
    rng, length = np.random.default_rng(0), 4

    def chains(i, count=256):
        e = rng.normal(size=(count, length))
        x = [e[:, 0]]
        for t in range(1, length):
            x.append(0.8 * x[-1] + 0.6 * e[:, t])
        return (np.stack(x, axis=1)[:, :, None].astype(np.float32),)

    model = PatchTransformer(1, length, components=2, layers=1, heads=2, width=16, key=wl.random.key(0))
    trained(model, chains, 250, 1e-2)
    exact = 0.5 * np.log(2 * np.pi * np.e) + (length - 1) / length * np.log(0.6)
    assert abs(float(model.loss(*chains(0, 4000))) - exact) < 0.03
    drawn = wl.jit(lambda key: model.sample(key, 2000))(wl.random.key(0))[:, :, 0]
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] - 0.8) < 0.05
    np.testing.assert_allclose(model.sample(wl.random.key(0), 3)[:, :, 0], drawn[:3], atol=1e-5)


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match="needs labels"):
        tokens_model(classes=2).sample(wl.random.key(0), 3)
    with pytest.raises(ArgumentError, match=r"expected grids of \(2, 2\)"):
        tokens_model().log_prob(np.zeros((1, 3, 3), np.int64))
    with pytest.raises(ArgumentError, match=r"expected patches \(B, 4, 2\), got shape \(4, 2\)"):
        PatchTransformer(2, 4, key=wl.random.key(0))(np.zeros((4, 2)))
