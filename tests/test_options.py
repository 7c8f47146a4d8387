"""Options of NumPy's functions that are easily dropped, and arguments of ours that are easily wrong."""

import functools
import re
from collections import defaultdict

import numpy as np
import pytest

import wonderland as wl

X = np.arange(6.0).reshape(2, 3) + 1


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.astype(float, copy=False),
        np.atleast_1d,
        np.real,
        lambda a: a.real,
        np.ravel,
        lambda a: a[...],
        lambda a: a.T,
        lambda a: np.swapaxes(a, 0, 1),
        np.squeeze,
        lambda a: np.expand_dims(a, 0),
    ],
)
def test_what_is_a_view_in_numpy_is_one_here(view):
    def f(x):
        a = x * 1.0
        view(a)[...] = 0.0
        return np.sum(a)

    assert f(X) == 0.0
    np.testing.assert_array_equal(wl.grad(f)(X), np.zeros((2, 3)))
    assert wl.jit(f)(X) == 0.0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.zeros_like(x, shape=(4, 2)) + x[0, 0],
        lambda x: np.ones_like(x, dtype=np.float32, shape=5),
        lambda x: np.sum(x, axis=1, keepdims=1),
        lambda x: np.max(x, axis=0, keepdims=1),
        lambda x: np.add.reduce(x, dtype=np.float32),
        lambda x: np.var(x.astype(np.float32), dtype=np.float64, ddof=1),
        lambda x: np.std(x, axis=0, ddof=1, keepdims=True),
        lambda x: np.tensordot(x, x, axes=np.int64(2)),
        lambda x: np.tensordot(x, x, axes=([0, 1], [0, 1])),
        lambda x: x * np.size(x, 0),
        lambda x: np.mean(x, axis=(0, 1)),
        lambda x: np.take(x, [0, -1], axis=1),
    ],
)
def test_options_mean_what_they_mean_in_numpy(f):
    expected = f(X)
    for g in (wl.jit(f), wl.vmap(f), lambda x: wl.jvp(f, (x,), (x,))[0]):
        out = g(X[None])[0] if g.__name__.startswith("vmap") else g(X)
        assert np.shape(out) == np.shape(expected) and np.asarray(out).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda: wl.jit(lambda x: np.take(x, [0], mode="nearest"))(X), ValueError, "mode"),
        (lambda: wl.jit(lambda x: np.max(x, where=X > 1))(X), ValueError, "initial"),
        (lambda: wl.jit(lambda x: np.sin(x, where=X > 1))(X), TypeError, "where="),
        (lambda: wl.jvp(lambda x: x, (X,), (X,), has_aux=True), wl.ArgumentError, "pair"),
        (lambda: wl.jacobian(np.sin, argnums=5)(X), wl.ArgumentError, "argnums=5"),
        (lambda: wl.grad(np.sum, argnums="x")(X), wl.ArgumentError, "positions"),
        (lambda: wl.vmap(lambda d: d["a"], in_axes=({"a": 0, "z": None},))({"a": X, "b": X}), ValueError, "structure"),
        (lambda: wl.jvp(lambda a: a * 2.0, (3,), (1.0,)), wl.ArgumentError, r"2\.0 instead of 2"),
        (lambda: wl.jit(lambda x: "text")(X), wl.ArgumentError, "returned str"),
        (lambda: wl.grad(lambda x: np.sum(x))(np.ma.array(X)), TypeError, "MaskedArray has its own arithmetic"),
        (lambda: wl.jit(lambda n: np.zeros((3, 3))[n])(1), wl.NoValueError, r"wonderland\.numpy\.take"),
    ],
)
def test_wrong_arguments_say_what_to_write(f, error, message):
    with pytest.raises(error, match=message):
        f()


def test_in_place_arithmetic_keeps_the_dtype_or_refuses():
    def f(x):
        a = x * 1
        a += 0.5
        return a

    with pytest.raises(TypeError, match="cast"):
        f(np.arange(3))
    with pytest.raises(TypeError, match="cast"):
        wl.jit(f)(np.arange(3))


def test_static_values_are_told_apart_by_type():
    f = wl.jit(lambda a, b: a * b, static_argnums=1)
    assert [type(f(1, b)) for b in (1, 1.0)] == [int, float]
    assert f(2.0, -0.0) == 0 and np.signbit(f(2.0, -0.0)) and not np.signbit(f(2.0, 0.0))


