"""Sinkhorn: against a linear program, a naive loop and the definition; derivatives by differences, to second order."""

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import linprog

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.testing import check_grads

sinkhorn, Status = wl.implicit.sinkhorn, wl.implicit.Status
RNG = np.random.default_rng(0)
N, M = 5, 4
COST = RNG.random((N, M))
A, B = RNG.dirichlet(np.ones(N)), RNG.dirichlet(np.ones(M))


def exact(cost, a, b, epsilon):
    return sinkhorn(cost, a, b, epsilon, tolerance=1e-13)


def naive(cost, a, b, epsilon, count):
    """Row and column sums made right in turn, by factors and not by logarithms."""
    kernel, v = np.exp(-cost / epsilon), np.ones(len(b))
    for _ in range(count):
        u = a / (kernel @ v)
        v = b / (kernel.T @ u)
    return u[:, None] * kernel * v


def test_plan_of_a_naive_loop_and_value_of_the_definition():
    for cost, a, b in ((COST, A, B), (COST.T, B, A), (COST, 3 * A, 3 * B)):
        t = exact(cost, a, b, 0.1)
        np.testing.assert_allclose(t.plan, naive(cost, a, b, 0.1, 2000), rtol=1e-11)
        divergence = np.sum(t.plan * np.log(t.plan * a.sum() / np.outer(a, b)))
        np.testing.assert_allclose(t.value, np.sum(cost * t.plan) + 0.1 * divergence, rtol=1e-13)
        np.testing.assert_allclose(t.plan, np.outer(a, b) / a.sum() * np.exp((t.f[:, None] + t.g - cost) / 0.1))
        assert abs(t.g.mean()) < 1e-15 and t.report.status == Status.CONVERGED and t.report.iterations < 30


@pytest.mark.parametrize("points", [False, True])
def test_small_epsilon_is_a_linear_program(points):
    cost, a, b = RNG.random((8, 6)), RNG.dirichlet(np.ones(8)), RNG.dirichlet(np.ones(6))
    if points:  # n points to n points, each with the same weight: the plan comes apart
        x, y = RNG.normal(size=(2, 7, 2))
        cost, a, b = ((x[:, None] - y) ** 2).sum(-1), np.full(7, 1 / 7), np.full(7, 1 / 7)
    n, m = cost.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    program = linprog(cost.ravel(), A_eq=sums, b_eq=np.concatenate([a, b]))
    for epsilon in (1e-2, 1e-3, 1e-5):
        t = sinkhorn(cost, a, b, epsilon)
        assert t.report.status == Status.CONVERGED and t.report.iterations < 200
        np.testing.assert_allclose(t.plan.sum(1), a, rtol=1e-8)
        np.testing.assert_allclose(t.plan.sum(0), b, atol=1e-8)
        assert -1e-9 <= np.sum(cost * t.plan) - program.fun <= epsilon * np.log(n * m)
    np.testing.assert_allclose(t.plan.ravel(), program.x, atol=1e-6)


def test_derivatives_of_all_results_in_all_arguments():
    def results(cost, x, y, epsilon):
        a, b = np.exp(x) / np.sum(np.exp(x)), np.exp(y) / np.sum(np.exp(y))
        return exact(cost, 1.5 * a, 1.5 * b, epsilon)[:4]

    check_grads(results, (COST, np.log(A), np.log(B), 0.2))
    check_grads(results, (COST.T, np.log(B), np.log(A), 0.2), order=1)


def test_the_value_has_the_plan_and_the_potentials_for_gradients():
    t = exact(COST, A, B, 0.1)
    cost, a, b = wl.grad(lambda *args: exact(*args, 0.1).value, argnums=(0, 1, 2))(COST, A, B)
    for gradient, expected in ((cost, t.plan), (a, t.f), (b, t.g)):
        np.testing.assert_allclose(gradient, expected, rtol=1e-13)


def test_compiled_second_derivatives():
    hessian = wl.jit(wl.hessian(lambda cost: exact(cost, A, B, 0.1).value))(COST)
    np.testing.assert_allclose(hessian, wl.jacobian(lambda cost: exact(cost, A, B, 0.1).plan)(COST), atol=1e-12)
    np.testing.assert_allclose(hessian.sum((0, 1)), 0, atol=1e-12)  # a constant cost changes no plan
    assert np.linalg.eigvalsh(hessian.reshape(N * M, N * M)).max() < 1e-12  # the value is concave in the cost


