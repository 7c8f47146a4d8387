"""Proximal operators: minimisers by SciPy and by Fenchel's equality, Moreau's identities, derivatives, thresholds."""

import numpy as np
import pytest
from scipy import optimize

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.testing import check_grads

implicit = wl.implicit
RNG = np.random.default_rng(0)
X = RNG.normal(size=5) * 2
MATRIX, SQUARE = RNG.normal(size=(3, 2)) * 2, RNG.normal(size=(3, 3))


def total(y):
    return np.sum(np.abs(y))


def norm(y):
    return np.sqrt(np.sum(y * y))


def nuclear(y):
    return np.linalg.svd(y, compute_uv=False).sum()


def log_det(y):
    y = (y + y.T) / 2
    return -np.linalg.slogdet(y)[1] if np.linalg.eigvalsh(y).min() > 0 else np.inf


# name: (operator, x, f, the norm of which f is the dual, if f is a norm)
CASES = {
    "l1": (implicit.prox_l1, X, total, lambda d: np.abs(d).max()),
    "l2": (implicit.prox_l2, X, norm, norm),
    "linf": (implicit.prox_linf, X, lambda y: np.abs(y).max(), total),
    "nuclear": (implicit.prox_nuclear, MATRIX, nuclear, lambda d: np.linalg.norm(d, 2)),
    "ridge": (implicit.prox_ridge, X, lambda y: np.sum(y * y) / 2, None),
    "nonnegative_l1": (
        implicit.prox_nonnegative_l1, X, lambda y: np.sum(y) if np.all(y >= 0) else np.inf, None,
    ),
    "elastic_net": (
        lambda x, strength: implicit.prox_elastic_net(x, 0.7 * strength, 0.4 * strength), X,
        lambda y: 0.7 * total(y) + 0.2 * np.sum(y * y), None,
    ),
    "log_det": (implicit.prox_log_det, (SQUARE + SQUARE.T) / 2, log_det, None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_argmin(name):
    prox, x, f, _ = CASES[name]
    p = prox(x, 0.6)
    assert not np.allclose(p, x)

    def objective(y):
        y = np.reshape(y, x.shape)
        return 0.6 * f(y) + np.sum((y - x) ** 2) / 2

    # The objective is 1-strongly convex: it rises by |y - p|^2 / 2 at least away from its minimiser.
    for _ in range(20):
        step = RNG.normal(size=x.shape) * 10.0 ** RNG.uniform(-4, 0)
        step = step + step.T if name == "log_det" else step
        assert objective(p + step) >= objective(p) + np.sum(step**2) / 2 - 1e-12
    found = optimize.minimize(objective, np.ravel(p) + 0.01, method="Nelder-Mead", options={"maxfev": 400})
    assert found.fun >= objective(p) - 1e-14


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[3]])
def test_fenchel_equality_of_norms(name):
    """x - p is in the strength times the unit ball of the dual norm, and attains f(p) there."""
    prox, x, f, dual = CASES[name]
    p = prox(x, 0.6)
    d = (x - p) / 0.6
    assert dual(d) <= 1 + 1e-14
    np.testing.assert_allclose(np.sum(d * p), f(p), rtol=1e-13)
    np.testing.assert_allclose(prox(x, 100.0), 0, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_firmly_nonexpansive(name):
    prox, x, _, _ = CASES[name]
    for _ in range(10):
        y = x + RNG.normal(size=x.shape)
        y = (y + y.T) / 2 if name == "log_det" else y
        px, py = prox(x, 0.6), prox(y, 0.6)
        assert np.sum((px - py) ** 2) <= np.sum((px - py) * (x - y)) + 1e-13


@pytest.mark.parametrize("name", CASES)
def test_derivatives_in_the_point_and_the_strength(name):
    prox, x, _, _ = CASES[name]
    check_grads(prox, (x, 0.6))
    value, push = wl.jit(lambda x, s: wl.jvp(prox, (x, s), (x, s)))(x.astype(np.float32), np.float32(0.6))
    assert value.dtype == push.dtype == np.float32
    np.testing.assert_allclose(push, wl.jvp(prox, (x, 0.6), (x, 0.6))[1], rtol=1e-4, atol=1e-5)
    batch = np.stack([x, 2 * x, -x])
    strengths = np.array([0.6, 0.1, 0.3])
    np.testing.assert_allclose(
        wl.vmap(prox)(batch, strengths), [prox(a, s) for a, s in zip(batch, strengths, strict=True)], rtol=1e-13
    )


@pytest.mark.parametrize("singular", [(2.0, 2.0), (2.0, 0.3), (2.0, 0.0)])
def test_nuclear_with_repeated_singular_values(singular):
    u, v = np.linalg.qr(RNG.normal(size=(3, 2)))[0], np.linalg.qr(RNG.normal(size=(2, 2)))[0]
    x = (u * singular) @ v.T
    np.testing.assert_allclose(
        implicit.prox_nuclear(x, 0.5), (u * np.maximum(np.array(singular) - 0.5, 0)) @ v.T, atol=1e-14
    )
    check_grads(implicit.prox_nuclear, (x, 0.5))
    np.testing.assert_allclose(wl.jacobian(implicit.prox_nuclear)(x / 8, 0.5), 0, atol=1e-14)


def test_log_det_with_repeated_eigenvalues():
    check_grads(implicit.prox_log_det, (np.diag([1.0, 1.0, -2.0, 0.0]), 0.5))
    y = implicit.prox_log_det(SQUARE, 0.5)
    np.testing.assert_allclose(y - 0.5 * np.linalg.inv(y), (SQUARE + SQUARE.T) / 2, atol=1e-13)


# -- total variation --


def by_the_dual(x, strength):
    """x - D'u, with the u between -strength and strength that makes it shortest."""
    differences = np.diff(np.eye(len(x)), axis=0)
    bounds = (-strength, strength)
    return x - differences.T @ optimize.lsq_linear(differences.T, x, bounds, tol=1e-15, method="bvls").x


@pytest.mark.parametrize("n", [2, 3, 12, 40])
@pytest.mark.parametrize("strength", [0.05, 0.5, 2.0, 50.0])
def test_total_variation(n, strength):
    steps = np.random.default_rng(n).normal(size=n) + 2 * (np.arange(n) > n / 2)
    for x in (steps, np.round(steps), steps[::-1]):
        np.testing.assert_allclose(implicit.prox_total_variation(x, strength), by_the_dual(x, strength), atol=1e-12)


def test_total_variation_in_batches():
    x, strengths = RNG.normal(size=(2, 3, 33)), np.array([0.2, 0.5, 1.0])
    got = wl.jit(implicit.prox_total_variation)(x.astype(np.float32), strengths.astype(np.float32))
    want = [[by_the_dual(row, s) for row, s in zip(rows, strengths, strict=True)] for rows in x]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=1e-5)
    check_grads(implicit.prox_total_variation, (x[0], strengths), order=1)
    np.testing.assert_allclose(wl.vmap(implicit.prox_total_variation, in_axes=(1, 0), out_axes=1)(x, strengths), want)
    np.testing.assert_array_equal(implicit.prox_total_variation(x, 0), x)
    np.testing.assert_array_equal(implicit.prox_total_variation([[1], [2]]), [[1], [2]])
    assert implicit.prox_total_variation([]).shape == (0,)


