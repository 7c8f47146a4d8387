"""What batches a Loader makes: `Loader.batch` says it, and nothing changes it."""

import json
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import wonderland as wl
from wonderland import data
from wonderland.core.errors import ArgumentError
from wonderland.data import loaders, prefetching


def same(found, expected):
    assert type(found) is type(expected) and len(found) == len(expected)
    pairs = ((found[k], expected[k]) for k in expected) if isinstance(expected, dict) else zip(found, expected)
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def noisy(batch, rng):
    x, y = batch
    x += rng.normal(size=x.shape)  # in place: the data must not change
    return x, y


def sources():
    x, y = np.arange(46.0).reshape(23, 2), np.arange(23)
    mapped = data.Samples([(row, label) for row, label in zip(x, y)])
    return {
        "arrays": (x, y),
        "fortran": (np.asfortranarray(x), y),
        "dict": {"x": x, "y": y},
        "part": data.Subset(data.Arrays(x, y), np.arange(23)[::-1]),
        "samples": mapped,
        "generated": data.Generated(lambda i, rng: (rng.normal(size=2), i), 23),
        "formula": data.Generated(lambda i: (i[:, None] * [1.0, 2.0], i), 23, batched=True),
    }


@pytest.mark.parametrize("name", sources())
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_is_what_batch_says(name, shuffle):
    loader = data.Loader(sources()[name], batch_size=5, shuffle=shuffle, seed=3)
    assert len(loader) == 5
    for epoch in range(2):
        found = [*loader]
        assert len(found) == 5
        for number, batch in enumerate(found):
            same(batch, loader.batch(number, epoch))
        seen = np.concatenate([b["y"] if name == "dict" else b[1] for b in found])
        assert sorted(seen.tolist()) == [*range(23)]
    assert (loader.epoch, loader.position) == (2, 0)


def test_batches_without_shuffling_are_slices():
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    loader = data.Loader((x, y), batch_size=4)
    for start, (a, b) in zip((0, 4, 8), loader):
        np.testing.assert_array_equal(a, x[start : start + 4])
        np.testing.assert_array_equal(b, y[start : start + 4])
        assert np.shares_memory(a, x) and not a.flags.writeable
    assert len(data.Loader((x, y), batch_size=4, drop_last=True)) == 2
    assert [len(a) for a, _ in data.Loader((x, y), batch_size=4, drop_last=True)] == [4, 4]


def test_order_depends_on_seed_and_epoch_only():
    x = np.arange(50)
    orders = {}
    for seed in (0, 1):
        for epoch in (0, 1):
            loader = data.Loader(x, batch_size=7, shuffle=True, seed=seed)
            loader.epoch = epoch
            orders[seed, epoch] = np.concatenate([b for (b,) in loader])
    assert len({tuple(o.tolist()) for o in orders.values()}) == 4
    other = data.Loader(x, batch_size=50, shuffle=True, seed=1)
    list(other)
    np.testing.assert_array_equal(next(iter(other))[0], orders[1, 1])


def test_a_known_order_stays():
    """Runs that were begun with one version go on with the next."""
    loader = data.Loader(np.arange(8), batch_size=8, shuffle=True, seed=5)
    bits = np.random.Philox(key=np.array([5, 0], np.uint64), counter=np.zeros(4, np.uint64))
    np.testing.assert_array_equal(loader.batch(0)[0], np.random.Generator(bits).permutation(8))
    bits = np.random.Philox(key=np.array([5, 0], np.uint64), counter=np.array([0, 2, 0, 0], np.uint64))
    np.testing.assert_array_equal(loader.batch(0, 2)[0], np.random.Generator(bits).permutation(8))


