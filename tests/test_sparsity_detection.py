"""`wl.sparse.jacobian_pattern` and `hessian_pattern`, against dense derivatives at random points."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import wonderland as wl
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.ops import pattern as detection
from wonderland.ops import sets
from wonderland.ops.pattern import program_reads
from wonderland.testing.random_programs import random_program
from wonderland.testing.sparse_problems import convolution

jacobian_pattern, hessian_pattern = wl.sparse.jacobian_pattern, wl.sparse.hessian_pattern


def blocks(rows, outs, args):
    """A dense matrix from blocks by output and argument."""
    return np.block([
        [np.reshape(b, (np.size(o), np.size(x))) for b, x in zip(row, args, strict=True)]
        for o, row in zip(outs, rows, strict=True)
    ])  # fmt: skip


def dense_jacobian(f, *args):
    numbers = tuple(range(len(args)))
    g = lambda *xs: tuple(tree.leaves(f(*xs)))
    with np.errstate(all="ignore"):
        return blocks(wl.jacobian(g, numbers)(*args), wl.linearize(g, *args)[0], args)


def dense_hessian(f, *args):
    numbers = tuple(range(len(args)))
    with np.errstate(all="ignore"):
        return blocks(wl.jacobian(wl.grad(f, numbers), numbers)(*args), args, args)


def canonical(pattern):
    assert isinstance(pattern, sp.csr_array) and pattern.dtype == bool and pattern.data.all()
    again = pattern.copy()
    again.has_canonical_format = again.has_sorted_indices = False
    again.sum_duplicates()
    assert np.array_equal(again.indices, pattern.indices) and np.array_equal(again.indptr, pattern.indptr)
    return pattern.toarray()


def somewhere(dense, shape, count=4):
    """Where a derivative isn't zero at one of several random points."""
    rng = np.random.default_rng(0)
    return np.any([dense(rng.uniform(0.3, 1.7, shape)) != 0 for _ in range(count)], axis=0)


A = np.array([[1.0, 0, 2], [0, 0, 0], [0, 3, 0], [4, 0, 0]])
BANDS = sp.diags_array([np.ones(5), np.full(6, -2.0), np.ones(5)], offsets=[-1, 0, 1]).tocsr()
IMAGE = np.array([[0, 1, 1], [2, 0, 1]])

