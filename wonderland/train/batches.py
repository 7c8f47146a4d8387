"""Where batches come from: a Loader, arrays, a dataset, an iterable, or a function that makes one, all made alike.

Each has `epoch` and `position`, which counts the batches of this epoch that were handed out, and goes on from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.control.effects import CheckError
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import as_dataset
from wonderland.data.faults import DataError
from wonderland.data.loaders import Loader
from wonderland.data.streams import Batches

Source = Loader | Batches


def as_batches(data: Any, batch_size: int | None, shuffle: bool, seed: int, least: int = 32) -> Source:
    """What `data` means. Without a batch size, `least` samples make a batch, or all if there are fewer."""
    source: Any = data
    made = isinstance(data, (Loader, Batches))
    arrays = isinstance(data, tuple) and (not data or any(hasattr(part, "shape") for part in data))
    several = isinstance(data, (list, tuple)) and not arrays
    if not made and not several and (isinstance(data, (tuple, Mapping)) or hasattr(data, "__getitem__")):
        if isinstance(data, (str, bytes)):
            raise _unknown(data)
        dataset = as_dataset(data)
        size = max(min(least, len(dataset)), 1) if batch_size is None else batch_size
        return Loader(dataset, size, shuffle=shuffle, seed=seed)
    if not (made or several or callable(data) or hasattr(data, "__iter__")):
        raise _unknown(data)
    if batch_size is not None:
        raise ArgumentError(
            f"batch_size is for arrays and datasets: this {type(data).__name__} makes batches of its own"
        )
    return source if made else Batches(source)


def share(batches: Source, ranks: Any) -> None:
    """Each of several ranks has its part of every batch."""
    if not isinstance(batches, Loader):
        raise ArgumentError(
            f"there are {ranks.count} ranks, and each gets a part of every batch: data is a wl.data.Loader, a dataset "
            "or arrays, not an iterable of batches. ranks=train.Ranks() trains in each process for itself."
        )
    batches.share_with(ranks.rank, ranks.count)


def _unknown(data: Any) -> ArgumentError:
    return ArgumentError(
        "data is a wl.data.Loader, a dataset, a tuple or dict of arrays, an iterable of batches, or a function of the "
        f"epoch that returns one, not {type(data).__name__}"
    )


def length_of(batches: Source) -> int | None:
    """How many batches an epoch has, if that is known."""
    return batches.length if isinstance(batches, Batches) else len(batches)


def is_once(batches: Source) -> bool:
    """Are they good for one epoch only?"""
    return isinstance(batches, Batches) and batches.once


def parts_of(batch: Any) -> tuple[Any, ...]:
    """The arguments that a batch is for a loss, after the model: the parts of a tuple or list; a dict is one."""
    return batch if type(batch) is tuple else tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def size_of(parts: tuple[Any, ...]) -> int:
    """How many samples a batch has: the first extent of its first array."""
    first = parts[0] if isinstance(parts[0], np.ndarray) else tree.leaves(parts)[0]
    return first.shape[0] if first.shape else 1


def check_batch(parts: tuple[Any, ...], loss: Callable | None = None) -> None:
    """Refuse what isn't made of arrays: a list of numbers would be as many arguments of the compiled step.

    A loss function has to take as many parts as there are, after the model.
    """
    leaves = tree.leaves(parts) if parts else []
    if not leaves:
        raise ArgumentError("a batch is an array, or a tuple, list or dict of arrays, and here is an empty one")
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray):
            raise ArgumentError(
                f"a batch is an array, or a tuple, list or dict of arrays; in this one is a {type(leaf).__name__}: "
                "make arrays of them, np.array(...)"
            )
        if leaf.dtype.kind not in "biufc":
            raise ArgumentError(f"a batch has an array of dtype {leaf.dtype}: make numbers of it")
        if leaf.shape[:1] == (0,):
            raise DataError(f"a batch has no samples: there is an array of shape {leaf.shape} in it")
    if loss is not None:
        _check_count(loss, parts)


def _check_count(loss: Callable, parts: tuple[Any, ...]) -> None:
    """Labels that are missing, most of the time."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):  # a function that doesn't tell
        return
    try:
        signature.bind(None, *parts)
    except TypeError as error:
        name = getattr(loss, "__name__", type(loss).__name__)
        kinds = [f"{part.dtype}{[*part.shape]}" if hasattr(part, "shape") else type(part).__name__ for part in parts]
        raise ArgumentError(
            f"{name}{signature} is called with the model and the parts of a batch, and this data has {len(parts)} of "
            f"them ({', '.join(kinds)}): {error}. Data with labels is (inputs, labels)."
        ) from None


def sample_names(batches: Source, parts: tuple[Any, ...]) -> Callable[[int], str] | None:
    """What rows of the batch that came last are called in the data, if they are its samples in their order."""
    if not isinstance(batches, Loader) or batches.collate is not None:
        return None
    indices = batches.indices(batches.position - 1)
    return (lambda row: batches.dataset.name(int(indices[row]))) if len(indices) == size_of(parts) else None


def sample_of(error: Exception, batches: Source, parts: tuple[Any, ...]) -> str:
    """Which sample it is that a check found wrong, if the index that it told counts samples."""
    names = sample_names(batches, parts)
    if names is None or not isinstance(error, CheckError) or not error.index or error.index[0] >= size_of(parts):
        return ""
    return f"; index {error.index[0]} of the batch is {names(error.index[0])}"


@contextmanager
def once_through(batches: Source) -> Iterator[Source]:
    """All batches of an epoch from its beginning; afterwards it is where it was."""
    state = batches.state()
    if batches.position:
        batches.load_state({**state, "position": 0})
    try:
        yield batches
    finally:
        if not is_once(batches):
            batches.load_state(state)
