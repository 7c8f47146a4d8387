"""Attention as a layer: what sees what, symmetries, positions, caches, blocks, and what they say of wrong inputs."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

WIDTH, HEADS, TIME = 16, 4, 7
OPTIONS = {
    "causal": dict,
    "grouped, rotary": lambda: {"kv_heads": 2, "rotary": nn.Rotary(4)},
    "multi-query, part rotary": lambda: {"kv_heads": 1, "rotary": nn.Rotary(2, pairing="interleaved"), "bias": False},
    "window, alibi": lambda: {"window": 3, "position_bias": nn.ALiBi(HEADS), "fused": False},
    "window, relative": lambda: {"window": 2, "position_bias": nn.RelativeBias(HEADS, 8, 6, bidirectional=False)},
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def layer(**options):
    return nn.MultiHeadAttention(WIDTH, HEADS, key=wl.random.key(1), dtype=np.float64, **options)


def by_hand(m, x, seen, bias=0.0, rotary=None):
    """The formula, head by head."""
    q, k, v = np.split(m.in_proj(x), [m.heads * m.head_width, (m.heads + m.kv_heads) * m.head_width], axis=-1)
    out, share, D = [], m.heads // m.kv_heads, m.head_width
    for h in range(m.heads):
        g = h // share
        logits = q[:, h * D : (h + 1) * D] @ k[:, g * D : (g + 1) * D].T / np.sqrt(D) + bias
        logits[~seen] = -np.inf
        weights = np.exp(logits - logits.max(1, keepdims=True))
        out.append(weights / weights.sum(1, keepdims=True) @ v[:, g * D : (g + 1) * D])
    return m.out_proj(np.concatenate(out, axis=1))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_the_formula(kv_heads):
    x, i = normal(TIME, WIDTH), np.arange(TIME)
    everything, causal = np.ones((TIME, TIME), bool), i[:, None] >= i
    for options, seen in [
        ({}, everything),
        ({"causal": True}, causal),
        ({"window": 3}, causal & (i[:, None] - i < 3)),
        ({"window": (1, 2)}, (i[:, None] - i <= 1) & (i - i[:, None] <= 2)),
    ]:
        m = layer(kv_heads=kv_heads, **options)
        np.testing.assert_allclose(m(x), by_hand(m, x, seen), atol=1e-13)
    m = layer(kv_heads=kv_heads)
    np.testing.assert_allclose(m(x, mask=causal), by_hand(m, x, causal), atol=1e-13)


def test_three_matrices_are_one():
    one, three, x = layer(kv_heads=2), layer(kv_heads=2, fused=False), normal(2, TIME, WIDTH)
    three.out_proj = one.out_proj
    parts = np.split(one.in_proj.weight, [16, 24]), np.split(one.in_proj.bias, [16, 24])
    for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), *parts, strict=True):
        getattr(three, name).load_state({"weight": weight, "bias": bias})
    np.testing.assert_allclose(three(x), one(x), atol=1e-13)
    np.testing.assert_allclose(three(x, x), one(x), atol=1e-13)


def test_the_bias_of_keys_changes_nothing():
    """It adds the same number to all logits of a query."""
    m, x = layer(fused=False), normal(TIME, WIDTH)
    grads = wl.grad(lambda m: np.sum(np.sin(m(x))))(m)
    assert np.abs(grads.k_proj.bias).max() < 1e-14 < 1e-3 < np.abs(grads.q_proj.bias).max()


@pytest.mark.parametrize("name", OPTIONS)
def test_causality_is_read_off_the_pattern(name):
    """Output t depends on inputs up to t, and, with a window, on none before that; for all values of the input."""
    m = layer(causal=True, **OPTIONS[name]())
    pattern = wl.sparse.jacobian_pattern(lambda x: m(x), normal(TIME, WIDTH)).toarray()
    blocks = pattern.reshape(TIME, WIDTH, TIME, WIDTH).any(axis=(1, 3))
    i = np.arange(TIME)
    np.testing.assert_array_equal(blocks, (i[:, None] >= i) & (i[:, None] - i < (m.window or TIME)))


def test_a_wrong_mask_is_seen_in_the_pattern():
    i = np.arange(TIME)
    late = i[:, None] + 1 >= i  # one token too many
    pattern = wl.sparse.jacobian_pattern(lambda x: layer()(x, mask=late), normal(TIME, WIDTH)).toarray()
    blocks = pattern.reshape(TIME, WIDTH, TIME, WIDTH).any(axis=(1, 3))
    assert blocks[np.triu_indices(TIME, 1)].sum() == TIME - 1
    np.testing.assert_array_equal(blocks, late)


def test_without_positions_there_is_no_order():
    x, order = normal(TIME, WIDTH), np.random.default_rng(1).permutation(TIME)
    for m in (layer(), layer(kv_heads=2), nn.TransformerBlock(WIDTH, HEADS, dtype=np.float64)):
        np.testing.assert_allclose(m(x[order]), m(x)[order], atol=1e-13)
    cross = layer(context_width=5)
    context = normal(6, 5)
    np.testing.assert_allclose(cross(x, context[::-1]), cross(x, context), atol=1e-13)
    turned = layer(context_width=5, rotary=nn.Rotary(4), kv_heads=2)
    kept = wl.jit(turned.context)(context)
    np.testing.assert_allclose(turned(x, kept), turned(x, context), atol=1e-13)
    assert np.abs(turned(x, context[::-1]) - turned(x, kept)).max() > 1e-3
    for m in (layer(causal=True), layer(rotary=nn.Rotary(4)), layer(position_bias=nn.ALiBi(HEADS))):
        assert np.abs(m(x[order]) - m(x)[order]).max() > 1e-3


def test_weights_of_attention():
    x = normal(2, TIME, WIDTH)
    m = layer(kv_heads=2, causal=True, window=3, position_bias=nn.ALiBi(HEADS))
    weights = m.weights(x)
    assert weights.shape == (2, HEADS, TIME, TIME)
    np.testing.assert_allclose(weights.sum(-1), 1)
    v = np.repeat(np.swapaxes(m.in_proj(x)[..., 24:].reshape(2, TIME, 2, 4), 1, 2), 2, axis=1)
    y = np.swapaxes(weights @ v, 1, 2).reshape(2, TIME, WIDTH)
    np.testing.assert_allclose(m.out_proj(y), m(x), atol=1e-13)
    blind = m.weights(x, mask=np.zeros((TIME, TIME), bool))
    assert not blind.any()


def test_dropout_of_weights():
    x = normal(2, TIME, WIDTH)
    m = layer(causal=True, dropout=0.5)
    before = m.dropout.key.copy()
    first, second = m(x), m(x)
    assert np.abs(first - second).max() > 1e-3
    m.dropout.key = before
    np.testing.assert_allclose(wl.jit(m)(x), first, atol=1e-12)
    sample = wl.jit(lambda m, x: m(x))
    np.testing.assert_allclose(np.mean([sample(m, x) for _ in range(3000)], axis=0), m.eval()(x), atol=0.06)
    np.testing.assert_array_equal(m(x), m(x))


# Caches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_cache_gives_what_the_whole_gives(name, jit):
    m, x = layer(causal=True, **OPTIONS[name]()), normal(2, TIME, WIDTH)
    whole = m(x)
    step = jit(lambda m, x, cache: m(x, cache=cache))
    for sizes in ([1] * 7, [3, 1, 1, 2], [2, 5], [7]):
        cache = m.new_cache(TIME, (2,))
        assert cache.length == (m.window or TIME)
        held = cache.keys
        parts = [step(m, part, cache) for part in np.split(x, np.cumsum(sizes)[:-1], axis=1)]
        np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-12)
        assert cache.position == TIME
        assert cache.keys is held
        cache.reset()
        np.testing.assert_allclose(step(m, x[:, :1], cache), whole[:, :1], atol=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_cache_is_carried_by_a_loop(name):
    m, x = layer(causal=True, **OPTIONS[name]()), normal(TIME, WIDTH)

    @wl.jit
    def loop(m, cache, x):
        def turn(carry, token):
            m, cache = carry
            return carry, m(token[None], cache=cache)[0]

        return wl.scan(turn, (m, cache), x)[1]

    cache = m.new_cache(TIME)
    np.testing.assert_allclose(loop(m, cache, x), m(x), atol=1e-12)
    assert cache.position == TIME


@pytest.mark.parametrize("options", [{}, {"window": 2}, {"memory": 2}, {"weighting": "hard"}], ids=str)
def test_masks_of_floats(options):
    """Those of 0 and -inf are those of bools; also with a cache, whose rows that are empty stay hidden."""
    m, x = layer(causal=True, **options), normal(2, TIME, WIDTH)
    seen = np.random.default_rng(1).random((TIME, TIME)) < 0.6
    seen[2] = False  # nothing, unless there is a memory
    floats = np.where(seen, 0.0, -np.inf)
    expected = m(x, mask=seen)
    np.testing.assert_allclose(m(x, mask=floats), expected, atol=1e-12)
    np.testing.assert_allclose(m(x, mask=floats.tolist()), expected, atol=1e-12)
    np.testing.assert_allclose(m.weights(x, mask=floats), m.weights(x, mask=seen), atol=1e-12)
    if "window" not in options:  # a ring has other rows
        np.testing.assert_allclose(m(x, mask=floats, cache=m.new_cache(TIME, (2,))), expected, atol=1e-12)
    free = layer(dropout=0.5, **options)
    assert np.all(np.isfinite(free(x, mask=floats)))
    assert not np.any(np.isnan(free.weights(x, mask=floats)))


def test_a_full_cache():
    m = layer(causal=True)
    for step in (lambda m, x, cache: m(x, cache=cache), wl.jit(lambda m, x, cache: m(x, cache=cache))):
        cache = m.new_cache(4)
        step(m, normal(3, WIDTH), cache)
        with pytest.raises((ValueError, wl.CheckError), match="room for 4 tokens, 3 are in it, 2 more came"):
            step(m, normal(2, WIDTH), cache)
        cache.position -= 4  # one more than there are
        with pytest.raises((ValueError, wl.CheckError), match="room for 4 tokens, -1 are in it, 2 more came"):
            step(m, normal(2, WIDTH), cache)


# Positions -----------------------------------------------------------------------------------------------------------


def test_the_shift_of_a_sinusoid_is_a_rotation():
    width, shift = 8, 5
    code = nn.sinusoidal(20, width, dtype=np.float64)
    rotation = np.zeros((width, width))
    for i in range(0, width, 2):
        t = shift / 10000 ** (i / width)
        rotation[i : i + 2, i : i + 2] = [[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(width), atol=1e-15)
    np.testing.assert_allclose(code[:-shift] @ rotation.T, code[shift:], atol=1e-14)
    np.testing.assert_allclose(code[:, 2], np.sin(np.arange(20) / 10000 ** (2 / 8)))
    assert nn.sinusoidal(np.array([3, 4]), 6).dtype == np.float32


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("width", [8, 4])
@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "ntk", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.0, "original_max_position_embeddings": 64},
    ],
    ids=["plain", "linear", "ntk", "llama3", "yarn"],
)  # fmt: skip
def test_rotary_products_depend_on_the_distance(pairing, width, scaling):
    rotary = nn.Rotary(width, 100.0, pairing, scaling)
    q, k = normal(1, 8), normal(1, 8, seed=1)
    product = lambda i, j: (rotary(q, np.array([i])) @ rotary(k, np.array([j])).T).item()
    assert product(9, 4) == pytest.approx(product(25, 20), abs=1e-12)
    assert product(4, 4) == pytest.approx((q @ k.T).item(), abs=1e-12)
    assert abs(product(9, 4) - product(4, 9)) > 1e-3
    np.testing.assert_array_equal(rotary(q, np.array([7]))[:, width:], q[:, width:])
    np.testing.assert_allclose(np.linalg.norm(rotary(q, np.array([7]))), np.linalg.norm(q))


def test_frequencies_of_rotary():
    plain = nn.Rotary(8, 100.0).frequencies()
    np.testing.assert_allclose(plain, [1, 100**-0.25, 0.1, 100**-0.75])
    linear = nn.Rotary(8, 100.0, scaling={"rope_type": "linear", "factor": 4.0})
    x = normal(3, 8)
    np.testing.assert_allclose(linear(x, np.arange(3)), nn.Rotary(8, 100.0)(x, np.arange(3) / 4))
    ntk = nn.Rotary(8, 100.0, scaling={"rope_type": "ntk", "factor": 4.0}).frequencies()
    assert ntk[0] == 1 and ntk[-1] == pytest.approx(plain[-1] / 4)  # the fastest stays, the slowest is stretched
    both = normal(3, 8)
    order = np.arange(8).reshape(4, 2).T.reshape(-1)  # pairs next to each other, as halves
    turned = nn.Rotary(8, pairing="interleaved")(both, np.arange(3))
    np.testing.assert_allclose(turned[:, order], nn.Rotary(8)(both[:, order], np.arange(3)))


def test_alibi():
    np.testing.assert_allclose(nn.ALiBi(8).slopes(), 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(nn.ALiBi(6).slopes(), [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    bias = nn.ALiBi(8)(np.arange(2, 4), np.arange(4))
    np.testing.assert_allclose(bias[0], -0.5 * np.array([[2, 1, 0, 1], [3, 2, 1, 0]]))


def test_buckets_of_relative_positions():
    bias = nn.RelativeBias(2, 8, 16)
    distance = np.arange(-20, 21)
    assert bias.bucket(distance).tolist() == [3] * 15 + [2] * 4 + [1, 0, 5] + [6] * 4 + [7] * 15
    causal = nn.RelativeBias(2, 8, 16, bidirectional=False)
    assert causal.bucket(-np.arange(0, 20)).tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6] + [7] * 8
    assert causal.bucket(np.arange(5)).tolist() == [0] * 5
    found = bias(np.arange(3), np.arange(5))
    assert found.shape == (2, 3, 5)
    np.testing.assert_array_equal(found[:, 0, 1], bias.weight[5])
    np.testing.assert_array_equal(found[:, 2, 2], bias.weight[0])


def test_a_shared_bias_is_one_parameter():
    bias = nn.RelativeBias(HEADS, dtype=np.float64)
    model = nn.Sequential(layer(position_bias=bias), layer(position_bias=bias))
    names = [name for name, _ in model.named_parameters()]
    assert names.count("0.position_bias.weight") == 1 and "1.position_bias.weight" not in names
    grads = wl.grad(lambda m: np.sum(m(normal(TIME, WIDTH)) ** 2))(model)
    assert grads[0].position_bias.weight.any()


# Blocks --------------------------------------------------------------------------------------------------------------


def test_blocks_are_what_they_say():
    x, context = normal(TIME, WIDTH), normal(3, WIDTH, seed=2)
    make = lambda **k: nn.TransformerBlock(WIDTH, HEADS, 24, dtype=np.float64, **k)
    b = make(order="pre", cross=True)
    h = x + b.attention(b.norm1(x))
    h = h + b.cross(b.norm_cross(h), context)
    np.testing.assert_allclose(b(x, context), h + b.feed(b.norm2(h)))
    b = make(order="post", norm="rms")
    h = b.norm1(x + b.attention(x))
    np.testing.assert_allclose(b(x), b.norm2(h + b.feed(h)))
    b = make(order="parallel", gated=True, activation="silu")
    h = b.norm1(x)
    np.testing.assert_allclose(b(x), x + b.attention(h) + b.feed.outer(nn.silu(b.feed.gate(h)) * b.feed.inner(h)))
    b = make(dropout=0.3)
    assert np.abs(b(x) - b(x)).max() > 1e-3
    assert make(norm=lambda width: nn.Identity()).norm1(x) is x


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.MultiHeadAttention(10, 4), "width=10 isn't a multiple of heads=4"),
        (lambda: nn.MultiHeadAttention(12, 4, 3), "heads=4 isn't a multiple of kv_heads=3"),
        (lambda: layer(position_bias=nn.ALiBi(3)), "it has 4 heads, its position_bias 3"),
        (lambda: layer()(normal(3, 5)), r"MultiHeadAttention: expected an input of shape \(..., T, 16\), got \(3, 5\)"),
        (lambda: layer()(normal(3, 16), normal(3, 16)), "for a context, use fused=False"),
        (lambda: layer(context_width=5)(normal(3, 16)), "has context_width=5: give it a context"),
        (lambda: layer(context_width=5)(normal(3, 16), normal(3, 4)), r"k_proj \(Linear\).*\(..., 5\), got \(3, 4\)"),
        (lambda: layer(rotary=nn.Rotary(6))(normal(3, 16)), r"rotary \(Rotary\).*D at least 6, got \(4, 3, 4\)"),
        (lambda: layer()(normal(2, 3, 16), cache=layer().new_cache(4)), r"keys of shape \(4, T, 4\), got \(2, 4"),
        (lambda: layer(memory=-1), "memory=-1 is an integer of at least 1"),
        (lambda: layer(window=0), "a window is a positive number of keys, or .*, got 0"),
        (lambda: layer(window=(2, 1.5)), r"a window is a positive number of keys, or .*, got \(2, 1.5\)"),
        (lambda: nn.Rotary(3), "width=3 is even"),
        (lambda: nn.Rotary(4, pairing="pairs"), '"half" or "interleaved", got \'pairs\''),
        (lambda: nn.Rotary(4, scaling={"rope_type": "linear"}), "lacks 'factor'"),
        (lambda: nn.Rotary(4, scaling={"rope_type": "yarn", "factor": 2.0}), "lacks 'original_max_position_embed"),
        (lambda: nn.Rotary(4, scaling={"rope_type": "longer", "factor": 2.0}), "rope_type is .* got 'longer'"),
        (lambda: layer(weighting="softer"), "weighting is one of .*, or a function of scores, got 'softer'"),
        (lambda: nn.sinusoidal(4, 5), "width=5 is even"),
        (lambda: nn.RelativeBias(4, 32, 8), "buckets=32, 8 are for single distances.*less than max_distance=8"),
        (lambda: nn.FeedForward(4, activation="swish"), "one of .*, got 'swish'"),
        (lambda: nn.TransformerBlock(4, 2, order="both"), "order is one of"),
        (lambda: nn.TransformerBlock(4, 2, order="parallel", cross=True), "no place for cross=True"),
        (lambda: nn.TransformerBlock(4, 2, norm="batch"), 'norm is "layer", "rms"'),
    ],
)  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer(position_bias="alibi"), "position_bias is an nn.ALiBi or nn.RelativeBias, got 'alibi'"),
        (lambda: layer().new_cache(4, 2), r"batch=2 is a tuple, .* such as \(4,\)"),
        (lambda: layer()(normal(3, 16), mask=np.ones((3, 3), int)), r"got dtype int64: write mask.astype\(bool\)"),
        (lambda: layer(dropout=0.5)(normal(3, 16), mask=np.ones((3, 3), int)), "got dtype int64"),
        (lambda: nn.Attention(16, causal=True).weights(normal(3, 16), mask=np.ones((3, 3), int)), "got dtype int64"),
    ],
)  # fmt: skip
def test_wrong_kinds(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_sizes_may_be_numbers_of_numpy():
    x = normal(TIME, WIDTH)
    m, same = layer(causal=True, window=np.int64(2)), layer(causal=True, window=2)
    assert m.new_cache(TIME).length == 2
    np.testing.assert_array_equal(m(x, cache=m.new_cache(TIME)), same(x, cache=same.new_cache(TIME)))


def test_attention_maps_are_the_weights_of_every_layer():
    model = wl.models.GPT(7, 6, 2, 2, 8, dropout=0.5, key=wl.random.key(0))
    tokens = np.array([[1, 2, 3, 4], [5, 6, 0, 1]])
    maps = nn.attention_maps(model, tokens)
    assert [*maps] == ["blocks.0.attention", "blocks.1.attention"] and model.training
    first = maps["blocks.0.attention"]
    assert first.shape == (2, 2, 4, 4)
    np.testing.assert_allclose(first.sum(axis=-1), 1, rtol=1e-6)
    assert not first[..., np.triu_indices(4, 1)[0], np.triu_indices(4, 1)[1]].any()
    with nn.evaluating(model):
        x = model.tokens(tokens) + model.places(np.arange(4))
        expected = model.blocks[0].attention.weights(model.blocks[0].norm1(x))
    np.testing.assert_allclose(first, expected, rtol=1e-5)
    with pytest.raises(wl.ArgumentError, match=r"called no nn\.MultiHeadAttention"):
        nn.attention_maps(nn.Sequential(nn.Linear(2, 2)), np.ones(2, np.float32))
    with pytest.raises(wl.ArgumentError, match="outside of jit"):
        wl.jit(lambda m: nn.attention_maps(m, tokens)["blocks.0.attention"])(model)
    with pytest.raises(wl.ArgumentError, match="outside of jit"):  # also with a model that isn't an argument
        wl.jit(lambda tokens: nn.attention_maps(model, tokens))(tokens)
