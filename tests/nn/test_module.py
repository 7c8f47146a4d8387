"""NETWORKS 1, statements 1 to 4 and 9 to 12: what a Module is, roles, assignment, static values, names, states."""

import collections
import copy
import dataclasses
import enum
import functools
import pickle
import types
import warnings

import numpy as np
import pytest
from networks import Dropout, Linear, Net, Norm, X, arrays, assert_same, loss

import wonderland as wl
from wonderland import nn
from wonderland.nn.layout import book_of, layout_of

RUNS = pytest.mark.parametrize("run", [lambda f: f, wl.jit], ids=["eager", "jit"])


def roles(model):
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    return [*parameters], [*buffers]


# 1 What is a Module


def test_children_are_in_order_of_assignment():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "first.weight", "first.bias", "norm.gamma", "layers.0.weight", "layers.0.bias", "layers.2.bias",
        "heads.a.weight", "heads.a.bias", "heads.b.weight", "heads.b.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()] == ["norm.mean", "norm.calls"]
    assert [name for name, _ in net.named_modules()] == [
        "", "first", "norm", "layers.0", "layers.2", "heads.a", "heads.b",
    ]  # fmt: skip


@RUNS
def test_items_of_containers_that_are_no_arrays_are_static(run):
    class Mixed(nn.Module):
        def __init__(self):
            self.pair = (2, np.ones(3))
            self.more = [np.tanh, "text", None, {"w": np.full(2, 3.0), "n": 4}]

        def __call__(self):
            assert type(self.pair[0]) is int and self.more[0] is np.tanh and self.more[3]["n"] == 4
            return np.sum(self.more[0](self.pair[1]) * self.pair[0]) + np.sum(self.more[3]["w"]) ** self.more[3]["n"]

    model = Mixed()
    assert roles(model)[0] == ["pair.1", "more.3.w"]
    expected = 6 * np.tanh(1) + 6**4
    np.testing.assert_allclose(run(lambda m: m())(model), expected)
    gradient = run(wl.grad(lambda m: m()))(model)
    np.testing.assert_allclose(gradient.more[3]["w"], 4 * 6**3)
    assert gradient.pair[0] == 2 and gradient.more[:3] == [np.tanh, "text", None]


@RUNS
def test_dataclasses_and_properties(run):
    @dataclasses.dataclass
    class Scale(nn.Module):
        width: int
        power: float = 2.0
        weight: np.ndarray = dataclasses.field(init=False)

        def __post_init__(self):
            self.weight = np.full(self.width, 3.0)

        @property
        def total(self):
            return np.sum(self.weight)

        @total.setter
        def total(self, value):
            self.weight[...] = value / self.width

        def __call__(self, x):
            return self.total * x**self.power

    a, b = Scale(2), Scale(2)
    assert a != b and a == a and len({a, b}) == 2 and "weight: float64[2]" in repr(a)
    assert run(lambda m, x: m(x))(a, 3.0) == 54.0
    np.testing.assert_array_equal(run(wl.grad(lambda m, x: m(x)))(a, 3.0).weight, [9.0, 9.0])
    a.total = 8.0
    np.testing.assert_array_equal(a.weight, [4.0, 4.0])


def test_no_super_init_and_subclasses_of_subclasses():
    class Wide(Linear):
        def __init__(self):
            self.extra = np.ones(2)
            Linear.__init__(self, 2, 2)

    assert roles(Wide())[0] == ["extra", "weight", "bias"]
    assert type(wl.grad(lambda m: np.sum(m(np.ones((1, 2)))))(Wide())) is Wide


@pytest.mark.parametrize("base", [list, tuple, dict, set])
def test_containers_are_no_modules(base):
    with pytest.raises(TypeError, match=f"a Module and a {base.__name__}: hold the {base.__name__} in an attribute"):
        type("Both", (nn.Module, base), {})


def test_what_is_refused_of_classes():
    with pytest.raises(TypeError, match=r"has __slots__.*Leave them out"):
        type("Slots", (nn.Module,), {"__slots__": ("a",)})
    type("Empty", (nn.Module,), {"__slots__": ()})
    with pytest.raises(TypeError, match="forward and no __call__: call it __call__"):
        type("Torch", (nn.Module,), {"forward": lambda self, x: x})

    @dataclasses.dataclass(frozen=True)
    class Frozen(nn.Module):
        n: int = 3

    with pytest.raises(TypeError, match=r"frozen dataclass.*without frozen"):
        Frozen()
    with pytest.raises(TypeError, match="Nothing has no __call__: write one"):
        type("Nothing", (nn.Module,), {})()(X)


