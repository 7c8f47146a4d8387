"""Programs with sparse matrices: those of the same dense ones, and of a size that dense ones don't have."""

import numpy as np
import pytest
import scipy.sparse as sparse
from scipy.optimize import linprog

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.implicit import QPStatus, Sparse, lp, qp


def program(rng, n=30, m=4, p=20):
    A, G = (sparse.random_array((k, n), density=0.3, rng=rng, format="csr") for k in (m, p))
    x = rng.normal(size=n)
    Q = sparse.diags_array([np.full(n, 2.0), np.full(n - 1, -1.0)], offsets=[0, 1])  # its symmetric part counts
    return Q, rng.normal(size=n), A, A @ x, G, G @ x + 0.1 * rng.random(p), x - rng.random(n)


def test_values_and_derivatives_in_the_vectors_are_those_of_the_dense_program(rng):
    Q, c, A, b, G, h, lower = program(rng)
    ours = lambda c, b, h, lower: qp(Q, c, A, b, G, h, lower)
    theirs = lambda c, b, h, lower: qp(Q.toarray(), c, A.toarray(), b, G.toarray(), h, lower)
    vectors = c, b, h, lower
    for value, right in zip(ours(*vectors)[:6], theirs(*vectors)[:6], strict=True):
        np.testing.assert_allclose(value, right, atol=1e-8)
    number = lambda f: (
        lambda *v: np.sum(np.sin(f(*v).x)) + np.sum(f(*v).y ** 2) + np.sum(f(*v).z * f(*v).z) + f(*v).value
    )
    gradients = [wl.grad(number(f), (0, 1, 2, 3))(*vectors) for f in (ours, theirs)]
    for value, right in zip(*gradients, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-7, atol=1e-7)


