"""Pytrees: what is a node, what is a leaf, in which order; and mutable nodes."""

import collections
import types
from typing import NamedTuple

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.core.kinds import kind_of


class Point(NamedTuple):
    x: object
    y: object


class Pair:
    def __init__(self, first, second, name):
        self.first, self.second, self.name = first, second, name


wl.register_node(Pair, lambda p: ((p.first, p.second), p.name), lambda name, children: Pair(*children, name))


@wl.register_mutable
class Counter:
    def __init__(self, count=0.0, label="counter"):
        self.count = np.array(count)
        self.label = label
        self.inner = None


class Labelled(Counter):
    """A subclass of a registered mutable class is one too."""


NESTED = st.recursive(
    st.integers() | st.floats(allow_nan=False) | st.none(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), children, max_size=3)
        | st.builds(Point, children, children)
    ),
    max_leaves=12,
)


@hypothesis.given(NESTED)
@hypothesis.settings(max_examples=50)
def test_flatten_and_back(value):
    leaves, structure = tree.flatten(value)
    assert structure.leaf_count == len(leaves)
    again = structure.unflatten(leaves)
    assert again == value and type(again) is type(value)
    assert tree.flatten(again)[1] == structure and hash(tree.flatten(again)[1]) == hash(structure)


@hypothesis.given(NESTED)
@hypothesis.settings(max_examples=50)
def test_map(value):
    doubled = wl.tree_map(lambda x: (x, "leaf"), value)
    structure = tree.flatten(value)[1]
    assert [x[0] for x in _tagged(doubled, structure)] == tree.leaves(value)


def _tagged(value, structure):
    if structure.kind is None:
        return [value]
    children = kind_of(value).flatten(value)[0]
    return [x for child, sub in zip(children, structure.children, strict=True) for x in _tagged(child, sub)]


class TestOrder:
    def test_dicts_are_sorted_by_key(self):
        assert tree.leaves({"b": 1, "a": 2, "c": 3}) == [2, 1, 3]
        assert tree.flatten({"b": 1, "a": 2})[1] == tree.flatten({"a": 5, "b": 6})[1]

    def test_keys_that_cannot_be_sorted_keep_their_order(self):
        assert tree.leaves({"b": 1, 0: 2}) == [1, 2]

    def test_namedtuple(self):
        out = wl.tree_map(lambda x: x + 1, Point(1, (2, 3)))
        assert out == Point(2, (3, 4)) and type(out) is Point

    def test_none_is_a_node_without_leaves(self):
        leaves, structure = tree.flatten((None, 1, None))
        assert leaves == [1] and structure.unflatten([2]) == (None, 2, None)

    def test_registered_nodes(self):
        out = wl.tree_map(lambda x: 2 * x, Pair(1, [2, 3], "p"))
        assert (out.first, out.second, out.name) == (2, [4, 6], "p")

    def test_static_data_is_part_of_the_structure(self):
        assert tree.flatten(Pair(1, 2, "p"))[1] != tree.flatten(Pair(1, 2, "q"))[1]

    def test_subclasses_of_dict(self):
        out = wl.tree_map(lambda x: x + 1, collections.OrderedDict(b=1, a=2))
        assert out == {"a": 3, "b": 2} and type(out) is collections.OrderedDict
        out = wl.tree_map(lambda x: x + 1, collections.Counter("aab"))
        assert out == {"a": 3, "b": 2} and type(out) is collections.Counter

    def test_printing(self):
        structure = tree.flatten({"w": [1, (2,)], "p": Point(None, 3), "q": Pair(1, 2, "n")})[1]
        assert repr(structure) == "{'p': namedtuple(None, array), 'q': Pair(array, array), 'w': [array, (array,)]}"


class TestErrors:
    def test_structures_must_agree(self):
        with pytest.raises(ValueError, match=r"differ in structure: \(array, array\) and \[array, array\]"):
            wl.tree_map(lambda a, b: a, (1, 2), [1, 2])

    def test_a_mutable_object_cannot_contain_itself(self):
        loop = Counter()
        loop.inner = loop
        with pytest.raises(ValueError, match="contains itself"):
            tree.flatten(loop)

    @pytest.mark.parametrize("f", [lambda t: np.sum(t["name"]), lambda t: "text", lambda t: object()])
    def test_leaves_must_be_numbers(self, f):
        with pytest.raises(TypeError, match="expected an array or a number"):
            wl.grad(f)({"name": "abc"})

    def test_object_arrays_are_refused(self):
        with pytest.raises(TypeError, match="dtype object"):
            wl.grad(np.sum)(np.array([1, "a"], object))

    def test_a_tangent_of_another_structure(self):
        with pytest.raises(wl.ArgumentError, match="tangent of argument 0 has structure"):
            wl.jvp(lambda p: p["a"], ({"a": 1.0},), ((1.0,),))
        _, pull = wl.vjp(lambda x: {"a": x}, 1.0)
        with pytest.raises(wl.ArgumentError, match="cotangent has structure"):
            pull([1.0])


