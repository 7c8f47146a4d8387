"""Windows of time series: which steps are in them, without copies, and parts by time without leakage."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import data
from wonderland.data.faults import DataError


def test_windows_are_views_and_batches_are_their_rows():
    series = np.arange(20.0)
    d = data.windows(series, 5, 3, 2)
    assert len(d) == 7
    past, future = d[4]
    np.testing.assert_array_equal(past, [8, 9, 10, 11, 12])
    np.testing.assert_array_equal(future, [13, 14, 15])
    assert np.shares_memory(past, series) and np.shares_memory(future, series) and not past.flags.writeable
    past, future = d[[6, 0]]
    np.testing.assert_array_equal(past, [[12, 13, 14, 15, 16], [0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(future, [[17, 18, 19], [5, 6, 7]])
    np.testing.assert_array_equal(d[2:4][0][:, 0], [4, 6])
    gapped = data.windows(series, 5, 3, gap=2)
    assert gapped[0][1].tolist() == [7, 8, 9] and gapped[-1][1].tolist() == [17, 18, 19]


def test_columns_targets_and_what_is_known_in_advance(rng):
    series = rng.normal(size=(30, 4)).astype(np.float32)
    past, future = data.windows(series, 6, 2)[[3, 10]]
    assert past.shape == (2, 6, 4) and future.shape == (2, 2, 4) and past.dtype == np.float32
    np.testing.assert_array_equal(past[1], series[10:16])
    d = data.windows(series, 6, 2, exogenous=[1, 3])
    past, known, future = d[[3, 10]]
    np.testing.assert_array_equal(known[0], series[9:11][:, [1, 3]])
    np.testing.assert_array_equal(future[1], series[16:18][:, [0, 2]])
    for batched, single in zip((past, known, future), d[10], strict=True):
        np.testing.assert_array_equal(batched[1], single)
    assert data.windows(series, 6, 2, targets=[2])[0][1].shape == (2, 1)


def test_no_window_is_of_two_series():
    several = [np.arange(10), 100 + np.arange(6), 200 + np.arange(8)]
    d = data.windows(several, 3, 2)
    assert len(d) == 6 + 2 + 4
    for past, future in (d[i] for i in range(len(d))):
        np.testing.assert_array_equal(np.diff([*past, *future]), 1)
    assert d.name(7) == "the window at step 1 of series 1"
    parts = d.split([0.75, 0.25])
    assert {int(p[0][0]) // 100 for p in (parts[0][i] for i in range(len(parts[0])))} == {0, 2}


def test_parts_by_time_leak_nothing():
    d = data.windows(np.arange(100), 8, 4)
    train, valid, test = d.split([0.6, 0.2, 0.2])
    steps = lambda part, k: {int(v) for i in range(len(part)) for v in part[i][k]}
    assert max(steps(train, 0) | steps(train, 1)) == 59
    assert (min(steps(valid, 1)), max(steps(valid, 1))) == (60, 79) and min(steps(valid, 0)) == 52
    assert (min(steps(test, 1)), max(steps(test, 1))) == (80, 99)
    strict = d.split([0.6, 0.4], overlap=False)
    assert min(steps(strict[1], 0)) == 60
    np.testing.assert_array_equal(train.steps(), np.arange(60))
    np.testing.assert_array_equal(
        data.windows(np.arange(30), 3, 2, 10).steps(), [*range(5), *range(10, 15), *range(20, 25)]
    )


def test_forecasts_of_a_recurrence_are_exact(rng):
    """x[t] = 2 cos(w) x[t-1] - x[t-2]: least squares on the windows of a sinusoid find it, for unseen time, too."""
    series = np.sin(0.3 * np.arange(200) + 1)
    train, test = data.windows(series, 2, 1).split([0.5, 0.5])
    past, future = train[:]
    weights = np.linalg.lstsq(past, future)[0]
    np.testing.assert_allclose(weights.ravel(), [-1, 2 * np.cos(0.3)], atol=1e-10)
    past, future = test[:]
    np.testing.assert_allclose(past @ weights, future, atol=1e-10)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: data.windows(np.ones(5), 4, 3), DataError, "the series has 5 steps, fewer than a window: 4 .* 3 .* are 7"),
    (lambda: data.windows([np.ones(9), np.ones(5)], 4, 3), DataError, "series 1 has 5 steps"),
    (lambda: data.windows([np.ones((9, 2)), np.ones((9, 3))], 4), DataError, "all have the same columns"),
    (lambda: data.windows(np.ones((2, 3, 4)), 4), DataError, r"numbers, \(time,\) or \(time, columns\)"),
    (lambda: data.windows(np.array([[1, 2], [np.nan, 3]]), 1), DataError, "NaN at step 1, column 0: fill it"),
    (lambda: data.windows(np.ones((9, 2)), 4, targets=[2]), wl.ArgumentError, "targets: there is no column 2; .*"),
    (lambda: data.windows(np.ones(9), 4, targets=[0]), wl.ArgumentError, "the series has none"),
    (lambda: data.windows(np.ones((9, 1)), 4, exogenous=[0]), wl.ArgumentError, "every column is exogenous"),
    (lambda: data.windows(np.ones(9), 0), wl.ArgumentError, "history is a whole number"),
    (lambda: data.windows(np.ones(20), 4, 2).split([0.9, 0.2]), wl.ArgumentError, "their sum is 1"),
    (lambda: data.windows(np.ones(20), 4, 2).split([0.95, 0.05]), DataError, "part 1 .* has no window of 6 steps"),
])  # fmt: skip
def test_what_cannot_be_cut_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_missing_values_can_be_meant():
    assert np.isnan(data.windows(np.array([1.0, np.nan, 3.0]), 2, missing="keep")[0][0][1])