EXACT = {
    "slices": (lambda x: x[1:-1] * x[2:] - np.sin(x[:-2]), 7),
    "reverse": (lambda x: x[::-1] + x[::2].sum(), 6),
    "roll": (lambda x: np.roll(x, 2) - x, 6),
    "roll of axes": (lambda x: np.roll(x, (1, -1), (0, 1)) * x, (3, 4)),
    "pad": (lambda x: np.pad(x, 2) ** 2, 4),
    "product with padding": (lambda x: np.pad(x[1:-1], 1) * np.cos(x), 5),
    "zeros through products": (lambda x: np.concatenate([np.zeros(2), x[:2] ** 2]) @ np.outer(x, np.ones(2)), 4),
    "pad by wrapping": (lambda x: np.pad(x, 1, mode="wrap"), 4),
    "pad by edges": (lambda x: np.pad(x, ((1, 0), (2, 1)), mode="edge"), (2, 3)),
    "diff": (lambda x: np.diff(x, 2), 6),
    "concatenate": (lambda x: np.concatenate([x[:2], np.ones(2), x * x]), 4),
    "stack": (lambda x: np.stack([x, np.roll(x, 1)], axis=1).ravel(), 4),
    "split": (lambda x: [p.sum() for p in np.split(x, 3)], 6),
    "reshape and transpose": (lambda x: x.reshape(3, 4).T[1:].ravel() * 2, 12),
    "tile and repeat": (lambda x: np.tile(x, 2) * np.repeat(x, 2), 4),
    "broadcast": (lambda x: x[:, None] * x[None, :], 4),
    "sum over an axis": (lambda x: x.sum(0), (3, 4)),
    "mean with kept axes": (lambda x: x - x.mean(1, keepdims=True), (3, 4)),
    "prod": (lambda x: np.prod(x, axis=1), (3, 4)),
    "cumsum": (np.cumsum, 5),
    "cumprod": (lambda x: np.cumprod(x, axis=0), (3, 2)),
    "softmax": (lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), (3, 4)),
    "matrix product": (lambda x: x @ np.ones((4, 2)), (3, 4)),
    "matrix times its transpose": (lambda x: x @ x.T, (3, 2)),
    "constant matrix with zeros": (lambda x: A @ x, 3),
    "constant matrix with zeros from the right": (lambda x: x @ A, (2, 4)),
    "batched products": (lambda x: np.einsum("bij,bjk->bik", x, np.ones((2, 3, 2))), (2, 4, 3)),
    "einsum over a constant with zeros": (lambda x: np.einsum("ij,jk->ik", A, x), (3, 2)),
    "sparse matrix": (lambda x: BANDS @ x, 6),
    "sparse matrix and a matrix": (lambda x: BANDS @ x * 2, (6, 2)),
    "matrix and sparse matrix": (lambda x: x @ BANDS, (2, 6)),
    "product with a mask": (lambda x: x * np.array([1.0, 0, 2, 0]), 4),
    "quotient of zeros": (lambda x: np.array([0.0, 1, 0]) / x, 3),
    "zeroth power": (lambda x: x ** np.array([0, 1, 2, 0]), 4),
    "power of 0 and 1": (lambda x: np.array([0.0, 1, 2]) ** x, 3),
    "where with a known mask": (lambda x: np.where(np.arange(4) > 1, x, x[::-1] ** 2), 4),
    "where": (lambda x: np.where(x > 1, x, x[::-1] ** 2), 5),
    "indices": (lambda x: x[[0, 2, 2, -1]], 5),
    "two indices": (lambda x: x[[0, 1], [2, 0]] * x[1, [1, 2]], (2, 3)),
    "mask": (lambda x: x[np.array([True, False, True])], 3),
    "take along axis": (lambda x: np.take_along_axis(x, IMAGE, 1), (2, 3)),
    "computed indices": (lambda x: x[(np.arange(4) * 3 + 1) % 4], 4),
    "bincount": (lambda x: np.bincount([0, 2, 2, 1], x), 4),
    "tril": (np.tril, (3, 3)),
    "diagonal": (lambda x: np.diag(x) * np.trace(x), (3, 3)),
    "kron": (lambda x: np.kron(x, [1.0, 0.0, 2.0]), 3),
    "outer": (lambda x: np.outer(x, [1.0, 0.0]), 3),
    "convolve": (lambda x: np.convolve(x, [1.0, 0.0, 2.0]), 5),
    "gradient": (np.gradient, 6),
    "interp": (lambda x: np.interp([0.5, 2.2], np.arange(4.0), x), 4),
    "floor": (lambda x: np.floor(x) * x[::-1], 4),
    "sign": (lambda x: np.sign(x) + np.round(x) + (x > 1), 3),
    "copysign": (lambda x: np.copysign(x, x[::-1]), 3),
    "stop_gradient": (lambda x: x * wl.stop_gradient(x[::-1]), 4),
    "astype": (lambda x: x.astype(int) * x[0] + x.astype(np.float32), 3),
    "sort": (np.sort, 3),
    "norm": (np.linalg.norm, 4),
    "solve": (lambda x: np.linalg.solve(2 * np.eye(2) + np.ones((2, 2)), x), (2, 3)),
    "fft": (lambda x: np.abs(np.fft.rfft(x, axis=1)), (2, 5)),
    "a scalar": (lambda x: x * x, ()),
    "to a scalar": (lambda x: x[2] + 1, 4),
    "no elements": (lambda x: x * x, (0,)),
    "no result elements": (lambda x: x[:0], 3),
    "nothing is read": (lambda x: np.ones(3), 2),
    "tree": (lambda x: {"b": x[:2], "a": (x[1], np.zeros(2))}, 3),
    "cond": (lambda x: wl.cond(x[0] > 1, lambda v: v * 1, lambda v: v[::-1] * 1, x[1:]), 4),
    "known cond": (lambda x: wl.cond(np.bool_(True), lambda v: v * 1, lambda v: v[::-1] * 1, x), 4),
    "switch": (lambda x: wl.switch(2, [np.sin, lambda v: v[::-1], lambda v: v * v[0]], x), 3),
    "fori_loop": (lambda x: wl.fori_loop(0, 2, lambda i, s: s * np.roll(s, 1), x), 6),
    "fori_loop with its counter": (lambda x: wl.fori_loop(0, 3, lambda i, s: np.where(i > 1, s, s[::-1] + s), x), 4),
    "fori_loop of elements": (lambda x: wl.fori_loop(1, 4, lambda i, s: s + x[i] * x[i - 1], 0.0), 6),
    "fori_loop that writes": (lambda x: wl.fori_loop(0, 3, lambda i, s: wl.at(s)[i].set(x[i] * s[i + 1]), x), 5),
    "scan": (lambda x: wl.scan(lambda s, r: (s + r, s * r[0]), x[0], x), (4, 3)),
    "scan in reverse": (lambda x: wl.scan(lambda s, r: (s + r, s), x[0], x, reverse=True), (4, 2)),
    "scan over known numbers": (lambda x: wl.scan(lambda s, c: (s * c, x * c), x, np.array([1.0, 0, 2])), 3),
    "scan of no steps": (lambda x: wl.scan(lambda s, r: (s * r, s), x[0] + 1, x[:0]), 3),
    "scan with slots": (
        lambda x: wl.scan(lambda s, r: (np.sin(s) * r, s), x[0], x, checkpoint=wl.binomial(2))[0], (5, 2)
    ),
    "nested loops": (
        lambda x: wl.fori_loop(0, 2, lambda i, s: wl.fori_loop(0, 2, lambda j, q: q + np.roll(q, 1), s) * x, x), 7
    ),
    "checkpoint": (wl.checkpoint(lambda x: np.sin(x[1:]) * x[:-1]), 5),
    "jit": (wl.jit(lambda x: np.sin(x[1:]) * x[:-1] * np.array([1.0, 0, 1, 1])), 5),
    "vmap": (lambda x: wl.vmap(lambda r: r[1:] * r[:-1])(x), (2, 3)),
    "grad": (wl.grad(lambda x: np.sum(x[1:] ** 2 * x[:-1])), 5),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    """Just what the Jacobian has at random points, if those are enough to see all branches."""
    f, shape = EXACT[name]
    expected = somewhere(lambda x: dense_jacobian(f, x), shape, 16)
    np.testing.assert_array_equal(canonical(jacobian_pattern(f, np.zeros(shape))), expected)


