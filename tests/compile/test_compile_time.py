"""Long straight-line programs: what the compiler does grows with them linearly, and the user is told which line it is.

Nothing here measures seconds: the tests count kernels, texts and steps of searches.
"""

import sys
import warnings

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn
from wonderland.compile import noticed, schedule
from wonderland.compile.memory import Holes


def recurrence(n):
    def f(x):
        for _ in range(n):
            x = np.sin(x) * 0.9 + 0.1
        return x

    return f, (np.linspace(0.0, 1.0, 5),)


def chain_in_place(n):
    def f(x):
        x = x.copy()
        for i in range(n):
            x[i + 1] = np.sin(x[i]) * 0.9
        return x

    return f, (np.ones(n + 1),)


def many_terms(n):
    def f(x):
        total = 0.0
        for i in range(n):
            total = total + x[i] * np.cos(x[i])
        return total

    return f, (np.linspace(0.0, 1.0, n),)


KINDS = [recurrence, chain_in_place, many_terms]


def gradient(kind):
    def make(n):
        f, args = kind(n)
        return wl.grad(lambda *a: np.sum(f(*a))), args

    make.__name__ = f"gradient of {kind.__name__}"
    return make


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize("kind", [*KINDS, *map(gradient, KINDS)], ids=lambda k: k.__name__)
def test_long_programs_are_right_and_grow_linearly(kind, monkeypatch):
    visited = []
    depends = schedule.Schedule._depends
    counted = lambda self, unit, on: visited.append(1) or depends(self, unit, on)
    monkeypatch.setattr(schedule.Schedule, "_depends", counted)
    sizes = []
    for n in (60, 240):
        visited.clear()
        f, args = kind(n)
        jitted = wl.jit(f)
        np.testing.assert_allclose(jitted(*args), f(*args), rtol=1e-11, atol=1e-13)
        compiled = jitted.inspect(*args)
        sizes.append((len(compiled.ir), len(compiled.plan.kernels), len(visited)))
    for small, large in zip(*sizes):
        assert large <= 4.5 * small + 20  # for four times the equations


def test_equal_kernels_are_written_once():
    """A chain of equal updates is one function, called often and not copied into each place."""
    f, args = chain_in_place(200)
    compiled = wl.jit(f).inspect(*args)
    assert len(compiled.plan.kernels) >= 200
    written = [line for line in compiled.ir.splitlines() if line.startswith("define internal void @k")]
    assert len(written) <= 6 and any("noinline" in line for line in written)


def test_kernels_are_bounded():
    for kind in (recurrence, many_terms):
        f, args = kind(400)
        schedule_sizes = [int(word) for k in wl.jit(f).inspect(*args).kernels for word in k.split() if word.isdigit()]
        assert max(schedule_sizes) <= schedule.MOST_MEMBERS


def test_a_long_chain_needs_no_deep_stack():
    def deep(depth, f, x):
        return deep(depth - 1, f, x) if depth else f(x)

    def f(x):
        for _ in range(400):
            x = x * 0.9 + 0.1
        return x

    used = len(_stack())
    for x in (0.5, np.ones(3)):
        got = deep(sys.getrecursionlimit() - used - 200, wl.jit(f), x)
        np.testing.assert_allclose(got, f(x), rtol=1e-13)


def _stack():
    frames, frame = [], sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


# The warning ---------------------------------------------------------------------------------------------------------


def test_an_unrolled_loop_is_reported_once_with_its_line(monkeypatch):
    monkeypatch.setattr(noticed, "MANY", 500)

    def f(x):
        for _ in range(200):
            x = np.sin(x) * 0.9 + 0.1
        return np.sum(x)

    line = f.__code__.co_firstlineno + 2
    jitted = wl.jit(f)
    with pytest.warns(UserWarning, match=rf"f has 601 equations.*test_compile_time\.py:{line}\..*wl\.scan"):
        jitted(np.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitted(np.ones(3))


def test_in_a_gradient_the_line_is_that_of_the_loop(monkeypatch):
    monkeypatch.setattr(noticed, "MANY", 500)

    def f(x):
        for _ in range(200):
            x = np.sin(x) * 0.9 + 0.1
        return np.sum(x)

    with pytest.warns(UserWarning, match=rf"test_compile_time\.py:{f.__code__.co_firstlineno + 2}\."):
        wl.jit(wl.grad(f))(np.ones(2))


def test_short_programs_are_not_reported():
    f, args = recurrence(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wl.jit(f)(*args)
        wl.jit(lambda x: wl.fori_loop(0, 100_000, lambda i, s: np.sin(s), x))(1.0)


def test_one_call_that_writes_many_equations_is_no_loop(monkeypatch):
    monkeypatch.setattr(noticed, "MANY", 500)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.silu) for _ in range(100)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wl.jit(wl.grad(lambda model, x: np.sum(model(x))))(model, np.ones((1, 2), np.float32))


# The arena -----------------------------------------------------------------------------------------------------------


def test_places_never_overlap_and_holes_are_used_again():
    rng = np.random.default_rng(0)
    holes, used = Holes(64), {}
    for _ in range(3000):
        if used and rng.random() < 0.5:
            offset = list(used)[int(rng.integers(len(used)))]
            holes.give(offset, used.pop(offset))
            continue
        size = int(rng.integers(1, 9)) * 64
        offset = holes.take(size)
        assert offset >= 64 and offset + size <= holes.top
        assert all(offset + size <= o or o + s <= offset for o, s in used.items())
        used[offset] = size
    for offset, size in used.items():
        holes.give(offset, size)
    top = holes.top
    assert holes.take(top - 64) == 64 and holes.top == top  # all grew together again


def test_the_smallest_hole_is_taken():
    holes = Holes(0)
    a, b, c, _ = (holes.take(size) for size in (256, 64, 128, 64))
    holes.give(a, 256)
    holes.give(c, 128)
    assert holes.take(100) == c and holes.take(200) == a and b == 256
