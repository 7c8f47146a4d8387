"""Batches of a dataset, epoch by epoch: a dataset comes in, an iterable of batches goes out that can be resumed.

What batch k of epoch e is depends on the dataset and the arguments only (`Loader.batch` says it): not on threads or
processes, on what was asked for before, or on whether the program was started anew in between.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import Arrays, as_dataset
from wonderland.data.datasets import BATCH, ORDER, Batch, Dataset, Subset
from wonderland.data.faults import DataError, count_of, generator, seed_of
from wonderland.data.prefetching import ahead
from wonderland.data.workers import made_by_processes

BIG = 1 << 22  # bytes of a batch of arrays from which on copying it is worth looking at a thread


class Loader:
    """Batches of a dataset (or a tuple or dict of arrays), which are made while the last one is used.

    for x, y in wl.data.Loader((x, y), batch_size=32, shuffle=True, seed=0): ...

    Iterating gives the batches from `position` to the end of epoch `epoch`; then `epoch` is one more and `position` 0.
    `position` counts the batches that were handed out. A loop that was left early is continued by the next one; for
    the epoch's beginning set `loader.position = 0`. `state()` and `load_state()` carry both over to another process.

    shuffle: each epoch has its own order, which depends on (seed, epoch) only. drop_last: without the last batch where
    it is smaller. transform: a function `t(batch, rng)` whose NumPy Generator depends on (seed, epoch, number of the
    batch, rank) only. collate: makes a batch of a list of samples (`wl.data.pad`), instead of stacking them.

    prefetch: how many batches a thread makes ahead, 0 for no thread; none is started where batches cost less than the
    handing over. workers: how many processes make batches, for data that has to be decoded. Neither changes a batch,
    and when a loop is left, by `break` or an exception, they end.

    rank, ranks: this loader makes part `rank` of each batch, of `ranks` parts: `batch_size` is that of all together.
    No sample is in two parts; those of a smaller last batch differ by one sample at most.

    One loader has one position, so one loop runs at a time: where a second begins, the first can't go on, and says so.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 32,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        transform: Callable[[Any, np.random.Generator], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: int = 2,
        workers: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ):
        self.dataset: Dataset = as_dataset(dataset)
        self.batch_size: int = count_of(batch_size, "batch_size")
        self.shuffle: bool = bool(shuffle)
        self.seed: int = seed_of(seed)
        self.drop_last: bool = bool(drop_last)
        self.transform: Callable[[Any, np.random.Generator], Any] | None = transform
        self.collate: Callable[[list[Any]], Any] | None = collate
        for function, name, takes in ((transform, "transform", "(batch, rng)"), (collate, "collate", "(samples)")):
            if function is not None and not callable(function):
                raise ArgumentError(f"{name} is a function of {takes}, not {type(function).__name__}")
        self.prefetch: int = count_of(prefetch, "prefetch", 0)
        self.workers: int = count_of(workers, "workers", 0)
        self.ranks: int = count_of(ranks, "ranks")
        self.rank: int = count_of(rank, "rank", 0)
        self.epoch: int = 0
        self.position: int = 0
        self._iteration = 0  # the number of the newest loop
        self._order: tuple[Any, np.ndarray | None] = (None, None)
        self._check_sizes()

    def _check_sizes(self) -> None:
        samples = len(self.dataset)
        if not samples:
            raise DataError(f"there are no samples: the {type(self.dataset).__name__} is empty")
        if self.batch_size > samples:
            raise DataError(
                f"batch_size={self.batch_size} is more than the {samples} samples there are: use "
                f"batch_size={samples} or less"
            )
        if self.rank >= self.ranks:
            raise ArgumentError(f"rank={self.rank}, but there are ranks={self.ranks}: they count from 0")
        if self.batch_size % self.ranks:
            less = self.batch_size // self.ranks * self.ranks
            raise ArgumentError(
                f"batch_size={self.batch_size} is that of all ranks together, and can't be divided by ranks="
                f"{self.ranks}: use {f'{less} or ' if less else ''}{less + self.ranks}"
            )
        last = samples % self.batch_size
        if last and last < self.ranks and not self.drop_last:
            raise DataError(
                f"the last batch would have {last} of {samples} samples, fewer than the {self.ranks} ranks: use "
                "drop_last=True or another batch_size"
            )

    def share_with(self, rank: int, ranks: int) -> None:
        """Make part `rank` of each batch from now on, of `ranks` parts."""
        self.rank, self.ranks = count_of(rank, "rank", 0), count_of(ranks, "ranks")
        self._check_sizes()

    def __len__(self) -> int:
        """The batches of an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def samples(self, number: int) -> int:
        """How many samples batch `number` has, all ranks together."""
        return min(self.batch_size, len(self.dataset) - number * self.batch_size)

    def share(self, number: int) -> slice:
        """Where in the order of the epoch the samples of batch `number` are, of this rank."""
        start, samples = number * self.batch_size, self.samples(number)
        if self.ranks == 1:
            return slice(start, start + samples)
        each, more = divmod(samples, self.ranks)
        start += self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))

    def order(self, epoch: int) -> np.ndarray | None:
        """The order of the samples in an epoch: all ranks have the same. None is the order of the dataset."""
        if not self.shuffle:
            return None
        of = self.seed, epoch, len(self.dataset)
        if self._order[0] != of:
            self._order = of, generator(self.seed, ORDER, epoch).permutation(len(self.dataset))
        return self._order[1]

    def indices(self, number: int, epoch: int | None = None) -> np.ndarray:
        """The numbers of the samples of batch `number`, of this rank."""
        where, order = self.share(number), self.order(self.epoch if epoch is None else epoch)
        return np.arange(where.start, where.stop) if order is None else order[where]

    def batch(self, number: int, epoch: int | None = None) -> Batch:
        """Batch `number` of an epoch (of this one if it isn't given), whatever was asked for before."""
        epoch = self.epoch if epoch is None else epoch
        if not 0 <= number < len(self):
            raise IndexError(f"there is no batch {number}: an epoch has {len(self)}")
        indices = self.indices(number, epoch)
        try:
            if self.collate is not None:
                batch = self.collate(self.dataset.samples(indices))
            else:
                batch = self.dataset.batch(indices)
            if self.transform is not None:
                batch = self.transform(batch, generator(self.seed, BATCH, number, epoch, self.rank))
            if batch is None:
                made = "transform" if self.transform is not None else "collate"
                raise DataError(f"the {made} returned None, not a batch: does it end with `return`?")
        except Exception as error:
            error.add_note(f"in batch {number} of epoch {epoch} (samples {_short(indices)})")
            raise
        return batch

    def __iter__(self) -> Iterator[Batch]:
        self._iteration += 1
        return self._run(self._iteration)

    def _run(self, iteration: int) -> Generator[Batch, None, None]:
        self._check_turn(iteration)
        batches = self._batches()
        try:
            for batch in batches:
                self._check_turn(iteration)
                self.position += 1
                yield batch
            self._check_turn(iteration)
            self.epoch, self.position = self.epoch + 1, 0
        finally:
            batches.close()

    def _check_turn(self, iteration: int) -> None:
        if iteration != self._iteration:
            raise RuntimeError(
                "another loop over this Loader has begun, or its state was set, and its position isn't that of this "
                "loop any more: a second wl.data.Loader of the same data can be iterated beside it"
            )

    def _batches(self) -> Generator[Batch, None, None]:
        """The rest of this epoch, made the way that suits the data."""
        self._check_place(self.epoch, self.position)
        epoch, numbers = self.epoch, range(self.position, len(self))
        self.order(epoch)  # before there are threads or processes that would each make their own
        plain = self.transform is None and self.collate is None
        arrays, rows = _arrays_of(self.dataset)
        if self.workers and numbers:
            make = _Maker(self, epoch)
            batches = made_by_processes(make, numbers, self.workers, max(1, -(-self.prefetch // self.workers)))
        elif plain and arrays is not None:
            batches = self._gathered(arrays, rows, epoch, numbers)
            per_sample = sum(a.nbytes for a in arrays.arrays) // len(arrays)
            if not arrays.mapped and per_sample * self.batch_size < BIG * self.ranks:
                return batches
        else:
            batches = (self.batch(number, epoch) for number in numbers)
        return ahead(batches, self.prefetch) if self.prefetch else batches

    def _gathered(
        self, arrays: Arrays, rows: np.ndarray | None, epoch: int, numbers: Sequence[int]
    ) -> Generator[Batch, None, None]:
        """Batches of arrays as they are: nothing but a slice or a gathering of rows for each."""
        order, keys = self.order(epoch), arrays.keys
        if rows is not None:
            order = rows if order is None else rows[order]
        plain, gathers = arrays.arrays, arrays.gathers()
        for number in numbers:
            where = self.share(number)
            if order is None:
                values = [array[where] for array in plain]
            else:
                indices = order[where]
                values = [array.take(indices, 0) if fast else array[indices] for array, fast in gathers]
            yield tuple(values) if keys is None else dict(zip(keys, values))

    def state(self) -> dict[str, Any]:
        """Where the loader is, and what has to be the same to go on from there; it can be written as JSON."""
        return {"epoch": self.epoch, "position": self.position, **self._fixed()}

    def _fixed(self) -> dict[str, Any]:
        return {
            "samples": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from where a loader of the same data was; the number of ranks, threads or processes may differ."""
        missing = [name for name in self.state() if name not in state]
        if missing:
            raise ArgumentError(f"this isn't the state of a Loader: {missing} isn't in it; it has {[*state]}")
        for name, value in self._fixed().items():
            if state[name] != value:
                what = "samples in the data" if name == "samples" else name
                raise DataError(
                    f"the state is of a Loader with {what} {state[name]!r}, this one has {value!r}: batches wouldn't "
                    "be the same; make it with what it was, or start a new run"
                )
        epoch, position = operator.index(state["epoch"]), operator.index(state["position"])
        self._check_place(epoch, position)
        self.epoch, self.position = epoch, position
        self._iteration += 1

    def _check_place(self, epoch: int, position: int) -> None:
        if epoch < 0 or not 0 <= position <= len(self):
            raise DataError(f"epoch {epoch}, position {position} isn't in this data: an epoch has {len(self)} batches")

    def __repr__(self) -> str:
        return (
            f"Loader({self.dataset!r}, batch_size={self.batch_size}, shuffle={self.shuffle}, seed={self.seed}): "
            f"epoch {self.epoch}, {self.position} of {len(self)} batches"
        )


class _Maker:
    """Makes batches of one epoch in another process."""

    def __init__(self, loader: Loader, epoch: int):
        self.loader, self.epoch = loader, epoch

    def __call__(self, number: int) -> Batch:
        return self.loader.batch(number, self.epoch)


def _arrays_of(dataset: Dataset) -> tuple[Arrays | None, np.ndarray | None]:
    """The arrays under a dataset and which of their rows it has (None: all), if it is no more than that."""
    if isinstance(dataset, Subset):
        arrays, rows = _arrays_of(dataset.dataset)
        return arrays, dataset.indices if rows is None else rows[dataset.indices]
    return (dataset, None) if isinstance(dataset, Arrays) and type(dataset).batch is Arrays.batch else (None, None)


def _short(indices: np.ndarray) -> str:
    shown = ", ".join(map(str, indices[:5].tolist()))
    return shown + (f", ... {len(indices)} in all" if len(indices) > 5 else "")