# -- Moreau --


def test_envelope():
    huber = implicit.moreau_envelope(implicit.prox_l1, total)
    inside = np.abs(X) <= 0.7
    np.testing.assert_allclose(huber(X, 0.7), np.sum(np.where(inside, X**2 / 1.4, np.abs(X) - 0.35)), rtol=1e-14)
    np.testing.assert_allclose(wl.grad(huber)(X, 0.7), np.where(inside, X / 0.7, np.sign(X)), rtol=1e-14)
    np.testing.assert_allclose(wl.hessian(huber)(X, 0.7), np.diag(np.where(inside, 1 / 0.7, 0)), rtol=1e-14)
    check_grads(huber, (X, 0.7))
    batch = wl.jit(wl.vmap(huber, in_axes=(0, None)))(np.stack([X, 2 * X]), 0.7)
    np.testing.assert_allclose(batch, [huber(X, 0.7), huber(2 * X, 0.7)], rtol=1e-14)


def test_envelope_never_differentiates_f():
    distance = implicit.moreau_envelope(
        lambda x, strength: implicit.project_ball(x), lambda y: wl.stop_gradient(np.where(norm(y) > 2, np.inf, 0.0))
    )
    x = np.array([3.0, 4.0])
    np.testing.assert_allclose(distance(x), 8.0)  # half the square of the distance to the ball
    np.testing.assert_allclose(wl.grad(distance)(x), [2.4, 3.2])


