"""Data that is in arrays, in memory or mapped from a file: a batch is a slice, or one gathering of rows."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.collation import Field
from wonderland.data.datasets import Batch, Dataset, Samples, Subset
from wonderland.data.faults import DataError, unmasked


class Arrays(Dataset):
    """Arrays whose first axis counts samples: a sample is a tuple of one row of each, or a dict for a dict of arrays.

    d = wl.data.Arrays(x, y)                    # d[3] is (x[3], y[3]), d[:32] is (x[:32], y[:32])
    d = wl.data.Arrays({"image": x, "label": y})
    d = wl.data.Arrays(np.load("x.npy", mmap_mode="r"), y)      # memory maps stay on the disk

    The arrays aren't copied, and batches that are slices of them can't be written to. NaN is an error that names the
    row, unless missing="keep"; memory maps aren't looked through. `names` are those of the features, `classes` those
    of the labels; `labels` for splits is the last of several arrays if it has one whole number a sample.
    """

    def __init__(
        self,
        *arrays: Any,
        names: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        groups: Any = None,
        missing: Literal["raise", "keep"] = "raise",
    ):
        if missing not in ("raise", "keep"):
            raise ArgumentError(f"missing is 'raise' or 'keep', not {missing!r}")
        given: Mapping[Field, Any] = dict(enumerate(arrays))
        self.keys: list[str] | None = None
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            given = arrays[0]
            self.keys = [*arrays[0]]
        self.arrays: tuple[np.ndarray, ...] = tuple(_array(value, key) for key, value in given.items())
        self.mapped: bool = any(isinstance(value, np.memmap) for value in given.values())
        self.rows: np.ndarray | None = None  # where the samples were, in the data that this is a part of
        self._check_lengths(given)
        for key, array in zip(given, self.arrays):
            if missing == "raise" and not isinstance(given[key], np.memmap):
                self._check_numbers(array, key)
        self.names: list[str] | None = None if names is None else [str(name) for name in names]
        self.classes: list[str] | None = None if classes is None else [str(name) for name in classes]
        last = self.arrays[-1]
        whole = len(self.arrays) > 1 and last.ndim == 1 and last.dtype.kind in "biu"
        self.labels: np.ndarray | None = last if whole else None
        self.groups: np.ndarray | None = None if groups is None else np.asarray(groups)
        if self.groups is not None and self.groups.shape != (len(self),):
            raise DataError(f"groups has shape {self.groups.shape}: it is one entry for each of {len(self)} samples")

    def _check_lengths(self, given: Mapping[Field, Any]) -> None:
        if not self.arrays:
            raise ArgumentError("Arrays takes at least one array: wl.data.Arrays(x, y)")
        lengths = {key: len(array) for key, array in zip(given, self.arrays)}
        if len({*lengths.values()}) > 1:
            shapes = ", ".join(f"{_called(key)}: {array.shape}" for key, array in zip(given, self.arrays))
            raise DataError(f"the arrays have different lengths ({shapes}): the first axis of each counts samples")
        if not len(self.arrays[0]):
            raise DataError(f"there are no samples: {_called(next(iter(given)))} has shape {self.arrays[0].shape}")

    def _check_numbers(self, array: np.ndarray, key: Field) -> None:
        if array.dtype.kind not in "fc":
            return
        with np.errstate(all="ignore"):
            if not np.isnan(array.sum()):  # one pass without a copy; inf - inf is NaN as well, so look twice
                return
        found = np.argwhere(np.isnan(array))
        if len(found):
            row, *rest = found[0].tolist()
            place = f", column {rest[0]}" if len(rest) == 1 else f", at {tuple(rest)}" if rest else ""
            rows = len(np.unique(found[:, 0]))
            raise DataError(
                f"{_called(key)} has NaN in {self.name(row)}{place} ({rows} of {len(array)} rows have some): leave "
                'these rows out, fill them, or say Arrays(..., missing="keep") if NaN is meant'
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def sample(self, index: int) -> Any:
        """Row `index` of each array."""
        return self._batch([array[index] for array in self.arrays])

    def name(self, index: int) -> str:
        """Its row, in the data that this is a part of."""
        return f"row {index if self.rows is None else self.rows[index]}"

    def batch(self, indices: Any) -> Batch:
        """Rows of each array; a slice of contiguous ones for a slice."""
        if isinstance(indices, slice):
            return self._batch([array[indices] for array in self.arrays])
        return self._batch([array.take(indices, 0) if ok else array[indices] for array, ok in self.gathers()])

    def gathers(self) -> list[tuple[np.ndarray, bool]]:
        """The arrays, each with whether `take` is the fast way to its rows: it copies all of what isn't contiguous."""
        return [(array, array.flags.c_contiguous) for array in self.arrays]

    def _batch(self, values: Sequence[Any]) -> Batch:
        return tuple(values) if self.keys is None else dict(zip(self.keys, values))

    def rows_of(self, index: Any) -> Any:
        """The rows that an index means; a slice stays one."""
        return index if isinstance(index, slice) else super().rows_of(index)

    def part(self, indices: Any) -> Dataset:
        """Some of the rows: a copy, or a `Subset` where rows are on a disk."""
        rows = super().rows_of(indices)
        if self.mapped:
            return Subset(self, rows)
        new = self.replaced([array[rows] for array in self.arrays])
        new.rows = rows if self.rows is None else self.rows[rows]
        new.groups = None if self.groups is None else self.groups[rows]
        new.labels = None if self.labels is None else self.labels[rows]
        return new

    def replaced(self, arrays: Sequence[np.ndarray]) -> Arrays:
        """The same dataset with other values in its arrays."""
        new = copy.copy(self)
        new.arrays = tuple(_array(value, key) for key, value in enumerate(arrays))
        new.mapped = False
        return new

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle doesn't keep that the arrays can't be written to."""
        self.__dict__.update(state)
        for array in self.arrays:
            array.flags.writeable = False

    def __repr__(self) -> str:
        keys = self.keys or [""] * len(self.arrays)
        of = ", ".join(f"{k}{': ' * bool(k)}{a.dtype}{[*a.shape]}" for k, a in zip(keys, self.arrays))
        return f"{type(self).__name__}({of})"


def _called(key: Field) -> str:
    return f"array {key}" if isinstance(key, int) else f"array {key!r}"


def _array(value: Any, key: Field) -> np.ndarray:
    """A view that can't be written to: batches that are slices mustn't change the data."""
    if value is None:
        raise DataError(f"{_called(key)} is None, not an array: leave it out, or give what is missing")
    try:
        array = unmasked(value, _called(key))
    except DataError:
        raise
    except ValueError as error:  # rows of different lengths
        raise DataError(
            f"{_called(key)} isn't an array: {error}; samples of different shapes: wl.data.Samples"
        ) from None
    if array.dtype == object:
        raise DataError(f"{_called(key)} has Python objects in it (dtype object), not numbers: convert it before")
    if array.ndim == 0:
        raise DataError(f"{_called(key)} is a single number, {array}: its first axis has to count samples")
    array = array.view()
    array.flags.writeable = False
    return array


def as_dataset(data: Any) -> Dataset:
    """A dataset, of whatever one can be made of without guessing."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple):
        return Arrays(*data)
    if isinstance(data, (np.ndarray, Mapping)):
        return Arrays(data)
    if isinstance(data, list):
        raise ArgumentError(
            "a list may be arrays or samples: wl.data.Arrays(*arrays) or a tuple of arrays, or wl.data.Samples(samples)"
        )
    if hasattr(data, "columns"):
        raise ArgumentError(
            f"a {type(data).__name__} goes into wl.data.Table(frame, target=...), which says what is what"
        )
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, (str, bytes)):
        return Samples(data)
    raise ArgumentError(
        f"data is a wl.data.Dataset, a tuple or dict of arrays, or something with len(d) and d[i], not "
        f"{type(data).__name__}; an iterator of batches goes into wl.data.Batches"
    )
