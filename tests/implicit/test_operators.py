"""Operators: products, adjoints, matrices and diagonals agree; they are trees; what doesn't fit is refused."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from linear_systems import KINDS, PATTERN, N, numbers, operator

import wonderland as wl
from wonderland.implicit import (
    Banded,
    Dense,
    Diagonal,
    LowRankUpdate,
    Sparse,
    Symmetric,
    Triangular,
    Tridiagonal,
    linear_solve,
)

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "complex128": 1e-12}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
def test_products_and_matrices_agree(kind, dtype):
    A, v = operator(kind, dtype), numbers(N, dtype, 1)
    dense = A.dense()
    close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[dtype])
    assert A.shape == dense.shape and A.dtype == dense.dtype == A.matvec(v).dtype == dtype
    close(A.matvec(v), dense @ v)
    close(A.diagonal(), np.diagonal(dense))
    close(A.transposed().dense(), dense.conj().T)
    close(A.transposed().matvec(v), dense.conj().T @ v)
    close(A.transposed().transposed().matvec(v), dense @ v)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_trees_with_derivatives(kind):
    make, shape = KINDS[kind]
    a, v, w = numbers(shape), numbers(N, seed=1), numbers(N, seed=2)
    leaves, structure = wl.tree_flatten(make(a))
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    np.testing.assert_array_equal(structure.unflatten(leaves).dense(), make(a).dense())
    by_product = wl.grad(lambda a: w @ make(a).matvec(v))(a)
    by_adjoint = wl.grad(lambda a: v @ make(a).transposed().matvec(w))(a)
    by_matrix = wl.grad(lambda a: w @ (make(a).dense() @ v))(a)
    np.testing.assert_allclose(by_product, by_matrix, atol=1e-12)
    np.testing.assert_allclose(by_adjoint, by_matrix, atol=1e-12)


def test_through_jit_and_vmap():
    operators = {kind: operator(kind) for kind in KINDS}
    v = numbers((3, N), seed=1)
    f = wl.jit(lambda operators, v: {kind: wl.vmap(A.matvec)(v) for kind, A in operators.items()})
    for kind, product in f(operators, v).items():
        np.testing.assert_allclose(product, v @ operators[kind].dense().T, atol=1e-12)
    stack = numbers((3, N, N))
    each = wl.vmap(lambda a, v: Symmetric(a).matvec(v))(stack, v)
    np.testing.assert_allclose(each, [Symmetric(a).dense() @ u for a, u in zip(stack, v, strict=True)], atol=1e-12)


def test_layouts():
    """The bands are SciPy's; what their corners hold isn't read; one triangle is read."""
    bands = numbers((4, 6)) + [[0], [0], [4], [0]]
    bands[0, :2] = bands[1, 0] = bands[3, -1] = np.nan
    b = numbers(6, seed=1)
    A = Banded(bands, 1, 2)
    np.testing.assert_allclose(
        np.linalg.solve(A.dense(), b), scipy.linalg.solve_banded((1, 2), np.nan_to_num(bands), b)
    )
    assert np.isfinite(A.matvec(b)).all() and np.isfinite(A.transposed().matvec(b)).all()
    a = numbers((4, 4))
    hidden = np.where(np.tri(4, dtype=bool), a, np.nan)
    assert np.isfinite(Symmetric(hidden).dense()).all() and np.isfinite(Triangular(hidden).matvec(b[:4])).all()
    np.testing.assert_array_equal(Tridiagonal([1, 2], [3, 4, 5], [6, 7]).dense(), [[3, 6, 0], [1, 4, 7], [0, 2, 5]])


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_data_in_the_order_of_the_matrix(form):
    matrix = PATTERN.asformat(form)
    order = np.random.default_rng(0).permutation(matrix.nnz)
    if form == "coo":
        matrix = sp.coo_array((matrix.data, (matrix.row[order], matrix.col[order])), shape=matrix.shape)
    data = numbers(matrix.nnz, seed=3)
    expected = matrix.copy()
    expected.data = data
    np.testing.assert_array_equal(Sparse(matrix, data=data).dense(), expected.toarray())
    np.testing.assert_array_equal(Sparse(expected).dense(), expected.toarray())


def test_equal_patterns_are_one():
    """A matrix that is made anew finds what was compiled for the last one."""
    traced = []

    @wl.jit
    def f(A, v):
        traced.append(A)
        return A.matvec(v)

    for seed in range(3):
        data = numbers(PATTERN.nnz, seed=seed)
        matrix = sp.csr_array((data, PATTERN.indices.copy(), PATTERN.indptr.copy()), shape=PATTERN.shape)
        np.testing.assert_allclose(f(Sparse(matrix), np.ones(N)), matrix @ np.ones(N), atol=1e-14)
    assert len(traced) == 1


def test_empty_systems():
    for A in (Dense(np.zeros((0, 0))), Diagonal(np.zeros(0)), Tridiagonal([], [], []), Banded(np.zeros((3, 0)), 1, 1)):
        assert A.shape == (0, 0) and A.dense().shape == (0, 0) and A.matvec(np.zeros(0)).shape == (0,)
    assert Tridiagonal([], [3.0], []).matvec(np.ones(1)) == 3


REFUSED = [
    (lambda: Dense(np.ones(3)), r"Dense: expected an array with 2 axes, got shape \(3,\)"),
    (lambda: Dense(np.ones((2, 3, 3))), "wl.vmap"),
    (lambda: Triangular(np.ones((2, 3))), r"square matrix, got shape \(2, 3\)"),
    (lambda: Banded(np.ones((3, 5)), 2, 1), r"bands of shape \(4, n\), got \(3, 5\)"),
    (lambda: Tridiagonal(np.ones(3), np.ones(3), np.ones(2)), r"\(n - 1,\), \(n,\) and \(n - 1,\)"),
    (lambda: LowRankUpdate(np.eye(3), np.ones((3, 1))), "the base must be an operator"),
    (lambda: LowRankUpdate(Diagonal(np.ones(3)), np.ones((2, 1))), r"got \(3, 3\), \(2, 1\)"),
    (lambda: linear_solve(lambda v: 2 * v + 1, np.ones(3)), "isn't linear: it makes 1.0 of zeros"),
    (lambda: Sparse(np.eye(3)), "scipy.sparse, got ndarray"),
    (lambda: Sparse(sp.eye_array(3).tocsr(), data=np.ones(4)), r"data of shape \(3,\)"),
    (lambda: Sparse(sp.eye_array(3).todia(), data=np.ones(3)), "got dia: use .tocsr"),
    (lambda: Sparse(sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2)), data=np.ones(2)), "without duplicates"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_does_not_fit_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(wl.ArgumentError, match=message):
        make()
