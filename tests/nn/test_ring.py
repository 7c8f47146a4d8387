"""Ring attention over blocks in one process: attention itself, with its derivatives. On ranks: train/test_parallel."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train

RNG = np.random.default_rng(0)
Q, K, V, CT = (RNG.normal(size=size) for size in ((2, 4, 12, 5), (2, 2, 12, 5), (2, 2, 12, 3), (2, 4, 12, 3)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("blocks", [1, 3, 12])
def test_it_is_attention(blocks, causal):
    ring = lambda q, k, v: nn.ring_attention(q, k, v, blocks, causal=causal, scale=0.7)
    plain = lambda q, k, v: wl.attention(q, k, v, causal=causal, scale=0.7)
    expected = plain(Q, K, V)
    np.testing.assert_allclose(ring(Q, K, V), expected, 1e-13, 1e-13)
    np.testing.assert_allclose(wl.vmap(ring)(Q, K, V), expected, 1e-13, 1e-13)
    pulled = wl.vjp(plain, Q, K, V)[1](CT)

    def both(q, k, v, ct):
        y, pull = wl.vjp(ring, q, k, v)
        return y, pull(ct)

    for f in (both, wl.jit(both)):
        y, found = f(Q, K, V, CT)
        np.testing.assert_allclose(y, expected, 1e-13, 1e-13)
        for x, wanted in zip(found, pulled, strict=True):
            np.testing.assert_allclose(x, wanted, 1e-13, 1e-13)


def test_its_second_derivatives():
    twice = lambda attend: wl.grad(lambda q: np.sum(np.sin(wl.grad(lambda q: np.sum(attend(q) ** 2))(q))))
    found = twice(lambda q: nn.ring_attention(q, K, V, 3, causal=True))(Q)
    np.testing.assert_allclose(found, twice(lambda q: wl.attention(q, K, V, causal=True))(Q), 1e-12, 1e-12)


def test_other_dtypes_and_one_rank():
    q, k, v = (x.astype(np.float32) for x in (Q, K, V))
    for found in (nn.ring_attention(q, k, v, 4), nn.ring_attention(q, k, v, ranks=train.Ranks())):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wl.attention(Q, K, V), 1e-5, 1e-5)
    more = nn.ring_attention(Q, np.tile(K, (1, 1, 2, 1)), np.tile(V, (1, 1, 2, 1)), 4)  # each key twice
    np.testing.assert_allclose(more, wl.attention(Q, K, V), 1e-12, 1e-12)


def test_compiled_memory_is_linear_in_the_length():
    """Of what is kept and what goes around; the scores of all pairs would be four times as large each time."""

    def peak(length):
        x = np.zeros((1, length, 16), np.float32)
        step = wl.jit(wl.grad(lambda q, k, v: np.sum(nn.ring_attention(q, k, v, 4, causal=True)), (0, 1, 2)))
        return step.inspect(x, x, x).peak_bytes

    assert peak(8192) < 2.05 * peak(4096)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.ring_attention(Q, K, V), "give the number of blocks, or ranks="),
        (lambda: nn.ring_attention(Q, K, V, 5), r"blocks=5 is a number that divides the length, got q \(2, 4, 12, 5\)"),
        (lambda: nn.ring_attention(Q, K, V, 0), "blocks=0 is"),
        (lambda: nn.ring_attention(Q[0, 0], K[0, 0], V[0, 0], 3), r"takes q and k \(..., heads, T, width\)"),
        (lambda: nn.ring_attention(Q, K[..., :8, :], V[..., :8, :], 4, causal=True), "as many queries as keys"),
        (lambda: nn.ring_attention(Q[:, :3], K, V, 3), "heads a multiple of groups"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_of_real_numbers():
    with pytest.raises(TypeError, match="of real numbers, got complex128, float64 and float64"):
        nn.ring_attention(Q + 0j, K, V, 2)
