"""associative_scan against JAX's."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.control.associative import associative_scan

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
pytestmark = pytest.mark.peers


def affine(left, right):
    (a, b), (c, d) = left, right
    return a * c, c * b + d


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 12])
def test_values_and_gradients(n, reverse):
    rng = np.random.default_rng(n)
    a, b, weights = rng.normal(size=(3, 2, n))

    def ours(a, b):
        return np.sum(weights * associative_scan(affine, (a, b), reverse=reverse, axis=1)[1])

    def theirs(a, b):
        return (weights * jax.lax.associative_scan(affine, (a, b), reverse=reverse, axis=1)[1]).sum()

    @jax.jit  # eagerly, JAX compiles every operation by itself
    def expected(a, b):
        return theirs(a, b), jax.grad(theirs, (0, 1))(a, b), jax.hessian(theirs)(a, b)

    value, gradient, hessian = expected(a, b)
    np.testing.assert_allclose(ours(a, b), value, rtol=1e-12)
    for g, e in zip(wl.grad(ours, (0, 1))(a, b), gradient):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(wl.jacobian(wl.grad(ours))(a, b), hessian, rtol=1e-10, atol=1e-12)


def test_matrix_products():
    x = np.random.default_rng(0).normal(size=(7, 3, 3))
    np.testing.assert_allclose(
        associative_scan(np.matmul, x), jax.lax.associative_scan(jax.numpy.matmul, x), rtol=1e-12
    )
