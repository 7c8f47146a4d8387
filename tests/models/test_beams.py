"""Beam search: with beams for all texts it is enumeration, with one it is greedy; scores, stop tokens, errors."""

from itertools import product

import numpy as np
import pytest

import wonderland as wl
from wonderland import models


def make(**options):
    sizes = {"vocab_size": 3, "context": 6, "layers": 1, "heads": 2, "width": 8, **options}
    model = models.GPT(**sizes, key=wl.random.key(4), dtype=np.float64)
    for p in model.parameters():
        p *= 20 if p.ndim == 2 else 1
    return model


def log_probability(model, prompt, rest):
    return model.log_probability(np.array([*prompt, *rest]))[len(prompt) - 1 :].sum()


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("stop", [None, 1])
def test_enough_beams_are_enumeration(stop, penalty):
    """All texts of 4 tokens, those that stop before among them."""
    model, prompt, count = make(), [0, 2], 4
    texts = {}
    for rest in product(range(3), repeat=count):
        end = rest.index(stop) + 1 if stop in rest else count
        texts[rest[:end]] = log_probability(model, prompt, rest[:end]) / end**penalty
    wanted = sorted(texts.items(), key=lambda item: -item[1])
    found = models.beam_search(model, prompt, count, beams=81, length_penalty=penalty, stop=stop)
    assert len(found) == len(wanted)
    for beam, (rest, score) in zip(found, wanted, strict=True):
        assert beam.tokens.tolist() == [*prompt, *rest]
        assert beam.score == pytest.approx(score, abs=1e-10)


def test_one_beam_is_greedy_and_more_are_no_worse():
    model, prompt = make(vocab_size=9), [0, 2]
    (one,) = models.beam_search(model, prompt, 5, beams=1)
    assert one.tokens.tolist() == model.generate(prompt, 5, temperature=0).tolist()
    few = models.beam_search(model, prompt, 5, beams=3)
    assert len(few) == 3 and [beam.score for beam in few] == sorted((beam.score for beam in few), reverse=True)
    for beam in few:
        assert beam.score == pytest.approx(log_probability(model, prompt, beam.tokens[2:]) / 5, abs=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: models.beam_search(m, [0, 1], 6), "2 tokens and 6 more don't fit into the context, 6"),
        (lambda m: models.beam_search(m, [[0], [1]], 3), "takes one prompt"),
        (lambda m: models.beam_search(m, [5], 3), "the token 5, the vocabulary 0 to 2"),
        (lambda m: models.beam_search(m, [1], 3, beams=0), "beams=0 is an integer of at least 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(make())


def test_a_model_of_several_sources_takes_a_prompt_for_each():
    """As many beams as sources would mix what is said of each."""
    model = models.EncoderDecoder(7, 6, 1, 1, 4, key=wl.random.key(0)).given(np.array([[1, 2], [3, 4]]))
    with pytest.raises(ValueError, match="given 2 sources and 1 prompts"):
        models.beam_search(model, [1], 3, beams=2)
    with pytest.raises(ValueError, match="given 2 sources and 3 prompts"):
        model.generate([[1], [1], [1]], 2)
