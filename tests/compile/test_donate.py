"""Donated arguments: results in their memory, the right numbers, and no memory that something else needs."""

import pickle

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile.jit import Jitted
from wonderland.core import tree
from wonderland.core.errors import ArgumentError


def update(p, g, rate):
    return {k: p[k] - rate * g[k] for k in p}


def tree_of(rng, *shapes):
    return {f"w{i}": rng.standard_normal(shape) for i, shape in enumerate(shapes)}


@pytest.mark.parametrize("donate", [0, "p", (0,), ["p"], -3])
def test_a_state_is_updated_in_its_own_memory(rng, donate):
    step = wl.jit(update, donate=donate)
    p, g = tree_of(rng, (30, 20), (20,)), tree_of(rng, (30, 20), (20,))
    expected = {k: v.copy() for k, v in p.items()}
    arrays = dict(p)
    for _ in range(3):  # recorded, then twice by the native path
        expected = update(expected, g, 0.5)
        p = step(p, g, 0.5)
        for k in p:
            assert p[k] is arrays[k]
            np.testing.assert_array_equal(p[k], expected[k])
    assert step.inspect(p, g, 0.5).result_bytes == 0


def test_it_saves_the_memory_of_the_results(rng):
    x = rng.standard_normal((200, 100))
    f = lambda x: np.tanh(x) * 2 + 1
    plain, donating = wl.jit(f).inspect(x), wl.jit(f, donate=0).inspect(x)
    assert plain.peak_bytes - donating.peak_bytes == x.nbytes
    assert plain.arena_bytes == donating.arena_bytes < 1000


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x[::-1] + y,  # reads elsewhere than it writes
        lambda x, y: x @ y,
        lambda x, y: (x + 1, x),
        lambda x, y: (x, x + 1),
        lambda x, y: (y, x),
        lambda x, y: (x, x),
        lambda x, y: (x + 1, x * 2, x[::-1]),
        lambda x, y: (np.sum(x), x.T),
        lambda x, y: (x.T + y, np.cumsum(x, axis=0)),
        lambda x, y: np.sum(x) + y,
        lambda x, y: np.linalg.pinv(x) + x,  # by NumPy
        lambda x, y: wl.scan(lambda c, r: (c * 0.5 + r, c), x, np.ones(3))[0],
        lambda x, y: np.sum(x),  # nothing fits
        lambda x, y: x.astype(np.float32),
        lambda x, y: ((), {"a": x * y}),
        lambda x, y: y * 3,
    ],
)
@pytest.mark.parametrize("donate", [0, 1, (0, 1)])
def test_results_are_those_without_donation(rng, f, donate):
    x, y = rng.standard_normal((6, 6)), rng.standard_normal((6, 6))
    expected, donating = wl.jit(f)(x, y), wl.jit(f, donate=donate)
    for _ in range(3):
        found = donating(x.copy(), y.copy())
        for a, b in zip(tree.flatten(found)[0], tree.flatten(expected)[0], strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_what_is_not_donated_stays_as_it_was(rng):
    x, y = rng.standard_normal((2, 40))
    before = y.copy()
    f = wl.jit(lambda x, y: (y + x, x * 2), donate=0)
    out = f(x, y)
    assert out[0] is x or out[1] is x
    np.testing.assert_array_equal(y, before)
    out = f(np.ones(40), y)
    np.testing.assert_array_equal(out[0], y + 1)


def test_a_call_that_fails_leaves_everything_as_it_was(rng):
    f = wl.jit(lambda x, i: (x * 2, x[i]), donate=0)
    x = rng.standard_normal(5)
    before = x.copy()
    with pytest.raises(IndexError):
        f(x, np.array(7))
    np.testing.assert_array_equal(x, before)
    assert f(x, np.array(4))[0] is x


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: x.astype(">f8"),
        lambda x: np.frombuffer(bytearray(b"\0" + x.tobytes()), np.float64, offset=1),  # not aligned
        lambda x: x.view(Subclass),
    ],
)
def test_memory_that_cannot_be_used_is_copied(rng, make):
    x = rng.standard_normal(20)
    value = make(x.copy())
    f = wl.jit(lambda x: x + 1, donate=0)
    for _ in range(2):
        out = f(make(x.copy()))
        assert type(out) is np.ndarray and out.dtype == np.float64 and out.dtype.isnative
        np.testing.assert_array_equal(out, np.asarray(value) + 1)


class Subclass(np.ndarray):
    pass


def test_shared_memory_is_refused(rng):
    x = rng.standard_normal(20)
    f = wl.jit(lambda x, y: x[::-1] + y, donate=0)
    f(x.copy(), x)
    for other in (x, x[::-1], x.view()):
        before = x.copy()
        with pytest.raises(ArgumentError, match="shares memory with argument leaf 1"):
            f(x, other)
        np.testing.assert_array_equal(x, before)
    both = wl.jit(lambda x, y: (x + 1, y + 2), donate=(0, 1))
    with pytest.raises(ArgumentError, match="shares memory"):
        both(x, x)
    halves = both(x[:10], x[10:])  # neighbours
    assert halves[0].base is x and halves[1].base is x


def test_captured_memory_is_refused(rng):
    w = rng.standard_normal(20)
    f = wl.jit(lambda x: x + w[::-1], donate=0)
    for _ in range(2):
        np.testing.assert_array_equal(f(np.ones(20)), 1 + w[::-1])
        with pytest.raises(ArgumentError, match="captures"):
            f(w)


def test_read_only_memory_is_refused():
    x = np.ones(3)
    x.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        wl.jit(lambda x: x + 1, donate=0)(x)


