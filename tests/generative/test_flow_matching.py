"""Flow matching: exact velocities of Gaussians and points, orders of the integrators, couplings by enumeration."""

from functools import partial
from itertools import permutations

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train
from wonderland.core.errors import ArgumentError
from wonderland.generative import flow_matching_loss, flow_sample, optimal_pairs

MEAN, SPREAD = 1.5, 0.4


def gaussian_velocity(x, t, mean=MEAN):
    """E[epsilon - x0 | x_t] for x0 of N(mean, SPREAD^2)."""
    t = wl.generative.as_sigma(t, x)
    variance = (1 - t) ** 2 * SPREAD**2 + t**2
    return -mean + (t - (1 - t) * SPREAD**2) / variance * (x - (1 - t) * mean)


def mixture_velocity(x, t):
    """The same for a mixture of N(MEAN, SPREAD^2) and N(-MEAN, SPREAD^2), alike: that of each by what x tells."""
    variance = (1 - t) ** 2 * SPREAD**2 + t**2
    first = 1 / (1 + np.exp(-2 * (1 - t) * MEAN * x / variance))
    return first * gaussian_velocity(x, t) + (1 - first) * gaussian_velocity(x, t, -MEAN)


def test_the_flow_of_a_gaussian_is_the_monotone_map():
    z = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(flow_sample(gaussian_velocity, z, 100, method="rk4"), MEAN + SPREAD * z, atol=1e-9)


@pytest.fixture(scope="module")
def fine():
    """Noise, and what it becomes."""
    z = np.linspace(-2, 2, 8)[:, None]
    return z, wl.jit(lambda z: flow_sample(mixture_velocity, z, 4000, method="rk4"))(z)


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("heun", 2), ("midpoint", 2), ("rk4", 4)])
def test_orders_of_convergence(method, order, fine):
    z, exact = fine
    made = [wl.jit(lambda z, n=n: flow_sample(mixture_velocity, z, n, method=method))(z) for n in (100, 200)]
    errors = [np.max(np.abs(x - exact)) for x in made]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.3


def test_trajectories_and_compiled_code():
    z = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    way = flow_sample(gaussian_velocity, z, 8, trajectory=True)
    assert way.shape == (9, 3, 2) and way.dtype == np.float32
    np.testing.assert_array_equal(way[0], z)
    last = wl.jit(lambda z: flow_sample(gaussian_velocity, z, 8))(z)
    np.testing.assert_allclose(last, way[-1], rtol=1e-5, atol=1e-6)
    drawn = flow_sample(gaussian_velocity, (5, 2), 4, key=wl.random.key(1))
    assert drawn.shape == (5, 2) and drawn.dtype == np.float32


def test_the_velocity_of_a_point_has_no_loss():
    goal = np.array([0.3, -1.0])
    x0 = np.broadcast_to(goal, (50, 2))
    exact = lambda x, t: (x - goal) / t[:, None]
    times = np.linspace(0.1, 0.9, 50)
    assert flow_matching_loss(exact, x0, wl.random.key(0), times=times) < 1e-25


def test_the_exact_velocity_has_the_least_loss():
    """Its loss is the mean of Var(epsilon - x0 | x_t); an offset d adds d^2."""
    x0 = MEAN + SPREAD * np.random.default_rng(0).normal(size=(200_000, 1))
    times = np.linspace(0.005, 0.995, len(x0))
    loss = lambda d: flow_matching_loss(lambda x, t: gaussian_velocity(x, t) + d, x0, wl.random.key(0), times=times)
    variance = (1 - times) ** 2 * SPREAD**2 + times**2
    irreducible = np.mean(1 + SPREAD**2 - (times - (1 - times) * SPREAD**2) ** 2 / variance)
    np.testing.assert_allclose(loss(0.0), irreducible, rtol=0.01)
    np.testing.assert_allclose((loss(0.1) + loss(-0.1)) / 2 - loss(0.0), 0.01, rtol=1e-9)


def test_optimal_pairs_are_those_of_enumeration():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 6, 3))
    costs = ((x[:, None] - y) ** 2).sum(-1)
    best = min(permutations(range(6)), key=lambda p: sum(costs[i, j] for i, j in enumerate(p)))
    np.testing.assert_array_equal(optimal_pairs(x, y), best)
    np.testing.assert_array_equal(wl.jit(optimal_pairs)(x, y), best)


def test_optimal_couplings_straighten_the_way():
    """Two points and a network: with optimal pairs, one step of Euler is nearly as good as many."""
    rng = np.random.default_rng(0)
    x0 = (np.where(rng.random((64, 1)) < 0.5, -1.0, 1.0) + 0.1 * rng.normal(size=(64, 1))).astype(np.float32)
    bends = {}
    for coupling in ("independent", "optimal"):
        net = nn.Sequential(
            nn.Linear(2, 32, key=wl.random.key(0)), nn.silu, nn.Linear(32, 32, key=wl.random.key(1)), nn.silu,
            nn.Linear(32, 1, key=wl.random.key(2)),
        )  # fmt: skip
        optimizer = train.Adam(net, 5e-3)

        def velocity(net, x, t):
            t = np.broadcast_to(wl.generative.as_sigma(t, x), x.shape)
            return net(np.concatenate([x, t], axis=1))

        @wl.jit
        def step(net, optimizer, key, coupling=coupling, velocity=velocity):
            loss, gradient = wl.value_and_grad(
                lambda net: flow_matching_loss(lambda x, t: velocity(net, x, t), x0, key, coupling=coupling)
            )(net)
            optimizer.update(net, gradient)
            return loss

        for i in range(300):
            step(net, optimizer, wl.random.key(i))
        z, learned = rng.normal(size=(200, 1)).astype(np.float32), partial(velocity, net)
        few, many = flow_sample(learned, z, 1, method="euler"), flow_sample(learned, z, 20, method="euler")
        bends[coupling] = np.mean(np.abs(few - many))
    assert bends["optimal"] < 0.5 * bends["independent"]


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match="coupling is one of"):
        flow_matching_loss(gaussian_velocity, np.ones((2, 1)), wl.random.key(0), coupling="best")
    with pytest.raises(ArgumentError, match=r"samples \(B, ...\), got shape \(\)"):
        flow_matching_loss(gaussian_velocity, np.ones(()), wl.random.key(0))
    with pytest.raises(ArgumentError, match="method is one of euler"):
        flow_sample(gaussian_velocity, np.ones((2, 1)), 3, method="rk5")
    with pytest.raises(ArgumentError, match="steps is a whole number"):
        flow_sample(gaussian_velocity, np.ones((2, 1)), 0)
