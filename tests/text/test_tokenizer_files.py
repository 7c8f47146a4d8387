"""Files of tokenizers: what was written is read again, and what is damaged or hostile is refused with its place."""

import base64
import json

import pytest

from wonderland import text
from wonderland.text import BPE, Characters, TokenizerError, Words, patterns

PAGE = "the cat sat on the mat; the dog sat on the log.\n" * 3


@pytest.fixture(scope="module")
def tokenizer():
    return BPE.train(PAGE, 280, pattern="gpt2", special_tokens=["<bos>", "<|endoftext|>"], bos="<bos>")


def test_ranks(tokenizer, tmp_path):
    path = tmp_path / "ranks.tiktoken"
    tokenizer.write_tiktoken(path)
    copy = BPE.read_tiktoken(path, pattern="gpt2", special_tokens=tokenizer.special_tokens)
    assert copy.vocabulary == tokenizer.vocabulary and copy.merges is None and copy.whole
    assert copy.encode(PAGE).tolist() == tokenizer.encode(PAGE).tolist()
    assert {*tokenizer.merges} <= {*copy.pairs()}  # all pairs that make a token are merged
    copy.write_tiktoken(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_ranks_with_a_gap_for_a_special_token(tokenizer, tmp_path):
    path = tmp_path / "ranks.tiktoken"
    lines = [b"%s %d" % (base64.b64encode(bytes([value])), value) for value in range(256)]
    path.write_bytes(b"\n".join([*lines, b"YWI= 257"]))
    with pytest.raises(TokenizerError, match=r"ranks.tiktoken: no token has id 256.*special_tokens="):
        BPE.read_tiktoken(path, pattern=None)
    found = BPE.read_tiktoken(path, pattern=None, special_tokens={"<|endoftext|>": 256})
    assert found.encode("abab").tolist() == [257, 257] and found.vocab_size == 258


def test_files_of_gpt2(tokenizer, tmp_path):
    merges, encoder = tmp_path / "vocab.bpe", tmp_path / "encoder.json"
    tokenizer.write_gpt2(merges, encoder)
    assert merges.read_text(encoding="utf-8").startswith("#version: 0.2\n")
    assert "Ġthe" in json.loads(encoder.read_text(encoding="utf-8"))
    assert BPE.read_gpt2(merges, encoder, bos="<bos>") == tokenizer


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", None, r"\w+|\W+"])
@pytest.mark.parametrize("eos", [None, "<|endoftext|>"])
def test_files_of_hugging_face(tokenizer, pattern, eos, tmp_path):
    made = BPE.from_state({**tokenizer.state(), "pattern": pattern, "eos": eos})
    made.write_huggingface(tmp_path / "tokenizer.json")
    assert text.load(tmp_path / "tokenizer.json") == made
    ranks = BPE(made.vocabulary, pattern=pattern, special_tokens=made.special_tokens)
    ranks.write_huggingface(tmp_path / "tokenizer.json")
    copy = text.load(tmp_path / "tokenizer.json")
    assert copy.whole and copy.encode(PAGE).tolist() == ranks.encode(PAGE).tolist()


def test_merges_may_be_strings(tokenizer, tmp_path):
    """As older versions of the format have them."""
    path = tmp_path / "tokenizer.json"
    tokenizer.write_huggingface(path)
    found = json.loads(path.read_text(encoding="utf-8"))
    found["model"]["merges"] = [" ".join(pair) for pair in found["model"]["merges"]]
    path.write_text(json.dumps(found), encoding="utf-8")
    assert text.load(path) == tokenizer


def test_a_special_token_that_looks_like_another_is_not_written(tmp_path):
    with pytest.raises(TokenizerError, match="'a' is a special token and"):
        BPE({b"a": 0}, special_tokens=["a"]).write_huggingface(tmp_path / "tokenizer.json")


def test_patterns_that_mean_other_things_are_not_written(tmp_path):
    for pattern in (r"a+$", r"\d{1,3}+"):
        with pytest.raises(TokenizerError, match="means another thing there"):
            BPE({b"a": 0}, pattern=pattern).write_huggingface(tmp_path / "tokenizer.json")
    BPE({b"a": 0}, pattern=r"[$]|\$").write_huggingface(tmp_path / "tokenizer.json")


BYTES = "".join(f"{base64.b64encode(bytes([value])).decode()} {value}\n" for value in range(256))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BYTES + "YWI=", r"f, line 257: a line has a token in base64, a space and its rank; this is b'YWI='"),
        (BYTES + "YWI= 256 3", "line 257: a line has"),
        (BYTES + "YW!= 256", "line 257: the token b'YW!=' isn't base64"),
        (BYTES + "YWI 256", "line 257: the token b'YWI' isn't base64"),
        (BYTES + "YWI= -1", "line 257: the rank b'-1' isn't a whole number"),
        (BYTES + "YWI= 99999999999999999999", "line 257: the rank b'9999"),
        (BYTES + "YWI= 16777216", "line 257: the rank b'16777216'"),
        (BYTES + "YWI= 2.5", r"line 257: the rank b'2.5'"),
        (BYTES + "YWI= 7", "line 257: rank 7 is that of line 8, too"),
        (BYTES + "\nYWI= 256\nYWI= 257", "line 259: the token b'ab' is there twice"),
        (BYTES + "YWI= 300", "f: no token has id 256"),
        (BYTES[:-20], "f, line 254: rank 25 is that of line 26, too"),
        ("", "f: it has no ranks"),
        (b"\xff\xfe\x00", "line 1: a line has"),
    ],
)
def test_damaged_ranks_are_refused(content, message, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TokenizerError, match=message):
        BPE.read_tiktoken(path, pattern=None)


