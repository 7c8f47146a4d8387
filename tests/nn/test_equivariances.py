"""What attention sees of an order, and what positions add: the symmetries of C, section 3, for random layers."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

SEEDS = range(6)
KEY = wl.random.key


def drawn(seed):
    """Sizes, a generator, and options of attention with that many heads."""
    rng = np.random.default_rng(seed)
    kv = int(rng.integers(1, 3))
    heads, head_width, T = kv * int(rng.integers(1, 3)), 2 * int(rng.integers(1, 4)), int(rng.integers(2, 9))
    options = {"kv_heads": kv, "head_width": head_width, "value_width": int(rng.integers(1, 5)), "key": KEY(seed),
               "memory": int(rng.integers(0, 3)), "dtype": np.float64}  # fmt: skip
    return rng, int(rng.integers(2, 7)), heads, T, options


def block(seed, width, **options):
    return nn.TransformerBlock(width, 2, order=["pre", "post", "parallel"][seed % 3], key=KEY(seed),
                               attention={"head_width": 4, **options}, dtype=np.float64)  # fmt: skip


@pytest.mark.parametrize("weighting", ["softmax", "hard", "linear"])
@pytest.mark.parametrize("seed", SEEDS)
def test_self_attention_is_equivariant(seed, weighting):
    """Tokens in another order are the results in that order."""
    rng, width, heads, T, options = drawn(seed)
    m = nn.MultiHeadAttention(width, heads, weighting=weighting, **options)
    x, order = rng.normal(size=(T, width)), rng.permutation(T)
    np.testing.assert_allclose(m(x[order]), m(x)[order], atol=1e-12)
    of_tokens = lambda x: m.weights(x)[..., options["memory"] :]
    np.testing.assert_allclose(of_tokens(x[order]), of_tokens(x)[:, order][..., order], atol=1e-12)
    b = block(seed, width, weighting=weighting)
    np.testing.assert_allclose(b(x[order]), b(x)[order], atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_cross_attention_is_invariant_to_the_order_of_its_context(seed):
    """And equivariant in the queries; keys and values move together."""
    rng, width, heads, T, options = drawn(seed)
    m = nn.MultiHeadAttention(width, heads, context_width=3, **options)
    x, context = rng.normal(size=(T, width)), rng.normal(size=(5, 3))
    order, queries = rng.permutation(5), rng.permutation(T)
    seen = rng.random((T, 5)) < 0.7
    np.testing.assert_allclose(m(x, context[order]), m(x, context), atol=1e-12)
    np.testing.assert_allclose(m(x, context[order], mask=seen[:, order]), m(x, context, mask=seen), atol=1e-12)
    np.testing.assert_allclose(m(x[queries], context), m(x, context)[queries], atol=1e-12)
    one = nn.Attention(width, 2, 3, context_width=3, content_width=4, key=KEY(seed), dtype=np.float64)
    content = rng.normal(size=(5, 4))
    np.testing.assert_allclose(one(x, context[order], content[order]), one(x, context, content), atol=1e-12)
    assert np.abs(one(x, context[[1, 0, 2, 3, 4]], content) - one(x, context, content)).max() > 1e-6


@pytest.mark.parametrize("make", [
    lambda width: nn.FeedForward(width, 5, dtype=np.float64), lambda width: nn.NeuralMemory(width, 5, dtype=np.float64),
    lambda width: nn.LayerNorm(width, dtype=np.float64),
], ids=["feed-forward", "memory", "norm"])  # fmt: skip
def test_what_acts_on_each_token(make):
    """The Jacobian is block-diagonal: no token sees another."""
    m, x = make(4), np.random.default_rng(0).normal(size=(3, 4))
    blocks = wl.sparse.jacobian_pattern(lambda x: m(x), x).toarray().reshape(3, 4, 3, 4).any(axis=(1, 3))
    np.testing.assert_array_equal(blocks, np.eye(3, dtype=bool))
    np.testing.assert_allclose(m(x), [m(token) for token in x], atol=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_relative_positions_see_distances_only(seed):
    """All positions moved by the same number change nothing; the order does."""
    rng, width, heads, T, options = drawn(seed)
    options["memory"] = 0  # is at position 0 for rotary positions
    D, shift = options["head_width"], int(rng.integers(1, 100))
    x, here = rng.normal(size=(T, width)), np.arange(T)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    for position in (
        {"rotary": nn.Rotary(D, 100.0)}, {"rotary": nn.Rotary(D, pairing="interleaved")},
        {"rotary": nn.Rotary(2, scaling=yarn)}, {"position_bias": nn.ALiBi(heads)},
        {"position_bias": nn.RelativeBias(heads, 8, 16, key=KEY(seed), dtype=np.float64)},
    ):  # fmt: skip
        m = nn.MultiHeadAttention(width, heads, causal=bool(seed % 2), **position, **options)
        whole = m(x)
        np.testing.assert_allclose(m(x, positions=here + shift), whole, atol=1e-11)
        assert np.abs(m(x, positions=2 * here) - whole).max() > 1e-9


def test_the_positions_of_learned_tables_are_absolute():
    """A shift of what is added to tokens, in contrast, is seen."""
    m, table = nn.MultiHeadAttention(4, 2, key=KEY(0), dtype=np.float64), nn.Embedding(9, 4, dtype=np.float64)
    x = np.random.default_rng(0).normal(size=(3, 4))
    assert np.abs(m(x + table(np.arange(3))) - m(x + table(np.arange(3) + 2))).max() > 1e-3


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
def test_the_shift_of_a_sinusoid_is_one_rotation(pairing):
    """For all positions the same orthogonal matrix, so that products of encodings depend on distances."""
    rng = np.random.default_rng(0)
    positions = rng.uniform(0, 500, size=40)
    code = lambda p: nn.sinusoidal(p, 8, 300.0, pairing, dtype=np.float64)
    for shift in rng.uniform(-50, 50, size=5):
        R = np.linalg.lstsq(code(positions), code(positions + shift), rcond=None)[0]
        np.testing.assert_allclose(code(positions) @ R, code(positions + shift), atol=1e-11)
        np.testing.assert_allclose(R @ R.T, np.eye(8), atol=1e-11)
    products = code(positions) @ code(positions).T
    np.testing.assert_allclose(code(positions + 7) @ code(positions + 7).T, products, atol=1e-11)


# A mask that is wrong is seen ----------------------------------------------------------------------------------------


def sees(f, x):
    """Which token's result depends on which token, for all values of the input."""
    T, width = x.shape
    return wl.sparse.jacobian_pattern(f, x).toarray().reshape(T, -1, T, width).any(axis=(1, 3))


