"""The memory of forward and reverse mode: closed forms for chains, and what Python's own allocator saw."""

import builtins

import numpy as np
import pytest
from recomputation import peak_of

import wonderland as wl
from wonderland.core import tree
from wonderland.studio.memory import Meter, shown

N = 1000
X = np.linspace(0.1, 1.0, N)
BYTES = X.nbytes


def chain(length):
    def f(x):
        for _ in range(length):
            x = np.sin(x)
        return np.sum(x)

    return f


@pytest.mark.parametrize("length", [5, 20, 80])
def test_forward_mode_needs_the_same_memory_at_any_depth(length):
    profile = wl.memory_profile(chain(length), X, mode="forward")
    assert {*profile.phase} == {"forward"}
    # x and its tangent; of one step the value and tangent going in, the value, the slope and the tangent coming out
    assert profile.peak == 7 * BYTES
    assert len(profile.live) == len(profile.operation) == len(profile.index) == 3 * length + 2


@pytest.mark.parametrize("length", [5, 20, 80])
def test_reverse_mode_stores_and_lets_go(length):
    profile = wl.memory_profile(chain(length), X)
    forward, backward = (profile.live[profile.phase == phase] for phase in ("forward", "backward"))
    assert len(forward) == 2 * length + 1
    assert np.all(np.diff(forward[2:-1:2]) == BYTES)  # each step leaves its slope
    steps = np.diff(backward)
    assert np.all(steps[1:] == -BYTES)  # and each step back lets go of one
    # x, the slopes, the cotangents going in and coming out, and two numbers: the result and the seed
    assert profile.peak == (length + 3) * BYTES + 16
    assert profile.live[profile.peak_index] == profile.peak
    assert profile.phase[profile.peak_index] == "backward"


def test_bytes_follow_the_dtype():
    single, double = (wl.memory_profile(chain(20), X.astype(dtype)).live for dtype in (np.float32, np.float64))
    np.testing.assert_array_equal(2 * single, double)
    wide = wl.memory_profile(lambda z: np.sum(np.abs(np.sin(z)) ** 2), X + 1j)
    assert wide.peak >= 4 * 2 * BYTES


def test_python_allocated_as_much():
    x = np.linspace(0.1, 1.0, 100_000)
    rng = np.random.default_rng(0)
    w = [rng.normal(size=(300, 300)) / 20 for _ in range(8)]

    def network(w, x):
        for matrix in w:
            x = np.tanh(x @ matrix)
        return np.mean(x**2)

    for f, args in ((chain(20), (x,)), (network, (w, rng.normal(size=(400, 300))))):
        arguments = sum(a.nbytes for a in tree.leaves(args))
        profile = wl.memory_profile(f, *args)
        peak = peak_of(wl.value_and_grad(f, tuple(range(len(args)))), *args)
        assert abs(profile.peak - arguments - peak) < 0.12 * peak


def test_views_count_once():
    f = lambda x: np.sum(np.reshape(np.sin(x), (10, 100)).T[::-1])
    profile = wl.memory_profile(f, X, mode="forward")
    assert profile.peak <= 5 * BYTES + 16
    profile = wl.memory_profile(lambda x: np.broadcast_to(x[0], (N,)) * 1.0, X)
    assert profile.live[0] <= BYTES + 16


def test_trees_modules_and_constants():
    @wl.register_mutable
    class Layer:
        def __init__(self, n):
            self.weight, self.bias, self.calls = np.eye(n), np.zeros(n), np.array(0.0)

        def __call__(self, x):
            self.calls = self.calls + 1
            return np.tanh(self.weight @ x + self.bias)

    layers = [Layer(50), Layer(50)]
    f = lambda layers, batch: sum(np.sum(layer(batch["x"])) for layer in layers)
    profile = wl.memory_profile(f, layers, {"x": np.ones(50), "n": 3})
    assert layers[0].calls == 0
    assert profile.live[0] >= 2 * (2500 + 50) * 8
    only = wl.memory_profile(f, layers, {"x": np.ones(50), "n": 3}, argnums=1)
    assert only.peak < profile.peak  # no gradient of the matrices


def test_argnums():
    f = lambda a, b: np.sum(np.sin(a) * b)
    assert wl.memory_profile(f, X, X, argnums=1).peak < wl.memory_profile(f, X, X, argnums=(0, 1)).peak


def test_functions_that_decide_by_values():
    def f(x):
        while np.max(x) < 10:
            x = x * 1.5
        return x

    profile = wl.memory_profile(f, X)
    assert profile.operation.count("mul") > 6
    assert {*profile.phase} == {"forward", "backward"}


def test_a_program_lets_go_where_python_would_not():
    def f(x):
        a = np.sin(x)
        b = np.sin(a)
        c = np.sin(b)
        d = np.sin(c)
        return np.sum(d)

    assert wl.memory_profile(f, X, mode="forward").peak == 7 * BYTES


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_jitted_function_is_opened(mode):
    plain, jitted = (wl.memory_profile(g, X, mode=mode) for g in (chain(10), wl.jit(chain(10))))
    np.testing.assert_array_equal(plain.live, jitted.live)
    assert plain.operation == jitted.operation


