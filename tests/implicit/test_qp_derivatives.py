"""Derivatives of programs in their data: against finite differences, closed forms and the envelope theorem."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.implicit import lp, qp

NAMES = ("Q", "c", "A", "b", "G", "h", "lower", "upper")


def program(rng, n=5, m=1, p=3):
    """A program of which an inequality and a bound of each side are active, and no other: x has room to move."""
    for _ in range(200):
        x, root = rng.normal(size=n), rng.normal(size=(n, n))
        A, G = rng.normal(size=(m, n)), rng.normal(size=(p, n))
        data = root @ root.T + np.eye(n), 3 * rng.normal(size=n), A, A @ x, G, G @ x + 0.3 * rng.random(p)
        data = *data, x - 0.3 * rng.random(n), x + 0.3 * rng.random(n)
        found = qp(*data)
        if all(np.sum(v > 0) == np.sum(v > 0.1) == 1 for v in (found.z, found.lower, found.upper)):
            return data
    raise AssertionError("no such program among 200")


def scalar(*data):
    """A number of all that a solution has, with curvature in each."""
    found = qp(*data)
    weights = np.cos(np.arange(len(found.x)))
    duals = np.sum(found.y**2) + np.sum(np.sin(found.z)) + np.sum(found.lower * weights) + np.sum(found.upper**2)
    return np.sum(found.x**2 * weights) + duals


def difference(f, data, i, direction, step=1e-6):
    """The slope of f in one argument by central differences."""
    plus, minus = ([*data[:i], data[i] + sign * step * direction, *data[i + 1 :]] for sign in (1, -1))
    return (f(*plus) - f(*minus)) / (2 * step)


def test_gradients_in_every_argument_are_those_of_finite_differences(rng):
    data = program(rng)
    gradients = wl.grad(scalar, tuple(range(8)))(*data)
    for i, name in enumerate(NAMES):
        direction = rng.normal(size=data[i].shape)
        slope = np.sum(gradients[i] * direction)
        np.testing.assert_allclose(slope, difference(scalar, data, i, direction), rtol=1e-5, atol=1e-6, err_msg=name)
        tangents = tuple(direction if j == i else np.zeros_like(v) for j, v in enumerate(data))
        np.testing.assert_allclose(wl.jvp(scalar, data, tangents)[1], slope, rtol=1e-9, atol=1e-9, err_msg=name)


def test_second_derivatives_are_those_of_finite_differences_of_gradients(rng):
    data = program(rng)
    gradient = wl.grad(scalar, tuple(range(8)))
    directions = [rng.normal(size=v.shape) for v in data]
    moved = [gradient(*(v + s * 1e-6 * d for v, d in zip(data, directions, strict=True))) for s in (1, -1)]
    second = wl.jvp(gradient, data, tuple(directions))[1]
    for name, plus, minus, ours in zip(NAMES, *moved, second, strict=True):
        np.testing.assert_allclose(ours, (plus - minus) / 2e-6, rtol=1e-4, atol=1e-4, err_msg=name)


def test_reverse_over_reverse_and_batches_agree_with_forward_over_reverse(rng):
    data = program(rng)
    of_c = lambda c: scalar(data[0], c, *data[2:])
    c, v = data[1], rng.normal(size=5)
    expected = wl.jvp(wl.grad(of_c), (c,), (v,))[1]
    np.testing.assert_allclose(wl.grad(lambda c: wl.grad(of_c)(c) @ v)(c), expected, rtol=1e-9, atol=1e-9)
    hessian = wl.hessian(of_c)(c)
    np.testing.assert_allclose(hessian @ v, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-9)


def test_the_value_has_the_multipliers_as_derivatives(rng):
    data = program(rng)
    found = qp(*data)
    Q, c, A, b, G, h, lower, upper = wl.grad(lambda *data: qp(*data).value, tuple(range(8)))(*data)
    x = found.x
    expected = (np.outer(x, x) / 2, x, -np.outer(found.y, x), found.y, np.outer(found.z, x), -found.z)
    for ours, theirs in zip((Q, c, A, b, G, h, lower, upper), (*expected, found.lower, -found.upper), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


def test_closed_form_of_a_program_with_equations_alone(rng):
    """x = -Q^-1 (c - A'y) with y = (A Q^-1 A')^-1 (b + A Q^-1 c)."""
    root, A = rng.normal(size=(4, 4)), rng.normal(size=(2, 4))
    Q, c, b = root @ root.T + np.eye(4), rng.normal(size=4), rng.normal(size=2)

    def closed(Q, c, A, b):
        inverse = np.linalg.inv(Q)
        y = np.linalg.solve(A @ inverse @ A.T, b + A @ inverse @ c)
        return inverse @ (A.T @ y - c), y

    for i, theirs in enumerate(closed(Q, c, A, b)):
        np.testing.assert_allclose(qp(Q, c, A, b)[i], theirs, rtol=1e-10)
        ours, right = (
            wl.grad(lambda *data, f=f, i=i: np.sum(np.sin(f(*data)[i])), (0, 1, 2, 3))(Q, c, A, b) for f in (qp, closed)
        )
        right = ((right[0] + right[0].T) / 2, *right[1:])  # of Q the symmetric part counts
        for a, b_ in zip(ours, right, strict=True):
            np.testing.assert_allclose(a, b_, rtol=1e-8, atol=1e-9)


def test_a_vertex_of_a_linear_program_does_not_move_with_c_but_with_its_constraints(rng):
    """A1.53: the vertex is the solution of its active equations."""
    A, x = rng.normal(size=(2, 5)), np.array([1.0, 2.0, 0.0, 0.0, 0.0])
    b, c = A @ x, A.T @ rng.normal(size=2) + np.array([0, 0, 1.0, 2.0, 1.0])
    found = lp(c, A, b, lower=0)
    assert not found.degenerate
    in_c, in_A, in_b = wl.jacobian(lambda c, A, b: lp(c, A, b, lower=0).x, (0, 1, 2))(c, A, b)
    np.testing.assert_allclose(in_c, 0, atol=1e-12)
    inverse = np.linalg.inv(A[:, :2])
    np.testing.assert_allclose(in_b[:2], inverse, atol=1e-9)
    np.testing.assert_allclose(in_A[:2], -inverse[:, :, None] * x, atol=1e-8)
    np.testing.assert_allclose(in_b[2:], 0, atol=1e-12)
    np.testing.assert_allclose(wl.grad(lambda c: lp(c, A, b, lower=0).value)(c), x, atol=1e-9)


# Derivatives that are a choice ----------------------------------------------------------------------------------------


def test_a_weakly_active_constraint_counts_as_inactive_and_is_flagged():
    """min (x - a)^2 / 2 with x <= 1 is min(a, 1): at a = 1 the derivative is that of smaller a."""
    solve = lambda a: qp(np.eye(1), -a, upper=1.0)
    assert [bool(solve(np.array([a])).degenerate) for a in (0.5, 1.0, 1.5)] == [False, True, False]
    derivatives = [wl.grad(lambda a: solve(a).x[0])(np.array([a]))[0] for a in (0.5, 1.0, 1.5)]
    np.testing.assert_allclose(derivatives, [1, 1, 0], atol=1e-12)


def test_more_active_constraints_than_unknowns_are_flagged_and_have_a_finite_derivative():
    """Three lines through one vertex: x2 is where two of them, chosen, meet."""
    G, h = np.array([[-1.0, -1.0], [1.0, -1.0], [0.0, -1.0]]), np.zeros(3)
    solve = lambda h: lp(np.array([0.0, 1.0]), G=G, h=h)
    found = solve(h)
    assert found.degenerate
    np.testing.assert_allclose(found.x, 0, atol=1e-9)
    jacobian = wl.jacobian(lambda h: solve(h).x)(h)
    assert np.all(np.isfinite(jacobian)) and np.linalg.matrix_rank(G @ jacobian) == 2


def test_a_solution_that_is_not_unique_is_flagged_and_its_unique_part_has_its_derivative():
    solve = lambda b: lp(np.array([1.0, 1.0, 3.0]), [[1.0, 1.0, 0.0]], b, lower=0)  # x1 + x2 = b, x3 = 0
    found = solve(np.array([2.0]))
    assert found.degenerate and np.all(found.x[:2] > 0.1)
    jacobian = wl.jacobian(lambda b: solve(b).x)(np.array([2.0]))[:, 0]
    np.testing.assert_allclose([jacobian[0] + jacobian[1], jacobian[2]], [1, 0], atol=1e-9)


def test_redundant_equations_have_the_derivative_in_the_directions_that_keep_them_true(rng):
    A = rng.normal(size=(2, 4))
    whole = np.concatenate([A, A[:1] + A[1:]])
    c, b, db = rng.normal(size=4), rng.normal(size=2), rng.normal(size=2)
    extended = lambda b: np.concatenate([b, b[:1] + b[1:]])
    solve = lambda b: qp(np.eye(4), c, whole, extended(b))
    assert not solve(b).degenerate
    ours = wl.jvp(lambda b: solve(b).x, (b,), (db,))[1]
    np.testing.assert_allclose(ours, np.linalg.pinv(A) @ db, rtol=1e-9)


@pytest.mark.parametrize("transform", ["jit", "vmap"])
def test_inside_of_loops_and_other_transformations(transform, rng):
    """Projections onto the simplex by `qp` in a loop, with their derivative."""
    simplex = {"A": np.ones((1, 3)), "b": np.ones(1), "lower": 0.0}

    def f(x):
        step = lambda i, x: qp(np.eye(3), -(x + 0.1 * np.sin(3 * x)), **simplex).x
        return np.sum(wl.fori_loop(0, 2, step, x) ** 2)

    def plain(x):
        for _ in range(2):
            x = qp(np.eye(3), -(x + 0.1 * np.sin(3 * x)), **simplex).x
        return np.sum(x**2)

    x = rng.random((2, 3))
    expected = np.stack([wl.grad(plain)(v) for v in x])
    ours = np.stack([wl.jit(wl.grad(f))(v) for v in x]) if transform == "jit" else wl.vmap(wl.grad(f))(x)
    np.testing.assert_allclose(ours, expected, atol=1e-9)


def test_large_limits_and_forces_leave_no_doubt_which_constraints_hold(rng):
    """Slack is small or large next to its limit, and multipliers next to the forces."""
    count, n, m, p = 40, 8, 2, 10
    root, x = rng.normal(size=(count, n, n // 2)), 1e4 * rng.normal(size=(count, n))
    Q, A, G = root @ np.swapaxes(root, 1, 2), rng.normal(size=(count, m, n)), rng.normal(size=(count, p, n))
    apply = lambda matrices, vectors: np.einsum("bij,bj->bi", matrices, vectors)
    b, h = apply(A, x), apply(G, x) + 1e4 * rng.random((count, p))
    c = 1e6 * (apply(Q, rng.normal(size=(count, n))) - apply(np.swapaxes(G, 1, 2), rng.random((count, p))))
    solve = lambda t: qp(Q, c, A, b + t * np.ones((count, m)), G, h)
    _, slopes = wl.jvp(lambda t: solve(t).x, (0.0,), (1.0,))
    differences = (solve(0.1).x - solve(-0.1).x) / 0.2
    sure = ~solve(0.0).degenerate
    assert np.sum(sure) > 30
    np.testing.assert_allclose(slopes[sure], differences[sure], rtol=1e-5, atol=1e-5)
