"""Batches that come from elsewhere: an iterable of batches comes in, something with a Loader's interface goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.datasets import Batch
from wonderland.data.faults import DataError, count_of
from wonderland.data.loaders import Loader


class Batches:
    """Batches from any iterable, with the `epoch`, `position` and `state()` of a `Loader`.

    batches: a list, or anything that can be iterated anew for each epoch; or a function of the number of the epoch that
    returns an iterable. An iterator (a generator, say) can be gone through once, so it is good for one epoch, and an
    error says so after it. A batch is a tuple or dict of arrays; one array alone becomes a tuple of one. To go on in
    the middle of an epoch, the batches before it are made and thrown away.

    length: how many batches an epoch has; it ends there if the iterable has more, so endless ones need it. Without one,
    an epoch has as many as come.

    wl.data.Batches(lambda epoch: (draw(epoch, k) for k in range(100)), length=100)
    """

    def __init__(self, batches: Iterable[Any] | Callable[[int], Iterable[Any]], length: int | None = None):
        if isinstance(batches, (str, bytes, Mapping)) or not (callable(batches) or hasattr(batches, "__iter__")):
            raise ArgumentError(
                f"Batches takes an iterable of batches, or a function of the epoch that returns one, not "
                f"{type(batches).__name__}"
            )
        if length is None and hasattr(batches, "__len__"):
            length = len(batches)  # type: ignore[arg-type]
            if not length:
                raise DataError(f"there are no batches: the {type(batches).__name__} is empty")
        self.source: Any = batches
        self.length: int | None = None if length is None else count_of(length, "length")
        self._said = self.length  # None: an epoch has as many as come, and `length` is how many the last one had
        self.once: bool = isinstance(batches, Iterator)
        self.epoch: int = 0
        self.position: int = 0
        self._iteration = 0
        self._read = 0  # how many batches an iterator has given

    def __len__(self) -> int:
        """The batches of an epoch, if that is known."""
        if self.length is None:
            raise TypeError("how many batches an epoch has isn't known: say it, wl.data.Batches(batches, length=...)")
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        self._iteration += 1
        return self._run(self._iteration)

    def _run(self, iteration: int) -> Iterator[Batch]:
        iterator = self._begun()
        left = None if self._said is None else self._said - self.position
        for batch in islice(iterator, left):
            self._check_turn(iteration)
            self.position += 1
            yield _as_batch(batch, self.position - 1)
        self._check_turn(iteration)
        if self._said is not None and self.position < self._said:
            raise DataError(
                f"epoch {self.epoch} ended after {self.position} batches, but length={self._said} was said"
            )
        if not self.position:
            raise DataError(f"there are no batches in epoch {self.epoch}")
        self.length = self.position
        self.epoch, self.position = self.epoch + 1, 0

    def _begun(self) -> Iterator[Any]:
        """This epoch's iterator, at this position."""
        if self.once:
            if self.epoch:
                raise DataError(
                    f"a {type(self.source).__name__} of batches can be gone through once, but epoch {self.epoch} is "
                    "asked for: pass a list, or a function of the epoch that makes it anew"
                )
            if self._read > self.position:
                raise DataError(
                    f"a {type(self.source).__name__} of batches can't go back to batch {self.position}: it has given "
                    f"{self._read}; pass a list, or a function of the epoch that makes it anew"
                )
            iterator, skipped = self._counted(self.source), self.position - self._read
        else:
            found: Any = self.source(self.epoch) if callable(self.source) else self.source
            if not hasattr(found, "__iter__"):
                raise DataError(f"the function of Batches returned {type(found).__name__}, not an iterable of batches")
            iterator, skipped = iter(found), self.position
        if len([None for _ in islice(iterator, skipped)]) < skipped:
            raise DataError(f"epoch {self.epoch} has fewer batches than the {self.position} of the state to go on from")
        return iterator

    def _counted(self, source: Iterator[Any]) -> Iterator[Any]:
        for batch in source:
            self._read += 1
            yield batch

    def _check_turn(self, iteration: int) -> None:
        if iteration != self._iteration:
            raise RuntimeError("another loop over these Batches has begun: one runs at a time")

    def samples(self, number: int) -> None:
        """How many samples a batch has isn't known before it is there."""
        return None

    def state(self) -> dict[str, Any]:
        """Where it is; it can be written as JSON."""
        return {"epoch": self.epoch, "position": self.position, "length": self.length}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there: the batches before are made again when the next loop begins."""
        if not {"epoch", "position", "length"} <= {*state}:
            raise ArgumentError(f"this isn't the state of Batches: it has {[*state]}")
        if self._said is not None and state["length"] not in (None, self._said):
            raise DataError(f"the state is of Batches with {state['length']} in an epoch, here are {self._said}")
        epoch, position = count_of(state["epoch"], "epoch", 0), count_of(state["position"], "position", 0)
        self.epoch, self.position = epoch, position
        self._iteration += 1


def _as_batch(batch: Any, number: int) -> Batch:
    if isinstance(batch, (tuple, dict)):
        return batch
    if isinstance(batch, list):
        return tuple(batch)
    if hasattr(batch, "shape"):
        return (batch,)
    raise DataError(f"batch {number} is a {type(batch).__name__}: a batch is a tuple or dict of arrays")


def as_loader(data: Any, **options: Any) -> Loader | Batches:
    """What can be iterated for training: a Loader or Batches as they are, a Loader of arrays or a dataset, Batches of
    any other iterable. `options` are those of `Loader`, for what isn't one yet.

    wl.data.as_loader((x, y), batch_size=64, shuffle=True)
    """
    if isinstance(data, (Loader, Batches)):
        return data
    source: Any = data
    known = isinstance(data, (tuple, Mapping)) or hasattr(data, "shape") or hasattr(data, "columns")
    if isinstance(data, list) and data and all(isinstance(batch, (tuple, dict)) for batch in data):
        values = data[0].values() if isinstance(data[0], dict) else data[0]
        if any(isinstance(value, (int, float, np.number)) for value in values):
            raise ArgumentError(
                "a list of batches has arrays in it, not numbers: samples go into wl.data.Samples(list)"
            )
        return Batches(data)
    if not known and not hasattr(data, "__getitem__") and (callable(data) or hasattr(data, "__iter__")):
        return Batches(source)
    return Loader(data, **options)
