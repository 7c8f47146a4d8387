"""Matrices in compiled code: small ones by our own kernels, several at once, larger ones by LAPACK; against NumPy.

What is compared is a residual or NumPy's result; nothing of it may be evaluated by NumPy (`fallbacks`).
"""

import numpy as np
import pytest
import scipy.linalg

import wonderland as wl
from wonderland.ops import factors
from wonderland.scipy import linalg as wsl
from wonderland.testing import check_grads

lu, lu_solve, cholesky_or_nan = (wl.as_function(getattr(factors, n)) for n in ("lu", "lu_solve", "cholesky_or_nan"))
STACKS = [(), (1,), (3,), (7,), (2, 3)]
SIZES = [1, 2, 3, 5, 8, 31, 33, 50]
# Each size with one stack alone, and each stack with a few sizes, as compiling all pairs takes long.
PAIRS = [(n, STACKS[i % len(STACKS)]) for i, n in enumerate(SIZES)] + [(n, s) for n in (2, 7) for s in STACKS]
PAIRS = [*dict.fromkeys(PAIRS), (4, (100,)), (100, ()), (32, (3,)), (16, (9,))]
ALL = pytest.mark.parametrize(("n", "stack"), PAIRS, ids=str)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def transposed(x):
    return np.swapaxes(x, -1, -2)


def matrices(n, stack, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, n, *stack])
    return rng.standard_normal((*stack, n, n)).astype(dtype)


def native(f, *args):
    """What compiled code gives, of which NumPy evaluates nothing."""
    jitted = wl.jit(f)
    assert jitted.inspect(*args).fallbacks == ()
    return jitted(*args)


def assert_near(actual, expected, dtype, scale=1.0):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=200 * scale * np.finfo(dtype).eps)


@ALL
@DTYPES
def test_systems_and_factors(n, stack, dtype):
    a = matrices(n, stack, dtype) + 2 * np.sqrt(n).astype(dtype) * np.eye(n, dtype=dtype)[::-1]  # rows change places
    b = matrices(n, stack, dtype, seed=1)[..., : 1 + n % 2]

    def f(a, b):
        both, places = lu(a)
        kept = [lu_solve(both, places, b, adjoint=adjoint) for adjoint in (False, True)]
        return np.linalg.solve(a, b), both, places, kept, np.linalg.det(a), np.linalg.slogdet(a)

    x, both, places, (y, z), det, (sign, log) = native(f, a, b)
    assert_near(a @ x, b, dtype, n)
    assert_near(a @ y, b, dtype, n)
    assert_near(transposed(a) @ z, b, dtype, n)
    assert places.dtype == np.int64 and both.dtype == x.dtype == det.dtype == dtype
    low, up = np.tril(both, -1) + np.eye(n), np.triu(both)
    assert_near(low @ up, np.take_along_axis(a, places[..., None], -2), dtype, n)
    assert np.max(np.abs(low)) <= 1.0
    expected = np.linalg.slogdet(a.astype(np.float64))
    np.testing.assert_array_equal(sign, expected[0])
    assert_near(log, expected[1], dtype, n)
    # A determinant is as large as it is: compare by factors.
    if n <= 32:
        assert_near(det / (expected[0] * np.exp(expected[1])), 1.0, dtype, n)


@ALL
def test_cholesky_and_eigenvectors(n, stack):
    a = matrices(n, stack)
    a = a @ transposed(a) + np.eye(n)
    garbage = np.triu(np.full(a.shape, 1e30), 1)  # one triangle is read

    def f(a, upper):
        return np.linalg.cholesky(a), cholesky_or_nan(a), np.linalg.eigh(a), np.linalg.eigh(upper, "U")

    low, same, *pairs = native(f, np.tril(a) + garbage, np.triu(a) + transposed(garbage))
    np.testing.assert_array_equal(low, same)
    assert_near(low, np.linalg.cholesky(a), np.float64, n)
    for values, vectors in pairs:
        assert np.all(np.diff(values) >= 0)
        assert_near(values, np.linalg.eigvalsh(a), np.float64, n * n)
        assert_near(vectors @ (values[..., None] * transposed(vectors)), a, np.float64, n * n)
        assert_near(transposed(vectors) @ vectors, np.broadcast_to(np.eye(n), a.shape), np.float64, n)


@pytest.mark.parametrize(("shape", "mode"), [
    ((2, 2), "reduced"), ((3, 5), "reduced"), ((5, 3), "reduced"), ((5, 3), "complete"), ((9, 4, 4), "complete"),
    ((2, 3, 8, 6), "complete"), ((40, 30), "reduced"), ((2, 40, 30), "complete"), ((30, 40), "reduced"),
    ((1, 1), "reduced"),
])  # fmt: skip
@DTYPES
def test_orthogonal_factors_have_the_signs_of_lapack(shape, mode, dtype):
    a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    q, r = native(lambda a: tuple(np.linalg.qr(a, mode)), a)
    expected = np.linalg.qr(a, mode)
    assert_near(q, expected[0], dtype, 10)
    assert_near(r, expected[1], dtype, 10)