@pytest.mark.parametrize("name", EXACT)
def test_local_patterns_are_those_of_the_derivative_there(name):
    f, shape = EXACT[name]
    x = np.random.default_rng(1).uniform(0.3, 1.7, shape)
    np.testing.assert_array_equal(canonical(jacobian_pattern(f, x, local=True)), dense_jacobian(f, x) != 0)


BETWEEN = np.array([[0.0, 1, 0, 0], [0, 0, 0, 2], [0, 0, 3, 0], [0, 0, 0, 0]])


def barrier(x):
    return np.sum(x) - np.sum(np.log(A @ x[:3] + 5))


HESSIANS = {
    "sum": (np.sum, 4),
    "affine": (lambda x: (A @ x[:3]) @ np.arange(4.0) + 2 * x[3] - 1, 5),
    "elementwise": (lambda x: np.sum(np.sin(x) ** 2 / 2), 4),
    "neighbours": (lambda x: np.sum(x[1:] * x[:-1]), 5),
    "nonlinear neighbours": (lambda x: np.sum(np.exp(x[1:] - x[:-1] ** 2)), 5),
    "quadratic form": (lambda x: x @ BETWEEN @ x, 4),
    "sparse quadratic form": (lambda x: x @ (BANDS @ x), 6),
    "log-sum-exp of parts": (lambda x: np.log(np.exp(x[:2]).sum()) + np.log(np.exp(x[2:]).sum()), 5),
    "part of a nonlinear function": (lambda x: np.sum(np.exp(np.sin(x)[1:3]) ** 2), 5),
    "elements of a nonlinear function": (lambda x: np.sum(np.exp(x)[[0, 0, 3]] * np.exp(x)[[1, 3, 3]]), 5),
    "row of a product": (lambda x: np.sum(np.tanh(A @ x)[2:] ** 2), 3),
    "product": (np.prod, 4),
    "barrier": (barrier, 4),
    "max": (np.max, 4),
    "abs": (lambda x: np.sum(np.abs(x)), 3),
    "relu squared": (lambda x: np.sum(np.maximum(x - 1, 0) ** 2), 3),
    "norm": (np.linalg.norm, 3),
    "rosenbrock": (lambda x: np.sum(100 * (x[1::2] - x[::2] ** 2) ** 2 + (1 - x[::2]) ** 2), 6),
    "minimal surface": (
        lambda z: np.sum(np.sqrt(1 + (z[1:, 1:] - z[:-1, :-1]) ** 2 + (z[1:, :-1] - z[:-1, 1:]) ** 2)), (4, 4)
    ),
    "least squares": (lambda x: np.sum((np.sin(x[1:]) * x[:-1] - 1) ** 2), 6),
    "loop": (lambda x: np.sum(wl.fori_loop(0, 2, lambda i, s: s * np.roll(s, 1), x)), 6),
    "scan": (lambda x: wl.scan(lambda s, r: (s + r[0] * r[1], None), 0.0, x)[0], (4, 2)),
    "loop over elements": (lambda x: wl.fori_loop(1, 5, lambda i, s: s + np.sin(x[i] * x[i - 1]), 0.0), 6),
    "loop that writes": (lambda x: np.sum(wl.fori_loop(0, 4, lambda i, s: wl.at(s)[i].set(x[i] ** 2 * s[i]), x)), 5),
    "while": (lambda x: np.sum(wl.while_loop(lambda s: s[0] < 9, lambda s: s * s + 1, x)), 3),
    "gather": (lambda x: np.sum(x[[0, 2]] * x[[1, 1]]), 4),
    "a number": (lambda x: x**3, ()),
    "nothing": (lambda x: 1.0 + 0 * np.sum(x), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name):
    f, shape = HESSIANS[name]
    expected = somewhere(lambda x: dense_hessian(f, x), shape, 16)
    found = canonical(hessian_pattern(f, np.zeros(shape)))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found, found.T)
    x = np.random.default_rng(2).uniform(0.3, 1.7, shape)
    np.testing.assert_array_equal(canonical(hessian_pattern(f, x, local=True)), dense_hessian(f, x) != 0)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """Nothing is missed, at the program's arguments."""
    program, args = random_program(seed)
    numbers = [i for i, a in enumerate(args) if np.result_type(a).kind == "f"]
    point = tuple(args[i] for i in numbers)

    def f(*chosen):
        full = list(args)
        for i, x in zip(numbers, chosen, strict=True):
            full[i] = x
        return tuple(tree.leaves(program(*full)))

    def scalar(*chosen):
        return sum(np.sum(0.5 * np.sin(v) + v * v) for v in f(*chosen) if np.result_type(v).kind == "f")

    for g, pattern, dense in ((f, jacobian_pattern, dense_jacobian), (scalar, hessian_pattern, dense_hessian)):
        nonzero = dense(g, *point) != 0
        for local in (False, True):
            found = canonical(pattern(g, *point, local=local))
            assert found.shape == nonzero.shape and not np.any(nonzero & ~found), f"{program}\nlocal={local}"


