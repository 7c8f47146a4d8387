"""Loops and branches inside compiled code, against the same functions run by NumPy."""

import numpy as np
import pytest
from differential import assert_close, compare_in_control_flow

import wonderland as wl
from wonderland.core import tree


def check(f, *args, native=True):
    """`jit(f)` against `f`; returns the compiled Program."""
    want = tree.flatten(f(*args))[0]
    jitted = wl.jit(f)
    for _ in range(2):
        got = tree.flatten(jitted(*args))[0]
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_close(np.asarray(g), np.asarray(w))
    compiled = jitted.inspect(*args)
    assert not (native and compiled.fallbacks), compiled.fallbacks
    return compiled


X = np.linspace(0.1, 1.0, 7)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_elements_rows_and_views(reverse):
    rows = np.random.default_rng(0).normal(size=(5, 3, 4))

    def f(x, rows):
        a = wl.scan(lambda c, t: (c * 0.5 + t, c * t), np.float64(1.0), x, reverse=reverse)
        b = wl.scan(lambda c, r: (c + r, np.sin(c) @ r.T), np.zeros((3, 4)), rows, reverse=reverse)
        c = wl.scan(lambda c, r: (c + r, r.sum(0)), np.zeros((3, 5)), np.transpose(rows, (2, 1, 0)), reverse=reverse)
        return a, b, c

    check(f, X, rows)


def test_scan_without_xs_and_of_length_zero():
    check(lambda x: wl.scan(lambda c, _: (c * 2.0, c), x, None, length=5), X)
    check(lambda x: wl.scan(lambda c, t: (c + t, c), np.zeros(3), x), np.zeros((0, 3)))


def test_carried_values_that_change_places():
    check(lambda n: wl.fori_loop(0, 10, lambda i, ab: (ab[1], ab[0] + ab[1]), (np.int64(0), n)), np.int64(1))
    check(lambda a, b: wl.fori_loop(0, 5, lambda i, ab: (ab[1], ab[0] * 2.0), (a, b)), np.ones(3), np.arange(3.0))
    check(lambda a, b: wl.fori_loop(0, 5, lambda i, ab: (ab[1], ab[0]), (a, b)), np.ones(3), np.arange(3.0))
    check(lambda a: wl.fori_loop(0, 5, lambda i, ab: (ab[1], ab[0] + 1.0, ab[0]), (a, a, a)), np.ones(3))


def test_carried_values_read_at_other_elements():
    check(lambda x: wl.fori_loop(0, 4, lambda i, c: c[::-1] + 0.1 * c.sum(), x), X)
    matrix = np.random.default_rng(0).normal(size=(50, 50)) / 10
    check(lambda x: wl.fori_loop(0, 4, lambda i, c: np.tanh(c @ c) + c.T, x), matrix)


def test_one_element_per_step():
    def f(x):
        def body(i, c):
            c[i] = c[i - 1] * 0.5 + c[i]
            return c

        return wl.fori_loop(1, 7, body, x)

    check(f, X)
    check(wl.grad(lambda x: (f(x) * np.arange(7.0)).sum()), X)


def test_while_loops():
    check(lambda x: wl.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 1.5, x), X)
    check(lambda n: wl.while_loop(lambda c: c[0] > 1, lambda c: (c[0] - 3, c[1] + 1), (n, 0)), 50)
    check(lambda x: wl.while_loop(lambda c: c < 0.0, lambda c: c + 1.0, x), np.float64(3.0))  # never runs


def test_run_time_bounds():
    check(lambda n, x: wl.fori_loop(0, n, lambda i, c: c * 0.9 + i, x), np.int64(5), X)
    check(lambda n, x: wl.fori_loop(0, n, lambda i, c: c * 0.9 + i, x), np.int64(0), X)


def test_branches():
    def f(p, x):
        return wl.cond(p, lambda x: (x * 2.0, x.sum()), lambda x: (x, x[0] - 1.0), x)

    check(f, np.bool_(True), X)
    check(f, np.bool_(False), X)
    branches = [lambda x: x, lambda x: x @ x * np.ones(7), lambda x: np.sin(x)]
    for i in (-3, 0, 1, 2, 9):
        check(lambda i, x: wl.switch(i, branches, x), np.int64(i), X)


def test_nested_loops_and_branches():
    def f(x):
        def outer(c, t):
            inner = wl.fori_loop(0, 3, lambda i, a: wl.cond(t > 0.5, lambda a: a * t, lambda a: a + i, a), c)
            total = wl.scan(lambda a, b: (a + b * t, a * b), np.float64(0.0), x)[0]
            return inner, total + inner.sum()

        return wl.scan(outer, np.ones(4), x)

    check(f, X)


