"""Windows of time series, for forecasting: a piece of the past, and what followed.

d = data.windows(series, history=24, horizon=6)       # d[0] is (series[:24], series[24:30])
train, valid, test = d.split([0.7, 0.15, 0.15])       # by time: nothing of a later part is in an earlier one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from wonderland.core.errors import ArgumentError
from wonderland.data.datasets import Batch, Dataset
from wonderland.data.faults import DataError, count_of


def windows(
    series: Any,
    history: int,
    horizon: int = 1,
    stride: int = 1,
    *,
    targets: Sequence[int] | None = None,
    exogenous: Sequence[int] | None = None,
    gap: int = 0,
    missing: Literal["raise", "keep"] = "raise",
) -> SeriesWindows:
    """A dataset of (past, future), or (past, known, future): `history` steps of a series, and the `horizon` after them.

    `series` is (time,) or (time, columns), or a list of such with the same columns: no window is of two series. A
    window begins every `stride` steps, and its future `gap` steps after its past ends.

    past:   (history, columns), all columns; (history,) of a series without columns
    future: (horizon, targets), the columns `targets` (all, except those of `exogenous`)
    known:  (horizon, exogenous), only with `exogenous`: columns that are known in advance, as the weekday

    One series isn't copied; several are put together once. Windows are views, and batches copies of their rows. NaN is
    an error that names the step, unless missing="keep".
    """
    several = isinstance(series, (list, tuple)) and len(series) > 0 and np.ndim(series[0]) > 0
    arrays = [np.asarray(one) for one in series] if several else [np.asarray(series)]
    for k, one in enumerate(arrays):
        _check(one, arrays[0], f"series {k}" if several else "the series", missing)
    history, horizon = count_of(history, "history"), count_of(horizon, "horizon")
    stride, length = count_of(stride, "stride"), history + count_of(gap, "gap", 0) + horizon
    for k, one in enumerate(arrays):
        if len(one) < length:
            raise DataError(
                f"{f'series {k}' if several else 'the series'} has {len(one)} steps, fewer than a window: {history} of "
                f"history{f', a gap of {gap}' if gap else ''} and {horizon} of horizon are {length}"
            )
    ends = np.cumsum([len(one) for one in arrays])
    firsts = ends - [len(one) for one in arrays]
    starts = [np.arange(a, b - length + 1, stride) for a, b in zip(firsts, ends, strict=True)]
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    columns = _columns(joined, targets, exogenous)
    return SeriesWindows(joined, np.concatenate(starts), np.stack([firsts, ends], 1), (history, gap, horizon), columns)


def _check(one: np.ndarray, first: np.ndarray, name: str, missing: str) -> None:
    if one.ndim not in (1, 2) or one.dtype.kind not in "biufc":
        raise DataError(f"{name} is {one.dtype} of shape {one.shape}: it should be numbers, (time,) or (time, columns)")
    if one.shape[1:] != first.shape[1:] or one.dtype != first.dtype:
        raise DataError(
            f"{name} is {one.dtype} of shape {one.shape}, and series 0 {first.dtype} of {first.shape}: all have the "
            "same columns and dtype"
        )
    if missing not in ("raise", "keep"):
        raise ArgumentError(f"missing is 'raise' or 'keep', not {missing!r}")
    if missing == "raise" and one.dtype.kind in "fc" and not isinstance(one, np.memmap) and np.isnan(one).any():
        step, *column = np.argwhere(np.isnan(one))[0].tolist()
        where = f"step {step}{f', column {column[0]}' if column else ''}"
        raise DataError(f'{name} has NaN at {where}: fill it, or say windows(..., missing="keep") if NaN is meant')


def _columns(
    series: np.ndarray, targets: Sequence[int] | None, exogenous: Sequence[int] | None
) -> tuple[list[int] | None, list[int] | None]:
    """The columns of the future and of what is known in advance; None for all, and for none."""
    if series.ndim == 1:
        if targets is not None or exogenous is not None:
            raise ArgumentError("targets and exogenous are columns, and the series has none: its shape is (time,)")
        return None, None
    count = series.shape[1]
    for name, chosen in (("targets", targets), ("exogenous", exogenous)):
        if chosen is not None and (wrong := [c for c in chosen if not 0 <= c < count]):
            raise ArgumentError(f"{name}: there is no column {wrong[0]!r}; the series has columns 0 to {count - 1}")
    known = None if exogenous is None else [*exogenous]
    if targets is None and known is not None:
        targets = [c for c in range(count) if c not in known]
    if targets is not None and not len(targets):
        raise ArgumentError("there are no targets: every column is exogenous")
    return None if targets is None else [*targets], known


class SeriesWindows(Dataset):
    """Windows of one or several time series; made by `windows`.

    `series` are all steps, one series after another; `starts` says where in it each window begins.
    """

    def __init__(
        self,
        series: np.ndarray,
        starts: np.ndarray,
        bounds: np.ndarray,
        lengths: tuple[int, int, int],
        columns: tuple[list[int] | None, list[int] | None],
    ):
        self.series: np.ndarray = series.view()
        self.series.flags.writeable = False
        self.starts: np.ndarray = starts
        self.bounds: np.ndarray = bounds  # (series, 2): where each series begins and ends
        self.lengths: tuple[int, int, int] = lengths
        self.columns: tuple[list[int] | None, list[int] | None] = columns

    def __len__(self) -> int:
        return len(self.starts)

    def sample(self, index: int) -> tuple[np.ndarray, ...]:
        """Window `index`: views of the series where all columns are meant."""
        start, (history, gap, horizon) = self.starts[index], self.lengths
        after = self.series[start + history + gap : start + history + gap + horizon]
        return self._parts(self.series[start : start + history], after)

    def batch(self, indices: Any) -> Batch:
        """Windows (n, history, columns) and (n, horizon, targets), gathered."""
        history, gap, horizon = self.lengths
        starts = self.starts[indices]
        past = np.moveaxis(sliding_window_view(self.series, history, 0)[starts], -1, 1)
        after = np.moveaxis(sliding_window_view(self.series, horizon, 0)[starts + history + gap], -1, 1)
        return tuple(np.ascontiguousarray(part) for part in self._parts(past, after))

    def _parts(self, past: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, ...]:
        targets, exogenous = self.columns
        future = after if targets is None else after[..., targets]
        return (past, future) if exogenous is None else (past, after[..., exogenous], future)

    def name(self, index: int) -> str:
        """What errors call a window: its series and its first step."""
        start = self.starts[index]
        k = int(np.searchsorted(self.bounds[:, 1], start, "right"))
        return f"the window at step {start - self.bounds[k, 0]}{f' of series {k}' if len(self.bounds) > 1 else ''}"

    def steps(self) -> np.ndarray:
        """The steps (rows of the series) that these windows read, each once: what a scaler is fitted to."""
        history, gap, horizon = self.lengths
        read = np.zeros(len(self.series) + 1, int)  # +1 where a window begins to read, -1 where it ends
        for first, last in ((0, history), (history + gap, history + gap + horizon)):
            np.add.at(read, self.starts + first, 1)
            np.add.at(read, self.starts + last, -1)
        return self.series[np.cumsum(read)[:-1] > 0]

    def split(self, fractions: Sequence[float], *, overlap: bool = True) -> list[SeriesWindows]:
        """Parts by time: each series is cut at the same fractions, [0.8, 0.2] for training and test.

        A part has the windows whose future is in it. So no future is in two parts, and nothing that an earlier part
        reads comes after its end. The first windows of a later part look back over the cut, at what is known by then;
        with overlap=False they don't, and no step at all is in two parts.
        """
        cuts = np.asarray(fractions, float)
        if cuts.ndim != 1 or not len(cuts) or (cuts <= 0).any() or not np.isclose(cuts.sum(), 1):
            raise ArgumentError(
                f"split: fractions are positive and their sum is 1, as in [0.8, 0.2], not {fractions!r}"
            )
        history, gap, horizon = self.lengths
        of = np.searchsorted(self.bounds[:, 1], self.starts, "right")
        first, lengths = self.bounds[of, 0], np.diff(self.bounds, axis=1)[of, 0]
        reads_from = self.starts - first + (history + gap if overlap else 0)
        reads_to = self.starts - first + history + gap + horizon
        ends = np.rint(np.concatenate([[0], np.cumsum(cuts)]) * lengths[:, None]).astype(int)
        parts = []
        for k in range(len(cuts)):
            mine = (reads_from >= ends[:, k]) & (reads_to <= ends[:, k + 1])
            if not mine.any():
                raise DataError(
                    f"split: part {k} ({cuts[k]:.3g} of the time) has no window of {history + gap + horizon} steps; "
                    "make it larger, or windows shorter"
                )
            parts.append(SeriesWindows(self.series, self.starts[mine], self.bounds, self.lengths, self.columns))
        return parts

    def __repr__(self) -> str:
        history, _, horizon = self.lengths
        of = f"{len(self.bounds)} series" if len(self.bounds) > 1 else f"{self.series.dtype}{[*self.series.shape]}"
        return f"windows({len(self)} of {of}, history={history}, horizon={horizon})"
