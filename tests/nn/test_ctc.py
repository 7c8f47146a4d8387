"""CTC: against the sum over all paths, in both modes and to second order, with lengths, blanks and what can't fit."""

import itertools

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


def spelled(path, blank):
    """What a path spells: repeats are one, then blanks go."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


def by_enumeration(log_p, target, blank=0):
    """-log of the sum over all paths: the definition."""
    frames, classes = log_p.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=frames):
        if spelled(path, blank) == list(target):
            total += np.exp(sum(log_p[t, c] for t, c in enumerate(path)))
    return -np.log(total) if total else np.inf


@JIT
@pytest.mark.parametrize("target", [[], [1], [1, 2], [2, 2], [1, 2, 1], [1, 1, 2], [2, 1, 1, 2]])
def test_the_sum_over_all_paths(target, jit, rng):
    log_p = nn.log_softmax(rng.standard_normal((5, 3)))
    labels = np.array(target, int).reshape(1, -1)
    expected = by_enumeration(log_p, target)
    np.testing.assert_allclose(
        jit(lambda x: nn.ctc_loss(x, labels, reduction="sum"))(log_p[None]), expected, rtol=1e-13
    )
    np.testing.assert_allclose(jit(lambda x: nn.ctc_loss(x, labels[0], reduction="none"))(log_p), expected, rtol=1e-13)


@JIT
def test_lengths_are_those_of_each_sample(jit, rng):
    log_p = nn.log_softmax(rng.standard_normal((4, 6, 3)))
    targets = np.array([[1, 2, 1], [2, 2, -5], [1, 99, 99], [0, 0, 0]])  # what is beyond may be anything
    steps, lengths = np.array([6, 4, 1, 3]), np.array([3, 2, 1, 0])
    exact = [by_enumeration(x[:n], y[:m]) for x, y, n, m in zip(log_p, targets, steps, lengths, strict=True)]
    f = lambda r: jit(lambda *a: nn.ctc_loss(*a, reduction=r))(log_p, targets, steps, lengths)
    np.testing.assert_allclose(f("none"), exact, rtol=1e-13)
    np.testing.assert_allclose(f("sum"), np.sum(exact), rtol=1e-13)
    np.testing.assert_allclose(f("mean"), np.mean(exact / np.maximum(lengths, 1)), rtol=1e-13)
    two = lambda *a: nn.ctc_loss(*a, reduction="none")
    pairs = (log_p.reshape(2, 2, 6, 3), targets.reshape(2, 2, 3), steps.reshape(2, 2), lengths.reshape(2, 2))
    np.testing.assert_allclose(jit(two)(*pairs), np.reshape(exact, (2, 2)), rtol=1e-13)
    np.testing.assert_allclose(wl.vmap(two)(log_p, targets, steps, lengths), exact, rtol=1e-13)


def test_another_blank(rng):
    log_p = nn.log_softmax(rng.standard_normal((1, 5, 3)))
    found = nn.ctc_loss(log_p, np.array([[0, 1, 0]]), blank=2, reduction="sum")
    np.testing.assert_allclose(found, by_enumeration(log_p[0], [0, 1, 0], 2), rtol=1e-13)


def test_derivatives_to_second_order(rng):
    x, targets = rng.standard_normal((2, 6, 4)), np.array([[1, 2, 2], [3, 1, 0]])
    f = lambda x: nn.ctc_loss(nn.log_softmax(x), targets, np.array([6, 5]), np.array([3, 2]))
    wl.testing.check_grads(f, (x,), order=2)
    np.testing.assert_allclose(wl.jit(wl.grad(f))(x), wl.grad(f)(x), rtol=1e-10, atol=1e-14)
    v = rng.standard_normal(x.shape)
    of = lambda x: wl.jvp(wl.grad(f), (x,), (v,))[1]
    np.testing.assert_allclose(wl.jit(of)(x), of(x), rtol=1e-9, atol=1e-13)


def test_the_gradient_is_minus_the_posterior(rng):
    """Of a frame's labels; each frame has one, so that it sums to -1."""
    log_p = nn.log_softmax(rng.standard_normal((1, 8, 4)))
    gradient = wl.grad(lambda x: nn.ctc_loss(x, np.array([[1, 2, 2]]), reduction="sum"))(log_p)
    assert np.all(gradient <= 0)
    np.testing.assert_allclose(gradient.sum(-1), -1, rtol=1e-12)


@JIT
def test_what_does_not_fit(jit, rng):
    x, targets = rng.standard_normal((2, 3, 3)), np.array([[1, 1, 0], [1, 2, 1]])
    given = (targets, np.array([2, 3]), np.array([2, 3]))  # 1 1 takes three frames
    f = lambda x, zero: nn.ctc_loss(nn.log_softmax(x), *given, zero_infinity=zero, reduction="none")
    np.testing.assert_array_equal(np.isinf(jit(lambda x: f(x, False))(x)), [True, False])
    loss = jit(lambda x: f(x, True))(x)
    assert loss[0] == 0 and loss[1] > 0
    for zero in (False, True):
        gradient = jit(wl.grad(lambda x, z=zero: np.sum(f(x, z))))(x)
        assert np.all(np.isfinite(gradient)) and not gradient[0].any() and gradient[1].any()


@JIT
def test_single_precision_and_long_sequences(jit, rng):
    x = rng.standard_normal((2, 400, 20)).astype(np.float32)
    targets = rng.integers(1, 20, (2, 60))
    f = lambda x: nn.ctc_loss(nn.log_softmax(x), targets)
    loss, gradient = jit(wl.value_and_grad(f))(x)
    assert loss.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(loss, f(x.astype(np.float64)), rtol=1e-4)
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-5)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((np.zeros((6, 2, 3)), np.ones((2, 2), int)), r"got \(6, 2, 3\) and \(2, 2\): .* np.swapaxes"),
        ((np.zeros((2, 6, 3)), np.full((2, 2), 3)), r"0 to 2 and not the blank, 0, got 3 \(at index \(0, 0\)\)"),
        ((np.zeros((2, 6, 3)), np.zeros((2, 2), int)), r"not the blank, 0, got 0"),
        ((np.zeros((2, 6, 3)), np.ones((2, 2), int), np.array([7, 6])), r"input_lengths are 0 to 6, got 7 \(at"),
        ((np.zeros((2, 6, 3)), np.ones((2, 2), int), None, np.array([2, 3])), r"target_lengths are 0 to 2, got 3"),
        ((np.zeros((2, 6, 3)), np.ones((2, 2), int), np.array([6])), r"integers of shape \(2,\), got int64, \(1,\)"),
    ],
)  # fmt: skip
def test_bad_input(args, words):
    with pytest.raises(ValueError, match=words):
        nn.ctc_loss(*args)
    with pytest.raises(TypeError, match="targets are integers"):
        nn.ctc_loss(np.zeros((2, 6, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="one of the 3 classes, got 3"):
        nn.ctc_loss(np.zeros((2, 6, 3)), np.ones((2, 2), int), blank=3)


def test_labels_out_of_range_in_compiled_code():
    with pytest.raises(wl.CheckError, match="not the blank"):
        wl.jit(nn.ctc_loss)(np.zeros((2, 6, 3)), np.array([[1, 2], [1, 3]]))