# Large ones, and loops ------------------------------------------------------------------------------------------------


def test_convolution():
    """In the images and in the weights: 27 of each for a result."""
    pattern = jacobian_pattern(convolution, np.ones((28, 28, 3)), np.ones((3, 3, 3, 2)))
    assert pattern.shape == (1352, 2352 + 54)
    assert set(np.diff(pattern[:, :2352].indptr)) == set(np.diff(pattern[:, 2352:].indptr)) == {27}


def test_a_million_variables():
    n = 1_000_000
    x = np.broadcast_to(1.0, n)
    pattern = jacobian_pattern(lambda x: x[1:-1] * x[2:] - np.sin(x[:-2]), x)
    assert pattern.shape == (n - 2, n) and pattern.nnz == 3 * (n - 2)
    assert np.array_equal(pattern.indices.reshape(-1, 3), np.arange(n - 2)[:, None] + np.arange(3))
    hessian = hessian_pattern(lambda x: np.sum(100 * (x[1::2] - x[::2] ** 2) ** 2 + (1 - x[::2]) ** 2), x)
    assert hessian.nnz == 2 * n
    assert jacobian_pattern(lambda x: np.sum(np.exp(x - x.max()) / np.exp(x).sum()), x).nnz == n


def test_long_loops():
    n = 300
    step = lambda i, s: s + 0.1 * s * (np.pad(s, 1)[2:] - s)
    pattern = jacobian_pattern(lambda x: wl.fori_loop(0, 200, step, x), np.ones(n))
    expected = np.tri(n, n, 200, bool) & ~np.tri(n, n, -1, bool)
    np.testing.assert_array_equal(pattern.toarray(), expected)
    stacked = jacobian_pattern(lambda x: wl.scan(lambda s, _: (step(0, s), s[:2]), x, None, length=100)[1], np.ones(n))
    lengths = np.repeat(np.arange(1, 101), 2)
    np.testing.assert_array_equal(np.diff(stacked.indptr), lengths)
    shift = jacobian_pattern(lambda x: wl.fori_loop(0, 1001, lambda i, s: np.roll(s, 1), x), np.ones(7))
    np.testing.assert_array_equal(shift.toarray(), np.roll(np.eye(7, dtype=bool), 1001, axis=0))


