"""Static values of arguments are compared by type and value: an equal one is no reason to leave the native path."""

import collections
import dataclasses
import enum
import pickle

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile.jit import Jitted

NAN = float("nan")
Size = collections.namedtuple("Size", "rows columns")


class Mode(enum.Enum):
    SUM = 1


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float


@wl.register_mutable
class Layer:
    def __init__(self, value):
        self.w, self.value = np.arange(3.0), value


@wl.register_mutable
class Model:
    def __init__(self, values):
        self.layers, self.name = [Layer(value) for value in values], "".join(["a ", "model"])


@pytest.fixture
def slow_calls(monkeypatch):
    """Counts the calls that look at their arguments in Python."""
    counted, prepare = [0], Jitted._prepare

    def counting(self, args, kwargs):
        counted[0] += 1
        return prepare(self, args, kwargs)

    monkeypatch.setattr(Jitted, "_prepare", counting)
    return counted


def again(value):
    """An equal value that is another object."""
    return pickle.loads(pickle.dumps(value))


VALUES = [
    0.1 + 0.2, 0.0, -0.0, NAN, float("inf"), 12345, 2**70, True, None, 1 + 2j, 0j, "two words", b"bytes", "",
    (3, 3.5), (1, ("two words", (None, True, -0.0)), [2.5]), [1, 2.5, "two words"], list(range(100)), tuple(range(100)),
    {"rate": 0.1, "sizes": [1000, (2000,)]}, {1: "one", 2.0: "two"}, {1000, "two words"}, frozenset({1.5}),
    Size(1000, 2000), Mode.SUM, Config(0.1), np.dtype(np.float32), np.float32, np.tanh, float, range(3),
    collections.OrderedDict(a=1.5),
]  # fmt: skip


def test_equal_models_take_the_native_path_in_turn(slow_calls):
    step = wl.jit(lambda model, x: [layer.w * x for layer in model.layers])
    models = [Model(VALUES)]
    models += [again(models[0]) for _ in range(2)]
    assert models[1].layers[0].value is not models[0].layers[0].value and models[1].name is not models[0].name
    step(models[0], 2.0)
    for _ in range(3):
        for model in models:
            np.testing.assert_array_equal(step(model, 3.0)[1], [0, 3, 6])
    assert slow_calls == [1] and len(step._specializations) == 1


def test_long_containers_that_change_in_place():
    @wl.register_mutable
    class Model:
        def __init__(self):
            self.w, self.items = np.ones(2), [*range(40)]

    model, f = Model(), wl.jit(lambda m: np.sum(m.w) * m.items[5])
    assert f(model) == f(model) == 10.0
    model.items[5] = 6
    assert f(model) == f(model) == 12.0


def test_written_leaves_of_models_in_turn(slow_calls):
    @wl.jit
    def step(model, x):
        for layer in model.layers:
            layer.w = layer.w * layer.value + x

    models = [Model([0.5] * 20)]
    models += [again(models[0]) for _ in range(5)]
    for k in range(1, 4):
        for model in models:
            step(model, 1.0)
            np.testing.assert_allclose(model.layers[7].w, np.arange(3.0) / 2**k + 2 - 2.0 ** (1 - k))
    assert slow_calls == [1]
    models[0].layers[3].w = models[0].layers[2].w  # and what they share is still seen
    with pytest.raises(wl.MutationError, match="are one array"):
        step(models[0], 1.0)


