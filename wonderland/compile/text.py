"""Numbers for a person to read."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """1 buffer, 2 buffers."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Bytes for a person to read."""
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{_short(count / 1024**power)} {' KMGT'[power]}B"


def duration(seconds: float) -> str:
    """A time for a person to read."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{_short(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"
