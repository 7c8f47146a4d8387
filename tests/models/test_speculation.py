"""Speculative decoding: the model's own distribution, by enumeration and by counting; greedy is greedy; errors."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

import wonderland as wl
from wonderland import models
from wonderland.models.generation import sampling_of
from wonderland.models.speculation import probabilities, verdict

OPTIONS = {"temperature": 0.8, "top_k": 4, "top_p": 0.95, "min_p": 0.05}


def make(seed, **options):
    """With large weights, so that logits differ."""
    sizes = {"vocab_size": 5, "context": 16, "layers": 1, "heads": 2, "width": 8, "tied": False, **options}
    model = models.GPT(**sizes, key=wl.random.key(seed))
    for p in model.parameters():
        p *= 10 if p.ndim == 2 else 1
    return model


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "restricted"])
def test_the_distribution_of_a_round_by_enumeration(options):
    """All proposals, all verdicts: probabilities of the first three tokens are those of the model, to rounding."""
    model, draft, prompt, ahead = make(5), make(6), [1, 2], 2
    settings = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None, "penalty": 1.0, **options}
    sampling, numbers = sampling_of(model, **settings)
    rows = lambda m, text: probabilities(m(np.array([*prompt, *text])), sampling, numbers)[len(prompt) - 1 :]
    texts = np.array([*product(range(5), repeat=ahead)])
    tables = {tuple(x): (rows(model, x), rows(draft, x)[:-1]) for x in texts}  # p (3, 5), q (2, 5)
    found, wanted = np.zeros((5, 5, 5)), np.zeros((5, 5, 5))
    for x, (p, q) in tables.items():
        wanted[x] = p[0, x[0]] * p[1, x[1]] * p[2]
        proposed = q[np.arange(ahead), x].prod()
        if not proposed:
            continue
        border = np.minimum(p[np.arange(ahead), x] / q[np.arange(ahead), x], 1)
        cells = [[(b / 2, b), ((1 + b) / 2, 1 - b)] for b in border]  # a number inside, and how probable that side is
        for (u, a), (v, b) in product(*cells):
            count, left = verdict(p, q, np.array(x), np.array([u, v]))
            weight = proposed * a * b
            for last in np.flatnonzero(left) if weight else ():
                text = (*x[:count], last)  # what the round writes; what is missing the model would write then
                rest = [((), 1.0)]
                for _ in range(ahead - count):
                    rest = [((*t, i), w * next_p(tables, (*text, *t))[i]) for t, w in rest for i in range(5)]
                for t, w in rest:
                    found[(*text, *t)] += weight * left[last] * w
    np.testing.assert_allclose(found, wanted, atol=1e-14)
    np.testing.assert_allclose(wanted.sum(), 1)
    assert np.abs(tables[0, 0][0][0] - tables[0, 0][1][0]).max() > 0.1  # the two differ


def next_p(tables, text):
    """The model's probabilities after one or two tokens."""
    return next(p for x, (p, _) in tables.items() if x[: len(text)] == text)[len(text)]


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "restricted"])
def test_frequencies_are_the_models(options):
    """A model that sees one token only writes a Markov chain: its transitions are counted in one long text."""
    kind = {"positions": None, "window": 1}
    model, draft, count = make(1, **kind), make(2, **kind), 8000
    found = models.speculative(model, draft, [0], count, lookahead=3, key=wl.random.key(3), **options)
    assert 0.1 < found.accepted / found.proposed < 0.9
    seen = np.zeros((5, 5))
    np.add.at(seen, (found.tokens[:-1], found.tokens[1:]), 1)
    settings = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None, "penalty": 1.0, **options}
    p = probabilities(model(np.arange(5)[:, None])[:, 0], *sampling_of(model, **settings))
    wanted = seen.sum(1, keepdims=True) * p
    assert not seen[p == 0].any() and ((p == 0).any() == bool(options))
    there = wanted > 0
    distance = np.sum((seen[there] - wanted[there]) ** 2 / wanted[there])
    freedom = there.sum() - (seen.sum(1) > 0).sum()
    assert 1e-4 < chi2.sf(distance, freedom) < 1 - 1e-4
    other = probabilities(draft(np.arange(5)[:, None])[:, 0], *sampling_of(draft, **settings))
    assert np.sum((seen - seen.sum(1, keepdims=True) * other) ** 2) > 1000 * freedom  # it isn't the draft's chain


@pytest.mark.parametrize("kind", [{}, {"positions": "rotary", "window": 3}], ids=["gpt2", "rotary window"])
def test_greedy_is_greedy(kind):
    """Token by token, up to the end of the context, and beyond it with a ring of keys; with good and bad drafts."""
    model, draft = make(5, vocab_size=11, layers=1 if kind else 2, **kind), make(6, vocab_size=11, **kind)
    more = 12 if kind else 0
    for prompt in ([4], [1, 2, 3]):
        count = 17 - len(prompt) + more
        wanted = model.generate(prompt, count, temperature=0)
        found = models.speculative(model, draft, prompt, count, temperature=0)
        np.testing.assert_array_equal(found.tokens, wanted)
        assert found.accepted < found.proposed
    itself = models.speculative(model, model, prompt, count, temperature=0)
    np.testing.assert_array_equal(itself.tokens, wanted)
    assert itself.accepted == itself.proposed >= 4 * (count // 5) > 0
    assert model.training and draft.training


def test_stop_tokens():
    """Among what was accepted, and among what the model wrote itself."""
    model = make(5, vocab_size=11)
    wanted = model.generate([1, 2], 12, temperature=0)
    for stop in {int(token) for token in wanted[2:]}:
        end = 2 + wanted[2:].tolist().index(stop) + 1
        found = models.speculative(model, model, [1, 2], 12, temperature=0, stop=[stop, 400])
        np.testing.assert_array_equal(found.tokens, wanted[:end])
        assert found.accepted <= end - 2


def test_a_key_is_a_text():
    model, draft = make(5), make(6)
    one, same, other = (models.speculative(model, draft, [1], 12, key=wl.random.key(i)).tokens for i in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert one.shape == (13,) and not np.array_equal(one, other)
    np.testing.assert_array_equal(models.speculative(model, draft, [1, 2], 0).tokens, [1, 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: models.speculative(m, m, [0, 1], 16), "2 tokens and 16 more don't fit .* of the model, 16"),
        (lambda m: models.speculative(m, make(1, context=4), [0, 1], 8), "context of the draft, 4"),
        (lambda m: models.speculative(m, make(1, vocab_size=6), [0], 3), "the model has 5 tokens, the draft 6"),
        (lambda m: models.speculative(m, m, [[0], [1]], 3), "takes one prompt"),
        (lambda m: models.speculative(m, m, [5], 3), "the token 5, the vocabulary 0 to 4"),
        (lambda m: models.speculative(m, m, [1], 3, lookahead=0), "lookahead=0 is an integer of at least 1"),
        (lambda m: models.speculative(m, m, [1], 3, top_p=2.0), "top_p is .* got 2.0"),
        (lambda m: models.speculative(m, models.Bigram(5), [1], 3), "can't be taken back from a Bigram"),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(make(0))
