"""Schedules: numbers, arrays and traced steps alike; equality; bad arguments; what they do at their ends."""

import copy
import pickle

import numpy as np
import pytest

import wonderland as wl
from wonderland import train

ALL = [
    train.constant(0.1),
    train.constant(0.1, 0.5, 3),
    train.linear(0.1, 5, 0.2, 1.0),
    train.step(0.1, 4),
    train.multi_step(0.1, [2, 5]),
    train.exponential(0.1, 0.9),
    train.polynomial(0.1, 8, 2.0, end=0.01),
    train.cosine(0.1, 10),
    train.cosine(0.1, 10, warmup=4, end=0.01),
    train.cosine_restarts(0.1, 3, 2),
    train.warmup(0.1, 4),
    train.warmup(train.cosine(0.1, 6), 4, start=0.1),
    train.inverse_sqrt(0.1, 5),
    train.piecewise([2, 5], [0.1, 0.2, 0.3]),
    train.piecewise([2, 5], [0.1, 0.3], interpolate=True),
    train.one_cycle(0.1, 12),
    train.one_cycle(0.1, 12, anneal="linear", three_phase=True),
    train.cyclic(0.01, 0.1, 3),
    train.running_mean(),
]


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_numbers_arrays_and_traced_steps(schedule):
    steps = np.arange(30)
    rates = schedule(steps)
    assert rates.shape == (30,) and rates.dtype == np.float64 and np.all(np.isfinite(rates)) and np.all(rates >= 0)
    assert all(type(schedule(int(t))) is float for t in steps)
    np.testing.assert_allclose([schedule(int(t)) for t in steps], rates, rtol=1e-15)
    np.testing.assert_allclose([schedule(np.int32(t)) for t in steps], rates, rtol=1e-15)
    compiled = wl.jit(schedule)
    np.testing.assert_allclose([compiled(np.array(t)) for t in steps], rates, rtol=1e-13, atol=1e-18)
    assert np.isfinite(schedule(10**9))


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_equal_arguments_make_equal_schedules(schedule):
    name, arguments = schedule.name, dict(schedule.arguments)
    again = getattr(train, name)(**arguments)
    assert again == schedule and hash(again) == hash(schedule)
    assert copy.deepcopy(schedule) == schedule == pickle.loads(pickle.dumps(schedule))


def test_values():
    half = [1, 0.5 + 8**-0.5, 0.5, 0.5 - 8**-0.5, 0, 0]
    np.testing.assert_allclose(train.cosine(1.0, 4)(np.arange(6)), half, atol=1e-15)
    np.testing.assert_allclose(train.cosine(1.0, 6, warmup=2)(np.arange(8)), [1 / 3, 2 / 3, *half], atol=1e-15)
    np.testing.assert_allclose(train.piecewise([2], [1, 3])(np.arange(4)), [1, 1, 3, 3])
    np.testing.assert_allclose(train.inverse_sqrt(1.0, 4)(np.array([0, 3, 15])), [0.25, 1, 0.5])
    np.testing.assert_allclose(train.warmup(2.0, 3)(np.arange(5)), [0.5, 1, 1.5, 2, 2])
    np.testing.assert_allclose(train.running_mean()(np.arange(3)), [0, 1 / 2, 2 / 3])


@pytest.mark.parametrize("period", [1, 3, 7, 10])
@pytest.mark.parametrize("factor", [2, 3])
def test_restarts_begin_where_they_should(period, factor):
    schedule, start = train.cosine_restarts(1.0, period, factor), 0
    for n in range(8):
        assert schedule(start) == 1.0, (n, start)
        assert start == 0 or schedule(start - 1) < 0.5 or period * factor ** (n - 1) < 3
        start += period * factor**n


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: train.cosine(0.1, steps=0), "steps is positive"),
        (lambda: train.cosine(0.1, steps=10, warmup=10), "warmup is part of all the 10 steps"),
        (lambda: train.cosine(0.1, steps=10, warmup=-1), "warmup is a number of steps"),
        (lambda: train.step(0.1, 0), "size is positive"),
        (lambda: train.multi_step(0.1, [5, 2]), "milestones grow"),
        (lambda: train.piecewise([1, 2], [0.1, 0.2]), "2 boundaries go with 3 values"),
        (lambda: train.piecewise([1, 2], [0.1], interpolate=True), "2 boundaries go with 2 values"),
        (lambda: train.one_cycle(0.1, 10, anneal="sine"), "anneal"),
        (lambda: train.cosine_restarts(0.1, 3, 0.5), "at least as long"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_arguments():
    with pytest.raises(TypeError, match="wrmup"):
        train.cosine(0.1, 10, wrmup=3)