def test_transforms_draw_by_seed_epoch_batch_and_rank():
    x = np.zeros((12, 1))
    y = np.arange(12)
    drawn = set()
    for seed, rank in [(0, 0), (0, 1), (1, 0)]:
        loader = data.Loader((x, y), batch_size=4, transform=noisy, seed=seed, rank=rank, ranks=2)
        for epoch in range(2):
            drawn |= {float(batch[0][0, 0]) for batch in loader}
            loader.epoch = epoch + 1
    assert len(drawn) == 18  # 3 loaders, 2 epochs, 3 batches
    assert not x.any()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_prefetch_and_workers_change_nothing(prefetch, workers, monkeypatch):
    monkeypatch.setattr(prefetching, "WORTH", 0.0)
    monkeypatch.setattr(loaders, "BIG", 0)
    x, y = np.arange(46.0).reshape(23, 2), np.arange(23)
    options = {"batch_size": 4, "shuffle": True, "seed": 1, "transform": noisy}
    loader = data.Loader((x, y), prefetch=prefetch, workers=workers, **options)
    reference = data.Loader((x, y), prefetch=0, **options)
    for epoch in range(2):
        for number, batch in enumerate(loader):
            assert (loader.epoch, loader.position) == (epoch, number + 1)
            same(batch, reference.batch(number, epoch))
    plain = data.Loader((x, y), batch_size=4, prefetch=prefetch, workers=workers)
    for number, batch in enumerate(plain):
        same(batch, plain.batch(number, 0))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_resume_at_every_position(prefetch, monkeypatch):
    monkeypatch.setattr(prefetching, "WORTH", 0.0)
    x, y = np.arange(22.0).reshape(11, 2), np.arange(11)

    def make():
        return data.Loader((x, y), 3, shuffle=True, seed=2, transform=noisy, prefetch=prefetch)

    whole, loader = [], make()
    for _ in range(2):
        whole += [*loader]
    for stop in range(len(whole) + 1):
        first = make()
        taken = []
        while len(taken) < stop:
            for batch in first:
                taken.append(batch)
                if len(taken) == stop:
                    break
        state = json.loads(json.dumps(first.state()))
        second = make()
        second.load_state(state)
        while len(taken) < len(whole):
            taken += [*second]
        for a, b in zip(taken, whole, strict=True):
            same(a, b)


def test_state_after_the_last_batch_and_after_the_epoch():
    loader = data.Loader(np.arange(6), 2)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    assert (loader.epoch, loader.position) == (0, 3)
    state = loader.state()
    assert next(iterator, None) is None
    assert (loader.epoch, loader.position) == (1, 0)
    loader.load_state(state)
    assert [*loader] == [] and (loader.epoch, loader.position) == (1, 0)


def test_a_loop_that_was_left_is_continued():
    loader = data.Loader(np.arange(10), 2)
    for _ in loader:
        break
    assert loader.position == 1
    assert [b.tolist() for (b,) in loader] == [[2, 3], [4, 5], [6, 7], [8, 9]]
    loader.position = 2
    assert next(iter(loader))[0].tolist() == [4, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 9}, "samples in the data 9, this one has 10"),
        ({"seed": 1}, "seed 1, this one has 0"),
        ({"batch_size": 5}, "batch_size 5, this one has 3"),
        ({"shuffle": True}, "shuffle True"),
        ({"drop_last": True}, "drop_last True"),
        ({"position": 5}, "an epoch has 4 batches"),
        ({"epoch": -1}, "epoch -1"),
    ],
)
def test_other_states_are_refused(change, message):
    loader = data.Loader(np.arange(10), 3)
    with pytest.raises(data.DataError, match=message):
        loader.load_state({**loader.state(), **change})
    assert (loader.epoch, loader.position) == (0, 0)


def test_what_is_no_state_is_refused():
    with pytest.raises(ArgumentError, match="isn't the state of a Loader"):
        data.Loader(np.arange(10), 3).load_state({"epoch": 1})


def test_of_two_loops_the_first_cannot_go_on():
    loader = data.Loader(np.arange(10), 2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second)[0].tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="another loop over this Loader has begun"):
        next(first)
    assert loader.position == 2
    with pytest.raises(RuntimeError, match="another loop"):
        [*zip(loader, loader)]
    running = iter(loader)
    next(running)
    loader.load_state({**loader.state(), "position": 0})
    with pytest.raises(RuntimeError, match="its state was set"):
        next(running)


