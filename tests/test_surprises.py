"""Warnings where silence would surprise: they fire, at the user's line, and ordinary code doesn't fire them."""

import functools
import random as python_random
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest
import scipy.sparse

import wonderland as wl

X = np.arange(3.0)
WEIGHT = np.ones(3)
GENERATOR = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    """So that none is hidden by the one that came before it from the same line."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Model:
    def __init__(self):
        self.w = np.ones(3)
        self.params = {"a": np.ones(3), "layers": [np.ones(3), np.ones(3)]}
        self.rng = np.random.default_rng(1)


def quiet_calls(f, *args, count=40):
    return [f(*args) for _ in range(count)][-1]


class TestRandomNumbersWhileRecording:
    @pytest.mark.parametrize(
        ("draw", "what"),
        [
            (lambda: np.random.normal(), "np.random"),
            (lambda: np.random.randint(5), "np.random"),
            (lambda: np.random.uniform(size=624)[0], "np.random"),
            (lambda: GENERATOR.normal(), "the generator GENERATOR"),
            (lambda: python_random.random(), "random"),
            (lambda: python_random.gauss(0, 1), "random"),
        ],
    )
    def test_warns(self, draw, what):
        def noisy(x):
            return x + draw()

        for transformed in (noisy, wl.grad(lambda x: np.sum(noisy(x))), wl.vmap(noisy)):
            with pytest.warns(wl.RandomConstantWarning, match=f"^{what} gave random .* Pass a key") as seen:
                wl.jit(transformed)(X)
            assert seen[0].filename == __file__

    def test_a_normal_number_that_was_left_over(self):
        np.random.seed(0)
        np.random.normal()  # draws two and keeps one: the next call doesn't move the generator
        with pytest.warns(wl.RandomConstantWarning):
            wl.jit(lambda x: x + np.random.normal())(X)

    def test_generators_in_objects_and_closures(self):
        model, rng, old = Model(), np.random.default_rng(0), np.random.RandomState(0)
        with pytest.warns(wl.RandomConstantWarning, match="generator model.rng"):
            wl.jit(lambda x: x + model.rng.normal())(X)
        with pytest.warns(wl.RandomConstantWarning, match="generator rng"):
            wl.jit(lambda x: x + rng.normal())(X)
        with pytest.warns(wl.RandomConstantWarning, match="generator old"):
            wl.jit(lambda x: x + old.normal())(X)

    def test_the_first_use_of_numpy_random_in_a_process(self):
        code = (
            "import warnings; warnings.simplefilter('error'); import numpy as np, wonderland as wl\n"
            "wl.jit(lambda x: x * 2)(1.0)\n"
            "try: wl.jit(lambda x: x + np.random.normal())(1.0)\n"
            "except wl.RandomConstantWarning: print('warned')\n"
            "wl.jit(lambda x: x * np.random.default_rng(0).normal())(1.0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["warned"]

    def test_ordinary_code(self):
        key = wl.random.key(0)
        noisy = wl.jit(lambda key, x: x + wl.random.normal(key, x.shape) * np.random.default_rng(0).normal())
        noisy(key, X)
        np.random.normal(), GENERATOR.normal(), python_random.random()
        noisy(key, X)  # recorded already
        wl.jit(lambda x: x + len(str(GENERATOR)))(X)


class TestReboundArrays:
    def rebinds(self):
        model = Model()
        model.held = types.SimpleNamespace(w=np.ones(3))
        w = np.ones(3)

        def rebind_cell():
            nonlocal w
            w = np.zeros(3)

        def rebind_global():
            global WEIGHT
            WEIGHT = np.zeros(3)

        def assign(holder, key):
            return lambda: holder.__setitem__(key, np.zeros(3))

        layers = model.params["layers"]
        return [
            (lambda x: x * model.w, assign(vars(model), "w"), "model.w"),
            (lambda x: x * model.w[::-1], assign(vars(model), "w"), "model.w"),
            (lambda x: x * model.params["a"], assign(model.params, "a"), r"model.params\['a'\]"),
            (lambda x: x * layers[0] * layers[1], assign(layers, 1), r"layers\[1\]"),
            (lambda x: x * w, rebind_cell, "w"),
            (lambda x: x * WEIGHT, rebind_global, "WEIGHT"),
            (wl.grad(lambda x: np.sum(x * model.w)), assign(vars(model), "w"), "model.w"),
            (
                wl.jacobian(wl.grad(wl.checkpoint(lambda x: np.sum(x * x * model.held.w)))),
                assign(vars(model.held), "w"),
                "model.held.w",
            ),
        ]

    @pytest.mark.parametrize("case", range(8))
    @pytest.mark.parametrize("calls", [1, 2, 15, 100])
    def test_warns_once_and_keeps_the_array(self, case, calls):
        f, rebind, label = self.rebinds()[case]
        compiled = wl.jit(f)
        before = quiet_calls(compiled, X, count=calls)
        rebind()
        with pytest.warns(wl.ReboundArrayWarning, match=f"compiled with the array that {label} was then") as seen:
            for _ in range(1 if calls < 15 else 17):
                with warnings.catch_warnings():
                    warnings.simplefilter("always")
                    assert np.array_equal(compiled(X), before)
        assert len(seen) == 1 and seen[0].filename == __file__
        assert np.array_equal(quiet_calls(compiled, X), before)

    @pytest.mark.parametrize("transformed", [wl.grad, wl.hessian, lambda f: wl.vmap(lambda x: f(x))])
    def test_inside_other_transformations(self, transformed):
        model = Model()
        f = transformed(wl.jit(lambda x: np.sum(x * x * model.w)))
        before = quiet_calls(f, X, count=3)
        model.w = np.zeros(3)
        with pytest.warns(wl.ReboundArrayWarning, match="model.w"):
            assert np.array_equal(f(X), before)

    def test_ordinary_code(self):
        model = Model()
        local = wl.jit(lambda x: x * np.arange(3.0))  # an array that nobody else has
        assert quiet_calls(local, X)[2] == 4
        writes = wl.jit(lambda x: x * model.w)
        quiet_calls(writes, X)
        model.w[:] = 2.0
        model.rng = None  # something else of the object
        assert quiet_calls(writes, X)[2] == 4
        argument = wl.jit(lambda w, x: x * w)
        for _ in range(40):
            model.w = model.w + 1.0
            argument(model.w, X)
        passed = wl.jit(lambda x, w=X: x * w)
        quiet_calls(passed, X)

    def test_a_name_that_is_gone_is_nothing_to_warn_of(self):
        holder = {"w": np.ones(3)}
        compiled = wl.jit(lambda x: x * holder["w"])
        compiled(X), holder.clear()
        assert np.array_equal(quiet_calls(compiled, X), X)


def bisection(a, low=-10.0, high=10.0):
    def halve(interval):
        low, high = interval
        middle = (low + high) / 2
        left = middle**3 + middle < a
        return np.where(left, middle, low), np.where(left, high, middle)

    return wl.while_loop(lambda c: c[1] - c[0] > 1e-12, halve, (low, high))[0]


def carried(a):
    """The parameter is a part of the state, and the step is a jitted function."""

    @wl.jit
    def halve(state):
        low, high, a = state
        middle = (low + high) / 2
        left = middle * middle < a
        return np.where(left, middle, low), np.where(left, high, middle), a

    return wl.while_loop(lambda s: s[1] - s[0] > 1e-12, halve, (0.0, 10.0, a))[0]


def golden_section(a):
    """The minimum of (x - a)^2."""
    ratio = (5**0.5 - 1) / 2

    def shrink(interval):
        low, high = interval
        x, y = high - ratio * (high - low), low + ratio * (high - low)
        return wl.cond((x - a) ** 2 < (y - a) ** 2, lambda: (low, y), lambda: (x, high))

    return wl.while_loop(lambda c: c[1] - c[0] > 1e-7, shrink, (-10.0, 10.0))[0]


class TestLostDerivatives:
    @pytest.mark.parametrize("f", [bisection, carried, golden_section, lambda a: bisection(a, high=5.0 * a)])
    def test_warns(self, f):
        for derivative in (
            lambda: wl.grad(f)(2.0),
            lambda: wl.jvp(f, (2.0,), (1.0,)),
            lambda: wl.jit(wl.grad(f))(2.0),
            lambda: wl.grad(wl.jit(f))(2.0),
            lambda: wl.vmap(wl.grad(f))(np.array([2.0, 3.0])),
            lambda: wl.grad(lambda a: np.sum(wl.vmap(f)(a)))(np.array([2.0, 3.0])),
        ):
            with pytest.warns(wl.LostDerivativeWarning, match="implicit function theorem") as seen:
                derivative()
            assert seen[0].filename == __file__

    def test_reverse_mode_of_a_loop_without_tangents_is_zero(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for f in (bisection, wl.jit(bisection)):
                assert wl.grad(f)(2.0) == 0.0 and wl.jit(wl.grad(f))(2.0) == 0.0
        f = lambda a: wl.fori_loop(0, 20, lambda i, s: np.where(s * s < a, s + 0.1, s), 0.0)
        assert wl.grad(f)(1.5) == 0.0 and wl.jit(wl.grad(f))(1.5) == 0.0

    def test_a_rule_of_ones_own(self):
        root = wl.custom_jvp(bisection)

        @root.defjvp
        def rule(primals, tangents):
            x = root(*primals)
            df_dx, df_da = wl.grad(lambda x, a: x**3 + x - a, (0, 1))(x, *primals)
            return x, -df_da / df_dx * tangents[0]

        for f in (root, wl.jit(root), lambda a: np.sum(wl.vmap(root)(a[None]))):
            assert wl.grad(f)(np.float64(10.0)) == pytest.approx(1 / (3 * 2.0**2 + 1), rel=1e-10)
        twice = wl.while_loop(lambda c: c[1] < 2, lambda c: (root(c[0]), c[1] + 1), (2.0, 0))
        assert twice[0] == pytest.approx(bisection(bisection(2.0)))

    def test_ordinary_loops(self):
        def heron(a, guess=3.0):
            return wl.while_loop(lambda x: np.abs(x * x - a) > 1e-12 * a, lambda x: (x + a / x) / 2, guess)

        def halvings(x, limit):
            return wl.while_loop(lambda c: c[0] > limit, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))[0]

        def line_search(x, d):
            f = lambda x: (x - 1.0) ** 4
            step = wl.while_loop(lambda t: f(x + t * d) > f(x) + 1e-4 * t * d, lambda t: 0.5 * t, 1.0)
            return x + step * d

        def accepting_line_search(x, d):
            def attempt(state):
                t, _ = state
                good = (x + t * d - 1.0) ** 4 < (x - 1.0) ** 4
                return np.where(good, t, 0.5 * t), good

            return x + d * wl.while_loop(lambda s: ~s[1], attempt, (1.0, False))[0]

        def threshold(v, limit):
            def step(state):
                v, t = state
                return np.where(v > limit, 0.0, v * 1.3), t + 1.0

            return wl.while_loop(lambda s: s[1] < 5.0, step, (v, 0.0))[0]

        def adaptive(rate):
            def step(c):
                t, y, h = c
                error = np.abs(h * rate * y) * h
                good = error < 1e-3
                return np.where(good, t + h, t), np.where(good, y - h * rate * y, y), np.where(good, 1.5 * h, 0.5 * h)

            return wl.while_loop(lambda c: c[0] < 1.0, step, (0.0, 1.0, 0.1))[1]

        def two_steps(a):  # where the loop works with -a, too
            step = lambda c: (c[0] + np.where(c[1] > a, 0.1, 0.2), c[1] * (1.0 - 0.1 * -a))
            return wl.while_loop(lambda c: c[0] < 1.0, step, (0.0, 1.0))[1]

        def secant(a):
            def step(c):
                x, y = c
                return y, y - (y * y - a) * (y - x) / (y * y - x * x + 1e-300)

            return wl.while_loop(lambda c: np.abs(c[1] - c[0]) > 1e-10, step, (1.0, 2.0))[1]

        for f, args in (
            (heron, (2.0,)), (halvings, (100.0, 1.0)), (line_search, (3.0, -8.0)), (accepting_line_search, (3.0, -8.0)),
            (threshold, (1.0, 2.0)), (adaptive, (0.5,)), (two_steps, (2.0,)), (secant, (2.0,)),
        ):  # fmt: skip
            which = tuple(range(len(args)))
            wl.grad(f, which)(*args), wl.jit(wl.grad(f, which))(*args), wl.jvp(f, args, (1.0,) * len(args))
            batch = [np.array([a, 1.1 * a]) for a in args]
            wl.vmap(wl.grad(f, which))(*batch), wl.grad(lambda *a, f=f: np.sum(wl.vmap(f)(*a)), which)(*batch)

    def test_a_loop_that_isnt_differentiated(self):
        assert bisection(2.0) == pytest.approx(1.0) and wl.jit(bisection)(2.0) == pytest.approx(1.0)
        assert wl.grad(lambda x: x * wl.stop_gradient(bisection(wl.stop_gradient(x))))(2.0) == pytest.approx(1.0)


def test_other_warnings_name_the_users_line_too():
    often = wl.jit(lambda x: x + 1)
    unrolled = wl.jit(lambda x: [x := np.sin(x) for _ in range(5_100)][-1])
    wrong = wl.sparse.jacobian(lambda x: x * np.sum(x), pattern=scipy.sparse.eye(3, format="csc"))
    calls = {
        "compiled for the 6th time": lambda: [often.inspect(np.ones(n)) for n in range(9)],
        "has 5101 equations": lambda: wl.trace(unrolled)(1.0),
        "pattern given to wl.sparse.jacobian doesn't hold": lambda: functools.partial(wrong, X)(),
    }
    for message, call in calls.items():
        with pytest.warns(UserWarning, match=message) as seen:
            call()
        assert [warning.filename for warning in seen] == [__file__]
