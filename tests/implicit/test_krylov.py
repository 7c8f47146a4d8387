"""Iterative solvers against SciPy's: iterations and accuracy; failures are told; each element of a batch by itself."""

import gc
import weakref

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as theirs
from linear_systems import numbers

import wonderland as wl
from wonderland.implicit import (
    CG,
    GMRES,
    LSMR,
    MINRES,
    BiCGStab,
    Dense,
    Diagonal,
    IncompleteLU,
    Jacobi,
    Sparse,
    Status,
    factorize,
    linear_solve,
    solve_with_report,
)
from wonderland.implicit.systems.operators import Operator

SQUARE = [CG, MINRES, BiCGStab, GMRES]


def poisson(m):
    """Five-point stencil on m x m points."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    return sp.csr_array(sp.kronsum(line, line))


def convection(m):
    """The same with a wind, not symmetric."""
    return sp.csr_array(poisson(m) + sp.diags_array([0.6, -0.6], offsets=[1, -1], shape=(m * m, m * m)))


def indefinite(m):
    return sp.csr_array(poisson(m) - 0.7 * sp.eye_array(m * m))


def their_iterations(solver, matrix, b, tol):
    count = [0]
    extra = {"restart": 30, "callback_type": "pr_norm"} if solver is GMRES else {}

    def each(_):
        count[0] += 1

    call = {CG: theirs.cg, MINRES: theirs.minres, BiCGStab: theirs.bicgstab, GMRES: theirs.gmres}[solver]
    call(matrix, b, rtol=tol, maxiter=1000, callback=each, **extra)
    return count[0]


FITTING = [(solver, poisson) for solver in SQUARE] + [(MINRES, indefinite), (BiCGStab, indefinite), (GMRES, indefinite)]


@pytest.mark.parametrize(("solver", "make"), [*FITTING, (BiCGStab, convection), (GMRES, convection)])
def test_iterations_and_accuracy(solver, make):
    matrix, b = make(12), numbers(144)
    x, report = solve_with_report(matrix, b, solver(tol=1e-9))
    assert Status(int(report.status)) is Status.CONVERGED
    residual = np.linalg.norm(b - matrix @ x)
    assert residual <= 1e-9 * np.linalg.norm(b)
    np.testing.assert_allclose(report.residual, residual, rtol=1e-3)
    expected = their_iterations(solver, matrix, b, 1e-9)
    slack = (
        0.25 if solver is MINRES else 0.15
    )  # SciPy's MINRES stops by another norm, BiCGStab is sensitive to rounding
    assert abs(report.iterations - expected) <= 3 + slack * expected


def test_compiled_and_eager_take_the_same_steps():
    A, b = Sparse(convection(8)), numbers(64)
    symmetric = Sparse(poisson(8))
    for solver in (*SQUARE, LSMR):
        operator = symmetric if solver in (CG, MINRES) else A
        x, report = solve_with_report(operator, b, solver())
        y, other = wl.jit(lambda A, b, solver=solver: solve_with_report(A, b, solver()))(operator, b)
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-9)
        assert abs(report.iterations - other.iterations) <= 2 and report.status == other.status == 0


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("solver", [*SQUARE, LSMR])
def test_dtypes(solver, dtype):
    a = numbers((8, 8), dtype)
    a = a @ a.conj().T + 3 * np.eye(8, dtype=dtype) if solver in (CG, MINRES) else a + 4 * np.eye(8, dtype=dtype)
    b = numbers(8, dtype, 1)
    solve = solver(tol=1e-6 if np.finfo(dtype).eps > 1e-10 else 1e-13)
    for transposed in (False, True):
        x = solve.solve(Dense(a), (), b, transposed)
        assert x.dtype == dtype
        expected = np.linalg.solve(a.conj().T if transposed else a, b)
        np.testing.assert_allclose(x, expected, rtol=0, atol=2e-5 if np.finfo(dtype).eps > 1e-10 else 1e-11)


def test_ill_conditioned():
    """Condition number 1e8: short recurrences lose it and are started again; status 0 is the true residual's."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    a = (q * np.geomspace(1e-8, 1, 60)) @ q.T
    b = a @ rng.normal(size=60)
    for solver in (CG(tol=1e-12, maxiter=5000), MINRES(tol=1e-12, maxiter=5000), GMRES(tol=1e-12, restart=60)):
        x, report = solve_with_report((a + a.T) / 2, b, solver)
        assert report.status == 0
        assert np.linalg.norm((a + a.T) / 2 @ x - b) <= 1e-12 * np.linalg.norm(b)
    hilbert = scipy.linalg.hilbert(10) + 1e-6 * np.eye(10)
    for solver in (*SQUARE, LSMR):
        x, report = solve_with_report(hilbert, np.ones(10), solver(tol=1e-11))
        assert report.status == 0
        np.testing.assert_allclose(x, np.linalg.solve(hilbert, np.ones(10)), rtol=1e-3)


