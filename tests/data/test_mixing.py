"""Mixup and cutmix: labels are mixed as the samples are."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import data, nn


@pytest.fixture
def marked():
    """Images that tell which they are: image i is the constant i."""
    n = 30
    x = np.broadcast_to(np.arange(n, dtype=np.float32)[:, None, None, None], (n, 2, 7, 9))
    return x, np.arange(n)


def test_cutmix_labels_are_the_areas_exactly(marked):
    x, y = marked
    partial = 0
    for seed in range(20):
        out, soft = data.cutmix(1.0, classes=30)((x, y), np.random.default_rng(seed))
        areas = np.stack([(out[:, 0] == k).mean((1, 2)) for k in range(30)], 1)
        np.testing.assert_allclose(soft, areas, atol=1e-6)
        assert out.dtype == soft.dtype == np.float32
        partial += np.sum((areas > 0) & (areas < 1)) // 2
        for image, own in zip(out, y, strict=True):  # what is another's is one rectangle
            other = image[0] != own
            assert other.sum() == other.any(0).sum() * other.any(1).sum()
            np.testing.assert_array_equal(image[0], image[1])
    assert partial > 300
    last, labels = data.cutmix(1.0, classes=30, channels_last=True)(
        (np.moveaxis(x, 1, -1), y), np.random.default_rng(19)
    )
    np.testing.assert_array_equal(np.moveaxis(last, -1, 1), out)
    np.testing.assert_array_equal(labels, soft)


def test_mixup_is_the_line_between_two_samples(marked):
    x, y = marked
    out, soft, passed = data.mixup(0.4, classes=30)((x, y, y), np.random.default_rng(0))
    np.testing.assert_allclose(out[:, 0, 0, 0], soft @ np.arange(30), rtol=1e-5)
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)
    assert np.all((soft > 0).sum(1) <= 2) and passed is y
    draws = [data.mixup(0.4, classes=30)((x, y), np.random.default_rng(seed))[1] for seed in range(200)]
    own = np.stack([d[np.arange(30), np.arange(30)] for d in draws])[np.stack([(d > 0).sum(1) == 2 for d in draws])]
    assert own.mean() == pytest.approx(0.5, abs=0.03)  # Beta(a, a): mean 1/2, variance 1 / (8 a + 4)
    assert own.var() == pytest.approx(1 / (8 * 0.4 + 4), rel=0.1)


def test_soft_labels_and_targets_of_regression_are_mixed_as_they_are(rng):
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    w = rng.normal(size=(3, 2))
    out, mixed = data.mixup(1.0)((x, x @ w), np.random.default_rng(0))
    np.testing.assert_allclose(mixed, out @ w)
    twice = data.compose(data.mixup(1.0, classes=4), data.mixup(1.0))((x, np.arange(8) % 4), np.random.default_rng(0))
    np.testing.assert_allclose(twice[1].sum(1), 1)
    assert data.mixup()({"a": x, "b": y}, np.random.default_rng(0)).keys() == {"a", "b"}


def test_cross_entropy_of_mixed_labels_is_the_mixture(rng):
    logits, y = rng.normal(size=(6, 4)), np.arange(6) % 4
    _, soft = data.mixup(1.0, classes=4)((rng.normal(size=(6, 2)), y), np.random.default_rng(1))
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert nn.cross_entropy(logits, soft) == pytest.approx(-np.mean(np.sum(soft * log_p, 1)))


@pytest.mark.parametrize(("transform", "batch", "message"), [
    (data.mixup(), (np.ones((3, 2)),), "the batch is .x, labels, .*, and there is only x"),
    (data.mixup(), (np.ones((3, 2)), np.arange(3)), "say how many classes there are, mixup.*classes=10"),
    (data.mixup(classes=2), (np.ones((3, 2)), np.arange(3)), "label 2 of sample 2 isn't one of 2 classes"),
    (data.mixup(classes=2), (np.ones((3, 2)), np.arange(2)), "3 samples and 2 labels"),
    (data.mixup(classes=2), (np.ones((3, 2), int), np.arange(3)), "takes floating-point numbers"),
    (data.cutmix(classes=3), (np.ones((3, 2)), np.arange(3)), r"takes images \(n, c, h, w\)"),
    (data.cutmix(classes=3), (np.ones((3, 1, 2, 2)), np.array(["a", "b", "c"])), "labels are class numbers"),
])  # fmt: skip
def test_what_cannot_be_mixed_is_refused(transform, batch, message):
    with pytest.raises(wl.ArgumentError, match=message):
        transform(batch, np.random.default_rng(0))


def test_wrong_arguments():
    with pytest.raises(wl.ArgumentError, match="alpha is positive"):
        data.mixup(0)
    with pytest.raises(wl.ArgumentError, match="number of classes"):
        data.cutmix(classes=0)
