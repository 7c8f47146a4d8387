"""Inpainting and deblurring: samples agree with what is known, and are distributed as they should be given it."""

from functools import partial

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import agreeing_linear, agreeing_pixels, as_sigma, restore
from wonderland.generative.views import low_pass

SIGMAS = np.append(np.geomspace(20.0, 0.02, 60), 0)


def gaussian(mean, covariance):
    """E[epsilon | x] = sigma (C + sigma^2)^-1 (x - mean), by the eigenvectors of C."""
    values, vectors = np.linalg.eigh(covariance)

    def denoiser(x, sigma):
        level = as_sigma(sigma, x)
        return (level * ((x - mean) @ vectors) / (values + level**2)) @ vectors.T

    return denoiser


def test_what_is_missing_is_drawn_given_what_is_known():
    """Of a Gaussian: x2 given x1 = y is N(m2 + r (y - m1), 1 - r^2), and repeats bring samples there."""
    mean, r = np.array([1.0, -1.0]), 0.8
    denoiser = gaussian(mean, np.array([[1, r], [r, 1]]))
    project = agreeing_pixels(np.array([2.0, 0.0]), np.array([True, False]))
    draw = lambda key, repeats: restore(denoiser, project, (8000, 2), SIGMAS, key, repeats=repeats)
    once, often = (wl.jit(partial(draw, repeats=repeats))(wl.random.key(0)) for repeats in (1, 12))
    np.testing.assert_array_equal([once[:, 0], often[:, 0]], 2.0)
    assert abs(once[:, 1].mean() - (-1 + r)) > 0.2 and abs(often[:, 1].mean() - (-1 + r)) < 0.04
    np.testing.assert_allclose(often[:, 1].std(), np.sqrt(1 - r**2), rtol=0.08)


def test_a_blurred_image_is_restored():
    """Samples agree with what was measured, and their mean is that of all images which do: C A' (A C A')^-1 y."""
    rng = np.random.default_rng(0)
    n = 8
    across = np.arange(n)
    smooth = np.exp(-np.abs(across[:, None] - across) / 3)  # images whose neighbours are alike
    covariance = np.kron(smooth, smooth)
    image = np.linalg.cholesky(covariance) @ rng.standard_normal(n * n)
    blur = low_pass(1.0)
    A = np.stack([np.ravel(blur(e)) for e in np.eye(n * n).reshape(-1, n, n)], 1)[::2]  # blurred, and half is missing
    y = A @ image
    flat = gaussian(np.zeros(n * n), covariance)
    denoiser = lambda x, sigma: flat(x.reshape(x.shape[0], -1), sigma).reshape(x.shape)
    right = covariance @ A.T @ np.linalg.solve(A @ covariance @ A.T, y)
    least = np.linalg.pinv(A) @ y  # of all images that agree, that of the least norm
    draw = wl.jit(lambda key: restore(denoiser, agreeing_linear(y, A), (512, n, n), SIGMAS[::2], key, repeats=10))
    found = draw(wl.random.key(1)).reshape(512, -1)
    np.testing.assert_allclose(found @ A.T, np.tile(y, (512, 1)), atol=1e-9)
    assert np.sum((found.mean(0) - right) ** 2) < 0.2 * np.sum((least - right) ** 2)


def test_projections_are_projections_and_float32_stays():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 3)).astype(np.float32)
    A = rng.standard_normal((4, 6))
    project = agreeing_linear(np.float32(rng.standard_normal((3, 4))), A)
    once = project(x)
    assert once.dtype == np.float32
    np.testing.assert_allclose(project(once), once, atol=1e-5)
    np.testing.assert_allclose((once - x).reshape(3, 6) @ np.linalg.svd(A)[2][4:].T, 0, atol=1e-5)  # A's null space
    known = agreeing_pixels(np.zeros((2, 3), np.float32), x[0] > 0)
    sigmas = np.float32([2.0, 0.5, 0.0])
    assert restore(lambda x, sigma: 0 * x, known, (3, 2, 3), sigmas, wl.random.key(0)).dtype == np.float32


def test_what_refinement_refuses():
    zero = lambda x, sigma: 0 * x
    key = wl.random.key(0)
    with pytest.raises(ArgumentError, match="an array of bools"):
        agreeing_pixels(np.zeros(3), np.ones(3))
    with pytest.raises(ArgumentError, match="a matrix"):
        agreeing_linear(np.zeros(3), np.ones(3))
    with pytest.raises(ArgumentError, match="an image has 2 numbers"):
        restore(zero, agreeing_linear(np.zeros(3), np.ones((3, 4))), (1, 2), SIGMAS, key)
    with pytest.raises(ArgumentError, match="a schedule is an array"):
        restore(zero, lambda x: x, (1, 2), np.ones(1), key)
    with pytest.raises(ArgumentError, match="at least 1, not 0"):
        restore(zero, lambda x: x, (1, 2), SIGMAS, key, repeats=0)
