"""The problem set in JAX, the same lines: values, Jacobians of every mode and order, eager and jitted."""

from functools import partial

import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.testing.problems import PROBLEMS

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
pytestmark = pytest.mark.peers


def theirs(name):
    extra = {"erf": jax.scipy.special.erf} if name == "black_scholes" else {}
    return partial(PROBLEMS[name].f, xp=jax.numpy, **extra)


def compiled_by_jax(name, f):
    """Whole, but for the chain, which takes XLA longer than its few different operations."""
    return f if name == "deep_chain" else jax.jit(f)


def flat(result):
    return np.concatenate([np.ravel(leaf) for leaf in tree.flatten(result)[0]])


@pytest.mark.parametrize("name", PROBLEMS)
def test_jacobians(name):
    f, args, argnums = PROBLEMS[name]
    np.testing.assert_allclose(flat(f(*args)), flat(compiled_by_jax(name, theirs(name))(*args)), rtol=1e-12)
    expected = flat(compiled_by_jax(name, jax.jacrev(theirs(name), argnums))(*args))
    atol = 1e-10 * np.abs(expected).max()
    ways = [{"mode": "forward"}, {"mode": "reverse"}]
    ways += [
        {"mode": "elimination", "order": order, "search_seconds": 0.5}
        for order in ("forward", "reverse", "markowitz", "search")
    ]
    for way in ways:
        np.testing.assert_allclose(flat(wl.jacobian(f, argnums, **way)(*args)), expected, rtol=0, atol=atol)
    for way in (*ways[:2], ways[-1]):
        np.testing.assert_allclose(flat(wl.jit(wl.jacobian(f, argnums, **way))(*args)), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", [n for n, p in PROBLEMS.items() if np.ndim(p.f(*p.args)) == 0])
def test_hessians(name):
    """Of functions with one number as result, by elimination of the gradient."""
    f, args, argnums = PROBLEMS[name]
    expected = flat(compiled_by_jax(name, jax.hessian(theirs(name), argnums))(*args))
    found = wl.jacobian(wl.grad(f, argnums), argnums, mode="elimination", order="reverse")(*args)
    np.testing.assert_allclose(flat(found), expected, rtol=0, atol=1e-10 * np.abs(expected).max())