def test_cycles_are_refused():
    outer, inner = nn.Module(), nn.Module()
    outer.inner = inner
    for value in (outer, [outer], {"up": (outer,)}, inner):
        with pytest.raises(wl.ArgumentError, match="can't contain itself"):
            inner.up = value
    inner.items = items = []
    items.append(outer)  # not by assignment: it is found when the tree is read
    with pytest.raises(ValueError, match="contains itself"):
        wl.grad(lambda m: 0.0)(outer)


def test_keys_of_dicts_are_parts_of_names():
    model = nn.Module()
    with pytest.raises(wl.ArgumentError, match=r"key 'a\.b'.*without dots. Write 'a_b'"):
        model.heads = {"a.b": Linear(2, 2)}
    with pytest.raises(wl.ArgumentError, match="key 3"):
        model.heads = {3: np.ones(2)}
    model.names = {3: "three", "a.b": 1}  # static: no names of arrays


# 2 Parameters and buffers


def test_roles():
    model = nn.Module()
    model.w, model.z = np.ones(2, np.float32), np.ones(2, complex)
    model.b = nn.Buffer(np.ones(2))
    model.i, model.flag = np.arange(3), np.zeros(2, bool)
    read_only = np.ones(2)
    read_only.flags.writeable = False
    model.r = read_only
    model.number, model.scalar = 1.5, np.float64(2.0)
    assert roles(model) == (["w", "z"], ["b", "i", "flag", "r"])
    assert type(model.b) is np.ndarray and type(model.scalar) is np.float64
    model.b = nn.Parameter(model.b)
    model.w = nn.Buffer(model.w)
    assert roles(model) == (["z", "b"], ["w", "i", "flag", "r"])
    with pytest.raises(wl.ArgumentError, match=r"nn.Parameter got an array of dtype int64.*nn.Buffer for integers"):
        model.i = nn.Parameter(model.i)
    with pytest.raises(wl.ArgumentError, match=r"nn.Buffer takes an array.*got Linear.*use freeze"):
        model.m = nn.Buffer(Linear(2, 2))
    assert type(nn.Buffer(3).value) is np.ndarray


@RUNS
def test_containers_of_buffers_and_read_only_arrays(run):
    class Model(nn.Module):
        def __init__(self):
            fixed = np.full(2, 5.0)
            fixed.flags.writeable = False
            self.table = nn.Buffer([np.ones(2), np.ones(3)])
            self.mixed = [np.full(2, 2.0), fixed, np.arange(2)]

        def __call__(self):
            return np.sum(self.mixed[0] * self.mixed[1] * self.mixed[2]) + np.sum(self.table[0])

    model = Model()
    assert roles(model) == (["mixed.0"], ["table.0", "table.1", "mixed.1", "mixed.2"])
    gradient = run(lambda m: wl.grad(lambda m: m())(m))(model)
    assert gradient.mixed[1:] == [None, None] and gradient.table == [None, None]
    np.testing.assert_array_equal(gradient.mixed[0], [0.0, 5.0])
    assert roles(copy.deepcopy(model)) == roles(model)


@RUNS
def test_numpy_scalars_are_numbers(run):
    class Scaled(nn.Module):
        def __init__(self):
            self.w, self.factor = np.ones(4), 1 / np.sqrt(4)

        def __call__(self, x):
            assert isinstance(self.factor, np.float64)
            return np.sum(self.w * x) * self.factor

    gradient = run(wl.grad(lambda m: m(np.ones(4))))(Scaled())
    np.testing.assert_array_equal(gradient.w, 0.5)
    assert gradient.factor == 0.5 and roles(gradient) == (["w"], [])


@RUNS
def test_class_level_arrays_are_constants(run):
    class Fixed(nn.Module):
        table = np.arange(3.0)

        def __init__(self):
            self.w = np.ones(3)

    gradient = run(wl.grad(lambda m: np.sum(m.w * m.table)))(Fixed())
    np.testing.assert_array_equal(gradient.w, [0.0, 1.0, 2.0])
    assert roles(gradient) == (["w"], [])


@RUNS
def test_cached_properties(run):
    class Cached(nn.Module):
        def __init__(self):
            self.w = np.full(2, 3.0)

        @functools.cached_property
        def square(self):
            return self.w**2

    before = Cached()
    gradient = run(wl.grad(lambda m: np.sum(m.square)))(before)  # computed inside: of the clone, with its derivative
    np.testing.assert_array_equal(gradient.w, 6.0)
    assert "square" not in vars(before)
    np.testing.assert_array_equal(before.square, 9.0)
    assert roles(before) == (["w"], ["square"])
    assert [*before.state()] == ["w"]  # a model that is loaded computes it by itself
    Cached().load_state(before.state())
    before.load_state(Cached().state())