def test_files_that_are_not_there(tmp_path):
    for read in (text.load, BPE.read_huggingface, lambda path: BPE.read_tiktoken(path, pattern=None)):
        with pytest.raises(TokenizerError, match="nowhere: it can't be read: No such file"):
            read(tmp_path / "nowhere")
        with pytest.raises(TokenizerError, match="it can't be read: Is a directory"):
            read(tmp_path)


SMALL = {"a": 0, "b": 1, "ab": 2, "<end>": 3}


@pytest.mark.parametrize(
    ("merges", "encoder", "message"),
    [
        ("#version: 0.2\na b\na b c", SMALL, "vocab.bpe, line 3: a line has two tokens"),
        ("a b\nab", SMALL, "vocab.bpe, line 2: a line has two tokens"),
        ("a b\na c", SMALL, "vocab.bpe, line 2: the token 'c' isn't in the vocabulary"),
        ("a b\nb a", SMALL, "vocab.bpe, line 2: the token 'ba' isn't in the vocabulary"),
        ("a b\na b", SMALL, "encoder.json: the pair .* is merged twice"),
        (b"a b\n\xff b", SMALL, "vocab.bpe, line 2: the byte 0xff isn't UTF-8"),
        ("a b", {**SMALL, "ab": 1}, "encoder.json: the tokens b'b' and b'ab' have the same id, 1"),
        ("a b", {**SMALL, "ab": "2"}, "encoder.json: the token b'ab' has id '2'"),
        ("a b", {**SMALL, "ab": 10**30}, "encoder.json: the token b'ab' has id 1000000"),
        ("a b", {**SMALL, "ab": 2.0}, "has id 2.0"),
        ("a b", {**SMALL, "<end>": None}, "special token '<end>' has id None"),
        ("a b", {**SMALL, "ab": 9}, "encoder.json: no token has id 2"),
        ("a b\nab <end>", {**SMALL, "ab<end>": 4}, "'<end>' is merged, but no merge makes it"),
        ("a ⟂", {**SMALL, "⟂": 4, "a⟂": 5}, "'a⟂' isn't written in the characters"),
        ("a b", [1, 2], "encoder.json: it has a list where a tokenizer has an object"),
    ],
)
def test_damaged_files_of_gpt2_are_refused(merges, encoder, message, tmp_path):
    (tmp_path / "vocab.bpe").write_bytes(merges if isinstance(merges, bytes) else merges.encode())
    (tmp_path / "encoder.json").write_text(json.dumps(encoder), encoding="utf-8")
    with pytest.raises(TokenizerError, match=message):
        BPE.read_gpt2(tmp_path / "vocab.bpe", tmp_path / "encoder.json", pattern=None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{\n"model": {"type": "BPE",\n', r"f, line 3: it isn't JSON: .* the file may have been cut off"),
        ('{"model": \n nonsense}', r"f, line 2: it isn't JSON: Expecting value at column 2$"),
        ('{"model": 1, "model": 2}', "f: the key 'model' is there twice"),
        ('{"a": ' * 100_000, "f: it isn't a tokenizer: lists or objects inside of one another"),
        ("[" * 100_000, "f: it isn't a tokenizer: lists or objects inside of one another"),
        ('{"model": ' + "9" * 5000 + "}", "f: Exceeds the limit|f: 'model' is"),
        (b'{"model":\n "\xff"}', "f, line 2: the byte 0xff isn't UTF-8"),
        (b"\x00\x01\x02", "f, line 1: it isn't JSON"),
        ("", "f, line 1: it isn't JSON"),
        ('"model"', "f: it has a string where a tokenizer has an object"),
        ("{}", "f: it isn't a tokenizer: 'format' is None"),
        ('{"model": 3}', "f: 'model' is a whole number, not an object"),
    ],
    ids=str,
)
def test_files_that_are_not_json_are_refused(content, message, tmp_path):
    (tmp_path / "f").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TokenizerError, match=message):
        text.load(tmp_path / "f")