@settings(max_examples=60)
@given(
    samples=st.integers(1, 60),
    each=st.integers(1, 5),
    ranks=st.integers(1, 4),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_ranks_share_each_batch(samples, each, ranks, drop_last, shuffle):
    size = each * ranks
    last = samples % size
    options = {"batch_size": size, "shuffle": shuffle, "drop_last": drop_last, "seed": 4}
    if size > samples or (last and last < ranks and not drop_last):
        with pytest.raises(data.DataError):
            data.Loader(np.arange(samples), rank=0, ranks=ranks, **options)
        return
    whole = data.Loader(np.arange(samples), **options)
    parts = [data.Loader(np.arange(samples), rank=r, ranks=ranks, **options) for r in range(ranks)]
    assert {len(loader) for loader in parts} == {len(whole)}
    for number, ((batch,), *shares) in enumerate(zip(whole, *parts)):
        found = [share for (share,) in shares]
        np.testing.assert_array_equal(np.concatenate(found), batch)  # contiguous parts, in the order of the ranks
        sizes = [len(share) for share in found]
        assert min(sizes) > 0 and max(sizes) - min(sizes) <= (len(batch) < size)
        assert parts[0].samples(number) == len(batch)


def test_ranks_can_change_on_resume():
    one = data.Loader(np.arange(12), 4, shuffle=True)
    next(iter(one))
    two = [data.Loader(np.arange(12), 4, shuffle=True, rank=r, ranks=2) for r in range(2)]
    for loader in two:
        loader.load_state(one.state())
    for (whole,), (a,), (b,) in zip(one, *two):
        np.testing.assert_array_equal(whole, np.concatenate([a, b]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.arange(5),), {"batch_size": 6}, "batch_size=6 is more than the 5 samples there are: use batch_size=5"),
        ((np.arange(5),), {"batch_size": 0}, "batch_size is a whole number, at least 1, not 0"),
        ((np.arange(5),), {"batch_size": 2.5}, "batch_size is a whole number, not 2.5"),
        ((np.arange(9),), {"batch_size": 4, "ranks": 3}, "can't be divided by ranks=3: use 3 or 6"),
        ((np.arange(9),), {"batch_size": 4, "ranks": 2, "rank": 2}, "they count from 0"),
        ((np.arange(9),), {"batch_size": 4, "ranks": 2}, "the last batch would have 1 of 9 samples, fewer than the 2"),
        ((np.arange(9),), {"batch_size": 3, "seed": -1}, "seed is a whole number"),
        ((np.arange(9),), {"batch_size": 3, "seed": 2**64}, "seed is less than"),
        ((np.arange(9),), {"batch_size": 3, "transform": 3}, "transform is a function of"),
        ((np.zeros((0, 2)),), {}, "there are no samples"),
        ((data.Generated(lambda i, rng: i, 3).part([]),), {}, "there are no samples"),
        (([np.arange(3), np.arange(3)],), {}, "a list may be arrays or samples"),
        ((iter([1]),), {}, "goes into wl.data.Batches"),
        (("file.csv",), {}, "not str"),
    ],
)
def test_bad_arguments(arguments, options, message):
    with pytest.raises((ArgumentError, data.DataError), match=message):
        data.Loader(*arguments, **options)


def test_numbers_of_batches_are_checked():
    with pytest.raises(IndexError, match="there is no batch 5: an epoch has 5"):
        data.Loader(np.arange(10), 2).batch(5)


def test_collate_and_compose():
    texts = data.Samples([(np.arange(n), n % 2) for n in (3, 1, 4, 2)])
    shift = data.compose(lambda b, rng: (b[0] + 1, *b[1:]), lambda b, rng: (b[0] * 10, *b[1:]))
    loader = data.Loader(texts, 2, collate=data.pad, transform=shift)
    (a, labels, mask), _ = [*loader]
    assert a.tolist() == [[10, 20, 30], [10, 10, 10]] and labels.tolist() == [1, 1]
    assert mask.tolist() == [[True] * 3, [True, False, False]]
    assert "compose(<lambda>, <lambda>)" == repr(shift)
    with pytest.raises(ArgumentError, match="its argument 1 is int"):
        data.compose(noisy, 3)


def test_batches_of_memory_maps(tmp_path, monkeypatch):
    monkeypatch.setattr(prefetching, "WORTH", 0.0)
    x = np.arange(40.0).reshape(20, 2)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    train, test = data.split((mapped, np.arange(20)), [0.5, 0.5])
    assert isinstance(train, data.Subset)
    for a, y in data.Loader(train, 3, shuffle=True):
        np.testing.assert_array_equal(a, x[y])
    seen = np.concatenate([*(y for _, y in data.Loader(train, 3)), *(y for _, y in data.Loader(test, 3))])
    assert sorted(seen) == [*range(20)]


