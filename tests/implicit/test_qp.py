"""Linear and quadratic programs: solutions and multipliers against HiGHS, enumerated active sets and closed forms."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.implicit import QPStatus, lp, qp

COUNT = 250


def apply(matrices, vectors):
    return np.einsum("bij,bj->bi", matrices, vectors)


def optimality(Q, c, A, b, G, h, lower, upper, solution):
    """The largest residual of the optimality conditions, written out."""
    x, y, z, low, up = solution[:5]
    stationary = apply(Q, x) + c - apply(np.swapaxes(A, 1, 2), y) + apply(np.swapaxes(G, 1, 2), z) - low + up
    over = [apply(G, x) - h, lower - x, x - upper]
    return max(
        np.max(np.abs(stationary)),
        np.max(np.abs(apply(A, x) - b)),
        max(np.max(v) for v in over),
        max(-np.min(v) for v in (z, low, up)),
        max(np.max(np.abs(m * v)) for m, v in zip((z, low, up), over, strict=True)),
    )


def random_programs(rng, n=6, m=2, p=5):
    x = rng.normal(size=(COUNT, n))
    A, G = rng.normal(size=(COUNT, m, n)), rng.normal(size=(COUNT, p, n))
    bounds = x - rng.random((COUNT, n)), x + rng.random((COUNT, n))
    return rng.normal(size=(COUNT, n)), A, apply(A, x), G, apply(G, x) + rng.random((COUNT, p)), *bounds


def test_random_linear_programs_have_the_solutions_and_multipliers_of_highs(rng):
    c, A, b, G, h, lower, upper = data = random_programs(rng)
    found = lp(*data)
    assert optimality(np.zeros((COUNT, 6, 6)), *data, found) < 1e-8
    assert not np.any(found.degenerate) and np.max(found.iterations) < 25
    for i in range(COUNT):
        bounds = np.stack([lower[i], upper[i]], axis=1)
        right = linprog(c[i], G[i], h[i], A[i], b[i], bounds=bounds)
        pairs = [(found.x, right.x), (found.y, right.eqlin.marginals), (found.z, -right.ineqlin.marginals)]
        pairs += [(found.lower, right.lower.marginals), (found.upper, -right.upper.marginals), (found.value, right.fun)]
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours[i], theirs, rtol=1e-8, atol=1e-8)


def test_random_quadratic_programs_have_the_solutions_of_enumerated_active_sets(rng):
    n, m, p = 4, 1, 5
    c, A, b, G, h, _, _ = random_programs(rng, n, m, p)
    root = rng.normal(size=(COUNT, n, n))
    Q = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(n)
    found = qp(Q, c, A, b, G, h)
    assert optimality(Q, c, A, b, G, h, found.x - 1, found.x + 1, found) < 1e-8
    best = np.full(COUNT, np.inf)
    solution = np.zeros((COUNT, n))
    for chosen in product([False, True], repeat=p):
        if sum(chosen) > n - m:
            continue
        rows = np.concatenate([A, G[:, chosen]], axis=1)
        k = rows.shape[1]
        system = np.block([[Q, np.swapaxes(rows, 1, 2)], [rows, np.zeros((COUNT, k, k))]])
        right = np.concatenate([-c, b, h[:, chosen]], axis=1)
        x = np.linalg.solve(system, right[..., None])[:, :n, 0]
        value = np.sum(x * apply(Q, x), axis=1) / 2 + np.sum(c * x, axis=1)
        better = np.all(apply(G, x) <= h + 1e-9, axis=1) & (value < best)
        best[better], solution[better] = value[better], x[better]
    np.testing.assert_allclose(found.x, solution, atol=1e-8)
    np.testing.assert_allclose(found.value, best, atol=1e-8)


def test_64_programs_of_50_unknowns_in_one_jitted_call_with_their_gradients(rng):
    count, n, m, p = 64, 50, 5, 20
    root, x = rng.normal(size=(count, n, n)), rng.normal(size=(count, n))
    A, G = rng.normal(size=(count, m, n)), rng.normal(size=(count, p, n))
    Q, c, b = root @ np.swapaxes(root, 1, 2), rng.normal(size=(count, n)), apply(A, x)
    h = apply(G, x) + rng.random((count, p))
    G[7], h[7] = 0.0, -1.0  # nothing is feasible: 0 <= -1

    def loss(c, h):
        found = qp(Q, c, A, b, G, h, full=True)
        return np.sum(np.where(found.status[:, None] == 0, found.x, 0.0) ** 2), found

    jitted = wl.jit(wl.value_and_grad(loss, (0, 1), has_aux=True))
    (_, found), (in_c, in_h) = jitted(c, h)
    assert list(np.flatnonzero(found.status)) == [7] and found.status[7] == QPStatus.INFEASIBLE
    assert np.all(np.isnan(found.x[7])) and np.all(in_c[7] == 0) and np.all(in_h[7] == 0)
    for i in (0, 6, 8, 63):
        alone, pull = wl.vjp(lambda c, h, i=i: qp(Q[i], c, A[i], b[i], G[i], h).x, c[i], h[i])
        np.testing.assert_allclose(found.x[i], alone, atol=1e-10)
        for ours, theirs in zip((in_c[i], in_h[i]), pull(2 * alone), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_the_notes_pair_of_programs_min_c_x_and_max_b_y_has_one_value(rng):
    """A1.50, A1.51: min c'x, Ax = b, x >= 0 has the value of max b'y, A'y <= c, and y as a multiplier."""
    A, x = rng.normal(size=(3, 6)), np.array([1.0, 2.0, 0.5, 0.0, 0.0, 0.0])
    b, c = A @ x, A.T @ rng.normal(size=3) + np.array([0, 0, 0, 1.0, 2.0, 3.0])
    primal = lp(c, A, b, lower=0)
    dual = lp(-b, G=A.T, h=c)
    np.testing.assert_allclose(primal.x, x, atol=1e-10)
    np.testing.assert_allclose(primal.y, dual.x, atol=1e-10)
    np.testing.assert_allclose(primal.value, -dual.value, atol=1e-10)
    assert np.all(A.T @ primal.y <= c + 1e-10)
    np.testing.assert_allclose(primal.x * (A.T @ primal.y - c), 0, atol=1e-10)  # A1.52


