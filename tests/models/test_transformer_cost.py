"""The cost of a transformer: the formula is what the Program has, its terms grow as the notes say, what errors say."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import models

SIZES = {"vocab_size": 11, "context": 16, "layers": 2, "heads": 4, "width": 16}
LARGE = {"vocab_size": 32000, "context": 4096, "layers": 32, "heads": 32, "width": 4096, "hidden": 11008, "gated": True}


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        ({}, 91),
        ({"kv_heads": 2, "hidden": 24, "gated": True, "tied": False}, 91),
        ({"positions": "rotary", "window": 5, "head_width": 6}, 1 + 2 + 3 + 4 + 9 * 5),
        ({"order": "parallel", "norm": "rms", "bias": False}, 91),
    ],
    ids=str,
)
def test_the_formula_is_what_the_program_has(options, pairs):
    """Multiplications of matrix products, exactly; attention has one more for each pair, which scales the score."""
    model = models.GPT(**{**SIZES, **options}, key=wl.random.key(0))
    found = models.transformer_cost(model, context=13, batch=3, count=True)
    assert found.parts == models.transformer_cost({**SIZES, **options}, context=13, batch=3).parts
    scaling = 3 * 2 * 4 * pairs  # texts, layers, heads
    assert found.products[0].multiplications == found.forward // 2 + scaling
    assert found.products[1].multiplications == found.training // 2 + 2 * scaling
    for whole, products in zip(found.counted, found.products, strict=True):
        assert products.multiplications + products.additions < whole.operations
    assert found.parts["logits"] == (2 * 3 * 13 * 16 * 11, 6 * 3 * 13 * 16 * 11)


def test_by_hand():
    """LLaMA 2 with 7 billion parameters: about 2 operations for each parameter and token, and those of attention."""
    found = models.transformer_cost(LARGE)
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    attention = 32 * 2 * 4096 * 4096 * 4097 // 2
    assert found.forward == 2 * 4096 * weights + 2 * attention
    assert found.training == 3 * 2 * 4096 * weights + 7 * attention
    assert found.seconds is None and found.counted is None


def test_how_terms_grow():
    """Equation 2.21 of the notes: N d_emb n^2 of attention, N d_emb^2 n of the weights."""
    at = lambda **changed: models.transformer_cost({**LARGE, "gated": False, "hidden": None, **changed}).parts
    longer, wider, deeper, one = at(context=8192), at(width=8192), at(layers=64), at()
    ratio = lambda other, name: other[name][0] / one[name][0]
    powers = {"scores": (4, 2), "mixing": (4, 2), "projections": (2, 4), "feed-forward": (2, 4)}
    for name, (of_context, of_width) in powers.items():
        assert ratio(longer, name) == pytest.approx(of_context, rel=1e-3)  # n (n + 1) / 2 pairs
        assert ratio(wider, name) == of_width
        assert ratio(deeper, name) == 2
    assert (ratio(longer, "logits"), ratio(wider, "logits"), ratio(deeper, "logits")) == (2, 2, 1)
    assert at(heads=64) == one  # of the same width together
    windowed = models.transformer_cost({**LARGE, "window": 256}, context=8192).parts["scores"][0]
    assert windowed / models.transformer_cost({**LARGE, "window": 256}).parts["scores"][0] == pytest.approx(2, rel=0.05)


def test_what_it_shows():
    shown = repr(models.transformer_cost(SIZES, count=True, measure=True)).splitlines()
    assert [line.split("  ")[0] for line in shown] == [
        "", "projections", "scores", "mixing", "feed-forward", "logits", "operations", "counted, all", "measured [ms]",
        "operations / ns",
    ]  # fmt: skip
    assert len({len(line) for line in shown}) == 1
    rows = np.array([[int(word) for word in line.replace(",", "").split()[1:]] for line in shown[1:7]])
    np.testing.assert_array_equal(rows[:5].sum(0), rows[5])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: models.transformer_cost(12), TypeError, "takes a GPT, or a dict of its options, got a int"),
        (lambda: models.transformer_cost({"layers": 2, "width": 8}), ValueError, "lack heads, vocab_size"),
        (lambda: models.transformer_cost({**SIZES, "depth": 3}), TypeError, "unexpected keyword argument 'depth'"),
        (lambda: models.transformer_cost({**SIZES, "layers": -1}), ValueError, "layers=-1 is an integer of at least 1"),
        (lambda: models.transformer_cost({**SIZES, "hidden": 0}), ValueError, "hidden=0 is an integer of at least 1"),
        (lambda: models.transformer_cost({**SIZES, "width": 7, "heads": 2}), ValueError, "width=7 isn't a multiple"),
        (lambda: models.transformer_cost({**SIZES, "heads": 4, "kv_heads": 3}), ValueError, "multiple of kv_heads=3"),
        (lambda: models.transformer_cost(SIZES, context=0), ValueError, "context=0 is an integer of at least 1"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