def test_print_marks_what_is_no_parameter():
    net = Net()
    net.freeze("heads.a.*")
    net.eval()
    text = repr(net)
    for line in [
        "Net(), evaluating", "  first: Linear(scale=", "    weight: float64[3, 3]\n", "    mean: float64[3] (buffer)",
        "    calls: int64[] (buffer)", "    1: tanh", "      weight: float64[3, 3] = first.weight",
        "      bias: float64[2] (frozen)",
    ]:  # fmt: skip
        assert line in text, text


# 3 Assignment


@RUNS
def test_assignment_to_a_buffer_writes_into_its_array(run):
    model = Norm(3)
    mean, calls = model.mean, model.calls
    alias = calls[...]

    def step(model):
        model.calls = model.calls + 1
        model.mean = np.ones(3, np.float32)
        model.mean = model.mean * 2
        model.calls += 1

    run(step)(model)
    run(step)(model)
    assert model.mean is mean and model.calls is calls and type(calls) is np.ndarray
    assert calls == 4 and alias == 4 and mean.tolist() == [2.0] * 3 and mean.dtype == np.float64


@RUNS
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones(4), r"Norm.mean, a buffer of shape \(3,\) and dtype float64, was assigned a value of shape \(4,\)"),
        (2.0, r"of shape \(\).*assign nn.Buffer\(value\) outside"),
        (np.ones(3, complex), r"of dtype complex128.*doesn't fit without loss"),
    ],
)
def test_a_buffer_keeps_shape_and_dtype(run, value, message):
    model = Norm(3)

    def assign(model):
        model.mean = value

    with pytest.raises(wl.MutationError, match=message):
        run(assign)(model)
    assert model.mean.tolist() == [0.0] * 3
    with pytest.raises(wl.MutationError, match="dtype float64"):
        run(lambda m: setattr(m, "calls", np.float64(1.5)))(model)


def test_a_buffer_is_replaced_by_another_one():
    model = Norm(3)
    model.mean = nn.Buffer(np.ones(5, np.float32))
    assert model.mean.shape == (5,) and roles(model)[1] == ["mean", "calls"]
    model.mean = None
    assert roles(model)[1] == ["calls"]
    model.mean = np.ones(2)  # None became an array: it is classified now
    assert roles(model)[0] == ["gamma", "mean"]


def test_a_read_only_buffer_is_not_written():
    model = nn.Module()
    array = np.ones(2)
    array.flags.writeable = False
    model.a = array
    with pytest.raises(wl.MutationError, match=r"is read-only.*nn.Buffer\(np.array\(value\)\)"):
        model.a = np.zeros(2)


def test_assignment_to_a_parameter_rebinds_outside():
    model = Linear(3, 3)
    weight, kept = model.weight, model.weight.copy()
    model.weight = np.zeros((2, 5), np.float32)
    assert model.weight is not weight and model.weight.shape == (2, 5)
    np.testing.assert_array_equal(weight, kept)
    model.weight = np.arange(3)
    assert roles(model) == (["bias"], ["weight"])


@RUNS
def test_assignment_to_a_parameter_writes_back_inside(run):
    model = Linear(3, 3)
    weight = model.weight

    def step(model):
        model.weight = model.weight * 2
        return wl.grad(lambda m: np.sum(m.weight**2))(model).weight

    expected = 4 * weight
    transformed = wl.jit(step) if run is wl.jit else lambda m: wl.vjp(step, m)[0]
    np.testing.assert_allclose(transformed(model), expected)
    assert model.weight is weight
    np.testing.assert_allclose(weight, expected / 2)


def test_a_parameter_without_axes_stays_an_array():
    model = nn.Module()
    model.t = np.array(2.0)
    gradient = wl.grad(lambda m: m.t**2)(model)
    assert type(gradient.t) is np.ndarray and gradient.t == 4.0
    gradient = wl.jit(wl.grad(lambda m: m.t**2))(model)
    assert type(gradient.t) is np.ndarray and gradient.t == 4.0
    stepped = wl.tree_map(lambda p, g: p - 0.5 * g, model, gradient)
    assert type(stepped.t) is np.ndarray and stepped.t == 0.0