def test_no_constraints_only_bounds_one_unknown_and_empty_constraints(rng):
    Q, c = np.diag([1.0, 4.0]), np.array([-1.0, -8.0])
    np.testing.assert_allclose(qp(Q, c).x, [1, 2], rtol=1e-12)
    np.testing.assert_allclose(qp(Q, c, lower=[-np.inf, 3], upper=np.inf).x, [1, 3], rtol=1e-12)
    found = qp(Q, c, upper=0.5)
    np.testing.assert_allclose(found.x, 0.5, rtol=1e-12)
    np.testing.assert_allclose(found.upper, [0.5, 6.0], rtol=1e-12)
    one = qp([[2.0]], [-6.0], G=[[1.0]], h=[1.0])
    np.testing.assert_allclose([*one.x, *one.z], [1, 4], rtol=1e-12)
    empty = np.zeros((0, 2)), np.zeros(0)
    np.testing.assert_allclose(qp(Q, c, *empty, *empty).x, [1, 2], rtol=1e-12)
    np.testing.assert_allclose(lp(c, lower=-1, upper=1).x, 1, rtol=1e-12)


def test_what_is_no_constraint_has_no_multiplier_even_if_not_solved(rng):
    n, p = 12, 30
    lower, h = np.where(np.arange(n) < 3, -np.inf, -1.0), np.where(np.arange(p) < 3, np.inf, 1.0)
    found = qp(np.eye(n), rng.normal(size=n) * 9, G=rng.normal(size=(p, n)), h=h, lower=lower, maxiter=1, full=True)
    assert found.status == QPStatus.STOPPED and np.any(found.z > 0)
    assert np.all(found.lower[:3] == 0) and np.all(found.z[:3] == 0)


