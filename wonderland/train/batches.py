"""Where batches come from: a Loader, arrays, a dataset, an iterable, or a function that makes one, all made alike.

Each has `epoch` and `position`, which counts the batches of this epoch that were handed out, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.data.datasets import Dataset
from wonderland.data.faults import DataError
from wonderland.data.loaders import Loader

KINDS = (
    "data is a wl.data.Loader, a dataset, a tuple or dict of arrays, an iterable of batches, or a function without "
    "arguments that returns one"
)


class IteratedBatches:
    """Batches of an iterable, or of one that a function makes anew for each epoch, with a Loader's position.

    After a resume in the middle of an epoch, the batches before are made again and passed over.
    """

    def __init__(self, source: Iterable[Any] | Callable[[], Iterable[Any]]):
        self.source = source
        self.epoch: int = 0
        self.position: int = 0
        self.once: bool = not callable(source) and iter(source) is source
        self._used = False

    def __iter__(self) -> Iterator[Any]:
        if self.once and self._used:
            raise ArgumentError(
                f"this {type(self.source).__name__} gives its batches once, so it is good for one epoch: pass a list, a "
                "wl.data.Loader, or a function that makes a new one"
            )
        self._used = True
        batches = iter(self.source() if callable(self.source) else self.source)
        for number in range(self.position):
            if next(batches, self) is self:
                raise DataError(f"the data has {number} batches, and {self.position} were used when it was saved")
        for batch in batches:
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """Where it is; it can be written as JSON."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if "samples" in state:
            raise ArgumentError(
                "the checkpoint was made with a Loader or with arrays, and data is another iterable now"
            )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._used = False


Batches = Loader | IteratedBatches


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def as_batches(data: Any, batch_size: int | None, shuffle: bool, seed: int, least: int = 32) -> Batches:
    """What `data` means. Without a batch size, `least` samples make a batch, or all if there are fewer."""
    if isinstance(data, (Loader, IteratedBatches)):
        return data
    if isinstance(data, np.ndarray):
        data = (data,)
    arrays = [*data] if isinstance(data, tuple) else [*data.values()] if isinstance(data, dict) else []
    if isinstance(data, Dataset) or (arrays and all(map(is_array, arrays))):
        count = len(data) if isinstance(data, Dataset) else len(arrays[0]) if arrays[0].ndim else 0
        return Loader(data, min(least, count) or 1 if batch_size is None else batch_size, shuffle=shuffle, seed=seed)
    if data is None or isinstance(data, (str, bytes, dict)) or not (callable(data) or hasattr(data, "__iter__")):
        raise ArgumentError(f"{KINDS}, not {type(data).__name__}")
    if batch_size is not None:
        raise ArgumentError(
            f"batch_size is for arrays and datasets: this {type(data).__name__} makes batches of its own"
        )
    return IteratedBatches(data)


def length_of(batches: Batches) -> int | None:
    """How many batches an epoch has, if that is known."""
    held = batches.source if isinstance(batches, IteratedBatches) else batches
    return len(held) if hasattr(held, "__len__") else None


def parts_of(batch: Any) -> tuple[Any, ...]:
    """The arguments that a batch is for a loss, after the model: the parts of a tuple or list; a dict is one."""
    return batch if type(batch) is tuple else tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def size_of(parts: tuple[Any, ...]) -> int:
    """How many samples a batch has: the first extent of its first array."""
    first = parts[0] if isinstance(parts[0], np.ndarray) else tree.leaves(parts)[0]
    return first.shape[0] if first.shape else 1


def check_batch(parts: tuple[Any, ...]) -> None:
    """Refuse what isn't made of arrays: a list of numbers would be as many arguments of the compiled step."""
    leaves = tree.leaves(parts) if parts else []
    if not leaves:
        raise ArgumentError("a batch is an array, or a tuple, list or dict of arrays, and here is an empty one")
    for leaf in leaves:
        if not is_array(leaf):
            raise ArgumentError(
                f"a batch is an array, or a tuple, list or dict of arrays; in this one is a {type(leaf).__name__}: "
                "make arrays of them, np.array(...)"
            )
        if leaf.dtype.kind not in "biufc":
            raise ArgumentError(f"a batch has an array of dtype {leaf.dtype}: make numbers of it")


@contextmanager
def once_through(batches: Batches) -> Iterator[Batches]:
    """All batches of an epoch from its beginning; afterwards it is where it was."""
    state = batches.state()
    if batches.position:
        batches.load_state({**state, "position": 0})
    try:
        yield batches
    finally:
        if isinstance(batches, Loader) or not batches.once:
            batches.load_state(state)
