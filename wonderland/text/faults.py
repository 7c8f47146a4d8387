"""What is wrong with a tokenizer, its file or its text, and the checks that several files share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wonderland.core.errors import ArgumentError

MOST = 2**24  # ids; no vocabulary is as large, and a model would need rows for all of them


class TokenizerError(ValueError):
    """Text that a tokenizer can't encode, or a file that isn't one. The message names the place, or file and line."""


def checked_id(value: Any, what: str) -> int:
    """A token's number."""
    if type(value) is not int or not 0 <= value < MOST:
        raise TokenizerError(f"{what} has id {value!r:.40}; an id is a whole number from 0 to {MOST - 1}")
    return value


def has_surrogates(text: str) -> bool:
    """Is there half of a surrogate pair in a string, as JSON can write it?"""
    return any("\ud800" <= character <= "\udfff" for character in text)


def checked_special(special_tokens: Any, first: int = 0) -> dict[str, int]:
    """Special tokens with their ids: a dict of them, or names that get the next ids from `first`."""
    if isinstance(special_tokens, (str, bytes)) or not isinstance(special_tokens, Iterable):
        came = f"{type(special_tokens).__name__} ({str(special_tokens)[:40]!r})"
        raise ArgumentError(f"special_tokens is a list of strings, or a dict from them to ids, not {came}")
    if not isinstance(special_tokens, Mapping):
        names = [*special_tokens]
        wrong = next((name for name in names if not isinstance(name, str)), "")
        if wrong != "":
            raise TokenizerError(f"a special token is a string of at least one character, not {wrong!r:.60}")
        special_tokens = {name: first + i for i, name in enumerate(names)}
        if len(special_tokens) < len(names):
            raise TokenizerError("a special token is there twice")
    for name, number in special_tokens.items():
        if not isinstance(name, str) or not name:
            raise TokenizerError(f"a special token is a string of at least one character, not {name!r}")
        if has_surrogates(name):
            raise TokenizerError(f"the special token {name!r:.60} has half of a surrogate pair, which has no UTF-8")
        checked_id(number, f"the special token {name!r}")
    return dict(special_tokens)
