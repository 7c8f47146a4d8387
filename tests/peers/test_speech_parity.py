"""Whisper and Wav2Vec against Hugging Face's models of random weights, which load: values, gradients, generation."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_transformers_parity import DTYPES, check_gradients, cross_entropy, pair  # noqa: E402

import wonderland as wl  # noqa: E402
from wonderland import models, nn  # noqa: E402

pytestmark = pytest.mark.peers


def their_whisper():
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=31, num_mel_bins=4, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, d_model=16, max_source_positions=6,
            max_target_positions=12, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        )
    )  # fmt: skip


def our_whisper(**options):
    return models.Whisper(31, mels=4, frames=12, context=12, layers=2, heads=4, width=16, hidden=24, **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_whisper(dtype, tmp_path):
    theirs, ours = pair(their_whisper, our_whisper, tmp_path, dtype)
    limit, rng = DTYPES[dtype], np.random.default_rng(0)
    source, tokens = rng.normal(size=(3, 4, 12)).astype(dtype), rng.integers(1, 31, (3, 7))
    labels = rng.integers(0, 31, (3, 7))
    given = {"input_features": torch.from_numpy(source), "decoder_input_ids": torch.from_numpy(tokens)}
    with torch.no_grad():
        found = theirs(**given)
    np.testing.assert_allclose(ours.encode(source), found.encoder_last_hidden_state.numpy(), rtol=limit, atol=limit)
    np.testing.assert_allclose(ours(source, tokens), found.logits.numpy(), rtol=limit, atol=limit)
    np.testing.assert_allclose(wl.jit(ours)(source, tokens), found.logits.numpy(), rtol=limit, atol=limit)
    check_gradients(
        theirs, ours, lambda m: cross_entropy(m(**given).logits, labels),
        lambda m: nn.cross_entropy(m(source, tokens).reshape(-1, 31), labels.reshape(-1)), tmp_path / "grads", limit,
    )  # fmt: skip


def test_whisper_places_are_theirs():
    theirs = their_whisper().model.encoder.embed_positions.weight.detach().numpy()
    np.testing.assert_allclose(our_whisper().source_places.weight, theirs, atol=1e-6)


def test_whisper_writes_token_by_token(tmp_path):
    theirs, ours = pair(their_whisper, our_whisper, tmp_path, "float64")
    source = np.random.default_rng(1).normal(size=(2, 4, 12))
    searched = {"num_beams": 3, "num_return_sequences": 3}
    wanted = []
    for options in ({"use_cache": True}, {"use_cache": False}, searched):  # nothing of what it does for long speech
        with torch.no_grad():
            rows = torch.from_numpy(source[:1] if "num_beams" in options else source)
            wanted.append(
                transformers.GenerationMixin.generate(
                    theirs, rows, decoder_input_ids=torch.full((len(rows), 1), 3), max_new_tokens=10, do_sample=False,
                    eos_token_id=None, pad_token_id=0, suppress_tokens=None, begin_suppress_tokens=None, **options,
                ).numpy()
            )  # fmt: skip
    for cache, rows in zip((True, False), wanted[:2], strict=True):
        np.testing.assert_array_equal(ours.generate(source, 3, 10, temperature=0, cache=cache), rows)
    assert len(np.unique(wanted[0])) > 3
    found = models.beam_search(ours.given(source[0]), [3], 10, beams=3)
    np.testing.assert_array_equal([beam.tokens for beam in found], wanted[2])


SIZES = {"channels": (8, 6), "kernels": (4, 3), "strides": (3, 2), "position_kernel": 4, "position_groups": 2}


def their_wav2vec():
    return transformers.Wav2Vec2ForCTC(
        transformers.Wav2Vec2Config(
            vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
            feat_extract_norm="layer", conv_dim=(8, 6), conv_kernel=(4, 3), conv_stride=(3, 2), conv_bias=True,
            num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, do_stable_layer_norm=True,
            apply_spec_augment=False,
        )
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_wav2vec(dtype, tmp_path):
    theirs, ours = pair(
        their_wav2vec, lambda **k: models.Wav2Vec(11, 2, 4, 16, hidden=24, **SIZES, **k), tmp_path, dtype
    )
    limit, rng = DTYPES[dtype], np.random.default_rng(0)
    samples, lengths = 70, np.array([70, 52, 33])
    mask = nn.length_mask(lengths, samples)
    x = np.where(mask, rng.normal(size=(3, samples)), 0).astype(dtype)
    given = {"input_values": torch.from_numpy(x), "attention_mask": torch.from_numpy(mask.astype(int))}
    frames = ours.mask_after(mask)
    counts = theirs._get_feat_extract_output_lengths(torch.from_numpy(lengths)).numpy()
    np.testing.assert_array_equal(frames.sum(1), counts)
    with torch.no_grad():
        wanted = torch.log_softmax(theirs(**given).logits, -1).numpy()
    np.testing.assert_allclose(ours(x, mask=mask)[frames], wanted[frames], rtol=limit, atol=limit)
    np.testing.assert_allclose(ours(x[1, :52]), wanted[1, : counts[1]], rtol=limit, atol=limit)

    convolution = theirs.wav2vec2.encoder.pos_conv_embed.conv  # its weight as such, for its gradient
    torch.nn.utils.parametrize.remove_parametrizations(convolution, "weight")
    labels, sizes = np.array([[1, 2, 2], [3, 4, 0], [5, 0, 0]]), np.array([3, 2, 1])

    def their_loss(model):
        log_p = torch.log_softmax(model(**given).logits, -1).transpose(0, 1)
        return torch.nn.functional.ctc_loss(log_p, *map(torch.from_numpy, (labels, counts, sizes)))

    check_gradients(
        theirs, ours, their_loss, lambda m: nn.ctc_loss(m(x, mask=mask), labels, counts, sizes), tmp_path / "grads",
        limit,
    )  # fmt: skip
