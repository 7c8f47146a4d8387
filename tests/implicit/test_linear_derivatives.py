"""Derivatives of `linear_solve` for every operator and solver: those of np.linalg.solve of the dense matrix."""

import numpy as np
import pytest
import scipy.sparse as sp
from linear_systems import KINDS, PATTERN, N, numbers

import wonderland as wl
from wonderland.implicit import (
    CG,
    GMRES,
    LSMR,
    LU,
    MINRES,
    QR,
    BiCGStab,
    Cholesky,
    Dense,
    Diagonal,
    IncompleteLU,
    Jacobi,
    LeastSquares,
    Sparse,
    Triangular,
    factorize,
    linear_solve,
)
from wonderland.implicit.systems.sparse_systems import FACTORS

TIGHT = {"tol": 1e-14, "maxiter": 200}
ITERATIVE = [
    BiCGStab(**TIGHT), GMRES(**TIGHT), GMRES(**TIGHT, preconditioner=Jacobi()), LSMR(tol=1e-15, maxiter=200),
    GMRES(**TIGHT, preconditioner=lambda v: v / 4),
]  # fmt: skip
CASES = [(kind, "auto") for kind in KINDS]
CASES += [("Dense", solver) for solver in (LU(), QR(), *ITERATIVE)]
CASES += [("Symmetric", MINRES(**TIGHT)), ("Tridiagonal", GMRES(**TIGHT))]
CASES += [("PositiveDefinite", solver) for solver in (CG(**TIGHT), CG(**TIGHT, preconditioner=Jacobi()), Cholesky())]
CASES += [("Sparse", GMRES(**TIGHT, preconditioner=IncompleteLU())), ("Sparse", LU())]
IDS = [f"{kind}-{getattr(solver, 'preconditioner', None) and 'preconditioned '}{type(solver).__name__}"
       for kind, solver in CASES]  # fmt: skip


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("kind", "solver"), CASES, ids=IDS)
def test_first_and_second_order(kind, solver):
    make, shape = KINDS[kind]
    a, b, w = numbers(shape), numbers(N, seed=1), numbers(N, seed=2)
    da, db = numbers(shape, seed=3), numbers(N, seed=4)
    loss = lambda solve: lambda a, b: w @ np.sin(solve(make(a), b))
    ours = loss(lambda A, b: linear_solve(A, b, solver))
    dense = loss(lambda A, b: np.linalg.solve(A.dense(), b))
    close(ours(a, b), dense(a, b))
    expected = wl.grad(dense, argnums=(0, 1))(a, b)
    for actual, right in zip(wl.grad(ours, argnums=(0, 1))(a, b), expected, strict=True):
        close(actual, right)
    close(wl.jvp(ours, (a, b), (da, db))[1], wl.jvp(dense, (a, b), (da, db))[1])
    slope = lambda f: lambda a, b: np.sum(wl.grad(f)(a, b) * da)
    expected = wl.grad(slope(dense), argnums=(0, 1))(a, b)
    for actual, right in zip(wl.grad(slope(ours), argnums=(0, 1))(a, b), expected, strict=True):
        close(actual, right)


@pytest.mark.parametrize("solver", ["auto", CG(**TIGHT), GMRES(**TIGHT)], ids=["auto", "CG", "GMRES"])
def test_compiled_batches(solver):
    """The gradient in a batch of matrices, and of right-hand sides, in one compiled function."""
    kinds = KINDS if solver == "auto" else ["PositiveDefinite"]
    b, w = numbers((2, N), seed=1), numbers(N, seed=2)

    def gradients(solve):
        def f(stacks, b):
            out = {}
            for kind in kinds:
                loss = lambda a, b, make=KINDS[kind][0]: w @ np.sin(solve(make(a), b))
                out[kind] = (
                    wl.vmap(wl.grad(loss, argnums=(0, 1)))(stacks[kind], b),
                    wl.vmap(wl.grad(loss, argnums=(0, 1)), in_axes=(None, 0))(stacks[kind][0], b),
                )
            return out

        return f

    stacks = {kind: numbers((2, *KINDS[kind][1])) for kind in kinds}
    actual = wl.jit(gradients(lambda A, b: linear_solve(A, b, solver)))(stacks, b)
    expected = gradients(lambda A, b: np.linalg.solve(A.dense(), b))(stacks, b)
    for x, y in zip(wl.tree_leaves(actual), wl.tree_leaves(expected), strict=True):
        close(x, y)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
@pytest.mark.parametrize("solver", [QR(), LeastSquares(), LSMR(tol=1e-15, maxiter=100)], ids=["QR", "svd", "LSMR"])
def test_least_squares_and_least_norm(solver, shape):
    a, b, w = numbers(shape), numbers(shape[0], seed=1), numbers(shape[1], seed=2)
    ours = lambda a, b: w @ np.sin(linear_solve(a, b, solver))
    known = lambda a, b: w @ np.sin(np.linalg.pinv(a) @ b)
    for actual, right in zip(*(wl.grad(f, argnums=(0, 1))(a, b) for f in (ours, known)), strict=True):
        close(actual, right)
    slope = lambda f: wl.grad(lambda a: np.sum(wl.grad(f)(a, b) ** 2))(a)
    close(slope(ours), slope(known))


