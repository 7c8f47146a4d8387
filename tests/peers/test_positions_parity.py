"""Positions against Hugging Face's formulas: all scalings, both pairings, buckets, slopes, sinusoids."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import LlamaConfig  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402
from transformers.models.bloom.modeling_bloom import build_alibi_tensor  # noqa: E402
from transformers.models.gptj import modeling_gptj  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding  # noqa: E402
from transformers.models.t5.modeling_t5 import T5Attention  # noqa: E402

import wonderland as wl  # noqa: E402
from wonderland import nn  # noqa: E402

pytestmark = pytest.mark.peers

OLD = {"original_max_position_embeddings": 64}
SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, **OLD},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **OLD},
    "yarn": {"rope_type": "yarn", "factor": 4.0, **OLD},
    "yarn, all options": {
        "rope_type": "yarn", "factor": 16.0, "beta_fast": 8.0, "beta_slow": 0.5, "mscale": 1.2, "mscale_all_dim": 0.8,
        "truncate": False, **OLD,
    },
    "yarn, attention_factor": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.5, **OLD},
}  # fmt: skip


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("name", SCALINGS)
def test_rotary(name):
    """Turned queries of LLaMA's layer, for contexts that are shorter and longer than that of training."""
    scaling = {**SCALINGS[name], "rope_theta": 500.0}
    config = LlamaConfig(
        hidden_size=32, num_attention_heads=2, max_position_embeddings=64, rope_parameters=dict(scaling)
    )
    ours, x = nn.Rotary(16, 500.0, scaling=scaling), normal(1, 2, 5, 16).astype(np.float32)
    if name != "default":
        theirs, amplitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, seq_len=100)
        np.testing.assert_allclose(ours.frequencies(100), theirs, rtol=1e-6)
        assert ours.amplitude == pytest.approx(amplitude, rel=1e-12)
    for last in (7, 90):
        positions = np.array([0, 1, 2, 5, last])
        layer = modeling_llama.LlamaRotaryEmbedding(config)
        cos, sin = layer(torch.from_numpy(x), torch.from_numpy(positions)[None])
        turned, _ = modeling_llama.apply_rotary_pos_emb(torch.from_numpy(x), torch.from_numpy(x), cos, sin)
        np.testing.assert_allclose(ours(x, positions), turned, atol=2e-5)
        np.testing.assert_allclose(wl.jit(ours)(x, positions), turned, atol=2e-5)


def test_rotary_of_neighbours():
    """GPT-J's pairing, of a part of the heads."""
    x = normal(1, 6, 2, 12)  # (B, T, H, D)
    table = modeling_gptj.create_sinusoidal_positions(6, 8).double()[None]
    sin, cos = torch.split(table, 4, dim=-1)
    turned = modeling_gptj.apply_rotary_pos_emb(torch.from_numpy(x[..., :8]), sin, cos).numpy()
    ours = np.swapaxes(nn.Rotary(8, pairing="interleaved")(np.swapaxes(x, 1, 2), np.arange(6)), 1, 2)
    np.testing.assert_allclose(ours, np.concatenate([turned, x[..., 8:]], axis=-1), atol=1e-6)  # their angles: single


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (32, 100), (16, 40), (64, 1000)])
def test_buckets_of_t5(buckets, far, bidirectional):
    distance = np.arange(-2000, 2001)
    theirs = T5Attention._relative_position_bucket(torch.from_numpy(distance), bidirectional, buckets, far)
    ours = nn.RelativeBias(2, buckets, far, bidirectional).bucket(distance)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12])
def test_biases_of_alibi(heads):
    """Theirs are those of the last query, up to a number for each head, which the softmax doesn't see."""
    theirs = build_alibi_tensor(torch.ones(1, 9), heads, torch.float64).numpy()  # (heads, 1, keys)
    ours = nn.ALiBi(heads)(np.array([8]), np.arange(9))
    np.testing.assert_allclose(ours, theirs - theirs[..., -1:], atol=1e-6)


def test_sinusoids():
    theirs = MarianSinusoidalPositionalEmbedding(20, 12).create_weight()
    np.testing.assert_allclose(nn.sinusoidal(20, 12, pairing="half"), theirs, atol=1e-6)
    pairs = np.stack(np.split(theirs.numpy(), 2, axis=1), axis=-1).reshape(20, 12)
    np.testing.assert_allclose(nn.sinusoidal(20, 12), pairs, atol=1e-6)
