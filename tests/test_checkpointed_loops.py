"""Loops that keep some states and compute the rest again: by segments, and by Revolve's schedule."""

from math import comb

import numpy as np
import pytest
from recomputation import MEGABYTE, counted, same, tick, with_peak

import wonderland as wl
from wonderland.control.revolve import forward_steps, schedule

# -- loops -------------------------------------------------------------------------------------------------------------

WAYS = ["sqrt", 1, 5, 23, 100, "binomial", wl.binomial(1), wl.binomial(3), wl.binomial(50)]


def recurrence(checkpoint, reverse=False):
    def f(w, h, xs):
        def step(h, x):
            h = {"a": np.tanh(w @ h["a"] + x), "i": h["i"] + 1}
            return h, np.sin(h["a"]) * x * h["i"]

        h, ys = wl.scan(step, {"a": h, "i": 0}, xs, checkpoint=checkpoint, reverse=reverse)
        return np.sum(h["a"] ** 2) + np.sum(ys * np.arange(3.0)) + np.sum(ys[1::2])

    return f


REVERSED = ("sqrt", 5, wl.binomial(3))


@pytest.mark.parametrize(("way", "reverse"), [*((w, False) for w in WAYS), *((w, True) for w in REVERSED)], ids=str)
def test_loops_have_the_same_derivatives(way, reverse, rng):
    operands = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=(23, 3))
    plain, saved = recurrence(None, reverse), recurrence(way, reverse)
    np.testing.assert_allclose(saved(*operands), plain(*operands), rtol=1e-14)
    expected = wl.grad(plain, (0, 1, 2))(*operands)
    same(wl.grad(saved, (0, 1, 2))(*operands), expected)
    same(wl.jit(wl.grad(saved, (0, 1, 2)))(*operands), expected, 1e-11)
    same(wl.grad(saved, 2)(*operands), expected[2])
    same(wl.grad(wl.jit(saved), 0)(*operands), expected[0], 1e-11)


@pytest.mark.parametrize("way", ["sqrt", 3, wl.binomial(2)], ids=str)
def test_loops_under_other_transformations(way, rng):
    operands = rng.normal(size=(3, 3)) * 0.5, rng.normal(size=3), rng.normal(size=(7, 3))

    def everything(f):
        def of(h):
            return f(operands[0], h, operands[2])

        h = operands[1]
        _, pull = wl.vjp(of, h)
        batch = np.stack([h, h * 0.5])
        return [
            wl.jvp(of, (h,), (h,)),
            wl.linearize(of, h)[1](h),
            pull(1.0),
            pull(2.0),  # a second time
            wl.jacobian(wl.grad(of), mode="forward")(h),
            wl.jacobian(wl.grad(of), mode="reverse")(h),
            wl.vmap(wl.grad(of))(batch),
            wl.grad(lambda b: np.sum(wl.vmap(of)(b) ** 2))(batch),
            wl.jit(wl.vmap(wl.grad(of)))(batch),
            wl.jit(lambda h: wl.jvp(wl.grad(of), (h,), (h,))[1])(h),
            wl.jit(lambda h: wl.grad(lambda h: np.sum(wl.grad(of)(h) ** 2))(h))(h),
            wl.grad(wl.checkpoint(of))(h),
            wl.grad(lambda h: wl.scan(lambda c, _: (c * 0.1 + of(h * c), None), 1.0, length=3)[0])(h),
        ]

    same(everything(recurrence(way)), everything(recurrence(None)), 1e-9, 1e-9)


@pytest.mark.parametrize("way", ["sqrt", 2, "binomial", wl.binomial(2)], ids=str)
@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_loops(way, length, rng):
    def loss(checkpoint):
        return lambda h: np.sum(wl.scan(lambda h, _: (np.sin(h), h), h, length=length, checkpoint=checkpoint)[0] ** 2)

    h = rng.normal(size=3)
    same(wl.grad(loss(way))(h), wl.grad(loss(None))(h))
    same(wl.jit(wl.grad(loss(way)))(h), wl.grad(loss(None))(h))