TEMPLATE = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, 3]}
SPLIT = {"type": "Split", "pattern": {"Regex": "a$"}, "behavior": "Isolated", "invert": False}
LAST = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("model.type", "WordPiece", "its model is 'WordPiece'"),
        ("model.vocab", [1], "'model.vocab' is a list, not an object"),
        ("model.vocab", None, "it has no 'model.vocab', which is an object"),
        ("model.vocab.a", 10**12, "the token b'a' has id 1000000000000"),
        ("model.vocab.a", "1", "the token b'a' has id '1'"),
        ("model.vocab.a", 4, "have the same id, 4"),
        ("model.vocab.⟂", 900, "model.vocab has '⟂', which isn't written"),
        ("model.merges", {}, "'model.merges' is an object, not a list"),
        ("model.merges.2", "a b c", r"model.merges\[2\] is 'a b c'; a merge is two tokens"),
        ("model.merges.2", ["a", 1], r"model.merges\[2\] is \['a', 1\]"),
        ("model.merges.2", ["a", "⟂"], r"model.merges\[2\] is of '⟂', which isn't in model.vocab"),
        ("model.merges.2", ["q", "q"], "merge 2, of .* makes b'qq', which isn't in the vocabulary"),
        ("model.dropout", 0.1, "its model has 'dropout' = 0.1"),
        ("model.byte_fallback", True, "its model has 'byte_fallback' = True"),
        ("model.ignore_merges", 1, "'model.ignore_merges' is a whole number, not true or false"),
        ("normalizer", {"type": "NFC"}, "it normalises text"),
        ("pre_tokenizer", None, "doesn't end with 'ByteLevel'"),
        ("pre_tokenizer", "ByteLevel", "doesn't end with 'ByteLevel'"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": 3}, "doesn't end with 'ByteLevel'"),
        ("pre_tokenizer", {**LAST, "add_prefix_space": True}, "adds a space before the text"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [SPLIT, LAST]}, r"its pattern 'a\$' has \$"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, LAST]}, "has the step .*Digits"),
        ("post_processor", {"type": "Bert"}, "its post_processor is 'Bert'"),
        ("post_processor", TEMPLATE, "neither a text nor a special token"),
        ("post_processor", [], "'post_processor' is a list, not an object"),
        ("added_tokens.0", 3, r"added_tokens\[0\] isn't an object"),
        ("added_tokens.0.id", "x", r"'added_tokens\[0\].id' is a string, not a whole number"),
        ("added_tokens.0.id", -1, "special token '<bos>' has id -1"),
        ("added_tokens.0.id", 97, "has id 97, which b'a' has, too"),
        ("added_tokens.0.lstrip", True, r"added_tokens\[0\], '<bos>', has 'lstrip'"),
        ("added_tokens.0.content", "<|endoftext|>", r"added_tokens\[1\]: the token .* is there twice"),
    ],
)
def test_damaged_files_of_hugging_face_are_refused(tokenizer, place, value, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.write_huggingface(path)
    found = target = json.loads(path.read_text(encoding="utf-8"))
    *steps, last = place.split(".")
    for step in steps:
        target = target[int(step) if isinstance(target, list) else step]
    target[int(last) if isinstance(target, list) else last] = value
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(TokenizerError, match=rf"tokenizer.json: .*{message}"):
        text.load(path)


@pytest.mark.parametrize("made", [Characters("ab"), Words(["a", "b"]), BPE({b"a": 0, b"b": 1})])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "it isn't a tokenizer: 'format' is 'x'"),
        ({"version": 2}, "it has version 2; this wonderland reads version 1"),
        ({"kind": "Morse"}, "its kind is 'Morse', not one of Characters, Words, BPE"),
        ({"kind": ["BPE"]}, "'kind' is a list, not a string"),
        ({"vocabulary": 3}, "'vocabulary' is a whole number"),
        ({"special_tokens": None}, "it has no 'special_tokens'"),
        ({"special_tokens": {"<x>": 2**60}}, "special token '<x>' has id 1152921504606846976"),
        ({"special_tokens": {"<x>": 1, "<y>": 1}}, "has, too|the same id|'<unk>' isn't a special token"),
        ({"special_tokens": [3]}, "a special token is a string"),
        ({"bos": "<s>"}, "bos='<s>' isn't a special token"),
        ({"bos": 3}, "'bos' is a whole number, not a string"),
        ({"more": 1}, "it has 'more', which a tokenizer of kind .* doesn't have"),
    ],
    ids=str,
)
def test_damaged_files_of_our_own_are_refused(made, change, message, tmp_path):
    path = tmp_path / "own.json"
    made.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(TokenizerError, match=f"own.json: .*({message})"):
        text.load(path)


