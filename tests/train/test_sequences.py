"""Teacher forcing, scheduled sampling and free running, against closed forms of linear recurrences."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train
from wonderland.testing import check_grads


def linear(a):
    """Output a x, and a state that counts."""
    return lambda state, x: (state + 1, a * x)


def test_teacher_forcing_reads_the_sequence(rng):
    x = rng.normal(size=7)
    state, outputs = train.teacher_forcing(linear(0.5), 0, x)
    assert state == 6
    np.testing.assert_allclose(outputs, 0.5 * x[:-1])
    loss = lambda a: np.mean((train.teacher_forcing(linear(a), 0, x)[1] - x[1:]) ** 2)
    slope = np.mean(2 * x[:-1] * (0.5 * x[:-1] - x[1:]))
    for gradient in (wl.grad(loss), wl.jit(wl.grad(loss))):
        assert gradient(0.5) == pytest.approx(slope)
    best = x[:-1] @ x[1:] / (x[:-1] @ x[:-1])
    assert wl.grad(loss)(best) == pytest.approx(0, abs=1e-12)


def test_free_running_is_a_power():
    a, first = 0.9, 2.0
    state, outputs = train.free_running(linear(a), 0, first, 6)
    np.testing.assert_allclose(outputs, first * a ** np.arange(1, 7))
    assert state == 6
    last = lambda a, stop: train.free_running(linear(a), 0, first, 6, stop=stop)[1][-1]
    assert wl.grad(last)(a, False) == pytest.approx(6 * a**5 * first)
    assert wl.grad(last)(a, True) == pytest.approx(a**5 * first)  # what is fed back is a constant


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_the_ends_of_scheduled_sampling(rng, probability):
    x = rng.normal(size=8)
    _, outputs = train.scheduled_sampling(linear(0.7), 0, x, probability, wl.random.key(3))
    expected = (
        train.free_running(linear(0.7), 0, x[0], 7) if probability == 0 else train.teacher_forcing(linear(0.7), 0, x)
    )
    np.testing.assert_allclose(outputs, expected[1])


def test_expected_output_of_scheduled_sampling(rng):
    """E y[t] = a (p x[t] + (1 - p) E y[t-1]); the derivative in a likewise. Coins are seen in the state."""
    x, a, p = rng.normal(size=6) + 2, 0.8, 0.3
    run = lambda a, key: train.scheduled_sampling(linear(a), 0, x, p, key)[1]
    keys = wl.random.split(wl.random.key(0), 4000)
    values, slopes = wl.jit(
        lambda a: wl.jvp(lambda a: np.mean(wl.vmap(lambda key: run(a, key))(keys), 0), (a,), (1.0,))
    )(a)
    y, dy = [a * x[0]], [x[0]]
    for t in range(1, 5):
        dy.append(p * x[t] + (1 - p) * (y[-1] + a * dy[-1]))
        y.append(a * (p * x[t] + (1 - p) * y[-1]))
    np.testing.assert_allclose(values, y, atol=0.05)
    np.testing.assert_allclose(slopes, dy, atol=0.15)


def test_coins_are_of_each_sample_and_step():
    x = np.zeros((500, 12, 2)) + np.array([0.0, 5.0])
    seen = lambda state, x: (state, x + 1)  # counts the steps since the last true input
    _, outputs = train.scheduled_sampling(seen, (), x, 0.25, wl.random.key(1), axis=1)
    assert outputs.shape == (500, 11, 2)
    np.testing.assert_array_equal(outputs[..., 1] - outputs[..., 0], 5)  # one coin for all of an input
    true = outputs[:, 1:, 0] == 1
    assert np.all(outputs[:, 0, 0] == 1) and true.mean() == pytest.approx(0.25, abs=0.03)
    assert len({tuple(row) for row in true}) > 200


def test_batches_have_time_where_it_was(rng):
    x = rng.normal(size=(3, 9, 2)).astype(np.float32)
    start = np.zeros(3, np.int64)
    last, outputs = train.teacher_forcing(lambda s, x: (s + 1, 2 * x), start, x, axis=1)
    np.testing.assert_array_equal(outputs, 2 * x[:, :-1])
    assert outputs.dtype == np.float32 and last.tolist() == [8, 8, 8]
    _, free = train.free_running(lambda s, x: (s, 2 * x), (), x[:, 0], 4, axis=1)
    np.testing.assert_allclose(free[:, 3], 16 * x[:, 0])


def test_sequences_may_be_trees(rng):
    x = {"a": rng.normal(size=(5, 2)), "b": np.arange(5)}
    step = lambda state, x: (state, {"a": 2 * x["a"], "b": x["b"] + 1})
    _, outputs = train.scheduled_sampling(step, (), x, 0.5, wl.random.key(0))
    np.testing.assert_array_equal(outputs["b"], [1, 2, 3, 4])
    assert outputs["a"].shape == (4, 2)


def test_tokens_are_drawn_by_feed():
    """A step that wants the next of four tokens after the one it saw: free running counts on."""
    step = lambda state, token: (state, 50.0 * (np.arange(4) == (token + 1) % 4))
    draw = lambda logits, key: wl.random.categorical(key, logits=logits)
    _, logits = wl.jit(lambda key: train.free_running(step, (), np.int64(2), 6, key=key, feed=draw))(wl.random.key(0))
    np.testing.assert_array_equal(np.argmax(logits, -1), [3, 0, 1, 2, 3, 0])
    _, logits = train.scheduled_sampling(step, (), np.array([0, 3, 1, 0]), 0.0, wl.random.key(0), feed=draw)
    np.testing.assert_array_equal(np.argmax(logits, -1), [1, 2, 3])


class Recurrent(nn.Module):
    def __init__(self):
        self.hidden = nn.Linear(5, 3)
        self.out = nn.Linear(3, 2)
        self.calls = nn.Buffer(np.zeros((), np.int64))

    def __call__(self, state, x):
        self.calls = self.calls + 1
        state = np.tanh(self.hidden(np.concatenate([state, x], -1)))
        return state, self.out(state)


def test_modules_are_trained_with_a_schedule(rng):
    wl.random.seed(0)
    model, start = Recurrent(), np.zeros((4, 3), np.float32)
    angle = 0.4 * np.arange(12) + rng.normal(size=(4, 1))
    x = np.stack([np.sin(angle), np.cos(angle)], -1).astype(np.float32)
    probability, optimizer = train.linear(1.0, 60, end=0.2), train.Adam(model, rate=0.02)

    def loss(model, x, key, p):
        _, outputs = train.scheduled_sampling(model, start, x, p, key, axis=1)
        return np.mean((outputs - x[:, 1:]) ** 2)

    @wl.jit
    def update(model, optimizer, x, i, key):
        value, gradient = wl.value_and_grad(loss)(model, x, wl.random.fold_in(key, i), probability(i))
        optimizer.update(model, gradient)
        return value

    values = [update(model, optimizer, x, np.int64(i), wl.random.key(0)) for i in range(120)]
    assert model.calls == 120 * 11 and values[-1] < values[0] / 10
    _, free = train.free_running(model, start, x[:, 0], 11, axis=1)
    assert np.mean((free - x[:, 1:]) ** 2) < values[0] / 3


def test_derivatives(rng):
    x, w = rng.normal(size=(6, 2)), rng.normal(size=(2, 2))
    run = lambda w, x: np.sum(train.scheduled_sampling(lambda s, x: (0.5 * s + x, np.tanh(w @ (s + x))), np.zeros(2), x,
                                                       0.5, wl.random.key(2))[1] ** 2)  # fmt: skip
    check_grads(run, (w, x), order=2)


def test_inverse_sigmoid():
    schedule = train.inverse_sigmoid(10.0)
    i = np.arange(0, 120, 7.0)
    np.testing.assert_allclose(schedule(i), 10 / (10 + np.exp(i / 10)), rtol=1e-9)
    assert schedule(10 * np.log(10)) == pytest.approx(0.5) and schedule(1e9) == 0.0
    with pytest.raises(ValueError, match="k is at least 1"):
        train.inverse_sigmoid(0.5)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: train.teacher_forcing(linear(1), 0, np.ones(1)), "at least two entries along axis 0: .*1"),
    (lambda: train.teacher_forcing(linear(1), 0, np.ones(4), axis=1), "the same axes up to time, axis=1"),
    (lambda: train.teacher_forcing(3, 0, np.ones(4)), "takes a function"),
    (lambda: train.teacher_forcing(lambda s, x: x, 0, np.ones(4)), "returns a pair .state, output."),
    (lambda: train.scheduled_sampling(linear(1), 0, np.ones(4), 1.5, wl.random.key(0)), "between 0 and 1, not 1.5"),
    (lambda: train.scheduled_sampling(lambda s, x: (s, np.ones(3) * x), 0, np.ones(4), 0.5, wl.random.key(0)),
     r"becomes an input of float64\[\], and float64\[3\] came: give feed="),
    (lambda: train.free_running(linear(1), 0, 1.0, 0), "length is a number of steps"),
])  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()
