"""N-grams and the MLP language model: counts, the sliding window, embeddings that are shared, generation."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from fitting import fit

import wonderland as wl
from wonderland import models, nn

TEXT = np.random.default_rng(0).integers(0, 4, 60) * np.random.default_rng(1).integers(0, 2, 60)  # many zeros


def mlp(**options):
    sizes = {"vocab_size": 7, "context": 3, "width": 4, "hidden": (8, 6), "key": wl.random.key(0), "dtype": np.float64}
    return models.MLPLanguageModel(**{**sizes, **options})


def naive_mlp(model, text):
    """The formula (2.8) for what follows the text, one vector after the other."""
    C = model.tokens.weight.T
    before = [C[:, token] for token in text[::-1][: model.context]]
    e = np.concatenate(before + [np.zeros(len(C))] * (model.context - len(before)))
    h = e
    for i, layer in enumerate(model.layers):
        h = layer.weight @ (h if i == 0 else np.tanh(h)) + layer.bias
    D = C.T if model.head is None else model.head.weight
    return D @ h + model.bias + (0 if model.direct is None else model.direct.weight @ e)


def test_a_bigram_is_its_counts():
    model = models.Bigram(4, dtype=np.float64).fit(TEXT)
    pairs, firsts = Counter(pairwise(TEXT)), Counter(TEXT[:-1])
    p = nn.softmax(model(np.arange(4)))
    for a in range(4):
        for b in range(4):
            assert p[a, b] == pytest.approx(pairs[a, b] / firsts[a], abs=1e-14)
    smooth = nn.softmax(models.Bigram(5).fit(TEXT, smoothing=0.5).weight)
    assert smooth[1, 2] == pytest.approx((pairs[1, 2] + 0.5) / (firsts[1] + 2.5))
    np.testing.assert_allclose(smooth[4], 0.2)  # never seen


def test_training_finds_the_counts():
    """At the counts the gradient is 0, and from zeros training goes there."""
    counted = models.Bigram(4, dtype=np.float64).fit(TEXT)
    loss = lambda m: -np.mean(m.log_probability(TEXT))
    best, grads = wl.value_and_grad(loss)(counted)
    np.testing.assert_allclose(grads.weight, 0, atol=1e-15)
    assert np.exp(best) == pytest.approx(counted.perplexity(TEXT))
    trained = models.Bigram(4, dtype=np.float64)
    values = fit(trained, loss, 300, rate=0.3)
    assert values[0] == pytest.approx(np.log(4)) and best < values[-1] < best + 1e-3
    np.testing.assert_allclose(nn.softmax(trained.weight), nn.softmax(counted.weight), atol=0.02)


@pytest.mark.parametrize("context", [2, 3])
def test_n_grams_are_counts_of_windows(context):
    """With windows that have begun before the text; a text of two rows is two texts."""
    texts = TEXT.reshape(2, 30)
    model = models.NGram(4, context, dtype=np.float64).fit(texts)
    windows, follows = Counter(), Counter()
    for text in texts:
        padded = [-1] * (context - 1) + text.tolist()
        for t in range(29):
            window = tuple(padded[t : t + context])
            windows[window] += 1
            follows[window, padded[t + context]] += 1
    found = np.exp(model.log_probability(texts))
    for row, text in enumerate(texts):
        padded = [-1] * (context - 1) + text.tolist()
        for t in range(29):
            window = tuple(padded[t : t + context])
            assert found[row, t] == pytest.approx(follows[window, padded[t + context]] / windows[window])
    np.testing.assert_allclose(wl.grad(lambda m: -np.mean(m.log_probability(texts)))(model).weight, 0, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"tied": False, "direct": True}, {"context": 1, "hidden": 5}], ids=str)
def test_the_mlp_is_its_formula(options):
    model = mlp(**options)
    text = np.array([3, 0, 6, 6, 1, 2])
    wanted = np.array([naive_mlp(model, text[: t + 1]) for t in range(6)])
    np.testing.assert_allclose(model(text), wanted, atol=1e-13)
    batch = np.stack([text, text[::-1]])
    np.testing.assert_allclose(wl.jit(model)(batch)[0], wanted, atol=1e-13)
    np.testing.assert_allclose(wl.vmap(lambda t: model(t))(batch), model(batch), atol=1e-13)
    caches = model.new_caches((2,))
    parts = [model(part, caches=caches) for part in (batch[:, :1], batch[:, 1:5], batch[:, 5:])]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), model(batch), atol=1e-13)


def test_a_shared_embedding_has_the_gradient_of_all_its_places():
    """Against differences, also where it is the matrix of the logits."""
    model, text = mlp(hidden=5), np.array([3, 0, 6, 6, 1])
    loss = lambda m: -np.mean(m.log_probability(text))
    found, rng = wl.grad(loss)(model).tokens.weight, np.random.default_rng(0)
    direction, size = rng.normal(size=found.shape), 1e-6
    values = []
    for sign in (1, -1):
        model.tokens.weight += sign * size * direction
        values.append(loss(model))
        model.tokens.weight -= sign * size * direction
    assert np.sum(found * direction) == pytest.approx((values[0] - values[1]) / (2 * size), rel=1e-6)
    assert sum(p.size for p in model.parameters()) == 7 * 4 + (12 * 5 + 5) + (5 * 4 + 4) + 7


@pytest.mark.parametrize("make", [lambda: models.NGram(7, 2, dtype=np.float64).fit(TEXT, 0.1), mlp])
def test_generation_and_beams(make):
    model, prompt = make(), np.array([[1, 0, 3, 2], [2, 2, 0, 1]])
    text = prompt.tolist()
    for row in text:
        for _ in range(5):
            row.append(int(np.argmax(model(np.array(row))[-1])))
    for cache in (True, False):
        np.testing.assert_array_equal(model.generate(prompt, 5, temperature=0, cache=cache), text)
    drawn = [model.generate(prompt, 5, key=wl.random.key(3), cache=cache) for cache in (True, False)]
    np.testing.assert_array_equal(*drawn)
    (one,) = models.beam_search(model, prompt[0], 5, beams=1)
    assert one.tokens.tolist() == text[0]
    for beam in models.beam_search(model, prompt[0], 5, beams=3):
        assert beam.score == pytest.approx(model.log_probability(beam.tokens)[3:].sum() / 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.Bigram(4)(np.array([1, 4])), "Bigram: the vocabulary is 0 to 3, the input has the token 4"),
        (lambda: models.Bigram(4).fit([1, -1]), "the input has the token -1"),
        (lambda: models.NGram(4, 0), "NGram: context=0"),
        (lambda: mlp()(np.array(3)), r"expected tokens of shape \(..., T\), got \(\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_counts_are_never_made_fewer():
    with pytest.raises(ValueError, match="smoothing is added to counts, 0 or more, got -1"):
        models.Bigram(3).fit([0, 1, 2], smoothing=-1)
