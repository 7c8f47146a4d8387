"""Tokenizers: a text to ids, and learning the merges of one."""

import numpy as np

from bench.environment import ROOT
from bench.registry import Benchmark

TRAINED, SMALL = 8192, 320


def text_of(size):
    """Prose and code."""
    files = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "wonderland" / "compile").glob("*.py"))]
    return "".join(path.read_text(encoding="utf-8") for path in files)[:size]


def encoding_inputs():
    from wonderland.text import BPE

    text = text_of(500_000)
    return text, BPE.train(text, TRAINED).vocabulary


encoding = Benchmark(
    "tokenize", "text", f"500 kB to ids, {TRAINED} tokens, GPT-4's pattern", encoding_inputs, targets={"tiktoken": 2.0}
)


@encoding.contender("wonderland")
def ours(text, ranks):
    from wonderland.text import BPE

    tokenizer = BPE(ranks, pattern="gpt4")
    return lambda: tokenizer.encode(text)


@encoding.contender("tiktoken")
def theirs(text, ranks):
    import tiktoken

    from wonderland.text import PATTERNS

    made = tiktoken.Encoding("bench", pat_str=PATTERNS["gpt4"], mergeable_ranks=ranks, special_tokens={})
    return lambda: np.array(made.encode_ordinary(text))


learning = Benchmark(
    "train_bpe", "text", f"{SMALL - 256} merges learnt from 50 kB", lambda: (text_of(50_000),),
    targets={"regex.minbpe": 0.05},
)


@learning.contender("wonderland")
def our_training(text):
    from wonderland.text import BPE

    return lambda: np.array(BPE.train(text, SMALL).vocab_size)


@learning.contender("regex.minbpe")  # which needs nothing else
def minbpe(text):
    """Its loop: all pairs are counted before each merge. Ties go to the first pair, so that the merges differ."""
    import regex

    from wonderland.text import PATTERNS

    def call():
        pieces = [list(piece.encode()) for piece in regex.findall(PATTERNS["gpt4"], text)]
        for new in range(256, SMALL):
            counts = {}
            for piece in pieces:
                for pair in zip(piece, piece[1:]):  # noqa: RUF007, as it is there
                    counts[pair] = counts.get(pair, 0) + 1
            best = max(counts, key=counts.__getitem__)
            pieces = [merged(piece, best, new) for piece in pieces]
        return np.array(SMALL)

    return call


def merged(ids, pair, new):
    found, i = [], 0
    while i < len(ids):
        if ids[i] == pair[0] and i < len(ids) - 1 and ids[i + 1] == pair[1]:
            found.append(new)
            i += 2
        else:
            found.append(ids[i])
            i += 1
    return found
