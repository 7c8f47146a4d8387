"""What all tokenizers have: text comes in, ids go out, and back. What differs is in the subclasses.

A subclass has `_ordinary(text)`, the ids of a text without special tokens; `_bytes`, the bytes of each id; and
`state()`, all that it is, as JSON has it.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.safetensors import replace
from wonderland.text import special
from wonderland.text.display import TokenView
from wonderland.text.faults import TokenizerError
from wonderland.text.special import Chosen
from wonderland.text.streaming import StreamingDecoder

FORMAT = "wonderland tokenizer"  # what a file of `save` says it is


class Tokenizer(ABC):
    """Text to ids and back: `Characters`, `Words` and `BPE`.

    special_tokens: names, each with its id, that stand for themselves in a text and are never made of it by accident.
    bos, eos: those of them that begin and end a text, if there are such.
    """

    separator = b""  # what `decode` writes between tokens
    special_tokens: dict[str, int]
    bos: str | None
    eos: str | None
    _bytes: dict[int, bytes]

    def _finish(self, ordinary: dict[int, bytes], special_tokens: dict[str, int], bos: Any, eos: Any) -> None:
        """The end of a constructor: ids of ordinary and special tokens are different, and bos and eos are there."""
        self.special_tokens, self.bos, self.eos = special_tokens, bos, eos
        for name, number in special_tokens.items():
            if number in ordinary:
                raise TokenizerError(f"the special token {name!r} has id {number}, which {ordinary[number]!r} has, too")
        self._bytes = ordinary | {number: name.encode() for name, number in special_tokens.items()}
        if len(self._bytes) < len(ordinary) + len(special_tokens):
            raise TokenizerError("two special tokens have the same id")
        for name, what in ((bos, "bos"), (eos, "eos")):
            if name is not None and name not in special_tokens:
                raise ArgumentError(f"{what}={name!r} isn't a special token; they are {[*special_tokens]}")

    @property
    def vocab_size(self) -> int:
        """How many rows an embedding needs: the largest id, and one."""
        return max(self._bytes, default=-1) + 1

    # Encoding

    @abstractmethod
    def _ordinary(self, text: str) -> np.ndarray:
        """The ids of a text in which nothing is special; bytes that are no UTF-8 are in it as lone surrogates."""

    def encode(
        self, text: str | bytes, *, bos: bool = False, eos: bool = False, allowed_special: Chosen = (),
        disallowed_special: Chosen = "all",
    ) -> np.ndarray:  # fmt: skip
        """The ids of a text (int64), with those of `bos` before and `eos` after it if they are asked for.

        A special token in the text is an error, unless it is one of `allowed_special`, which become their ids, or
        `disallowed_special` leaves it out, and it is text like any other. Both are sets of names, or "all".
        """
        text = text_of(text)
        before = [self._number(self.bos, "bos")] if bos else []
        after = [self._number(self.eos, "eos")] if eos else []
        if not self.special_tokens:
            allowed: frozenset[str] = special.chosen(allowed_special, {}, "allowed_special")
        else:
            allowed = special.chosen(allowed_special, self.special_tokens, "allowed_special")
            disallowed = special.chosen(disallowed_special, self.special_tokens, "disallowed_special")
            special.refuse(text, disallowed - allowed)
        if not (allowed or bos or eos):
            return self._ordinary(text)
        parts: list[Any] = [before]
        for ordinary, name in special.split(text, allowed):
            parts += [self._ordinary(ordinary), [self.special_tokens[name]] if name else []]
        return np.concatenate([*(np.asarray(part, np.int64) for part in parts), np.asarray(after, np.int64)])

    def encode_batch(self, texts: Iterable[str | bytes], **options: Any) -> list[np.ndarray]:
        """The ids of each of several texts; options as for `encode`. `wl.data.pad` makes one array of them."""
        if isinstance(texts, (str, bytes)):
            raise ArgumentError("encode_batch takes several texts; for one write encode(text), or [text]")
        return [self.encode(text, **options) for text in texts]

    def _number(self, name: str | None, what: str) -> int:
        if name is None:
            raise ArgumentError(f"this tokenizer has no {what} token: make it with {what}= and a special token's name")
        return self.special_tokens[name]

    # Decoding

    def pieces(self, ids: Any, *, special: bool = True) -> list[bytes]:
        """The bytes of each id; without the special tokens, if `special` is False."""
        array = np.asarray(ids)
        if array.dtype.kind not in "iu" and array.size:
            raise ArgumentError(f"ids are whole numbers, not {array.dtype}")
        numbers = array.ravel().tolist()
        if array.ndim > 1:
            raise ArgumentError(f"ids have one axis, not {array.ndim}: for several texts use decode_batch")
        if not special:
            left_out = {*self.special_tokens.values()}
            numbers = [number for number in numbers if number not in left_out]
        try:
            return [self._bytes[number] for number in numbers]
        except KeyError:
            place, number = next((i, n) for i, n in enumerate(numbers) if n not in self._bytes)
            raise TokenizerError(
                f"there is no token with id {number} (at {place}); this {type(self).__name__} has {len(self._bytes)}, "
                f"up to {self.vocab_size - 1}. Filling has to be cut off before decoding"
            ) from None

    def decode_bytes(self, ids: Any, *, special: bool = True) -> bytes:
        """The bytes of a text, from its ids."""
        return self.separator.join(self.pieces(ids, special=special))

    def decode(self, ids: Any, *, errors: str = "replace", special: bool = True) -> str:
        """The text of ids; bytes that are no UTF-8 are as `bytes.decode(errors=)` has them."""
        return self.decode_bytes(ids, special=special).decode(errors=errors)

    def decode_batch(self, batch: Iterable[Any], **options: Any) -> list[str]:
        """The text of each of several sequences of ids; options as for `decode`."""
        return [self.decode(ids, **options) for ids in batch]

    def decoder(self, *, errors: str = "replace", special: bool = True) -> StreamingDecoder:
        """An object that decodes ids as they arrive."""
        return StreamingDecoder(self, errors, special)

    # Looking, keeping

    def visualize(self, text: str | bytes, **options: Any) -> TokenView:
        """The tokens of a text in colours: print it, or leave it at the end of a notebook's cell."""
        ids = self.encode(text, **options)
        return TokenView(ids, self.pieces(ids))

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that the tokenizer is, of strings, numbers, lists and dicts."""

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        """The tokenizer that has this state."""
        return cls(**{name: value for name, value in state.items() if name != "kind"})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a JSON file, which `wl.text.load` reads; all or nothing."""
        text = json.dumps({"format": FORMAT, "version": 1, **self.state()}, ensure_ascii=False)
        replace(path, [text.encode()])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.state() == self.state()  # type: ignore[attr-defined]

    __hash__ = object.__hash__

    def __reduce__(self) -> Any:  # pickles hold no tables that are made again, nor compiled patterns
        return type(self).from_state, (self.state(),)

    def __repr__(self) -> str:
        special = f", special: {', '.join(self.special_tokens)}" if self.special_tokens else ""
        return f"{type(self).__name__}(vocab_size={self.vocab_size}{special})"


def texts_of(text: Any) -> Iterator[str]:
    """The texts that something is learnt from: one, or several."""
    if isinstance(text, os.PathLike) or not isinstance(text, (str, bytes, Iterable)):
        read = ": for a file write path.read_bytes()" if isinstance(text, os.PathLike) else ""
        raise ArgumentError(f"train takes a text, or several, not {type(text).__name__}{read}")
    return map(text_of, [text] if isinstance(text, (str, bytes, bytearray, memoryview)) else text)


def text_of(text: Any) -> str:
    """Text as a string; bytes that are no UTF-8 become lone surrogates, from which the bytes can be had again."""
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text).decode("utf-8", "surrogateescape")
    if not isinstance(text, str):
        raise ArgumentError(f"a text is a string or bytes, not {type(text).__name__}; for several use encode_batch")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"the text has {text[error.start]!r} at character {error.start}, half of a surrogate pair, which has "
                "no UTF-8: read the file with errors='replace', or pass its bytes"
            ) from None
    return text