def test_gradients_of_loops():
    def looped(x):
        return wl.scan(lambda c, t: (np.sin(c) * t, c * t), np.float64(1.0), x)[1].sum()

    check(wl.grad(looped), X)
    check(wl.grad(lambda x: wl.while_loop(lambda c: c.sum() < 100.0, lambda c: c * c + 1.5, x).sum()), X)
    check(wl.grad(lambda x: wl.fori_loop(0, 3, lambda i, c: np.tanh(c) @ c * c, x).sum()), X)
    check(wl.grad(lambda x: wl.cond(x[0] > 0, lambda x: x * x, lambda x: np.sin(x), x).sum()), X)
    second = wl.grad(wl.grad(lambda x: wl.while_loop(lambda c: c < 50.0, lambda c: c * c + 1.7, x)))
    check(second, np.float64(1.0))


def test_batched_loops():
    check(wl.vmap(lambda y: wl.while_loop(lambda c: c < 50.0, lambda c: c * 1.7, y)), X)
    check(wl.vmap(lambda y: wl.cond(y > 0.5, lambda y: y * 2, lambda y: y - 1, y)), X)


def test_residuals_as_outputs_and_as_inputs():
    """A function cut in two by `vjp`: residuals of unknown length leave one compiled call and enter another."""

    def f(x):
        return wl.while_loop(lambda c: c.sum() < 100.0, lambda c: c * c + 1.5, x).sum()

    _, back = wl.vjp(wl.jit(f), X)
    _, want = wl.vjp(f, X)
    np.testing.assert_allclose(np.asarray(back(1.0)), np.asarray(want(1.0)))


def test_errors_inside_loops():
    def f(x, n):
        return wl.fori_loop(0, n, lambda i, c: c + x[i + 2], np.float64(0.0))

    jitted = wl.jit(f)
    assert float(jitted(X, np.int64(3))) == pytest.approx(X[2:5].sum())
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 7"):
        jitted(X, np.int64(30))


def test_fallbacks_inside_loops():
    check(lambda n: wl.fori_loop(0, 4, lambda i, c: c ** (c - c + 2), n), np.array([1, 2, -1]), native=False)


def test_a_scan_of_many_steps_costs_no_more_than_the_steps():
    """O(1) per step: what is carried is updated where it is (otherwise this takes minutes)."""

    def f(x):
        def body(i, c):
            c[i] = c[i - 1] + 1.0
            return c

        return wl.fori_loop(1, 100_000, body, x)

    jitted = wl.jit(f)
    x = np.zeros(100_000)
    assert jitted(x)[-1] == 99_999
    assert jitted.inspect(x).ir.count("call void @llvm.memcpy") == 1  # of the argument, before the loop
    gradient = wl.jit(wl.grad(lambda x: (f(x) * np.arange(100_000.0)).sum()))(x)
    assert gradient[0] == 99_999 * 100_000 / 2 and not gradient[1:].any()


def test_fallbacks_on_views_of_slices():
    x = np.arange(24).reshape(2, 3, 4)

    def f(x):
        return wl.scan(lambda c, t: (c, t[::-1] ** (t - t + 2)), np.float64(0.0), np.transpose(x, (2, 1, 0)))

    check(f, x, native=False)


@pytest.mark.parametrize("block", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 4))])
def test_random_programs_in_control_flow(block):
    for seed in range(block * 10, block * 10 + 10):
        compare_in_control_flow(seed)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: wl.vmap(wl.grad(f)),
        lambda f: lambda x: wl.vmap(wl.vmap(wl.grad(f)))(x[None]),
        lambda f: wl.hessian(lambda x: np.sum(wl.vmap(f)(x))),
        lambda f: wl.vmap(lambda x: wl.linearize(f, x)[1](x)),
        lambda f: wl.jacobian(wl.vmap(wl.grad(lambda x: f(x * np.ones(2))))),
    ],
)
def test_batches_of_the_derivative_of_a_compiled_loop(transformed):
    """The residuals that such a loop stacks leave the compiled code with the batch's axis before their length."""

    def f(x):
        return np.sum(wl.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np.sin(c[1] * x)), (0, x * 1.0))[1])

    def unrolled(x):
        return np.sum(np.sin(np.sin(np.sin(x * x) * x) * x))

    x = X[:3]
    assert_close(transformed(wl.jit(f))(x), transformed(unrolled)(x))
