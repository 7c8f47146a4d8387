"""All solvers on a table of problems: solutions and derivatives of first and second order, under every transformation.

What is expected comes from `implicit_problems`: extended precision and differences. Solvers have the tolerance 1e-12,
and what is compared is equal to 1e-7, relative.
"""

from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
from implicit_problems import CASES, Case, sizes
from scipy.linalg import solve_banded

import wonderland as wl


def called(solver):
    return getattr(solver, "__name__", solver)


BY_NAME = {case.name: case for case in CASES}
ROWS = [
    pytest.param(case, solver, id=f"{case.name}-{called(solver)}")
    for case in CASES
    for solver in case.solvers
]
# Each solver once, under transformations that compile or record.
EACH = [
    ("Kepler", "newton"), ("ellipse and exponential", "trust_region"), ("equilibrium of reactions", "broyden"),
    ("an implicit step of van der Pol", "lm"), ("equilibrium network", "anderson"), ("cosine", "picard"),
    ("stationary distribution", "newton"), ("ridge regression", "newton"), ("logistic regression", "bfgs"),
    ("entropy", "lbfgs"), ("tilted double well", "newton_cg"), ("exponential, with residual", "lm"),
    ("exponential, without residual", "gauss_newton"), ("portfolio", "on_simplex"), ("lasso", "with_l1"),
    ("Kepler, between bounds", "bisect"), ("Kepler, by SciPy", "scipy"),
]  # fmt: skip
# Of these one for each kind of problem, where the solver makes no difference.
KINDS = [
    ("Kepler", "newton"), ("equilibrium network", "anderson"), ("logistic regression", "bfgs"),
    ("exponential, without residual", "gauss_newton"), ("portfolio", "on_simplex"), ("lasso", "with_l1"),
    ("Kepler, between bounds", "bisect"), ("Kepler, by SciPy", "scipy"),
]  # fmt: skip
SECOND_ORDER = {*EACH, *((case.name, called(case.solvers[0])) for case in CASES)}
OF_KINDS = [pytest.param(*row, id=": ".join(row), marks=[] if row in KINDS else [pytest.mark.slow]) for row in EACH]
EACH = [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in EACH]


def solution(case: Case, solver):
    """p -> x."""

    if case.kind == "bisect":
        return lambda p: wl.implicit.bisect(case.f, np.zeros(1), np.full(1, 4.0), p)
    if case.kind == "custom_root":
        by_scipy = wl.implicit.custom_root(lambda F, x, p: scipy.optimize.root(F, x, (p,), tol=1e-14).x)
        return lambda p: by_scipy(case.f, np.array(case.start), p)

    def solve(p):
        method = solver if isinstance(solver, str) else solver(p)
        return getattr(wl.implicit, case.kind)(case.f, np.array(case.start), p, solver=method)

    return solve


def total(name, wanted):
    """The parameters, and the function p -> c'x for the weights c of a case."""
    case = BY_NAME[name]
    solver = next(s for s in case.solvers if called(s) == wanted)
    solve, c = solution(case, solver), np.asarray(case.exact.weights, float)
    return np.array(case.p), lambda p: np.sum(c * solve(p))


def around(p):
    """Three points near p, (3, k)."""
    return p * np.array([[1.0], [1.01], [0.98]])


def close(found, expected, scale=None):
    expected = np.asarray(expected, float)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.max(scale) if scale is not None else 0)


def test_there_are_enough_problems():
    assert len(CASES) >= 30 and len(BY_NAME) == len(CASES)


@pytest.mark.parametrize(("case", "solver"), ROWS)
def test_solutions_and_both_orders(case, solver):
    """Forward over reverse: the gradient of c'x, and the change of that along a direction.

    The second order has nothing of the solver: it is there for one solver of each case, and for each solver once.
    """
    exact, solve = case.exact, solution(case, solver)
    p, c, u = np.array(case.p), np.asarray(exact.weights, float), np.asarray(exact.direction, float)
    both = wl.value_and_grad(lambda p: (np.sum(c * (x := solve(p))), x), has_aux=True)
    if (case.name, called(solver)) in SECOND_ORDER:
        ((_, x), gradient), (_, change) = wl.jvp(both, (p,), (u,))
        close(u @ change, exact.weights @ exact.second)
    else:
        (_, x), gradient = both(p)
    np.testing.assert_allclose(x / sizes(exact.x), exact.x / sizes(exact.x), rtol=0, atol=1e-9)
    close(gradient * np.asarray(exact.size, float), (exact.weights @ exact.jacobian) * exact.size, abs(gradient * p))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_mode(case):
    exact = case.exact
    _, tangent = wl.jvp(solution(case, case.solvers[0]), (np.array(case.p),), (np.asarray(exact.direction, float),))
    expected = np.asarray(exact.shifted(exact.direction, 1) / sizes(exact.x), float)
    close(tangent / np.asarray(sizes(exact.x), float), expected, abs(expected))


@pytest.mark.parametrize(("name", "solver"), EACH)
def test_batches(name, solver):
    """What each point gives by itself."""
    p, f = total(name, solver)
    ps = around(p)
    alone = [wl.value_and_grad(f)(q) for q in ps]
    values, gradients = wl.vmap(wl.value_and_grad(f))(ps)
    np.testing.assert_allclose(values, [v for v, _ in alone], rtol=1e-10)
    expected = np.stack([g for _, g in alone])
    np.testing.assert_allclose(gradients, expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))