class TestDerivativesOfTrees:
    def test_gradient_has_the_structure_of_the_argument(self):
        value = {"b": Point(1.0, None), "a": [np.ones(2), Pair(2.0, (3.0,), "p")]}
        f = lambda t: t["b"].x ** 2 * np.sum(t["a"][0]) * t["a"][1].first * t["a"][1].second[0]
        out = wl.grad(f)(value)
        assert tree.flatten(out)[1] == tree.flatten(value)[1]
        assert out["b"] == Point(24.0, None)
        assert out["a"][0].tolist() == [6.0, 6.0]
        assert (out["a"][1].first, out["a"][1].second) == (6.0, (4.0,))

    def test_integers_have_zero_gradients(self):
        out = wl.grad(lambda p: p["x"] * p["n"])({"x": 2.0, "n": 3})
        assert out == {"x": 3.0, "n": 0}

    def test_results_are_trees(self):
        value, tangent = wl.jvp(lambda x: {"a": (x, None), "n": 3}, (2.0,), (1.0,))
        assert value == {"a": (2.0, None), "n": 3} and tangent["a"] == (1.0, None) and tangent["n"] == 0

    def test_vmap_of_trees(self):
        batch = {"x": np.arange(3.0), "w": 2.0}
        f = lambda p: Point(p["x"] * p["w"], p["w"])
        out = wl.vmap(f, in_axes=({"x": 0, "w": None},), out_axes=Point(0, None))(batch)
        assert out.x.tolist() == [0.0, 2.0, 4.0] and out.y == 2.0
        with pytest.raises(ValueError, match="in_axes"):
            wl.vmap(lambda p: p["x"], in_axes=({"x": 0},))(batch)


class TestMutable:
    def test_attributes_are_children_or_static(self):
        counter = Counter(2.0)
        leaves, structure = tree.flatten(counter)
        assert [float(x) for x in leaves] == [2.0] and structure.has_mutable
        again = structure.unflatten([5.0])
        assert (again.count, again.label, type(again)) == (5.0, "counter", Counter)

    @pytest.mark.parametrize("cls", [Counter, Labelled])
    def test_written_back_in_place(self, cls):
        counter = cls()
        array = counter.count

        def f(counter, x):
            counter.count = counter.count + x
            return x * counter.count

        assert wl.grad(f, argnums=1)(counter, 3.0) == 6.0
        assert counter.count is array and array == 3.0
        out, _ = wl.jvp(lambda c, x: f(c, x), (counter, 1.0), (None, 1.0))
        assert (out, float(array)) == (4.0, 4.0)

    def test_in_place_writes_reach_the_array(self):
        counter = Counter(np.zeros(3))

        def f(counter, x):
            counter.count[1] = x
            counter.count += 1.0
            return np.sum(counter.count)

        assert wl.grad(f, argnums=1)(counter, 3.0) == 1.0
        assert counter.count.tolist() == [1.0, 4.0, 1.0]

    def test_through_nested_transformations(self):
        counter = Counter()

        def step(counter, x):
            counter.count = counter.count + 1.0
            return x * x

        assert wl.grad(lambda x: wl.grad(step, argnums=1)(counter, x))(3.0) == 2.0
        assert counter.count == 1.0

    def test_gradient_with_respect_to_a_mutable_object(self):
        counter = Counter(2.0)
        gradient = wl.grad(lambda c: c.count**3)(counter)
        assert type(gradient) is Counter and gradient.count == 12.0 and counter.count == 2.0

    def test_numbers_of_numpy_are_data_as_0d_arrays_are(self):
        gradient = wl.grad(lambda c: c.count**3)(Counter(2.0))  # whose count is a np.float64, which is a float too
        assert tree.leaves(gradient) == [12.0]
        assert wl.tree_map(lambda leaf: 2 * leaf, gradient).count == 24.0

    def test_a_call_that_raises_changes_nothing(self):
        counter = Counter(1.0)

        def f(counter, x):
            counter.count = counter.count + x
            raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            wl.grad(f, argnums=1)(counter, 3.0)
        assert counter.count == 1.0

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda c, x: setattr(c, "label", "other"), "Counter.label changed"),
            (lambda c, x: setattr(c, "new", np.zeros(2)), "Counter.new"),
            (lambda c, x: setattr(c, "count", np.zeros(7)), "shape and dtype must stay"),
            (lambda c, x: setattr(c, "count", c.count * 1j), "shape and dtype must stay"),
        ],
    )
    def test_what_cannot_be_carried_out_is_refused(self, change, message):
        def f(counter, x):
            change(counter, x)
            return x

        with pytest.raises(wl.MutationError, match=message):
            wl.grad(f, argnums=1)(Counter(), 1.0)

    def test_batched_values_cannot_be_written(self):
        def f(counter, x):
            counter.count = counter.count + x
            return x

        with pytest.raises(wl.MutationError, match="vmap"):
            wl.vmap(f, in_axes=(None, 0))(Counter(), np.ones(3))


