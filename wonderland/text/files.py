"""Files of tokenizers: what `Tokenizer.save` wrote, or Hugging Face's `tokenizer.json`, comes in."""

from __future__ import annotations

import os
from typing import Any

from wonderland.core.errors import ArgumentError
from wonderland.text.bpe import BPE
from wonderland.text.characters import Characters
from wonderland.text.reading import part, read_json, refuse
from wonderland.text.tokenizer import FORMAT, Tokenizer
from wonderland.text.words import Words

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Characters, Words, BPE)}
NAMES = {"special_tokens": (dict, list), "bos": (str,), "eos": (str,)}
FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "Characters": {"vocabulary": (list,), "unknown": (str,), **NAMES},
    "Words": {"vocabulary": (list,), "unknown": (str,), "lower": (bool,), **NAMES},
    "BPE": {"vocabulary": (dict,), "merges": (list,), "pattern": (str,), "whole": (bool,), **NAMES},
}
REQUIRED = ("vocabulary", "special_tokens")


def load(path: str | os.PathLike[str]) -> Tokenizer:
    """Read a tokenizer that `save` wrote, or a `tokenizer.json` of Hugging Face's with a byte-level BPE.

    tiktoken's ranks and GPT-2's two files don't say how text is cut: `BPE.read_tiktoken` and `BPE.read_gpt2`.
    """
    found = read_json(path)
    if "format" not in found and "model" in found:
        return BPE.read_huggingface(path)
    if found.get("format") != FORMAT:
        refuse(path, f"it isn't a tokenizer: 'format' is {found.get('format')!r:.60}, not {FORMAT!r}")
    if found.get("version") != 1:
        refuse(path, f"it has version {found.get('version')!r:.30}; this wonderland reads version 1")
    return from_state(path, {name: value for name, value in found.items() if name not in ("format", "version")})


def from_state(path: str | os.PathLike[str], found: Any) -> Tokenizer:
    """The tokenizer of a state that was read from a file, and may be damaged."""
    if not isinstance(found, dict):
        refuse(path, f"a tokenizer is a JSON object, not {type(found).__name__}")
    kind = part(path, found, "kind", str)
    if kind not in KINDS:
        refuse(path, f"its kind is {kind!r:.60}, not one of {', '.join(KINDS)}")
    state = {
        name: part(path, found, name, *types) if name in REQUIRED else part(path, found, name, *types, default=None)
        for name, types in FIELDS[kind].items()
    }
    unknown = found.keys() - state.keys() - {"kind"}
    if unknown:
        refuse(path, f"it has {min(unknown)!r:.60}, which a tokenizer of kind {kind} doesn't have")
    try:
        return KINDS[kind].from_state(state)
    except (ValueError, ArgumentError) as error:
        refuse(path, str(error))
