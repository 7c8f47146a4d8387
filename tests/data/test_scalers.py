"""Scalers against scikit-learn's, and what they do with constants, NaN and data that isn't in memory."""

import json
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from wonderland import data
from wonderland.core.errors import ArgumentError

NUMBERS = st.floats(-100, 100).map(lambda x: round(x, 3))
MATRICES = st.tuples(st.integers(1, 12), st.integers(1, 4)).flatmap(
    lambda shape: arrays(float, shape, elements=NUMBERS)
)


@settings(max_examples=25)
@given(MATRICES)
def test_against_scikit_learn(x):
    scaler, theirs = data.Standardize().fit(x), StandardScaler().fit(x)
    np.testing.assert_allclose(scaler(x), theirs.transform(x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scaler.center[0], theirs.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scaler.inverse(scaler(x)), x, rtol=1e-12, atol=1e-12)
    scaler, theirs = data.MinMax(-1, 2).fit(x), MinMaxScaler((-1, 2)).fit(x)
    np.testing.assert_allclose(scaler(x), theirs.transform(x), rtol=1e-12, atol=1e-12)
    new = x[::-1] * 2 + 1
    np.testing.assert_allclose(scaler(new), theirs.transform(new), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(scaler.inverse(scaler(x)), x, rtol=1e-12, atol=1e-12)


def test_nan_as_scikit_learn_does(rng):
    x = rng.normal(size=(30, 3))
    x[rng.random(x.shape) < 0.2] = np.nan
    for ours, theirs in ((data.Standardize, StandardScaler()), (data.MinMax, MinMaxScaler())):
        np.testing.assert_allclose(ours(missing="keep").fit(x)(x), theirs.fit_transform(x), rtol=1e-12)
        filled = ours(missing="mean").fit(x)
        expected = np.where(np.isnan(x), np.nanmean(x, 0), x)
        np.testing.assert_allclose(filled.inverse(filled(x)), expected, rtol=1e-12)
    assert np.all(data.Standardize(missing="mean").fit(x)(x)[np.isnan(x)] == 0)


def test_constant_features():
    x = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])  # the mean of three times 0.1 isn't 0.1
    assert data.Standardize().fit(x)(x)[:, 0].tolist() == [0, 0, 0]
    assert data.MinMax(-1, 1).fit(x)(x)[:, 0].tolist() == [-1, -1, -1]
    assert data.Standardize().fit(x)([[2.1, 2.0]])[0, 0] == 2.0
    assert data.Standardize().fit(x[:1])(x[:1]).tolist() == [[0, 0]]


def test_hard_numbers():
    x = np.array([1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4])[:, None]
    np.testing.assert_allclose(data.Standardize().fit(x).scale, [[np.sqrt(1.25)]], rtol=1e-15)
    small = x.astype(np.float32) * np.float32(1e-3)
    assert data.Standardize().fit(small)(small).dtype == np.float32
    assert data.Standardize().fit(np.arange(4))(np.arange(4)).dtype == np.float64
    with pytest.raises(data.DataError, match="so large that their spread"):
        data.MinMax().fit([[-1.7e308], [1.7e308]])


