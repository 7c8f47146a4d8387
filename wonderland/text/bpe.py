"""Byte pair encoding: text in pieces, pieces in bytes, and pairs of tokens merged into longer ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.faults import count_of
from wonderland.text import gpt2_files, huggingface, patterns, ranks, special, training
from wonderland.text.byte_characters import ORDER, shown, unshown
from wonderland.text.faults import TokenizerError, checked_id, checked_special
from wonderland.text.merging import PairTable
from wonderland.text.seen import SeenPieces
from wonderland.text.tokenizer import Tokenizer, texts_of

Path = str | os.PathLike[str]


class BPE(Tokenizer):
    """Byte-level byte pair encoding: any text, any bytes, without unknown ones.

    vocabulary: the id of each token; the single bytes are among them.
    merges: the pairs of ids that are merged, the first ones first. None: any two neighbours that make a token are, the
    one with the lowest id first, which is how tiktoken reads its ranks.
    pattern: how text is cut into pieces that no token crosses: "gpt2", "gpt4", "gpt4o", a regular expression, None.
    whole: is a piece that is a token that token, before anything is merged? By default as the files have it:
    with ranks yes, with merges no.

    tokenizer = wl.text.BPE.train(text, vocab_size=1000, special_tokens=["<|endoftext|>"])
    tokenizer.decode(tokenizer.encode("hello"))
    """

    def __init__(
        self, vocabulary: Mapping[bytes, int], merges: Iterable[tuple[int, int]] | None = None, *,
        pattern: str | None = None, whole: bool | None = None,
        special_tokens: Iterable[str] | Mapping[str, int] = (), bos: str | None = None, eos: str | None = None,
    ):  # fmt: skip
        patterns.check(pattern)
        self.pattern = pattern
        self.vocabulary: dict[bytes, int] = dict(vocabulary)
        ordinary = _by_id(self.vocabulary)
        names = checked_special(special_tokens, first=max(ordinary, default=-1) + 1)
        _refuse_gaps(ordinary, names)
        self.merges: list[tuple[int, int]] | None = None if merges is None else [*merges]
        for place, pair in enumerate(self.merges or ()):
            _check_merge(place, pair, ordinary, self.vocabulary)
        self.whole: bool = merges is None if whole is None else bool(whole)
        self._finish(ordinary, names, bos, eos)
        self._byte_ids = np.array([self.vocabulary.get(bytes([value]), -1) for value in range(256)])
        self._seen = SeenPieces()
        if self.merges is not None and len({*self.merges}) < len(self.merges):
            pair = next(p for p, times in Counter(self.merges).items() if times > 1)
            raise TokenizerError(f"the pair {pair} is merged twice")

    @classmethod
    def train(
        cls, text: str | bytes | Iterable[str | bytes], vocab_size: int, *, pattern: str | None = "gpt4",
        min_count: int = 2, special_tokens: Iterable[str] = (), bos: str | None = None, eos: str | None = None,
        compatible: Literal["huggingface"] | None = None,
    ) -> BPE:  # fmt: skip
        """Learn the merges of a text, or of several, up to `vocab_size` tokens, the special ones included.

        The pair of tokens that occurs most often becomes a token, again and again; of equally frequent pairs the one
        with the smaller left id, then the smaller right id. It ends earlier if no pair occurs `min_count` times. Bytes
        have the ids 0 to 255, what is learnt the next ones, in order, special tokens the last ones. The same text
        gives the same tokenizer on every machine.

        compatible="huggingface": the same tokens, ids and merges as the `tokenizers` package's BpeTrainer with a
        ByteLevel alphabet: special tokens have the first ids, then come the bytes, in the order of their characters.
        """
        patterns.check(pattern)
        names = [*checked_special(special_tokens)]
        if compatible not in (None, "huggingface"):
            raise ArgumentError(f"compatible is 'huggingface' or None, not {compatible!r}")
        least = 256 + len(names)
        if count_of(vocab_size, "vocab_size") < least:
            raise ArgumentError(f"vocab_size={vocab_size} is too small: 256 bytes and {len(names)} special tokens")
        first = len(names) if compatible else 0
        order = ORDER if compatible else range(256)
        vocabulary = {bytes([value]): first + i for i, value in enumerate(order)}
        counts = _counted(text, pattern, frozenset() if compatible else frozenset(names))
        size, count = vocab_size - len(names), count_of(min_count, "min_count")
        merges = training.learn(counts, vocabulary, size, count, first + 256)
        numbers = {name: i + (0 if compatible else len(vocabulary)) for i, name in enumerate(names)}
        return cls(vocabulary, merges, pattern=pattern, special_tokens=numbers, bos=bos, eos=eos)

    # Encoding

    def _ordinary(self, text: str) -> np.ndarray:
        seen = self._seen
        found = seen.encode(patterns.pieces(self.pattern, text), self._encoded)
        if seen.full:
            self._seen = SeenPieces()  # other threads may still use the old ones
        return found

    def _encoded(self, pieces: Iterable[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The pieces, those that are tokens first; how many ids each has, and all these ids."""
        tokens: dict[str, int] = {}
        others: dict[str, bytes] = {}
        for piece in pieces:
            raw = piece.encode("utf-8", "surrogateescape")
            number = self.vocabulary.get(raw) if self.whole else None
            if number is None:
                others[piece] = raw
            else:
                tokens[piece] = number
        joined = b"".join(others.values())
        symbols = self._byte_ids[np.frombuffer(joined, np.uint8)]
        if symbols.size and symbols.min() < 0:
            value = joined[int(symbols.argmin())]
            raise TokenizerError(f"the text has the byte {value:#04x}, for which this vocabulary has no token")
        bounds = self._pairs.merge(symbols, np.cumsum([0, *map(len, others.values())]))
        lengths = np.concatenate([np.ones(len(tokens), np.int64), np.diff(bounds)])
        ids = np.concatenate([np.fromiter(tokens.values(), np.int64, len(tokens)), symbols[: bounds[-1]]])
        return [*tokens, *others], lengths, ids

    @cached_property
    def _pairs(self) -> PairTable:
        known = self.vocabulary
        rows: list[tuple[int, int, int, int]] = []
        if self.merges is None:
            for token, number in known.items():
                for i in range(1, len(token)):
                    left = known.get(token[:i])
                    if left is not None:
                        right = known.get(token[i:])
                        if right is not None:
                            rows.append((left, right, number, number))
        else:
            parts = self._bytes
            rows = [(a, b, rank, known[parts[a] + parts[b]]) for rank, (a, b) in enumerate(self.merges)]
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return PairTable(*map(np.ascontiguousarray, columns))

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs that are merged, in order; of ranks, all that make a token."""
        if self.merges is not None:
            return [*self.merges]
        table = self._pairs.table.reshape(-1, 4)
        rows = sorted((rank, left, right) for left, right, rank, _ in table[table[:, 0] >= 0].tolist())
        return [(left, right) for _, left, right in rows]

    # Files

    @classmethod
    def read_tiktoken(cls, path: Path, *, pattern: str | None, **options: Any) -> BPE:
        """Read tiktoken's ranks; the file doesn't have the pattern and the special tokens, which are as for `BPE`."""
        return ranks.made(path, lambda: cls(ranks.read(path), pattern=pattern, **options))

    def write_tiktoken(self, path: Path) -> None:
        """Write tiktoken's ranks. They are read by tiktoken's rule, and have no pattern and no special tokens."""
        ranks.write(path, self.vocabulary)

    @classmethod
    def read_gpt2(cls, merges: Path, encoder: Path, *, pattern: str | None = "gpt2", **options: Any) -> BPE:
        """Read GPT-2's `vocab.bpe` and `encoder.json` (or `merges.txt` and `vocab.json`).

        Tokens that no merge makes are special, as "<|endoftext|>" is.
        """
        found = gpt2_files.read(merges, encoder)
        return ranks.made(encoder, lambda: cls(**found, **{"pattern": pattern, **options}))

    def write_gpt2(self, merges: Path, encoder: Path) -> None:
        """Write the two files of GPT-2; the pattern isn't in them."""
        gpt2_files.write(merges, encoder, self.vocabulary, self.pairs(), self.special_tokens)

    @classmethod
    def read_huggingface(cls, path: Path) -> BPE:
        """Read a `tokenizer.json` of Hugging Face's with a byte-level BPE; what it has beyond that is refused."""
        found = huggingface.read(path)
        return ranks.made(path, lambda: cls(**found))

    def write_huggingface(self, path: Path) -> None:
        """Write a `tokenizer.json` for Hugging Face's `tokenizers` and `transformers`."""
        huggingface.write(path, self)

    def state(self) -> dict[str, Any]:
        """All that the tokenizer is, of strings, numbers, lists and dicts."""
        return {
            "kind": "BPE", "vocabulary": {shown(token): number for token, number in self.vocabulary.items()},
            "merges": None if self.merges is None else [[*pair] for pair in self.merges], "pattern": self.pattern,
            "whole": self.whole, "special_tokens": self.special_tokens, "bos": self.bos, "eos": self.eos,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> BPE:
        """The tokenizer that has this state."""
        state = {**state}
        vocabulary: dict[bytes, int] = {}
        for token, number in state.pop("vocabulary").items():
            raw = unshown(token)
            if raw is None:
                raise TokenizerError(f"the token {token!r:.60} isn't written in the characters that stand for bytes")
            vocabulary[raw] = number
        merges = state.pop("merges")
        if merges is not None:
            merges = [tuple(pair) if isinstance(pair, list) else pair for pair in merges]
        return super().from_state({**state, "vocabulary": vocabulary, "merges": merges})


def _by_id(vocabulary: dict[bytes, int]) -> dict[int, bytes]:
    """Tokens by id, each with an id of its own."""
    found: dict[int, bytes] = {}
    for token, number in vocabulary.items():
        if not isinstance(token, bytes) or not token:
            raise TokenizerError(f"a token is at least one byte, not {token!r:.60}")
        other = found.setdefault(checked_id(number, f"the token {token!r:.60}"), token)
        if other is not token:
            raise TokenizerError(f"the tokens {other!r:.60} and {token!r:.60} have the same id, {number}")
    return found


def _refuse_gaps(ordinary: dict[int, bytes], names: dict[str, int]) -> None:
    taken = {*names.values()}
    gaps = [number for number in range(max(ordinary, default=-1)) if number not in ordinary and number not in taken]
    if gaps:
        raise TokenizerError(
            f"no token has id {gaps[0]} (and {len(gaps) - 1} others), though there are larger ones. If a special token "
            f"has it, say so: special_tokens={{'<|endoftext|>': {gaps[0]}}}"
        )


def _check_merge(place: int, pair: Any, ordinary: dict[int, bytes], vocabulary: dict[bytes, int]) -> None:
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(type(part) is int for part in pair):
        raise TokenizerError(f"merge {place} is {pair!r:.60}; a merge is a pair of ids")
    lost = [part for part in pair if part not in ordinary]
    if lost:
        raise TokenizerError(f"merge {place} is of {pair}, but no token has id {lost[0]}")
    token = ordinary[pair[0]] + ordinary[pair[1]]
    if token not in vocabulary:
        raise TokenizerError(f"merge {place}, of {pair}, makes {token!r:.60}, which isn't in the vocabulary")


def _counted(text: Any, pattern: str | None, names: frozenset[str]) -> dict[bytes, int]:
    """How often each piece occurs."""
    counts: Counter[str] = Counter()
    for each in texts_of(text):
        for stretch, _ in special.split(each, names):
            counts.update(patterns.pieces(pattern, stretch))
    return {piece.encode("utf-8", "surrogateescape"): count for piece, count in counts.items()}