@pytest.mark.parametrize(("name", "solver"), OF_KINDS)
def test_loops(name, solver):
    p, f = total(name, solver)
    ps = around(p)
    expected = np.stack([wl.grad(f)(q) for q in ps])

    def summed(ps):
        return wl.scan(lambda carry, q: (carry + f(q), None), 0.0, ps)[0]

    np.testing.assert_allclose(wl.grad(summed)(ps), expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))


@pytest.mark.parametrize(("name", "solver"), EACH)
def test_compiled(name, solver):
    """A batch of gradients as one native call."""
    p, f = total(name, solver)
    ps = around(p)
    expected = np.stack([wl.grad(f)(q) for q in ps])
    found = wl.jit(wl.vmap(wl.grad(f)))(ps)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))


@pytest.mark.parametrize(("name", "solver"), OF_KINDS)
def test_within_a_checkpoint_and_another_root(name, solver):
    """y = s(p (1 + y / 10)) / 10, of a solution s: its derivative from that of s."""
    p, f = total(name, solver)
    np.testing.assert_allclose(wl.grad(wl.checkpoint(lambda p: f(p) ** 2))(p), 2 * f(p) * wl.grad(f)(p), rtol=1e-9)

    def outer(p):
        return wl.implicit.root(lambda y: y - f(p * (1 + y / 10)) / 10, 0.1)

    y, gradient = wl.value_and_grad(outer)(p)
    value, slope = wl.value_and_grad(f)(p * (1 + y / 10))
    np.testing.assert_allclose(y, value / 10, rtol=1e-11)
    expected = slope * (1 + y / 10) / 10 / (1 - slope @ p / 100)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-9 * np.max(np.abs(expected)))


def rational(a, b):
    """x in a x = b, exactly."""
    a, b = [[Fraction(v) for v in row] for row in a.tolist()], [Fraction(v) for v in b.tolist()]
    n = len(b)
    for i in range(n):
        for j in range(i + 1, n):
            m = a[j][i] / a[i][i]
            a[j] = [u - m * v for u, v in zip(a[j], a[i], strict=True)]
            b[j] -= m * b[i]
    for i in reversed(range(n)):
        b[i] = (b[i] - sum(a[i][k] * b[k] for k in range(i + 1, n))) / a[i][i]
    return np.array([float(v) for v in b])


@pytest.mark.parametrize("solver", ["newton", "trust_region", "lm", "broyden"])
def test_ill_conditioned(solver):
    """Hilbert's matrix, of condition 1.5e7: as exact as a direct solve in double precision."""
    hilbert = 1 / (np.arange(6)[:, None] + np.arange(6) + 1.0)
    b = np.cos(np.arange(6.0))
    solve = lambda p: wl.implicit.root(lambda x: hilbert @ x - p * p * b, np.zeros(6), solver=solver)
    first = lambda p: wl.jvp(solve, (p,), (1.0,))[1]
    exact = rational(hilbert, b)
    close(solve(1.5), 2.25 * exact)
    close(first(1.5), 3 * exact)
    close(wl.jvp(first, (1.5,), (1.0,))[1], 2 * exact)


@pytest.mark.parametrize("linear_solver", ["auto", wl.implicit.GMRES(restart=20), wl.implicit.BiCGStab()], ids=str)
def test_ten_thousand_unknowns(linear_solver):
    """Broyden's tridiagonal equations, without a dense matrix; by hand, dF/dx is a banded one."""
    n = 10_000

    def F(x, p):
        y = np.concatenate([np.zeros(1), x, np.zeros(1)])
        return (5 - p * x) * x - y[:-2] - 2 * y[2:] + 1

    solve = lambda p: wl.implicit.root(F, -0.5 * np.ones(n), p, linear_solver=linear_solver)
    x, tangent = wl.jvp(solve, (1.0,), (1.0,))
    assert np.max(np.abs(F(x, 1.0))) < 1e-12
    bands = np.stack([np.full(n, -2.0), 5 - 2 * x, np.full(n, -1.0)])
    close(tangent, solve_banded((1, 1), bands, x * x))
    c = np.cos(np.arange(n))
    other = np.stack([np.full(n, -1.0), 5 - 2 * x, np.full(n, -2.0)])  # the transpose
    close(wl.grad(lambda p: c @ solve(p))(1.0), solve_banded((1, 1), other, c) @ (x * x))


def test_unknowns_and_parameters_in_trees():
    """A lens of two circles: the points where they meet, by name, from parameters by name."""

    def F(at, lens):
        (x, y), r = at["point"], lens["radius"]
        return {
            "left": x * x + y * y - r * r,
            "right": [(x - lens["distance"]) ** 2 + y * y - r * r, at["area"] - x * y],
        }

    lens = {"radius": 2.0, "distance": 1.0}
    start = {"point": (0.3, 1.5), "area": 0.0}
    for solver in ("newton", "broyden", "lm", "trust_region"):
        found = lambda lens, solver=solver: wl.implicit.root(F, start, lens, solver=solver)
        assert wl.tree_flatten(found(lens))[1] == wl.tree_flatten(start)[1]
        slopes = wl.grad(lambda lens, found=found: found(lens)["area"])(lens)  # d/2 sqrt(r^2 - d^2 / 4)
        height = np.sqrt(4 - 0.25)
        np.testing.assert_allclose(slopes["radius"], 0.5 * 2 / height, rtol=1e-12)
        np.testing.assert_allclose(slopes["distance"], height / 2 - 1 / (8 * height), rtol=1e-12)