def test_loops_of_unknown_length():
    """What can be read after any number of steps."""
    x = np.ones(6)
    chain = lambda x: wl.while_loop(lambda s: s[0] < 9, lambda s: np.concatenate([s[:1], s[1:] + s[:-1]]), x)
    np.testing.assert_array_equal(canonical(jacobian_pattern(chain, x)), np.tri(6, dtype=bool))
    ring = lambda x: wl.while_loop(lambda s: s[0] < 9, lambda s: s + np.roll(s, 2), x)
    expected = (np.arange(6)[:, None] - np.arange(6)) % 2 == 0
    np.testing.assert_array_equal(canonical(jacobian_pattern(ring, x)), expected)
    captured = lambda x, c: wl.while_loop(lambda s: s[0][0] < 9, lambda s: (s[0] * 2, s[1] + c[0], s[2] + 1), (x, x, 0))
    first, second, count = np.split(canonical(jacobian_pattern(captured, x, x)), [6, 12])
    np.testing.assert_array_equal(first, np.eye(6, 12, dtype=bool))
    np.testing.assert_array_equal(second, np.eye(6, 12, dtype=bool) | (np.arange(12) == 6))
    assert not count.any()
    counted = lambda x, n: wl.fori_loop(0, n, lambda i, s: s + np.roll(s, 1), x)
    assert canonical(jacobian_pattern(counted, x, 2))[:, :6].all()
    local = canonical(jacobian_pattern(counted, x, 2, local=True))[:, :6]
    np.testing.assert_array_equal(local, (np.arange(6)[:, None] - np.arange(6)) % 6 < 3)


# What is known, and what isn't ----------------------------------------------------------------------------------------


def test_values_that_are_not_known():
    """An integer argument is one: any element may be picked, along its axes only."""
    f = lambda x, i: x[i]
    pattern = canonical(jacobian_pattern(f, np.ones((2, 3)), np.array([0, 1])))
    rows, columns = np.divmod(np.arange(6), 3)[1], np.append(np.arange(6) % 3, [-1, -1])
    np.testing.assert_array_equal(pattern, rows[:, None] == columns)
    local = canonical(jacobian_pattern(f, np.ones((2, 3)), np.array([1, 1]), local=True))
    np.testing.assert_array_equal(local[:, :6], dense_jacobian(lambda x: x[[1, 1]], np.ones((2, 3))) != 0)
    g = lambda x, i: wl.at(np.zeros((2, 3)))[i].set(x)
    written = canonical(jacobian_pattern(g, np.ones(3), 1))
    np.testing.assert_array_equal(written[:, :3], np.tile(np.eye(3, dtype=bool), (2, 1)))
    assert not written[:, 3].any()


def test_keyword_arguments_are_constants():
    f = lambda x, mask: x * mask
    np.testing.assert_array_equal(jacobian_pattern(f, np.ones(2), mask=np.array([0.0, 1])).toarray(), np.diag([0, 1]))
    assert hessian_pattern(lambda x, mask: np.sum(x * x * mask), np.ones(2), mask=np.array([0.0, 1])).nnz == 1