# Trees as leaves and as vectors.

MIXED = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": (np.float64(0.1), None, [np.array(2.5)]),
    "p": Point(np.zeros((0, 2)), Pair(np.ones(2)[::-1], -1.5, "name")),
}


def test_public_functions_of_trees():
    leaves, structure = wl.tree_flatten({"b": 2.0, "a": Point(1.0, None)})
    assert leaves == wl.tree_leaves({"b": 2.0, "a": Point(1.0, None)}) == [1.0, 2.0]
    assert structure == wl.tree_structure({"a": Point(5, None), "b": 7})
    assert wl.tree_unflatten(structure, (x for x in (3, 4))) == {"b": 4, "a": Point(3, None)}
    with pytest.raises(wl.ArgumentError, match="has 2 leaves, got 3"):
        wl.tree_unflatten(structure, [1, 2, 3])
    with pytest.raises(wl.ArgumentError, match=r"got list first: tree_unflatten\(structure, leaves\)"):
        wl.tree_unflatten([1, 2], structure)
    with pytest.raises(wl.ArgumentError, match="list of leaves, got float"):
        wl.tree_unflatten(structure, 1.0)


def test_ravel_and_back_keep_values_shapes_and_dtypes():
    vector, unravel = wl.tree_ravel(MIXED)
    assert vector.dtype == np.float64
    np.testing.assert_array_equal(vector, [0.1, 2.5, 1.0, 1.0, -1.5, 0, 1, 2, 3, 4, 5])  # b, p, w
    again = unravel(vector)
    assert wl.tree_structure(again) == wl.tree_structure(MIXED)
    for old, new in zip(wl.tree_leaves(MIXED), wl.tree_leaves(again), strict=True):
        assert new.dtype == np.asarray(old).dtype and isinstance(new, np.ndarray) == isinstance(old, np.ndarray)
        np.testing.assert_array_equal(new, old)
    vector[:] = 7  # it is nobody's memory
    assert MIXED["w"][0, 1] == 1 and again["w"][0, 1] == 1


@pytest.mark.parametrize("empty", [{}, (), None, {"a": np.zeros((0, 3))}])
def test_ravel_of_nothing(empty):
    vector, unravel = wl.tree_ravel(empty)
    assert vector.shape == (0,) and vector.dtype == np.float64
    assert wl.tree_structure(unravel(vector)) == wl.tree_structure(empty)


@pytest.mark.parametrize(
    ("tree_", "dtype"),
    [
        (2.0, np.float64),
        ([np.float32(1), np.ones(2, np.float32)], np.float32),
        ([np.float32(1), 2j], np.complex128),
        ({"a": np.arange(3, dtype=np.int8), "b": np.int32(2), "c": True}, np.int32),
    ],
)
def test_the_vector_has_the_promoted_dtype(tree_, dtype):
    vector, unravel = wl.tree_ravel(tree_)
    assert vector.dtype == dtype
    assert [np.asarray(x).dtype for x in wl.tree_leaves(unravel(vector))] == [
        np.asarray(x).dtype for x in wl.tree_leaves(tree_)
    ]


