"""Parts of a dataset for training and testing: a dataset comes in, datasets without a sample in common go out.

Both `split` and `kfold` deal the samples to parts of given sizes. By strata, each class has its share of each part,
rounded up or down; by groups, no group is in two parts, and sizes are as near as whole groups allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import as_dataset
from wonderland.data.datasets import SPLIT, Dataset
from wonderland.data.faults import DataError, count_of, generator, seed_of


def split(
    dataset: Any,
    sizes: Sequence[float],
    seed: int = 0,
    stratify: Any = None,
    groups: Any = None,
    shuffle: bool = True,
) -> list[Dataset]:
    """Parts of a dataset (or of a tuple or dict of arrays): of fractions with the sum 1, or of numbers of samples.

    Which samples are in which part is random and depends on the seed; inside a part they keep their order. With
    shuffle=False the first samples are in the first part, for series in time say.
    stratify: True, or a class for each sample: each part has the same shares of the classes, to less than one sample.
    groups: True, or a group for each sample: samples of one group are in one part, all rows of one patient say.
    True means the dataset's own `labels` or `groups`.

    train, validation, test = wl.data.split((x, y), [0.7, 0.15, 0.15], stratify=True)
    """
    data = as_dataset(dataset)
    counts = _sizes(sizes, len(data))
    parts = deal(len(data), counts, seed, _entries(data, stratify, "labels"), _entries(data, groups, "groups"), shuffle)
    return [data.part(np.flatnonzero(parts == number)) for number in range(len(counts))]


def kfold(
    dataset: Any, k: int = 5, seed: int = 0, stratify: Any = None, groups: Any = None, shuffle: bool = True
) -> Iterator[tuple[Dataset, Dataset]]:
    """The k pairs (training, test) of a cross-validation: each sample is in one test part. Arguments as for `split`.

    scores = [score(fit(train), test) for train, test in wl.data.kfold((x, y), 5, stratify=True)]
    """
    data = as_dataset(dataset)
    k = count_of(k, "k", 2)
    if k > len(data):
        raise DataError(f"k={k} parts can't be made of {len(data)} samples")
    counts = [len(data) // k + (number < len(data) % k) for number in range(k)]
    parts = deal(len(data), counts, seed, _entries(data, stratify, "labels"), _entries(data, groups, "groups"), shuffle)
    return (
        (data.part(np.flatnonzero(parts != number)), data.part(np.flatnonzero(parts == number))) for number in range(k)
    )


def deal(
    samples: int,
    counts: Sequence[int],
    seed: int = 0,
    strata: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    shuffle: bool = True,
) -> np.ndarray:
    """The number of the part for each sample; `counts` are the sizes of the parts."""
    rng = generator(seed_of(seed), SPLIT) if shuffle else None
    order = np.arange(samples) if rng is None else rng.permutation(samples)
    parts = np.empty(samples, np.intp)
    if groups is not None:
        return _deal_groups(groups, strata, np.array(counts), order)
    if strata is None:
        parts[order] = np.repeat(np.arange(len(counts)), counts)
        return parts
    kinds, numbers, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    if sizes.min() < len(counts):
        raise DataError(
            f"class {kinds[sizes.argmin()].item()!r} has {sizes.min()} samples, fewer than the {len(counts)} parts: a "
            "part would have none of it; leave the class out, or split without stratify"
        )
    shares = _rounded(sizes, np.array(counts), rng)
    for kind in range(len(kinds)):
        parts[order[numbers[order] == kind]] = np.repeat(np.arange(len(counts)), shares[kind])
    return parts


def _rounded(rows: np.ndarray, columns: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """Whole numbers with these sums of rows and columns, each rows[i] columns[j] / sum rounded up or down.

    The rest after rounding down is a flow from rows to columns through edges of capacity 1 where there is a fraction.
    The fractions themselves are such a flow, so there is one of whole numbers (controlled rounding); it is found by
    augmenting paths. It begins where a random number is less than the fraction, which spreads what is rounded up.
    """
    exact = np.multiply.outer(rows, columns)
    total = int(rows.sum())
    found, rest = exact // total, exact % total
    up = np.zeros(exact.shape, bool)
    need_row, need_column = rows - found.sum(1), columns - found.sum(0)
    chances = rest / total if rng is None else rest / total - rng.random(exact.shape)
    for place in np.argsort(-chances, axis=None, kind="stable").tolist():
        i, j = divmod(place, len(columns))
        if rest[i, j] and need_row[i] and need_column[j]:
            up[i, j], need_row[i], need_column[j] = True, need_row[i] - 1, need_column[j] - 1
    for i in np.repeat(np.arange(len(rows)), need_row).tolist():
        assert _augmented(i, up, rest > 0, need_column), "there is always a rounding"
    return found + up


def _augmented(row: int, up: np.ndarray, allowed: np.ndarray, need: np.ndarray) -> bool:
    """Round one more of a row up, and others as that demands: the shortest path to a column that lacks one."""
    came: dict[int, tuple[int, int | None]] = {}  # column -> the row it was reached from, and that row's column
    edge: list[tuple[int, int | None]] = [(row, None)]
    for i, before in edge:  # grows while it is read
        for j in np.flatnonzero(allowed[i] & ~up[i]).tolist():
            if j in came:
                continue
            came[j] = i, before
            if need[j]:
                need[j] -= 1
                column: int | None = j
                while column is not None:
                    i, before = came[column]
                    up[i, column] = True
                    if before is not None:
                        up[i, before] = False
                    column = before
                return True
            edge += [(other, j) for other in np.flatnonzero(up[:, j]).tolist()]
    return False


def _deal_groups(groups: np.ndarray, strata: np.ndarray | None, counts: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Whole groups, the largest first: each to the part whose sizes (of each class) it brings nearest to the aim."""
    _, first, numbers = np.unique(groups[order], return_index=True, return_inverse=True)
    if len(first) < len(counts):
        raise DataError(f"there are {len(first)} groups for {len(counts)} parts: each part needs one at least")
    kinds = np.zeros(len(order), np.intp) if strata is None else np.unique(strata[order], return_inverse=True)[1]
    table = np.zeros((len(first), kinds.max() + 1))  # samples of each group and class
    np.add.at(table, (numbers, kinds), 1)
    totals = table.sum(0)
    wanted = np.multiply.outer(counts / len(order), totals)
    there = np.zeros_like(wanted)
    part_of = np.empty(len(first), np.intp)
    sequence = first.argsort(kind="stable")  # as the groups come in the (random) order
    sequence = sequence[np.argsort(-table[sequence].sum(1), kind="stable")]
    for place, group in enumerate(sequence.tolist()):
        change = ((2 * (there - wanted) + table[group]) * table[group] / totals).sum(1)
        empty = there.sum(1) == 0
        if empty.sum() >= len(first) - place:  # the last groups are for the parts that have none
            change[~empty] = np.inf
        part_of[group] = part = int(change.argmin())
        there[part] += table[group]
    parts = np.empty(len(order), np.intp)
    parts[order] = part_of[numbers]
    return parts


