"""Derivatives of gamma variables against JAX and PyTorch, which compute them by other methods."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.random as random
from wonderland.ops.gamma_slope import gamma_slope

pytestmark = pytest.mark.peers

SHAPES = np.array([0.03, 0.3, 0.9, 1.0, 2.5, 8.0, 60.0, 900.0])[:, None]
KEY = random.key(11)


def samples():
    """(a, z, dz/da) for a range of shape parameters."""
    a = np.broadcast_to(SHAPES, (8, 200)).copy()
    z, slope = wl.jvp(lambda a: random.gamma(KEY, a=a), (a,), (np.ones_like(a),))
    chosen = z > 1e-30
    return a[chosen], z[chosen], slope[chosen]


def test_gamma_against_jax():
    jax = pytest.importorskip("jax")
    a, z, slope = samples()
    np.testing.assert_allclose(slope, jax.lax.random_gamma_grad(a, z), rtol=1e-8)


def test_gamma_against_pytorch():
    torch = pytest.importorskip("torch")
    a, z, slope = samples()
    expected = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(z)).numpy()
    np.testing.assert_allclose(slope, expected, rtol=2e-3)  # which approximates by fitted polynomials


def test_beta_against_pytorch():
    """As functions of the gamma variables: the pathwise derivative of x / (x + y)."""
    torch = pytest.importorskip("torch")
    a, b = np.full(300, 1.7), np.full(300, 0.6)
    got = wl.grad(lambda a, b: np.sum(random.beta(KEY, a=a, b=b)), (0, 1))(a, b)
    keys = random.split(KEY)
    x, y = random.gamma(keys[0], a=a), random.gamma(keys[1], a=b)
    tx, ty = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    (tx / (tx + ty)).sum().backward()
    np.testing.assert_allclose(got[0], tx.grad.numpy() * x * gamma_slope(a, np.log(x), da=0, dw=0), rtol=1e-10)
    np.testing.assert_allclose(got[1], ty.grad.numpy() * y * gamma_slope(b, np.log(y), da=0, dw=0), rtol=1e-10)
