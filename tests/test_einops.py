"""`wonderland.einops` against what the notation means, written out with NumPy; and its errors."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.einops import PatternError, rearrange, reduce, repeat
from wonderland.testing.op_samples import assert_close

X = np.random.default_rng(0).normal(size=(2, 6, 4, 3))


def same(actual, expected, what=""):
    assert_close(actual, expected, str(what), 1e-12)


REARRANGE = {
    "b h w c -> b c h w": ({}, lambda x: x.transpose(0, 3, 1, 2)),
    "b (h1 h2) w c -> (b h1) (w c) h2": (
        {"h1": 2}, lambda x: x.reshape(2, 2, 3, 4, 3).transpose(0, 1, 3, 4, 2).reshape(4, 12, 3),
    ),
    "b (h1 h2) w c -> b (h2 h1) w c": (
        {"h2": 2}, lambda x: x.reshape(2, 3, 2, 4, 3).transpose(0, 2, 1, 3, 4).reshape(2, 6, 4, 3),
    ),
    "b ... -> ... b": ({}, lambda x: np.moveaxis(x, 0, -1)),
    "b ... c -> (...) b c": ({}, lambda x: x.transpose(1, 2, 0, 3).reshape(24, 2, 3)),
    "b ... c -> b (... c)": ({}, lambda x: x.reshape(2, -1)),
    "b h w c ... -> ... c h w b": ({}, lambda x: x.transpose(3, 1, 2, 0)),
    "b…c -> c…b": ({}, lambda x: x.transpose(3, 1, 2, 0)),
    "b h w c -> b 1 h w () c": ({}, lambda x: x[:, None, :, :, None]),
    "... -> (...)": ({}, np.ravel),
    " b   h w  c->b(h w)c ": ({}, lambda x: x.reshape(2, 24, 3)),
    "b (h) (w 1) c -> (b) h w c": ({}, lambda x: x),
}  # fmt: skip
REDUCE = {
    "b h w c -> b c": ({}, (1, 2), lambda x: x),
    "b h w c -> b () () c": ({}, (1, 2), lambda x: x[:, None, None]),
    "b h w c ->": ({}, (0, 1, 2, 3), lambda x: x),
    "b ... -> b": ({}, (1, 2, 3), lambda x: x),
    "... c -> c": ({}, (0, 1, 2), lambda x: x),
    "... c -> ...": ({}, (3,), lambda x: x),
}
REPEAT = {
    "b h w c -> b h 2 w c": ({}, lambda x: np.stack([x, x], 2)),
    "b h w c -> b (h r) (w 2) c": ({"r": 3}, lambda x: x.repeat(3, 1).repeat(2, 2)),
    "b h w c -> (r b) h w c": ({"r": 3}, lambda x: np.concatenate([x, x, x])),
    "... -> new ...": ({"new": 2}, lambda x: np.stack([x, x])),
    "b h w c -> b (h w) c": ({}, lambda x: x.reshape(2, 24, 3)),
    "b h w c -> b h w c k": ({"k": 0}, lambda x: np.zeros((2, 6, 4, 3, 0))),
}


def check(f, expected):
    same(f(X), expected)
    same(wl.jit(f)(X), expected)
    same(wl.vmap(f)(np.stack([X + 1, X]))[1], expected)
    wl.testing.check_grads(f, (X,), order=1)


@pytest.mark.parametrize("pattern", REARRANGE)
def test_rearrange(pattern):
    lengths, by_hand = REARRANGE[pattern]
    check(lambda x: rearrange(x, pattern, **lengths), by_hand(X))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("pattern", REDUCE)
def test_reduce(pattern, name):
    lengths, axes, finish = REDUCE[pattern]
    same(reduce(X, pattern, name, **lengths), finish(getattr(np, name)(X, axis=axes)))


def test_reduce_of_groups():
    check(lambda x: reduce(x, "b (h 2) (w k) c -> b h w c", "mean", k=2), X.reshape(2, 3, 2, 2, 2, 3).mean((2, 4)))
    check(lambda x: reduce(x, "b (h 2) w c -> c h", "max"), X.reshape(2, 3, 2, 4, 3).max((0, 2, 3)).T)
    check(lambda x: reduce(x, "b h w c -> w", lambda x, axes: np.sqrt(np.sum(x * x, axis=axes))),
          np.sqrt(np.sum(X * X, axis=(0, 1, 3))))  # fmt: skip
    assert reduce(X > 0, "b h w c -> c", "any").tolist() == [True] * 3
    assert reduce(X > 0, "b h w c -> c", "all").tolist() == [False] * 3


@pytest.mark.parametrize("pattern", REPEAT)
def test_repeat(pattern):
    lengths, by_hand = REPEAT[pattern]
    check(lambda x: repeat(x, pattern, **lengths), by_hand(X))


def test_lists_are_stacked():
    parts = [X[0], X[1]]
    same(rearrange(parts, "b h w c -> h (b w) c"), X.transpose(1, 0, 2, 3).reshape(6, 8, 3))
    gradient = wl.grad(lambda x: np.sum(rearrange([x, 2.0 * x], "two h -> h two")[1] ** 2))(np.array([1.0, 3.0]))
    same(gradient, np.array([0.0, 30.0]))


def test_other_inputs():
    same(rearrange([[1.0, 2.0]], "a b -> b a"), np.array([[1.0], [2.0]]))
    same(repeat(np.float64(2.0), "-> 3"), np.full(3, 2.0))
    same(rearrange(np.zeros((0, 4)), "a (b c) -> c (a b)", b=2), np.zeros((2, 0)))
    assert rearrange(np.zeros((2, 3), np.float32), "a b -> b a").dtype == np.float32


@pytest.mark.parametrize(("f", "pattern", "lengths", "message"), [
    (rearrange, "b h -> h b", {}, "the left side has 2 axes, the array has 4"),
    (rearrange, "a b c d e ... -> ... a b c d e", {}, "needs at least 5 axes, the array has 4"),
    (rearrange, "b h w c -> b h w", {}, "'c' must be on both sides; an axis is removed by reduce"),
    (rearrange, "b h w c -> b h w c d", {}, "'d' must be on both sides; a new axis is made by repeat"),
    (rearrange, "b h w 3 -> b h w", {}, "'3' must be on both sides"),
    (rearrange, "b (h k) w c -> b h w c k", {}, "of the axes (h k) all but one must have a given length"),
    (rearrange, "b (h k) w c -> b h w c k", {"k": 5}, "6 isn't divisible by 5"),
    (rearrange, "b (h k) w c -> b h w c k", {"h": 3, "k": 5}, "(h k) has length 15, but the axis of the array has 6"),
    (rearrange, "b h w 1 -> b h w", {}, "1 has length 1, but the axis of the array has 3"),
    (rearrange, "b h w c -> b h w c", {"q": 2}, "the length of 'q' is given, but the pattern has no such axis"),
    (rearrange, "b h w c -> b h w c", {"c": 3.0}, "must be a non-negative integer, not 3.0"),
    (rearrange, "b h w c", {}, "a pattern has two sides"),
    (rearrange, "b h -> w -> c", {}, "a pattern has two sides"),
    (rearrange, "b b w c -> b w c", {}, "'b' occurs twice on one side"),
    (rearrange, "... b ... -> b ...", {}, "'...' occurs twice"),
    (rearrange, "b (h (w)) c -> b h w c", {}, "parentheses can't be nested"),
    (rearrange, "b (h w c -> b h w c", {}, "a parenthesis isn't closed"),
    (rearrange, "b h) w c -> b h w c", {}, "a parenthesis is closed that wasn't opened"),
    (rearrange, "b, h w c -> b h w c", {}, "'b,' is no name of an axis"),
    (rearrange, "b _h w c -> b _h w c", {}, "'_h' is no name of an axis"),
    (rearrange, "b (...) c -> b c ...", {}, "an ellipsis in parentheses is possible on the right side only"),
    (repeat, "b h w c -> b h w c d", {}, "the length of the new axis 'd' isn't known: give it as d=..."),
    (repeat, "b h w c -> b h w", {}, "'c' must be on both sides"),
    (repeat, "b h w c -> b h w c ...", {}, "the ellipsis must be on both sides"),
])  # fmt: skip
def test_errors(f, pattern, lengths, message):
    with pytest.raises(PatternError) as error:
        f(X, pattern, **lengths)
    assert message in str(error.value)
    assert repr(pattern) in str(error.value) and "(2, 6, 4, 3)" in str(error.value)


def test_unknown_reduction():
    with pytest.raises(PatternError, match="must be one of min, max, sum, mean, prod, any, all, or a function"):
        reduce(X, "b h w c -> b", "median")
    with pytest.raises(PatternError, match="new axis is made by repeat"):
        reduce(X, "b h w c -> b d", "sum")
