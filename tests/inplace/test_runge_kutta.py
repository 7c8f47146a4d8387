"""Time stepping: Runge-Kutta methods with stages in rows of an array, adaptive steps, leapfrog, multistep methods."""

import numpy as np
import pytest
from checking import check

import wonderland as wl

PENDULUM = np.array([9.8, 0.3])  # stiffness and damping
Y0 = np.array([0.9, -0.2])


def pendulum(t, y, p):
    dydt = np.zeros(2)
    dydt[0] = y[1]
    dydt[1] = -p[0] * np.sin(y[0]) - p[1] * y[1]
    return dydt


def lotka_volterra(t, y, p):
    prey, predators = y
    return np.array([prey * (p[0] - predators), predators * (prey - p[1])])


def rk4(rhs, y0, p, h=0.05, steps=6):
    y = np.array(y0, dtype=float)
    k = np.zeros((4, len(y)))
    for i in range(steps):
        t = i * h
        k[0] = rhs(t, y, p)
        k[1] = rhs(t + h / 2, y + h / 2 * k[0], p)
        k[2] = rhs(t + h / 2, y + h / 2 * k[1], p)
        k[3] = rhs(t + h, y + h * k[2], p)
        y += h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
    return y


def test_rk4_with_stages_in_rows():
    check(lambda y0, p: rk4(pendulum, y0, p), Y0, PENDULUM)
    check(lambda y0, p: rk4(lotka_volterra, y0, p), [1.2, 0.7], [0.6, 1.1])


def test_rk4_against_the_closed_form():
    """y' = -p y with rk4: y is multiplied by the Taylor polynomial of degree four."""

    def decay(p):
        return rk4(lambda t, y, p: -p * y, np.ones(1), p, h=0.1, steps=5)[0]

    z = -0.07
    factor = 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24
    slope = 1 + z + z**2 / 2 + z**3 / 6
    assert np.isclose(wl.grad(wl.lift(decay))(0.7), 5 * factor**4 * slope * -0.1, rtol=1e-13)


A = [
    [],
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
]
B = [35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784]


def by_tableau(y0, p, h=0.1, steps=3):
    y = y0.copy()
    stages = np.empty((len(B), y.size))
    for _ in range(steps):
        for i, row in enumerate(A):
            at = y.copy()
            for j, a in enumerate(row):
                at += h * a * stages[j]
            stages[i, :] = pendulum(0.0, at, p)
        y += h * (np.array(B) @ stages)
    return y


def test_a_tableau_walked_by_loops():
    check(by_tableau, Y0, PENDULUM)


def trajectory(y0, p, h=0.1, steps=8):
    path = np.zeros((steps + 1, len(y0)))
    path[0] = y0
    for i in range(steps):
        mid = path[i] + h / 2 * lotka_volterra(0.0, path[i], p)
        path[i + 1] = path[i] + h * lotka_volterra(0.0, mid, p)
    return path


def test_a_whole_trajectory():
    check(trajectory, [1.2, 0.7], [0.6, 1.1])


def adaptive(y0, p, end=0.5, tolerance=1e-5):
    """Heun's method with Euler's embedded; the step is chosen by values, without a derivative."""
    t, h = 0.0, 0.05
    y = np.array(y0)
    taken = 0
    while t < end:
        h = min(h, end - t)
        k1 = pendulum(t, y, p)
        k2 = pendulum(t + h, y + h * k1, p)
        error = np.max(np.abs(h / 2 * (k2 - k1)))
        if error < tolerance * 100:
            y = y + h / 2 * (k1 + k2)
            t += h
            taken += 1
        h *= 0.5 if error > tolerance * 100 else 1.5 if error < tolerance * 10 else 1.0
    return y


def test_adaptive_steps():
    check(adaptive, Y0, PENDULUM, h=1e-6, rtol=1e-5, jit=False, vmap=False)


def test_steps_that_depend_on_the_state():
    def f(y0):
        y, t = y0.copy(), 0.0
        while t < 1.0:
            h = 0.2 / (1.0 + abs(y[0]))  # differentiated with the rest
            y[1] -= h * y[0]
            y[0] += h * y[1]
            t = t + h
        return y

    check(f, Y0, h=1e-5, jit=False, vmap=False)


def leapfrog(q0, p0, mass, dt=0.05, steps=10):
    q, p = q0.copy(), p0.copy()
    force = np.empty_like(q)

    def update(force):
        force[:] = -np.sin(q)
        force[1:] -= 0.1 * q[:-1]

    update(force)
    for _ in range(steps):
        p += 0.5 * dt * force
        q += dt * p / mass
        update(force)
        p += 0.5 * dt * force
    return q, p


def test_leapfrog_with_a_closure_that_writes():
    q = np.array([0.3, -0.4, 0.8])
    check(leapfrog, q, q[::-1], 1.7)


def adams_bashforth(y0, rate, h=0.1, steps=7):
    history = np.zeros((3, len(y0)))
    y = y0 * 1.0
    for i in range(steps):
        history[1:] = history[:-1]  # the rows move on: NumPy reads before it writes
        history[0] = rate * y * (1.0 - y)
        if i < 2:
            y += h * history[0]
        else:
            y += h * (23 * history[0] - 16 * history[1] + 5 * history[2]) / 12
    return y


def test_a_history_that_moves_on():
    check(adams_bashforth, np.array([0.2, 0.5, 0.9]), 1.3)


class Integrator:
    """Work arrays that live as long as the object."""

    def __init__(self, size):
        self.k1 = np.zeros(size)
        self.k2 = np.zeros(size)
        self.calls = 0

    def rhs(self, y, out):
        self.calls += 1
        np.multiply(y, y, out=out)
        np.negative(out, out=out)

    def step(self, y, h):
        self.rhs(y, self.k1)
        self.rhs(y + h * self.k1, self.k2)
        y += h / 2 * (self.k1 + self.k2)


def with_an_object(y0, h):
    y = y0.copy()
    stepper = Integrator(len(y))
    for _ in range(4):
        stepper.step(y, h)
    assert stepper.calls == 8
    return y


def test_work_arrays_of_an_object():
    check(with_an_object, np.array([0.2, 0.5, 0.9]), 0.1)


def test_work_arrays_made_outside_are_plain_and_refuse():
    stepper = Integrator(2)

    def f(y0):
        y = y0.copy()
        stepper.step(y, 0.1)
        return np.sum(y)

    with pytest.raises(wl.LostDerivativeError, match=r"wl\.lift"):
        wl.grad(wl.lift(f))(Y0)