def test_loops_with_custom_rules_and_random_numbers(rng):
    @wl.custom_vjp
    def clipped(x):
        return x * 1.0

    clipped.defvjp(lambda x: (x * 1.0, ()), lambda r, ct: (np.clip(ct, -0.1, 0.1),))
    keys = wl.random.split(wl.random.key(3), 9)

    def loss(checkpoint):
        def step(h, key):
            return clipped(np.sin(h) + wl.random.normal(key, (4,))), None

        return lambda h: np.sum(wl.scan(step, h, keys, checkpoint=checkpoint)[0])

    h = rng.normal(size=4)
    for way in ("sqrt", wl.binomial(2)):
        same(wl.grad(loss(way))(h), wl.grad(loss(None))(h))
        same(wl.jit(wl.grad(loss(way)))(h), wl.grad(loss(None))(h))


@pytest.mark.parametrize("way", ["sqrt", 4, wl.binomial(3)], ids=str)
def test_fori_loop(way, rng):
    def loss(checkpoint):
        return lambda h: np.sum(wl.fori_loop(2, 13, lambda i, h: np.sin(h * (1 + i / 10)), h, checkpoint=checkpoint))

    h = rng.normal(size=3)
    same(wl.grad(loss(way))(h), wl.grad(loss(None))(h))
    same(wl.jit(wl.grad(loss(way)))(h), wl.grad(loss(None))(h))
    with pytest.raises(wl.ArgumentError, match="known beforehand"):
        wl.jit(lambda n: wl.fori_loop(0, n, lambda i, h: np.sin(h), 1.0, checkpoint=way))(3)


def test_programs_are_in_order():
    for way in ("sqrt", wl.binomial(3)):
        wl.verify(wl.trace(wl.grad(recurrence(way)))(np.eye(3), np.ones(3), np.ones((11, 3))))


# -- Revolve -----------------------------------------------------------------------------------------------------------


def test_forward_steps_against_dynamic_programming():
    """t(l, c) = min over m of m + t(m, c) + t(l - m, c - 1), which is what the closed form solves."""
    slots, most = 8, 60
    table = [[0] * (most + 1) for _ in range(slots + 1)]
    for length in range(most + 1):
        table[1][length] = length * (length - 1) // 2
    for c in range(2, slots + 1):
        for length in range(2, most + 1):
            table[c][length] = min(m + table[c][m] + table[c - 1][length - m] for m in range(1, length))
    for c in range(1, slots + 1):
        assert [forward_steps(n, c) for n in range(1, most + 1)] == table[c][1:]


def test_forward_steps_of_the_paper():
    """Griewank and Walther: with c slots and r repetitions, C(c + r, c) steps take r C(c + r, c) - C(c + r, c + 1)."""
    for c in range(1, 9):
        for r in range(1, 9):
            assert forward_steps(comb(c + r, c), c) == r * comb(c + r, c) - comb(c + r, c + 1)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 20, 2000])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 97, 1000, 1500])
def test_a_schedule_visits_every_step_with_the_fewest_forward_steps(steps, slots):
    stored, turns = schedule(steps, slots)
    held, forward = list(stored), steps - 1
    assert len(stored) <= slots
    for step, (slot, runs) in zip(range(steps - 1, -1, -1), turns, strict=True):
        del held[slot + 1 :]
        state = held[slot]
        for number, length in enumerate(runs):
            if number:
                held.append(state)
            state += length
            forward += length
        assert len(held) <= slots
        assert state == step or step == steps - 1
    assert forward == forward_steps(steps, slots)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (10, 3), (60, 5), (97, 20)])
