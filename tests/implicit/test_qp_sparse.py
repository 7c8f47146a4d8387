"""Programs with sparse matrices: those of the same dense ones, and of a size that dense ones don't have."""

import numpy as np
import pytest
import scipy.sparse as sparse

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.implicit import QPStatus, lp, qp


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


def test_failures_and_refusals(rng):
    Q, c, A, b, G, h, _ = program(rng)
    assert lp([1.0], sparse.csr_array([[1.0]]), [-1.0], lower=0, full=True).status == QPStatus.INFEASIBLE
    assert lp([-1.0], G=sparse.csr_matrix([[-1.0]]), h=[0.0], full=True).status == QPStatus.UNBOUNDED
    with pytest.raises(ArgumentError, match="outside of jit"):
        wl.jit(lambda c: qp(Q, c, A, b).x)(c)
    with pytest.raises(ArgumentError, match="no leading axes, got c"):
        qp(Q, np.stack([c, c]))
    with pytest.raises(ArgumentError, match="A is traced"):
        wl.grad(lambda A: qp(Q, c, A, b).value)(A.toarray())
    with pytest.raises(ArgumentError, match="G must be"):
        qp(Q, c, G=G[:, :5], h=h)
