"""Elementwise kernels that run inside a matrix product, against NumPy; and those that must not."""

import re

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import pool

pytestmark = pytest.mark.optimised

FUSED = re.compile(r"call void @wl_gemm_f\d\d\w*\(.*, ptr @\S+, ptr %\S+\)")  # a product with an epilogue
M, N, K = 130, 140, 150  # shared between threads, and no multiple of any tile


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def check(f, args, fused):
    """Compare with NumPy, twice (the second call finds a used arena), and look for the epilogue."""
    compiled = wl.jit(f)
    want = f(*args)
    for _ in range(2):
        got = compiled(*args)
        for g, w in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            np.testing.assert_allclose(g, w, 1e-10, 1e-10)
    ir = compiled.inspect(*args).ir
    assert fused in (None, len(FUSED.findall(ir)))
    assert not compiled.inspect(*args).fallbacks


ROW, COLUMN, SAME, ONE = (N,), (M, 1), (M, N), ()
EPILOGUES = {
    "bias along a row": (lambda c, b: c + b, [ROW]),
    "bias along a column": (lambda c, b: c * b, [COLUMN]),
    "residual": (lambda c, r: np.tanh(c) + r, [SAME]),
    "a number": (lambda c, s: np.maximum(c * s, 0.1), [ONE]),
    "a written number": (lambda c: 2 * c + 1, []),
    "all of them": (lambda c, b, a, r, s: np.where(r > s, c + b, a - c), [ROW, COLUMN, SAME, ONE]),
    "itself only": (lambda c: c * c, []),
    "another dtype": (lambda c: (c > 0).astype(np.int32), []),
    "several outputs": (lambda c, b: (c, c + b, np.exp(-(c**2)), c > 0), [ROW]),
    "a residual that is reversed": (lambda c, r: c + r[::-1], [SAME]),
    "another shape": (lambda c, b: c.reshape(13, 10, N) + b.reshape(13, 10, 1), [(M,)]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name):
    g, shapes = EPILOGUES[name]
    x, y, *rest = arrays((M, K), (K, N), *shapes)
    check(lambda x, y, *rest: g(x @ y, *rest), [x, y, *rest], 1)
    check(lambda x, y, *rest: g(x.T @ y, *rest), [x.T.copy(), y, *rest], 1)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(2100, 20, 60), (130, 2100, 20), (100, 100, 900), (97, 101, 523), (101, 600, 801)]
)
def test_blocks(m, n, k):
    x, y, b = arrays((m, k), (k, n), (n,))
    check(lambda x, y, b: np.tanh(x @ y / 9 + b), [x, y, b], 1)


def test_float32():
    x, y, b = (a.astype(np.float32) for a in arrays((M, K), (K, N), (N,)))
    want = np.maximum(x.astype(float) @ y + b, 0)
    np.testing.assert_allclose(wl.jit(lambda x, y, b: np.maximum(x @ y + b, 0))(x, y, b), want, 1e-4, 1e-4)


REFUSED = {
    "read transposed": lambda x, y: np.stack([x @ y, (x @ y).T]),
    "read at another element": lambda x, y: x @ y + (x @ y)[::-1],
    "a sum over rows": lambda x, y: np.sum(x @ y, axis=0),
    "a softmax": lambda x, y: np.exp(x @ y) / np.sum(np.exp(x @ y), axis=1, keepdims=True),
    "a batch": lambda x, y: np.stack([x, 2 * x]) @ np.stack([y, x]) + 1,
    "rows of several axes, an operand between them": lambda x, y: (x @ y).reshape(2, 75, 150) + y[:75, None, 0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_epilogue(name):
    check(REFUSED[name], arrays((150, 150), (150, 150)), 0)


def test_operands_of_the_product_are_read_too():
    """The epilogue of x @ y may read x and y, but must not overwrite them before the last row is done."""
    x, y = arrays((150, 150), (150, 150))
    check(lambda x, y: x + x @ y, [x, y], 1)
    check(lambda x, y: y * (x @ y), [x, y], 1)
    check(lambda x, y: np.sin(x) + np.sin(x) @ y, [x, y], 1)
    check(lambda x, y: (np.sin(x) + np.sin(x) @ y) @ y, [x, y], None)  # possibly in place of sin(x)
    check(lambda x, y: np.tanh(np.tanh(x @ y) @ y), [x, y], 2)
    check(lambda x, y: np.tanh(x @ x + y @ y), [x, y], 1)
    check(lambda x, y: (x @ y + 1, y @ x + 2, x @ y + y @ x), [x, y], 1)


def test_arguments_that_are_written():
    @wl.register_mutable
    class State:
        def __init__(self, w):
            self.w = w

    w, x, g = arrays((150, 150), (150, 150), (150, 150))
    updates = [
        lambda s, x, g: s.w - 0.1 * (x.T @ g),
        lambda s, x, g: s.w - 0.1 * (s.w @ g),
        lambda s, x, g: s.w.T - 0.1 * (x @ g),
        lambda s, x, g: 0.5 * (x @ g),
    ]
    for update in updates:

        def step(s, x, g, update=update):
            s.w = update(s, x, g)
            return np.sum(s.w)

        ours, theirs = State(w.copy()), State(w.copy())
        for _ in range(2):
            got, want = wl.jit(step)(ours, x, g), step(theirs, x, g)
            np.testing.assert_allclose(got, want, 1e-8, 1e-8)
            np.testing.assert_allclose(ours.w, theirs.w, 1e-9, 1e-9)


def test_inside_loops():
    w, h, xs = arrays((150, 150), (150, 150), (4, 150, 150))
    w /= 20

    def recurrence(w, h, xs):
        def body(h, x):
            h = np.tanh(h @ w + x)
            return h, h * 2

        return wl.scan(body, h, xs)

    got, want = wl.jit(recurrence)(w, h, xs), recurrence(w, h, xs)
    for g, e in zip(got, want, strict=True):
        np.testing.assert_allclose(g, e, 1e-10, 1e-10)

    def product(w, h, xs):
        return wl.scan(lambda total, x: (total + np.sum(x), np.maximum(x @ w + 1, 0)), 0.0, xs)

    got, want = wl.jit(product)(w, h, xs), product(w, h, xs)
    for g, e in zip(got, want, strict=True):
        np.testing.assert_allclose(g, e, 1e-10, 1e-10)
    assert FUSED.search(wl.jit(product).inspect(w, h, xs).ir)


def test_derivatives():
    x, w, b, v = arrays((M, K), (K, N), (N,), (N, 100))

    def loss(x, w, b, v):
        return np.sum(np.tanh(np.maximum(x @ w + b, 0) @ v / 10) ** 2)

    grad = wl.grad(loss, (0, 1, 2, 3))
    for got, want in zip(wl.jit(grad)(x, w, b, v), grad(x, w, b, v), strict=True):
        np.testing.assert_allclose(got, want, 1e-9, 1e-9)


def test_same_bits_for_any_number_of_threads():
    x, y, b = arrays((301, 203), (203, 307), (307,))
    f = wl.jit(lambda x, y, b: np.tanh(x @ y + b))
    before = pool.size()
    try:
        results = []
        for threads in (1, 2, 3):
            pool.set_size(threads)
            results.append(f(x, y, b))
    finally:
        pool.set_size(before)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