def test_ravel_inside_transformations():
    vector, unravel = wl.tree_ravel(MIXED)

    def loss(params):
        inner = params["p"].y
        return np.sum(params["w"] ** 2) + params["b"][0] * params["b"][2][0] + np.sum(inner.first) * inner.second

    exact = np.array([2.5, 0.1, -1.5, -1.5, 2.0, 0, 2, 4, 6, 8, 10])
    f = lambda x: loss(unravel(x))
    np.testing.assert_allclose(wl.grad(f)(vector), exact, rtol=1e-15)
    np.testing.assert_allclose(wl.jit(wl.grad(f))(vector), exact, rtol=1e-15)
    rows = wl.vmap(wl.grad(f))(np.stack([vector, 2 * vector]))
    np.testing.assert_allclose(rows, [exact, 2 * exact], rtol=1e-15)
    raveled = lambda params: wl.tree_ravel(params)[0]
    np.testing.assert_array_equal(wl.jit(raveled)(MIXED), vector)
    gradient = wl.grad(lambda params: np.sum(raveled(params) ** 2))(MIXED)
    np.testing.assert_array_equal(raveled(gradient), 2 * vector)
    assert gradient["w"].dtype == np.float32
    assert wl.jit(lambda p: wl.tree_ravel(p)[1](2 * raveled(p)))(MIXED)["w"].dtype == np.float32


def test_ravel_of_a_mutable_object_makes_another():
    counter = Counter(3.0)
    vector, unravel = wl.tree_ravel(counter)
    made = unravel(vector + 1)
    assert type(made) is Counter and made.count == 4 and made.label == "counter" and counter.count == 3
    np.testing.assert_array_equal(wl.grad(lambda x: unravel(x).count ** 2)(vector), [6.0])


def test_what_is_written_to_an_unraveled_leaf_stays_there():
    _, unravel = wl.tree_ravel({"a": np.ones(2)})

    def f(x):
        tree_ = unravel(x)
        tree_["a"] *= 3.0
        return np.sum(tree_["a"] * x)

    np.testing.assert_array_equal(wl.grad(f)(np.array([1.0, 2.0])), [6.0, 12.0])
    x = np.ones(2)
    f(x)
    assert x[0] == 1


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (0.0, -0.0), ((1, 2), (1, 2.0))])
def test_an_attribute_that_becomes_an_equal_one_of_another_type_is_named(before, after):
    counter = Counter(3.0)
    counter.mode = before
    with pytest.raises(wl.MutationError, match=r"Counter\.mode changed inside a transformed function"):
        wl.grad(lambda c: (setattr(c, "mode", after), c.count)[1])(counter)


def test_objects_in_the_closures_of_transformed_functions_are_found():
    """Transformed functions are nested functions; what they close over still must not be written while recorded."""
    counter = Counter(3.0)
    add = lambda x: setattr(counter, "count", counter.count + x)

    def body(x):
        add(x)
        return x

    for f in (wl.vmap(body), wl.vmap(wl.vmap(body)), wl.checkpoint(wl.vmap(body))):
        with pytest.raises(wl.MutationError, match="wrote to a Counter that it doesn't get as an argument"):
            wl.grad(lambda x, f=f: np.sum(wl.checkpoint(f)(x)))(np.ones((2, 2)))


@pytest.mark.parametrize("place", ["a method", "a list", "a default", "an attribute"])
def test_objects_that_a_loop_writes_to_are_found_where_they_are(place):
    counter = Counter(3.0)
    owner = type("Owner", (), {})()
    owner.counters = [counter]

    def add(x, to=counter):
        to.count = to.count + x

    bodies = {
        "a method": types.MethodType(lambda self, x: (add(x, self), x)[1], counter),
        "a list": lambda x, counters=[counter]: (add(x, counters[0]), x)[1],
        "a default": lambda x: (add(x), x)[1],
        "an attribute": lambda x: (add(x, owner.counters[0]), x)[1],
    }
    with pytest.raises(wl.MutationError, match="wrote to a Counter that it doesn't get as an argument"):
        wl.fori_loop(0, 3, lambda i, x: bodies[place](x), 1.0)
    assert counter.count == 3.0


def test_ravel_refuses_what_it_cannot_do():
    with pytest.raises(wl.ArgumentError, match=r"leaf 1 of \{'a': array, 'n': array\} is i64\*\[\].*2\.0 instead of 2"):
        wl.tree_ravel({"a": np.ones(2), "n": 3})
    with pytest.raises(wl.ArgumentError, match=r"leaf 0 of .* is no array: .*str"):
        wl.tree_ravel({"a": "text"})
    _, unravel = wl.tree_ravel({"a": np.ones(2)})
    with pytest.raises(wl.ArgumentError, match=r"a vector of 2 numbers makes \{'a': array\}, got shape \(3,\)"):
        unravel(np.ones(3))
    with pytest.raises(wl.ArgumentError, match="dtype float64, got complex128"):
        unravel(np.ones(2, complex))
    with pytest.raises(wl.ArgumentError, match="dtype int64, got float64"):
        wl.tree_ravel([1, 2])[1](np.ones(2))