def test_a_matrix_that_is_not_symmetric_counts_as_its_symmetric_part(rng):
    Q, c = np.array([[2.0, 1.0], [-1.0, 3.0]]), np.array([1.0, 1.0])
    np.testing.assert_allclose(qp(Q, c).x, [-1 / 2, -1 / 3], rtol=1e-12)


def test_redundant_equations_and_empty_insides(rng):
    A = rng.normal(size=(2, 5))
    A = np.stack([A[0], A[1], 2 * A[0] - A[1], np.zeros(5)])
    x = rng.random(5)
    found = qp(np.eye(5), -x, A, A @ x, lower=0)
    np.testing.assert_allclose(found.x, x, atol=1e-10)
    assert not found.degenerate
    pair = qp(np.eye(2), np.zeros(2), G=[[1.0, 1.0], [-1.0, -1.0]], h=[2.0, -2.0])  # an equation as two inequalities
    np.testing.assert_allclose(pair.x, 1, rtol=1e-9)
    fixed = qp(np.eye(2), np.zeros(2), lower=[1.0, -1.0], upper=[1.0, 1.0])
    np.testing.assert_allclose(fixed.x, [1, 0], atol=1e-9)


def test_data_of_very_different_sizes(rng):
    units = 10.0 ** np.array([-4, -2, 0, 2, 4])
    x = rng.random(5)
    G, c = rng.normal(size=(8, 5)), rng.normal(size=5)
    h = G @ x + rng.random(8)
    scale = 10.0 ** rng.uniform(-4, 4, size=8)
    plain = qp(np.eye(5), c, G=G, h=h)
    found = qp(np.diag(1 / units**2), c / units, G=scale[:, None] * G / units, h=scale * h)
    np.testing.assert_allclose(found.x / units, plain.x, rtol=1e-7)
    np.testing.assert_allclose(found.z * scale, plain.z, rtol=1e-7, atol=1e-9)


def residuals(Q, c, G, h, found):
    """The largest of those of the optimality conditions, relative to the numbers of each program."""
    over = apply(G, found.x) - h
    stationary = np.abs(apply(Q, found.x) + c + apply(np.swapaxes(G, 1, 2), found.z))
    size = lambda v: 1 + np.max(np.abs(v), axis=1)
    gap = np.max(np.abs(found.z * over), axis=1) / (1 + np.abs(found.value))
    return max(np.max(np.max(stationary, axis=1) / size(c)), np.max(np.max(over, axis=1) / size(h)), np.max(gap))


def test_fewer_constraints_than_unknowns_and_starts_off_the_central_path(rng):
    """One hard constraint leaves nothing of the other directions in a sum of large and small numbers."""
    for n, p in ((2, 1), (5, 1), (8, 2), (6, 3)):
        G = rng.normal(size=(100, p, n))
        h = apply(G, rng.normal(size=(100, n))) * 10.0 ** rng.uniform(-3, 4, size=(100, 1))
        c = -apply(np.swapaxes(G, 1, 2), rng.random((100, p)))
        found = lp(c, G=G, h=h)
        assert residuals(np.zeros((100, n, n)), c, G, h, found) < 1e-8
        assert np.max(found.iterations) < 25


