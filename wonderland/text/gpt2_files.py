"""GPT-2's two files: `vocab.bpe`, a merge on each line, and `encoder.json`, ids by token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wonderland.nn.safetensors import replace
from wonderland.text.byte_characters import shown, unshown
from wonderland.text.reading import Path, lines, read_json, refuse, text

HEADER = "#version: 0.2\n"


def read(merges: Path, encoder: Path) -> dict[str, Any]:
    """The arguments of a `BPE`: vocabulary, merges, special tokens."""
    numbers = read_json(encoder)
    pairs: list[tuple[str, str]] = []
    for number, raw in lines(merges):
        line = text(merges, raw, number)
        if number == 1 and line.startswith("#version"):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            refuse(merges, f"a line has two tokens with a space between them; this is {line[:60]!r}", number)
        for token in (*parts, "".join(parts)):
            if token not in numbers:
                refuse(merges, f"the token {token!r:.60} isn't in the vocabulary", number)
        pairs.append((parts[0], parts[1]))
    made = {left + right for left, right in pairs}
    vocabulary: dict[bytes, int] = {}
    special: dict[str, int] = {}
    for token, number in numbers.items():
        raw = unshown(token)
        if raw is not None and (len(raw) == 1 or token in made):
            vocabulary[raw] = number
        elif token in made:
            refuse(encoder, f"the token {token!r:.60} isn't written in the characters that stand for bytes")
        else:
            special[token] = number
    for token in {part for pair in pairs for part in pair}:
        if unshown(token) not in vocabulary:
            refuse(merges, f"the token {token!r:.60} is merged, but no merge makes it and it isn't a byte")
    ids = [(numbers[left], numbers[right]) for left, right in pairs]
    return {"vocabulary": vocabulary, "merges": ids, "special_tokens": special}


def write(
    merges: Path, encoder: Path, vocabulary: Mapping[bytes, int], pairs: Sequence[tuple[int, int]],
    special: Mapping[str, int],
) -> None:  # fmt: skip
    """Write the two files."""
    names = {number: shown(token) for token, number in vocabulary.items()}
    rows = "".join(f"{names[left]} {names[right]}\n" for left, right in pairs)
    replace(merges, [(HEADER + rows).encode()])
    numbers = {name: number for number, name in sorted(names.items())} | dict(special)
    replace(encoder, [json.dumps(numbers, ensure_ascii=False).encode()])
