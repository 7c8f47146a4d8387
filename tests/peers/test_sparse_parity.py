"""Sparse Jacobians and Hessians beside JAX's dense ones, the same lines."""

from functools import partial

import numpy as np
import pytest

import wonderland as wl
from wonderland.testing import sparse_problems as problems

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(0)
JACOBIANS = {
    "brusselator": (problems.brusselator, (2, 8, 8)),
    "broyden_tridiagonal": (problems.broyden_tridiagonal, (40,)),
    "broyden_banded": (problems.broyden_banded, (40,)),
}
HESSIANS = {
    "extended_rosenbrock": (problems.extended_rosenbrock, (30,)),
    "minimal_surface": (problems.minimal_surface, (6, 7)),
    "banded_least_squares": (problems.banded_least_squares, (40,)),
}


@pytest.mark.parametrize("partition", ["auto", "column", "row", "bidirectional"])
@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians(name, partition):
    f, shape = JACOBIANS[name]
    x = RNG.standard_normal(shape)
    expected = np.asarray(jax.jacfwd(partial(f, xp=jax.numpy))(x)).reshape(x.size, x.size)
    found = wl.sparse.jacobian(f, partition=partition)(x).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("decompression", ["direct", "substitution"])
@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name, decompression):
    f, shape = HESSIANS[name]
    x = RNG.standard_normal(shape)
    expected = np.asarray(jax.hessian(partial(f, xp=jax.numpy))(x)).reshape(x.size, x.size)
    found = wl.sparse.hessian(f, decompression=decompression)(x).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * np.abs(expected).max())