@RUNS
def test_a_shared_array_is_not_rebound_in_one_place(run):
    def rebind(net):
        net.first.weight = net.first.weight * 2
        return 0.0

    def write(net):
        net.first.weight *= 2
        return np.sum(net.layers[2].weight)

    net = Net()
    before = arrays(net)
    transform = run if run is wl.jit else wl.value_and_grad
    with pytest.raises(wl.MutationError, match=r"first\.weight and layers\.2\.weight .* are one array.*`-=`"):
        transform(rebind)(net)
    assert_same(arrays(net), before)
    out = transform(write)(net)
    np.testing.assert_allclose(out if run is wl.jit else out[0], 2 * np.sum(before["first.weight"]))
    np.testing.assert_allclose(net.layers[2].weight, 2 * before["first.weight"])
    assert net.layers[2].weight is net.first.weight


# 4 Static


def compiled(jitted):
    return len(jitted._specializations)


def test_static_values_are_compared_by_type_and_value():
    class Model(nn.Module):
        def __init__(self, **static):
            self.w = np.ones(2)
            for name, value in static.items():
                setattr(self, name, value)

        def __call__(self, x):
            return np.sum(self.w * x * self.n)

    f = wl.jit(lambda m, x: m(x))
    assert f(Model(n=2, name="a", sizes=(1, 2)), 1.0) == 4.0
    assert f(Model(n=2, name="".join(["a"]), sizes=tuple(map(int, "12"))), 1.0) == 4.0
    assert compiled(f) == 1
    calls = []
    special = f._prepare
    f._prepare = lambda *args: (calls.append(1), special(*args))[1]
    model = Model(n=2, name="a", sizes=(1, 2))
    model.n = int("2")  # recomputed, equal
    f(model, 1.0)
    f(pickle.loads(pickle.dumps(Linear(2, 2))) and copy.deepcopy(model), 1.0)
    assert not calls  # the fast path
    for other in (2.0, True, np.int64(2)):
        f(Model(n=other, name="a", sizes=(1, 2)), 1.0)
    assert compiled(f) == 4


def test_containers_that_change_in_place_are_seen():
    class Model(nn.Module):
        def __init__(self):
            self.w, self.powers, self.flags = np.full(2, 2.0), [1], {"square": False}

        def __call__(self):
            out = sum(np.sum(self.w**p) for p in self.powers)
            return out**2 if self.flags["square"] else out

    model, f = Model(), wl.jit(lambda m: m())
    assert f(model) == f(model) == 4.0
    model.powers.append(2)
    assert f(model) == f(model) == 12.0
    model.flags["square"] = True
    assert f(model) == f(model) == 144.0
    model.powers.pop()
    assert f(model) == 16.0


def test_lists_of_layers_that_grow_are_seen():
    class Model(nn.Module):
        def __init__(self):
            self.layers = []

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model, f = Model(), wl.jit(lambda m, x: m(x))
    np.testing.assert_array_equal(f(model, X), X)
    model.layers.append(Linear(3, 2))
    np.testing.assert_allclose(f(model, X), model(X))
    np.testing.assert_allclose(f(model, X), model(X))
    model.layers[0] = np.tanh
    np.testing.assert_allclose(f(model, X), np.tanh(X))
    model.layers.clear()
    np.testing.assert_array_equal(f(model, X), X)


HIDING = {
    "a bound method of another": lambda layer: layer.__call__,
    "partial": lambda layer: functools.partial(lambda m, x: m(x), layer),
    "a jitted Module": lambda layer: wl.jit(layer),
    "a closure": lambda layer: lambda x: layer(x),
    "a closure over an array": lambda layer, w=1: (lambda w: lambda x: x * w)(layer.weight),
    "a default": lambda layer: lambda x, m=layer: m(x),
    "a set": lambda layer: {layer},
    "a deque": lambda layer: collections.deque([layer]),
    "a deque of arrays": lambda layer: collections.deque([layer.weight]),
    "a mapping proxy": lambda layer: types.MappingProxyType({"a": layer}),
    "keys of a dict": lambda layer: {layer: 1},
    "values of a dict": lambda layer: {"a": layer}.values(),
    "a gradient": lambda layer: wl.grad(lambda x: np.sum(layer(x))),
    "in a list": lambda layer: [np.tanh, lambda x: layer(x)],
}


@pytest.mark.parametrize("name", HIDING)
def test_what_hides_parameters_is_refused(name):
    model = nn.Module()
    with pytest.raises(wl.ArgumentError, match=r"out of sight.*Assign the Module or the array itself"):
        model.f = HIDING[name](Linear(2, 2))