def test_loops_are_followed_step_by_step():
    loop = lambda x: wl.scan(lambda c, _: (np.sin(c), None), x, None, length=20)[0]
    forward = wl.memory_profile(loop, X, mode="forward")
    assert forward.operation.count("sin") == 20
    assert forward.peak == 7 * BYTES
    reverse = wl.memory_profile(loop, X)
    assert reverse.operation.count("cos") == 20
    assert 20 * BYTES < reverse.peak
    dynamic = wl.memory_profile(lambda x: wl.while_loop(lambda c: np.sum(c) < 1e4, lambda c: np.sinh(c) + c, x), X)
    assert dynamic.operation.count("cosh") == dynamic.operation.count("sinh") == 3
    chosen = wl.memory_profile(lambda x: wl.cond(x[0] > 3, lambda: x, lambda: np.exp(x)), X)
    assert "exp" in chosen.operation
    with_rows = lambda x: wl.scan(lambda c, row: (c + np.sum(row), row * c), 0.0, x, reverse=True)
    assert wl.memory_profile(with_rows, X.reshape(10, 100)).peak > 2 * BYTES


def test_writing_in_place_costs_no_copies():
    def f(x):
        y = x * 1.0
        for i in range(50):
            y[i] = y[i] * y[i + 1]
        return np.sum(y)

    assert wl.memory_profile(f, X, mode="forward").peak < 5.2 * BYTES
    assert wl.memory_profile(f, X).peak < 5.2 * BYTES


def test_recomputation_lowers_the_curve():
    """Checkpointing by hand: blocks of sin that keep their input alone and run again on the way back."""

    def block(x):
        for _ in range(8):
            x = np.sin(x)
        return x

    @wl.custom_vjp
    def recomputed(x):
        return block(x)

    recomputed.defvjp(lambda x: (block(x), (x,)), lambda residuals, ct: wl.vjp(block, *residuals)[1](ct))

    def whole(step):
        def f(x):
            for _ in range(8):
                x = step(x)
            return np.sum(x)

        return f

    plain, checkpointed = (wl.memory_profile(whole(g), X) for g in (block, recomputed))
    assert plain.peak > 64 * BYTES
    assert checkpointed.peak < (8 + 8 + 6) * BYTES
    assert checkpointed.operation.count("sin") >= 2 * 64  # once forwards, once again on the way back


def test_nothing_is_left():
    with Meter() as meter:
        value = meter.value(np.ones(3))
        other = meter.value(value.primal[::2])
        assert meter.bytes == 24
        del value
        assert meter.bytes == 24
        del other
        assert meter.bytes == 0
        assert not meter.holders


def test_text():
    text = repr(wl.memory_profile(chain(30), X))
    first, forward, backward = text.splitlines()
    assert first == "reverse mode: 92 operations, at most 264 kB alive at operation 62 (masked_mul)"
    assert forward.startswith("forward  ▁")
    assert "█" in forward
    assert backward.startswith("backward █")
    assert backward.endswith("256 kB to 32 kB")
    assert repr(wl.memory_profile(lambda x: x, 1.0)).startswith("reverse mode: 0 operations, at most 0 bytes alive")
    assert [shown(n) for n in (8, 1200, 34_500_000, 2 * 10**9)] == ["8 bytes", "1.2 kB", "34.5 MB", "2 GB"]


def test_plot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 2)
    for ax, mode, lines in zip(axes, ("forward", "reverse"), (1, 2), strict=True):
        profile = wl.memory_profile(chain(10), X, mode=mode)
        assert profile.plot(ax) is ax
        assert len(ax.lines) == lines
        drawn = np.concatenate([line.get_ydata() for line in ax.lines])
        np.testing.assert_allclose(drawn.max() * 1e3, profile.peak)
        assert ax.get_ylabel() == "live arrays, kB"
    assert profile.plot() is not axes[1]
    plt.close("all")


def test_plot_without_matplotlib(monkeypatch):
    real_import = builtins.__import__

    def refusing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        wl.memory_profile(chain(2), X).plot()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wl.memory_profile(np.sin, X, mode="backward"), 'mode is "forward" or "reverse"'),
        (lambda: wl.memory_profile(np.sin, 3), "floating-point argument"),
        (lambda: wl.memory_profile(np.sin, X, argnums=1), "argnums=1"),
        (lambda: wl.grad(lambda x: wl.memory_profile(np.sin, x).peak * x)(1.0), "call it outside"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_arguments_that_are_not_differentiated_may_be_anything(mode):
    def f(x, how, g):
        return np.sum(g(x) if how == "plain" else x)

    x = np.ones(100)
    found = wl.memory_profile(f, x, "plain", np.sin, mode=mode, argnums=0)
    assert list(found.live) == list(wl.memory_profile(lambda x: np.sum(np.sin(x)), x, mode=mode).live)