def test_each_element_of_a_batch_converges_on_its_own():
    costs = np.stack([COST, COST[::-1] * 3, np.full_like(COST, np.nan)])
    batch = wl.vmap(lambda cost: exact(cost, A, B, 0.1))(costs)
    alone = [exact(cost, A, B, 0.1) for cost in costs[:2]]
    np.testing.assert_allclose(batch.plan[:2], [t.plan for t in alone], rtol=1e-12)
    np.testing.assert_array_equal(batch.report.iterations[:2], [t.report.iterations for t in alone])
    np.testing.assert_array_equal(batch.report.status, [Status.CONVERGED, Status.CONVERGED, Status.NOT_FINITE])
    slopes = wl.vmap(wl.grad(lambda cost: np.sum(exact(cost, A, B, 0.1).plan ** 2)))(costs)
    np.testing.assert_allclose(
        slopes[0], wl.grad(lambda cost: np.sum(exact(cost, A, B, 0.1).plan ** 2))(COST), rtol=1e-9, atol=1e-13
    )
    assert np.isnan(slopes[2]).all()


def test_zero_weights_and_infinite_costs():
    a, cost = np.where(np.arange(N) == 1, 0, A), np.where(np.eye(N, M) == 1, np.inf, COST)
    a = a / a.sum()
    rest = np.arange(N) != 1
    whole, part = exact(cost, a, B, 0.1), exact(np.where(np.isinf(cost), 1e3, cost)[rest], a[rest], B, 0.1)
    np.testing.assert_allclose(whole.plan[rest], part.plan, atol=1e-14)
    assert not whole.plan[1].any() and np.isfinite(whole.f).all()
    for result in (lambda t: t.value, lambda t: np.sum(t.plan**2)):
        got = wl.grad(lambda c: result(exact(c, a, B, 0.1)))(cost)  # noqa: B023
        want = wl.grad(lambda c: result(exact(c, a[rest], B, 0.1)))(np.where(np.isinf(cost), 1e3, cost)[rest])  # noqa: B023
        np.testing.assert_allclose(got[rest], want, atol=1e-12)
        assert not got[1].any()
    # The derivative in a weight that is 0: more of it, less of another.
    slope = wl.grad(lambda t: exact(cost, np.where(rest, a * (1 - t), t), B, 0.1).value)(0.0)
    after = [exact(cost, np.where(rest, a * (1 - t), t), B, 0.1).value for t in (0.0, 1e-6)]
    np.testing.assert_allclose(slope, (after[1] - after[0]) / 1e-6, rtol=1e-3)


def test_float32():
    small = [x.astype(np.float32) for x in (COST, A, B)]
    t = wl.jit(sinkhorn)(*small, np.float32(0.05))
    assert {x.dtype for x in t[:4]} == {np.dtype(np.float32)} and t.report.status == Status.CONVERGED
    np.testing.assert_allclose(t.plan, exact(COST, A, B, 0.05).plan, atol=1e-5)
    assert sinkhorn(small[0], A, B, 0.05).plan.dtype == np.float64


def test_memory_does_not_depend_on_the_iterations():
    def peak(count):
        tracemalloc.start()
        wl.grad(lambda c: np.sum(sinkhorn(c, A, B, 0.1, tolerance=-1.0, max_iterations=count).plan ** 2))(COST)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(20)
    assert peak(100) < 1.3 * peak(20)


def test_refused():
    with pytest.raises(ArgumentError, match=r"the same sum, a has 1.0\d* and b has 2.0"):
        sinkhorn(COST, A, np.full(M, 0.5), 0.1)
    with pytest.raises(ArgumentError, match=r"got \(5, 4\), \(4,\) and \(5,\); use wl.vmap"):
        sinkhorn(COST, B, A, 0.1)
    with pytest.raises(ArgumentError, match=r"epsilon must be more than 0, got 0\.0"):
        sinkhorn(COST, A, B, 0.0)
    with pytest.raises(ArgumentError, match="weights must not be negative"):
        sinkhorn(COST, A - 2 * A * np.eye(N)[0], B, 0.1)
    with pytest.raises(ArgumentError, match="nothing can be moved between 0 and 4 places"):
        sinkhorn(np.zeros((0, 4)), np.zeros(0), B, 0.1)
    unequal = wl.jit(lambda b: sinkhorn(COST, A, b, 0.1, max_iterations=50))(2 * B)
    assert unequal.report.status == Status.OUT_OF_ITERATIONS