def _sizes(sizes: Sequence[float], samples: int) -> list[int]:
    """The numbers of samples of the parts."""
    given = np.asarray(sizes)
    if given.ndim != 1 or len(given) < 1 or given.dtype.kind not in "iuf" or not (given > 0).all():
        raise ArgumentError(f"sizes are fractions like [0.8, 0.2] or numbers of samples, all above 0, not {sizes!r}")
    if given.dtype.kind in "iu":
        if given.sum() != samples:
            raise DataError(f"sizes {given.tolist()} have the sum {given.sum()}, but there are {samples} samples")
        return given.tolist()
    if abs(given.sum() - 1) > 1e-9:
        raise ArgumentError(f"sizes {given.tolist()} have the sum {given.sum():.6g}: fractions have the sum 1")
    exact = given * samples
    counts = np.floor(exact + 1e-9).astype(int)  # 0.29 * 100 is 28.999999999999996
    most = np.argsort(counts - exact, kind="stable")
    counts[most[: samples - counts.sum()]] += 1
    if not counts.min():
        raise DataError(f"sizes {given.tolist()} of {samples} samples make a part without any: {counts.tolist()}")
    return counts.tolist()


def _entries(dataset: Dataset, given: Any, name: str) -> np.ndarray | None:
    """The labels or groups of the samples."""
    if given is None or given is False:
        return None
    what = "stratify" if name == "labels" else "groups"
    if given is True:
        given = getattr(dataset, name)
        if given is None:
            raise DataError(f"{what}=True, but the {type(dataset).__name__} has no {name}: pass {what}=<array of them>")
    values = np.asarray(given)
    if values.shape != (len(dataset),):
        raise DataError(f"{what} has shape {values.shape}: it is one entry for each of {len(dataset)} samples")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError(f"{what} is NaN for {dataset.name(int(np.isnan(values).argmax()))}: each sample needs one")
    return values