def test_twenty_thousand_unknowns_in_a_chain():
    """Total variation's dual: differences of a step, bounded."""
    n = 20000
    D = sparse.diags_array([np.full(n, -1.0), np.ones(n)], offsets=[0, 1], shape=(n, n + 1), format="csr")
    y = np.where(np.arange(n + 1) < n // 2, 0.0, 1.0) + 0.1 * np.sin(np.arange(n + 1))
    found = qp(D @ D.T, -(D @ y), lower=-5.0, upper=5.0)
    x = y - D.T @ found.x
    assert found.residual < 1e-8 and np.sum(np.abs(np.diff(x)) > 1e-6) < 10


def test_one_sparse_row():
    row = sparse.csr_array(np.ones((1, 2)))
    np.testing.assert_allclose(lp(np.array([1.0, -1.0]), G=row, h=np.ones(1), lower=-1).x, [-1, 2])
    np.testing.assert_allclose(lp(np.array([1.0, -1.0]), row, np.ones(1), lower=-1).x, [-1, 2])


def number(found):
    return np.sum(np.sin(found.x)) + np.sum(found.y**2) + np.sum(found.z * found.z) + np.sum(found.lower**2)


@pytest.fixture(scope="module")
def both():
    """A function of the numbers of the matrices and of the vectors, by sparse and by dense programs; and these."""
    Q, c, A, b, G, h, lower = program(np.random.default_rng(0))
    Q = Q.tocsc()

    def ours(q, c, a, b, g, h, lower):
        return number(qp(Sparse(Q, q), c, Sparse(A, a), b, Sparse(G, g), h, lower))

    def dense(q, c, a, b, g, h, lower):
        return number(qp(Sparse(Q, q).dense(), c, Sparse(A, a).dense(), b, Sparse(G, g).dense(), h, lower))

    return ours, dense, (Q.data, c, A.data, b, G.data, h, lower)


@pytest.mark.parametrize("transformed", [lambda f: f, wl.jit], ids=["eager", "jit"])
def test_gradients_in_everything_are_those_of_the_dense_program(both, transformed):
    ours, dense, data = both
    everything = tuple(range(len(data)))
    expected = wl.grad(dense, everything)(*data)
    for value, right in zip(transformed(wl.grad(ours, everything))(*data), expected, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("transformed", [lambda f: f, wl.jit], ids=["eager", "jit"])
def test_batches_of_numbers(both, transformed, rng):
    ours, dense, data = both
    many = [np.stack([v, v * (1 + 0.01 * rng.random(v.shape))]) if i in (1, 2) else v for i, v in enumerate(data)]
    axes = tuple(0 if i in (1, 2) else None for i in range(len(data)))
    found = transformed(wl.vmap(wl.grad(ours, (0, 2)), axes))(*many)
    expected = wl.vmap(wl.grad(dense, (0, 2)), axes)(*many)
    for value, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-8, atol=1e-8)


def test_second_derivatives_in_the_numbers_of_a_matrix(both):
    ours, dense, (q, c, a, *rest) = both
    direction = np.cos(np.arange(len(a)))
    found, expected = (wl.hvp(lambda a, f=f: f(q, c, a, *rest), (a,), (direction,)) for f in (ours, dense))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_vectors_with_leading_axes(rng):
    Q, c, A, b, *_ = program(rng)
    found = qp(Q, np.stack([c, 2 * c]), A, b)
    np.testing.assert_allclose(found.x, [qp(Q, c, A, b).x, qp(Q, 2 * c, A, b).x], atol=1e-12)


def test_redundant_equations_of_a_large_transport_problem(rng):
    """One of its equations follows from the others; more than 1,000 unknowns, where nothing is made dense."""
    k = 35
    one, ones = sparse.eye_array(k), np.ones((1, k))
    A = sparse.vstack([sparse.kron(one, ones), sparse.kron(ones, one)])
    right = np.concatenate([v / v.sum() for v in rng.random((2, k))])
    costs = rng.random(k * k)
    found = lp(costs, A, right, lower=0)
    expected = linprog(costs, A_eq=A, b_eq=right)
    assert abs(found.value - expected.fun) < 1e-10 and not found.degenerate
    np.testing.assert_allclose(wl.grad(lambda c: lp(c, A, right, lower=0).value)(costs), found.x, atol=1e-12)
    move = np.zeros(2 * k)
    move[:2] = 1, -1
    _, moved = wl.jvp(lambda right: lp(costs, A, right, lower=0).x, (right,), (move,))
    np.testing.assert_allclose(A @ moved, move, atol=1e-12)


def test_no_convex_program_and_dependent_equations(rng):
    Q, c, A, b, G, h, lower = program(rng)
    assert qp(sparse.diags_array([1.0, -1.0]), np.zeros(2), lower=-1, upper=1, full=True).status == QPStatus.NOT_CONVEX
    twice = sparse.vstack([A, A[:2]]).tocsr()
    found = qp(Q, c, twice, np.concatenate([b, b[:2]]), G, h, lower)
    np.testing.assert_allclose(found.x, qp(Q, c, A, b, G, h, lower).x, atol=1e-10)
    assert not found.degenerate
    status = qp(Q, c, twice, np.concatenate([b, b[:2] + 1]), G, h, lower, full=True).status
    assert status == QPStatus.INFEASIBLE


def test_dense_matrices_beside_a_sparse_one(rng):
    Q, c, A, b, *_ = program(rng)
    f, g = (lambda A, Q=Q: np.sum(qp(Q, c, A, b).x ** 2) for Q in (Q, Q.toarray()))
    np.testing.assert_allclose(wl.grad(f)(A.toarray()), wl.grad(g)(A.toarray()), rtol=1e-8, atol=1e-9)


def test_failures_and_refusals(rng):
    Q, c, A, b, G, h, _ = program(rng)
    assert lp([1.0], sparse.csr_array([[1.0]]), [-1.0], lower=0, full=True).status == QPStatus.INFEASIBLE
    assert lp([-1.0], G=sparse.csr_matrix([[-1.0]]), h=[0.0], full=True).status == QPStatus.UNBOUNDED
    with pytest.raises(wl.CheckError, match="no x satisfies"):
        wl.jit(lambda b: lp([1.0], sparse.csr_array([[1.0]]), b, lower=0).x)(np.array([-1.0]))
    with pytest.raises(ArgumentError, match=r"A has shape .*Map over others"):
        qp(Q, c, np.stack([A.toarray()] * 2), b)
    with pytest.raises(ArgumentError, match="G must be"):
        qp(Q, c, G=G[:, :5], h=h)
    with pytest.raises(ArgumentError, match="b was given without A"):
        qp(Q, c, b=b)


def test_nan_in_a_matrix_is_said(rng):
    Q, c, A, b, G, h, _ = program(rng)
    for data in ((Q * np.nan, c, A, b, G, h), (Q, c, A * np.inf, b, G, h), (Q, c, A, b, G * np.nan, h)):
        assert qp(*data, full=True).status == QPStatus.NOT_FINITE
        with pytest.raises(wl.CheckError, match="the data have NaN"):
            qp(*data)
    some = np.ones((3, Q.tocsr().nnz))
    some[1, 0] = np.nan
    found = wl.jit(wl.vmap(lambda data: qp(Sparse(Q.tocsr(), data), c, A, b, full=True)))(some)
    assert [*found.status] == [QPStatus.SOLVED, QPStatus.NOT_FINITE, QPStatus.SOLVED]
    assert np.isnan(found.x[1]).all() and np.isfinite(found.x[::2]).all()


def test_what_is_absent_has_no_dtype():
    Q, A, zero = sparse.eye_array(3, dtype=np.float32), sparse.csr_array(np.ones((1, 3), np.float32)), np.float32(0)
    c, b = np.ones(3, np.float32), np.ones(1, np.float32)
    assert qp(Q, c).x.dtype == qp(Q, c, A, b).value.dtype == lp(c, A, b, lower=zero).x.dtype == np.float32
    assert qp(Q, c, A.astype(float), b).x.dtype == lp(np.ones(3, int), A.astype(int), [1], lower=0).x.dtype == float


def test_no_unknowns():
    none = sparse.csr_array((0, 0))
    assert qp(none, np.zeros(0)).x.shape == (0,)
    assert lp(np.zeros(0), sparse.csr_array((1, 0)), np.ones(1), full=True).status == QPStatus.INFEASIBLE


def test_redundant_equations_have_multiplier_zero(rng):
    """Which of them are dropped is the elimination's choice; the derivative of y is that of y."""
    Q, c, A, *_ = program(rng, m=6)
    A = sparse.vstack([A, A[[0]] + A[[1]], A[[2]] - 2 * A[[3]], A[[5]]]).tocsr()
    b = A @ rng.normal(size=30)
    found = qp(Q, c, A, b, lower=-5.0)
    assert np.sum(found.y == 0) == 3 and not found.degenerate and found.residual < 1e-12
    Qs = (Q + Q.T).toarray() / 2
    np.testing.assert_allclose(Qs @ found.x + c - A.T @ found.y - found.lower, 0, atol=1e-10)
    y = lambda c: qp(Q, c, A, b, lower=-5.0).y
    d = rng.normal(size=30)
    np.testing.assert_allclose(wl.jvp(y, (c,), (d,))[1], (y(c + 1e-5 * d) - y(c - 1e-5 * d)) / 2e-5, atol=1e-7)


def test_more_wrong_arguments(rng):
    Q, c, A, b, *_ = program(rng)
    for call, message in (
        (lambda: qp(Q, sparse.csr_array(c[None]), A, b), "c is a vector, and can't be sparse"),
        (lambda: qp(Q, c, A, sparse.csr_array(b[None])), "b is a vector, and can't be sparse"),
        (lambda: qp(Q, c, A, b, maxiter=1.5), "qp: maxiter must be a whole number, at least 0, got 1.5"),
        (lambda: lp(c, A, b, lower=0, maxiter=None), "lp: maxiter must be a whole number, at least 0, got None"),
        (lambda: qp(Q, c, A, b, tol=None), "qp: tol must be a positive number, got None"),
        (lambda: qp(Q, c, A, b, tol="small"), "qp: tol must be a positive number, got 'small'"),
        (lambda: wl.implicit.CG(maxiter=1.5), "CG: maxiter must be a whole number, at least 0, got 1.5"),
        (lambda: wl.implicit.CG(tol="small"), "CG: tol must be a number, got 'small'"),
        (lambda: wl.implicit.GMRES(restart=0), "GMRES: restart must be a whole number, at least 1, got 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()