class Laplacian(Operator):
    """Second differences on a line, matrix-free, plus a constant."""

    leaves = ("shift",)
    static = ("n",)
    dtype = np.dtype(float)

    def __init__(self, shift, n):
        self.shift, self.n = shift, n

    @property
    def shape(self):
        return self.n, self.n

    def matvec(self, v):
        return (2 + self.shift) * v - np.pad(v[1:], (0, 1)) - np.pad(v[:-1], (1, 0))

    def transposed(self):
        return self


@pytest.mark.parametrize("solver", [*SQUARE, LSMR])
def test_ten_thousand_unknowns_without_a_matrix(solver):
    n = 10_000
    b = numbers(n)
    x, report = solve_with_report(Laplacian(np.float64(0.5), n), b, solver(tol=1e-12))
    bands = np.stack([np.full(n, -1.0), np.full(n, 2.5), np.full(n, -1.0)])
    assert report.status == 0 and report.iterations < 150
    np.testing.assert_allclose(x, scipy.linalg.solve_banded((1, 1), bands, b), atol=1e-10)


def test_preconditioners():
    """Fewer iterations; of A' the adjoint of the preconditioner is meant; all ways to give one."""
    scale = np.geomspace(1, 1e3, 36)
    matrix = sp.csr_array(sp.diags_array(scale) @ convection(6))
    A, b = Sparse(matrix), numbers(36)
    plain = solve_with_report(A, b, GMRES(maxiter=2000))[1].iterations
    diagonal = 1 / matrix.diagonal()
    inverse = np.linalg.inv(matrix.toarray()) + 1e-9 * numbers((36, 36))
    rough = {
        "Jacobi": Jacobi(), "Diagonal": Diagonal(diagonal), "function": lambda v: diagonal * v,
        "IncompleteLU": IncompleteLU(drop_tol=1e-3), "Dense": Dense(inverse), "product": lambda v: inverse @ v,
    }  # fmt: skip
    for name, preconditioner in rough.items():
        for solver in (GMRES, BiCGStab, LSMR):
            if solver is LSMR and name in ("Jacobi", "Diagonal", "function"):
                continue  # they don't make the normal equations better
            made = factorize(A, solver(tol=1e-10, preconditioner=preconditioner))
            x, report = solve_with_report(made, b)
            assert report.status == 0 and report.iterations < (plain if name != "Dense" else 6), (name, solver)
            np.testing.assert_allclose(x, np.linalg.solve(matrix.toarray(), b), rtol=0, atol=1e-7 * np.abs(x).max())
            y, report = made.solver.run(made.A, made.kept, b, True)
            assert report.status == 0, (name, solver, report)
            np.testing.assert_allclose(matrix.T @ y, b, atol=1e-7 * np.linalg.norm(b))
    spd = sp.csr_array(sp.diags_array(np.sqrt(scale)) @ poisson(6) @ sp.diags_array(np.sqrt(scale)))
    for solver in (CG, MINRES):
        few, many = (solve_with_report(spd, b, solver(preconditioner=p))[1] for p in (Jacobi(), None))
        assert few.status == many.status == 0 and few.iterations < many.iterations / 2


