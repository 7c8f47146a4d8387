"""Tokenizers against tiktoken and Hugging Face's tokenizers.

tiktoken's ranks of GPT-2 and GPT-4 can't be had offline: they are looked for in WONDERLAND_RANKS, a folder with
`r50k_base.tiktoken` and `cl100k_base.tiktoken`.
"""

import os
import random
from pathlib import Path

import pytest

from wonderland import text
from wonderland.text import BPE
from wonderland.text.patterns import PATTERNS
from wonderland.text.ranks import read

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads and forks of other tests don't go together
tiktoken = pytest.importorskip("tiktoken")
tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.peers
ROOT = Path(__file__).resolve().parent.parent.parent
END = "<|endoftext|>"
RANKS = [("r50k_base", "gpt2", {END: 50256}), ("cl100k_base", "gpt4", {END: 100257, "<|fim_prefix|>": 100258})]


def mixed(size):
    """Prose, code, emoji and other scripts, and random bytes, with what isn't UTF-8 replaced."""
    draw = random.Random(0)
    prose = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "wonderland/compile").glob("*.py")))
    scripts = "".join(draw.choices("😀🎉é漢字кириллица العربية हिन्दी\n \t👩‍👩‍👧0123456789'\r", k=size // 10))
    # Unassigned code points are letters in one version of Unicode, and not in another: these bytes make few others.
    noise = bytes(draw.choices(range(256), k=size // 10)).decode("utf-8", "replace")
    noise = "".join(c for c in noise if c < "\x80" or c == "\ufffd")
    return prose[: size // 3] + code[: size // 3] + scripts + noise


def theirs_of(tokenizer):
    return tiktoken.Encoding(
        "test", pat_str=PATTERNS[tokenizer.pattern], mergeable_ranks=tokenizer.vocabulary,
        special_tokens=tokenizer.special_tokens,
    )  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_encodes_as_tiktoken_does(pattern, tmp_path):
    corpus = mixed(200_000)
    trained = BPE.train(corpus, 3000, pattern=pattern)
    trained.write_tiktoken(tmp_path / "ranks")
    ours = BPE.read_tiktoken(tmp_path / "ranks", pattern=pattern, special_tokens={END: 3000})
    theirs = theirs_of(ours)
    assert ours.encode(corpus).tolist() == theirs.encode_ordinary(corpus) == trained.encode(corpus).tolist()
    line = f"a line{END}and another"
    assert ours.encode(line, allowed_special="all").tolist() == theirs.encode(line, allowed_special="all")
    assert ours.encode(line, disallowed_special=()).tolist() == theirs.encode(line, disallowed_special=())
    with pytest.raises(ValueError, match="disallowed special token"):
        theirs.encode(line)


@pytest.mark.parametrize(("name", "pattern", "special"), RANKS)
def test_ranks_of_openai(name, pattern, special):
    path = Path(os.environ.get("WONDERLAND_RANKS", "nowhere")) / f"{name}.tiktoken"
    if not path.exists():
        pytest.skip(f"{path} isn't there")
    ours = BPE.read_tiktoken(path, pattern=pattern, special_tokens=special)
    theirs = theirs_of(ours)
    corpus = mixed(1_000_000)
    ids = ours.encode(corpus)
    assert ids.tolist() == theirs.encode_ordinary(corpus) and ours.decode(ids) == corpus
    assert ours.vocabulary == read(path)


@pytest.mark.parametrize("pattern", ["gpt2", "gpt4"])
def test_trains_as_hugging_face_does(pattern, tmp_path):
    corpus = mixed(200_000)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    before = tokenizers.pre_tokenizers
    cut = before.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated")
    theirs.pre_tokenizer = before.Sequence([cut, before.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=3000, special_tokens=[END], initial_alphabet=before.ByteLevel.alphabet(), show_progress=False
    )
    theirs.train_from_iterator([corpus], trainer)
    theirs.save(str(tmp_path / "theirs.json"))
    ours = BPE.train(corpus, 3000, pattern=pattern, special_tokens=[END], min_count=1, compatible="huggingface")
    assert text.load(tmp_path / "theirs.json") == ours
    assert ours.encode(corpus).tolist() == theirs.encode(corpus).ids
    ours.write_huggingface(tmp_path / "ours.json")
    copy = tokenizers.Tokenizer.from_file(str(tmp_path / "ours.json"))
    assert copy.encode(corpus + END).ids == ours.encode(corpus + END, allowed_special="all").tolist()
