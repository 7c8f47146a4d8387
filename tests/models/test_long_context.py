"""Long contexts: a compiled training step takes memory linear in the context, with every kind of positions."""

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds

import wonderland as wl
from wonderland import models, nn, train
from wonderland.nn.positions import of_pairs

KINDS = {
    "learned": {}, "rotary, window, groups": {"positions": "rotary", "window": 64, "kv_heads": 1},
    "alibi": {"positions": "alibi"}, "relative": {"positions": "relative"},
}  # fmt: skip


def memory(context, **options):
    """Bytes of a step, forward, backward and update: what the compiler plans, and the constants that it reads."""
    model = models.GPT(32, context, layers=1, heads=2, width=16, key=wl.random.key(0), **options)

    @wl.jit
    def step(model, optimizer, tokens):
        loss, grads = wl.value_and_grad(lambda model: -np.mean(model.log_probability(tokens)))(model)
        optimizer.update(model, grads)
        return loss

    tokens = np.zeros((1, context + 1), np.int64)
    optimizer = train.Adam(model, rate=1e-3)
    program = wl.trace(lambda *args: step(*args))(model, optimizer, tokens)
    ends = [byte_bounds(array) for _, array in program.constants]
    return step.inspect(model, optimizer, tokens).peak_bytes + sum(high - low for low, high in ends)


@pytest.mark.parametrize("name", KINDS)
def test_memory_of_a_training_step_is_linear_in_the_context(name):
    assert memory(4096, **KINDS[name]) < 2.1 * memory(2048, **KINDS[name])


@pytest.mark.parametrize("queries, keys", [(7, 7), (3, 8), (8, 3)])
def test_biases_of_positions_in_order(queries, keys):
    """One number for each distance has the values that all pairs of positions have."""
    for bias in (nn.ALiBi(3), nn.RelativeBias(3, max_distance=20), nn.RelativeBias(2, bidirectional=False)):
        found = of_pairs(bias.of_distance(np.arange(1 - queries, keys)), keys)
        np.testing.assert_array_equal(found, bias(np.arange(queries), np.arange(keys)))


def test_a_bias_of_ones_own():
    """Any function of the positions of queries and keys."""

    class Own(nn.Module):
        def __init__(self):
            self.heads = 2

        def __call__(self, queries, keys):
            return np.where(queries[:, None] > keys, 0.5, queries[:, None] * 1.0)[None].repeat(2, 0)

    layer = nn.MultiHeadAttention(8, 2, position_bias=Own(), key=wl.random.key(0), dtype=np.float64)
    x = np.random.default_rng(0).normal(size=(5, 8))
    np.testing.assert_allclose(layer(x, positions=np.arange(5)), layer(x), 1e-12)
