"""Special tokens in a text: which are taken as such, which are an error, and the text between them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Literal

from wonderland.core.errors import ArgumentError
from wonderland.text.faults import TokenizerError

Chosen = Literal["all"] | Collection[str]  # special tokens, by name


def chosen(names: Chosen, special_tokens: Mapping[str, int], what: str) -> frozenset[str]:
    """The special tokens that an argument means."""
    if names == "all":
        return frozenset(special_tokens)
    if isinstance(names, str):
        raise ArgumentError(f'{what} is "all" or a set of special tokens, not {names!r}: write {{{names!r}}}')
    unknown = [name for name in names if name not in special_tokens]
    if unknown:
        raise ArgumentError(f"{what} has {unknown[0]!r}, which isn't a special token; they are {[*special_tokens]}")
    return frozenset(names)


def refuse(text: str, names: frozenset[str]) -> None:
    """Refuse a text with a special token in it: in a text of somebody else's it would be an order to the model."""
    found = _finder(names).search(text) if names else None
    if found:
        raise TokenizerError(
            f"the text has the special token {found[0]!r} at character {found.start()}. To encode it as that token "
            f"write allowed_special={{{found[0]!r}}}; to encode its characters, disallowed_special=()"
        )


def split(text: str, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The stretches of text without special tokens, each with the special token after it ("" after the last)."""
    place = 0
    for found in _finder(names).finditer(text) if names else ():
        yield text[place : found.start()], found[0]
        place = found.end()
    yield text[place:], ""


@lru_cache(maxsize=64)
def _finder(names: frozenset[str]) -> re.Pattern[str]:
    # The longest first, so that one that begins like another is found.
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))))
