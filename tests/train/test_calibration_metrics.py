"""Calibration errors with other bins and by class, and the parts of the Brier score: netcal's figures, loops, sums."""

import numpy as np
import pytest

from wonderland import nn
from wonderland.train import metrics


def events_and_classes():
    rng = np.random.default_rng(5)
    q = rng.random(300)
    happened = (rng.random(300) < 0.2 + 0.6 * q).astype(int)
    z = 3 * rng.random((400, 4))
    p, y = z / z.sum(1, keepdims=True), rng.integers(0, 4, 400)
    return (q, happened), (p, np.where(rng.random(400) < 0.3, p.argmax(1), y))


@pytest.mark.parametrize(
    ("bins", "strategy", "classes", "events"),
    [
        (10, "uniform", (0.1320843284364498, 0.9601299902696225), (0.1518974856649138, 0.23807233210229106)),
        (10, "quantile", (0.14008796640365448, 0.2661738837145998), (0.15221444628148256, 0.2819717048795608)),
        (15, "uniform", (0.14060545455299636, 0.9601299902696225), (0.15321721378745704, 0.3231992295837532)),
        (15, "quantile", (0.12001616041006057, 0.2823988398993808), (0.1571562411167296, 0.27428789411191035)),
    ],
)
def test_netcals_figures(bins, strategy, classes, events):
    """ECE and MCE of netcal 1.4.0 with `equal_intervals` True and False."""
    for data, figures in zip(events_and_classes(), (events, classes), strict=True):
        for norm, figure in zip(("l1", "max"), figures, strict=True):
            assert metrics.calibration_error(*data, bins, norm, strategy) == pytest.approx(figure, abs=1e-12)


def test_bins_of_equally_many_samples():
    (q, happened), _ = events_and_classes()
    assert {*metrics.reliability(q, happened, 6, "quantile").count} == {50}
    assert np.all(np.diff(metrics.reliability(np.full(9, 0.5), np.ones(9, int), 3, "quantile").edges) >= 0)
    with pytest.raises(ValueError, match='"uniform" or "quantile", got \'equal\''):
        metrics.reliability(q, happened, 6, "equal")


def test_by_class_is_the_mean_of_each_class_against_all_others():
    _, (p, y) = events_and_classes()
    errors = [metrics.calibration_error(p[:, c], y == c, 8) for c in range(4)]
    assert metrics.classwise_calibration_error(p, y, 8) == pytest.approx(np.mean(errors))
    worst = max(metrics.calibration_error(p[:, c], y == c, 8, "max") for c in range(4))
    assert metrics.classwise_calibration_error(p, y, 8, "max") == worst
    with pytest.raises(ValueError, match=r"are \(n, classes\), got shape \(400,\)"):
        metrics.classwise_calibration_error(p[:, 0], y)


def test_always_right_with_confidence_080_is_off_by_020():
    p = np.tile([0.8, 0.2], (50, 1))
    assert metrics.calibration_error(p, np.zeros(50, int)) == pytest.approx(0.2)
    useless = np.full((40, 4), 0.25)  # calibrated, though it says nothing
    labels = np.repeat(np.arange(4), 10)
    assert metrics.calibration_error(useless, labels) == metrics.classwise_calibration_error(useless, labels) == 0
    parts = metrics.brier_decomposition(useless, labels)
    assert parts.resolution == parts.reliability == 0 and parts.uncertainty == pytest.approx(0.75)


@pytest.mark.parametrize("bins", [None, 1, 7])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_the_parts_of_the_brier_score_sum_to_it(bins, strategy):
    for (p, y), axis in zip(events_and_classes(), (None, -1), strict=True):
        for forecast in (p, np.round(p, 1)):
            parts = metrics.brier_decomposition(forecast, y, bins, strategy)
            assert parts.score == pytest.approx(nn.brier_score(forecast, y, axis=axis), abs=1e-12)
            assert bins is not None or parts.within == pytest.approx(0, abs=1e-12)


def test_brier_parts_by_loops():
    (q, happened), _ = events_and_classes()
    forecast = np.round(q, 1)
    reliability = resolution = 0.0
    for value in np.unique(forecast):
        there = forecast == value
        frequency = happened[there].mean()
        reliability += there.mean() * (value - frequency) ** 2
        resolution += there.mean() * (frequency - happened.mean()) ** 2
    parts = metrics.brier_decomposition(forecast, happened)
    np.testing.assert_allclose(parts[:2], [reliability, resolution])
    assert parts.uncertainty == pytest.approx(happened.var())
