"""Direct solvers against NumPy's dense ones, of A and of A'; singular matrices give NaN and raise nothing."""

import numpy as np
import pytest
import scipy.sparse as sp
from linear_systems import KINDS, PATTERN, N, numbers, operator

import wonderland as wl
from wonderland.implicit import (
    LU,
    QR,
    Banded,
    BandedLU,
    Cholesky,
    Dense,
    Diagonal,
    Division,
    Factorized,
    LeastSquares,
    LowRankUpdate,
    PositiveDefinite,
    Sparse,
    SparseLU,
    Substitution,
    Triangular,
    Tridiagonal,
    Woodbury,
    factorize,
    linear_solve,
    solve_with_report,
)
from wonderland.implicit.systems.sparse_systems import FACTORS, KeptFactors


def solvers_of(kind):
    general = [LU(), QR(), LeastSquares()] if kind in ("Dense", "Symmetric") else []
    return [operator(kind).default_solver(), *general, *([Cholesky()] if kind == "PositiveDefinite" else [])]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("kind", KINDS)
def test_solutions(kind, dtype):
    A, b = operator(kind, dtype), numbers(N, dtype, 1)
    dense = A.dense()
    for solver in solvers_of(kind):
        kept = solver.prepare(A)
        for transposed in (False, True):
            x = solver.solve(A, kept, b, transposed)
            expected = np.linalg.solve(dense.conj().T if transposed else dense, b)
            assert x.dtype == dtype
            np.testing.assert_allclose(x, expected, rtol=1e-4 if dtype == "float32" else 1e-10, err_msg=str(solver))


def test_a_complex_right_side_of_a_real_matrix():
    b = numbers(N, "complex128")
    for kind in KINDS:
        A = operator(kind)
        x, _ = solve_with_report(A, b)
        np.testing.assert_allclose(x, np.linalg.solve(A.dense(), b), atol=1e-12)


def test_batches_and_compiled_code():
    """Each solver under jit, with right-hand sides and with matrices in a batch."""

    def solve(kinds, a, b):
        out = {}
        for kind in kinds:
            A = KINDS[kind][0](a[kind])
            solver = A.default_solver()
            out[kind] = solver.solve(A, solver.prepare(A), b), solver.solve(A, solver.prepare(A), b, True)
        return out

    a = {kind: numbers((3, *shape)) for kind, (_, shape) in KINDS.items()}
    b = numbers((3, N), seed=1)
    both = lambda a, b: wl.vmap(lambda a, b: solve(KINDS, a, b))(a, b)
    right = lambda a, b: wl.vmap(lambda b: solve(KINDS, {k: v[0] for k, v in a.items()}, b))(b)
    for f, matrix in ((wl.jit(both), lambda i: i), (right, lambda i: 0)):
        for kind, (x, y) in f(a, b).items():
            for i in range(3):
                dense = KINDS[kind][0](a[kind][matrix(i)]).dense()
                np.testing.assert_allclose(x[i], np.linalg.solve(dense, b[i]), rtol=1e-8, err_msg=kind)
                np.testing.assert_allclose(y[i], np.linalg.solve(dense.T, b[i]), rtol=1e-8, err_msg=kind)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (3, 3)])
