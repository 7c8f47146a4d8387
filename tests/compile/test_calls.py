"""The way into a jitted function: which calls go straight to the native entry, and what a recompilation says."""

import functools
import warnings

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile.jit import Jitted

X, Y = np.arange(3.0), np.arange(4.0)


def scaled(x, n=2, *, k=1.0):
    return {"y": x * len(range(n)) * k}


@pytest.mark.parametrize(
    ("f", "options", "calls"),
    [
        (lambda x, k=1.0: x * k, {}, [((X,), {"k": 2.0}), ((X, 3.0), {}), ((X,), {}), ((), {"k": 2.0, "x": X})]),
        (lambda x, k=1.0: x * k, {}, [((X,), {}), ((Y,), {}), ((1.0,), {}), ((X[:, None],), {}), ((2,), {})]),
        (scaled, {"static_argnums": 1}, [((X, 2), {}), ((X, 3), {"k": 2.0}), ((Y,), {"n": 3}), ((X, True), {})]),
        (scaled, {"static_argnames": ("n", "k")}, [((X,), {"n": 2, "k": 1}), ((X,), {"k": 1.0, "n": 2}), ((X, 5), {})]),
        (lambda x: (x, x * 2), {}, [((1.0,), {}), ((2,), {}), ((X,), {}), ((np.float32(1),), {})]),
        (
            lambda t, k: [t["a"] * k, t["b"][0]],
            {},
            [(({"a": X, "b": [Y]},), {"k": 2.0}), (({"b": [1], "a": X}, 3), {})],
        ),
        (lambda *xs, n: sum(xs) * len(range(n)), {"static_argnames": "n"}, [((X, X), {"n": 2}), ((X,), {"n": 2})]),
    ],
)
def test_the_second_call_of_each_kind_is_native(f, options, calls, monkeypatch):
    jitted = wl.jit(f, **options)
    expected = [jitted(*args, **kwargs) for args, kwargs in calls]
    for (args, kwargs), found in zip(calls, expected, strict=True):
        wl.tree_map(np.testing.assert_array_equal, found, f(*args, **kwargs))
        wl.tree_map(lambda x, y: np.testing.assert_equal(type(x), type(y)), found, f(*args, **kwargs))
    monkeypatch.setattr(Jitted, "_prepare", None)
    for (args, kwargs), found in zip(calls, expected, strict=True):
        again = jitted(*args, **kwargs)
        wl.tree_map(np.testing.assert_array_equal, again, found)
        wl.tree_map(lambda x, y: np.testing.assert_equal(type(x), type(y)), again, found)


def test_static_values_are_compared_by_value_and_type():
    f = wl.jit(lambda x, n: x * n if isinstance(n, int) else x - n, static_argnums=1)
    for _ in range(2):
        assert f(3.0, 2) == 6 and f(3.0, 2.0) == 1 and f(3.0, True) == 3
    g = wl.jit(lambda x, n: x * float(repr(n)), static_argnums=1)
    assert [np.signbit(g(1.0, zero)) for zero in (0.0, -0.0, 0.0)] == [False, True, False]
    assert np.isnan(g(1.0, float("nan"))) and np.isnan(g(1.0, float("nan")))
    assert len(g._specializations) == 3


def test_the_order_of_keywords_is_no_matter():
    f = wl.jit(lambda x, n, m: x * n - m, static_argnames=("n", "m"))
    assert f(1.0, n=2, m=3) == f(1.0, m=3, n=2) == -1 and f(1.0, n=3, m=2) == 1
    assert len(f._specializations) == 2


