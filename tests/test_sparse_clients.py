"""SciPy's solvers with our sparse derivatives of plain NumPy code."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, optimize, sparse
from scipy.sparse.linalg import spsolve

import wonderland as wl
from wonderland.testing import sparse_problems as problems


def counted(f):
    def wrapper(*args):
        wrapper.calls += 1
        return f(*args)

    wrapper.calls = 0
    return wrapper


@pytest.mark.parametrize("solver", [{"method": "trf"}, {"method": "trf", "x_scale": "jac", "tr_solver": "lsmr"}])
def test_least_squares(solver):
    start = -np.ones(200)
    J = counted(wl.sparse.jacobian(problems.broyden_banded))
    found = optimize.least_squares(problems.broyden_banded, start, jac=J, **solver)
    assert found.success and J.calls == found.njev
    np.testing.assert_allclose(problems.broyden_banded(found.x), 0.0, atol=1e-6)


def test_least_squares_as_by_differences():
    start = -np.ones(40)
    pattern = wl.sparse.jacobian_pattern(problems.broyden_tridiagonal, start)
    J = wl.sparse.jacobian(problems.broyden_tridiagonal)
    ours = optimize.least_squares(problems.broyden_tridiagonal, start, jac=J)
    theirs = optimize.least_squares(problems.broyden_tridiagonal, start, jac_sparsity=pattern)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-5, atol=1e-6)
    assert ours.nfev <= theirs.nfev


def test_minimize_with_a_sparse_hessian():
    start = np.full(60, -1.2)
    found = optimize.minimize(
        problems.extended_rosenbrock, start, method="trust-constr", jac=wl.grad(problems.extended_rosenbrock),
        hess=wl.sparse.hessian(problems.extended_rosenbrock), options={"gtol": 1e-8, "maxiter": 300},
    )  # fmt: skip
    np.testing.assert_allclose(found.x, 1.0, atol=1e-5)


def test_minimize_with_constraints():
    """Minimise the distance to 2 subject to x_i x_{i+1} <= 1: by symmetry the solution has x_i x_{i+1} = 1."""

    def objective(x):
        return np.sum((x - 2.0) ** 2)

    def products(x):
        return x[1:] * x[:-1]

    curvature = wl.sparse.hessian(lambda x, v: v @ products(x))
    constraint = optimize.NonlinearConstraint(
        products, -np.inf, 1.0, jac=wl.sparse.jacobian(products), hess=lambda x, v: curvature(x, v)
    )
    found = optimize.minimize(
        objective, np.full(12, 0.5), method="trust-constr", jac=wl.grad(objective),
        hess=wl.sparse.hessian(objective), constraints=[constraint], options={"gtol": 1e-9, "xtol": 1e-12},
    )  # fmt: skip
    assert products(found.x).max() < 1.0 + 1e-6
    reference = optimize.minimize(
        objective, np.full(12, 0.5), method="SLSQP", constraints=[{"type": "ineq", "fun": lambda x: 1.0 - products(x)}]
    )
    assert found.fun == pytest.approx(reference.fun, rel=1e-5)


@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_stiff_equations(method):
    n = 8

    def rhs(t, y):
        return problems.brusselator(y.reshape(2, n, n), 0.1).ravel()

    start = problems.brusselator_start(n).ravel()
    J = counted(wl.sparse.jacobian(rhs, argnums=1))
    options = {"method": method, "rtol": 1e-7, "atol": 1e-9}
    found = integrate.solve_ivp(rhs, (0.0, 1.0), start, jac=J, **options)
    assert found.success and J.calls >= 1
    reference = integrate.solve_ivp(rhs, (0.0, 1.0), start, method="LSODA", rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.y[:, -1], reference.y[:, -1], rtol=1e-4)


def test_newton_by_sparse_solves():
    x, J = -np.ones(1000), wl.sparse.jacobian(problems.broyden_tridiagonal, format="csc")
    sizes = []
    for _ in range(6):
        residual = problems.broyden_tridiagonal(x)
        sizes.append(np.abs(residual).max())
        x = x - spsolve(J(x), residual)
    assert np.abs(problems.broyden_tridiagonal(x)).max() < 1e-13
    assert all(later < earlier**1.5 or later < 1e-12 for earlier, later in pairwise(sizes[1:]))


def test_root():
    J = wl.sparse.jacobian(problems.broyden_tridiagonal)
    found = optimize.root(problems.broyden_tridiagonal, -np.ones(30), jac=lambda x: J(x).toarray(), tol=1e-12)
    assert found.success
    np.testing.assert_allclose(problems.broyden_tridiagonal(found.x), 0.0, atol=1e-9)


def test_minimal_surface_by_newton():
    """Scherk's surface log(cos y / cos x) is minimal: with its heights around, the heights inside come out."""
    n = 15
    grid = np.linspace(-0.8, 0.8, n + 2)
    exact = np.log(np.cos(grid)[None, :] / np.cos(grid)[:, None]) / 1.6  # lengths are in units of the square's side
    border = exact.copy()
    border[1:-1, 1:-1] = 0.0

    def area(heights):
        return problems.minimal_surface(heights, border)

    gradient, H = wl.jit(wl.grad(area)), wl.sparse.hessian(area, format="csc")
    heights = np.zeros((n, n))
    for _ in range(8):
        heights = heights - spsolve(H(heights), gradient(heights).ravel()).reshape(n, n)
    assert np.abs(gradient(heights)).max() < 1e-14
    assert np.abs(heights - exact[1:-1, 1:-1]).max() < 2e-3  # of the discretisation
    assert sparse.linalg.eigsh(H(heights), 1, which="SA", return_eigenvectors=False)[0] > 0
