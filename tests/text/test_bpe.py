"""Byte pair encoding: merges and training against the definitions, round trips, patterns."""

import pickle
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.text import BPE, TokenizerError, patterns, seen, training

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BYTES = {bytes([value]): value for value in range(256)}


def merge_slowly(piece, pairs):
    """The ids of a piece, by the definition: the pair of the lowest rank, the leftmost, until there is none."""
    while True:
        found = [(pairs[pair][0], i) for i, pair in enumerate(pairwise(piece)) if pair in pairs]
        if not found:
            return piece
        _, i = min(found)
        piece = [*piece[:i], pairs[piece[i], piece[i + 1]][1], *piece[i + 2 :]]


def learn_slowly(counts, vocabulary, size, least):
    """Merges, by the definition: count all pairs, merge the first, from the left; again."""
    pieces = {piece: [vocabulary[bytes([value])] for value in piece] for piece in counts}
    tokens = {number: token for token, number in vocabulary.items()}
    merges = []
    while len(vocabulary) < size:
        found = Counter()
        for piece, symbols in pieces.items():
            for pair in pairwise(symbols):
                found[pair] += counts[piece]
        if not found or max(found.values()) < least:
            break
        best = min(found, key=lambda pair: (-found[pair], pair))
        token = tokens[best[0]] + tokens[best[1]]
        new = vocabulary.setdefault(token, len(vocabulary))
        tokens[new] = token
        merges.append(best)
        for piece, symbols in pieces.items():
            made, i = [], 0
            while i < len(symbols):
                if tuple(symbols[i : i + 2]) == best:
                    made.append(new)
                    i += 2
                else:
                    made.append(symbols[i])
                    i += 1
            pieces[piece] = made
    return merges


@pytest.fixture(scope="module")
def trained():
    return BPE.train(TEXT, 500, special_tokens=["<|endoftext|>"], eos="<|endoftext|>")


def test_abracadabra_of_the_notes():
    """(2.4) and (2.5): ab and ra are merged, and then these two."""
    two, three = (BPE.train("abracadabra", 256 + n, pattern=None) for n in (2, 3))
    assert two.decode_batch([[256], [257]]) == ["ab", "ra"]
    assert [*two.encode("abracadabra")] == [256, 257, *b"cad", 256, 257]
    assert [*three.encode("abracadabra")] == [258, *b"cad", 258]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("ab", min_size=1, max_size=12).map(str.encode), st.integers(1, 5), max_size=6))
def test_training_is_that_of_the_definition(counts):
    ours, slow = dict(BYTES), dict(BYTES)
    assert training.learn(counts, ours, 275, 2, 256) == learn_slowly(counts, slow, 275, 2)
    assert ours == slow


def test_training_with_many_pairs_is_that_of_the_definition(monkeypatch):
    """Slots run out, and are made anew; at every step, too."""
    pieces = patterns.pieces("gpt4", TEXT)[:1500]
    counts = {piece.encode(): count for piece, count in Counter(pieces).items()}
    expected = learn_slowly(counts, dict(BYTES), 340, 2)
    assert training.learn(counts, dict(BYTES), 340, 2, 256) == expected
    monkeypatch.setattr(training.Corpus, "make_room", lambda corpus, more: corpus.build(4096))
    assert training.learn(counts, dict(BYTES), 340, 2, 256) == expected


def test_bytes_that_two_pairs_make_are_one_token():
    """Nothing like it comes from a text; a vocabulary that has the token already shows it."""
    vocabulary = {**BYTES, b"ab": 256}
    assert training.learn({b"abab": 1}, vocabulary, 258, 1, 257) == [(97, 98), (256, 256)]
    assert vocabulary[b"abab"] == 257


def test_long_runs_are_merged_in_time():
    tokenizer = BPE.train("a" * 300_000 + "b", 256 + 12, pattern=None)
    assert tokenizer.decode([267]) == "a" * 4096
    assert len(tokenizer.encode("a" * 300_000)) < 100