@pytest.mark.parametrize(
    ("prox", "conjugate"),
    [
        (implicit.prox_l1, lambda x: implicit.project_linf_ball(x)),
        (implicit.prox_l2, lambda x: implicit.project_ball(x)),
        (implicit.prox_linf, lambda x: implicit.project_l1_ball(x)),
        (implicit.prox_ridge, lambda x: x / 2),
    ],
)
def test_conjugates_and_decomposition(prox, conjugate):
    found = implicit.conjugate_prox(prox)
    np.testing.assert_allclose(found(X), conjugate(X), rtol=1e-14)
    np.testing.assert_allclose(found(X) + prox(X), X, rtol=1e-14)
    if prox is not implicit.prox_ridge:  # that of an indicator doesn't know a strength
        np.testing.assert_allclose(found(X, 0.3), conjugate(X), rtol=1e-14)
    np.testing.assert_allclose(implicit.conjugate_prox(found)(X, 0.7), prox(X, 0.7), rtol=1e-13)
    check_grads(found, (X, 0.7), order=1)


# -- thresholds and refusals --


def test_what_is_at_the_threshold_is_held():
    jacobian = wl.jacobian
    np.testing.assert_array_equal(jacobian(implicit.prox_l1)(np.array([1.0, -1.0, 0.0])), 0)
    np.testing.assert_array_equal(jacobian(implicit.prox_nonnegative_l1)(np.array([1.0, 0.0])), 0)
    np.testing.assert_array_equal(jacobian(implicit.prox_l2)(np.array([1.0, 0.0])), 0)
    np.testing.assert_allclose(jacobian(implicit.prox_nuclear)(np.eye(2)), 0, atol=1e-15)
    # With strength 0 nothing is a threshold: the identity, at 0 too.
    np.testing.assert_array_equal(jacobian(implicit.prox_l1)(np.zeros(2), np.array([0.0, 1.0])), np.diag([1.0, 0.0]))
    np.testing.assert_array_equal(jacobian(implicit.prox_l2)(np.zeros(2), 0.0), np.eye(2))


def test_refused():
    with pytest.raises(ArgumentError, match="prox_l1: strength must be at least 0, got -1"):
        implicit.prox_l1(X, -1)
    with pytest.raises(ArgumentError, match="prox_nuclear takes matrices"):
        implicit.prox_nuclear(X)
    with pytest.raises(ArgumentError, match=r"square matrices \(..., n, n\), got shape \(3, 2\)"):
        implicit.prox_log_det(MATRIX)
    with pytest.raises(ArgumentError, match=r"one number, got shape \(2,\)"):
        implicit.moreau_envelope(implicit.prox_l1, total)(X, np.ones(2))


@pytest.mark.parametrize("name", ["l1", "nonnegative_l1", "ridge", "elastic_net", "l2", "linf", "total_variation"])
def test_a_negative_strength_in_compiled_code_gives_nan(name):
    prox = getattr(implicit, f"prox_{name}")
    assert np.isnan(wl.jit(prox)(np.array([3.0, -1.0, 0.2]), -0.5)).all()
