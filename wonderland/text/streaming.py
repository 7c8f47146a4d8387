"""Decoding while tokens arrive: ids come in one by one, text goes out as soon as its characters are whole."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wonderland.text.tokenizer import Tokenizer


class StreamingDecoder:
    """Turns ids into text, one or several at a time; made by `tokenizer.decoder()`.

    A token may end in the middle of a character: its first bytes wait for the rest, and nothing of a character is
    returned before all of it is there. The pieces joined are what `decode` gives for all ids.

    decoder = tokenizer.decoder()
    for token in tokens:
        print(decoder.feed(token), end="", flush=True)
    print(decoder.finish())
    """

    def __init__(self, tokenizer: Tokenizer, errors: str = "replace", special: bool = True):
        self._tokenizer, self._special = tokenizer, special
        self._text = codecs.getincrementaldecoder("utf-8")(errors)
        self._begun = False

    def feed(self, ids: Any) -> str:
        """The text that is certain after one more id, or several."""
        return self._text.decode(self._bytes(ids))

    def finish(self) -> str:
        """The rest: what is left of a character that never became whole, as "\ufffd" unless errors say otherwise."""
        self._begun = False
        rest = self._text.decode(b"", final=True)
        self._text.reset()
        return rest

    def _bytes(self, ids: Any) -> bytes:
        pieces = self._tokenizer.pieces(ids, special=self._special)
        between = self._tokenizer.separator if self._begun and pieces else b""
        self._begun |= bool(pieces)
        return between + self._tokenizer.separator.join(pieces)