def test_masks_of_blocks_are_read_off_the_pattern():
    x, T = np.random.default_rng(0).normal(size=(5, 4)), 5
    causal = np.tri(T, dtype=bool)
    b = block(0, 4)
    for m in (block(0, 4, causal=True), block(1, 4, causal=True, memory=2), block(2, 4, causal=True, window=9)):
        np.testing.assert_array_equal(sees(lambda x, m=m: m(x), x), causal)
    np.testing.assert_array_equal(sees(lambda x: b(x, mask=causal), x), causal)
    late = causal.copy()
    late[1, 3] = True  # a single hole
    np.testing.assert_array_equal(sees(lambda x: b(x, mask=late), x), late)


@pytest.mark.parametrize("weighting", ["hard", "linear", "straight_through"])
def test_other_weightings_are_causal(weighting):
    x = np.random.default_rng(0).normal(size=(5, 4))
    for m in (block(0, 4, causal=True, weighting=weighting, memory=1),
              nn.Attention(4, causal=True, weighting=weighting, dtype=np.float64)):  # fmt: skip
        jacobian = np.abs(wl.jacobian(m)(x)).max(axis=(1, 3))
        np.testing.assert_array_equal(jacobian[~np.tri(5, dtype=bool)], 0)
        assert (np.diag(jacobian) > 0).any()


def test_a_mask_behind_the_softmax_is_seen():
    """E11.1's wrong variant: weights that are masked after they were normalised know of the keys that are hidden."""
    x, causal = np.random.default_rng(0).normal(size=(5, 4)), np.tri(5, dtype=bool)
    m = nn.Attention(4, dtype=np.float64)
    moved = lambda f: np.abs(wl.jacobian(f)(x)).max(axis=(1, 3)) > 0
    np.testing.assert_array_equal(moved(lambda x: m(x, mask=causal)), causal)
    assert moved(lambda x: np.where(causal, m.weights(x), 0) @ m.v_proj(x)).all()
