"""The tokens of a text for people: coloured in a terminal and in a notebook."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Sequence

import numpy as np

COLOURS = ("194", "223", "189", "224", "159", "229")  # of a terminal's 256: light ones, with black letters
WEB = ("#d7ffd7", "#ffd7af", "#d7d7ff", "#ffd7d7", "#afffff", "#ffffaf")
MARKS = {"\n": "↵\n", "\t": "⇥"}


class TokenView:
    """A text as its tokens, neighbours in different colours; made by `tokenizer.visualize(text)`.

    Printed to a terminal, or in a notebook, it has colours; elsewhere (or with NO_COLOR set) there are bars between the
    tokens. Bytes that aren't a whole character are written as \\xe2. `ids` and `pieces` are what is shown.
    """

    def __init__(self, ids: np.ndarray, pieces: Sequence[bytes]):
        self.ids: np.ndarray = ids
        self.pieces: list[bytes] = [*pieces]

    def __str__(self) -> str:
        if not _has_colours():
            return "|".join(map(_readable, self.pieces))
        return "".join(_painted(_readable(piece), i) for i, piece in enumerate(self.pieces))

    def __repr__(self) -> str:
        return f"{len(self.ids)} tokens:\n{self}"

    def _repr_html_(self) -> str:
        spans = (
            f'<span style="background: {WEB[i % len(WEB)]}; color: black" title="{number}">'
            f"{html.escape(_readable(piece))}</span>"
            for i, (number, piece) in enumerate(zip(self.ids.tolist(), self.pieces))
        )
        return f'<pre style="white-space: pre-wrap">{"".join(spans)}</pre>'


def _painted(text: str, i: int) -> str:
    # Colour ends before a line does, or the terminal fills the rest of the line with it.
    start, end = f"\033[30;48;5;{COLOURS[i % len(COLOURS)]}m", "\033[0m"
    return "\n".join(f"{start}{line}{end}" if line else "" for line in text.split("\n"))


def _readable(piece: bytes) -> str:
    """The text of a token; what can't be seen is marked, and what would move the cursor is escaped."""
    text = piece.decode("utf-8", "backslashreplace")
    return "".join(MARKS.get(c) or (c if c.isprintable() else c.encode("unicode_escape").decode()) for c in text)


def _has_colours() -> bool:
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