def test_arrays_in_the_other_byte_order():
    x = np.arange(3, dtype=">f8")
    np.testing.assert_array_equal(wl.jit(lambda x: x + 1)(x), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(wl.grad(lambda x: np.sum(x * x))(x), [0.0, 2.0, 4.0])


@wl.register_mutable
class Weights:
    """Two arrays."""

    def __init__(self):
        self.w, self.v = np.ones(3), np.arange(3.0)


def test_writing_back_does_not_change_what_the_derivative_needs():
    def f(model, x):
        model.w = model.w * x
        return np.sum(model.w**2)

    assert wl.grad(f, argnums=1)(Weights(), 3.0) == 18.0
    assert wl.vjp(f, Weights(), 3.0)[1](1.0)[1] == 18.0
    assert wl.grad(wl.grad(f, argnums=1), argnums=1)(Weights(), 3.0) == 6.0


def test_arrays_can_be_exchanged():
    def swap(model):
        model.w, model.v = model.v, model.w
        return np.sum(model.w)

    for run in (wl.jit(swap), lambda m: wl.grad(lambda s, m: s * swap(m))(1.0, m)):
        model = Weights()
        assert run(model) == 3.0
        np.testing.assert_array_equal(model.w, [0.0, 1.0, 2.0])
        np.testing.assert_array_equal(model.v, [1.0, 1.0, 1.0])


def test_an_array_held_twice_cannot_be_written():
    def f(a, b):
        a.w = a.w + 1
        return np.sum(b.w)

    one, other = Weights(), Weights()
    other.w = one.w
    for run in (wl.jit(f), wl.grad(f)):
        for pair in ((one, one), (one, other)):
            with pytest.raises(wl.MutationError, match="two places"):
                run(*pair)
    np.testing.assert_array_equal(one.w, np.ones(3))


def test_python_integers_out_of_bounds_mean_what_they_mean_in_numpy():
    x = np.array([1, 100, 200], np.uint8)
    for f in (lambda x: x < 300, lambda x: x > -1, lambda x: x == 300, lambda x: x + 200):
        np.testing.assert_array_equal(wl.jit(f)(x), f(x))
    with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
        wl.jit(lambda x: x + 300)(x)


class TestTreesAsTheyAre:
    def test_dicts_keep_their_order_inside_and_outside(self):
        d = {"b": np.ones(2), "a": np.zeros(1)}
        f = lambda d: np.concatenate(list(d.values()))
        for g in (wl.jit(f), lambda d: wl.jvp(f, (d,), (d,))[0], lambda d: wl.vjp(f, d)[0]):
            np.testing.assert_array_equal(g(d), f(d))
        gradient = wl.grad(lambda d: np.sum(f(d) ** 2))(d)
        assert list(gradient) == ["b", "a"]
        other = {"a": np.zeros(1), "b": np.ones(2)}  # the same tree
        np.testing.assert_array_equal(wl.jvp(f, (d,), (other,))[1], f(d))

    def test_default_dicts(self):
        d = defaultdict(list, b=np.ones(2))
        out = wl.grad(lambda d: np.sum(d["b"] ** 2))(d)
        assert type(out) is defaultdict and out.default_factory is list
        np.testing.assert_array_equal(out["b"], [2.0, 2.0])


class TestArraysWithoutAxes:
    @staticmethod
    def alias(x):
        a = x
        b = a
        b += 1.0
        return a * 2.0

    def test_an_array_is_written_a_number_replaced(self):
        for transform in (lambda f: f, wl.jit, lambda f: lambda x: wl.vjp(f, x)[0]):
            assert transform(self.alias)(np.array(3.0)) == 8.0
            assert transform(self.alias)(3.0) == 6.0
            assert transform(self.alias)(np.float64(3.0)) == 6.0

    def test_lifted(self):
        def f(x):
            total = np.array(0.0)
            same = total
            for value in x:
                same += value
            return total * x[0]

        np.testing.assert_allclose(wl.grad(wl.lift(f))(np.array([1.0, 2.0])), [4.0, 1.0])


def test_the_order_of_memory_is_not_known():
    with pytest.raises(TypeError, match="order='C' or 'F'"):
        wl.jit(lambda a: a.ravel("K"))(np.ones((2, 2)))


def test_several_outputs_of_a_ufunc():
    def f(x):
        q, r = np.zeros_like(x), np.zeros_like(x)
        np.divmod(x, 0.3, out=(q, r))
        return q + r

    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(wl.jit(f)(x), f(x))
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(f(x)))(x), [1.0, 1.0])


def test_nothing_to_delete():
    np.testing.assert_array_equal(wl.jit(lambda x: np.delete(x, [], 0))(np.ones(3)), np.ones(3))


