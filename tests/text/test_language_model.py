"""A model with its tokenizer: text in and out, probabilities, and one file for both."""

import json

import numpy as np
import pytest

import wonderland as wl
from wonderland import models, nn, text
from wonderland.core.errors import ArgumentError
from wonderland.nn.safetensors import read, write


@pytest.fixture(scope="module")
def writer():
    tokenizer = text.BPE.train("abracadabra " * 20, 270)
    model = models.llama(
        vocab_size=tokenizer.vocab_size, context=8, layers=1, heads=2, width=8, hidden=8, key=wl.random.key(0)
    )
    return text.LanguageModel(model, tokenizer)


def test_streamed_pieces_are_the_generated_text(writer):
    key = wl.random.key(3)
    whole = writer.generate("abra ü", 20, key=key)
    assert whole.startswith("abra ü")
    assert "abra ü" + "".join(writer.stream("abra ü", 20, key=key)) == whole
    words = text.Words.train("to be or not to be")
    model = models.GPT(words.vocab_size, 8, 1, 1, 4, key=wl.random.key(0))
    said = text.LanguageModel(model, words)
    assert said.generate("to be", 5, key=key) == "to be" + "".join(said.stream("to be", 5, key=key))


def test_log_probability_is_that_of_windows(writer):
    said = "abracadabra abra cad " * 3
    tokens, context = writer.tokenizer.encode(said), writer.model.context
    expected = 0.0
    for first in range(0, len(tokens) - 1, context):
        part = tokens[first : first + context + 1]
        logits = np.asarray(writer.model(part[:-1]), np.float64)
        logp = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        expected += logp[np.arange(len(part) - 1), part[1:]].sum()
    assert writer.log_probability(said) == pytest.approx(expected, rel=1e-5)
    assert writer.perplexity(said) == pytest.approx(np.exp(-expected / (len(tokens) - 1)), rel=1e-5)
    assert writer.bits_per_byte(said) == pytest.approx(-expected / np.log(2) / len(said), rel=1e-5)
    with pytest.raises(ArgumentError, match="at least two tokens"):
        writer.log_probability("")


def test_a_file_holds_both(writer, tmp_path):
    path = tmp_path / "model.safetensors"
    writer.save(path)
    again = text.LanguageModel.load(path)
    assert again.tokenizer == writer.tokenizer and again.model.config == writer.model.config
    assert not again.model.training
    tokens = writer.tokenizer.encode("abra")
    np.testing.assert_array_equal(again.model(tokens), writer.model(tokens))
    assert again.generate("a", 5, temperature=0) == writer.generate("a", 5, temperature=0)


def test_an_empty_prompt_begins_with_the_token_for_it(writer):
    assert len(writer.tokenizer.encode(writer.generate("", 3, temperature=0))) >= 1
    ended = text.Characters("ab", special_tokens=["<end>"], eos="<end>")
    model = models.GPT(3, 4, 1, 1, 4, key=wl.random.key(1))
    assert text.LanguageModel(model, ended).generate("", 2, temperature=0).startswith("<end>")


@pytest.mark.parametrize("change", [
    {"format": "another"}, {"model": "{"}, {"model": json.dumps({"vocab_size": 10**12, "width": 8, "layers": 1})},
    {"tokenizer": "[]"}, {"tokenizer": json.dumps({"kind": "Spells"})}, {"model": json.dumps({"spells": 1})},
])  # fmt: skip
def test_damaged_files_are_refused(writer, tmp_path, change):
    path = tmp_path / "model.safetensors"
    writer.save(path)
    arrays, described = read(path)
    write(path, {name: np.array(value) for name, value in arrays.items()}, {**described, **change})
    with pytest.raises(ArgumentError, match=r"model\.safetensors isn't"):
        text.LanguageModel.load(path)


def test_what_does_not_fit_is_refused(writer):
    with pytest.raises(ArgumentError, match=r"the tokenizer has \d+ tokens, the model knows 3"):
        text.LanguageModel(models.GPT(3, 4, 1, 1, 4), writer.tokenizer)
    odd = models.GPT(writer.tokenizer.vocab_size, 4, 1, 1, 4, activation=nn.tanh)
    with pytest.raises(ArgumentError, match="activation of this GPT is a function"):
        text.LanguageModel(odd, writer.tokenizer).save("nowhere")


def test_log_probability_has_no_windows_where_there_is_no_context(monkeypatch):
    """Counts of three tokens know each that follows; a window of attention goes on from piece to piece."""
    monkeypatch.setattr(text.language_model, "PIECE", 4)
    said, tokenizer = "abcdeabcdeab", text.Characters("abcde")
    counts = models.NGram(5, 3).fit(tokenizer.encode(said))
    assert text.LanguageModel(counts, tokenizer).log_probability(said) == pytest.approx(0, abs=1e-6)
    model = models.GPT(5, 4, 2, 2, 8, positions="rotary", window=3, key=wl.random.key(0))
    expected = model.log_probability(tokenizer.encode(said)).sum()
    assert text.LanguageModel(model, tokenizer).log_probability(said) == pytest.approx(float(expected), rel=1e-5)


def test_a_prompt_longer_than_the_context_is_kept():
    model = models.GPT(5, 4, 1, 1, 4, key=wl.random.key(0))
    writer, prompt, key = text.LanguageModel(model, text.Characters("abcde")), "abcdeabcde", wl.random.key(1)
    whole = writer.generate(prompt, 3, key=key)
    assert whole.startswith(prompt) and len(whole) == 13
    assert prompt + "".join(writer.stream(prompt, 3, key=key)) == whole


def test_an_empty_prompt_needs_no_new_line():
    """Neither characters nor words may have one."""
    for tokenizer in (
        text.Characters("abc"),
        text.Words.train("a b c", special_tokens=["<unk>"], bos=None, eos=None),
    ):
        model = models.GPT(tokenizer.vocab_size, 4, 1, 1, 4, key=wl.random.key(0))
        assert text.LanguageModel(model, tokenizer).generate("", 2, temperature=0).startswith("a")
