"""Checkpointing against JAX's: the same values and derivatives under policies that mean the same."""

import numpy as np
import pytest

import wonderland as wl

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
ad_checkpoint = pytest.importorskip("jax.ad_checkpoint")
pytestmark = pytest.mark.peers

PAIRS = {
    "nothing": ("nothing", jax.checkpoint_policies.nothing_saveable),
    "everything": ("everything", jax.checkpoint_policies.everything_saveable),
    "products": ("products", jax.checkpoint_policies.dots_saveable),
    "names": (wl.save_names("hidden"), jax.checkpoint_policies.save_only_these_names("hidden")),
}


@pytest.fixture
def operands(rng):
    return rng.normal(size=(3, 4, 4)) / 2, rng.normal(size=(5, 4))


def network(xp, checkpoint, name):
    def layer(w, x):
        hidden = name(xp.tanh(x @ w), "hidden")
        return x + xp.exp(-hidden * hidden) @ w.T

    def loss(ws, x):
        for i in range(3):
            x = checkpoint(layer)(ws[i], x)
        return xp.sum(xp.sin(x))

    return loss


@pytest.mark.parametrize("pair", PAIRS)
def test_policies(pair, operands):
    ours, theirs = PAIRS[pair]
    f = network(np, lambda g: wl.checkpoint(g, policy=ours), wl.checkpoint_name)
    g = network(jnp, lambda g: jax.checkpoint(g, policy=theirs), ad_checkpoint.checkpoint_name)
    expected = jax.grad(g, (0, 1))(*operands)
    for transformed in (wl.grad(f, (0, 1)), wl.jit(wl.grad(f, (0, 1)))):
        for a, b in zip(transformed(*operands), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    ws, x = operands
    hessian = wl.jacobian(wl.grad(lambda x: f(ws, x)))(x)
    np.testing.assert_allclose(hessian, jax.hessian(lambda x: g(ws, x))(x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("checkpoint", ["sqrt", 4, wl.binomial(3)], ids=str)
def test_loops(checkpoint, operands):
    ws, xs = operands
    xs = np.tile(xs, (4, 1))

    def ours(w, xs):
        h, ys = wl.scan(lambda h, x: (np.tanh(w @ h + x), h * x), xs[0], xs, checkpoint=checkpoint)
        return np.sum(h) + np.sum(ys**2)

    def theirs(w, xs):
        h, ys = jax.lax.scan(jax.checkpoint(lambda h, x: (jnp.tanh(w @ h + x), h * x)), xs[0], xs)
        return jnp.sum(h) + jnp.sum(ys**2)

    expected = jax.grad(theirs, (0, 1))(ws[0], xs)
    for transformed in (wl.grad(ours, (0, 1)), wl.jit(wl.grad(ours, (0, 1)))):
        for a, b in zip(transformed(ws[0], xs), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
