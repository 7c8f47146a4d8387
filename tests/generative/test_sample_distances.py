"""Distances between sets of points, against SciPy and closed forms."""

import numpy as np
import pytest
from scipy import linalg, spatial, stats

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    energy_distance,
    frechet_distance,
    gaussian_frechet,
    memorization,
    mmd,
    sliced_wasserstein,
)

rng = np.random.default_rng(0)


@pytest.mark.parametrize(("n", "m"), [(50, 50), (40, 60), (30, 7), (1, 4)])
def test_on_a_line_the_distances_are_scipys(n, m):
    x, y = rng.standard_normal(n), 0.5 + 2 * rng.standard_normal(m)
    one = sliced_wasserstein(x[:, None], y[:, None], projections=3, p=1)
    np.testing.assert_allclose(one, stats.wasserstein_distance(x, y), rtol=1e-12)
    root = np.sqrt(energy_distance(x[:, None], y[:, None]))
    np.testing.assert_allclose(root, stats.energy_distance(x, y), rtol=1e-9)


def test_sliced_wasserstein_of_a_shift_and_of_order_two():
    """A shift by s costs |theta . s| in each direction: s^2 / d on average."""
    x = rng.standard_normal((200, 3))
    shift = np.array([1.0, -2.0, 2.0])
    far = sliced_wasserstein(x, x + shift, projections=20_000)
    np.testing.assert_allclose(far, np.sqrt(9 / 3), rtol=0.02)
    assert sliced_wasserstein(x, x[::-1]) < 1e-12
    pairs = stats.wasserstein_distance_nd(x[:8, :1], x[8:16, :1])
    np.testing.assert_allclose(sliced_wasserstein(x[:8, :1], x[8:16, :1], p=1), pairs, rtol=1e-9)


def test_energy_distance_in_space():
    x, y = rng.standard_normal((30, 4)), rng.standard_normal((20, 4)) + 1
    d = spatial.distance.cdist
    np.testing.assert_allclose(energy_distance(x, y), 2 * d(x, y).mean() - d(x, x).mean() - d(y, y).mean(), rtol=1e-10)


def test_mmd_is_its_definition_and_has_no_bias():
    x, y = rng.standard_normal((6, 2)), rng.standard_normal((5, 2)) + 0.3
    k = lambda a, b: np.exp(-np.sum((a - b) ** 2) / (2 * 0.7**2))
    pairs = lambda a: np.mean([k(p, q) for i, p in enumerate(a) for j, q in enumerate(a) if i != j])
    slow = pairs(x) + pairs(y) - 2 * np.mean([k(p, q) for p in x for q in y])
    np.testing.assert_allclose(mmd(x, y, 0.7), slow, rtol=1e-10)
    found = [mmd(*rng.standard_normal((2, 20, 2)), 1.0) for _ in range(400)]
    assert abs(np.mean(found)) < 4 * np.std(found) / 20  # zero, within the error of so many
    # Of N(0, 1) and N(a, 1) the kernel's means are Gaussian integrals: 2 h/sqrt(h^2+2) (1 - exp(-a^2/(2 h^2 + 4)))
    found = [mmd(rng.standard_normal((30, 1)), 1.5 + rng.standard_normal((30, 1)), 1.0) for _ in range(400)]
    right = 2 / np.sqrt(3) * (1 - np.exp(-(1.5**2) / 6))
    assert abs(np.mean(found) - right) < 4 * np.std(found) / 20 < 0.1 * right
    x, y = rng.standard_normal((150, 1)), 1.5 + rng.standard_normal((150, 1))
    both = np.concatenate([x[:100], y[:100]])
    median = np.median(spatial.distance.pdist(both))
    np.testing.assert_allclose(mmd(x[:100], y[:100]), mmd(x[:100], y[:100], median), rtol=1e-9)


def test_frechet_distance_of_gaussians():
    a, b = rng.standard_normal((2, 4, 4))
    c1, c2 = a @ a.T, b @ b.T
    m1, m2 = rng.standard_normal((2, 4))
    slow = np.sum((m1 - m2) ** 2) + np.trace(c1 + c2 - 2 * linalg.sqrtm(c1 @ c2).real)
    np.testing.assert_allclose(gaussian_frechet(m1, c1, m2, c2), slow, rtol=1e-8)
    s1, s2 = np.array([1.0, 4.0]), np.array([9.0, 1.0])  # for diagonal ones: (standard deviations' differences)^2
    np.testing.assert_allclose(
        gaussian_frechet(np.zeros(2), np.diag(s1), np.ones(2), np.diag(s2)), 2 + (1 - 3) ** 2 + (2 - 1) ** 2
    )
    x = rng.standard_normal((500, 4)) @ a.T + m1
    y = rng.standard_normal((400, 4)) @ b.T + m2
    of_moments = gaussian_frechet(x.mean(0), np.cov(x.T), y.mean(0), np.cov(y.T))
    np.testing.assert_allclose(frechet_distance(x, y), of_moments, rtol=1e-9)
    assert abs(frechet_distance(x, x)) < 1e-9
    rank_one = np.outer(m1, m1)
    np.testing.assert_allclose(gaussian_frechet(m1, rank_one, m1, rank_one), 0, atol=1e-7)


def test_copies_are_found():
    training, held_out, new = rng.standard_normal((3, 300, 4))
    found = memorization(new, training, held_out)
    assert 0.85 < found.ratio < 1.15 and found.copied == 0
    slow = spatial.cKDTree(training).query(new)
    np.testing.assert_allclose(found.samples, slow[0], rtol=1e-6)
    np.testing.assert_array_equal(found.nearest, slow[1])
    copies = training[:100] + 1e-3 * new[:100]
    found = memorization(copies, training, held_out)
    assert found.ratio < 0.01 and found.copied == 1
    np.testing.assert_array_equal(found.nearest, np.arange(100))


@pytest.mark.parametrize("distance", [sliced_wasserstein, mmd, energy_distance, frechet_distance])
def test_distances_compiled_and_differentiated(distance):
    x, y = rng.standard_normal((12, 2, 2)), rng.standard_normal((9, 2, 2)) + 1
    np.testing.assert_allclose(wl.jit(distance)(x, y), distance(x, y), rtol=1e-9)
    # Moving x towards y makes it smaller.
    slope = wl.grad(lambda t: distance(x + t, y))(0.0)
    assert slope < 0
    with pytest.raises(ArgumentError, match="two sets of points"):
        distance(x, y[:, :1])
