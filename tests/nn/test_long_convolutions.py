"""Long and continuous convolutions: the sums as loops, in both domains; what is causal; other lengths and spacings."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

T = 7


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def summed(g, x, causal):
    """y_i = sum_j g(i - j) x_j, with matrices g."""
    n = x.shape[-2]
    return np.stack([sum(x[..., j, :] @ g(i - j).T for j in range(i + 1 if causal else n)) for i in range(n)], axis=-2)


@pytest.mark.parametrize("method", ["fft", "direct"])
@pytest.mark.parametrize("causal", [True, False])
def test_long_convolutions_are_sums(causal, method):
    m = nn.LongConv(3, 9, causal, method=method, dtype=np.float64)
    assert m.weight.shape == (9 if causal else 17, 3)
    for n in (1, T, 9):
        x = normal(2, n, 3)
        expected = summed(lambda d: np.diag(m.weight[d if causal else d + 8]), x, causal) + m.bias
        np.testing.assert_allclose(m(x), expected, atol=1e-13)
    np.testing.assert_allclose(wl.jit(m)(x), expected, atol=1e-13)


@pytest.mark.parametrize("make", [
    lambda method: nn.LongConv(3, 200, method=method, key=wl.random.key(0), dtype=np.float64),
    lambda method: nn.ContinuousConv(3, 2, causal=False, method=method, key=wl.random.key(0), dtype=np.float64),
], ids=["long", "continuous"])  # fmt: skip
def test_long_ones_are_applied_by_transforms(make):
    m, same = make("auto"), make("direct")
    for n in (20, 200):
        x = normal(n, 3)
        assert ("rfft" in str(wl.trace(lambda x: m(x))(x))) == (n == 200)
        np.testing.assert_allclose(m(x), same(x), atol=1e-12)


@pytest.mark.parametrize("depthwise", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_continuous_convolutions_are_sums(causal, depthwise):
    m = nn.ContinuousConv(3, 3 if depthwise else 2, 8, 5, depthwise=depthwise, causal=causal, dtype=np.float64)
    count = sum(p.size for p in m.parameters())
    x = normal(2, T, 3)

    def g(d):
        found = m.g(np.array([[d / 8]]))[0]
        return np.diag(found) if depthwise else found.reshape(2, 3)

    np.testing.assert_allclose(m(x), summed(g, x, causal) + m.bias, atol=1e-13)
    half = summed(lambda d: 0.5 * g(0.5 * d), x, causal) + m.bias
    np.testing.assert_allclose(m(x, spacing=0.5), half, atol=1e-13)
    assert m(normal(2, 30, 3)).shape == (2, 30, 3 if depthwise else 2)  # any length, and no more parameters
    assert sum(p.size for p in m.parameters()) == count


class Steps(nn.Module):
    """g(d) = W_d for |d| <= k, and 0 beyond."""

    def __init__(self, weight):  # (out, in, 2 k + 1)
        self.weight = weight

    def __call__(self, d):
        k = self.weight.shape[-1] // 2
        place = np.rint(d[:, 0]).astype(int)
        inside = np.abs(place) <= k
        matrices = np.moveaxis(self.weight, -1, 0).reshape(2 * k + 1, -1)
        return np.where(inside[:, None], matrices[np.where(inside, k - place, 0)], 0)


def test_without_tokens():
    nothing = np.zeros((2, 0, 3), np.float32)
    for layer, width in ((nn.LongConv(3, 5), 3), (nn.LongConv(3, 5, False), 3), (nn.ContinuousConv(3, 4), 4)):
        for call in (layer, wl.jit(layer)):
            assert call(nothing).shape == (2, 0, width) and call(nothing).dtype == np.float32


def test_a_convolution_is_a_continuous_one():
    """E.10.2; its weights are found by gradients, too."""
    conv, x = nn.Conv1d(3, 2, 5, padding=2, bias=False, dtype=np.float64), normal(2, T, 3)
    m = nn.ContinuousConv(3, 2, 1, g=Steps(conv.weight), causal=False, bias=False, dtype=np.float64)
    flipped = lambda conv, x: np.swapaxes(conv(np.swapaxes(x, 1, 2)), 1, 2)
    np.testing.assert_allclose(m(x), flipped(conv, x), atol=1e-13)
    found = wl.grad(lambda m: np.sum(np.sin(m(x))))(m).g.weight
    np.testing.assert_allclose(found, wl.grad(lambda c: np.sum(np.sin(flipped(c, x))))(conv).weight, atol=1e-13)


def test_the_result_is_an_integral():
    """Twice as many samples of the same signal give nearly the same numbers, at the same places."""
    m = nn.ContinuousConv(2, 3, 50, omega=3.0, dtype=np.float64, key=wl.random.key(0))
    signal = lambda t: np.stack([np.sin(t / 6), np.cos(t / 9)], axis=-1)
    coarse, fine = m(signal(np.arange(100.0))), m(signal(np.arange(0, 100, 0.5)), spacing=0.5)
    finest = m(signal(np.arange(0, 100, 0.25)), spacing=0.25)
    error, half = np.abs(fine[::2] - coarse)[10:].max(), np.abs(finest[::2] - fine)[20:].max()
    assert error < 0.06 * np.abs(coarse).max() and half == pytest.approx(error / 2, rel=0.1)  # of first order


@pytest.mark.parametrize("make", [
    lambda causal: nn.LongConv(2, T, causal, dtype=np.float64),
    lambda causal: nn.ContinuousConv(2, 3, causal=causal, dtype=np.float64),
], ids=["long", "continuous"])  # fmt: skip
def test_causality_is_read_off_the_pattern(make):
    for causal in (True, False):
        m = make(causal)
        pattern = wl.sparse.jacobian_pattern(lambda x, m=m: m(x), normal(T, 2)).toarray()
        blocks = pattern.reshape(T, -1, T, 2).any(axis=(1, 3))
        np.testing.assert_array_equal(blocks, np.tri(T, dtype=bool) if causal else np.ones((T, T), bool))


def test_variances_at_the_start():
    """Numbers come out about as large as they went in."""
    wl.random.seed(0)
    x = normal(4, 64, 32)
    for m in (nn.LongConv(32, 64, bias=False), nn.ContinuousConv(32, length=64, bias=False),
              nn.ContinuousConv(32, length=64, bias=False, depthwise=True)):  # fmt: skip
        assert 0.4 < m(x)[:, -16:].std() < 1.6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.LongConv(3, 5)(normal(6, 3)), r"LongConv: .*\(..., T, 3\) with T at most 5, got \(6, 3\)"),
        (lambda: nn.LongConv(3, 5)(normal(3)), r"LongConv: .* got \(3,\)"),
        (lambda: nn.ContinuousConv(3)(normal(6, 4)), r"ContinuousConv: .*\(..., T, 3\), got \(6, 4\)"),
        (lambda: nn.ContinuousConv(2, g=np.exp)(normal(6, 2)), r"g makes \(6, 4\) of \(6, 1\) .*, got \(6, 1\)"),
        (lambda: nn.ContinuousConv(3, 2, depthwise=True), "depthwise=True keeps the width 3, got out_width=2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