def test_local_patterns_follow_python():
    def f(x):
        return x[:2] * x[2] if x[0] > 0 else x[1:]

    for sign in (1.0, -1.0):
        x = sign * np.ones(3)
        np.testing.assert_array_equal(jacobian_pattern(f, x, local=True).toarray(), dense_jacobian(f, x) != 0)
    with pytest.raises(wl.NoValueError, match=r"np\.where.*local=True"):
        jacobian_pattern(f, np.ones(3))
    g = lambda x: np.sum(x**2) if x[0] > 0 else x[0] * x[1]
    np.testing.assert_array_equal(hessian_pattern(g, np.ones(2), local=True).toarray(), np.eye(2, dtype=bool))
    with pytest.raises(wl.NoValueError, match=r"hessian_pattern local=True"):
        hessian_pattern(g, np.ones(2))
    masked = jacobian_pattern(lambda x: np.maximum(x, 0) * x[0], np.array([0.5, -1, 2]), local=True).toarray()
    np.testing.assert_array_equal(masked, [[1, 0, 0], [0, 0, 0], [1, 0, 1]])


def test_arguments_and_results_are_trees():
    f = lambda p, q: [p["b"] * q[0], p["a"].sum() + q[1]]
    args = {"a": np.ones(2), "b": np.ones(2)}, (np.float32(1), np.ones(1))
    expected = [[0, 0, 1, 0, 1, 0], [0, 0, 0, 1, 1, 0], [1, 1, 0, 0, 0, 1]]
    for local in (False, True):
        np.testing.assert_array_equal(canonical(jacobian_pattern(f, *args, local=local)), expected)
    g = lambda p, n, y: np.sum(p["a"] * p["b"]) * n + y**3
    expected = np.zeros((6, 6), bool)
    expected[[0, 1, 2, 3, 5], [2, 3, 0, 1, 5]] = True
    for local in (False, True):
        found = canonical(hessian_pattern(g, args[0], 2, np.float32(1.5), local=local))
        np.testing.assert_array_equal(found, expected)


def test_modules_are_not_written_to():
    @wl.register_mutable
    class Box:
        def __init__(self):
            self.w, self.n = np.ones(2), np.array(0.0)

    box = Box()

    def f(box, x):
        box.n = box.n + 1
        return box.w * x

    for local in (False, True):
        found = canonical(jacobian_pattern(f, box, np.ones(2), local=local))
        assert found.shape == (2, 5) and found.sum() == 4 and np.array_equal(found[:, -2:], np.eye(2, dtype=bool))
    assert box.n == 0


def test_complex_and_float32():
    z = np.array([1 + 1j, 2 - 1j])
    np.testing.assert_array_equal(jacobian_pattern(lambda z: np.abs(z) * z, z).toarray(), np.eye(2, dtype=bool))
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(jacobian_pattern(lambda x: np.imag(1j * x[::-1]), x).toarray(), np.eye(3)[::-1])
    assert jacobian_pattern(np.imag, x).nnz == 0


# Rules ----------------------------------------------------------------------------------------------------------------


def test_rules_of_the_user_decide():
    """Whatever the function itself reads."""

    @wl.custom_jvp
    def rounded(x, y):
        return np.round(x)

    @rounded.defjvp
    def rule(primals, tangents):
        return rounded(*primals), tangents[0] * np.array([1.0, 0, 1]) + tangents[1][::-1]

    @wl.custom_vjp
    def reversed_back(x, n):
        return (np.floor(x), n)

    reversed_back.defvjp(lambda x, n: (reversed_back(x, n), x), lambda x, ct: (ct[0][::-1] * x[1], None))
    x = np.ones(3)
    expected = np.hstack([np.diag([1, 0, 1]), np.eye(3)[::-1]]).astype(bool)
    for local in (False, True):
        found = canonical(jacobian_pattern(rounded, x, x, local=local))
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            canonical(jacobian_pattern(lambda y: rounded(x, y), x, local=local)), expected[:, 3:]
        )
        found = canonical(jacobian_pattern(lambda x: reversed_back(x, 2)[0] * x, x, local=local))
        np.testing.assert_array_equal(found, np.eye(3, dtype=bool) | np.eye(3, dtype=bool)[::-1])