DIFFERENT = [
    (1, True), (1, 1.0), (0.0, -0.0), (0.0, 0), (NAN, 0.0), (NAN, None), (1.0, np.float64), ("a", b"a"), (0j, -0j),
    (complex(1, 0.0), complex(1, -0.0)), ((1,), (True,)), ((1,), [1]), ([1.0], [1]), ([0.0], [-0.0]), ((0.0,), (-0.0,)),
    ({"a": 1}, {"a": True}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: 2}, {True: 2}), ({1}, {1.0}),
    (frozenset({1}), frozenset({True})), (Size(1, 2), (1, 2)), (Size(1, 2), Size(1, 2.0)), ((1, 2), (1, 2, 3)),
    (list(range(100)), [*range(99), 99.0]), (np.tanh, np.sinh), ([0, [1]], [0, [True]]), ("", None), (1000, 1001),
    (collections.OrderedDict(a=1), {"a": 1}), ((0,), ()), (Config(1.0), Config(2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=map(str, range(len(DIFFERENT))))
def test_other_values_are_other_programs(one, other):
    f = wl.jit(lambda layer, x: (layer.w * x, seen.append(layer.value)))
    g = wl.jit(lambda x, value: (x, seen.append(value)), static_argnums=1)
    for call in (lambda value: f(Layer(value), 1.0), lambda value: g(1.0, value)):
        for first, second in ((one, other), (other, one)):
            f._specializations.clear(), g._specializations.clear()
            f._fast, g._fast, seen = {}, {}, []
            for value in (first, again(first), second, again(second), first, second):
                call(value)
            assert [repr(value) for value in seen] == [repr(first), repr(second)]
            assert [type(value) for value in seen] == [type(first), type(second)]


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda v: v.append(3)),
        (([1, 2], 0), lambda v: v[0].append(3)),
        (Size([1, 2], 3), lambda v: v.rows.append(3)),
        ({"a": [1]}, lambda v: v["a"].insert(0, 2)),
        ({1, 2}, lambda v: v.add(3)),
        (collections.OrderedDict(a=1), lambda v: v.update(a=2)),
        (collections.OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        (collections.defaultdict(list, a=[1]), lambda v: v["a"].append(2)),
        ([[0.0]], lambda v: v[0].__setitem__(0, -0.0)),
        ([1], lambda v: v.__setitem__(0, True)),
    ],
)
def test_values_that_change_in_place_are_seen(value, change, slow_calls):
    seen = []
    f = wl.jit(lambda layer, x: (layer.w * x, seen.append(repr(layer.value))))
    layer, same = Layer(value), Layer(again(value))
    for one in (layer, same, layer, same):
        f(one, 1.0)
    assert slow_calls == [1]
    before = repr(value)
    change(value)
    for one in (layer, same, layer, same):
        f(one, 1.0)
    assert seen == [before, repr(value)] and slow_calls == [2]


def test_keys_are_typed_and_may_be_equal_ones(slow_calls):
    f = wl.jit(lambda t: [t[key] * key for key in t])
    for key in (1, 1.0, 1 + 0j):
        for _ in range(2):
            (found,) = f({key: 2.0})
            assert type(found) is type(2.0 * key)
    assert slow_calls == [3]
    g = wl.jit(lambda t: t["first key"] - t[("second", "key")])
    one = {"first key": 3.0, ("second", "key"): 1.0}
    assert g(one) == g(again(one)) == 2
    assert slow_calls == [4]
    for _ in range(2):  # another order, which the function might see
        assert g(dict(reversed(again(one).items()))) == g(one) == 2
    assert slow_calls == [5]


def test_keywords_and_static_arguments(slow_calls):
    f = wl.jit(lambda x, *, how, layer: x * len(how) * layer.w[1], static_argnames="how")
    for how in ("two words", again("two words"), "".join(["two", " words"])):
        assert f(2.0, how=how, layer=Layer(again(0.1 + 0.2))) == 18
    g = wl.jit(lambda x, n: x * n[1], static_argnums=1)
    for n in ((NAN, 0.5), again((NAN, 0.5)), [NAN, 0.5], again([NAN, 0.5]), {1: 0.5}, again({1: 0.5})):
        assert g(2.0, n) == 1
    assert slow_calls == [1 + 3]
    for value in (np.float32(np.nan), np.float32(-0.0), again(np.float32(np.nan)), np.float32(-0.0)):
        g(2.0, (0, value))
    assert slow_calls == [1 + 3 + 2]


@dataclasses.dataclass
class Pair:
    first: object
    second: object
    label: str


wl.register_node(Pair, lambda p: ((p.first, p.second), p.label), lambda label, parts: Pair(*parts, label))


def test_registered_nodes_take_the_native_path(slow_calls):
    f = wl.jit(lambda p: Pair(p.second * len(p.label), {"x": [p.first["a"]]}, "result"))
    one = Pair({"a": np.ones(2)}, 3.0, "two words")
    for pair in (one, again(one), one):
        found = f(pair)
        assert found.first == 27 and found.label == "result"
        np.testing.assert_array_equal(found.second["x"][0], 1)
    assert slow_calls == [1]
    assert f(Pair({"a": np.ones(2)}, 3.0, "word")).first == 12 and slow_calls == [2]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: {"b": x, "a": [x * 2, (x * 3,)], "c": {}},
        lambda x: ({"a": x, "b": x * 2}, x * 3, [], None),
        lambda x: [2.0, x],
        lambda x: {"only": x},
        lambda x: (x,),
        lambda x: Size(x, {"z": x, "y": 2.0}),
        lambda x: [],
        lambda x: None,
        lambda x: collections.defaultdict(list, a=x),
        lambda x: {"z": np.sum(x), "a": (x, 1.0)},
    ],
)
@pytest.mark.parametrize("x", [np.arange(3.0), 2.0])
def test_trees_of_results_are_those_of_the_slow_way(f, x, slow_calls):
    jitted = wl.jit(f)
    first, second, expected = jitted(x), jitted(x), f(x)
    assert slow_calls == [1] and repr(first) == repr(second) == repr(expected)
    assert type(first) is type(second) is type(expected)