def test_orthogonal_factors_at_the_ends_of_the_range():
    a = np.array([[3.0, 1.0], [4.0, 2.0]])
    f = wl.jit(lambda a: tuple(np.linalg.qr(a)))
    for scale in (1e200, 1e-200):
        q, r = f(a * scale)
        np.testing.assert_allclose(q, np.linalg.qr(a)[0], rtol=1e-14)
        np.testing.assert_allclose(r / scale, np.linalg.qr(a)[1], rtol=1e-13, atol=1e-14)
    zero = np.array([[0.0, 1.0], [0.0, 2.0]])  # a column that needs no reflection
    for actual, expected in zip(f(zero), np.linalg.qr(zero), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-15)


def test_eigenvectors_at_the_ends_of_the_range_and_of_equal_values():
    f = wl.jit(lambda a: tuple(np.linalg.eigh(a)))
    a = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    for scale in (1.0, 1e300, 1e-300):
        np.testing.assert_allclose(f(a * scale)[0] / scale, np.linalg.eigh(a)[0], rtol=1e-13)
    values, vectors = f(np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    np.testing.assert_allclose(values, [-1.0, -1.0, 2.0], atol=1e-14)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-14)
    np.testing.assert_array_equal(f(np.eye(3))[1], np.eye(3))


def test_views_and_broadcast_operands():
    whole = matrices(6, (4, 5))
    rng = np.random.default_rng(2)
    cases = [
        (transposed(whole)[::2, ::-1, 1::2, ::2], rng.standard_normal((2, 5, 3, 2))),
        (whole[0, :, :3, :3], np.broadcast_to(rng.standard_normal((3, 1)), (5, 3, 1))),
        (np.broadcast_to(whole[0, 0], (5, 6, 6)), transposed(rng.standard_normal((5, 2, 6)))),
    ]
    for a, b in cases:
        np.testing.assert_allclose(a @ native(np.linalg.solve, a, b), b, atol=1e-10)
    f = lambda a, b: np.linalg.solve(a.transpose(0, 2, 1)[:, ::-1], np.exp(b)[None])  # views inside
    a, b = whole[0], rng.standard_normal((6, 2))
    np.testing.assert_allclose(native(f, a, b), f(a, b), rtol=1e-9)


def test_ill_conditioned_systems_are_solved_backwards_stably():
    for n in (5, 8, 12, 40):
        a, b = scipy.linalg.hilbert(n), np.ones((n, 1))
        x = native(np.linalg.solve, a, b)
        size = np.linalg.norm(a) * np.linalg.norm(x) + np.linalg.norm(b)
        assert np.linalg.norm(a @ x - b) <= 10 * n * np.finfo(float).eps * size
        stack = np.broadcast_to(a, (3, n, n))
        y = native(np.linalg.solve, stack, np.ones((3, n, 1)))
        assert np.max(np.abs(a @ y - b)) <= 10 * n * np.finfo(float).eps * size


@pytest.mark.parametrize("n", [2, 6, 40])
def test_one_bad_matrix_of_a_stack(n):
    """It is named where an error is wanted; otherwise it is NaN, and the others are what they are without it."""
    a, b = matrices(n, (2, 4)), np.ones((2, 4, n, 1))
    broken = a.copy()
    broken[1, 2] = np.ones((n, n))
    solve = wl.jit(np.linalg.solve)
    with pytest.raises(np.linalg.LinAlgError, match=r"Singular matrix, number \(1, 2\) of the stack"):
        solve(broken, b)
    with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix$"):
        solve(broken[1, 2], b[1, 2])
    keep = wl.jit(lambda a, b: lu_solve(*lu(a), b, adjoint=False))
    fine, x = keep(a, b), keep(broken, b)
    assert np.all(np.isnan(x[1, 2]))
    others = np.arange(8).reshape(2, 4) != 6
    np.testing.assert_array_equal(x[others], fine[others])

    definite = a @ transposed(a) + np.eye(n)
    broken = definite.copy()
    broken[0, 3, -1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match=r"Matrix is not positive definite, number \(0, 3\) of the stack"):
        wl.jit(np.linalg.cholesky)(broken)
    factor = wl.jit(cholesky_or_nan)
    fine, low = factor(definite), factor(broken)
    assert np.all(np.isnan(low[0, 3]))
    others = np.arange(8).reshape(2, 4) != 3
    np.testing.assert_array_equal(low[others], fine[others])


def test_nan_stays_in_its_matrix():
    a, b = matrices(3, (5,)), np.ones((5, 3, 1))
    broken = a.copy()
    broken[2, 1, 0] = np.nan
    f = wl.jit(lambda a, b: (np.linalg.solve(a, b), np.linalg.det(a), *np.linalg.eigh(a), *np.linalg.qr(a)))
    others = np.arange(5) != 2
    for fine, found in zip(f(a, b), f(broken, b), strict=True):
        assert np.any(np.isnan(found[2]))
        np.testing.assert_array_equal(found[others], fine[others])


