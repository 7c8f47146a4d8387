"""`wl.jet` against `jax.experimental.jet`, and `nth_derivative` against nested `jax.grad`."""

import numpy as np
import pytest

import wonderland as wl

pytestmark = pytest.mark.peers

ORDER = 5
RNG = np.random.default_rng(3)
X, Y, W = RNG.uniform(0.3, 0.9, (3, 4)), RNG.uniform(0.3, 0.9, (4,)), RNG.normal(size=(4, 2))

FUNCTIONS = {
    "product": lambda np, x, y: x * y * x,
    "quotient": lambda np, x, y: np.sin(x) / (1.0 + y * y),
    "exponentials": lambda np, x, y: np.exp(x) * np.log(y) + np.log1p(x) * np.expm1(y),
    "trigonometric": lambda np, x, y: np.sin(x * y) + np.cos(x) * np.sin(y),
    "hyperbolic": lambda np, x, y: np.tanh(x) + np.sinh(x * y) * np.cosh(y),
    "powers": lambda np, x, y: x**3 + np.sqrt(x * y) + y**2.5,
    "network": lambda np, x, y: np.tanh(np.tanh(x * y) @ W),
    "softmax": lambda np, x, y: np.exp(x * y) / np.sum(np.exp(x * y), axis=1, keepdims=True),
    "reductions": lambda np, x, y: (np.sum(x * y, axis=0), np.max(x + y, axis=1)),
    "selection": lambda np, x, y: np.where(x > 0.5, x * x, np.exp(y)) + np.abs(x - y),
    "shapes": lambda np, x, y: np.reshape(x * y, (4, 3)).T @ np.concatenate([y[:2], y[2:] ** 2])[:, None],
}


@pytest.mark.parametrize("scaled", [True, False], ids=["derivatives", "coefficients"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_jet(name, scaled):
    import jax
    import jax.numpy as jnp
    from jax.experimental.jet import jet

    f = FUNCTIONS[name]
    series = [[0.5 * RNG.normal(size=z.shape) for _ in range(ORDER)] for z in (X, Y)]
    ours = lambda s: wl.jet(lambda x, y: f(np, x, y), (X, Y), s, factorial_scaled=scaled)
    theirs = jax.jit(lambda s: jet(lambda x, y: f(jnp, x, y), (X, Y), s, factorial_scaled=scaled))
    expected, structure = jax.tree.flatten(theirs(series))
    for run in (ours, wl.jit(ours)):
        found = jax.tree.flatten(run(series))
        assert found[1] == structure
        for a, b in zip(found[0], expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "f",
    [
        lambda np, x: np.tanh(np.sin(x)) * np.exp(x),
        lambda np, x: np.arctan(x) / np.sqrt(1 + x * x),
        lambda np, x: np.log(1 + np.exp(x)),
        lambda np, x: np.arcsinh(x) * np.arccos(x / 2),
        lambda np, x: x**x,
    ],
)
def test_nested_gradients(f):
    import jax
    import jax.numpy as jnp

    theirs = lambda x: f(jnp, x)
    for n in range(1, 6):
        theirs = jax.grad(theirs)
        np.testing.assert_allclose(wl.nth_derivative(lambda x: f(np, x), n)(0.7), jax.jit(theirs)(0.7), rtol=1e-10)