def test_quadratic_programs_whose_inequalities_leave_no_inside(rng):
    """Of each pair Ex <= e, -Ex <= -e the multipliers may grow without bound."""
    for count, n, m, p in ((60, 15, 5, 20), (6, 60, 25, 80)):
        root, x = rng.normal(size=(count, n, n // 2)), rng.normal(size=(count, n))
        E, G = rng.normal(size=(count, m, n)), rng.normal(size=(count, p, n))
        Q, e, h = root @ np.swapaxes(root, 1, 2), apply(E, x), apply(G, x) + rng.random((count, p))
        G, h = np.concatenate([G, E, -E], axis=1), np.concatenate([h, e, -e], axis=1)
        c = apply(Q, rng.normal(size=(count, n))) - apply(np.swapaxes(G, 1, 2), rng.random((count, p + 2 * m)))
        assert residuals(Q, c, G, h, qp(Q, c, G=G, h=h)) < 1e-8


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6])
def test_solutions_follow_the_units_of_their_data(unit, rng):
    root, A, G, h = rng.normal(size=(5, 5)), rng.normal(size=(1, 5)), rng.normal(size=(6, 5)), rng.random(6)
    Q, c, b = root @ root.T, rng.normal(size=5), np.zeros(1)
    right = qp(Q, c, A, b, G, h, lower=-1)
    close = lambda found, wanted: np.testing.assert_allclose(
        found, wanted, rtol=1e-7, atol=1e-7 * np.max(np.abs(wanted))
    )
    for data, lower, size, force in (
        ((unit * Q, unit * c, A, b, G, h), -1, 1, unit),
        ((Q, unit * c, A, b, G, unit * h), -unit, unit, unit),
        ((Q, c, 1e6 * unit * A, b, unit * G, unit * h), -1, 1, 1 / unit),
    ):
        found = qp(*data, lower=lower)
        close(found.x, size * right.x)
        close(found.z, force * right.z)


def test_float32_is_computed_in_float64_and_rounded(rng):
    G, c = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    found = qp(np.eye(3, dtype=np.float32), c, G=G, h=np.ones(4, np.float32), lower=-0.5)
    exact = qp(np.eye(3), c.astype(float), G=G.astype(float), h=np.ones(4), lower=-0.5)
    assert found.x.dtype == found.z.dtype == found.value.dtype == found.certificate.y.dtype == np.float32
    np.testing.assert_array_equal(found.x, exact.x.astype(np.float32))
    gradient = wl.grad(lambda c: np.sum(qp(np.eye(3, dtype=np.float32), c, G=G, h=np.ones(4, np.float32)).x))(c)
    assert gradient.dtype == np.float32


def test_leading_axes_broadcast(rng):
    c = rng.normal(size=(2, 1, 3))
    h = rng.random((4, 1))
    found = qp(np.eye(3), c, G=np.ones((1, 3)), h=h)
    assert found.x.shape == (2, 4, 3) and found.z.shape == (2, 4, 1) and found.status.shape == (2, 4)
    np.testing.assert_allclose(found.x[1, 2], qp(np.eye(3), c[1, 0], G=np.ones((1, 3)), h=h[2]).x, atol=1e-12)


# No solution ----------------------------------------------------------------------------------------------------------


def test_infeasible_programs_come_with_farkas_multipliers(rng):
    G, lower = np.array([[1.0, 1.0], [-1.0, 2.0]]), np.array([0.0, 1.0])
    h = np.array([0.5, 10.0])  # x1 + x2 <= 0.5 and x >= (0, 1)
    found = qp(np.eye(2), np.ones(2), G=G, h=h, lower=lower, full=True)
    proof = found.certificate
    assert found.status == QPStatus.INFEASIBLE and np.all(np.isnan(found.x)) and np.all(np.isnan(found.z))
    assert min(proof.z.min(), proof.lower.min()) >= 0
    np.testing.assert_allclose(G.T @ proof.z - proof.lower + proof.upper, 0, atol=1e-8)
    np.testing.assert_allclose(-h @ proof.z + lower @ proof.lower, 1, rtol=1e-10)
    with pytest.raises(wl.CheckError, match=r"no x satisfies the constraints.*Farkas.*z = \["):
        qp(np.eye(2), np.ones(2), G=G, h=h, lower=lower)
    assert lp([1.0], lower=2, upper=1, full=True).status == QPStatus.INFEASIBLE


