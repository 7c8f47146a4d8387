"""Padding: against rows filled up one by one."""

import functools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from wonderland import data
from wonderland.core.errors import ArgumentError


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    width=st.integers(0, 2),
    multiple=st.integers(1, 4),
    value=st.sampled_from([0, -1, 7]),
)
def test_padding(lengths, width, multiple, value):
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 9, (n, *[2] * width)) for n in lengths]
    padded, mask = data.pad(samples, value=value, multiple=multiple)
    longest = padded.shape[1]
    assert longest % multiple == 0 and 0 <= longest - max(lengths) < multiple
    assert mask.shape == (len(lengths), longest) and mask.dtype == bool
    for row, there, sample in zip(padded, mask, samples):
        np.testing.assert_array_equal(row[there], sample)
        assert (row[~there] == value).all() and there.sum() == len(sample) and (np.diff(there.astype(int)) <= 0).all()


def test_fields():
    samples = [(np.arange(3), np.ones((3, 2)), 5), (np.arange(1), np.ones((1, 2)), 6)]
    a, b, label, mask = data.pad(samples, value={0: -1, 1: np.nan})
    assert a.tolist() == [[0, 1, 2], [0, -1, -1]] and np.isnan(b[1, 1:]).all() and label.tolist() == [5, 6]
    assert mask.sum() == 4
    pairs = [(np.arange(3), np.arange(2)), (np.arange(1), np.arange(4))]
    a, b, first, second = data.pad(pairs, shared=False)
    assert a.shape == first.shape == (2, 3) and b.shape == second.shape == (2, 4)
    assert first.sum() == 4 and second.sum() == 6
    kept = data.pad([(np.arange(3), np.zeros(2)), (np.arange(1), np.ones(2))], fields=[0])
    assert [part.shape for part in kept] == [(2, 3), (2, 2), (2, 3)]
    named = data.pad([{"x": np.arange(2), "y": 1}, {"x": np.arange(3), "y": 0}], length=4)
    assert named["x"].shape == (2, 4) == named["mask"].shape and named["y"].tolist() == [1, 0]
    each = data.pad([{"x": np.arange(2), "y": np.arange(3)}], shared=False)
    assert {*each} == {"x", "y", "x_mask", "y_mask"}
    loader = data.Loader(data.Samples([np.arange(n) for n in (1, 2)]), 2, collate=functools.partial(data.pad, length=8))
    assert next(iter(loader))[0].shape == (2, 8)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ([], {}, "there are no samples"),
        ([1, 2], {}, "no field of the samples is a sequence"),
        ([np.arange(3), np.arange(9)], {"length": 5}, "sample 1 of the batch has 9 elements, more than length=5"),
        ([np.ones((3, 2)), np.ones((3, 4))], {}, r"\(3, 2\) in sample 0 of the batch and \(3, 4\) in sample 1"),
        ([np.arange(3), 4], {}, r"and \(\) in sample 1"),
        ([(np.arange(3), np.arange(2))], {}, "fields 0 and 1 of a sample have different lengths"),
        ([(np.arange(3), 1)], {"fields": ["x"]}, r"fields has 'x', but the samples have the fields \[0, 1\]"),
        ([np.arange(3)], {"value": 0.5}, "value 0.5 isn't one of int64"),
        ([np.arange(3, dtype=np.uint8)], {"value": -1}, "value -1 isn't one of uint8"),
        ([np.arange(3)], {"multiple": 0}, "multiple is a whole number"),
    ],
)
def test_bad_padding(samples, options, message):
    with pytest.raises((data.DataError, ArgumentError), match=message):
        data.pad(samples, **options)
