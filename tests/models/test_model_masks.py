"""Masks of tokens, views and samples: bools of the shape of what they mask, in all models alike."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import models, nn

KEY = wl.random.key(0)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


TOKENS = np.arange(10).reshape(2, 5)
BACKBONE = nn.Linear(3, 8, key=KEY)
CALLS = {  # a model, and what it is called with but for the mask, which is (2, 5)
    "Perceiver": (lambda: models.Perceiver(3, 2, 8, 4, 1, 2, key=KEY), [normal(2, 5, 3)]),
    "MultiView": (lambda: models.MultiView(BACKBONE, 8, 4, 2, rank=1, key=KEY), [normal(2, 5, 3)]),
    "MultiView, class": (
        lambda: models.MultiView(BACKBONE, 8, 4, 2, rank=1, pool="class", key=KEY), [normal(2, 5, 3)],
    ),
    "GAU": (lambda: models.GAU(3, key=KEY), [normal(2, 5, 3)]),
    "Bimodal": (lambda: models.Bimodal(10, 5, 4, 2, 1, 2, 8, key=KEY), [TOKENS, normal(2, 3, 4, 4)]),
    "Bimodal, classes": (
        lambda: models.Bimodal(10, 5, 4, 2, 1, 2, 8, classes=3, key=KEY), [TOKENS, normal(2, 3, 4, 4)],
    ),
    "Encoder": (lambda: models.Encoder(10, 5, 1, 2, 8, key=KEY), [TOKENS]),
    "TextCNN": (lambda: models.TextCNN(10, 3, 8, filters=4, key=KEY), [TOKENS]),
    "Wav2Vec": (
        lambda: models.Wav2Vec(10, 1, 2, 8, channels=(4,), kernels=(2,), strides=(1,), position_kernel=2,
                               position_groups=1, key=KEY), [normal(2, 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_masks(name):
    make, args = CALLS[name]
    model, mask = make(), np.arange(5) < 3
    np.testing.assert_array_equal(model(*args, mask=mask), model(*args, mask=np.stack([mask, mask])))
    assert np.any(model(*args, mask=mask) != model(*args))
    for dtype in (float, int):  # to attention, floats are numbers to add
        wanted = rf"{type(model).__name__}: a mask is an array of bools, .* got dtype {dtype.__name__}64"
        with pytest.raises(TypeError, match=wanted):
            model(*args, mask=mask.astype(dtype))
    for shape in ((2, 4), (3, 5), (2, 1, 1, 5)):
        with pytest.raises(ValueError, match=rf"{type(model).__name__}: expected a mask of shape \(2, 5\), got"):
            model(*args, mask=np.ones(shape, bool))


def test_masks_of_sources():
    model = models.Whisper(10, 3, 10, 5, 1, 2, 8, key=KEY)
    with pytest.raises(TypeError, match="Whisper: a mask is an array of bools"):
        model(normal(2, 3, 10), TOKENS, source_mask=np.ones((2, 5)))
    model = models.EncoderDecoder(10, 5, 1, 2, 8, key=KEY)
    with pytest.raises(ValueError, match=r"EncoderDecoder: expected a mask of shape \(2, 5\), got \(2, 4\)"):
        model(TOKENS, TOKENS, source_mask=np.ones((2, 4), bool))
