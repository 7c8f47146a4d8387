"""Where samples come from: numbers of samples come in, samples and batches go out.

A `Dataset` has a length, `d[3]` is a sample and `d[[3, 1, 4]]` a batch: a tuple (or dict) of arrays whose first axis
counts samples. One of your own defines `__len__` and `sample`, or `batch` too if it can make one faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.collation import as_sample, stack
from wonderland.data.faults import DataError, count_of, generator, seed_of

Batch = Any  # a tuple or a dict of arrays


class Dataset:
    """Samples by number. `len(d)`, `d[i]` one sample, `d[indices]` or `d[a:b]` a batch.

    class Squares(wl.data.Dataset):
        def __len__(self):
            return 100

        def sample(self, index):
            return np.array([float(index)]), float(index) ** 2

    `labels` (classes as numbers) and `groups` are for splits, one entry for each sample; `names` are those of the
    features, `classes` those of the labels. Where they aren't known, they are None.
    """

    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    names: list[str] | None = None
    classes: list[str] | None = None

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} defines __len__(self), how many samples there are")

    def sample(self, index: int) -> Any:
        """Sample `index`: an array or a number, or a tuple or dict of them."""
        raise NotImplementedError(f"{type(self).__name__} defines sample(self, index), one sample")

    def name(self, index: int) -> str:
        """What errors call a sample: its file or row."""
        return f"sample {index}"

    def samples(self, indices: Any) -> list[Any]:
        """Some samples. An error of one of them becomes a `DataError` with its name."""
        found = []
        for index in np.asarray(indices).tolist():
            try:
                found.append(self.sample(index))
            except DataError:
                raise
            except Exception as error:
                raise DataError(f"{self.name(index)}: {type(error).__name__}: {error}") from error
        return found

    def batch(self, indices: Any) -> Batch:
        """Some samples as one batch."""
        samples = self.samples(indices)
        return stack(samples, lambda place: self.name(int(indices[place])))

    def part(self, indices: Any) -> Dataset:
        """A dataset of some of the samples."""
        return Subset(self, indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            place = index + len(self) if index < 0 else index
            if not 0 <= place < len(self):
                raise IndexError(f"there is no sample {index}: there are {len(self)}")
            return self.sample(int(place))
        return self.batch(self.rows_of(index))

    def rows_of(self, index: Any) -> np.ndarray:
        """The numbers of the samples that a slice, a list of numbers or an array of bools means."""
        if isinstance(index, slice):
            return np.arange(len(self))[index]
        rows = np.asarray(index) if np.size(index) else np.zeros(0, int)
        if rows.dtype == bool and rows.shape == (len(self),):
            return np.flatnonzero(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ArgumentError(
                f"samples are chosen by a number, a slice, or one list of numbers (or of {len(self)} bools), not by "
                f"{type(index).__name__} of shape {rows.shape} and dtype {rows.dtype}"
            )
        rows = np.where(rows < 0, rows + len(self), rows)
        if rows.size and not (0 <= rows.min() and rows.max() < len(self)):
            wrong = np.asarray(index)[(rows < 0) | (rows >= len(self))][0]
            raise IndexError(f"there is no sample {wrong}: there are {len(self)}")
        return rows


class Subset(Dataset):
    """Some samples of a dataset, in the order of `indices`; made by `split` and `kfold`."""

    def __init__(self, dataset: Dataset, indices: Any):
        self.dataset = dataset
        self.indices: np.ndarray = Dataset.rows_of(dataset, indices)
        self.names: list[str] | None = dataset.names
        self.classes: list[str] | None = dataset.classes
        self.labels: np.ndarray | None = None if dataset.labels is None else dataset.labels[self.indices]
        self.groups: np.ndarray | None = None if dataset.groups is None else dataset.groups[self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, index: int) -> Any:
        """Sample `index` of this part."""
        return self.dataset.sample(int(self.indices[index]))

    def name(self, index: int) -> str:
        """Its name in the whole dataset."""
        return self.dataset.name(int(self.indices[index]))

    def batch(self, indices: Any) -> Batch:
        """As the whole dataset makes it."""
        return self.dataset.batch(self.indices[indices])


class Samples(Dataset):
    """The samples of a list, or of any object with `len(s)` and `s[i]`: arrays or numbers, or tuples or dicts of them.

    wl.data.Samples([(np.array([1, 2, 3]), 0), (np.array([4, 5]), 1)])      # with collate=wl.data.pad
    """

    def __init__(self, samples: Any):
        if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
            raise ArgumentError(
                f"Samples takes a list, or something with len(s) and s[i], not {type(samples).__name__}; "
                "an iterator of batches goes into wl.data.Batches"
            )
        if len(samples) == 0:
            raise DataError(f"there are no samples: the {type(samples).__name__} is empty")
        self.items = samples

    def __len__(self) -> int:
        return len(self.items)

    def sample(self, index: int) -> Any:
        """Sample `index`."""
        return as_sample(self.items[index])


class Generated(Dataset):
    """Samples that a function makes: `function(index, rng)` is sample `index`.

    `rng` is a NumPy Generator that depends on the seed and the index only: a sample is always the same.
    With `batched=True`, `function(indices)` makes a whole batch, an array or a tuple of arrays, of an array of numbers.

    wl.data.Generated(lambda index, rng: (rng.normal(size=3), index % 2), 1000)
    wl.data.Generated(lambda i: (i[:, None] / 1000, np.sin(i / 1000)), 1000, batched=True)
    """

    def __init__(self, function: Callable[..., Any], length: int, seed: int = 0, batched: bool = False):
        if not callable(function):
            raise ArgumentError(f"Generated takes a function of (index, rng), not {type(function).__name__}")
        self.function = function
        self.length: int = count_of(length, "length")
        self.seed: int = seed_of(seed)
        self.batched = batched

    def __len__(self) -> int:
        return self.length

    def sample(self, index: int) -> Any:
        """Sample `index`."""
        if self.batched:
            batch = self.batch(np.array([index]))
            return {k: v[0] for k, v in batch.items()} if isinstance(batch, dict) else tuple(v[0] for v in batch)
        return as_sample(self.function(index, generator(self.seed, SAMPLE, index)))

    def batch(self, indices: Any) -> Batch:
        """Some samples as one batch."""
        if not self.batched:
            return super().batch(indices)
        batch = as_sample(self.function(indices))
        fields = batch.items() if isinstance(batch, dict) else enumerate(batch)
        for field, value in fields:
            if np.ndim(value) == 0 or len(value) != len(indices):
                raise DataError(
                    f"the function of Generated made field {field!r} of shape {np.shape(value)} for {len(indices)} "
                    "numbers: with batched=True its first axis counts them"
                )
        return (
            {k: np.asarray(v) for k, v in batch.items()} if isinstance(batch, dict) else tuple(map(np.asarray, batch))
        )


ORDER, BATCH, SPLIT, SAMPLE = range(4)  # what random numbers are for