def test_binomial_evaluates_as_many_steps_as_the_theory_says(steps, slots, compiled):
    """t(n, s) forward steps, the last step of the forward pass, and each step once more when it is taken back."""

    def loss(h):
        return np.sum(wl.scan(lambda h, _: (np.sin(tick(h)), None), h, length=steps, checkpoint=wl.binomial(slots))[0])

    gradient = wl.jit(wl.value_and_grad(loss)) if compiled else wl.grad(loss)  # compiled code drops what isn't used
    h = np.linspace(0.0, 1.0, 3)
    gradient(h)
    _, ticks = counted(gradient, h)
    assert ticks == forward_steps(steps, slots) + 1 + steps


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(("way", "steps"), [("sqrt", 100), (7, 30), (1, 9), (50, 30)])
def test_segments_are_evaluated_twice(way, steps, compiled):
    def loss(h):
        return np.sum(wl.scan(lambda h, _: (np.sin(tick(h)), None), h, length=steps, checkpoint=way)[0])

    gradient = wl.jit(wl.value_and_grad(loss)) if compiled else wl.grad(loss)  # compiled code drops what isn't used
    h = np.linspace(0.0, 1.0, 3)
    gradient(h)
    _, ticks = counted(gradient, h)
    assert ticks == 2 * steps


def long_loop(checkpoint, steps):
    def loss(h):
        h, _ = wl.scan(lambda h, _: (np.sin(tick(h)) * 1.001 + 0.01, None), h, length=steps, checkpoint=checkpoint)
        return np.sum(h * h)

    return loss


@pytest.mark.parametrize(
    ("way", "steps", "most"),
    [
        pytest.param("sqrt", 1000, 80, marks=pytest.mark.slow),
        pytest.param(wl.binomial(20), 1000, 30, marks=pytest.mark.slow),
        (wl.binomial(20), 200, 30),
    ],
    ids=str,
)
def test_many_steps(way, steps, most):
    """Memory of 80 states by the square root, of 30 in 20 slots, eager and compiled; the plain loop takes them all."""
    h = np.linspace(0.0, 1.0, MEGABYTE // 32)
    few = h[:: h.size // 4]
    expected = wl.grad(long_loop(None, steps))(few)
    (found, ticks), peak = with_peak(counted, wl.grad(long_loop(way, steps)), h)
    assert peak < most * h.nbytes
    assert ticks == (2 * steps if way == "sqrt" else forward_steps(steps, 20) + 1 + steps)
    np.testing.assert_array_equal(found[:: h.size // 4], expected)  # the same operations, to the last bit
    compiled = wl.jit(wl.grad(long_loop(way, steps)))
    assert compiled.inspect(h).peak_bytes < most * h.nbytes
    assert wl.jit(wl.grad(long_loop(None, steps))).inspect(h).peak_bytes > steps * h.nbytes
    np.testing.assert_allclose(compiled(few), expected, rtol=1e-12)


def test_forward_steps_of_a_thousand():
    assert forward_steps(1000, 20) == 2747


def test_slices_of_xs_are_not_kept_twice():
    xs = np.ones((200, 1000))

    def loss(xs):
        return np.sum(wl.scan(lambda h, x: (h * x, None), np.ones(1000), xs)[0])

    assert wl.jit(wl.grad(loss)).inspect(xs).peak_bytes < 2.2 * xs.nbytes  # the states and the gradient


@pytest.mark.parametrize("checkpoint", [10, "sqrt"])
def test_the_forward_pass_computes_no_residuals(checkpoint):
    """A sine forward; a sine and a cosine again."""

    def f(x):
        return np.sum(wl.scan(lambda h, _: (np.sin(h), None), x, length=100, checkpoint=checkpoint)[0])

    assert wl.cost(wl.grad(f), np.ones(2)).calls == 100 * 2 * 3


def test_branches_of_a_checkpointed_function_compute_no_residuals():
    f = wl.checkpoint(lambda x: wl.cond(x[0] > 0, lambda x: np.sin(np.sin(x)), np.exp, x))
    program = wl.trace(wl.value_and_grad(lambda x: np.sum(f(x))))(np.ones(2))
    forward = next(e.params["program"] for e in program.equations if e.primitive.name == "checkpoint")
    assert wl.cost(forward).calls == 1 + 2 * 2  # the comparison, and two sines of two numbers