def test_functions_that_hide_nothing_are_static():
    model = nn.Module()
    model.f = [np.tanh, lambda x: x, functools.partial(np.sum, axis=0), wl.jit(np.exp), np.dtype(float), Linear]
    constant = np.ones(2)
    constant.flags.writeable = False
    model.g = (lambda w: lambda x: x * w)(constant)
    model.colour = enum.Enum("Colour", "RED GREEN").RED
    with pytest.raises(wl.ArgumentError, match=r"np.random.Generator.*nn.Buffer\(wl.random.key\(0\)\)"):
        model.random = np.random.default_rng(0)


@RUNS
def test_own_bound_methods_are_those_of_the_clone(run):
    class Model(nn.Module):
        def __init__(self, square):
            self.w = np.full(2, 3.0)
            self.act = self.square if square else self.cube

        def square(self):
            return self.w**2

        def cube(self):
            return self.w**3

    for square, slope in ((True, 6.0), (False, 27.0)):
        gradient = run(wl.grad(lambda m: np.sum(m.act())))(Model(square))
        np.testing.assert_array_equal(gradient.w, slope)
    model = copy.deepcopy(Model(True))
    assert model.act.__self__ is model


def test_other_objects_warn_once_and_go_by_identity():
    class Thing:
        pass

    model = nn.Module()
    with pytest.warns(UserWarning, match="Thing, which doesn't say when two of them are equal"):
        model.a = Thing()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.b = Thing()
    f = wl.jit(lambda m: 1.0)
    f(model)
    f(model)
    assert compiled(f) == 1
    model.b = Thing()
    f(model)
    assert compiled(f) == 2


@RUNS
def test_static_attributes_do_not_change_inside(run):
    def f(model):
        model.scale = 3.0
        return np.sum(model.weight)

    with pytest.raises(wl.MutationError, match=r"Linear.scale changed inside"):
        (run if run is wl.jit else wl.grad)(f)(Linear(2, 2))


# 9 Freezing


@RUNS
def test_frozen_parameters_are_constants(run):
    net = Net().eval()
    full = run(lambda m: wl.grad(loss)(m))(net)
    net.freeze("heads.*", "*.bias")
    gradient = run(lambda m: wl.grad(loss)(m))(net)
    for name, array in full.named_parameters():
        found = dict(gradient.named_parameters()).get(name)
        frozen = name.startswith("heads.") or name.endswith("bias")
        assert (found is None) == frozen, name
        if not frozen:
            np.testing.assert_allclose(found, array)
    assert gradient.heads["a"].weight is None and gradient.first.bias is None
    assert [*dict(net.named_parameters(trainable=True))] == ["first.weight", "norm.gamma", "layers.0.weight"]
    net.unfreeze("heads.a.weight")
    assert run(lambda m: wl.grad(loss)(m))(net).heads["a"].weight is not None
    net.unfreeze()
    assert len(net.parameters(trainable=True)) == 10


def test_patterns():
    class Bias(nn.Module):
        def __init__(self):
            self.bias, self.inner, self.tables = np.ones(1), Linear(2, 2), [np.ones(1), np.ones(1)]

    model = Bias()
    model.freeze("*.bias")
    assert [*dict(model.named_parameters(trainable=True))] == ["inner.weight", "tables.0", "tables.1"]
    model.unfreeze().freeze("tables.1", "inner.*")
    assert [*dict(model.named_parameters(trainable=True))] == ["bias", "tables.0"]
    assert wl.grad(lambda m: np.sum(m.tables[0] + m.tables[1]))(model).tables[1] is None
    with pytest.raises(wl.ArgumentError, match=r"no parameter matches 'encoder.\*'.*The names are bias, inner.weight"):
        model.freeze("encoder.*")
    with pytest.raises(wl.ArgumentError, match=r"matches 'inner'. For all of it, write 'inner.\*'"):
        model.freeze("inner")
    with pytest.raises(wl.ArgumentError, match="takes patterns"):
        model.freeze(3)


def test_a_shared_parameter_is_frozen_if_it_is_at_any_place():
    net = Net()
    net.layers[2].freeze("weight")
    assert "first.weight" not in dict(net.named_parameters(trainable=True))
    assert wl.grad(loss)(net).first.weight is None
    net.unfreeze("first.weight")
    assert wl.grad(loss)(net).first.weight is not None


def test_freezing_between_steps():
    net = Net()

    @wl.jit
    def step(net):
        grads = wl.grad(loss)(net)
        for (_, p), (_, g) in zip(net.named_parameters(trainable=True), grads.named_parameters(), strict=True):
            p -= 0.01 * g

    for pattern in ("first.*", "layers.*", "heads.*"):
        before = arrays(net)
        net.unfreeze().freeze(pattern)
        step(net)
        after = arrays(net)
        for name, _ in net.named_parameters():
            same = np.array_equal(before[name], after[name])
            shared = name == "first.weight" and pattern == "layers.*"
            assert same == (name.startswith(pattern[:-1]) or shared), (pattern, name)


