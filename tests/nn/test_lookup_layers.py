"""Lookups by keys, hard attention, one head, memories, non-local layers, tokens: formulas, derivatives, errors."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def plain_softmax(x):
    terms = np.exp(x - x.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True)


# Lookups -------------------------------------------------------------------------------------------------------------


def test_the_example_of_the_notes():
    """C, example 2.3: with unit vectors as keys, lookup(e_3) = v_3, and lookup(e_3 + 2 e_5) = v_3 + 2 v_5."""
    e, v = np.eye(7), normal(7, 3)
    np.testing.assert_array_equal(nn.lookup(e[3], e, v, "linear"), v[3])
    np.testing.assert_array_equal(nn.lookup(e[3] + 2 * e[5], e, v, "linear"), v[3] + 2 * v[5])
    soft = nn.lookup(e[3], e, v)
    np.testing.assert_allclose(soft, (np.e * v[3] + (v.sum(0) - v[3])) / (np.e + 6))
    np.testing.assert_allclose(nn.lookup(e[3], e, v, scale=50.0), v[3], atol=1e-12)  # softmax(c x) to argmax
    np.testing.assert_array_equal(nn.lookup(e[3] + 2 * e[5], e, v, "hard"), v[5])


def test_lookups_are_the_formula():
    q, k, v = normal(2, 4, 3), normal(2, 5, 3, seed=1), normal(2, 5, 6, seed=2)
    scores = 0.5 * np.einsum("btd,bsd->bts", q, k)
    seen = normal(2, 4, 5, seed=3) > -0.5
    seen[0, 0] = False  # a query that sees nothing
    best = np.where(seen, scores, -np.inf).argmax(-1)
    expected = {
        "linear": np.where(seen, scores, 0),
        "softmax": np.nan_to_num(plain_softmax(np.where(seen, scores, -1e30))) * seen,
        "hard": np.eye(5)[best] * seen,
    }
    for weighting, weights in expected.items():
        found = nn.lookup(q, k, v, weighting, scale=0.5, mask=seen)
        np.testing.assert_allclose(found, weights @ v, atol=1e-14)
        compiled = wl.jit(lambda q, k, v, w=weighting: nn.lookup(q, k, v, w, scale=0.5, mask=seen))
        np.testing.assert_allclose(compiled(q, k, v), found, atol=1e-14)
    np.testing.assert_allclose(
        nn.lookup(q, k, v, mask=np.where(seen, 0, -np.inf)[1], scale=0.5)[1], (expected["softmax"] @ v)[1], atol=1e-14
    )
    np.testing.assert_allclose(nn.lookup(q, k, v, np.tanh), np.tanh(2 * scores) @ v, atol=1e-14)
    np.testing.assert_allclose(nn.lookup(q[0, 0], k[0], v[0]), nn.lookup(q, k, v)[0, 0], atol=1e-14)


@pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_derivatives_of_hard_weights(jit):
    """To the chosen value, and to nothing else; straight through, those of the softmax."""
    q, k, v = normal(4, 3), normal(5, 3, seed=1), normal(5, 2, seed=2)
    best = (q @ k.T).argmax(1)
    outer = normal(4, 2, seed=3)
    of = lambda weighting: jit(wl.grad(lambda q, k, v: np.sum(outer * nn.lookup(q, k, v, weighting)), (0, 1, 2)))
    dq, dk, dv = of("hard")(q, k, v)
    assert not dq.any() and not dk.any()
    expected = np.zeros((5, 2))
    np.add.at(expected, best, outer)
    np.testing.assert_allclose(dv, expected, atol=1e-15)
    np.testing.assert_array_equal(nn.lookup(q, k, v, "straight_through"), v[best])
    through, soft = of("straight_through")(q, k, v), of("softmax")(q, k, v)
    np.testing.assert_allclose(through[0], soft[0], atol=1e-14)
    np.testing.assert_allclose(through[1], soft[1], atol=1e-14)
    np.testing.assert_allclose(through[2], expected, atol=1e-14)


def test_hardmax():
    np.testing.assert_array_equal(nn.hardmax([1.0, 3.0, 3.0, -np.inf]), [0, 1, 0, 0])  # the first of equals
    x = normal(3, 4, 5).astype(np.float32)
    for axis in (0, 1, 2, -2):
        found = nn.hardmax(x, axis)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, x == x.max(axis, keepdims=True))
        np.testing.assert_array_equal(wl.jit(lambda x, a=axis: nn.hardmax(x, a, straight_through=True))(x), found)
    with pytest.raises(ValueError, match="there is no axis 3"):
        nn.hardmax(x, 3)


def test_gumbel_softmax_samples_categories():
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4]))
    samples = nn.gumbel_softmax(wl.random.key(0), np.broadcast_to(logits, (20000, 4)), hard=True)
    assert set(np.unique(samples)) == {0, 1} and (samples.sum(1) == 1).all()
    np.testing.assert_allclose(samples.mean(0), [0.1, 0.2, 0.3, 0.4], atol=0.012)  # 3.5 standard deviations
    soft = nn.gumbel_softmax(wl.random.key(0), np.broadcast_to(logits, (20000, 4)), 0.5)
    np.testing.assert_allclose(soft.sum(1), 1)
    np.testing.assert_array_equal(soft.argmax(1), samples.argmax(1))
    x = np.broadcast_to(logits, (3, 4)).copy()
    loss = lambda x, hard: np.sum(np.arange(4) ** 2 * nn.gumbel_softmax(wl.random.key(0), x, 0.5, hard))
    np.testing.assert_allclose(wl.grad(loss)(x, True), wl.grad(loss)(x, False), atol=1e-13)


# One head ------------------------------------------------------------------------------------------------------------


def test_one_head_is_the_formula_of_the_notes():
    """C 2.2 (without a factor) and E.10.11 (with 1 / sqrt(k)): parameters are 2 k e + v e."""
    e, k, v, T = 6, 3, 5, 4
    x = normal(2, T, e)
    m = nn.Attention(e, k, v, dtype=np.float64)
    assert sum(p.size for p in m.parameters()) == 2 * k * e + v * e
    wq, wk, wv = (getattr(m, f"{name}_proj").weight.T for name in "qkv")
    weights = plain_softmax((x @ wq) @ np.swapaxes(x @ wk, 1, 2) / np.sqrt(k))
    np.testing.assert_allclose(m(x), weights @ (x @ wv), atol=1e-14)
    np.testing.assert_allclose(m.weights(x), weights, atol=1e-14)
    np.testing.assert_allclose(nn.attention_maps(nn.Sequential(m), x)["0"][:, 0], weights, atol=1e-14)
    m.scale = 1.0
    np.testing.assert_allclose(m(x), plain_softmax((x @ wq) @ np.swapaxes(x @ wk, 1, 2)) @ (x @ wv), atol=1e-14)

    m = nn.Attention(e, k, v, context_width=7, content_width=2, scale=1.0, dtype=np.float64)
    q, c, d = normal(T, e), normal(9, 7), normal(9, 2, seed=2)
    wq, wk, wv = (getattr(m, f"{name}_proj").weight.T for name in "qkv")
    np.testing.assert_allclose(m(q, c, d), plain_softmax((q @ wq) @ (c @ wk).T) @ (d @ wv), atol=1e-14)


@pytest.mark.parametrize("weighting", ["softmax", "hard", "straight_through", "linear"])
def test_one_head_of_many(weighting):
    """Heads of `MultiHeadAttention` are single ones, whose results are stacked and multiplied by a matrix."""
    many = nn.MultiHeadAttention(6, 2, head_width=4, value_width=3, causal=True, weighting=weighting, dtype=np.float64)
    x, seen = normal(2, 5, 6), normal(5, 5, seed=4) > -0.7
    seen[np.arange(5), np.arange(5)] = True
    q, k, v = np.split(many.in_proj.weight, [8, 16])
    biases = np.split(many.in_proj.bias, [8, 16])
    for mask in (None, seen, np.where(seen, 0.0, -2.0)):
        parts = []
        for h in range(2):
            one = nn.Attention(6, 4, 3, causal=True, weighting=weighting, bias=True, dtype=np.float64)
            for name, w, b, n in zip("qkv", (q, k, v), biases, (4, 4, 3), strict=True):
                part = slice(h * n, (h + 1) * n)
                one.load_state({f"{name}_proj.weight": w[part], f"{name}_proj.bias": b[part]}, strict=False)
            parts.append(one(x, mask=mask))
            np.testing.assert_allclose(one.weights(x, mask=mask), many.weights(x, mask=mask)[:, h], atol=1e-13)
        np.testing.assert_allclose(many.out_proj(np.concatenate(parts, -1)), many(x, mask=mask), atol=1e-13)


def test_hard_attention_takes_the_best_value():
    m = nn.MultiHeadAttention(8, 2, causal=True, weighting="hard", dtype=np.float64)
    x = normal(6, 8)
    q, k, v = (np.swapaxes(part.reshape(6, 2, 4), 0, 1) for part in np.split(m.in_proj(x), 3, axis=-1))
    chosen = np.where(np.tri(6, dtype=bool), q @ np.swapaxes(k, 1, 2), -np.inf).argmax(-1)  # (H, T)
    expected = np.stack([v[h][chosen[h]] for h in range(2)], axis=1).reshape(6, 8)
    np.testing.assert_allclose(m(x), m.out_proj(expected), atol=1e-14)
    assert (m.weights(x).sum(-1) == 1).all()
    grads = wl.jit(wl.grad(lambda m: np.sum(m(x) ** 2)))(m)
    assert not grads.in_proj.weight[:16].any() and grads.in_proj.weight[16:].any()
    m.weighting = "straight_through"
    grads = wl.grad(lambda m: np.sum(m(x) ** 2))(m)
    assert grads.in_proj.weight[:16].any()


# Memories ------------------------------------------------------------------------------------------------------------


def test_a_memory_is_the_formula():
    """E.11.2, and with W_q = I and a function for the softmax, a network of two layers, E.11.3."""
    m, x = nn.NeuralMemory(4, 6, 3, key_width=2, dtype=np.float64), normal(2, 5, 4)
    weights = plain_softmax(x @ m.q_proj.weight.T @ m.keys.T / np.sqrt(2))
    np.testing.assert_allclose(m(x), weights @ m.values, atol=1e-14)
    m = nn.NeuralMemory(4, 6, query=False, weighting=nn.relu, scale=1.0, dtype=np.float64)
    feed = nn.FeedForward(4, 6, "relu", bias=False, dtype=np.float64)
    feed.load_state({"inner.weight": m.keys, "outer.weight": m.values.T})
    np.testing.assert_allclose(m(x), feed(x), atol=1e-14)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": 2}, {"position_bias": nn.ALiBi(4)}, {}], ids=str)
def test_keys_and_values_that_all_queries_see(options):
    m = nn.MultiHeadAttention(8, 4, 2, memory=3, value_width=5, dtype=np.float64, **options)
    x, T = normal(2, 6, 8), 6
    q, k, v = np.split(m.in_proj(x), [8, 12], axis=-1)
    q, k, v = (np.swapaxes(a.reshape(2, T, -1, n), 1, 2) for a, n in ((q, 2), (k, 2), (v, 5)))
    distance = np.arange(T)[:, None] - np.arange(T)
    seen = np.ones((T, T), bool) if not (m.causal or m.window) else distance >= 0
    seen = seen & (distance < (m.window or T))
    bias = m.position_bias(np.arange(T), np.arange(T)) if m.position_bias else np.zeros((4, T, T))
    for mask in (None, normal(2, 1, T, T, seed=5) > 0):
        allowed = seen if mask is None else seen & mask
        parts, all_weights = [], []
        for h in range(4):
            keys = np.concatenate([np.broadcast_to(m.memory_keys[h // 2], (2, 3, 2)), k[:, h // 2]], axis=1)
            values = np.concatenate([np.broadcast_to(m.memory_values[h // 2], (2, 3, 5)), v[:, h // 2]], axis=1)
            logits = q[:, h] @ np.swapaxes(keys, 1, 2) / np.sqrt(2)
            logits[..., 3:] += bias[h]
            logits[..., 3:] = np.where(allowed if mask is None else allowed[:, 0], logits[..., 3:], -np.inf)
            all_weights.append(plain_softmax(logits))
            parts.append(all_weights[-1] @ values)
        np.testing.assert_allclose(m(x, mask=mask), m.out_proj(np.concatenate(parts, -1)), atol=1e-13)
        np.testing.assert_allclose(m.weights(x, mask=mask), np.stack(all_weights, 1), atol=1e-13)
    if m.causal or m.window:
        cache = m.new_cache(T, (2,))
        steps = [m(part, cache=cache) for part in np.split(x, [2, 3], axis=1)]
        np.testing.assert_allclose(np.concatenate(steps, axis=1), m(x), atol=1e-13)


# Non-local layers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "embedded", "dot"])
def test_non_local_layers_are_the_formula(kind):
    m = nn.NonLocal(4, 3, kind, out_init=nn.init.normal, dtype=np.float64)
    x = 0.5 * normal(2, 4, 3, 2)
    places = x.reshape(2, 4, 6)
    y = np.zeros_like(places)
    of = lambda layer, v: v if layer is None else layer.weight @ v + layer.bias
    for b in range(2):
        for i in range(6):
            f = np.array([of(m.theta, places[b, :, i]) @ of(m.phi, places[b, :, j]) for j in range(6)])
            f = f / 6 if kind == "dot" else np.exp(f) / np.exp(f).sum()
            mixed = sum(f[j] * of(m.g, places[b, :, j]) for j in range(6))
            y[b, :, i] = places[b, :, i] + of(m.out, mixed)
    np.testing.assert_allclose(m(x), y.reshape(x.shape), atol=1e-13)
    last = nn.NonLocal(4, 3, kind, channels_last=True, dtype=np.float64)
    last.load_state(m.state())
    np.testing.assert_allclose(last(np.moveaxis(x, 1, -1)), np.moveaxis(m(x), 1, -1), atol=1e-14)


def test_non_local_layers_begin_as_the_identity():
    for rank, shape in ((1, (4, 5)), (2, (4, 3, 2)), (3, (4, 2, 3, 2))):
        x = normal(2, *shape)
        np.testing.assert_array_equal(nn.NonLocal(4, rank=rank, dtype=np.float64)(x), x)


def test_tokens_before_a_sequence():
    tokens, x = nn.PrefixTokens(2, 4, dtype=np.float64), normal(3, 5, 4)
    y = tokens(x)
    assert y.shape == (3, 7, 4)
    np.testing.assert_array_equal(y[:, 2:], x)
    np.testing.assert_array_equal(y[:, :2], np.stack([tokens.weight] * 3))
    weights = normal(3, 7, 4, seed=1)
    np.testing.assert_allclose(
        wl.jit(wl.grad(lambda m: np.sum(weights * m(x))))(tokens).weight, weights[:, :2].sum(0), atol=1e-14
    )


def test_tied_embeddings():
    """A2.3.1, D = C': gradients of both uses add up in one parameter."""
    table, ids = nn.Embedding(7, 4, dtype=np.float64), np.array([[1, 2, 6]])
    x = table(ids)
    np.testing.assert_allclose(table.unembed(x), np.einsum("btc,vc->btv", x, table.weight), atol=1e-15)
    both = wl.grad(lambda m: np.sum(np.sin(m.unembed(m(ids)))))(table).weight
    apart = wl.grad(lambda w, d: np.sum(np.sin(w[ids] @ d.T)), (0, 1))(table.weight, table.weight)
    np.testing.assert_allclose(both, apart[0] + apart[1], atol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.lookup(normal(3), normal(4, 2), normal(4, 2)), r"lookup takes queries .*\(3,\), \(4, 2\), \(4, 2"),
        (lambda: nn.lookup(normal(2), normal(4, 2), normal(3, 2)), "lookup takes queries"),
        (lambda: nn.lookup(normal(2), normal(4, 2), normal(4, 2), "soft"), "weighting is one of .* got 'soft'"),
        (lambda: nn.Attention(4)(normal(3, 5)), r"Attention: expected an input of shape \(..., T, 4\), got \(3, 5\)"),
        (lambda: nn.Attention(4, context_width=2)(normal(3, 4)), r"k_proj \(Linear\).*\(..., 2\), got \(3, 4\)"),
        (lambda: nn.Attention(4, weighting="soft"), "weighting is one of"),
        (lambda: nn.NeuralMemory(4, 3, key_width=2, query=False), "keys are 4 wide, as the input, got key_width=2"),
        (lambda: nn.NeuralMemory(4, 3)(normal(2, 3)), r"NeuralMemory: .* shape \(..., 4\), got \(2, 3\)"),
        (lambda: nn.NonLocal(4, kind="local"), "kind is one of .* got 'local'"),
        (lambda: nn.NonLocal(4)(normal(3, 2, 2)), r"of shape \(..., 4, n, n\), got \(3, 2, 2\)"),
        (lambda: nn.NonLocal(4, rank=1, channels_last=True)(normal(3, 2, 2)), r"shape \(..., n, 4\), got"),
        (lambda: nn.PrefixTokens(1, 4)(normal(4)), r"PrefixTokens: .* shape \(..., T, 4\), got \(4,\)"),
        (lambda: nn.Embedding(5, 4).unembed(normal(3)), r"Embedding: expected vectors of shape \(..., 4\), got \(3,\)"),
    ],
)  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