def test_a_python_number_to_carry_takes_the_dtype_of_what_it_meets():
    last, each = wl.scan(lambda c, x: (c + x, c), 0.0, np.ones(3, np.float32))
    assert last.dtype == each.dtype == np.float32 and last == 3.0


class TestArgumentsThatAreNoArrays:
    """Where no derivative is asked of them, strings, functions and objects are handed through."""

    def test_strings_functions_and_objects(self):
        def f(x, how, scale=None):
            return np.sum(getattr(np, how)(x)) if scale is None else scale(x)

        np.testing.assert_allclose(wl.grad(f)(np.ones(2), "sin"), np.cos(np.ones(2)))
        assert np.isclose(wl.grad(f)(1.0, "sin", scale=np.tanh), 1 - np.tanh(1.0) ** 2)
        assert np.isclose(wl.jvp(f, (1.0, "sin"), (1.0, None))[1], np.cos(1.0))
        np.testing.assert_allclose(wl.vmap(f, in_axes=(0, None))(np.ones(3), "sin"), np.sin(np.ones(3)))

    def test_self(self):
        class Spring:
            k = 3.0

            def energy(self, x):
                return self.k * x**2

        assert wl.grad(Spring.energy, 1)(Spring(), 2.0) == 12.0
        assert wl.grad(Spring().energy)(2.0) == 12.0

    def test_not_where_they_are_differentiated_batched_or_compiled(self):
        for call in (
            lambda: wl.grad(lambda p: p["w"])({"w": 1.0, "name": "a"}),
            lambda: wl.vmap(lambda x, how: x)(np.ones(2), "sin"),
            lambda: wl.jit(lambda x, how: x)(1.0, "sin"),
        ):
            with pytest.raises(TypeError, match=r"argument [01] of <lambda>.*got str"):
                call()


class TestNumbersHaveNoViews:
    @pytest.mark.parametrize("make", [np.atleast_1d, lambda c: c.reshape(1), lambda c: c[None], lambda c: c[...]])
    def test_what_is_made_of_a_number_is_new(self, make):
        def f(x):
            c = x.sum()
            v = make(c)
            v += 1.0
            return c

        x = np.array([3.0, 4.0])
        assert f(x) == wl.jvp(f, (x,), (x,))[0] == wl.jit(f)(x) == 7.0

    def test_copies_of_arrays_without_axes_are_arrays(self):
        def f(x):
            c = x.copy()
            d = c
            d += 1.0
            return c

        assert wl.jit(f)(np.array(2.0)) == 3.0 and wl.jit(f)(2.0 * np.ones(())[()]) == 2.0


def weighted(x, /, n, *, scale=1.0):
    return x * n * scale


@pytest.mark.parametrize(
    ("f", "options", "words"),
    [
        (weighted, {"static_argnames": "m"}, "static_argnames has 'm', .* takes x (0), n (1), scale"),
        (weighted, {"static_argnums": 2}, "static_argnums has 2, .* takes x (0), n (1), scale"),
        (weighted, {"static_argnums": (0, -3)}, "static_argnums has -3, "),
        (weighted, {"donate": 5}, "donate has 5, which weighted doesn't take"),
        (weighted, {"donate": ("x", "y")}, "donate has 'y', "),
        (weighted, {"static_argnums": "n"}, "static_argnums takes positions"),
        (weighted, {"static_argnames": 1}, "static_argnames takes names of arguments, got 1"),
        (lambda: 1.0, {"static_argnums": 0}, "It takes nothing"),
        (wl.grad(weighted), {"static_argnames": "m"}, "which grad(weighted) doesn't take"),
        (functools.partial(weighted, 1.0), {"static_argnums": 1}, "takes n (0), scale"),
    ],
)
def test_options_that_name_no_argument(f, options, words):
    with pytest.raises(wl.ArgumentError) as error:
        wl.jit(f, **options)
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), str(error.value))


def test_options_name_arguments_by_position_or_name():
    def repeat(x, n):
        return x * len(range(n))

    class Repeater:
        def method(self, x, n):
            return repeat(x, n)

    for f in (repeat, Repeater().method, wl.grad(repeat), functools.partial(repeat), wl.jit(repeat, static_argnums=1)):
        for options in ({"static_argnums": 1}, {"static_argnums": -1}, {"static_argnames": "n"}):
            jitted = wl.jit(f, **options)
            assert jitted(2.0, 3) == jitted(2.0, n=3) == f(2.0, 3)
    assert wl.jit(lambda *xs: xs[0] * len(range(xs[-1])), static_argnums=-1)(2.0, 1.0, 3) == 6
    assert wl.jit(lambda **kw: kw["x"] * len(range(kw["n"])), static_argnames="n")(x=2.0, n=3) == 6