# 10 Names and states


def test_state_and_load_state():
    net, other = Net(), Net()
    for array in other.parameters():
        array += 1.0
    held = other.first.weight
    assert other.load_state(net.state()) == ([], [])
    assert other.first.weight is held
    assert_same(arrays(other), arrays(net))
    assert [*net.state()][:4] == ["first.weight", "first.bias", "norm.gamma", "norm.mean"]


def test_a_state_that_does_not_fit():
    net = Net()
    state = arrays(net)
    before = arrays(net)
    state["more"] = state.pop("first.bias")
    with pytest.raises(wl.ArgumentError, match=r"lacks first.bias. It has more, which the model lacks. With strict=F"):
        net.load_state(state)
    report = net.load_state(state, strict=False)
    assert report.missing == ["first.bias"] and report.unexpected == ["more"]
    state = arrays(net)
    state["norm.gamma"] = np.ones(5)
    with pytest.raises(wl.ArgumentError, match=r"norm.gamma has shape \(3,\) and dtype float64 in the model, \(5,\)"):
        net.load_state(state)
    with pytest.raises(wl.ArgumentError, match="takes a dict of arrays by dotted name, got list"):
        net.load_state([1])
    assert_same(arrays(net), before)


def test_aliases_keys_and_counters():
    net = Net()
    state = {**arrays(net), "layers.2.weight": net.first.weight.copy(), "norm.num_batches_tracked": np.array(3)}
    assert net.load_state(state) == ([], [])
    state["layers.2.weight"] = state["layers.2.weight"] + 1
    with pytest.raises(wl.ArgumentError, match=r"first.weight and layers.2.weight are one array"):
        net.load_state(state)
    del state["first.weight"]  # by its other name alone
    net.load_state(state)
    np.testing.assert_array_equal(net.first.weight, state["layers.2.weight"])
    assert Dropout().load_state({}) == ([], [])


def test_loading_from_a_memory_mapped_file(tmp_path):
    net = Net()
    np.save(tmp_path / "w.npy", np.full((3, 3), 7.0))
    mapped = np.load(tmp_path / "w.npy", mmap_mode="r")
    net.load_state({**arrays(net), "first.weight": mapped})
    assert type(net.first.weight) is np.ndarray and net.first.weight[0, 0] == 7.0
    net.first.weight += 1


def test_unprefixed_attributes():
    class Sequential(nn.Module):
        _unprefixed = ("layers",)

        def __init__(self, *layers):
            self.layers = list(layers)

    model = Sequential(Linear(2, 3), np.tanh, Linear(3, 1))
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [*model.state()] == names and [n for n, _ in model.named_modules()] == ["", "0", "2"]
    model.freeze("0.*")
    assert [*dict(model.named_parameters(trainable=True))] == names[2:]


# 11 Training and evaluation


def test_train_and_eval_go_through_the_tree():
    net = Net()
    f = wl.jit(lambda m, x: m(x))
    f(net, X)
    assert net.norm.calls == 1 and net.eval() is net
    f(net, X)
    assert net.norm.calls == 1 and not net.heads["a"].training
    net.norm.training = True
    with nn.evaluating(net) as same:
        assert same is net and not net.norm.training
        f(net, X)
    assert net.norm.training and not net.first.training and net.norm.calls == 1
    net.train()
    f(net, X)
    assert net.norm.calls == 2 and compiled(f) == 2


def test_none_becomes_an_array_outside_only():
    class Lazy(nn.Module):
        def __init__(self):
            self.w = None

        def __call__(self, x):
            if self.w is None:
                self.w = np.ones(x.shape[-1])
            return np.sum(x * self.w)

    with pytest.raises(wl.MutationError, match=r"Lazy.w changed inside|assigned"):
        wl.jit(lambda m, x: m(x))(Lazy(), X)
    model = Lazy()
    model(X)
    assert roles(model) == (["w"], [])
    np.testing.assert_allclose(wl.grad(lambda m: m(X))(model).w, X.sum(0), atol=1e-15)


# 12 Ensembles and copies