def test_a_primitive_without_a_rule(monkeypatch):
    monkeypatch.setattr(registry["sin"], "pattern", None)
    monkeypatch.setattr(detection, "_warned", set())
    with pytest.warns(UserWarning, match=r"primitive sin has no pattern rule"):
        pattern = jacobian_pattern(lambda x: np.sin(x[:2]) * x[2], np.ones(4))
    np.testing.assert_array_equal(pattern.toarray(), np.tile([True, True, True, False], (2, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        jacobian_pattern(np.sin, np.ones(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jacobian_pattern(np.ones(3), np.ones(3)), "takes a function, not ndarray"),
        (lambda: hessian_pattern(3, np.ones(3)), "takes a function, not int"),
        (lambda: jacobian_pattern(np.sin), "arguments of f are needed"),
        (lambda: hessian_pattern(np.sum), "arguments of f are needed"),
        (lambda: jacobian_pattern(lambda x: "text", np.ones(3)), "returned str 'text'"),
        (lambda: jacobian_pattern(lambda x: "text", np.ones(3), local=True), "returned str 'text'"),
        (lambda: hessian_pattern(np.sin, np.ones(3)), r"single scalar result.*shape \(3,\).*jacobian_pattern"),
        (lambda: hessian_pattern(lambda x: (x[0], x[1]), np.ones(3)), "single scalar result"),
        (lambda: hessian_pattern(np.sum, np.arange(3)), "can't differentiate"),
        (lambda: jacobian_pattern(np.sin, "text"), "argument 0 of sin"),
    ],
)
def test_errors(call, message):
    with pytest.raises(TypeError, match=message):
        call()


# The sets themselves --------------------------------------------------------------------------------------------------


def random_matrix(rng, shape, density):
    return sp.csr_array(rng.random(shape) < density)


@pytest.mark.parametrize("density", [0.002, 0.03, 0.3, 1.0])
def test_unions(density):
    """Of sets of several tables: what a product of boolean matrices has."""
    rng = np.random.default_rng(0)
    size, columns = 300, 400
    terms, expected = [], np.zeros((size, columns), bool)
    for count in (50, 80):
        table = random_matrix(rng, (count, columns), density).toarray()
        table[:, 0] |= ~table.any(1)  # sets aren't empty
        rows, ids = rng.integers(size, size=500), rng.integers(-1, count, size=500)
        terms.append((rows, ids, sets.SetTable.of(sp.csr_array(table))))
        for row, number in zip(rows, ids, strict=True):
            if number >= 0:
                expected[row] |= table[number]
    found = sets.union(size, terms)
    np.testing.assert_array_equal(found.matrix().toarray(), expected)


def test_equal_unions_are_made_once_and_large_sets_absorb():
    n = 2000
    (x,) = sets.identity([n])
    whole = sets.union(1, [(np.zeros(n, int), x.index, x.table)])
    assert whole.table.csr.nnz == whole.entries() == n
    shared = sets.union(n, [(None, x.index, x.table), (None, np.zeros(n, int), whole.table)])
    assert shared.table.shape[0] == 1 and shared.entries() == n * n
    pairs = sets.union(n, [(None, x.index // 500, x.table), (None, 1 + x.index // 1000, x.table)])
    assert pairs.table.shape[0] == len(np.unique(pairs.index)) <= 4
    halves = np.arange(n) // 1000
    groups = sets.union(2, [(halves, x.index, x.table)])
    own = sets.union(n, [(None, x.index, x.table), (None, halves, groups.table)])
    assert own.table.shape[0] == 2


def test_matrix_products_are_factored():
    """Rows and columns have a set each, not every product of two elements."""
    x, w = np.ones((128, 784)), np.ones((784, 256))
    program = wl.trace(lambda w: np.sum(x @ w))(w)
    assert program_reads(program).nnz == w.size
    assert program_reads(program) is program_reads(program)
    mlp = lambda w1, w2: np.mean(np.tanh(np.tanh(x @ w1) @ w2) ** 2)
    assert jacobian_pattern(mlp, w, np.ones((256, 10))).nnz == w.size + 2560
