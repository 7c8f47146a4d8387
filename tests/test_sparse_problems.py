"""Sparse derivatives of problems from the literature: patterns, colours and entries, small and large."""

import resource
import sys

import numpy as np
import pytest
from scipy import sparse

import wonderland as wl
from wonderland.testing import sparse_problems as problems


@pytest.mark.parametrize("n", [6, 8, 12, 16, 32, 64, 128, pytest.param(512, marks=pytest.mark.slow)])
def test_brusselator(n):
    J = wl.sparse.jacobian(problems.brusselator)
    u = problems.brusselator_start(n) + 1.0
    found = J(u)
    assert found.shape == (2 * n * n, 2 * n * n)
    assert set(np.diff(found.indptr)) == {6}
    assert J.coloring.num_colors <= 12
    a, b = u.reshape(2, -1)
    np.testing.assert_allclose(found.diagonal(), np.concatenate([2 * a * b - 4.4, -(a**2)]) - 40.0 * (n - 1) ** 2)
    np.testing.assert_allclose(found.diagonal(n * n), a**2)
    np.testing.assert_allclose(found.diagonal(-n * n), 3.4 - 2 * a * b)
    v = np.cos(np.arange(2.0 * n * n)).reshape(u.shape)
    np.testing.assert_allclose(found @ v.ravel(), wl.jvp(problems.brusselator, (u,), (v,))[1].ravel(), rtol=1e-9)
    if n <= 12:
        dense = wl.jacobian(problems.brusselator, mode="forward")(u).reshape(found.shape)
        np.testing.assert_array_equal(found.toarray(), dense)


def test_brusselator_on_odd_grids():
    """Natural order needs 13 colours now and then (on 7 x 7), dynamic largest first never more than 12."""
    for n in range(6, 36):
        pattern = wl.sparse.jacobian_pattern(problems.brusselator, np.zeros((2, n, n)))
        assert set(np.diff(pattern.indptr)) == {6}
        assert wl.sparse.color(pattern).num_colors <= 13
        assert wl.sparse.color(pattern, order="dynamic_largest_first").num_colors <= 12


def test_convolution():
    images, weights = np.ones((28, 28, 3)), np.random.default_rng(0).standard_normal((3, 3, 3, 2))
    found = wl.sparse.jacobian(lambda images: problems.convolution(images, weights))(images)
    assert found.shape == (1352, 2352) and found.nnz == 36_504
    # Read off the definition: entry ((i, j, d), (i + k, j + l, c)) is weights[k, l, c, d].
    i, j, d, k, m, c = np.indices((26, 26, 2, 3, 3, 3)).reshape(6, -1)
    places = (i * 26 + j) * 2 + d, ((i + k) * 28 + j + m) * 3 + c
    expected = sparse.csr_array((weights[k, m, c, d], places), shape=found.shape)
    assert abs(found - expected).max() == 0


HESSIANS = {
    "extended_rosenbrock": (problems.extended_rosenbrock, (200,), 2),
    "minimal_surface": (problems.minimal_surface, (9, 14), 9),
    "banded_least_squares": (problems.banded_least_squares, (150,), 13),
}


@pytest.mark.parametrize("decompression", ["direct", "substitution"])
@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name, decompression):
    f, shape, most = HESSIANS[name]
    x = np.random.default_rng(1).random(shape) + 0.5
    H = wl.sparse.hessian(f, decompression=decompression)
    found, expected = H(x), wl.hessian(f)(x).reshape(x.size, x.size)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
    assert np.diff(found.indptr).max() == most
    np.testing.assert_array_equal(H.pattern.toarray(), expected != 0)


def test_hessian_of_a_barrier():
    """The pattern of A'A, and the matrix in closed form."""
    n = 120
    A = sparse.random_array((60, n), density=0.03, rng=np.random.default_rng(2), format="csr")
    x, b = np.random.default_rng(3).random(n) + 0.1, np.full(60, 9.0)
    found = wl.sparse.hessian(lambda x: problems.log_barrier(x, np.ones(n), A, b))(x)
    expected = 0.1 * (A.T @ sparse.diags_array((b - A @ x) ** -2.0) @ A + sparse.diags_array(x**-2.0))
    assert abs(found - expected).max() < 1e-12 * abs(expected).max()
    assert found.nnz == expected.nnz


@pytest.mark.slow
def test_a_million_variables():
    """A tridiagonal Jacobian, a Hessian of a million variables, and one on a 512 x 512 grid, within 4 GB."""
    n = 10**6
    x = np.random.default_rng(4).random(n)
    found = wl.sparse.jacobian(problems.broyden_tridiagonal)(x)
    assert found.nnz == 3 * n - 2
    np.testing.assert_allclose(found.diagonal(), 3.0 - 4.0 * x, atol=1e-15)
    np.testing.assert_array_equal(found.diagonal(1), np.full(n - 1, -2.0))
    np.testing.assert_array_equal(found.diagonal(-1), np.full(n - 1, -1.0))
    H = wl.sparse.hessian(problems.extended_rosenbrock)
    found = H(x)
    assert H.coloring.num_colors == 2 and found.nnz == 2 * n
    np.testing.assert_allclose(found.diagonal()[0::2], 1200.0 * x[0::2] ** 2 - 400.0 * x[1::2] + 2.0, atol=1e-11)
    np.testing.assert_allclose(found.diagonal(1)[0::2], -400.0 * x[0::2], rtol=1e-12)
    heights = x[: 512 * 512].reshape(512, 512)
    H = wl.sparse.hessian(problems.minimal_surface)
    v = np.cos(x[: 512 * 512])
    expected = wl.hvp(problems.minimal_surface, (heights,), (v.reshape(512, 512),))
    np.testing.assert_allclose(H(heights) @ v, expected.ravel(), atol=1e-12 * np.abs(expected).max())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) < 4e9