@RUNS
def test_ensembles(run):
    models = [Net(tied=i == i) for i in range(3)]
    for i, model in enumerate(models):
        model.first.weight += i
    ensemble = nn.stack(models)
    assert ensemble.first.weight.shape == (3, 3, 3) and ensemble.layers[2].weight is ensemble.first.weight
    assert not np.shares_memory(ensemble.first.weight, models[0].first.weight)
    out = run(wl.vmap(lambda m, x: m(x), in_axes=(0, None)))(ensemble, X)
    expected = np.stack([model(X) for model in models])
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    assert ensemble.norm.calls.tolist() == [1, 1, 1]  # written along the axis
    for model, other in zip(nn.unstack(ensemble), models, strict=True):
        assert_same(arrays(model), arrays(other))
        assert model.layers[2].weight is model.first.weight


@RUNS
def test_dropout_keys_of_an_ensemble_differ(run):
    ensemble = nn.stack([Dropout(), Dropout(), Dropout(seed=1)])
    f = run(wl.vmap(lambda m, x: m(x), in_axes=(0, None)))
    first, second = f(ensemble, np.ones(64)), f(ensemble, np.ones(64))
    rows = [*first, *second]
    assert all(not np.array_equal(a, b) for i, a in enumerate(rows) for b in rows[:i])


def test_what_cannot_be_stacked():
    with pytest.raises(wl.ArgumentError, match="model 1 has another structure"):
        nn.stack([Net(), Net(tied=False)])
    with pytest.raises(wl.ArgumentError, match=r"weight has shape \(2, 2\).*\(3, 2\)"):
        nn.stack([Linear(2, 2), Linear(2, 3)])
    with pytest.raises(wl.ArgumentError, match=r"it has another Linear\.out_features: was 2, now 3\."):
        nn.stack([nn.Linear(2, 2), nn.Linear(2, 3)])
    with pytest.raises(wl.ArgumentError, match="it has other frozen parameters in its Linear"):
        nn.stack([nn.Linear(2, 2), nn.Linear(2, 2).freeze("bias")])
    with pytest.raises(wl.ArgumentError, match="takes a list of Modules, got"):
        nn.stack([1, 2])
    with pytest.raises(wl.ArgumentError, match="takes a list of Modules, got one Net"):
        nn.stack(Net())
    with pytest.raises(wl.ArgumentError, match="no common first axis"):
        nn.unstack(Net())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies_are_deep_and_keep_what_is_shared(copied):
    net = Net()
    net.extra, net.dropout = {"again": net.first}, Dropout()
    net.freeze("heads.*").eval()
    other = copied(net)
    assert other.layers[2].weight is other.first.weight and other.extra["again"] is other.first
    assert roles(other) == roles(net) and not other.norm.training
    assert [*dict(other.named_parameters(trainable=True))] == [*dict(net.named_parameters(trainable=True))]
    assert not any(np.shares_memory(a, b) for a in net.state().values() for b in other.state().values())
    np.testing.assert_array_equal(other.dropout.key, net.dropout.key)
    f = wl.jit(lambda m, x: m(x))
    np.testing.assert_array_equal(f(net, X), f(other, X))
    assert compiled(f) == 1


def test_a_shallow_copy_has_its_own_roles():
    net = Linear(2, 2)
    other = copy.copy(net)
    other.bias = nn.Buffer(np.ones(2))
    assert roles(net) == (["weight", "bias"], []) and roles(other) == (["weight"], ["bias"])


def test_summary():
    text = nn.summary(Net(), X)
    lines = text.splitlines()
    assert lines[0].split() == ["module", "class", "result", "parameters"]
    assert [line.split()[0] for line in lines[2:-1]] == [
        "(all)", "first", "norm", "layers.0", "layers.2", "heads.a", "heads.b",
    ]  # fmt: skip
    assert "(4, 2)" in lines[2] and lines[-1].startswith("46 parameters, 46 of them trained")
    net = Net()
    nn.summary(net, X)
    assert net.norm.calls == 0 and net.training
    with pytest.raises(wl.ArgumentError, match="takes a Module"):
        nn.summary(np.tanh, X)


def test_long_static_containers_are_compared():
    class Model(nn.Module):
        def __init__(self):
            self.w, self.vocabulary, self.ids = np.ones(2), {str(i): i for i in range(100)}, list(range(50))

        def __call__(self):
            return np.sum(self.w) * self.vocabulary["7"] * self.ids[3]

    model, f = Model(), wl.jit(lambda m: m())
    assert f(model) == f(model) == 42.0 and compiled(f) == 1
    model.vocabulary["7"] = 8
    assert f(model) == f(model) == 48.0
    model.ids[3] = True
    assert f(model) == f(model) == 16.0
    model.ids[3] = 1
    assert f(model) == 16.0 and compiled(f) == 4
    model.vocabulary["7"] = 7
    model.ids[3] = 3
    assert f(model) == 42.0 and compiled(f) == 4