def test_axes(rng):
    images = rng.normal(size=(10, 3, 4, 5)) * np.array([1, 5, 9])[:, None, None]
    scaler = data.Standardize(axis=(0, 2, 3)).fit(images)
    assert scaler.center.shape == (1, 3, 1, 1)
    np.testing.assert_allclose(scaler(images).mean((0, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(scaler(images).std((0, 2, 3)), 1)
    one = data.MinMax(axis=None).fit(images)
    assert one(images).min() == 0 and one(images).max() == 1 and one(images[:2]).shape == (2, 3, 4, 5)
    assert data.MinMax(clip=True).fit(np.arange(3.0))([-5.0, 1.0, 9.0]).tolist() == [0, 0.5, 1]


def test_only_the_training_part_is_seen(rng):
    x, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    train, test = data.split((x, y), [0.8, 0.2])
    scaler = data.Standardize().fit(train)
    np.testing.assert_allclose(scaler.center[0], train[:][0].mean(0), rtol=1e-12)
    scaled = scaler(test)
    assert isinstance(scaled, data.Arrays) and scaled.name(0) == test.name(0)
    np.testing.assert_array_equal(scaled[:][0], scaler(test[:][0]))
    np.testing.assert_array_equal(scaled[:][1], test[:][1])
    (a, _), *_ = data.Loader(test, 10, transform=scaler)
    np.testing.assert_array_equal(a, scaled[:][0])
    named = data.Arrays({"x": x, "y": y})
    by_name = data.Standardize(field="x").fit(named)
    np.testing.assert_array_equal(by_name(named)[:]["x"], by_name(x))
    np.testing.assert_array_equal(by_name(named[:])["x"], by_name(x))


def test_data_that_is_not_in_memory(rng, monkeypatch):
    from wonderland.data import scalers

    monkeypatch.setattr(scalers, "CHUNK", 7)
    x = rng.normal(size=(50, 3)) * 5 + 100
    x[:, 1] = 0.1
    source = data.Generated(lambda i: (x[i], i), 50, batched=True)
    for make in (data.Standardize, data.MinMax):
        np.testing.assert_allclose(make().fit(source)(x), make().fit(x)(x), rtol=1e-12, atol=1e-12)
    x[::3, 2] = np.nan
    kept = data.Standardize(missing="keep").fit(source)
    np.testing.assert_allclose(kept.center, data.Standardize(missing="keep").fit(x).center, rtol=1e-12)
    np.testing.assert_allclose(kept.scale, data.Standardize(missing="keep").fit(x).scale, rtol=1e-12)


def test_state():
    x = np.arange(12.0).reshape(6, 2) ** 1.5
    scaler = data.Standardize().fit(x)
    again = data.Standardize().load_state(json.loads(json.dumps(scaler.state())))
    np.testing.assert_array_equal(again(x), scaler(x))
    with pytest.raises(ArgumentError, match="isn't the state of a fitted MinMax"):
        data.MinMax().load_state(scaler.state())
    with pytest.raises(ArgumentError, match=r"low=0.0, this one has low=-1.0"):
        data.MinMax(-1, 1).load_state(data.MinMax().fit(x).state())
    with pytest.raises(ArgumentError, match="isn't fitted, so it has no state"):
        data.MinMax().state()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.Standardize()(np.ones(3)), "this Standardize isn't fitted: call .fit(training part) first"),
        (lambda: data.Standardize().fit([[1.0, 2.0], [3.0, np.nan]]), "row 1, column 1, is nan"),
        (lambda: data.Standardize(missing="keep").fit([[1.0], [-np.inf]]), "row 1, column 0, is -inf"),
        (lambda: data.Standardize(missing="keep").fit([[1.0, np.nan]]), "feature 1 is NaN in all rows"),
        (lambda: data.Standardize().fit(np.zeros((0, 2))), "nothing to fit in an array of shape (0, 2)"),
        (lambda: data.Standardize().fit(np.array([1j])), "scales real numbers, not complex128"),
        (lambda: data.Standardize(missing="drop"), "missing is 'raise', 'keep' or 'mean'"),
        (lambda: data.Standardize(axis=1), "leaves out 0, which counts samples"),
        (lambda: data.Standardize(axis=(0, 2)).fit(np.ones((2, 2))), "doesn't fit data of shape (2, 2)"),
        (
            lambda: data.Standardize().fit(np.ones((4, 3)))(np.ones((4, 2))),
            "features of shape (3,), not on an array of",
        ),
        (lambda: data.Standardize().fit(np.ones((4, 3)))(np.ones(3)), "not on an array of shape (3,)"),
        (lambda: data.Standardize().fit(np.ones((4, 1)))([[np.nan]]), "row 0 has NaN"),
        (
            lambda: data.Standardize(field=2).fit((np.ones(3), np.ones(3))),
            "field=2 isn't in the data, which has [0, 1]",
        ),
        (lambda: data.Standardize().fit(np.ones(3))(data.Generated(lambda i, rng: i, 3)), "scale its batches"),
        (lambda: data.MinMax(1, 1), "low is less than high"),
    ],
)
def test_bad_scaling(make, message):
    with pytest.raises((data.DataError, ArgumentError), match=re.escape(message)):
        make()