@pytest.mark.parametrize("solver", [QR(), LeastSquares()], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_least_squares_and_least_norm(solver, shape, dtype):
    a = numbers(shape, dtype)
    A, inverse = Dense(a), np.linalg.pinv(a)
    kept = solver.prepare(A)
    b, c = numbers(shape[0], dtype, 1), numbers(shape[1], dtype, 2)
    np.testing.assert_allclose(solver.solve(A, kept, b), inverse @ b, atol=1e-12)
    np.testing.assert_allclose(solver.solve(A, kept, c, True), inverse.conj().T @ c, atol=1e-12)


def test_least_squares_of_other_dtypes():
    """The common one: a complex matrix and a real right-hand side make a complex solution."""
    a, b = numbers((5, 3), np.complex128), numbers(5, seed=1)
    for shaped, right in ((a, b), (a.T, b[:3]), (a.real, b.astype(np.float32))):
        x = linear_solve(shaped, right)
        assert x.dtype == shaped.dtype
        np.testing.assert_allclose(x, np.linalg.pinv(shaped) @ right, rtol=1e-12)


def test_least_squares_of_nothing():
    for shape in ((3, 0), (0, 3), (0, 0)):
        for f in (linear_solve, wl.jit(linear_solve)):
            assert f(np.zeros(shape), np.ones(shape[0])).shape == shape[1:]
            assert f(np.zeros(shape), np.ones((shape[0], 2))).shape == (shape[1], 2)
    np.testing.assert_array_equal(linear_solve(np.zeros((0, 3)), np.ones(0)), np.zeros(3))


def test_any_rank():
    a = numbers((5, 2)) @ numbers((2, 4), seed=1)
    b = numbers(5, seed=2)
    np.testing.assert_allclose(solve_with_report(a, b)[0], np.linalg.pinv(a) @ b, atol=1e-12)
    a = np.diag([1.0, 1e-3])
    np.testing.assert_allclose(solve_with_report(a, np.ones(2), LeastSquares(rcond=1e-2))[0], [1, 0], atol=1e-12)


SINGULAR = np.diag([2.0, 0.0, 1.0])
FAILING = {
    "LU": Dense(SINGULAR),
    "Cholesky": PositiveDefinite(np.diag([1.0, -1, 1])),
    "triangle": Triangular(SINGULAR),
    "bands": Tridiagonal([0, 0], [2, 0, 1], [0, 0]),
    "wide bands": Banded(np.array([[0, 0, 0], [0, 0, 0], [2.0, 0, 1], [0, 0, 0]]), 1, 2),
    "sparse": Sparse(sp.csr_array(([1.0, 0, 1], [0, 1, 2], [0, 1, 2, 3]), shape=(3, 3))),
    "update": LowRankUpdate(Dense(SINGULAR), np.ones((3, 1))),
    "capacitance": LowRankUpdate(Diagonal(np.ones(3)), -np.eye(3)[:, :1], np.eye(3)[:, :1]),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.filterwarnings("error")
def test_singular_matrices_give_nan(name):
    x, report = solve_with_report(FAILING[name], np.ones(3))
    assert np.isnan(x).all() and report.status == 2
    leaves, structure = wl.tree_flatten(FAILING[name])
    x, report = solve_with_report(structure.unflatten([np.full_like(leaf, np.nan) for leaf in leaves]), np.ones(3))
    assert np.isnan(x).all() and report.status == 2


@pytest.mark.filterwarnings("error")
def test_what_fails_alone():
    x, _ = solve_with_report(Diagonal([1.0, 0, 2]), np.ones(3))
    np.testing.assert_array_equal(x, [1, np.nan, 0.5])
    x, _ = solve_with_report(SINGULAR, np.ones(3), QR())
    assert np.isnan(x).all()
    x, _ = solve_with_report(np.full((3, 2), np.nan), np.ones(3))
    assert np.isnan(x).all()
    stack = np.stack([SINGULAR, SINGULAR + np.eye(3)])
    for make in (Dense, PositiveDefinite, Triangular):
        x = wl.vmap(lambda a, make=make: solve_with_report(make(a), np.ones(3))[0])(stack)
        assert np.isnan(x[0]).all()
        np.testing.assert_allclose(x[1], [1 / 3, 1, 1 / 2])


def test_pivoting():
    """Zeros on the diagonals of regular matrices."""
    A = Tridiagonal([1.0, 2, 1], [0, 0, 0, 0], [1, 3, 1])
    np.testing.assert_allclose(A.matvec(solve_with_report(A, np.arange(4.0))[0]), np.arange(4.0), atol=1e-12)
    B = Sparse(sp.csr_array(A.dense()))
    np.testing.assert_allclose(B.matvec(solve_with_report(B, np.arange(4.0))[0]), np.arange(4.0), atol=1e-12)


def test_compiled_bands_exchange_rows():
    """Random bands, whose diagonals aren't dominant; more diagonals than there are rows; a singular one among them."""
    sizes = [(6, 1, 1), (7, 2, 1), (5, 0, 2), (9, 3, 0), (3, 3, 4), (1, 1, 1)]
    bands = [numbers((low + up + 1, n), seed=i) for i, (n, low, up) in enumerate(sizes)]
    right = [numbers(n, seed=9) for n, _, _ in sizes]

    @wl.jit
    def solve(bands, right):
        operators = [Banded(a, low, up) for a, (_, low, up) in zip(bands, sizes, strict=True)]
        return [BandedLU().solve(A, (), b) for A, b in zip(operators, right, strict=True)]

    for x, a, b, (_, low, up) in zip(solve(bands, right), bands, right, sizes, strict=True):
        np.testing.assert_allclose(x, np.linalg.solve(Banded(a, low, up).dense(), b), rtol=1e-9)
    assert not solve.inspect(bands, right).fallbacks
    bands[0] = bands[0] * [1, 1, 1, 0, 1, 1]
    x, *others = solve(bands, right)
    assert np.isnan(x).all() and np.isfinite(np.concatenate(others)).all()


def test_a_large_sparse_matrix_is_factorised_once():
    m = 60
    line = sp.diags_array([-1.0, 2.5, -1.2], offsets=[-1, 0, 1], shape=(m, m))
    matrix = sp.csr_array(sp.kronsum(line, line))
    A, b = Sparse(matrix), numbers(m * m)
    solver, before = SparseLU(), FACTORS.made
    x, y = solver.solve(A, (), b), solver.solve(A, (), b, True)
    assert FACTORS.made == before + 1
    np.testing.assert_allclose(matrix @ x, b, atol=1e-10)
    np.testing.assert_allclose(matrix.T @ y, b, atol=1e-10)
    both = wl.vmap(lambda b: solver.solve(A, (), b))(np.stack([b, 2 * b]))
    np.testing.assert_allclose(both, [x, 2 * x], rtol=1e-10)
    np.testing.assert_allclose(wl.jit(lambda A, b: solver.solve(A, (), b))(A, b), x, rtol=1e-12)
    assert FACTORS.made == before + 1
    solver.solve(Sparse(matrix * 2), (), b)
    assert FACTORS.made == before + 2


def test_factors_are_forgotten():
    """The oldest factors go where there is no room for others."""
    kept = KeptFactors(limit=1)
    first, *others = (Sparse(PATTERN, data=PATTERN.data + i) for i in range(4))
    for A in (first, first, *others):
        kept.of(A.data, A.pattern, None)
    assert kept.made == 4
    kept.of(others[-1].data, first.pattern, None)
    assert kept.made == 4
    kept.of(first.data, first.pattern, None)
    assert kept.made == 5


def test_factorized_is_a_tree():
    made = factorize(numbers((N, N)) + 4 * np.eye(N))
    b = numbers(N, seed=1)
    x = wl.jit(lambda made, b: solve_with_report(made, b)[0])(made, b)
    np.testing.assert_allclose(x, np.linalg.solve(made.A.dense(), b), rtol=1e-12)
    leaves, structure = wl.tree_flatten(made)
    again = structure.unflatten(leaves)
    assert isinstance(again, Factorized) and again.solver == LU() and again.shape == (N, N)


def test_defaults():
    found = {kind: operator(kind).default_solver() for kind in KINDS}
    assert found == {
        "Dense": LU(), "Diagonal": Division(), "Tridiagonal": BandedLU(), "Banded": BandedLU(),
        "lower": Substitution(), "unit upper": Substitution(), "Symmetric": LU(), "PositiveDefinite": Cholesky(),
        "LowRankUpdate": Woodbury(Division()), "nested update": Woodbury(Woodbury(BandedLU())),
        "Sparse": SparseLU(), "Sparse, transposed": SparseLU(),
    }  # fmt: skip


REFUSED = [
    (lambda: LU().prepare(Dense(np.ones((3, 2)))), "3 x 2: use QR"),
    (lambda: SparseLU().prepare(Dense(np.eye(2))), "Sparse operator"),
    (lambda: BandedLU().prepare(Dense(np.eye(2))), "Tridiagonal or a Banded"),
    (lambda: Division().prepare(Dense(np.eye(2))), "a Diagonal"),
    (lambda: Substitution().prepare(Dense(np.eye(2))), "a Triangular"),
    (lambda: Woodbury(LU()).prepare(Dense(np.eye(2))), "a LowRankUpdate"),
    (lambda: solve_with_report(np.eye(2), np.ones(3)), r"shape \(2,\).*got \(3,\)"),
    (lambda: factorize(np.eye(2), "lapack"), "no linear solver 'lapack'"),
    (lambda: factorize(np.eye(2), LU), "expected a linear solver such as"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_does_not_fit_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(wl.ArgumentError, match=message):
        call()