def test_batches_from_elsewhere():
    batches = data.Batches([(np.arange(2), 0), (np.arange(3), 1), [np.arange(4), 2]])
    assert len(batches) == 3 and [b[1] for b in batches] == [0, 1, 2] == [b[1] for b in batches]
    assert batches.epoch == 2

    anew = data.Batches(lambda epoch: (np.full(2, 10 * epoch + k) for k in range(100)), length=4)
    assert [int(b[0]) for (b,) in anew] == [0, 1, 2, 3]
    for (b,) in anew:
        if b[0] == 11:
            break
    other = data.Batches(lambda epoch: (np.full(2, 10 * epoch + k) for k in range(100)), length=4)
    other.load_state(json.loads(json.dumps(anew.state())))
    assert [int(b[0]) for (b,) in other] == [12, 13] == [int(b[0]) for (b,) in anew]

    growing = data.Batches(lambda epoch: (np.full(2, k) for k in range([2, 4, 1][epoch])))  # nobody said how many
    assert [[int(b[0]) for (b,) in growing] for _ in range(3)] == [[0, 1], [0, 1, 2, 3], [0]]

    once = data.Batches(np.arange(2) + k for k in range(5))
    for _ in once:
        break
    assert [int(b[0]) for (b,) in once] == [1, 2, 3, 4]
    with pytest.raises(data.DataError, match="can be gone through once, but epoch 1"):
        list(once)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.Batches([]), "there are no batches"),
        (lambda: [*data.Batches(iter([]))], "there are no batches in epoch 0"),
        (lambda: data.Batches(3), "not int"),
        (lambda: [*data.Batches(["ab"])], "batch 0 is a str"),
        (lambda: [*data.Batches(iter([np.ones(2)]), length=2)], "ended after 1 batches, but length=2"),
        (lambda: [*data.Batches(lambda epoch: 3)], "returned int, not an iterable"),
        (lambda: data.Batches([np.ones(2)]).load_state({"epoch": 0, "position": 0, "length": 2}), "with 2 in an epoch"),
    ],
)
def test_bad_batches(make, message):
    with pytest.raises((ArgumentError, data.DataError), match=message):
        make()


def test_as_loader():
    x, y = np.arange(8.0), np.arange(8)
    loader = data.as_loader((x, y), batch_size=4)
    assert isinstance(loader, data.Loader) and data.as_loader(loader, batch_size=2) is loader
    assert isinstance(data.as_loader({"x": x}, batch_size=4), data.Loader)
    assert isinstance(data.as_loader([(x, y), (x, y)]), data.Batches)
    assert isinstance(data.as_loader(b for b in [(x, y)]), data.Batches)
    assert isinstance(data.as_loader(lambda epoch: [(x, y)]), data.Batches)
    with pytest.raises(ArgumentError, match="a list may be arrays or samples"):
        data.as_loader([x, y])


def test_batches_are_arguments_of_compiled_functions():
    f = wl.jit(lambda x, y: np.sum(x * y))
    x, y = np.arange(6.0), np.ones(6)
    found = [float(f(*batch)) for batch in data.Loader((x, y), 2)]
    assert found == [1.0, 5.0, 9.0]


def test_places_outside_of_an_epoch():
    loader = data.Loader(np.arange(10), batch_size=4)
    for position in (-1, 4):
        loader.position = position
        with pytest.raises(data.DataError, match=f"position {position} isn't in this data"):
            next(iter(loader))


def test_another_seed_is_another_order():
    loader = data.Loader(np.arange(50), batch_size=5, shuffle=True)
    before = loader.indices(0)
    loader.seed = 5
    assert loader.indices(0).tolist() == data.Loader(np.arange(50), 5, True, seed=5).indices(0).tolist()
    assert loader.indices(0).tolist() != before.tolist()


def test_a_pickled_loader_does_not_give_its_data_away():
    loader = data.Loader(np.arange(10.0), batch_size=5, shuffle=False)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert again.state() == loader.state()
    for batch in again:
        assert batch[0].tolist() == [5, 6, 7, 8, 9] and not batch[0].flags.writeable


def test_an_iterator_cannot_go_back():
    batches = data.Batches(iter([np.array([k]) for k in range(6)]))
    for (batch,) in batches:
        if batch[0] == 2:
            break
    state = batches.state()
    assert next(iter(batches))[0] == 3
    batches.load_state({**state, "position": 5})
    assert next(iter(batches))[0] == 5
    batches.load_state(state)
    with pytest.raises(data.DataError, match="can't go back to batch 3: it has given 6"):
        next(iter(batches))
    with pytest.raises(ArgumentError, match="position is a whole number"):
        batches.load_state({**state, "position": -1})


def test_what_returns_nothing_makes_no_batch():
    for options in ({"transform": lambda batch, rng: None}, {"collate": lambda samples: None}):
        with pytest.raises(data.DataError, match=f"the {next(iter(options))} returned None"):
            next(iter(data.Loader(np.arange(10), **options, batch_size=5)))


def test_samples_are_no_batches():
    with pytest.raises(ArgumentError, match=r"samples go into wl.data.Samples"):
        data.as_loader([(np.ones(3), 0), (np.ones(3), 1)])