def test_training_is_deterministic_and_takes_several_texts():
    one, two = BPE.train(TEXT, 400), BPE.train([TEXT[:0], TEXT.encode()], 400)
    assert one == two and one.merges == two.merges


def test_training_ends_when_nothing_occurs_twice():
    assert BPE.train("abab", 1000, pattern=None).vocab_size == 257 and BPE.train("", 300).vocab_size == 256
    assert BPE.train("abcd", 1000, pattern=None, min_count=1).vocab_size == 259


def test_special_tokens_are_not_learnt_from():
    tokenizer = BPE.train("<end>" * 50 + "ab" * 3, 258, pattern=None, special_tokens=["<end>"])
    assert tokenizer.decode([256]) == "ab" and tokenizer.special_tokens == {"<end>": 257}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5), st.binary(max_size=40))
def test_merging_is_that_of_the_definition(choices, drawn):
    vocabulary, merges = dict(BYTES), []
    tokens = [b"a", b"b", b"c", b"d"]
    for left, right in choices:
        token, pair = tokens[left] + tokens[right], (vocabulary[tokens[left]], vocabulary[tokens[right]])
        vocabulary.setdefault(token, len(vocabulary))
        if pair not in merges:
            merges.append(pair)
        tokens[left] = token
    text = bytes([97 + value % 4 for value in drawn])
    names = {number: token for token, number in vocabulary.items()}
    by_merges = {pair: (i, vocabulary[names[pair[0]] + names[pair[1]]]) for i, pair in enumerate(merges)}
    assert [*BPE(vocabulary, merges).encode(text)] == merge_slowly([*text], by_merges)
    by_ranks = {
        (a, b): (vocabulary[left + right],) * 2
        for left, a in vocabulary.items()
        for right, b in vocabulary.items()
        if left + right in vocabulary
    }
    expected = [vocabulary[text]] if text in vocabulary else merge_slowly([*text], by_ranks)
    assert [*BPE(vocabulary).encode(text)] == expected


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_any_bytes_come_back(trained, raw):
    ids = trained.encode(raw, disallowed_special=())
    assert ids.dtype == np.int64 and trained.decode_bytes(ids) == raw
    assert trained.decode(ids) == raw.decode(errors="replace")


@settings(max_examples=100, deadline=None)
@given(st.text(), st.sampled_from([None, *patterns.PATTERNS, r"\w+", "a*", "(?<=a)b"]))
def test_pieces_are_the_text(text, pattern):
    assert "".join(patterns.pieces(pattern, text)) == text


@pytest.mark.parametrize("pattern", patterns.PATTERNS)
def test_patterns_match_every_character(pattern):
    every = "".join(map(chr, range(0x110000)))
    assert "".join(patterns.compiled(pattern).findall(every)) == every


def test_known_pieces():
    text = "I'll say 1234 things,  don't\n\n  you'RE?\n"
    assert patterns.pieces("gpt2", text) == [
        "I", "'ll", " say", " 1234", " things", ",", " ", " don", "'t", "\n\n ", " you", "'", "RE", "?", "\n"
    ]  # fmt: skip
    assert patterns.pieces("gpt4", text) == [
        "I", "'ll", " say", " ", "123", "4", " things", ",", " ", " don", "'t", "\n\n", " ", " you", "'RE", "?\n"
    ]  # fmt: skip


def test_tokens_stay_inside_pieces(trained):
    ids = trained.encode("a text of some words")
    assert all(b" " not in piece[1:] for piece in trained.pieces(ids))
    assert len(ids) < 20


def test_pieces_are_forgotten_when_there_are_too_many(trained, monkeypatch):
    expected = trained.encode(TEXT)
    monkeypatch.setattr(seen, "KEPT", 100)
    copy = pickle.loads(pickle.dumps(trained))
    for i in range(0, 2000, 100):
        np.testing.assert_array_equal(copy.encode(TEXT), expected)
        copy.encode(TEXT[i : i + 100])
    assert len(copy._seen.numbers) < 100


