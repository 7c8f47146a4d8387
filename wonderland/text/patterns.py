"""Cutting a text into pieces, which no token crosses: by a regular expression, of the package `regex`.

What a pattern doesn't match is a piece of its own, so that no text is lost.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from itertools import pairwise
from typing import Any

from wonderland.core.errors import ArgumentError
from wonderland.text.faults import TokenizerError

# GPT-2's, and those of GPT-4 (cl100k) and GPT-4o (o200k), in forms that backtrack less and match the same. In
# Hugging Face's files they are for Oniguruma, to which `$` and `{1,3}+` mean other things: so they do without.
PATTERNS: dict[str, str] = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s+",
    "gpt4": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt4o": "|".join(
        [
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ]
    ),
}
PATIENCE = 10.0  # seconds that a pattern of somebody else's may take for a short text


@lru_cache(maxsize=32)
def compiled(pattern: str) -> Any:
    """A pattern, or the one of this name in `PATTERNS`, ready to use."""
    try:
        import regex
    except ImportError as error:
        raise ImportError(
            "cutting text by a pattern needs the package regex: pip install 'wonderland[text]'; with pattern=None "
            "tokens may cross words, and it isn't needed"
        ) from error
    try:
        made = regex.compile(PATTERNS.get(pattern, pattern))
    except regex.error as error:
        raise TokenizerError(f"the pattern {pattern!r:.80} is no regular expression: {error}") from None
    if made.groups:
        raise TokenizerError(f"the pattern {pattern!r:.80} has groups that are kept: write (?:...) for (...)")
    return made


def check(pattern: Any) -> None:
    """Refuse what can't be a pattern; where `regex` is missing, without compiling it."""
    if pattern is not None and (not isinstance(pattern, str) or not pattern):
        names = ", ".join(map(repr, PATTERNS))
        raise ArgumentError(f"a pattern is {names}, a regular expression, or None for none, not {pattern!r}")
    if pattern is not None and pattern not in PATTERNS and importlib.util.find_spec("regex") is not None:
        compiled(pattern)


def pieces(pattern: str | None, text: str) -> list[str]:
    """A text in pieces; the pieces together are the text."""
    if not text:
        return []
    if pattern is None:
        return [text]
    if pattern in PATTERNS:  # they match every character
        return compiled(pattern).findall(text)
    seconds = PATIENCE + len(text) / 1e5  # a hundred times what a pattern takes that doesn't try each way there is
    try:
        found = compiled(pattern).findall(text, timeout=seconds)
        if sum(map(len, found)) == len(text):
            return found
        bounds = {0, len(text)}
        for match in compiled(pattern).finditer(text, timeout=seconds):
            bounds |= {match.start(), match.end()}
    except TimeoutError:
        what = f"the pattern {pattern!r:.80} takes more than {seconds:.0f} s"
        raise TokenizerError(f"{what} for {len(text)} characters: it tries too many ways to match") from None
    return [text[i:j] for i, j in pairwise(sorted(bounds))]
