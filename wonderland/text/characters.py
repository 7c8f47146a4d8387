"""One token for each character."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.text.faults import TokenizerError, checked_special
from wonderland.text.tokenizer import Tokenizer, texts_of


class Characters(Tokenizer):
    """One token for each character of a vocabulary.

    Ids are the places in `vocabulary`; the special tokens (a list, or a dict with ids of their own) come after them.
    unknown: a special token for the characters that aren't in the vocabulary, which are an error without.

    tokenizer = wl.text.Characters.train("to be or not to be")
    tokenizer.decode(tokenizer.encode("bot"))
    """

    def __init__(
        self, vocabulary: Iterable[str], *, unknown: str | None = None,
        special_tokens: Iterable[str] | Mapping[str, int] = (), bos: str | None = None, eos: str | None = None,
    ):  # fmt: skip
        self.vocabulary: list[str] = [*vocabulary]
        for character in self.vocabulary:
            if not isinstance(character, str) or len(character) != 1 or "\ud800" <= character <= "\udfff":
                raise TokenizerError(f"a vocabulary of characters has {character!r}, which isn't one")
        if len({*self.vocabulary}) < len(self.vocabulary):
            twice = next(c for i, c in enumerate(self.vocabulary) if c in self.vocabulary[:i])
            raise TokenizerError(f"the vocabulary has {twice!r} twice")
        names = checked_special(special_tokens, first=len(self.vocabulary))
        self.unknown = unknown
        if unknown is not None and unknown not in names:
            raise ArgumentError(f"unknown={unknown!r} isn't a special token; they are {[*names]}: add it to them")
        self._finish({i: c.encode() for i, c in enumerate(self.vocabulary)}, names, bos, eos)
        self._codes = _codes("".join(self.vocabulary))
        self._order = np.argsort(self._codes)

    @classmethod
    def train(cls, text: str | bytes | Iterable[str | bytes], **options: Any) -> Characters:
        """The characters that occur in a text, or in several, sorted; options as for `Characters`."""
        found = {character for each in texts_of(text) for character in {*each}}
        return cls(sorted(found), **options)

    def _ordinary(self, text: str) -> np.ndarray:
        codes = _codes(text)
        if not self.vocabulary:
            ids, known = np.zeros(len(codes), np.int64), np.zeros(len(codes), bool)
        else:
            place = np.searchsorted(self._codes, codes, sorter=self._order).clip(max=len(self.vocabulary) - 1)
            ids = self._order[place]
            known = self._codes[ids] == codes
        if not known.all():
            if self.unknown is None:
                where = int(known.argmin())
                raise TokenizerError(
                    f"the text has {text[where]!r} at character {where}, which isn't one of the "
                    f"{len(self.vocabulary)} of the vocabulary: train with a text that has it, or give a special token "
                    "for all such ones, unknown="
                )
            ids = np.where(known, ids, self.special_tokens[self.unknown])
        return ids.astype(np.int64)

    def state(self) -> dict[str, Any]:
        """All that the tokenizer is, of strings, numbers, lists and dicts."""
        return {
            "kind": "Characters", "vocabulary": self.vocabulary, "unknown": self.unknown,
            "special_tokens": self.special_tokens, "bos": self.bos, "eos": self.eos,
        }  # fmt: skip


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
