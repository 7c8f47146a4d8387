"""The problem set: closed forms of its values and derivatives, and differences."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.stats import norm

import wonderland as wl
from wonderland.core import tree
from wonderland.testing import problems
from wonderland.testing.problems import PROBLEMS


def flat(result):
    return np.concatenate([np.ravel(leaf) for leaf in tree.flatten(result)[0]])


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_slope_is_that_of_differences(name):
    f, args, argnums = PROBLEMS[name]
    jacobian = flat(wl.jacobian(f, argnums)(*args))
    rng = np.random.default_rng(0)
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    direction = [tree.tree_map(lambda a: rng.normal(size=np.shape(a)), args[n]) for n in numbers]

    def along(step):
        moved = list(args)
        for n, d in zip(numbers, direction, strict=True):
            moved[n] = tree.tree_map(lambda a, b: a + step * b, args[n], d)
        return flat(f(*moved))

    h = 1e-5
    slope = jacobian.reshape(along(0.0).size, -1) @ flat(direction)
    np.testing.assert_allclose((along(h) - along(-h)) / (2 * h), slope, rtol=1e-6, atol=1e-8 * np.abs(jacobian).max())


def test_rosenbrock_at_its_minimum():
    x = np.ones(7)
    assert problems.rosenbrock(x) == 0
    np.testing.assert_array_equal(wl.grad(problems.rosenbrock)(x), np.zeros(7))


def test_logistic_regression():
    w, X, y = PROBLEMS["logistic_regression"].args
    expected = -X.T @ (y / (1 + np.exp(y * (X @ w)))) / len(y) + 0.1 * w
    np.testing.assert_allclose(wl.grad(problems.logistic_regression)(w, X, y), expected, rtol=1e-12)


def test_networks():
    params, x, y = PROBLEMS["tanh_network"].args
    hidden = np.tanh(x @ params["W1"] + params["b1"])
    error = 2 * (hidden @ params["W2"] + params["b2"] - y) / y.size
    grads = wl.grad(problems.tanh_network)(params, x, y)
    np.testing.assert_allclose(grads["W2"], hidden.T @ error, rtol=1e-12)
    np.testing.assert_allclose(grads["b1"], ((error @ params["W2"].T) * (1 - hidden**2)).sum(0), rtol=1e-12)

    params, x, labels = PROBLEMS["relu_network"].args
    hidden = np.maximum(x @ params["W1"] + params["b1"], 0)
    logits = hidden @ params["W2"] + params["b2"]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(
        problems.relu_network(params, x, labels), -np.log(p[np.arange(len(x)), labels]).mean(), rtol=1e-12
    )
    error = (p - np.eye(p.shape[1])[labels]) / len(x)
    grads = wl.grad(problems.relu_network)(params, x, labels)
    np.testing.assert_allclose(grads["W2"], hidden.T @ error, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(grads["W1"], x.T @ ((error @ params["W2"].T) * (hidden > 0)), rtol=1e-12, atol=1e-15)


def test_helmholtz_energy():
    x, A, b = PROBLEMS["helmholtz_energy"].args
    energy = problems.helmholtz_energy
    ideal = wl.grad(energy)(x, np.zeros_like(A), b)
    bx = b @ x
    np.testing.assert_allclose(ideal, np.log(x / (1 - bx)) + 1 + np.sum(x) * b / (1 - bx), rtol=1e-12)
    root = np.sqrt(2)
    log = np.log((1 + (1 + root) * bx) / (1 + (1 - root) * bx))
    dlog = (1 + root) / (1 + (1 + root) * bx) - (1 - root) / (1 + (1 - root) * bx)
    quadratic = x @ A @ x / (2 * root * bx)
    expected = -(2 * A @ x / (2 * root * bx) - quadratic / bx * b) * log - quadratic * dlog * b
    np.testing.assert_allclose(wl.grad(energy)(x, A, b) - ideal, expected, rtol=1e-10)


def link(theta, d, a, alpha):
    s, c, sa, ca = np.sin(theta), np.cos(theta), np.sin(alpha), np.cos(alpha)
    return np.array([[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]])


def test_robot_arm_is_the_product_of_its_links():
    p, half = problems, np.pi / 2
    table = [(p.ARM_D1, p.ARM_A1, half), (0, p.ARM_A2, 0), (0, p.ARM_A3, half), (p.ARM_D4, 0, -half), (0, 0, half),
             (p.ARM_D6, 0, 0)]  # fmt: skip
    for t in np.random.default_rng(0).uniform(-1, 1, size=(5, 6)):
        T = np.eye(4)
        for theta, row in zip(t, table, strict=True):
            T = T @ link(theta, *row)
        px, py, pz, phi, theta, psi = problems.robot_arm(t)
        np.testing.assert_allclose([px, py, pz], T[:3, 3], rtol=1e-12)
        turned = link(phi, 0, 0, -half) @ link(theta, 0, 0, half) @ link(psi, 0, 0, 0)
        np.testing.assert_allclose(turned[:3, :3], T[:3, :3], atol=1e-12)


def test_roe_flux_of_equal_states_and_of_supersonic_flow_is_the_flux_of_a_state():
    def flux(density, momentum, energy, gamma=1.4):
        v = momentum / density
        pressure = (gamma - 1) * (energy - 0.5 * momentum * v)
        return np.array([momentum, momentum * v + pressure, v * (energy + pressure)])

    state = np.array([1.0, 0.4, 2.6])
    np.testing.assert_allclose(problems.roe_flux(np.concatenate([state, state])), flux(*state), rtol=1e-12)
    fast = np.array([1.0, 5.0, 15.0]), np.array([0.9, 4.6, 13.5])
    np.testing.assert_allclose(problems.roe_flux(np.concatenate(fast)), flux(*fast[0]), rtol=1e-12)


@pytest.mark.parametrize(("name", "low"), [("propane_combustion", 1e-9), ("heart_dipole", -np.inf)])
def test_the_systems_have_solutions_that_the_jacobian_leads_to(name, low):
    f, (x,), _ = PROBLEMS[name]
    found = least_squares(f, x, jac=wl.jacobian(f), bounds=(low, np.inf), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert np.abs(found.fun).max() < 1e-9


def test_black_scholes_greeks():
    args = S, K, r, sigma, T = PROBLEMS["black_scholes"].args
    deviation = sigma * np.sqrt(T)
    d1 = (np.log(S / K) + (r + sigma**2 / 2) * T) / deviation
    d2, discount = d1 - deviation, np.exp(-r * T)
    expected = [norm.cdf(d1), -discount * norm.cdf(d2), K * T * discount * norm.cdf(d2), S * norm.pdf(d1) * np.sqrt(T),
                S * norm.pdf(d1) * sigma / (2 * np.sqrt(T)) + r * K * discount * norm.cdf(d2)]  # fmt: skip
    np.testing.assert_allclose(wl.grad(problems.black_scholes, (0, 1, 2, 3, 4))(*args), expected, rtol=1e-12)
    gamma = norm.pdf(d1) / (S * deviation)
    np.testing.assert_allclose(wl.grad(wl.grad(problems.black_scholes))(*args), gamma, rtol=1e-12)
