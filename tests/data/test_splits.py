"""Splits: the properties that scikit-learn's splitters have, and sharper ones."""

import re
from itertools import chain

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from wonderland import data
from wonderland.core.errors import ArgumentError
from wonderland.data.splits import _rounded, deal


def rows(parts):
    return [part[:][0].tolist() for part in parts]


@settings(max_examples=60)
@given(st.integers(3, 60), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans(), st.integers(0, 3))
def test_parts_are_the_whole(samples, weights, shuffle, seed):
    sizes = [w / sum(weights) for w in weights]
    try:
        parts = rows(data.split(np.arange(samples), sizes, seed=seed, shuffle=shuffle))
    except data.DataError:
        assert min(sizes) * samples < 1
        return
    assert sorted([*chain(*parts)]) == [*range(samples)]
    for part, size in zip(parts, sizes):
        assert part == sorted(part) and abs(len(part) - size * samples) < 1
    if not shuffle:
        assert [*chain(*parts)] == [*range(samples)]


def test_splits_depend_on_the_seed_only():
    x = np.arange(40)
    one, again, other = (rows(data.split(x, [0.5, 0.5], seed=s)) for s in (0, 0, 1))
    assert one == again != other
    assert rows(data.split(x, [30, 10]))[1] == rows(data.split(x, [0.75, 0.25]))[1]
    assert [len(part) for part in rows(data.split(np.arange(100), [0.29, 0.71]))] == [29, 71]
    y = np.arange(40) % 2
    train, test = data.split((x, y), [0.75, 0.25])
    np.testing.assert_array_equal(train[:][0] % 2, train[:][1])
    assert isinstance(train, data.Arrays) and test.name(0) == f"row {test[0][0]}"


@settings(max_examples=80)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6), st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.booleans(), st.integers(0, 3),
)  # fmt: skip
def test_rounding_keeps_sums_and_rounds_each_share_up_or_down(classes, weights, shuffle, seed):
    sizes, total = np.array(classes), sum(classes)
    bounds = np.floor(np.cumsum(weights) / sum(weights) * total).astype(int)
    columns = np.diff(bounds, prepend=0)
    shares = _rounded(sizes, columns, np.random.default_rng(seed) if shuffle else None)
    np.testing.assert_array_equal(shares.sum(1), sizes)
    np.testing.assert_array_equal(shares.sum(0), columns)
    assert (np.abs(shares - np.outer(sizes, columns) / total) < 1).all()


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 5))
def test_strata(parts, kinds, seed):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(kinds).repeat(parts), rng.integers(0, kinds, 37)])
    rng.shuffle(y)
    found = data.split((np.arange(len(y)), y), [1 / parts] * parts, seed=seed, stratify=True)
    assert sorted([*chain(*rows(found))]) == [*range(len(y))]
    for part in found:
        counts = np.bincount(part.labels, minlength=kinds)
        assert (np.abs(counts - np.bincount(y) * len(part) / len(y)) < 1).all()


def folds_of(x, **options):
    return [(train[:][0], test[:][0]) for train, test in data.kfold(x, **options)]


@pytest.mark.parametrize("samples", [10, 13, 23])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_plain_folds(samples, k):
    """As scikit-learn's without shuffling; with it, the same sizes."""
    x = np.arange(samples)
    for (train, test), (a, b) in zip(folds_of(x, k=k, shuffle=False), KFold(k).split(x), strict=True):
        np.testing.assert_array_equal(train, a)
        np.testing.assert_array_equal(test, b)
    found = folds_of(x, k=k)
    assert sorted(np.concatenate([test for _, test in found])) == [*range(samples)]
    for train, test in found:
        assert sorted([*train, *test]) == [*range(samples)]
    assert [len(test) for _, test in found] == [len(b) for _, b in KFold(k).split(x)]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_stratified_folds(k, rng):
    y = rng.permutation(np.repeat([0, 1, 2], [31, 12, 7]))
    x = np.arange(len(y))
    found = folds_of(x, k=k, stratify=y)
    theirs = [b for _, b in StratifiedKFold(k, shuffle=True, random_state=0).split(x, y)]
    for (train, test), other in zip(found, theirs):
        assert sorted([*train, *test]) == x.tolist()
        for chosen in (test, other):
            assert (np.abs(np.bincount(y[chosen], minlength=3) - np.bincount(y) / k) < 1).all()
    assert sorted(np.concatenate([test for _, test in found])) == x.tolist()


