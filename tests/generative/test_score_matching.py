"""Score matching: what the loss is, what it draws, and that training reaches the least loss there is."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import data, train
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    Averaging,
    TimeMLP,
    as_sigma,
    loss_weight,
    null_condition,
    score_matching_loss,
    training,
    with_key,
)
from wonderland.generative.score_matching import draw_sigmas, dropped

KEY = wl.random.key(3)


def gaussian(variance):
    """The denoiser of N(0, variance): E[epsilon | x] = sigma x / (variance + sigma^2)."""
    return lambda x, sigma: as_sigma(sigma, x) * x / (variance + as_sigma(sigma, x) ** 2)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 4.0])
def test_the_best_denoiser_has_the_irreducible_loss(sigma):
    """Of N(0, s2) what nobody can know of epsilon is its variance given x, s2 / (s2 + sigma^2)."""
    variance = 2.0
    x0 = np.sqrt(variance) * np.random.default_rng(0).standard_normal((200_000, 1))
    best = score_matching_loss(gaussian(variance), x0, KEY, sigma)
    np.testing.assert_allclose(best, variance / (variance + sigma**2), rtol=0.02)
    for wrong in (1.5, 3.0):
        assert score_matching_loss(gaussian(wrong), x0, KEY, sigma) > best
    compiled = wl.jit(lambda x0, key: score_matching_loss(gaussian(variance), x0, key, sigma))
    np.testing.assert_allclose(compiled(x0, KEY), best, rtol=1e-12)


@pytest.mark.parametrize("sigmas", [1.0, np.array([3.0, 1.0, 0.3])], ids=["one level", "a schedule"])
def test_training_reaches_the_irreducible_loss(sigmas):
    """Within 3 %, at each level: a network that starts far away, as its sigma_data isn't that of the data."""
    wl.random.seed(0)
    variance = 2.25
    rng = np.random.default_rng(1)
    x0 = 1.5 * rng.standard_normal((20_000, 1))
    network = TimeMLP(1, (32, 32), sigma_data=0.5)
    average, optimizer = train.Average(network, 0.98), train.Adam(network, train.cosine(1e-2, 312))
    steps = [*training(network, optimizer, x0, sigmas, epochs=4, batch_size=256, average=average)]
    assert [step for step, _ in steps] == [*range(1, 313)]
    new = 1.5 * rng.standard_normal((100_000, 1))
    for sigma in np.atleast_1d(sigmas):
        # The noise of this estimate is that of the best denoiser, too: their difference is the network's error.
        loss = lambda denoiser: score_matching_loss(denoiser, new, KEY, sigma)  # noqa: B023
        least = variance / (variance + sigma**2)
        assert abs(loss(average.model) - loss(gaussian(variance))) < 0.03 * least
        assert loss(TimeMLP(1, (32, 32), sigma_data=0.5)) > 1.03 * least


def test_levels_are_log_uniform_between_the_ends_of_a_schedule():
    schedule = np.array([10.0, 3.0, 0.1, 0.0])
    levels = draw_sigmas(KEY, schedule, 50_000, np.float64)
    assert levels.shape == (50_000,) and levels.min() >= 0.1 and levels.max() <= 10
    quantiles = np.quantile(np.log10(levels), np.linspace(0, 1, 11))
    np.testing.assert_allclose(quantiles, np.linspace(-1, 1, 11), atol=0.02)
    np.testing.assert_array_equal(draw_sigmas(KEY, 0.5, 3, np.float32), np.float32([0.5] * 3))
    with pytest.raises(ArgumentError, match=r"not an array of shape \(2, 2\)"):
        draw_sigmas(KEY, np.ones((2, 2)), 3, np.float32)


def test_weightings():
    sigma = np.array([0.1, 0.5, 3.0])
    np.testing.assert_allclose(loss_weight(2.0, sigma), 2)
    # The weights of the papers are for errors in x0, which are sigma times those in epsilon.
    np.testing.assert_allclose(loss_weight("edm", sigma, 0.5) / sigma**2, (sigma**2 + 0.25) / (sigma * 0.5) ** 2)
    np.testing.assert_allclose(loss_weight("min-snr", sigma) / sigma**2, np.minimum(1 / sigma**2, 5))
    np.testing.assert_allclose(loss_weight(np.sqrt, sigma), np.sqrt(sigma))
    x0 = np.random.default_rng(0).standard_normal((8, 3, 2)).astype(np.float32)
    zero = lambda x, sigma: 0 * x
    plain = score_matching_loss(zero, x0, KEY, 0.5)
    assert plain.dtype == np.float32
    np.testing.assert_allclose(score_matching_loss(zero, x0, KEY, 0.5, weighting=np.square), plain / 4, rtol=1e-6)
    with pytest.raises(ArgumentError, match="\"min-snr\" or a function of sigma, not 'snr'"):
        score_matching_loss(zero, x0, KEY, 0.5, weighting="snr")
    with pytest.raises(ArgumentError, match="noise of the shape of its data"):
        score_matching_loss(lambda x, sigma: x[0], x0, KEY, 0.5)


def test_conditions_are_dropped():
    labels = np.arange(10_000) % 7
    found = dropped(KEY, labels, 0.2)
    assert np.all((found == labels) | (found == -1))
    assert abs(np.mean(found == -1) - 0.2) < 4 * np.sqrt(0.16 / 10_000)
    np.testing.assert_array_equal(dropped(KEY, labels, 0.0), labels)
    vectors = dropped(KEY, np.ones((100, 3, 2), np.float32), 0.5)
    assert {*np.sum(vectors, (1, 2))} == {0.0, 6.0}
    assert null_condition(np.ones((2, 3))).sum() == 0 and np.all(null_condition(np.zeros((2, 3), int)) == -1)
    seen = []
    x0 = np.zeros((10_000, 1))
    score_matching_loss(lambda x, sigma, c: seen.append(c) or x, x0, KEY, 1.0, condition=labels, drop=0.2)
    assert abs(np.mean(seen[0] == -1) - 0.2) < 0.02
    np.testing.assert_array_equal(dropped(KEY, labels.astype(np.uint8), 0.2), found)


def test_a_generator_trains_with_classes_and_an_average_follows():
    """The average is what `train.Average` is after the same steps; a checkpoint of it restores it."""
    wl.random.seed(0)
    x, y = data.moons(128)[:]
    network = TimeMLP(2, (8,), classes=2)
    average, own = train.Average(network, 0.9), train.Average(network, 0.9)
    before = network(x[:3], 1.0, y[:3])
    losses = []
    for _, loss in training(network, train.Adam(network), (x, y), [3.0, 0.1], batch_size=32, average=average):
        own.update(network)
        losses.append(loss)
    assert np.all(np.isfinite(losses)) and len(losses) == 4
    assert not np.array_equal(before, network(x[:3], 1.0, y[:3]))
    np.testing.assert_allclose(average.model(x, 1.0, y), own.model(x, 1.0, y), rtol=1e-5)
    again = train.Average(TimeMLP(2, (8,), classes=2), 0.9)
    Averaging(again).load_state(Averaging(average).state())
    np.testing.assert_array_equal(again.model(x, 1.0, y), average.model(x, 1.0, y))


def test_keys_of_batches_differ_and_are_those_of_the_seed():
    loaders = [data.Loader(np.arange(8.0), 4, seed=1, transform=with_key) for _ in range(2)]
    first, second = ([key for _, key in loader] for loader in loaders)
    np.testing.assert_array_equal(first, second)
    assert first[0].dtype == np.uint32 and not np.array_equal(*first)
