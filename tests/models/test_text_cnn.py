"""TextCNN: its formula, masks, learning, errors."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import models, nn, train


def make(**options):
    return models.TextCNN(9, 3, width=5, kernels=(2, 3), filters=4, key=wl.random.key(0), **options)


def naive(model, text):
    """One window after the other."""
    vectors = [model.tokens.weight[token] for token in text] + [np.zeros(5)] * 3
    features = []
    for convolution, size in zip(model.convolutions, (2, 3), strict=True):
        windows = [np.stack(vectors[i : i + size], axis=1) for i in range(len(text))]  # (C, size)
        values = [np.tensordot(convolution.weight, w, 2) + convolution.bias for w in windows]
        features.append(np.maximum(values, 0).max(0))
    return model.head.weight @ np.concatenate(features) + model.head.bias


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_formula_also_for_texts_shorter_than_a_kernel(dtype):
    model, limit = make(dtype=dtype), 1e-12 if dtype == np.float64 else 1e-5
    text = np.array([[3, 1, 4, 1, 5], [8, 2, 6, 0, 0], [7, 0, 0, 0, 0]])
    lengths = np.array([5, 3, 1])
    mask = nn.length_mask(lengths, 5)
    found = wl.jit(model)(text, mask=mask)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, model(text, mask=mask), atol=limit)
    for row, length, logits in zip(text, lengths, found, strict=True):
        np.testing.assert_allclose(logits, naive(model, row[:length]), atol=limit)
        np.testing.assert_allclose(logits, model(row[:length]), atol=limit)
    np.testing.assert_allclose(wl.vmap(model)(text), model(text), atol=limit)
    grads = [wl.grad(lambda m, t=t: np.sum(m(t, mask=mask)))(model).state() for t in (text, np.where(mask, text, 4))]
    for name, value in grads[0].items():
        np.testing.assert_allclose(value, grads[1][name], atol=limit, err_msg=name)


def test_it_finds_a_pair_of_tokens_wherever_it_is():
    rng = np.random.default_rng(0)
    text = rng.integers(0, 9, (300, 12))
    labels = np.any((text[:, :-1] == 3) & (text[:, 1:] == 5), axis=1).astype(int)
    text[::2, 7:9], labels[::2] = (3, 5), 1
    model = make(dropout=0.1)
    history = train.fit(
        model, lambda m, x, y: nn.cross_entropy(m(x), y), train.Adam(model, 1e-2), (text[:200], labels[:200]),
        epochs=30, batch_size=50, seed=0, progress=False,
    )  # fmt: skip
    assert history["loss"][-1] < 0.3 * history["loss"][0]
    with nn.evaluating(model):
        assert np.mean(np.argmax(model(text[200:]), axis=1) == labels[200:]) > 0.9


def test_errors():
    with pytest.raises(ValueError, match=r"\(..., T\) with T at least 1, got \(2, 0\)"):
        make()(np.zeros((2, 0), int))
    with pytest.raises(TypeError, match="integers, got dtype float64"):
        make()(np.zeros(3))
