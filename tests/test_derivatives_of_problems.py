"""All modes and strategies on the problem set: they agree to 1e-10, eager and compiled."""

import functools

import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.testing.problems import PROBLEMS
from wonderland.transform.second_order import STRATEGIES


def eager_and_compiled(ways):
    """(problem, way, how to run it): each problem compiled in one of the ways, in turn; the slow run has all."""
    params = []
    for number, name in enumerate(PROBLEMS):
        for i, way in enumerate(ways):
            label = "-".join(map(str, (name, *(way if isinstance(way, tuple) else (way,)))))
            slow = [pytest.mark.slow] * (i != number % len(ways))
            params.append(pytest.param(name, way, lambda f: f, id=f"eager-{label}"))
            params.append(pytest.param(name, way, wl.jit, id=f"jit-{label}", marks=slow))
    return params


def close(found, expected):
    """To 1e-10, relative to the largest number of each leaf."""
    assert tree.flatten(found)[1] == tree.flatten(expected)[1]
    for one, other in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * max(np.max(np.abs(other), initial=0), 1e-3))


def scalar(name):
    """The problem's function, its outputs weighted and added up."""
    f = PROBLEMS[name].f
    return lambda *args: sum(np.sum(np.cos(np.arange(np.size(out))) * out) for out in tree.leaves(f(*args)))


def numbers(name):
    argnums = PROBLEMS[name].argnums
    return (argnums,) if isinstance(argnums, int) else argnums


def direction(name, seed):
    """A vector like the variables of a problem, None for its other arguments."""
    rng = np.random.default_rng(seed)
    args = PROBLEMS[name].args
    vectors = (tree.tree_map(lambda a: rng.standard_normal(np.shape(a)), a) for a in args)
    return tuple(v if i in numbers(name) else None for i, v in enumerate(vectors))


@functools.cache
def reference(name):
    """The Jacobian by rows, one VJP each; the Hessian by columns, one JVP of the gradient each."""
    f, args, argnums = PROBLEMS[name]
    jacobian = wl.jacobian(f, argnums, "reverse", chunk_size=1)(*args)
    hessian = wl.jacobian(wl.grad(scalar(name), argnums), argnums, "forward", chunk_size=1)(*args)
    return jacobian, hessian


MODES = [("forward", "auto"), ("reverse", 3), ("reverse", "auto"), ("forward", 3)]


@pytest.mark.parametrize(("name", "way", "run"), eager_and_compiled(MODES))
def test_jacobians(name, way, run):
    f, args, argnums = PROBLEMS[name]
    mode, chunk_size = way
    close(run(wl.jacobian(f, argnums, mode, chunk_size))(*args), reference(name)[0])


@pytest.mark.parametrize(("name", "strategy", "run"), eager_and_compiled(STRATEGIES))
def test_hessians(name, strategy, run):
    _, args, argnums = PROBLEMS[name]
    close(run(wl.hessian(scalar(name), argnums, strategy))(*args), reference(name)[1])


@pytest.mark.parametrize(("name", "strategy", "run"), eager_and_compiled(STRATEGIES))
def test_products(name, strategy, run):
    f, args = scalar(name), PROBLEMS[name].args
    v, w = direction(name, 0), direction(name, 1)
    expected = wl.jvp(wl.grad(f, numbers(name)), args, v)[1]
    found = run(lambda args, v: wl.hvp(f, args, v, strategy))(args, v)
    close(found, expected if len(numbers(name)) > 1 else expected[0])
    if strategy != "forward_over_forward":
        prepared = wl.hvp_at(f, *args, argnums=numbers(name), strategy=strategy)
        close(run(prepared)(*(v[i] for i in numbers(name))), tuple(expected))
    together = tuple(args[i] for i in numbers(name))

    def of_variables(x):
        full = dict(zip(numbers(name), x, strict=True))
        return f(*(full.get(i, a) for i, a in enumerate(args)))

    vs, ws = (tuple(vector[i] for i in numbers(name)) for vector in (v, w))
    number = run(lambda x, v, w: wl.second_directional(of_variables, x, v, w, strategy))(together, vs, ws)
    pairs = zip(tree.leaves(ws), tree.leaves(tuple(expected)), strict=True)
    close(number, sum(np.sum(a * b) for a, b in pairs))