def test_more_shapes_than_paths():
    f = wl.jit(np.sum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            for n in range(1, 30):
                assert f(np.ones(n)) == n
    assert all(len(paths) <= 8 for paths in f._fast.values())


def test_unhashable_static_values():
    for call in (wl.jit(lambda x, n: x, static_argnums=1), wl.jit(lambda x, n: x, static_argnums=1).inspect):
        with pytest.raises(wl.ArgumentError, match="must be hashable"):
            call(1.0, np.ones(3))


@pytest.mark.parametrize(
    ("f", "options", "call", "words"),
    [
        (
            lambda x, n: x * n,
            {"static_argnums": 1},
            lambda f, i: f(X, i),
            "static argument 'n' was 4, now 5. Each value",
        ),
        (
            lambda x, n: x * n,
            {"static_argnames": "n"},
            lambda f, i: f(X, n=i),
            "static argument 'n' was 4, now 5. Each",
        ),
        (np.sum, {}, lambda f, i: f(np.ones(i)), "argument 'a' was f64[4], now f64[5]. Pad"),
        (lambda x, y: x, {}, lambda f, i: f(X, [1.0, np.ones(i)]), "'y' (leaf 1) was f64[4], now f64[5]. Pad"),
        (lambda x: x, {}, lambda f, i: f(np.ones(2, "bhilfd"[i])), "argument 'x' was f32[2], now f64[2]. Convert"),
        (
            lambda x: x[0],
            {},
            lambda f, i: f([1.0] * (1 + i % 2) + [X] * i),
            "argument 'x' was [array, array, array, arr",
        ),
        (lambda *xs: xs[0], {}, lambda f, i: f(*[X] * (i + 1)), "argument 5 is new"),
        (
            functools.partial(lambda w, x: w * x, 2.0),
            {},
            lambda f, i: f(np.ones(i)),
            "argument 'x' was f64[4], now f64[5]",
        ),
    ],
)
def test_a_warning_says_what_changes(f, options, call, words):
    jitted = wl.jit(f, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(5):
            call(jitted, i)
    with pytest.warns(UserWarning) as seen:
        call(jitted, 5)
    assert words in str(seen[0].message) and seen[0].filename == __file__


@pytest.mark.parametrize("rank", [33, 64])
def test_arrays_of_as_many_axes_as_numpy_has(rank):
    shape = [1] * rank
    shape[3], shape[rank // 2], shape[-1] = 2, 2, 3
    x, y = np.random.default_rng(0).random(shape), np.arange(3.0).reshape([1] * (rank - 1) + [3])
    for f in (
        lambda x: np.sin(x) * y,
        lambda x: np.sum(x * x),
        lambda x: x - np.mean(x, axis=(3, -1), keepdims=True),
        lambda x: x.T[::-1] + x.reshape(-1)[2],
    ):
        np.testing.assert_allclose(wl.jit(f)(x), f(x), rtol=1e-14)
        total = lambda x, f=f: np.sum(f(x) ** 2)
        np.testing.assert_allclose(wl.jit(wl.grad(total))(x), wl.grad(total)(x), rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="broadcast"):
        wl.jit(np.add)(x, np.ones(2))


@wl.register_mutable
class Scale:
    def __init__(self, factor):
        self.factor = np.array(factor)

    @wl.jit
    def times(self, x, n=2):
        return x * self.factor * n

    @wl.jit(static_argnums=2)
    def often(self, x, n):
        return sum([x * self.factor] * n)


def test_methods():
    scale = Scale(3.0)
    assert scale.times(2.0) == 12 and scale.times(2.0, n=1) == 6 and scale.often(2.0, 3) == 18
    assert str(scale.times.inspect(2.0)).startswith("times(") and len(scale.often.profile(2.0, 3).steps) == 1
    assert wl.grad(scale.times)(2.0) == 6 and wl.lift(scale.times)(2.0) == 12


def test_an_argument_may_be_called_self():
    assert wl.jit(lambda self, x: self * x)(self=2.0, x=3.0) == 6


def test_what_cannot_be_an_argument_may_be_static():
    with pytest.raises(TypeError) as error:
        wl.jit(lambda x, mode: x)(1.0, "sum")
    assert "argument 1" in str(error.value) and "static_argnums" in error.value.__notes__[0]
    inner = wl.jit(lambda x, n: x * n, static_argnums=1)
    with pytest.raises(wl.ArgumentError, match="static in the function around"):
        wl.jit(lambda x, n: inner(x, n))(1.0, 2)
    assert wl.jit(lambda x, n: inner(x, n), static_argnums=1)(1.0, 2) == 2


@wl.register_mutable
class Configured:
    def __init__(self):
        self.w, self.options, self.sizes = np.ones(2), {"rate": 0.5, "deep": {"n": [1]}}, (1, [2])


def test_static_attributes_that_change_in_place():
    def f(model, x):
        return x * model.options["rate"] * model.options["deep"]["n"][0] * model.sizes[1][0] * np.sum(model.w)

    model, jitted = Configured(), wl.jit(f)
    assert jitted(model, 1.0) == jitted(model, 1.0) == f(model, 1.0) == 2
    model.options["rate"] = 0.25
    assert jitted(model, 1.0) == jitted(model, 1.0) == f(model, 1.0) == 1
    model.options["deep"]["n"].insert(0, 3)
    assert jitted(model, 1.0) == jitted(model, 1.0) == f(model, 1.0) == 3
    model.sizes[1][0] = 4
    assert jitted(model, 1.0) == jitted(model, 1.0) == f(model, 1.0) == 6
    assert len(jitted._specializations) == 4