def test_a_permutation_that_is_none_reads_no_other_memory():
    for n in (3, 40):
        both, b = np.eye(n), np.arange(float(n))[:, None]
        x = wl.jit(lambda both, p, b: lu_solve(both, p, b, adjoint=False))(both, np.full(n, 10**12), b)
        np.testing.assert_array_equal(x, np.full((n, 1), n - 1.0))


def test_empty_stacks_and_matrices():
    f = lambda a, b: (np.linalg.solve(a, b), np.linalg.det(a), *np.linalg.slogdet(a), *np.linalg.qr(a), *lu(a),
                      *np.linalg.eigh(a), np.linalg.cholesky(a))  # fmt: skip
    for shape in ((0, 3, 3), (2, 0, 0), (0, 0)):
        a, b = np.zeros(shape), np.zeros((*shape[:-1], 2))
        for actual, expected in zip(native(f, a, b), f(a, b), strict=True):
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)


def test_inside_loops():
    """Newton's method for x' a x = 1 and a line, as a loop of compiled code; and a filter's matrices along a scan."""

    def newton(a):
        def step(_, x):
            jacobian = np.stack([(a + a.T) @ x, np.array([1.0, -2.0])])
            residual = np.stack([x @ a @ x - 1.0, x[0] - 2.0 * x[1]])
            return x - lu_solve(*lu(jacobian), residual[:, None], adjoint=False)[:, 0]

        return wl.fori_loop(0, 8, step, np.ones(2))

    a = np.array([[2.0, 0.3], [0.3, 1.0]])
    x = native(newton, a)
    np.testing.assert_allclose([x @ a @ x, x[0] - 2 * x[1]], [1.0, 0.0], atol=1e-14)

    def filtered(a, bs):
        return wl.scan(lambda s, b: (np.linalg.solve(a + s, b), np.linalg.cholesky(s @ s.T + a)), np.eye(3), bs)

    a, bs = np.eye(3) * 4.0, matrices(3, (6,))
    for actual, expected in zip(native(filtered, a, bs), filtered(a, bs), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-13)


def test_derivatives_are_native_too():
    a, b = matrices(3, (2,)) + 3 * np.eye(3), np.ones((2, 3, 1))

    def f(a, b):
        both, places = lu(a)
        low = np.linalg.cholesky(a @ transposed(a))
        q, r = np.linalg.qr(a)
        values, _ = np.linalg.eigh(a + transposed(a))
        x = np.linalg.solve(a, b) + lu_solve(both, places, b, adjoint=True)
        return np.sum(x**2) + np.sum(low * r) + np.sum(q**3) + np.sum(values**3) + np.sum(np.linalg.slogdet(a)[1])

    check_grads(f, (a, b))
    for actual, expected in zip(native(wl.grad(f, (0, 1)), a, b), wl.grad(f, (0, 1))(a, b), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_vmap_of_a_system_and_many_right_hand_sides():
    a, b = matrices(4, ()), matrices(4, (40,))[..., 0]
    x = native(wl.vmap(np.linalg.solve, in_axes=(None, 0)), a, b)  # one matrix, 40 columns
    np.testing.assert_allclose(x @ a.T, b, atol=1e-12)
    x = native(wl.vmap(np.linalg.solve), matrices(4, (40,)), b)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", matrices(4, (40,)), x), b, atol=1e-11)


def test_scipys_factors_inside_and_outside_of_compiled_code():
    """The pivots are LAPACK's: what compiled code returns, SciPy understands, and the other way round."""
    a, b = matrices(6, ()), np.ones(6)
    factor = wl.jit(wsl.lu_factor)
    assert factor.inspect(a).fallbacks == ()
    both, pivots = factor(a)
    expected = scipy.linalg.lu_factor(a)
    np.testing.assert_allclose(both, expected[0], atol=1e-13)
    np.testing.assert_array_equal(pivots, expected[1])
    assert pivots.dtype == expected[1].dtype
    np.testing.assert_allclose(a @ scipy.linalg.lu_solve((both, pivots), b), b, atol=1e-12)
    for trans, matrix in ((0, a), (1, a.T)):
        x = native(lambda both, pivots, b, t=trans: wsl.lu_solve((both, pivots), b, t), *expected, b)
        np.testing.assert_allclose(matrix @ x, b, atol=1e-12)
    f = lambda a: np.sum(wsl.lu_solve(wsl.lu_factor(a), b) ** 2)
    np.testing.assert_allclose(
        native(wl.grad(f), a), wl.grad(lambda a: np.sum(np.linalg.solve(a, b) ** 2))(a), rtol=1e-9
    )
