"""Whisper and Wav2Vec: sizes, learning, errors; values are compared in peers/."""

import numpy as np
import pytest
from fitting import count, fit

import wonderland as wl
from wonderland import models, nn

SMALL = {"channels": (8, 8), "kernels": (8, 4), "strides": (4, 2), "position_kernel": 4, "position_groups": 2}


def whisper(**options):
    return models.Whisper(9, mels=4, frames=12, context=6, layers=1, heads=2, width=16, **options)


def sounds():
    """Tones of some heights one after the other, and which they are."""
    labels, time = np.array([[1, 2, 3], [3, 1, 0], [2, 2, 1]]), np.arange(40)
    lengths = np.array([3, 2, 3])
    x = np.sin(time * np.array([0, 0.3, 0.8, 1.5])[labels][..., None]).reshape(3, 120).astype(np.float32)
    return x, nn.length_mask(40 * lengths, 120), labels, lengths


@pytest.mark.usefixtures("undrawn")
def test_published_numbers_of_parameters():
    """Whisper tiny with 65 tokens and one of its 4 layers; sinusoids aren't trained, and keys have biases."""
    d, layer = 384, 28 * 384**2 + 32 * 384
    assert count(models.Whisper(65, layers=1)) == 37_760_640 - 51_800 * d - 1500 * d + 12 * d - 3 * layer


def test_wav2vec_learns_to_spell():
    x, mask, labels, lengths = sounds()
    model = models.Wav2Vec(4, 1, 2, 16, hidden=16, **SMALL, key=wl.random.key(0))
    frames = model.mask_after(mask)
    counts = frames.sum(-1)
    losses = fit(model, lambda m: nn.ctc_loss(m(x, mask=mask), labels, counts, lengths), 120)
    assert losses[-1] < 0.1 * losses[0]
    found = wl.jit(model)(x, mask=mask)
    assert found.shape == (3, 13, 4)
    wanted = [row[:n].tolist() for row, n in zip(labels, lengths, strict=True)]
    assert [row.tolist() for row in models.ctc_greedy(found, counts)] == wanted
    assert [row[0].tokens.tolist() for row in models.ctc_beam_search(found, lengths=counts)] == wanted


def test_what_is_behind_a_sound_changes_nothing():
    x, mask, _, _ = sounds()
    model = models.Wav2Vec(4, 1, 2, 16, hidden=16, **SMALL, key=wl.random.key(0))
    alone, behind = model(x[1, :80]), np.where(mask, x, 9.0).astype(np.float32)
    np.testing.assert_allclose(model(behind, mask=mask)[1, : len(alone)], alone, atol=1e-5)
    assert np.abs(model(behind)[1, : len(alone)] - alone).max() > 1e-3


def test_spectrograms_are_inputs_too():
    model = models.Wav2Vec(4, 1, 2, 16, mels=5, hidden=16, **SMALL, dtype=np.float64)
    x = np.random.default_rng(0).normal(size=(2, 5, 40))
    assert model(x).shape == (2, 3, 4)
    np.testing.assert_allclose(np.exp(model(x)).sum(-1), 1)
    np.testing.assert_allclose(wl.vmap(model)(x), model(x), atol=1e-12)


def test_whisper_learns_to_write():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(3, 4, 10)).astype(np.float32), rng.integers(1, 9, (3, 5))
    target[:, 0] = 0
    model = whisper(dropout=0.05, key=wl.random.key(0))
    labels = target[:, 1:].reshape(-1)
    losses = fit(model, lambda m: nn.cross_entropy(m(source, target[:, :-1]).reshape(-1, 9), labels), 80)
    assert losses[-1] < 0.1 * losses[0]
    np.testing.assert_array_equal(model.generate(source, 0, 4, temperature=0), target)
    assert model.generate(source[1], 0, 4, temperature=0).tolist() == target[1].tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: whisper().encode(np.zeros((4, 13))), r"\(..., 4, frames\) with at most 12 frames, got \(4, 13\)"),
        (lambda: whisper().encode(np.zeros((3, 12))), r"got \(3, 12\)"),
        (lambda: whisper()(np.zeros((4, 12)), np.arange(7)), r"T at most context=6, got \(7,\)"),
        (lambda: models.Wav2Vec(4, 1, 2, 16, **{**SMALL, "strides": (4,)}), "one number for each convolution"),
        (lambda: models.Wav2Vec(4, 1, 2, 16, mels=5, **SMALL)(np.zeros(40)), r"\(..., 5, time\), got \(40,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
