"""Encoder, EncoderDecoder and ViT: parameters, masks, symmetries, training; values are compared in peers/."""

import warnings
from itertools import product

import numpy as np
import pytest
from fitting import count, fit

import wonderland as wl
from wonderland import models, nn

SIZES = {"vocab_size": 11, "context": 8, "layers": 2, "heads": 2, "width": 16}


@pytest.mark.usefixtures("undrawn")
def test_published_numbers_of_parameters():
    """BERT base and ViT-B/16 with one of their 12 layers, each of 7,087,872."""
    bert = models.Encoder(30522, 512, 1, 12, 768, head=False, pooler=True)
    assert count(bert) == 109_482_240 - 11 * 7_087_872
    assert count(models.ViT(layers=1)) == 86_567_656 - 11 * 7_087_872


def test_hidden_places_change_nothing():
    model = models.Encoder(**SIZES, key=wl.random.key(0))
    for p in model.parameters():
        p *= 10 if p.ndim == 2 else 1  # so that tokens matter to each other
    tokens = np.array([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
    found = wl.jit(model)(tokens, mask=mask)
    assert found.shape == (2, 5, 11)
    np.testing.assert_allclose(found[1, :3], model(tokens[1, :3]), atol=1e-5)
    assert np.abs(model(tokens)[1, :3] - found[1, :3]).max() > 1e-3
    kinds = np.array([0, 0, 1, 1, 1])
    assert np.abs(model(tokens[0], kinds) - found[0]).max() > 1e-3


def test_a_token_sees_both_sides():
    """The block matrix of the derivative has no zeros."""
    block = models.Encoder(**SIZES, dtype=np.float64).blocks[0]
    x = np.random.default_rng(0).normal(size=(4, 16))
    pattern = wl.sparse.jacobian_pattern(lambda x: block(x), x).toarray()
    assert pattern.reshape(4, 16, 4, 16).any(axis=(1, 3)).all()


def test_masked_language_model_learns():
    model = models.Encoder(**SIZES, key=wl.random.key(0), dropout=0.05)
    tokens = np.array([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], [3, 4, 5, 6, 7, 8]])
    hidden, chosen = models.mask_tokens(wl.random.key(2), tokens, 11, 10, p=0.3)
    losses = fit(model, lambda m: nn.cross_entropy(m(hidden)[chosen], tokens[chosen]))
    assert losses[-1] < 0.3 * losses[0]


def test_masks_of_tokens():
    tokens = np.arange(40_000) % 9
    hidden, chosen = models.mask_tokens(wl.random.key(0), tokens, 9, 10)
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    np.testing.assert_array_equal(hidden[~chosen], tokens[~chosen])
    assert np.mean(hidden[chosen] == 10) == pytest.approx(0.8, abs=0.02)
    assert np.mean(hidden[chosen] == tokens[chosen]) == pytest.approx(0.1 + 0.1 / 9, abs=0.02)
    assert set(np.unique(hidden)) <= {*range(9), 10}
    np.testing.assert_array_equal(models.mask_tokens(wl.random.key(0), tokens.tolist(), 9, 10)[0], hidden)
    with pytest.raises(ValueError, match="p is the probability that a token is chosen, from 0 to 1, got 15"):
        models.mask_tokens(wl.random.key(0), tokens, 9, 10, p=15)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_sequence_to_sequence_learns_to_reverse(order):
    rng = np.random.default_rng(0)
    source = rng.integers(1, 11, (8, 5))
    target = np.concatenate([np.zeros((8, 1), int), source[:, ::-1]], axis=1)
    model = models.EncoderDecoder(**SIZES, order=order, key=wl.random.key(1))
    labels = target[:, 1:].reshape(-1)
    losses = fit(model, lambda m: nn.cross_entropy(m(source, target[:, :-1]).reshape(-1, 11), labels), 150)
    assert losses[-1] < 0.1 * losses[0]
    for cache in (True, False):
        np.testing.assert_array_equal(model.generate(source, 0, 5, temperature=0, cache=cache), target)
    assert model.generate(source[0], 0, 5, temperature=0).tolist() == target[0].tolist()


def test_the_decoder_sees_its_past_and_the_whole_source():
    model = models.EncoderDecoder(**SIZES, dtype=np.float64, key=wl.random.key(1))
    source, target = np.array([1, 2, 3, 4]), np.array([0, 5, 6])
    memory = model.encode(source)
    other = model.decode(np.array([0, 5, 7]), memory)
    np.testing.assert_allclose(other[:2], model.decode(target, memory)[:2], atol=1e-13)
    pattern = wl.sparse.jacobian_pattern(lambda m: model.decode(target, m), memory).toarray()
    assert pattern.reshape(3, 16, 4, 16).any(axis=(1, 3)).all()
    mask = np.array([True, True, False, True])
    one, two = (model(np.array([1, 2, n, 4]), target, source_mask=mask) for n in (3, 9))
    np.testing.assert_allclose(one, two, atol=1e-13)


def test_sources_are_read_once_and_the_code_serves_them_all():
    """Keys and values of a source are kept: what makes them may change afterwards."""
    model = models.EncoderDecoder(**SIZES, key=wl.random.key(1), dtype=np.float64)
    for block in model.decoder:
        block.cross.v_proj.weight *= 9
    given = []
    for source in np.random.default_rng(0).integers(0, 11, (3, 2, 5)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of compiled code that goes on with another source
            found = model.generate(source, 0, 6, temperature=0)
        for i in range(2):
            text = [0]
            for _ in range(6):
                text.append(int(np.argmax(model(source[i], np.array(text))[-1])))
            assert found[i].tolist() == text
        given.append((model.given(source), found))
    assert len({found.tobytes() for _, found in given}) > 1
    for block in model.decoder:
        block.cross.k_proj.weight[...] = block.cross.v_proj.weight[...] = np.nan
    for kept, found in given:
        np.testing.assert_array_equal(kept.generate(np.zeros((2, 1), int), 6, temperature=0), found)


def test_enough_beams_for_a_source_are_enumeration():
    sizes = {**SIZES, "vocab_size": 3, "layers": 1, "source_size": 11}
    model = models.EncoderDecoder(**sizes, key=wl.random.key(1), dtype=np.float64)
    for p in model.parameters():
        p *= 3 if p.ndim == 2 else 1
    source, mask = np.array([4, 5, 6, 7]), np.array([True, True, True, False])
    scores = {}
    for rest in product(range(3), repeat=3):
        logits = model(source, np.array([0, *rest[:-1]]), source_mask=mask)
        scores[rest] = float(sum(nn.log_softmax(logits)[i, token] for i, token in enumerate(rest))) / 3
    found = models.beam_search(model.given(source, source_mask=mask), [0], 3, beams=27)
    for beam, (rest, score) in zip(found, sorted(scores.items(), key=lambda item: -item[1]), strict=True):
        assert beam.tokens.tolist() == [0, *rest] and beam.score == pytest.approx(score, abs=1e-10)


@pytest.mark.parametrize("options", [{}, {"registers": 2}, {"pool": "mean"}, {"pool": "mean", "registers": 1}], ids=str)
def test_vision_transformers(options):
    model = models.ViT(8, 4, 3, 2, 2, 16, channels=1, key=wl.random.key(0), **options)
    x, y = np.random.default_rng(0).normal(size=(6, 1, 8, 8)).astype(np.float32), np.arange(6) % 3
    eager = model(x)
    assert eager.shape == (6, 3)
    np.testing.assert_allclose(wl.jit(model)(x), eager, atol=1e-5)
    np.testing.assert_allclose(model(x[0]), eager[0], atol=1e-5)
    losses = fit(model, lambda m: nn.cross_entropy(m(x), y), 40)
    assert losses[-1] < 0.3 * losses[0]


def test_without_positions_the_order_of_patches_is_none():
    model = models.ViT(8, 4, 3, 2, 2, 16, channels=1, dtype=np.float64)
    x = np.random.default_rng(0).normal(size=(1, 8, 8))
    turned = np.concatenate([x[:, 4:], x[:, :4]], axis=1)  # the rows of patches change places
    assert np.abs(model(turned) - model(x)).max() > 1e-6
    model.position_embeddings[...] = 0
    np.testing.assert_allclose(model(turned), model(x), atol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.Encoder(**SIZES)(np.arange(9)), r"T at most context=8, got \(9,\)"),
        (lambda: models.Encoder(**SIZES)(np.array([11])), "rows 0 to 10, the input has the index 11"),
        (lambda: models.Encoder(**SIZES).pooled(np.arange(3)), "pooler=True"),
        (lambda: models.EncoderDecoder(**SIZES)(np.arange(9), np.arange(3)), r"T at most context=8, got \(9,\)"),
        (lambda: models.ViT(8, 3, 3, 1, 2, 8), "size=8 isn't a multiple of patch=3"),
        (lambda: models.ViT(8, 4, 3, 1, 2, 8, pool="max"), 'pool is "class" or "mean"'),
        (lambda: models.ViT(8, 4, 3, 1, 2, 8)(np.zeros((1, 8, 8))), r"patches .*: .*, 3, 8, 8\), got \(1, 8, 8\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
