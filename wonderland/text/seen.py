"""Pieces of text that have been encoded: texts repeat their words, and a look into a dict is all that these cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np

from wonderland.compile.typed import typed

KEPT = 2**22  # characters of pieces; when there are more, they are all forgotten

# Pieces come in; in any order that it likes the same pieces, how many ids each has, and all these ids, go out.
Encode = Callable[[Iterable[str]], tuple[list[str], np.ndarray, np.ndarray]]


class SeenPieces:
    """The ids of pieces, one array for all; a piece has a number, and its ids lie between two bounds.

    Threads may share it. Entries are only added, and arrays are only replaced by longer ones before the dict knows of
    the entries: so whoever has a number finds its ids.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.characters = 0
        self._bounds: np.ndarray = np.zeros(1024, np.int64)
        self._ids: np.ndarray = np.empty(1024, np.int64)
        self._lock = threading.Lock()

    def encode(self, pieces: list[str], encode: Encode) -> np.ndarray:
        """The ids of pieces; those that aren't known yet are encoded first."""
        try:
            numbers = np.fromiter(map(self.numbers.__getitem__, pieces), np.int64, len(pieces))
        except KeyError:
            with self._lock:
                self._add(*encode({*pieces}.difference(self.numbers)))
            numbers = np.fromiter(map(self.numbers.__getitem__, pieces), np.int64, len(pieces))
        bounds, ids = self._bounds, self._ids
        found = np.empty(count_ids(numbers, bounds), np.int64)
        copy_ids(numbers, bounds, ids, found)
        return found

    def _add(self, pieces: list[str], lengths: np.ndarray, ids: np.ndarray) -> None:
        old = len(self.numbers)
        new = old + len(pieces)
        self._bounds = _longer(self._bounds, new + 1)
        first = self._bounds[old]
        np.cumsum(lengths, out=self._bounds[old + 1 : new + 1])
        self._bounds[old + 1 : new + 1] += first
        self._ids = _longer(self._ids, int(self._bounds[new]))
        self._ids[first : self._bounds[new]] = ids
        self.characters += sum(map(len, pieces))
        self.numbers.update(zip(pieces, range(old, new)))

    @property
    def full(self) -> bool:
        """Is it time to begin anew?"""
        return self.characters > KEPT


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """An array with place for so many numbers."""
    if size <= len(array):
        return array
    made = np.empty(max(size, 2 * len(array)), np.int64)
    made[: len(array)] = array
    return made


@typed
def count_ids(numbers, bounds):
    """How many ids all of these pieces have."""
    total = 0
    for i in range(len(numbers)):
        total += bounds[numbers[i] + 1] - bounds[numbers[i]]
    return total


@typed
def copy_ids(numbers, bounds, ids, found):
    """Write the ids of the pieces one after the other."""
    place = 0
    for i in range(len(numbers)):
        for j in range(bounds[numbers[i]], bounds[numbers[i] + 1]):
            found[place] = ids[j]
            place += 1
