"""associative_scan: against loops, through every transformation, and the notes' count of its operations."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.control.associative import associative_scan

LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 33]


def rand(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def add(a, b):
    return a + b


def affine(left, right):
    """(a, b) stands for h -> a h + b; the left one is applied first."""
    (a, b), (c, d) = left, right
    return a * c, c * b + d


def recurrence(a, b):
    """h_t = a_t h_{t-1} + b_t by a loop, from h = 0."""
    h, out = np.zeros(b.shape[1:]), []
    for i in range(len(b)):
        h = a[i] * h + b[i]
        out.append(h)
    return np.array(out).reshape(b.shape)


@pytest.mark.parametrize("n", LENGTHS)
def test_sums_products_and_maxima(n):
    x = rand(n, 2)
    np.testing.assert_allclose(associative_scan(add, x), np.cumsum(x, axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(associative_scan(np.multiply, x), np.cumprod(x, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(associative_scan(np.maximum, x), np.maximum.accumulate(x, axis=0))
    np.testing.assert_allclose(
        associative_scan(add, x, reverse=True), np.cumsum(x[::-1], axis=0)[::-1], rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(associative_scan(add, x.T, axis=1), np.cumsum(x, axis=0).T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(associative_scan(add, x.T, axis=-1, reverse=True), np.cumsum(x[::-1], axis=0)[::-1].T)


@pytest.mark.parametrize("n", LENGTHS)
def test_linear_recurrences(n):
    a, b = rand(n, 3), rand(n, 3, seed=1)
    np.testing.assert_allclose(associative_scan(affine, (a, b))[1], recurrence(a, b), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_matrix_products_which_do_not_commute(n):
    x = rand(n, 2, 2)
    expected, product = [], np.eye(2)
    for m in x:
        product = product @ m
        expected.append(product)
    np.testing.assert_allclose(associative_scan(np.matmul, x), expected, rtol=1e-12)
    backwards, product = [], np.eye(2)
    for m in x[::-1]:
        product = product @ m
        backwards.append(product)
    np.testing.assert_allclose(associative_scan(np.matmul, x, reverse=True), backwards[::-1], rtol=1e-12)


def test_six_elements_take_seven_operations_in_three_levels():
    """The notes, 13.3.2: 3 + 2 + 2 operations, each needing only results of the levels before its own."""
    count = 0

    def fn(left, right):
        nonlocal count
        (x, level), (y, other) = left, right
        count += len(x)
        return x + y, np.maximum(level, other) + 1

    out, levels = associative_scan(fn, (np.arange(1.0, 7.0), np.zeros(6, int)))
    assert out.tolist() == [1, 3, 6, 10, 15, 21]
    assert count == 7
    assert levels.tolist() == [0, 1, 2, 2, 3, 3]
    assert max(levels) == 3


@pytest.mark.parametrize("n", [64, 100, 1000])
def test_depth_grows_like_the_logarithm(n):
    calls = operations = 0

    def fn(x, y):
        nonlocal calls, operations
        calls += 1
        operations += len(x)
        return x + y

    associative_scan(fn, np.ones(n))
    assert calls <= 2 * np.log2(n)
    assert operations < 2 * n


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
def test_derivatives(n):
    args = rand(n, 2), rand(n, 2, seed=1)
    wl.testing.check_grads(lambda a, b: associative_scan(affine, (a, b))[1], args, order=2)
    wl.testing.check_grads(lambda a, b: associative_scan(affine, (a, b), reverse=True)[1], args, order=1)


def test_gradient_against_the_loop():
    a, b, weights = rand(9), rand(9, seed=1), rand(9, seed=2)

    def by_scan(a, b):
        return np.sum(weights * associative_scan(affine, (a, b))[1])

    def by_loop(a, b):
        h, total = 0.0, 0.0
        for i in range(9):
            h = a[i] * h + b[i]
            total = total + weights[i] * h
        return total

    for g, e in zip(wl.grad(by_scan, (0, 1))(a, b), wl.grad(by_loop, (0, 1))(a, b)):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    hessians = [wl.jacobian(wl.grad(f))(a, b) for f in (by_scan, by_loop)]
    np.testing.assert_allclose(*hessians, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_vmap_and_jit(n):
    a, b = rand(4, n), rand(4, n, seed=1)

    def states(a, b):
        return associative_scan(affine, (a, b))[1]

    expected = np.array([recurrence(*pair) for pair in zip(a, b)]).reshape(4, n)
    np.testing.assert_allclose(wl.vmap(states)(a, b), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(wl.vmap(states, (0, None))(a, b[0])[1], recurrence(a[1], b[0]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(wl.jit(states)(a[0], b[0]), expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.vmap(states))(a, b), expected, rtol=1e-10, atol=1e-12)
    gradient = wl.grad(lambda a, b: np.sum(states(a, b) ** 2), (0, 1))
    for g, e in zip(wl.jit(gradient)(a[0], b[0]), gradient(a[0], b[0])):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-12)
    for g, e in zip(wl.vmap(gradient)(a, b), zip(*(gradient(*pair) for pair in zip(a, b)))):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-12)


def test_trees_dtypes_and_captured_values():
    elems = {"n": np.arange(5), "x": rand(5).astype(np.float32), "z": [rand(3, 5)[0] + 1j]}
    out = associative_scan(lambda a, b: wl.tree_map(lambda x, y: x + y, a, b), elems)
    assert out["n"].dtype == elems["n"].dtype and out["x"].dtype == np.float32 and out["z"][0].dtype == complex
    np.testing.assert_array_equal(out["n"], np.cumsum(elems["n"]))
    np.testing.assert_allclose(out["z"][0], np.cumsum(elems["z"][0]))

    def discounted(rate, x):  # fn closes over a traced value
        def fn(left, right):
            (a, n), (b, m) = left, right
            return a * rate**m + b, n + m

        return np.sum(associative_scan(fn, (x, np.ones(4)))[0])

    x = rand(4)
    wl.testing.check_grads(discounted, (0.7, x), order=2)


def test_inside_a_scan_and_around_one():
    def outer(x):
        def body(carry, row):
            return carry + np.sum(associative_scan(np.multiply, row)), carry

        return wl.scan(body, 0.0, x)[0]

    x = rand(3, 4)
    assert np.isclose(outer(x), np.sum(np.cumprod(x, axis=1)))
    wl.testing.check_grads(outer, (x,), order=1)


def test_the_result_is_the_callers_own():
    x = np.ones(1)
    out = associative_scan(add, x)
    out[0] = 5.0
    assert x[0] == 1.0
    out = associative_scan(add, np.ones(4))
    out[0] = 5.0  # writable


def test_errors():
    x = np.ones(4)
    with pytest.raises(wl.ArgumentError, match=r"leaf 0 comes in as f64\[2\] and leaves it as f32\[2\]"):
        associative_scan(lambda a, b: (a + b).astype(np.float32), x)
    with pytest.raises(wl.ArgumentError, match=r"leaf 1 comes in as f64\[2\] and leaves it as f64\[\]"):
        associative_scan(lambda a, b: (a[0] + b[0], np.sum(b[1])), (x, x))
    with pytest.raises(wl.ArgumentError, match=r"must return a tree like its operands, \(array, array\), got array"):
        associative_scan(lambda a, b: a[0], (x, x))
    with pytest.raises(wl.ArgumentError, match=r"different numbers of elements along axis 0: \[4, 3\]"):
        associative_scan(add, (x, np.ones(3)))
    with pytest.raises(wl.ArgumentError, match=r"axis 1 is out of bounds for leaf 0 of shape \(4,\)"):
        associative_scan(add, x, axis=1)
    with pytest.raises(wl.ArgumentError, match="axis 0 is out of bounds"):
        associative_scan(add, 3.0)
    with pytest.raises(wl.ArgumentError, match="no array in elems"):
        associative_scan(add, ())
    with pytest.raises(wl.ArgumentError, match="leaf 0"):
        associative_scan(add, "abc")
