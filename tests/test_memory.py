"""The memory of reverse mode: linear in the number of operations, and given back while the backward pass runs."""

import gc
import tracemalloc

import numpy as np
import pytest

import wonderland as wl


@pytest.fixture
def traced():
    """Memory is counted from here on."""
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


def chain(length):
    def f(x):
        for _ in range(length):
            x = np.sin(x)
        return x

    return f


def test_each_operation_of_a_long_chain_takes_a_few_hundred_bytes(traced):
    length = 10_000
    gradient = wl.grad(chain(length))(1.0)
    peak = tracemalloc.get_traced_memory()[1]
    assert 0.0 < gradient < 1.0
    assert peak < 600 * length


def test_memory_is_linear_in_the_length(traced):
    per_operation = []
    for length in (1_000, 2_000, 4_000, 8_000):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        wl.grad(chain(length))(1.0)
        per_operation.append((tracemalloc.get_traced_memory()[1] - before) / length)
    assert max(per_operation) < 1.4 * min(per_operation)  # lists grow by eighths


def test_residuals_are_freed_during_the_backward_pass(traced):
    steps, size = 20, 100_000
    seen = []  # bytes in use, at each step of the backward pass

    @wl.custom_vjp
    def probe(x):
        return x * 1.0

    def backward(residuals, ct):
        seen.append(tracemalloc.get_traced_memory()[0])
        return (ct,)

    probe.defvjp(lambda x: (probe(x), ()), backward)

    def f(x):
        for _ in range(steps):
            x = np.sin(probe(x))  # keeps cos(x), an array
        return np.sum(x)

    x = np.linspace(0.0, 1.0, size)
    wl.grad(f)(x)
    freed = -np.diff(seen)
    assert len(seen) == steps
    np.testing.assert_allclose(freed, x.nbytes, rtol=0.05)  # each step gives its own back
    assert seen[-1] < 6 * x.nbytes < seen[0]


def test_only_what_the_derivative_needs_is_kept(traced):
    def f(x):
        for _ in range(30):
            x = x + 1.0  # a linear function needs no residual
        return np.sum(x)

    x = np.zeros(100_000)
    wl.grad(f)(x)
    assert tracemalloc.get_traced_memory()[1] < 6 * x.nbytes


def test_a_pullback_keeps_its_residuals_and_can_be_called_again(traced):
    x = np.linspace(0.0, 1.0, 50_000)
    _, pull = wl.vjp(lambda x: np.sin(np.sin(x)), x)
    first = pull(np.ones_like(x))[0]
    np.testing.assert_array_equal(first, pull(np.ones_like(x))[0])
    np.testing.assert_allclose(first, np.cos(np.sin(x)) * np.cos(x))
    held = tracemalloc.get_traced_memory()[0]
    del pull, first
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] < held - 2 * x.nbytes
