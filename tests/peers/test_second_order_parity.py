"""Jacobians, Hessians and products of the problem set, as JAX and PyTorch have them: to 1e-10, eager and compiled."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.testing.problems import PROBLEMS

pytestmark = pytest.mark.peers


RUNS = {"eager": lambda f: f, "jit": wl.jit}  # each against the same result of the peer, which takes longest


def close(found, expected):
    for one, other in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        other = np.asarray(other)
        assert np.shape(one) == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * max(np.max(np.abs(other), initial=0), 1e-3))


def in_jax(name):
    """The same lines on JAX's arrays."""
    jax = pytest.importorskip("jax")
    options = {"erf": jax.scipy.special.erf} if name == "black_scholes" else {}
    return lambda *args: PROBLEMS[name].f(*args, xp=jax.numpy, **options)


def compiled_by_jax(name, f):
    """Whole, but for the chain: XLA takes 14 s for that, and 2 s for its few different operations."""
    return f if name == "deep_chain" else pytest.importorskip("jax").jit(f)


def weighted(f, xp):
    """One number of a function with many."""
    return lambda *args: xp.sum(f(*args) * xp.cos(xp.arange(np.size(f(*args)) * 1.0).reshape(np.shape(f(*args)))))


@pytest.mark.parametrize("name", PROBLEMS)
def test_jacobians(name):
    jax = pytest.importorskip("jax")
    f, args, argnums = PROBLEMS[name]
    expected = compiled_by_jax(name, jax.jacfwd(in_jax(name), argnums))(*args)
    for jacobian in (wl.jacfwd, wl.jacrev):
        for run in RUNS.values():
            close(run(jacobian(f, argnums))(*args), expected)


@pytest.mark.parametrize("name", PROBLEMS)
def test_hessians(name):
    jax = pytest.importorskip("jax")
    f, args, argnums = PROBLEMS[name]
    expected = compiled_by_jax(name, jax.hessian(weighted(in_jax(name), jax.numpy), argnums))(*args)
    for run in RUNS.values():
        close(run(wl.hessian(weighted(f, np), argnums))(*args), expected)


@pytest.mark.parametrize("name", ["rosenbrock", "helmholtz_energy", "tanh_network"])
def test_products(name):
    jax = pytest.importorskip("jax")
    f, args, _ = PROBLEMS[name]
    rng = np.random.default_rng(0)
    v = tree.tree_map(lambda a: rng.standard_normal(np.shape(a)), args[0])
    expected = jax.jit(lambda x, v: jax.jvp(lambda x: jax.grad(in_jax(name))(x, *args[1:]), (x,), (v,))[1])(args[0], v)
    for strategy in ("forward_over_reverse", "reverse_over_forward", "reverse_over_reverse"):
        for run in RUNS.values():
            product = run(lambda x, v, strategy=strategy: wl.hvp(lambda x: f(x, *args[1:]), (x,), (v,), strategy))
            close(product(args[0], v), expected)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_rosenbrock_in_torch(run):
    torch = pytest.importorskip("torch")
    f, (x,), _ = PROBLEMS["rosenbrock"]
    there = lambda x: f(x, xp=torch)
    point, v = torch.from_numpy(x), torch.from_numpy(np.cos(x))
    close(run(wl.hessian(f))(x), torch.func.hessian(there)(point))
    close(run(lambda x, v: wl.vhp(f, (x,), (v,)))(x, np.cos(x)), torch.autograd.functional.vhp(there, point, v)[1])