def test_every_file_that_was_cut_off_is_refused(tokenizer, tmp_path):
    path = tmp_path / "own.json"
    for save in (tokenizer.save, tokenizer.write_huggingface):
        save(path)
        whole = path.read_bytes()
        for size in range(0, len(whole), len(whole) // 40):
            path.write_bytes(whole[:size])
            with pytest.raises(TokenizerError, match=r"own.json, line \d+: it isn't JSON|isn't UTF-8"):
                text.load(path)


def test_what_files_of_json_can_hold_besides(tokenizer, tmp_path):
    """Names that are no strings, halves of characters, patterns that are none: all refused with the file's name."""
    path = tmp_path / "tokenizer.json"

    def refused(said, read, **changes):
        state = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(state | changes), encoding="utf-8")
        with pytest.raises(TokenizerError, match=f"tokenizer.json.*{said}"):
            read(path)

    for special, said in (([[1]], r"a string of at least one character, not \[1\]"), (["\ud800"], "half of a surrog")):
        Characters("ab").save(path)
        refused(said, text.load, special_tokens=special)
    Words(["a"]).save(path)
    refused("isn't one word or one mark", text.load, vocabulary=["\ud800"])
    for pattern, said in (("(", "no regular expression"), ("(a)", "groups that are kept")):
        tokenizer.save(path)
        refused(said, text.load, pattern=pattern)
    tokenizer.write_huggingface(path)
    added = [{"id": 999, "content": "\udfff"}]
    refused("half of a surrogate", text.load, added_tokens=added, post_processor=None)
    tokenizer.write_huggingface(path)
    single = [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    refused("adds '<x>', which isn't", text.load, post_processor={"type": "TemplateProcessing", "single": single})


def test_a_pattern_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(patterns, "PATIENCE", 0.1)
    tokenizer = BPE({bytes([value]): value for value in range(256)}, [], pattern="(?:a|aa)+b")
    with pytest.raises(TokenizerError, match="tries too many ways"):
        tokenizer.encode("a" * 60)
