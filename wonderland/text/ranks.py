"""tiktoken's files of ranks: on each line a token, in base64, and its rank, which is its id."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wonderland.nn.safetensors import replace
from wonderland.text.faults import MOST, TokenizerError
from wonderland.text.reading import Path, lines, refuse

T = TypeVar("T")


def made(path: Path, make: Callable[[], T]) -> T:
    """What is made of a file; what is wrong with it is said with its name."""
    try:
        return make()
    except TokenizerError as error:
        name = os.fspath(path)
        raise error if str(error).startswith(name) else TokenizerError(f"{name}: {error}") from None


def read(path: Path) -> dict[bytes, int]:
    """Ranks by token."""
    found: dict[bytes, int] = {}
    places: dict[int, int] = {}
    for number, line in lines(path):
        fields = line.split()
        if len(fields) != 2:
            refuse(path, f"a line has a token in base64, a space and its rank; this is {line[:60]!r}", number)
        try:
            token = base64.b64decode(fields[0], validate=True)
        except binascii.Error as error:
            refuse(path, f"the token {fields[0][:60]!r} isn't base64: {error}", number)
        if not fields[1].isdigit() or len(fields[1]) > 9 or int(fields[1]) >= MOST:
            refuse(path, f"the rank {fields[1][:30]!r} isn't a whole number from 0 to {MOST - 1}", number)
        rank = int(fields[1])
        if not token or token in found:
            refuse(path, f"the token {token!r:.60} {'is there twice' if token else 'is empty'}", number)
        if places.setdefault(rank, number) != number:
            refuse(path, f"rank {rank} is that of line {places[rank]}, too", number)
        found[token] = rank
    if not found:
        refuse(path, "it has no ranks")
    lacking = [value for value in range(256) if bytes([value]) not in found]
    if lacking:
        refuse(path, f"it has no rank for the byte {lacking[0]:#04x} (and {len(lacking) - 1} others)")
    return found


def write(path: Path, vocabulary: Mapping[bytes, int]) -> None:
    """Write the tokens in the order of their ranks."""
    ordered: list[Any] = sorted(vocabulary.items(), key=lambda item: item[1])
    replace(path, [b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ordered)])
