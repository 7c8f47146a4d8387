"""Text as numbers of tokens: strings or files come in, sequences of integers go out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.datasets import Dataset
from wonderland.data.faults import DataError, count_of

Tokens = Literal["characters", "bytes", "words"] | Callable[[str], Iterable[str]]
WORDS = re.compile(r"\w+|[^\w\s]")


class Text(Dataset):
    """Text as token numbers, in windows for a language model or as whole documents.

    With `length`, sample i is (tokens, next tokens), two arrays of that length: a window of the text, and the same one
    later by one. Windows begin every `step` tokens (`length` if not given), inside one document each. Without `length`,
    a sample is (tokens,) of one whole document, or (tokens, target) with `targets`; lengths differ, so that a Loader
    needs collate=wl.data.pad.

    text: a string, the path of a file (a pathlib.Path), a folder (its *.txt files), or a list of strings and paths.
    tokens: "characters", "bytes", "words" (and each mark), or a function from a string to a list of strings.
    vocabulary: the tokens that have numbers, in order; those that occur, sorted, if not given. Take that of the
    training text for other texts. unknown: a token for those that aren't in the vocabulary, which are an error without.

    corpus = wl.data.Text(Path("shakespeare.txt"), length=64)
    corpus.decode(corpus[0][0])
    """

    def __init__(
        self,
        text: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        length: int | None = None,
        step: int | None = None,
        tokens: Tokens = "characters",
        vocabulary: Sequence[str] | None = None,
        unknown: str | None = None,
        targets: Any = None,
        encoding: str = "utf-8",
    ):
        if not callable(tokens) and tokens not in ("characters", "bytes", "words"):
            raise ArgumentError(f"tokens is 'characters', 'bytes', 'words' or a function of a string, not {tokens!r}")
        if length is not None and targets is not None:
            raise ArgumentError("targets belong to whole documents: leave length away, or targets")
        self.tokens: Tokens = tokens
        self.unknown = unknown
        documents, called = _documents(text, encoding)
        self.sources: list[str] = called
        self.labels: np.ndarray | None = None
        pieces = [self._cut(document) for document in documents]
        if vocabulary is None:
            vocabulary = [] if tokens == "bytes" else sorted({token for piece in pieces for token in piece})
            if unknown is not None and unknown not in vocabulary:
                vocabulary = [unknown, *vocabulary]
        self.vocabulary: list[str] = [*vocabulary]
        self._numbers = {token: number for number, token in enumerate(self.vocabulary)}
        if len(self._numbers) < len(self.vocabulary):
            raise DataError("the vocabulary has a token twice")
        if unknown is not None and tokens != "bytes" and unknown not in self._numbers:
            raise ArgumentError(f"the token for unknown ones, {unknown!r}, isn't in the vocabulary: add it there")
        self.documents: list[np.ndarray] = [self._encoded(p, s) for p, s in zip(pieces, self.sources)]
        self.targets: np.ndarray | None = None if targets is None else np.asarray(targets)
        if self.targets is not None and len(self.targets) != len(documents):
            raise DataError(f"there are {len(documents)} documents, but {len(self.targets)} targets: one for each")
        if self.targets is not None and self.targets.ndim == 1 and self.targets.dtype.kind in "biu":
            self.labels = self.targets
        self.length: int | None = None if length is None else count_of(length, "length")
        self.step: int | None = self.length if step is None else count_of(step, "step")
        self._windows = self._ends()

    def _ends(self) -> np.ndarray:
        """How many windows there are up to the end of each document."""
        if self.length is None or self.step is None:
            return np.arange(1, len(self.documents) + 1)
        counts = [max((len(d) - self.length - 1) // self.step + 1, 0) for d in self.documents]
        if not sum(counts):
            longest = max(map(len, self.documents))
            raise DataError(
                f"no document has the {self.length + 1} tokens that a window with length={self.length} and the token "
                f"after it need: the longest has {longest}"
            )
        return np.cumsum(counts)

    def _cut(self, text: str) -> Iterable[Any]:
        if self.tokens == "characters":
            return text
        if self.tokens == "bytes":
            return text.encode()
        return WORDS.findall(text) if self.tokens == "words" else [*self.tokens(text)]  # type: ignore[operator]

    def _encoded(self, tokens: Iterable[Any], source: str) -> np.ndarray:
        if self.tokens == "bytes":
            return np.frombuffer(tokens, np.uint8).astype(np.int64)  # type: ignore[call-overload]
        rest = -1 if self.unknown is None else self._numbers[self.unknown]
        numbers = np.array([self._numbers.get(token, rest) for token in tokens], np.int64)
        if numbers.size and numbers.min() < 0:
            place = int((numbers < 0).argmax())
            token = [*tokens][place]
            raise DataError(
                f"{source} has {token!r} (token {place}), which isn't in the vocabulary of {len(self.vocabulary)}: "
                "give a vocabulary that has it, or a token for all such ones, unknown='<unknown>' (in the vocabulary)"
            )
        return numbers

    def encode(self, text: str) -> np.ndarray:
        """The token numbers of a text."""
        return self._encoded(self._cut(text), "the text")

    def decode(self, numbers: Any) -> str:
        """The text of token numbers; words are joined with spaces."""
        values = np.asarray(numbers).tolist()
        if self.tokens == "bytes":
            return bytes(values).decode(errors="replace")
        return ("" if self.tokens == "characters" else " ").join([self.vocabulary[number] for number in values])

    def __len__(self) -> int:
        return int(self._windows[-1])

    def name(self, index: int) -> str:
        """Its document, and where its window begins."""
        document, start = self._place(index)
        return self.sources[document] if self.length is None else f"{self.sources[document]}, from token {start}"

    def _place(self, index: int) -> tuple[int, int]:
        """The document of a sample, and where in it the sample begins."""
        document = int(np.searchsorted(self._windows, index, "right"))
        before = int(self._windows[document - 1]) if document else 0
        return document, (index - before) * (self.step or 0)

    def sample(self, index: int) -> tuple[Any, ...]:
        """Window or document `index`."""
        document, start = self._place(index)
        tokens = self.documents[document]
        if self.length is None:
            return (tokens,) if self.targets is None else (tokens, self.targets[document])
        return tokens[start : start + self.length], tokens[start + 1 : start + self.length + 1]

    def __repr__(self) -> str:
        size = 256 if self.tokens == "bytes" else len(self.vocabulary)
        return f"Text({len(self)} samples of {sum(map(len, self.documents))} tokens, {size} different ones)"


def _documents(text: Any, encoding: str) -> tuple[list[str], list[str]]:
    """The texts, and what to call each."""
    if isinstance(text, os.PathLike) and Path(text).is_dir():
        paths = sorted(Path(text).rglob("*.txt"))
        if not paths:
            raise DataError(f"{os.fspath(text)} has no *.txt files in it or below")
        text = paths
    if isinstance(text, (str, os.PathLike)):
        text = [text]
    if not isinstance(text, Sequence) or not all(isinstance(one, (str, os.PathLike)) for one in text):
        raise ArgumentError(f"Text takes a string, a pathlib.Path, or a list of them, not {type(text).__name__}")
    documents = [one if isinstance(one, str) else _read(Path(one), encoding) for one in text]
    sources = [f"document {place}" if isinstance(one, str) else str(one) for place, one in enumerate(text)]
    if not any(documents):
        what = f"{sources[0]} is empty" if len(documents) == 1 else f"all {len(documents)} documents are empty"
        raise DataError(f"there is no text: {what}")
    for one in text:
        if (
            isinstance(one, str)
            and len(one) < 256
            and one.lower().endswith((".txt", ".md", ".py"))
            and os.path.isfile(one)
        ):
            raise ArgumentError(f"{one!r} is taken as the text itself, but there is such a file: pathlib.Path({one!r})")
    return documents, sources


def _read(path: Path, encoding: str) -> str:
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} isn't {encoding} (byte {error.start}): say encoding=, 'latin-1' say") from error
