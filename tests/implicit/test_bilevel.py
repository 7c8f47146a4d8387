"""Hyper-gradients of a ridge's and a logistic regression's validation loss: closed form, and differences."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.testing import check_grads

RNG = np.random.default_rng(0)
FEATURES = 4
X, X_VALID = RNG.normal(size=(12, FEATURES)), RNG.normal(size=(20, FEATURES))
Y, Y_VALID = (x @ [2.0, -1.0, 0.0, 0.0] + RNG.normal(size=len(x)) for x in (X, X_VALID))
LABELS, LABELS_VALID = np.sign(Y), np.sign(Y_VALID)


def ridge(log_penalty):
    def loss(w, log_penalty):
        return 0.5 * np.sum((X @ w - Y) ** 2) + 0.5 * np.sum(np.exp(log_penalty) * w**2)

    w = wl.implicit.minimize(loss, np.zeros(FEATURES), log_penalty, solver="newton")
    return np.mean((X_VALID @ w - Y_VALID) ** 2)


def ridge_closed(log_penalty):
    system = X.T @ X + np.exp(log_penalty) * np.eye(FEATURES)
    return np.mean((X_VALID @ np.linalg.solve(system, X.T @ Y) - Y_VALID) ** 2)


def logistic(log_penalty):
    def loss(w, log_penalty):
        return np.sum(np.logaddexp(0, -LABELS * (X @ w))) + 0.5 * np.sum(np.exp(log_penalty) * w**2)

    w = wl.implicit.minimize(loss, np.zeros(FEATURES), log_penalty, solver="newton")
    return np.mean(np.logaddexp(0, -LABELS_VALID * (X_VALID @ w)))


@pytest.mark.parametrize("log_penalty", [-3.0, 2.0, np.linspace(-2, 2, FEATURES)], ids=["weak", "strong", "each"])
def test_ridge(log_penalty):
    np.testing.assert_allclose(wl.grad(ridge)(log_penalty), wl.grad(ridge_closed)(log_penalty), rtol=1e-9)
    np.testing.assert_allclose(wl.hessian(ridge)(log_penalty), wl.hessian(ridge_closed)(log_penalty), rtol=1e-8)


@pytest.mark.parametrize("log_penalty", [0.5, np.linspace(-1, 1, FEATURES)], ids=["one", "each"])
def test_logistic(log_penalty):
    check_grads(logistic, (log_penalty,), order=2 if np.ndim(log_penalty) else 1)


def test_a_compiled_batch_of_penalties():
    each = np.linspace(-2, 2, 3)
    values, slopes = wl.jit(wl.vmap(wl.value_and_grad(logistic)))(each)
    np.testing.assert_allclose(values, [logistic(x) for x in each], rtol=1e-10)
    np.testing.assert_allclose(slopes, [wl.grad(logistic)(x) for x in each], rtol=1e-8)


def lasso_by_fixed_point(strength):
    rate = 1 / np.linalg.norm(X, 2) ** 2
    step = lambda w, s: wl.implicit.prox_l1(w - rate * X.T @ (X @ w - Y), rate * s)
    return wl.implicit.fixed_point(step, np.zeros(FEATURES), strength, solver="picard")


def lasso_by_minimize(strength):
    steps = wl.implicit.ProximalGradient(lambda w, t: wl.implicit.prox_l1(w, t * strength))
    return wl.implicit.minimize(lambda w: 0.5 * np.sum((X @ w - Y) ** 2), np.zeros(FEATURES), solver=steps)


@pytest.mark.parametrize("lasso", [lasso_by_fixed_point, lasso_by_minimize])
def test_lasso_by_its_proximal_step(lasso):
    w, slope = wl.jvp(lasso, (3.0,), (1.0,))
    on = w != 0
    assert 0 < on.sum() < FEATURES
    gradient = X.T @ (X @ w - Y)
    np.testing.assert_allclose(gradient[on], -3 * np.sign(w[on]), rtol=1e-9)  # the conditions of a minimum
    assert np.all(np.abs(gradient[~on]) < 3)
    np.testing.assert_allclose(slope[on], -np.linalg.solve(X[:, on].T @ X[:, on], np.sign(w[on])), rtol=1e-9)
    assert not slope[~on].any()
