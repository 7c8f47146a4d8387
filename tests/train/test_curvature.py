"""Gradient descent's guarantee, and optimisers that use curvature."""

from functools import partial

import numpy as np
import pytest
from small_networks import Net, Vector, data, loss

import wonderland as wl
from wonderland import nn, train

# Theorem 1.11 of C ---------------------------------------------------------------------------------------------------

Q = np.diag([1.0, 4.0, 0.0, 25.0])
R = np.random.default_rng(3).normal(size=(12, 4))
LABELS = np.sign(R @ np.array([1.0, -1.0, 0.5, 2.0]) + 0.8 * np.random.default_rng(4).normal(size=12))
CONVEX = {  # a convex function, the Lipschitz constant of its gradient, where it is smallest
    "quadratic": (lambda w: 0.5 * w @ Q @ w, 25.0),
    "least squares": (lambda w: 0.5 * np.sum((R @ w - LABELS) ** 2), np.linalg.norm(R, 2) ** 2),
    "logistic": (
        lambda w: np.mean(np.logaddexp(0.0, -LABELS * (R @ w))) + 0.01 * np.sum(w**2),
        np.linalg.norm(R, 2) ** 2 / 48 + 0.02,
    ),
    "Huber": (lambda w: np.sum(np.where(np.abs(w) < 1, 0.5 * w**2, np.abs(w) - 0.5)), 1.0),
    "softplus of both sides": (lambda w: np.sum(np.logaddexp(w, -w)), 1.0),
    "fourth power, far from flat": (lambda w: np.sum(np.sqrt(1 + w**2) - 1), 1.0),
}


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_theorem_1_11(name, share):
    """C(w_t) - min C <= |w_0 - w*|^2 / (2 eta t), for eta < 1 / L."""
    from scipy.optimize import minimize

    f, lipschitz = CONVEX[name]
    eta, start = share / lipschitz, np.array([2.0, -3.0, 1.5, 1.0])
    best = minimize(f, np.zeros(4), jac=wl.grad(f), method="BFGS", options={"gtol": 1e-12}).x
    if name == "quadratic":
        best = np.array([0.0, 0.0, start[2], 0.0])  # of the set of minimisers, the nearest
    model = Vector(start)
    optimizer = train.SGD(model, eta)
    one = wl.jit(lambda m, o: o.update(m, wl.grad(lambda m: f(m.w))(m)))
    values = [f(start)]
    for t in range(1, 201):
        one(model, optimizer)
        values.append(f(model.w))
        assert values[-1] - f(best) <= np.sum((start - best) ** 2) / (2 * eta * t) + 1e-12
    assert np.all(np.diff(values) <= 1e-12)


def test_a_rate_above_two_over_l_diverges():
    model = Vector([2.0, -3.0, 1.5, 1.0])
    optimizer = train.SGD(model, 2.1 / 25)
    for _ in range(200):
        optimizer.update(model, {"w": Q @ model.w})
    assert 0.5 * model.w @ Q @ model.w > 1e3


# Curvature -----------------------------------------------------------------------------------------------------------


def rosenbrock(model):
    w = model.w
    return np.sum(100.0 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("make", "steps"), [(train.LBFGS, 60), (partial(train.NewtonCG, forcing=0.01), 40)])
def test_minimisers_on_rosenbrock(make, steps, jitted):
    model = Vector([-1.2, 1.0])
    optimizer = make(model)
    one = lambda m, o: o.minimize(rosenbrock, m)
    one = wl.jit(one) if jitted else one
    values = [float(one(model, optimizer)) for _ in range(steps if jitted else 12)]
    assert np.all(np.diff(values) <= 1e-12)
    if jitted:
        np.testing.assert_allclose(model.w, 1.0, rtol=1e-6)
        assert values[-1] < 1e-12
    else:
        assert values[-1] < values[0] / 4


def test_a_quadratic_takes_newton_few_steps():
    a = R.T @ R + np.eye(4)
    model = Vector(np.ones(4))
    optimizer = train.NewtonCG(model)
    for _ in range(6):
        optimizer.minimize(lambda m: 0.5 * m.w @ a @ m.w - np.sum(m.w), model)
    np.testing.assert_allclose(model.w, np.linalg.solve(a, np.ones(4)), rtol=1e-8)


def test_newton_leaves_a_saddle():
    model = Vector([0.5, 1e-3])
    optimizer = train.NewtonCG(model)
    saddle = lambda m: m.w[0] ** 2 - m.w[1] ** 2 + 0.25 * m.w[1] ** 4
    for _ in range(30):
        optimizer.minimize(saddle, model)
    np.testing.assert_allclose(np.abs(model.w), [0, np.sqrt(2)], atol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_gauss_newton_fits_a_curve(jitted):
    t = np.linspace(0, 4, 30)
    target = 2.5 * np.exp(-1.3 * t)

    class Curve(nn.Module):
        def __init__(self):
            self.scale, self.decay = np.array(1.0), np.array(0.5)

        def __call__(self, t):
            return self.scale * np.exp(-self.decay * t)

    model = Curve()
    optimizer = train.GaussNewton(model)
    one = lambda m, o: o.minimize(lambda out: 0.5 * np.sum((out - target) ** 2), m, t)
    one = wl.jit(one) if jitted else one
    values = [float(one(model, optimizer)) for _ in range(15)]
    assert values[-1] < 1e-20 and np.all(np.diff(values) <= 0)
    np.testing.assert_allclose([model.scale, model.decay], [2.5, 1.3], rtol=1e-8)


def test_gauss_newton_is_least_squares_in_one_step():
    model = Vector(np.zeros(4))
    optimizer = train.GaussNewton(model, damping=0.0, tolerance=1e-13)
    optimizer.minimize(lambda r: 0.5 * np.sum(r**2), model, outputs=lambda m: R @ m.w - LABELS)
    np.testing.assert_allclose(model.w, np.linalg.lstsq(R, LABELS, rcond=None)[0], rtol=1e-9)


@pytest.mark.parametrize("make", [train.LBFGS, train.NewtonCG])
def test_minimisers_of_a_network(make):
    x, y = data()
    model = Net()
    optimizer = make(model)
    one = wl.jit(lambda m, o, x, y: o.minimize(loss, m, x, y))
    values = [float(one(model, optimizer, x, y)) for _ in range(30)]
    assert values[-1] < 0.1 * values[0]
    assert model.calls == 0  # the loss is called as often as the search needs: buffers aren't touched
    with pytest.raises(wl.ArgumentError, match=r"gone: first\.bias"):
        optimizer.minimize(loss, model.freeze("first.bias"), x, y)
    if make is train.NewtonCG:
        with pytest.raises(wl.ArgumentError, match="minimize"):
            optimizer.update(model, None)


def test_lbfgs_agrees_with_scipys_minimum():
    from scipy.optimize import minimize

    f, _ = CONVEX["logistic"]
    model = Vector(np.array([2.0, -3.0, 1.5, 1.0]))
    optimizer = train.LBFGS(model)
    for _ in range(25):
        optimizer.minimize(lambda m: f(m.w), model)
    best = minimize(f, np.zeros(4), jac=wl.grad(f), method="L-BFGS-B", options={"gtol": 1e-12, "ftol": 1e-16}).x
    np.testing.assert_allclose(model.w, best, atol=1e-6)