def test_sparse_data_is_factorised_once():
    """A Hessian in the numbers of a sparse matrix: one factorisation, counted; plain scipy.sparse matrices too."""
    make, w, b = KINDS["Sparse"][0], numbers(N, seed=2), numbers(N, seed=1)
    data = numbers(PATTERN.nnz, seed=20)
    before = FACTORS.made
    hessian = wl.hessian(lambda data: w @ linear_solve(make(data), b))(data)
    assert FACTORS.made == before + 1
    close(hessian, wl.hessian(lambda data: w @ np.linalg.solve(make(data).dense(), b))(data))
    matrix = sp.csr_array((make(data).data, PATTERN.indices, PATTERN.indptr), shape=PATTERN.shape)
    close(linear_solve(matrix, b), np.linalg.solve(matrix.toarray(), b))
    close(wl.grad(lambda b: w @ linear_solve(matrix, b))(b), np.linalg.solve(matrix.toarray().T, w))
    assert FACTORS.made == before + 1


def test_factors_of_the_user():
    a, b, w = numbers((N, N)) + 4 * np.eye(N), numbers(N, seed=1), numbers(N, seed=2)
    made = factorize(a)
    close(linear_solve(made, b), np.linalg.solve(a, b))
    close(wl.grad(lambda b: w @ linear_solve(made, b))(b), np.linalg.solve(a.T, w))
    inside = lambda a: (lambda made: w @ linear_solve(made, b) + w @ np.sin(linear_solve(made, 2 * b)))(factorize(a))
    plain = lambda a: w @ np.linalg.solve(a, b) + w @ np.sin(np.linalg.solve(a, 2 * b))
    close(wl.grad(inside)(a), wl.grad(plain)(a))
    close(wl.jit(wl.grad(inside))(a), wl.grad(plain)(a))
    close(wl.vmap(lambda b: linear_solve(made, b))(np.stack([b, w])), np.linalg.solve(a, np.stack([b, w]).T).T)


def test_factors_of_a_matrix_without_full_rank():
    """Its null space turns as well: the derivative is that of the pseudo-inverse."""
    (p, dp), (q, dq), b = numbers((2, 4)), numbers((2, 3), seed=1), numbers(4, seed=2)
    f = lambda t: linear_solve(factorize(np.outer(p + t * dp, q + t * dq), LeastSquares()), b)
    pinv = lambda t: np.outer(q + t * dq, p + t * dp) @ b / np.sum((p + t * dp) ** 2) / np.sum((q + t * dq) ** 2)
    for transform in (wl.jacobian, lambda f: wl.jit(wl.jacobian(f)), lambda f: wl.jacobian(wl.jacobian(f))):
        close(transform(f)(0.3), transform(pinv)(0.3))


def test_a_traced_preconditioner_has_no_derivative():
    """It changes how the solution is found, and not what it is; also where a function closes over it."""
    a, b = numbers((N, N)) + 4 * np.eye(N), numbers(N, seed=1)

    def given(d):
        return np.sum(linear_solve(a, b, GMRES(**TIGHT, preconditioner=Diagonal(d))))

    def closed(d):
        return np.sum(linear_solve(a, b, GMRES(**TIGHT, preconditioner=lambda v: v * d)))

    d = np.full(N, 0.3)
    for f in (given, closed):
        close(f(d), np.sum(np.linalg.solve(a, b)))
        assert not wl.grad(f)(d).any()
        close(wl.jit(f)(d), f(d))
        close(wl.vmap(f)(np.stack([d, 2 * d])), [f(d)] * 2)


def test_a_failure_stays_alone():
    """One singular element of a batch: NaN, the others exact; where its solution isn't used, its gradient is zero."""
    stack = np.stack([np.eye(3), np.zeros((3, 3)), 2 * np.eye(3)])
    used = np.array([True, False, True])
    for make in (Dense, Triangular):
        f = lambda a, make=make: np.sum(linear_solve(make(a), np.ones(3)))
        gradient = wl.vmap(wl.grad(f))(stack)
        assert np.isnan(gradient[1]).any()
        close(gradient[[0, 2]], [wl.grad(f)(stack[0]), wl.grad(f)(stack[2])])
        masked = wl.grad(lambda s, f=f: np.sum(np.where(used, wl.vmap(f)(s), 0.0)))(stack)
        assert not masked[1].any()
        close(masked[[0, 2]], gradient[[0, 2]])


def test_ten_thousand_unknowns():
    """Sparse and matrix-free: gradients in the numbers, against the closed adjoint."""
    n = 10_000
    lines = [np.full(n - 1, -1.0), np.full(n, 2.5), np.full(n - 1, -1.0)]
    matrix = sp.csr_array(sp.diags_array(lines, offsets=[-1, 0, 1]))
    b = numbers(n)

    def product(c):
        return lambda v: c * v - np.pad(v[1:], (0, 1)) - np.pad(v[:-1], (1, 0))

    free = wl.grad(lambda c: np.sum(linear_solve(product(c), b, CG(tol=1e-13)) ** 2))(2.5)
    places = Sparse(matrix)
    main = np.flatnonzero(np.equal(*places.pattern.places(False)))
    gradient = wl.grad(lambda data: np.sum(linear_solve(Sparse(matrix, data=data), b) ** 2))(places.data)
    np.testing.assert_allclose(free, np.sum(gradient[main]), rtol=1e-9)
    x = sp.linalg.spsolve(matrix.tocsc(), b)
    adjoint = sp.linalg.spsolve(matrix.T.tocsc(), 2 * x)
    rows, columns = places.pattern.places(False)
    np.testing.assert_allclose(gradient, -adjoint[rows] * x[columns], rtol=1e-8, atol=1e-10)
