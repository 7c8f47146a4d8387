"""Projections: nearest points by the definition, derivatives by differences and closed forms, choices at ties."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.testing import check_grads

implicit = wl.implicit
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4)) * [[0.2], [1], [1], [1], [3], [9]]
NORMAL, A, B = RNG.normal(size=4), RNG.normal(size=(2, 4)), RNG.normal(size=2)
RADII = np.array([1.0, 0.5, 1.0, 1.5, 1.0, 2.0])
LOW, HIGH = np.array([-1.0, -np.inf, 0.2, -0.5]), np.array([0.5, 0.3, 0.2, np.inf])
MATRICES = RNG.normal(size=(3, 4, 4))


def dot(a, b):
    return np.sum(a * b, axis=-1)


# name: (projection, arguments, members of the set, the supremum of d . y over the set). The nearest point of a closed
# convex set is the one of its points p at which d = x - p attains that supremum.
CASES = {
    "nonnegative": (
        implicit.project_nonnegative, (X,), lambda p: p >= 0, lambda d: np.where((d <= 0).all(-1), 0, np.inf),
    ),
    "box": (
        implicit.project_box, (X, LOW, HIGH), lambda p: (LOW <= p) & (p <= HIGH),
        lambda d: np.sum(np.where(d > 0, HIGH, LOW) * np.where(d == 0, np.nan, d), axis=-1, where=d != 0),
    ),
    "simplex": (
        implicit.project_simplex, (X, RADII), lambda p: (p >= 0) & (abs(p.sum(-1) - RADII) < 1e-14)[:, None],
        lambda d: RADII * d.max(-1),
    ),
    "l1": (
        implicit.project_l1_ball, (X, RADII), lambda p: abs(p).sum(-1) <= RADII + 1e-14,
        lambda d: RADII * abs(d).max(-1),
    ),
    "l2": (
        implicit.project_ball, (X, RADII), lambda p: np.hypot.reduce(p, axis=-1) <= RADII + 1e-15,
        lambda d: RADII * np.hypot.reduce(d, axis=-1),
    ),
    "linf": (
        implicit.project_linf_ball, (X, RADII), lambda p: abs(p).max(-1) <= RADII, lambda d: RADII * abs(d).sum(-1),
    ),
    "hyperplane": (
        implicit.project_hyperplane, (X, NORMAL, RADII), lambda p: abs(p @ NORMAL - RADII) < 1e-13,
        lambda d: np.where(abs(d - np.outer(d @ NORMAL, NORMAL) / dot(NORMAL, NORMAL)).max(-1) < 1e-13,
                           RADII * (d @ NORMAL) / dot(NORMAL, NORMAL), np.inf),
    ),
    "halfspace": (
        implicit.project_halfspace, (X, NORMAL, -RADII), lambda p: p @ NORMAL <= 1e-13 - RADII,
        lambda d: np.where((abs(d - np.outer(d @ NORMAL, NORMAL) / dot(NORMAL, NORMAL)).max(-1) < 1e-13)
                           & (d @ NORMAL >= 0), -RADII * (d @ NORMAL) / dot(NORMAL, NORMAL), np.inf),
    ),
    "affine": (
        implicit.project_affine, (X, A, B), lambda p: abs(p @ A.T - B) < 1e-13,
        lambda d: np.linalg.lstsq(A.T, d.T)[0].T @ B
        + np.where(abs(d - d @ np.linalg.pinv(A) @ A) < 1e-13, 0, np.inf).max(-1),
    ),
    "cone": (
        implicit.project_second_order_cone, (X,), lambda p: np.hypot.reduce(p[:, 1:], axis=-1) <= p[:, 0] + 1e-14,
        lambda d: np.where(np.hypot.reduce(d[:, 1:], axis=-1) <= -d[:, 0] + 1e-14, 0, np.inf),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_nearest_point(name):
    project, args, inside, support = CASES[name]
    p = project(*args)
    assert np.all(inside(p))
    np.testing.assert_allclose(dot(X - p, p), support(X - p), rtol=1e-12, atol=1e-12)
    assert not np.array_equal(p, X)
    np.testing.assert_allclose(project(p, *args[1:]), p, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_in_the_point_and_the_set(name):
    project, args, _, _ = CASES[name]
    if name == "box":  # of one point there is no derivative in low and high, but together
        check_grads(lambda x, low: project(x, low, low + 1.0), (X, np.array([-1.0, 0.3, 0.2, -0.5])))
    check_grads(project, args[:1] if name == "box" else args)


@pytest.mark.parametrize("name", [*CASES])
def test_compiled_batched_float32(name):
    project, args, _, _ = CASES[name]
    small = [np.asarray(a, np.float32) for a in args]
    batched = [0 if a.shape[:1] == (len(X),) else None for a in small]

    @wl.jit
    def all_of(*args):
        value, pull = wl.vjp(project, *args)
        return value, pull(value), wl.vmap(project, in_axes=batched)(*args)

    value, pulled, mapped = all_of(*small)
    assert {a.dtype for a in (value, *pulled, mapped)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(value, project(*args), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mapped, value, rtol=1e-5, atol=1e-5)
    exact = wl.vjp(project, *args)[1](project(*args))
    np.testing.assert_allclose(pulled[0], exact[0], rtol=1e-3, atol=1e-4)


def test_other_axes():
    for name in ("simplex", "l1", "l2", "linf", "cone"):
        project, args, _, _ = CASES[name]
        np.testing.assert_array_equal(project(X.T, *args[1:], axis=0), project(*args).T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_simplex_of_hard_numbers(dtype):
    project = implicit.project_simplex
    large = project(np.array([1e6, 1e6 + 0.25, -1e30], dtype))
    np.testing.assert_array_equal(large, np.array([0.375, 0.625, 0], dtype))
    np.testing.assert_array_equal(project(np.array([1, -np.inf, 0.5], dtype)), np.array([0.75, 0, 0.25], dtype))
    np.testing.assert_array_equal(project(np.array([3, 1], dtype), 0), 0)
    assert np.isnan(project(np.array([np.nan, 1], dtype))).all()


def test_lists_and_integers():
    np.testing.assert_array_equal(implicit.project_simplex([[2, 0], [0, 2]], [1, 2]), [[1.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(implicit.project_box([-1, 2], [0, 0], [1, 1]), [0.0, 1.0])
    np.testing.assert_array_equal(
        implicit.project_halfspace([[3, 0], [1, 0]], [1, 0], [2, 2]), [[2.0, 0.0], [1.0, 0.0]]
    )


# -- matrices --


def loewner(x, dx):
    """The derivative of the positive part of symmetric x by divided differences, entry by entry."""
    w, v = np.linalg.eigh(x)
    n = len(w)
    table = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            same = abs(w[i] - w[j]) < 1e-9
            table[i, j] = float(w[i] >= 0) if same else (max(w[i], 0) - max(w[j], 0)) / (w[i] - w[j])
    return v @ (table * (v.T @ dx @ v)) @ v.T


def turned(*eigenvalues):
    q = np.linalg.qr(np.random.default_rng(1).normal(size=(len(eigenvalues),) * 2))[0]
    return (q * eigenvalues) @ q.T


@pytest.mark.parametrize("w", [(1, 2, -1, -3), (2, 2, -1, -1), (2, 2, 2, 1), (-1, -1, -1, 0.5), (1, -1, 1, -1)])
def test_psd_with_repeated_eigenvalues(w):
    x = turned(*map(float, w))
    w, v = np.linalg.eigh(x)
    np.testing.assert_allclose(implicit.project_psd(x), (v * np.maximum(w, 0)) @ v.T, atol=1e-14)
    dx = MATRICES[0] + MATRICES[0].T
    got = wl.jvp(implicit.project_psd, (x,), (dx,))[1]
    np.testing.assert_allclose(got, loewner(x, dx), atol=1e-13)
    np.testing.assert_allclose(wl.vjp(implicit.project_psd, x)[1](dx)[0], got, atol=1e-13)  # it is symmetric


@pytest.mark.parametrize("w", [(1, 2, -1, -3), (2, 2, -1, -1), (1, -1, 1, -1)])
def test_psd_to_second_order(w):
    check_grads(implicit.project_psd, (turned(*map(float, w)),))


def test_psd_to_third_order():
    x = turned(2.0, 2.0, -1.0, -1.0)
    directions = [a + a.T for a in MATRICES]

    def along(f, direction):
        return lambda x: wl.jvp(f, (x,), (direction,))[1]

    second = along(along(implicit.project_psd, directions[0]), directions[1])
    step = 1e-5 * directions[2]
    np.testing.assert_allclose(along(second, directions[2])(x), (second(x + step) - second(x - step)) / 2e-5, atol=1e-7)


def test_psd_of_a_stack_of_unsymmetric_matrices():
    got = wl.jit(wl.vmap(implicit.project_psd))(MATRICES)
    np.testing.assert_allclose(got, implicit.project_psd(MATRICES), atol=1e-14)
    for p, x in zip(got, MATRICES, strict=True):
        d = (x + x.T) / 2 - p
        assert np.linalg.eigvalsh(p).min() > -1e-14 and np.linalg.eigvalsh(d).max() < 1e-14
        assert abs(np.sum(d * p)) < 1e-13
    assert implicit.project_psd(MATRICES.astype(np.float32)).dtype == np.float32


# -- ties --


def test_a_constraint_that_is_not_needed_counts_as_absent():
    jacobian = wl.jacobian
    eye = np.eye(3)
    np.testing.assert_array_equal(jacobian(implicit.project_nonnegative)(np.zeros(3)), eye)
    np.testing.assert_array_equal(jacobian(lambda x: implicit.project_box(x, 0.0, 1.0))(np.array([0, 1, 0.5])), eye)
    np.testing.assert_array_equal(jacobian(lambda h: implicit.project_box(np.ones(3), 0.0, h))(1.0), 0)
    np.testing.assert_allclose(jacobian(implicit.project_simplex)(np.array([1.0, 0, 0])), eye - 1 / 3)
    for project in (implicit.project_ball, implicit.project_l1_ball, implicit.project_linf_ball):
        np.testing.assert_array_equal(jacobian(project)(np.array([0.0, -1, 0])), eye)
        np.testing.assert_array_equal(jacobian(project)(np.zeros(3)), eye)
        np.testing.assert_array_equal(jacobian(lambda x: project(x, 0.0))(np.zeros(3)), 0 * eye)  # noqa: B023
    np.testing.assert_array_equal(jacobian(implicit.project_second_order_cone)(np.array([1.0, 1, 0])), eye)
    np.testing.assert_array_equal(jacobian(implicit.project_second_order_cone)(np.array([-1.0, 1, 0])), 0 * eye)
    np.testing.assert_array_equal(
        jacobian(lambda x: implicit.project_halfspace(x, np.array([1.0, 0, 0]), 1.0))(np.array([1.0, 2, 0])), eye
    )
    semidefinite = turned(1.0, 2.0, 0.0, 0.0)  # zeros but for rounding
    dx = MATRICES[0] + MATRICES[0].T
    np.testing.assert_allclose(wl.jvp(implicit.project_psd, (semidefinite,), (dx,))[1], dx, atol=1e-13)


# -- what isn't there --


def test_empty_sets_and_wrong_shapes_are_refused():
    with pytest.raises(ArgumentError, match=r"project_ball: radius must be at least 0, got -1"):
        implicit.project_ball(X, -1)
    with pytest.raises(ArgumentError, match=r"low must be at most high, got low=1 and high=0"):
        wl.grad(lambda x: np.sum(implicit.project_box(x, 1, 0)))(X)
    with pytest.raises(ArgumentError, match="normal must not be 0"):
        implicit.project_halfspace(X, np.zeros(4), 1.0)
    with pytest.raises(ArgumentError, match=r"square matrices \(..., n, n\), got shape \(6, 4\)"):
        implicit.project_psd(X)
    with pytest.raises(ArgumentError, match=r"takes vectors: an array with an axis at least, got shape \(\)"):
        implicit.project_simplex(1.0)
    with pytest.raises(ArgumentError, match=r"needs x \(..., 4\) and b \(..., 2\), got x \(6, 4\) and b \(3,\)"):
        implicit.project_affine(X, A, np.ones(3))
    with pytest.raises(ArgumentError, match="real numbers, got complex128"):
        implicit.project_ball(X * 1j)


def test_an_empty_set_in_a_batch_gives_nan_there_alone():
    got = wl.jit(implicit.project_simplex)(X, np.where(np.arange(6) == 2, -1.0, 1.0))
    np.testing.assert_array_equal(np.isnan(got).any(-1), np.arange(6) == 2)
    got = wl.jit(implicit.project_box)(np.ones(2), np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    np.testing.assert_array_equal(got, [1, np.nan])
    for name in ("project_ball", "project_l1_ball", "project_linf_ball", "project_simplex"):
        assert np.isnan(wl.jit(getattr(implicit, name))(np.array([3.0, 0.1]), -1.0)).all(), name


def test_nan_stays_in_its_matrix_and_fills_its_vector():
    stack = np.stack([np.diag([1.0, -1.0]), np.full((2, 2), np.nan)])
    got = implicit.project_psd(stack)
    np.testing.assert_allclose(got[0], np.diag([1.0, 0.0]))
    assert np.isnan(got[1]).all()
    assert np.isnan(implicit.project_ball([np.nan, 1.0, 2.0])).all()


@pytest.mark.parametrize(
    "dtype, size", [(np.float64, 1e-200), (np.float64, 1e200), (np.float32, 1e-30), (np.float32, 1e20)]
)
def test_numbers_whose_squares_are_out_of_range(dtype, size):
    x = np.array([1.0, 2.0, -2.0])
    y, radius = (x * size).astype(dtype), dtype(size)
    for function in (implicit.project_ball, lambda x, _: implicit.project_second_order_cone(x)):
        for way in (function, wl.jit(function)):
            np.testing.assert_allclose(way(y, radius) / radius, function(x, 1.0), rtol=1e-6)
        np.testing.assert_allclose(
            wl.jacobian(function)(y, radius), wl.jacobian(function)(x, 1.0), rtol=1e-6, atol=1e-7
        )


def test_vectors_of_no_entry():
    assert (
        implicit.project_l1_ball(np.zeros((3, 0))).shape == (3, 0) and implicit.project_psd(np.zeros((0, 0))).size == 0
    )
    with pytest.raises(ArgumentError, match=r"vectors of one entry at least, got shape \(3, 0\)"):
        implicit.project_simplex(np.zeros((3, 0)))
