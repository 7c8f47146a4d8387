"""Schedules against their definitions, and against numbers of other implementations."""

import numpy as np
import pytest

from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    check_sigmas,
    cosine,
    ddpm_linear,
    flow,
    geometric,
    karras,
    log_linear,
    scaled_linear,
    sigmoid,
    to_alpha_bar,
    to_sigma,
)

ALL = [log_linear, geometric, karras, flow, ddpm_linear, scaled_linear, cosine, sigmoid]


@pytest.mark.parametrize("schedule", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_every_schedule_goes_down_to_zero(schedule, n):
    sigmas = schedule(n)
    assert sigmas.shape == (n + 1,) and sigmas[-1] == 0 and sigmas.dtype == np.float64
    assert np.all(np.diff(sigmas) < 0) and np.isfinite(sigmas).all()
    assert check_sigmas(sigmas) is sigmas


@pytest.mark.parametrize("schedule", [f for f in ALL if f is not flow], ids=lambda f: f.__name__)
def test_without_zero_there_are_as_many_steps(schedule):
    sigmas = schedule(7, zero=False)
    assert sigmas.shape == (8,) and sigmas[-1] > 0 and np.all(np.diff(sigmas) < 0)


def test_variance_preserving_and_exploding():
    """sqrt(a) x0 + sqrt(1 - a) epsilon, divided by sqrt(a), is x0 + sigma epsilon."""
    a = np.array([0.99, 0.5, 1e-4])
    np.testing.assert_allclose(to_sigma(a), np.sqrt(1 - a) / np.sqrt(a), rtol=1e-15)
    np.testing.assert_allclose(to_alpha_bar(to_sigma(a)), a, rtol=1e-12)


def test_definitions():
    np.testing.assert_allclose(log_linear(3, 0.1, 10.0), [10, 1, 0.1, 0])
    i, n = np.arange(18), 18
    wanted = (80 ** (1 / 7) + i / (n - 1) * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    np.testing.assert_allclose(karras(n), [*wanted, 0], rtol=1e-12)
    assert karras(n)[0] == 80 and karras(n)[-2] == 0.002
    t = flow(10, sigma_max=99.0) / (1 + flow(10, sigma_max=99.0))
    np.testing.assert_allclose(t, np.linspace(0.99, 0, 11), atol=1e-15)
    alpha_bar = to_alpha_bar(cosine(1000))[:-1][::-1]
    time = np.arange(1, 1000) / 1000  # without the last, which the largest beta bounds
    curve = lambda time: np.cos((time + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(alpha_bar[:-1], curve(time) / curve(0), rtol=1e-9)


def test_noise_levels_of_stable_diffusion():
    """The ends of scaled_linear, as k-diffusion and its users know them."""
    sigmas = scaled_linear(1000)
    np.testing.assert_allclose([sigmas[0], sigmas[-2]], [14.6146, 0.0292], atol=5e-5)


def test_places_among_the_steps_of_training():
    betas = np.linspace(1e-4, 0.02, 1000)
    table = to_sigma(np.cumprod(1 - betas))
    np.testing.assert_allclose(ddpm_linear(10), [*table[np.arange(900, -1, -100)], 0])
    np.testing.assert_allclose(ddpm_linear(5, spacing="trailing"), [*table[[999, 799, 599, 399, 199]], 0])
    np.testing.assert_allclose(ddpm_linear(4, spacing="linspace"), [*table[[999, 666, 333, 0]], 0])


def test_custom_arrays_are_checked():
    assert check_sigmas([3, 2, 0]).dtype == np.float64
    for wrong, said in [
        ([1.0, 2.0, 0.0], r"decreases.*sigmas\[::-1\]\); got sigmas\[1\] = 2.0 after 1.0"),
        ([1.0, 1.0], r"decreases"),
        ([np.inf, 1.0], r"is finite; got sigmas\[0\] = inf"),
        ([1.0, -0.1], r"isn't below 0; got sigmas\[1\] = -0.1 after 1.0"),
        ([1.0], r"got shape \(1,\)"),
        (np.ones((2, 2)), r"got shape \(2, 2\)"),
        (["a", "b"], r"got dtype"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            check_sigmas(wrong)
    with pytest.raises(ArgumentError, match=r"sigma_min < sigma_max.*got 3 and 1"):
        karras(5, sigma_min=3, sigma_max=1)
    with pytest.raises(ArgumentError, match=r"a 0 comes after them.*got 0 and 80"):
        log_linear(5, sigma_min=0)
    with pytest.raises(ArgumentError, match=r"above 0: got -1 and 1.0"):
        flow(5, sigma_max=-1)
    with pytest.raises(ArgumentError, match="at least one: got n=0"):
        flow(0)
    with pytest.raises(ArgumentError, match='"leading", "trailing" or "linspace": got \'even\''):
        ddpm_linear(5, spacing="even")
    with pytest.raises(ArgumentError, match="at most 1000 steps: got n=2000"):
        cosine(2000)