def test_threads_share_a_tokenizer(trained):
    from concurrent.futures import ThreadPoolExecutor

    copy = pickle.loads(pickle.dumps(trained))
    parts = [TEXT[i : i + 400] for i in range(0, 8000, 400)] * 3
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(copy.encode, parts)]
    assert [ids.tolist() for ids in found] == [trained.encode(part).tolist() for part in parts]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (({b"a": 0}, [(0, 0)]), {}, "makes b'aa', which isn't in the vocabulary"),
        (({b"a": 0, b"aa": 1}, [(0, 2)]), {}, "no token has id 2"),
        (({b"a": 0, b"aa": 1}, [(0, 0), (0, 0)]), {}, "merged twice"),
        (({b"a": 0, b"aa": 1}, [[0, 0]]), {}, "a merge is a pair of ids"),
        (({b"a": 0, b"b": 0},), {}, "have the same id, 0"),
        (({b"a": 0, b"b": 2},), {}, "no token has id 1.*special_tokens="),
        (({b"a": 2**40},), {}, "id 1099511627776"),
        (({b"a": -1},), {}, "id -1"),
        (({b"a": True},), {}, "id True"),
        (({"a": 0},), {}, "a token is at least one byte, not 'a'"),
        (({b"": 0},), {}, "at least one byte"),
        (({b"a": 0},), {"special_tokens": {"b": 0}}, "has id 0, which b'a' has, too"),
        (({b"a": 0},), {"special_tokens": {"": 1}}, "at least one character"),
        (({b"a": 0},), {"special_tokens": ["x", "x"]}, "twice"),
    ],
)
def test_wrong_vocabularies_are_refused(arguments, options, message):
    with pytest.raises(TokenizerError, match=message):
        BPE(*arguments, **options)


def test_wrong_arguments_are_refused(trained):
    with pytest.raises(ArgumentError, match="vocab_size=10 is too small"):
        BPE.train("a", 10)
    with pytest.raises(ArgumentError, match="compatible is 'huggingface'"):
        BPE.train("a", 300, compatible="minbpe")
    with pytest.raises(ArgumentError, match="special_tokens is a list of strings"):
        BPE.train("a", 300, special_tokens="<end>")
    with pytest.raises(ArgumentError, match="a pattern is 'gpt2'"):
        BPE.train("a", 300, pattern=3)
    with pytest.raises(TokenizerError, match="no regular expression"):
        BPE.train("a", 300, pattern="(")
    with pytest.raises(TokenizerError, match="groups that are kept"):
        BPE.train("a", 300, pattern="(a)")
    with pytest.raises(TokenizerError, match="byte 0x62, for which this vocabulary has no token"):
        BPE({b"a": 0}).encode("ab")
    with pytest.raises(TokenizerError, match="half of a surrogate pair"):
        trained.encode("a\ud800")
    with pytest.raises(ArgumentError, match="a text is a string or bytes, not list"):
        trained.encode(["a"])


def test_without_regex():
    """What needs no pattern works; what does says what to install."""
    code = """
import sys
sys.modules["regex"] = None
import wonderland as wl
tokenizer = wl.text.BPE.train("abracadabra", 259, pattern=None)
print(tokenizer.decode(tokenizer.encode("abra")), wl.text.Words.train("a b").encode("b"))
try:
    wl.text.BPE.train("abracadabra", 259)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("abra [4]\n") and "pip install 'wonderland[text]'" in done.stdout


def test_the_package_is_loaded_on_first_use():
    code = """
import sys, wonderland as wl
print("wonderland.text" in sys.modules)
wl.text.BPE
print("regex" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
    assert wl.text.__name__ == "wonderland.text"