@pytest.mark.parametrize("shape", [(40, 15), (15, 40)])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_lsmr(shape, preconditioned):
    """Least squares and least norm, of A and of A', as `np.linalg.pinv` and SciPy's LSMR."""
    a = numbers(shape) * np.geomspace(1, 30, shape[1])
    b, c = numbers(shape[0], seed=1), numbers(shape[1], seed=2)
    side = 1 / np.linalg.norm(a, axis=0 if shape[0] > shape[1] else 1)
    solver = LSMR(tol=1e-13, preconditioner=Diagonal(side) if preconditioned else None)
    made = factorize(a, solver)
    x, report = solve_with_report(made, b)
    y = made.solver.solve(made.A, made.kept, c, True)
    np.testing.assert_allclose(x, np.linalg.pinv(a) @ b, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(y, np.linalg.pinv(a).T @ c, rtol=1e-8, atol=1e-10)
    assert report.status == 0
    np.testing.assert_allclose(report.residual, np.linalg.norm(b - a @ x), rtol=1e-6, atol=1e-10)
    if not preconditioned:
        assert abs(report.iterations - theirs.lsmr(a, b, atol=1e-13, btol=1e-13, conlim=0, maxiter=500)[2]) <= 15


ALL = [*SQUARE, LSMR]


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.filterwarnings("error")
def test_zero_nan_and_running_out(solver):
    a = numbers((6, 6))
    a = a @ a.T + np.eye(6)
    x, report = solve_with_report(a, np.zeros(6), solver())
    assert not x.any() and (report.status, report.iterations, report.residual) == (0, 0, 0)
    for matrix, b in ((a, np.full(6, np.nan)), (a * np.nan, np.ones(6)), (a, np.full(6, np.inf))):
        x, report = solve_with_report(matrix, b, solver())
        assert Status(int(report.status)) is Status.NOT_FINITE and np.isnan(x).all()
    x, report = solve_with_report(a, np.ones(6), solver(maxiter=2))
    assert Status(int(report.status)) is Status.OUT_OF_ITERATIONS and report.iterations == 2
    assert 0 < report.residual < np.sqrt(6) and np.isfinite(x).all()
    x, report = solve_with_report(a, np.ones(6), solver(tol=0.0, atol=0.5))
    assert report.status == 0 and report.residual <= 0.5


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.filterwarnings("error")
def test_singular_systems(solver):
    """What has a solution gets it; what has none ends with a finite x, and says so."""
    a = np.diag([1.0, 2.0, 0.0])
    x, report = solve_with_report(a, np.array([1.0, 1.0, 0.0]), solver())
    np.testing.assert_allclose(x, [1, 0.5, 0], atol=1e-9)
    assert report.status == 0
    x, report = solve_with_report(a, np.ones(3), solver())
    assert np.isfinite(x).all() and report.iterations <= 10
    assert Status(int(report.status)) is (Status.CONVERGED if solver is LSMR else Status.STAGNATED)


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.filterwarnings("error")
def test_right_hand_sides_whose_squares_vanish_or_overflow(solver):
    """A tiny cotangent is no zero, and a huge one has a solution."""
    a = numbers((4, 4))
    a = a @ a.T + np.eye(4)
    b = numbers(4, seed=1)
    expected = np.linalg.solve(a, b)
    run = wl.jit(lambda b: solve_with_report(a, b, solver(tol=1e-12)))
    for scale in (1e-200, 1e200):
        for x, report in (solve_with_report(a, b * scale, solver(tol=1e-12)), run(b * scale)):
            np.testing.assert_allclose(x / scale, expected, rtol=1e-9)
            assert report.status == 0 and report.residual <= 2e-12 * scale * np.linalg.norm(b)
    x, _ = solve_with_report(a.astype(np.float32), (b * 1e-30).astype(np.float32), solver())
    np.testing.assert_allclose(x / np.float32(1e-30), expected, rtol=1e-3)
    x, report = solve_with_report(a, b * 1e-200, solver(tol=0.0, atol=1e-100))
    assert report.status == 0 and not x.any()
    assert solve_with_report(a, b * 1e200)[1].status == 0  # a direct solver's residual, too


def test_tolerances_that_are_arrays():
    a = np.eye(3)
    np.testing.assert_allclose(linear_solve(a, np.ones(3), CG(tol=np.array(1e-8), atol=np.float32(0))), 1)
    with pytest.raises(wl.NoValueError, match="float"):
        wl.jit(lambda tol: linear_solve(a, np.ones(3), CG(tol=tol)))(1e-8)


def test_functions_are_not_held():
    """Neither a preconditioner nor an operator that isn't square."""
    a, refs = np.diag([1.0, 2.0, 3.0]), []

    def solve():
        made = lambda v: v * 0.5
        product = lambda v: np.concatenate([v, v])
        refs.extend(map(weakref.ref, (made, product)))
        linear_solve(a, np.ones(3), GMRES(preconditioner=made))
        linear_solve(product, np.ones(6), LSMR(), like=np.ones(3))

    solve()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_breakdowns():
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    b = np.array([1.0, 0.0])
    for solver in (BiCGStab(), GMRES(restart=1)):
        x, report = solve_with_report(turn, b, solver)
        assert Status(int(report.status)) is Status.STAGNATED and not x.any()
    np.testing.assert_allclose(solve_with_report(turn, b, GMRES())[0], [0, 1], atol=1e-12)
    np.testing.assert_allclose(solve_with_report(np.abs(turn), b, MINRES())[0], [0, 1], atol=1e-12)


def test_each_element_of_a_batch_by_itself():
    """A quick one, a slow one, one of zeros, one without a solution: as if alone."""
    stack = np.stack([np.eye(4), np.diag([1.0, 10, 100, 1000]), np.diag([np.nan] * 4), np.diag([1.0, 2, 3, 0])])
    b = np.stack([np.ones(4), np.ones(4), np.zeros(4), np.ones(4)])
    for solver in ALL:
        x, report = wl.vmap(lambda a, b, solver=solver: solve_with_report(a, b, solver()))(stack, b)
        for i in range(4):
            alone, told = solve_with_report(stack[i], b[i], solver())
            np.testing.assert_allclose(x[i], alone, rtol=1e-6, atol=1e-12, err_msg=str(solver))
            assert report.status[i] == told.status
            assert report.iterations[i] == told.iterations or i == 3  # where rounding decides
    assert list(report.status) == [0, 0, 0, 0]


REFUSED = [
    (lambda: solve_with_report(np.ones((3, 2)), np.ones(3), CG()), "CG solves square systems.*LSMR"),
    (lambda: factorize(np.eye(3), CG(preconditioner=Diagonal(np.ones(2)))), r"shape \(3, 3\), got Diagonal"),
    (lambda: factorize(np.eye(3), GMRES(preconditioner=IncompleteLU())), "takes a Sparse operator"),
    (lambda: factorize(np.ones((3, 2)), LSMR(preconditioner=Jacobi())), "Jacobi"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_does_not_fit_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(wl.ArgumentError, match=message):
        call()
