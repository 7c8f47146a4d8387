"""Bytes as printable characters, one for each, as GPT-2's files and Hugging Face's have them."""

from __future__ import annotations

# Bytes that print stand for themselves; the others, in order, for the characters from U+0100 on.
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
ORDER: list[int] = _PRINTED + [value for value in range(256) if value not in {*_PRINTED}]  # by their characters
_CHARACTERS = {value: chr(value) for value in _PRINTED}
_CHARACTERS |= {value: chr(0x100 + i) for i, value in enumerate(ORDER[len(_PRINTED) :])}
_TO_BYTES = {character: value for value, character in _CHARACTERS.items()}


def shown(token: bytes) -> str:
    """Bytes as characters."""
    return token.decode("latin-1").translate(_CHARACTERS)


def unshown(token: str) -> bytes | None:
    """The bytes that characters stand for; None if one of them stands for none."""
    try:
        return bytes([_TO_BYTES[character] for character in token])
    except KeyError:
        return None
