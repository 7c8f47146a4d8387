"""What all tokenizers have in common, and characters and words."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wonderland import text
from wonderland.core.errors import ArgumentError
from wonderland.text import BPE, Characters, TokenizerError, Words

CORPUS = "to be, or not to be: that is the question"
SPECIAL = {"special_tokens": ["<bos>", "<eos>", "<unk>"], "bos": "<bos>", "eos": "<eos>"}


def each_kind():
    return [
        Characters.train(CORPUS, unknown="<unk>", **SPECIAL),
        Words.train(CORPUS),
        BPE.train(CORPUS, 270, pattern=None, **SPECIAL),
    ]


@pytest.fixture(params=each_kind(), ids=lambda made: type(made).__name__)
def tokenizer(request):
    return request.param


def test_encode_decode(tokenizer):
    ids = tokenizer.encode("to be or not", bos=True, eos=True)
    assert ids.dtype == np.int64 and ids.max() < tokenizer.vocab_size
    assert (ids[0], ids[-1]) == (tokenizer.special_tokens["<bos>"], tokenizer.special_tokens["<eos>"])
    assert tokenizer.decode(ids, special=False) == "to be or not"
    assert tokenizer.decode(ids[1:-1]) == "to be or not"
    assert tokenizer.decode(ids.tolist()).startswith("<bos>")
    assert tokenizer.encode("").shape == (0,) and tokenizer.decode([]) == ""


def test_batches(tokenizer):
    texts = ["to be", "", "or not"]
    batch = tokenizer.encode_batch(texts, bos=True)
    assert [len(ids) for ids in batch][1] == 1
    assert tokenizer.decode_batch(batch, special=False) == texts
    with pytest.raises(ArgumentError, match="several texts"):
        tokenizer.encode_batch("to be")


def test_special_tokens(tokenizer):
    line = "to be<eos>or not<unk>"
    with pytest.raises(TokenizerError, match=r"'<eos>' at character 5.*allowed_special=\{'<eos>'\}"):
        tokenizer.encode(line)
    with pytest.raises(TokenizerError, match="'<unk>' at character 16"):
        tokenizer.encode(line, allowed_special={"<eos>"})
    ids = tokenizer.encode(line, allowed_special="all").tolist()
    numbers = tokenizer.special_tokens
    assert numbers["<eos>"] in ids and ids[-1] == numbers["<unk>"]
    mixed = tokenizer.encode(line, allowed_special={"<eos>"}, disallowed_special=())
    assert numbers["<eos>"] in mixed and len(mixed) > len(ids)  # the other one is text
    with pytest.raises(ArgumentError, match="'<pad>', which isn't a special token"):
        tokenizer.encode(line, allowed_special={"<pad>"})
    with pytest.raises(ArgumentError, match=r"write \{'<eos>'\}"):
        tokenizer.encode(line, allowed_special="<eos>")


def test_the_longest_special_token_is_found():
    tokenizer = BPE({b"a": 0}, special_tokens=["<a>", "<a><a>"])
    assert tokenizer.encode("<a><a>a<a>", allowed_special="all").tolist() == [2, 0, 1]


def test_saved_and_pickled(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    for copy in (text.load(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(tokenizer))):
        assert copy == tokenizer and repr(copy) == repr(tokenizer)
        np.testing.assert_array_equal(copy.encode("to be"), tokenizer.encode("to be"))
    assert tokenizer != Characters("xy")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=30))
def test_streaming_gives_what_decode_gives(ids):
    tokenizer = BPE({bytes([value]): value for value in range(256)})
    decoder = tokenizer.decoder()
    parts = [decoder.feed(number) for number in ids]
    assert "".join(parts) + decoder.finish() == tokenizer.decode(ids)


def test_streaming(tokenizer):
    ids = tokenizer.encode("to be or not", eos=True)
    decoder = tokenizer.decoder(special=False)
    assert "".join([decoder.feed(ids[:2]), *(decoder.feed(i) for i in ids[2:]), decoder.finish()]) == "to be or not"
    assert decoder.feed(ids[0]) + decoder.finish() == tokenizer.decode(ids[:1])  # it can be used again


def test_half_a_character_waits():
    tokenizer = BPE({bytes([value]): value for value in range(256)})
    decoder = tokenizer.decoder()
    assert [decoder.feed(value) for value in "é€".encode()] == ["", "é", "", "", "€"]
    assert decoder.feed(0xE2) == "" and decoder.finish() == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        strict = tokenizer.decoder(errors="strict")
        strict.feed(0xFF)


def test_wrong_ids_are_refused(tokenizer):
    with pytest.raises(TokenizerError, match=r"no token with id 999 \(at 1\)"):
        tokenizer.decode([0, 999])
    with pytest.raises(TokenizerError, match="no token with id -1"):
        tokenizer.decode([-1])
    with pytest.raises(ArgumentError, match="whole numbers, not float64"):
        tokenizer.decode([0.5])
    with pytest.raises(ArgumentError, match="one axis, not 2"):
        tokenizer.decode([[0], [1]])


def test_no_bos():
    with pytest.raises(ArgumentError, match="has no bos token: make it with bos="):
        Characters("ab").encode("a", bos=True)
    with pytest.raises(ArgumentError, match="bos='<s>' isn't a special token"):
        Characters("ab", bos="<s>")


def test_characters():
    tokenizer = Characters.train(["hello", "wörld 😀"])
    assert "".join(tokenizer.vocabulary) == "".join(sorted({*"hellowörld 😀"})) and tokenizer.vocab_size == 10
    assert tokenizer.decode(tokenizer.encode("w😀ö")) == "w😀ö"
    with pytest.raises(TokenizerError, match="'x' at character 1, which isn't one of the 10"):
        tokenizer.encode("hx")
    assert Characters("ba").encode("ab").tolist() == [1, 0]  # a vocabulary keeps its order
    assert Characters("ab", unknown="?", special_tokens=["?"]).encode("axb").tolist() == [0, 2, 1]
    assert Characters("", unknown="?", special_tokens=["?"]).encode("ax").tolist() == [0, 0]
    for wrong, message in (("aa", "'a' twice"), (["ab"], "isn't one"), ([3], "isn't one"), ("\ud800", "isn't one")):
        with pytest.raises(TokenizerError, match=message):
            Characters(wrong)
    with pytest.raises(ArgumentError, match=r"unknown='\?' isn't a special token"):
        Characters("ab", unknown="?")


def test_words_by_frequency():
    tokenizer = Words.train(CORPUS)
    assert tokenizer.vocabulary == ["be", "to", ",", ":", "is", "not", "or", "question", "that", "the"]
    assert tokenizer.encode("to be or what", eos=True).tolist() == [4, 3, 9, 0, 2]
    assert tokenizer.decode(tokenizer.encode("to  be, what")) == "to be , <unk>"
    small = Words.train([CORPUS, "To"], vocab_size=5, lower=True)
    assert small.vocabulary == ["to", "be"] and small.vocab_size == 5 and small.encode("TO").tolist() == [3]
    assert Words.train(CORPUS, min_count=2).vocabulary == ["be", "to"]
    with pytest.raises(TokenizerError, match="has 'what', which isn't one of the 10 words"):
        Words.train(CORPUS, unknown=None).encode("to what")
    with pytest.raises(ArgumentError, match="no place for words: 3 tokens are special"):
        Words.train(CORPUS, vocab_size=3)
    for wrong, message in ((["a b"], "isn't one word"), (["a", "a"], "'a' twice"), ([1], "isn't one word")):
        with pytest.raises(TokenizerError, match=message):
            Words(wrong)
    own = Words(["a", "b"], special_tokens={"<unk>": 1}, bos=None, eos=None)
    assert own.encode("a b c").tolist() == [0, 2, 1]


def test_visualize(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    tokenizer = BPE.train("abracadabra", 259, pattern=None)
    assert str(tokenizer.visualize("abracadabra\n\x1b")) == "abra|c|a|d|abra|↵\n|\\x1b"
    assert str(tokenizer.visualize("é")) == "\\xc3|\\xa9"
    assert repr(tokenizer.visualize("ab")).startswith("1 tokens:")
    html = tokenizer.visualize("<abra>")._repr_html_()
    assert "&lt;</span>" in html and 'title="258">abra</span>' in html and html.count("<span") == 3
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert str(tokenizer.visualize("abra\nc")) == (
        "\033[30;48;5;194mabra\033[0m\033[30;48;5;223m↵\033[0m\n\033[30;48;5;189mc\033[0m"
    )


def test_what_is_learnt_from_is_a_text_or_several():
    assert Characters.train(b"abc").vocabulary == Characters.train(["ab", b"c"]).vocabulary == ["a", "b", "c"]
    assert Words.train(b"to be").vocabulary == ["be", "to"]
    for kind, options in ((Characters, {}), (Words, {}), (BPE, {"vocab_size": 300})):
        for wrong, said in ((3, "not int"), (None, "not NoneType"), (Path("a.txt"), r"Path: for a file write")):
            with pytest.raises(ArgumentError, match=said):
                kind.train(wrong, **options)
    with pytest.raises(TokenizerError, match="half of a surrogate pair"):
        Words.train("a \ud800")
