"""How numbers, durations and tables of them are written for people: in the bar, in logs, in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def number(value: Any, digits: int = 4) -> str:
    """A number in few characters: integers whole, others with `digits` significant digits; text as it is.

    number(0.123456) is "0.1235", number(1e-5) "1e-05", number(12) "12", number(None) "".
    """
    if value is None or isinstance(value, (str, bool)):
        return "" if value is None else str(value)
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    try:
        value = float(value)
    except (TypeError, ValueError):
        return str(value)
    text = f"{value:#.{digits}g}"
    if "e" in text or value != value or value in (float("inf"), float("-inf")):
        return f"{value:.{max(1, digits - 1)}g}"
    return text.rstrip(".")


def duration(seconds: float) -> str:
    """Seconds as people read them: "0.35 s", "12 s", "3:07", "1:02:03", "2 d 3 h"."""
    if not seconds < float("inf"):  # NaN, too
        return "?"
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if whole < 60:
        return f"{whole} s"
    if hours < 48:
        return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    return f"{hours // 24} d {hours % 24} h"


def cell(name: str, value: Any) -> str:
    """What stands in a column of this name: seconds with one or two digits, numbers, nothing for what is missing."""
    if value is None:
        return ""
    if name == "seconds" and value == value:
        return f"{float(value):.2f}" if float(value) < 10 else f"{float(value):.1f}"
    if name in ("epoch", "step") and value == value:
        return str(int(value))
    if name == "rate":  # mostly a round number
        return f"{float(value):.4g}"
    return number(value)


def heading(name: str) -> list[str]:
    """The lines of a column's heading: a long name is broken at its underscores, so that its column stays narrow."""
    if len(name) <= 9:
        return [name]
    lines: list[str] = []
    for part in name.split("_"):
        if lines and len(lines[-1]) + 1 + len(part) <= 10:
            lines[-1] += "_" + part
        else:
            lines.append(part)
    return lines


def headings(names: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines over a table, each heading at the right and at the bottom of its column."""
    parts = [heading(name) for name in names]
    height = max((len(part) for part in parts), default=0)
    filled = [[""] * (height - len(part)) + part for part in parts]
    return ["  ".join(part[i].rjust(w) for part, w in zip(filled, widths)) for i in range(height)]


def width(name: str, least: int = 0) -> int:
    """How wide the column of this name is at least."""
    return max(least, *(len(line) for line in heading(name)))


def text_table(columns: Mapping[str, Sequence[str]]) -> str:
    """Columns of text as a table, aligned to the right, under their names."""
    widths = [width(name, max((len(text) for text in texts), default=0)) for name, texts in columns.items()]
    rows = ["  ".join(text.rjust(w) for text, w in zip(row, widths)) for row in zip(*columns.values())]
    return "\n".join([*headings([*columns], widths), *rows])


def thinned(count: int, most: int) -> list[int]:
    """At most `most` of the rows 0 to count - 1, evenly, with the first and the last."""
    if count <= most:
        return [*range(count)]
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