def test_equations_that_contradict_each_other_are_proven_to(rng):
    A = rng.normal(size=(3, 4))
    A[2] = A[0] - 2 * A[1]
    b = np.array([1.0, 1.0, 0.0])
    found = lp(np.ones(4), A, b, lower=0, full=True)
    assert found.status == QPStatus.INFEASIBLE
    np.testing.assert_allclose(A.T @ found.certificate.y, 0, atol=1e-12)
    np.testing.assert_allclose(b @ found.certificate.y, 1, rtol=1e-12)


def test_unbounded_programs_come_with_a_ray(rng):
    Q, c, G = np.diag([1.0, 0.0]), np.array([0.0, -1.0]), np.array([[1.0, -1.0]])
    found = qp(Q, c, G=G, h=[1.0], lower=0, full=True)
    ray = found.certificate.x
    assert found.status == QPStatus.UNBOUNDED and np.all(ray >= -1e-8) and np.all(G @ ray <= 1e-8)
    np.testing.assert_allclose(Q @ ray, 0, atol=1e-8)
    np.testing.assert_allclose(c @ ray, -1, rtol=1e-10)
    with pytest.raises(wl.CheckError, match=r"no lower bound.*for ever along x = "):
        qp(Q, c, G=G, h=[1.0], lower=0)
    assert lp([1.0, 0.0], full=True).status == QPStatus.UNBOUNDED


def test_what_is_no_convex_program_of_numbers_is_named(rng):
    with pytest.raises(wl.CheckError, match="negative eigenvalue"):
        qp([[1.0, 2.0], [2.0, 1.0]], np.ones(2))
    assert qp([[0.0, 1.0], [1.0, 0.0]], np.ones(2), full=True).status == QPStatus.NOT_CONVEX
    with pytest.raises(wl.CheckError, match="NaN"):
        lp([np.nan, 1.0], lower=0)
    assert lp([1.0, 1.0], lower=0, upper=-np.inf, full=True).status == QPStatus.NOT_FINITE
    with pytest.raises(wl.CheckError, match=r"not solved to tol=1e-08.*after 1 iterations"):
        qp(np.eye(3), np.ones(3), G=rng.normal(size=(9, 3)), h=rng.random(9), lower=-1.0, maxiter=1)


def test_one_failing_element_of_a_batch_is_named_and_leaves_the_others_as_they_are(rng):
    c, h = rng.normal(size=(5, 3)), rng.random((5, 1))
    h[3] = -10.0
    G, bounds = np.ones((1, 3)), {"lower": -1.0, "upper": 1.0}
    with pytest.raises(wl.CheckError, match="element 3 of the batch"):
        qp(np.eye(3), c, G=G, h=h, **bounds)
    loss = lambda c, h: np.nansum(wl.vmap(lambda c, h: qp(np.eye(3), c, G=G, h=h, full=True, **bounds).x)(c, h) ** 2)
    gradient = wl.grad(loss)(c, h)
    others = [0, 1, 2, 4]
    np.testing.assert_allclose(gradient[others], wl.grad(loss)(c[others], h[others]), atol=1e-14)
    assert np.all(gradient[3] == 0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"Q": np.eye(3)}, r"Q must be \(n, n\) with the n = 2 of c, got shape \(3, 3\)"),
        ({"c": 1.0}, r"c is a vector of shape \(n,\), got shape \(\)"),
        ({"A": np.ones((1, 2))}, "A was given without b"),
        ({"h": [1.0]}, "h was given without G"),
        ({"G": np.ones((1, 3)), "h": [1.0]}, r"G must be \(rows, n\) with the n = 2 of c, got shape \(1, 3\)"),
        ({"G": np.ones((2, 2)), "h": [1.0]}, r"h has a number for each row of G, \(2,\), got shape \(1,\)"),
        ({"lower": np.zeros(3)}, r"lower must be \(n,\)"),
        ({"c": [1j, 0]}, "c must be real numbers, got complex128"),
        ({"c": np.ones((2, 2)), "lower": np.zeros((3, 2))}, "leading axes .* broadcast"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        qp(**{"Q": np.eye(2), "c": np.ones(2), **arguments})
