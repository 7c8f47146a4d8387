"""Embeddings and losses with integer labels, compiled: what is computed, in how many steps and how much memory."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.scipy.special as special
from wonderland.compile import helpers, pool


@pytest.fixture
def threads():
    yield pool.set_size
    pool.set_size(helpers.threads())


def lookup(table, ids, ct):
    """A lookup in a table, and the derivative with respect to the table."""
    out, pull = wl.vjp(lambda table: table[ids], table)
    return out, pull(ct)[0]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("rows", "width", "ids"),
    [(65, 128, (12, 64)), (7, 300, (500,)), (999, 48, (9, 9)), (5, 1, (4,)), (3, 70, ()), (4, 9, (0, 2)), (3, 0, (2,))],
)
def test_lookup(rows, width, ids, dtype, threads):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((rows, width)).astype(dtype)
    index = rng.integers(-rows, rows, ids)
    ct = rng.standard_normal((*ids, width)).astype(dtype)
    want = np.zeros_like(table)
    np.add.at(want, index, ct)  # one after the other: in this order are the sums of compiled code
    for size in (1, 2, 3):
        threads(size)
        out, got = wl.jit(lookup)(table, index, ct)
        np.testing.assert_array_equal(out, table[index])
        np.testing.assert_array_equal(got, want)


def test_the_derivative_of_a_lookup_is_zeros_and_one_pass_over_the_rows():
    table, index = np.ones((5000, 128), np.float32), np.zeros((12, 64), int)
    compiled = wl.jit(lookup).inspect(table, index, np.ones((12, 64, 128), np.float32))
    zeros, scatter = compiled.kernels
    assert zeros.startswith("over [5000, 128]: elementwise") and zeros.endswith("1 full map")
    assert scatter.startswith("over [12, 64, 128]") and "parallel" in scatter and "1 scatter" in scatter
    assert len(compiled.plan.steps) == 2 and compiled.arena_bytes == 64  # the result is updated where it is


def test_the_last_one_stays(threads):
    """Updates of one place happen in order, for any number of threads."""
    rng = np.random.default_rng(0)
    index, values = rng.integers(0, 20, 900), rng.random((900, 200))

    def put(x, index, values):
        x = x.copy()
        x[index] = values
        return x

    x = np.zeros((30, 200))
    for size in (1, 2, 3):
        threads(size)
        np.testing.assert_array_equal(wl.jit(put)(x, index, values), put(x, index, values))
    assert "parallel" in wl.jit(put).inspect(x, index, values).kernels[-1]


def test_an_index_that_moves_along_the_columns():
    """Then columns may meet, and one thread does it."""
    rng = np.random.default_rng(0)
    rows, columns, values = rng.integers(0, 9, (3, 60, 200))
    f = wl.jit(lambda x, i, j, u: wl.grad(lambda x: np.sum(x[i, j] * u))(x))
    want = np.zeros((9, 9))
    np.add.at(want, (rows, columns), values.astype(float))
    np.testing.assert_array_equal(f(np.ones((9, 9)), rows, columns, values), want)


def test_an_index_out_of_range_raises(threads):
    index, ct = np.zeros(800, int), np.ones((800, 256))
    index[700], index[300] = 77, -12
    for size in (1, 2):
        threads(size)
        with pytest.raises(IndexError, match="index -12 is out of bounds for axis 0 with size 10"):
            wl.jit(lambda x, i, ct: wl.vjp(lambda x: x[i], x)[1](ct)[0])(np.ones((10, 256)), index, ct)


# -- cross-entropy with integer labels, by the plain formula ----------------------------------------------------------


def logsumexp(z):
    top = np.max(z, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(z - top), axis=-1)) + top[..., 0]


LOSSES = {
    "take_along_axis": lambda z, y: logsumexp(z) - np.take_along_axis(z, y[:, None], axis=-1)[:, 0],
    "an index for each row": lambda z, y: logsumexp(z) - z[np.arange(len(y)), y],
    "logsumexp": lambda z, y: special.logsumexp(z, axis=-1) - z[np.arange(len(y)), y],
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("n", "classes"), [(300, 65), (40, 1000), (1, 5)])
def test_cross_entropy_keeps_no_probabilities(name, n, classes):
    rng = np.random.default_rng(0)
    z, y = 3 * rng.standard_normal((n, classes)), rng.integers(0, classes, n)
    f = wl.jit(wl.value_and_grad(lambda z, y: np.mean(LOSSES[name](z, y))))
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    value, gradient = f(z, y)
    np.testing.assert_allclose(value, -np.mean(np.log(p[np.arange(n), y])), 1e-12)
    np.testing.assert_allclose(gradient, (p - np.eye(classes)[y]) / n, 1e-10, 1e-16)
    compiled = f.inspect(z, y)
    assert compiled.arena_bytes <= 64 + 2 * 64 * -(-8 * n // 64)  # numbers for each row alone
    over_all = [kernel for kernel in compiled.kernels if f"[{n}, {classes}]" in kernel]
    assert len(over_all) == 1 or n == 1  # the gradient is written once; the labels' part goes to n places