def test_numbers_have_no_memory():
    f = wl.jit(lambda x, y: (x + 1, y * 2), donate=(0, 1))
    assert f(1.0, np.float32(2)) == (2.0, 4.0) and f(np.array(3.0), np.float32(2))[0] == 4.0


def test_inside_other_transformations_it_is_ignored(rng):
    x = rng.standard_normal(5)
    before = x.copy()
    f = wl.jit(lambda x: np.sin(x) * 2, donate=0)
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(f(x)))(x), 2 * np.cos(x))
    np.testing.assert_allclose(wl.jit(lambda x: f(x) + x)(x), 2 * np.sin(x) + x)
    np.testing.assert_array_equal(x, before)


def test_mutable_arguments_are_updated_as_ever(rng):
    @wl.register_mutable
    class State:
        def __init__(self):
            self.w = np.ones(4)

    def step(state, x):
        state.w = state.w + x
        return x * 2

    state, x = State(), np.ones(4)
    w, f = state.w, wl.jit(step, donate=(0, 1))
    assert f(state, x) is x and state.w is w
    np.testing.assert_array_equal(w, 2)
    np.testing.assert_array_equal(x, 2)


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match="doesn't take"):
        wl.jit(lambda x: x, donate="y")
    with pytest.raises(ArgumentError, match="static and donated"):
        wl.jit(lambda x, y: x, static_argnums=1, donate=1)
    with pytest.raises(ArgumentError, match="static and donated"):
        wl.jit(lambda x, y: x, static_argnames="y", donate="y")


def test_with_static_arguments_keywords_and_as_a_decorator(rng):
    @wl.jit(static_argnums=0, donate="x")
    def f(n, x, y):
        return x * n + y

    x, y = np.ones(4), np.ones(4)
    assert f(2, x, y) is x and f(3, y=y, x=x) is x
    np.testing.assert_array_equal(x, 10)
    assert f(2, y=y, x=x) is x


def module_function(x):
    return x + 1


def test_pickle():
    f = pickle.loads(pickle.dumps(wl.jit(module_function, donate=0)))
    x = np.ones(3)
    assert f(x) is x


def test_profiling_spends_nothing(rng):
    x = rng.standard_normal(10)
    before = x.copy()
    wl.jit(lambda x: x + 1, donate=0).profile(x)
    np.testing.assert_array_equal(x, before)


def test_an_array_that_is_written_and_captured_is_refused():
    @wl.register_mutable
    class Model:
        def __init__(self):
            self.w = np.arange(5.0)

    model, other = Model(), Model()
    w = model.w

    def turn(m):
        m.w = m.w * 0 + w[::-1]

    with pytest.raises(wl.ArgumentError, match="captures an array that shares its memory"):
        wl.jit(turn)(model)
    wl.jit(turn)(other)
    np.testing.assert_array_equal(other.w, np.arange(5.0)[::-1])
    again = wl.jit(turn)
    again(other)
    with pytest.raises(wl.ArgumentError, match="captures an array that shares its memory"):
        again(model)  # by the native path, too
    np.testing.assert_array_equal(w, np.arange(5.0))


def test_many_donated_arrays_beside_captured_ones_take_the_native_path(rng, monkeypatch):
    w, v = rng.standard_normal(4), rng.standard_normal(4)
    step = wl.jit(lambda p: ([x * 0.5 + w for x in p["a"]], {"b": p["b"] - v}), donate=0)
    sets = [{"a": list(rng.standard_normal((60, 4))), "b": np.ones(4)} for _ in range(6)]
    step(sets[0])
    prepare = Jitted._prepare
    monkeypatch.setattr(Jitted, "_prepare", None)
    for _ in range(2):
        for p in sets:
            before = [x.copy() for x in p["a"]]
            a, b = step(p)
            assert all(x is y for x, y in zip(a, p["a"], strict=True)) and b["b"] is p["b"]
            np.testing.assert_array_equal(a, [x * 0.5 + w for x in before])
    monkeypatch.setattr(Jitted, "_prepare", prepare)
    for bad, words in ((w, "captures"), (v[1:], "captures"), (sets[0]["a"][7], "leaf 7")):
        p = {"a": list(sets[0]["a"]), "b": sets[0]["b"]}
        if bad.shape == (4,):
            p["a"][3] = bad
        else:
            p["a"][3] = np.lib.stride_tricks.as_strided(v, (4,), (0,))  # looks at captured memory through a stride
        kept = [x.copy() for x in p["a"]]
        with pytest.raises(ArgumentError, match=words):
            step(p)
        np.testing.assert_array_equal(p["a"], kept)


def test_memory_within_other_memory_is_found():
    """A long array, a part of it that is only read, and another part that is written: no neighbours in memory."""

    @wl.register_mutable
    class Model:
        def __init__(self):
            self.all = np.arange(8.0)
            self.read, self.written, self.none = self.all[1:3], self.all[4:6], self.all[5:5]

    def step(model):
        model.written = model.written + np.sum(model.all) + np.sum(model.read)

    for f in (lambda m: wl.vjp(step, m), wl.grad(lambda m: (step(m), np.sum(m.all))[1]), wl.jit(step)):
        with pytest.raises(wl.MutationError, match="different arrays that share memory"):
            f(Model())
    taken = wl.jit(lambda x, y, z: x + np.sum(y) + np.sum(z), donate=0)
    x = np.arange(8.0)
    with pytest.raises(ArgumentError, match=r"argument leaf 0 of .* shares memory with argument leaf 1"):
        taken(x[4:6], x, x[1:3])
    assert taken(x[4:6], x[5:5], x[1:3]).base is x  # what is empty shares nothing