def uneven(sizes):
    return (max(sizes) - min(sizes)) / sum(sizes)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_grouped_folds(k, rng):
    groups = rng.permutation(np.repeat(np.array([*"abcdefghijkl"]), rng.integers(1, 9, 12)))
    x = np.arange(len(groups))
    found = folds_of(x, k=k, groups=groups)
    for train, test in found:
        assert not {*groups[train]} & {*groups[test]} and sorted([*train, *test]) == x.tolist()
    theirs = uneven([len(b) for _, b in GroupKFold(k).split(x, groups=groups)])
    assert uneven([len(test) for _, test in found]) <= theirs + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_grouped_and_stratified_folds(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 30, 200)
    y = (rng.random(200) < 0.2 + 0.3 * (groups % 2)).astype(int)
    x = np.arange(200)

    def spread(tests):
        return np.std([np.bincount(y[test], minlength=2) / np.bincount(y) for test in tests], axis=0).mean()

    found = folds_of(x, k=4, groups=groups, stratify=y, seed=seed)
    for train, test in found:
        assert not {*groups[train]} & {*groups[test]}
    theirs = [b for _, b in StratifiedGroupKFold(4, shuffle=True, random_state=seed).split(x, y, groups)]
    assert spread([test for _, test in found]) <= spread(theirs) + 0.02


@settings(max_examples=40)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=12), st.integers(2, 4), st.integers(0, 5))
def test_groups_stay_together_and_no_part_is_empty(sizes, parts, seed):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    counts = [len(groups) - (parts - 1), *[1] * (parts - 1)]
    if len(sizes) < parts:
        with pytest.raises(data.DataError, match=f"there are {len(sizes)} groups for {parts} parts"):
            deal(len(groups), counts, seed, groups=groups)
        return
    found = deal(len(groups), counts, seed, groups=groups)
    assert {*found} == {*range(parts)}
    assert all(len({*found[groups == g]}) == 1 for g in range(len(sizes)))


def test_labels_and_groups_of_the_dataset():
    x, y, g = np.arange(12), np.arange(12) % 3, np.arange(12) // 2
    d = data.Arrays(x, y, groups=g)
    train, test = data.split(d, [0.75, 0.25], stratify=True)
    assert np.bincount(test.labels).tolist() == [1, 1, 1] and train.groups.tolist() == g[train[:][0]].tolist()
    train, test = data.split(d, [0.75, 0.25], groups=True)
    assert not {*train.groups} & {*test.groups}
    generated = data.Generated(lambda i, rng: i, 10)
    parts = data.split(generated, [0.5, 0.5], stratify=np.arange(10) % 2)
    assert isinstance(parts[0], data.Subset) and sum(len(part) for part in parts) == 10
    named = data.split(data.Arrays(x, np.array([*"aabbaabbaabb"])[:12]), [0.5, 0.5], stratify=np.array([*"ab" * 6]))
    assert len(named[0]) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.split(np.arange(9), [0.5, 0.4]), "have the sum 0.9: fractions have the sum 1"),
        (lambda: data.split(np.arange(9), [5, 5]), "have the sum 10, but there are 9 samples"),
        (lambda: data.split(np.arange(9), [0.99, 0.01]), "make a part without any: [9, 0]"),
        (lambda: data.split(np.arange(9), [1.5, -0.5]), "all above 0"),
        (lambda: data.split(np.arange(9), 0.5), "sizes are fractions like [0.8, 0.2]"),
        (lambda: data.split(np.arange(9), []), "sizes are fractions"),
        (lambda: data.split(np.zeros((0, 2)), [1.0]), "there are no samples"),
        (lambda: data.split(np.arange(9), [0.5, 0.5], stratify=True), "the Arrays has no labels: pass stratify="),
        (lambda: data.split(np.arange(9), [0.5, 0.5], groups=True), "the Arrays has no groups: pass groups="),
        (lambda: data.split(np.arange(9), [0.5, 0.5], stratify=[0, 1]), "one entry for each of 9 samples"),
        (lambda: data.split(np.arange(3), [2, 1], stratify=[0, 1, np.nan]), "stratify is NaN for row 2"),
        (lambda: data.split(np.arange(3), [2, 1], stratify=[0, 0, 7]), "class 7 has 1 samples, fewer than the 2 parts"),
        (lambda: data.kfold(np.arange(3), 4), "k=4 parts can't be made of 3 samples"),
        (lambda: data.kfold(np.arange(3), 1), "k is a whole number, at least 2"),
        (lambda: data.kfold(np.arange(9), 3, groups=np.arange(9) % 2), "there are 2 groups for 3 parts"),
    ],
)
def test_bad_splits(make, message):
    with pytest.raises((data.DataError, ArgumentError), match=re.escape(message)):
        make()
