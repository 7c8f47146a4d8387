"""One token for each word and each mark, by frequency; the rest is unknown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.faults import count_of
from wonderland.text.faults import TokenizerError, checked_special, has_surrogates
from wonderland.text.tokenizer import Tokenizer, texts_of

WORDS = re.compile(r"\w+|[^\w\s]")
SPECIAL = ("<unk>", "<bos>", "<eos>")


class Words(Tokenizer):
    """One token for each word of a vocabulary, and for each mark; white space is lost, `decode` writes one space.

    The special tokens (a list, or a dict with ids of their own) come first, then `vocabulary`. unknown: the special
    token for words that aren't in it, None if they are an error. lower: upper case is lowered before anything else.

    tokenizer = wl.text.Words.train(corpus, vocab_size=10_000)
    tokenizer.encode("to be, or not", bos=True, eos=True)
    """

    separator = b" "

    def __init__(
        self, vocabulary: Iterable[str], *, unknown: str | None = "<unk>",
        special_tokens: Iterable[str] | Mapping[str, int] = SPECIAL, bos: str | None = "<bos>",
        eos: str | None = "<eos>", lower: bool = False,
    ):  # fmt: skip
        self.vocabulary: list[str] = [*vocabulary]
        for word in self.vocabulary:
            if not isinstance(word, str) or WORDS.findall(word) != [word] or has_surrogates(word):
                raise TokenizerError(f"the vocabulary has {word!r}, which isn't one word or one mark")
        names = checked_special(special_tokens)
        self.unknown, self.lower = unknown, bool(lower)
        if unknown is not None and unknown not in names:
            raise ArgumentError(f"unknown={unknown!r} isn't a special token; they are {[*names]}: add it to them")
        free = (number for number in range(len(self.vocabulary) + len(names)) if number not in {*names.values()})
        self._ids: dict[str, int] = dict(zip(self.vocabulary, free))
        if len(self._ids) < len(self.vocabulary):
            word, _ = Counter(self.vocabulary).most_common(1)[0]
            raise TokenizerError(f"the vocabulary has {word!r} twice")
        self._finish({number: word.encode() for word, number in self._ids.items()}, names, bos, eos)

    @classmethod
    def train(
        cls, text: str | bytes | Iterable[str | bytes], vocab_size: int | None = None, *, min_count: int = 1,
        **options: Any,
    ) -> Words:  # fmt: skip
        """The most frequent words of a text, or of several, the more frequent first, equal ones by the alphabet.

        At most `vocab_size` tokens, the special ones included; words that occur less than `min_count` times are left
        out. Other options as for `Words`.
        """
        least = count_of(min_count, "min_count")
        counts: Counter[str] = Counter()
        for each in texts_of(text):
            counts.update(WORDS.findall(each.lower() if options.get("lower") else each))
        found = sorted((word for word, count in counts.items() if count >= least), key=lambda w: (-counts[w], w))
        taken = len(checked_special(options.get("special_tokens", SPECIAL)))
        if vocab_size is not None:
            if count_of(vocab_size, "vocab_size") <= taken:
                raise ArgumentError(f"vocab_size={vocab_size} has no place for words: {taken} tokens are special")
            found = found[: vocab_size - taken]
        return cls(found, **options)

    def _ordinary(self, text: str) -> np.ndarray:
        words = WORDS.findall(text.lower() if self.lower else text)
        rest = -1 if self.unknown is None else self.special_tokens[self.unknown]
        ids = np.fromiter((self._ids.get(word, rest) for word in words), np.int64, len(words))
        if self.unknown is None and ids.size and ids.min() < 0:
            word = words[int(ids.argmin())]
            raise TokenizerError(
                f"the text has {word!r}, which isn't one of the {len(self.vocabulary)} words of the vocabulary: train "
                "with a text that has it, or give a special token for all such ones, unknown="
            )
        return ids

    def state(self) -> dict[str, Any]:
        """All that the tokenizer is, of strings, numbers, lists and dicts."""
        return {
            "kind": "Words", "vocabulary": self.vocabulary, "unknown": self.unknown, "lower": self.lower,
            "special_tokens": self.special_tokens, "bos": self.bos, "eos": self.eos,
        }  # fmt: skip