def test_own_methods_belong_to_copies():
    for copied in (copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        model = OwnMethod()
        other = copied(model)
        assert other.method.__self__ is other and model.method.__self__ is model
        gradient = wl.grad(lambda m: np.sum(m(X)))(other)
        assert_same(arrays(gradient), arrays(wl.grad(lambda m: np.sum(m(X)))(model)))
        assert np.any(gradient.layer.weight) and "OwnMethod(method=apply)" in repr(other)


class OwnMethod(nn.Module):
    def __init__(self):
        self.layer = Linear(X.shape[-1], 2)
        self.method = self.apply

    def apply(self, x):
        return self.layer(x)

    def __call__(self, x):
        return self.method(x)


def test_two_arrays_with_one_dotted_name_are_refused():
    class Model(nn.Module):
        def __init__(self):
            self.d = {"a": {"b": np.ones(2)}}

    model = Model()
    model.d["a.b"] = np.zeros(2)
    for call in (model.state, model.parameters, lambda: nn.Module.freeze(model, "*") and model.state()):
        with pytest.raises(wl.ArgumentError, match=r"same dotted name, 'd\.a\.b'"):
            call()


def test_names_that_begin_with_underscores():
    model = nn.Module()
    setattr(model, "__x", nn.Buffer(np.zeros(2)))
    assert roles(model) == ([], ["__x"])


def test_a_captured_module_that_changes_is_noticed():
    """Its arrays are hidden inputs; its mode, its numbers and its layers are part of what was compiled."""

    class Net(nn.Module):
        def __init__(self):
            self.layer, self.scale = Linear(X.shape[-1], 2), 2.0

        def __call__(self, x):
            return self.layer(x) * (self.scale if self.training else 1.0)

    def mode(net):
        net.eval()

    def number(net):
        net.scale = 3.0

    def layer(net):
        net.layer = Linear(X.shape[-1], 2)

    for change in (mode, number, layer):
        net = Net()
        f = wl.jit(lambda x, net=net: net(x))
        f(X), f(X)
        net.layer.weight *= 2.0
        np.testing.assert_allclose(f(X), net(X), rtol=1e-6)
        change(net)
        with pytest.warns(wl.ReboundArrayWarning, match="compiled with the attributes that"):
            f(X)
    chain = nn.Sequential(Linear(X.shape[-1], 2), Linear(2, 2))
    f = wl.jit(lambda x: chain(x))
    f(X)
    chain[1] = Linear(2, 2)  # another list of layers, with the first of the old ones in it
    with pytest.warns(wl.ReboundArrayWarning, match=r"attributes that chain\.layers had"):
        f(X)
    net = Net()
    f = wl.jit(lambda x: net(x))
    f(X)
    net = Net()
    with pytest.warns(wl.ReboundArrayWarning, match="attributes that net had"):
        f(X)


def test_an_equal_static_value_keeps_the_layout():
    """It is what calls are recognised by: made again, it costs more than a call."""
    for value, equal, other in [
        (1, int("1"), True), (0.0, float("0"), -0.0), ("ab", "".join("ab"), "b"), ([1, {"a": 2}], [1, {"a": 2}], [1]),
        ((1, 2), tuple(map(int, "12")), (1, 2.0)), ({"a": [1]}, {"a": [1]}, {"a": [np.ones(1)]}),
    ]:  # fmt: skip
        model = Linear(2, 2)
        model.value = value
        layout = layout_of(model)
        model.value = equal
        assert book_of(model).layout is layout and model.value is equal
        model.value = other
        assert layout_of(model) is not layout and model.value is other


def test_an_attribute_that_causes_compilations_is_named():
    model = Linear(2, 2)
    f = wl.jit(lambda m: np.sum(m.weight) * m.scale)
    with pytest.warns(UserWarning, match=r"argument 'm' has another Linear\.scale: was 4, now 5\."):
        for model.scale in range(6):
            f(model)


def test_arrays_of_things_that_are_no_numbers():
    for wrong in (np.array(["a"]), np.array([Linear(1, 1)], object), np.zeros(2, [("a", "f4")])):
        with pytest.raises(wl.ArgumentError, match=r"Linear\.table would be an array of dtype"):
            Linear(1, 1).table = wrong


def test_changes_of_the_mode_inside():
    model = Linear(X.shape[-1], 2)
    for change in (lambda m: m.eval(), lambda m: m.freeze("*")):
        with pytest.raises(wl.MutationError, match=r"nn\.evaluating"):
            wl.jit(lambda m, change=change: (change(m), m(X))[1])(model)
