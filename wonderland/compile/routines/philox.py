"""Philox in compiled code, one element at a time: the words of `ops/random.py`, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonderland.compile.ir import INT, LONG, Value
from wonderland.compile.vecmath.formula import where
from wonderland.compile.vecmath.functions import routine

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
LOW = 0xFFFFFFFF


def wide(x: Value) -> Value:
    """A 32-bit word as 64 bits."""
    return x.convert(LONG, signed=False)


def words(counter: tuple[Any, ...], key: tuple[Any, ...]) -> list[Any]:
    """Ten rounds of Philox4x32 on four and two words.

    They are the low halves of 64 bits all the way: vector units multiply them as they are.
    """
    c0, c1, c2, c3 = map(wide, counter)
    k0, k1 = map(wide, key)
    for _ in range(10):
        p0, p1 = (c0 & LOW) * MULTIPLIERS[0], (c2 & LOW) * MULTIPLIERS[1]
        c0, c1 = (p1 >> 32) ^ c1 ^ k0, p1
        c2, c3 = (p0 >> 32) ^ c3 ^ k1, p0
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return [c.convert(INT) for c in (c0, c1, c2, c3)]


def counter(place: Value, attempt: Value | int, purpose: int) -> tuple[Any, ...]:
    """The counter's words for a place (i64, or i32 if places are few)."""
    low = place.convert(INT)
    high = place.like(0) if place.type == INT else (place >> 32).convert(INT)
    return low, high, low.like(attempt), low.like(purpose)


def pairs(words: Sequence[Value]) -> list[Value]:
    """Two words each as one of 64 bits."""
    return [wide(low) | wide(high) << 32 for low, high in zip(words[::2], words[1::2], strict=True)]


@routine(cost=150)
def random_bits(width: int, purpose: int, few: bool, k0: Value, k1: Value, block: Value, lane: Value) -> Value:
    """`width` bits out of a block; `few`: there are less than 2**32 blocks."""
    place = block.convert(INT) if few else block
    found, size = words(counter(place, 0, purpose), (k0, k1)), 32
    if width > 32:
        found, size = pairs(found), 64
    out = found[0]
    for i, word in enumerate(found[1:], 1):
        out = where(lane.equals(i), word, out)
    return out >> size - width if width < size else out
