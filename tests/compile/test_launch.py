"""Kernels that don't depend on each other run as one job: what is joined, what isn't, and that nothing else changes."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import allocate, helpers, pool
from wonderland.compile.steps import MOST_FRESH, RunKernels

SHAPES = {"w": (130, 90), "b": (90,), "deep": (5, 40, 60), "one": (), "empty": (0, 3), "wide": (3, 9000), "short": (7,)}


def adam(p, m, v, g, t):
    """Kingma and Ba (2015), for every array of a tree."""
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
    v = {k: 0.99 * v[k] + 0.01 * g[k] * g[k] for k in p}
    step = {k: m[k] / (1 - 0.9**t) / (np.sqrt(v[k] / (1 - 0.99**t)) + 1e-8) for k in p}
    return {k: p[k] - 0.01 * step[k] for k in p}, m, v


def trees(shapes, dtype, count=4):
    rng = np.random.default_rng(0)
    return [{k: np.asarray(1 + rng.random(s), dtype) for k, s in shapes.items()} for _ in range(count)]


def launches(compiled):
    """Jobs of the pool, and calls of kernels besides."""
    steps = [step for step in compiled.plan.steps if isinstance(step, RunKernels)]
    return len(steps), [len(step.kernels) for step in steps]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("donate", [(), (0, 1, 2)])
def test_an_update_of_a_tree_is_one_launch(dtype, donate):
    arguments = trees(SHAPES, dtype)
    step = wl.jit(adam, donate=donate)
    compiled = step.inspect(*arguments, 3.0)
    assert launches(compiled) == (1, [6])  # the empty one has none
    assert compiled.ir.count("call void @wl_parallel(") == 1 and compiled.arena_bytes == 64
    want = adam(*arguments, 3.0)
    alone = {k: wl.jit(adam)(*({k: a[k]} for a in arguments), 3.0) for k in SHAPES}
    for size in (1, 2, 3):
        pool.set_size(size)
        for part, (got, expected) in enumerate(zip(step(*map(copied, arguments), 3.0), want)):
            for k in SHAPES:
                np.testing.assert_allclose(got[k], expected[k], 1e-6 if dtype == "f4" else 1e-13)
                np.testing.assert_array_equal(got[k], alone[k][part][k])
    pool.set_size(helpers.threads())


def copied(tree):
    return {k: np.array(a) for k, a in tree.items()}


def test_a_larger_tree_has_the_same_code():
    """What differs between kernels is data: neither their number nor their extents are in the text."""

    def ir(count, rows):
        shapes = {f"{kind}{i}": s for i in range(count) for kind, s in (("w", (rows, 100)), ("b", (2000,)))}
        compiled = wl.jit(adam).inspect(*trees(shapes, "f4"), 3.0)
        assert launches(compiled) == (1, [2 * count])
        return compiled.ir

    assert ir(2, 90) == ir(2, 120) == ir(6, 77)


def test_it_is_printed():
    text = str(wl.jit(adam).inspect(*trees({"a": (90, 100), "b": (90, 100), "c": (70,)}, "f4"), 3.0))
    assert "3 kernels in one launch" in text and "2 x kernel over [90, 100]: elementwise" in text


def check(f, *args, kernels):
    compiled = wl.jit(f)
    for got, want in zip(compiled(*args), f(*args), strict=True):
        np.testing.assert_allclose(got, want, 1e-9)
    assert launches(compiled.inspect(*args))[1] == kernels


def test_what_depends_stays_apart():
    x, y = np.random.default_rng(0).random((2, 120, 130))
    check(lambda x, y: (np.sin(x), np.cos(y.T)), x, y, kernels=[2])
    check(lambda x, y: (np.sin(x), np.sin(np.sin(x).T)), x, y, kernels=[1, 1])
    check(lambda x, y: (np.exp(x), np.exp(x)[::-1] * y, np.cos(y.T)), x, y, kernels=[1, 2])
    check(lambda x, y: (np.sort(x, axis=1), np.sort(y)), x, y, kernels=[2])
    check(lambda x, y: (np.sin(x), y[np.array([3, 1])]), x, y, kernels=[1, 1])  # an index may be out of range


def test_memory_that_another_kernel_still_reads():
    @wl.register_mutable
    class State:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def step(s):
        s.a, s.b = s.a + np.sin(s.b.T), s.b * 2.0

    def swap(s):
        s.a, s.b = s.b.T, s.a.T

    a, b = np.random.default_rng(0).random((2, 110, 110))
    for change in (step, swap):
        ours, theirs = State(a.copy(), b.copy()), State(a.copy(), b.copy())
        for _ in range(2):
            wl.jit(change)(ours)
            change(theirs)
        np.testing.assert_allclose(ours.a, theirs.a)
        np.testing.assert_allclose(ours.b, theirs.b)


def test_in_a_loop_and_a_branch():
    def body(carry, x):
        a, b = carry
        return (np.sin(a) + x, np.cos(b) * 0.5), np.sum(a)

    def f(a, b, xs):
        (a, b), ys = wl.scan(body, (a, b), xs)
        return wl.cond(ys[0] > 0, lambda a, b: (np.exp(a), np.exp(-b)), lambda a, b: (a, b), a, b)

    rng = np.random.default_rng(0)
    a, b, xs = rng.random((100, 90)), rng.random((90, 110)), rng.random(4)
    for got, want in zip(wl.jit(f)(a, b, xs), f(a, b, xs), strict=True):
        np.testing.assert_allclose(got, want, 1e-12)


def network(parameters, x, y):
    for w, b in parameters:
        x = np.tanh(x @ w + b)
    return np.mean((x - y) ** 2)


@pytest.mark.parametrize("width", [40, 300])
def test_no_more_memory_is_in_use(width, monkeypatch):
    rng = np.random.default_rng(0)
    parameters = [(rng.random((width, width)), rng.random(width)) for _ in range(5)]
    x, y = rng.random((2, 200, width))
    joined = wl.jit(wl.grad(network)).inspect(parameters, x, y)
    monkeypatch.setattr(allocate, "NEAR", 0)
    apart = wl.jit(wl.grad(network)).inspect(parameters, x, y)
    assert sum(launches(apart)[1]) == sum(launches(joined)[1])
    assert joined.arena_bytes <= apart.arena_bytes + MOST_FRESH
