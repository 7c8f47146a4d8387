"""Features on one scale: a training part comes in once, then arrays or batches come in and scaled ones go out.

Fit on the training part only, and use the same numbers for every other part: what is fitted on all of the data has
seen the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import Arrays, as_dataset
from wonderland.data.collation import Field
from wonderland.data.datasets import Dataset
from wonderland.data.faults import DataError

S = TypeVar("S", bound="Scaler")
CHUNK = 1024  # samples that are read at once of data that isn't in memory
FITTED = ("center", "scale", "mean")


class Scaler:
    """What `Standardize` and `MinMax` share: y = (x - center) / scale, with one center and scale for each feature.

    axis: over which axes of the data the statistics are taken: 0 for each feature of (samples, features), (0, 2, 3)
    for each channel of images, None for one pair of numbers. missing: NaN in the data is an error that names the row
    ("raise"), is left out of the statistics and stays NaN ("keep"), or becomes the mean of the training part ("mean").
    Floats keep their dtype, other numbers become float64; statistics are float64.
    """

    def __init__(
        self,
        axis: int | tuple[int, ...] | None = 0,
        missing: Literal["raise", "keep", "mean"] = "raise",
        field: Field = 0,
    ):
        if missing not in ("raise", "keep", "mean"):
            raise ArgumentError(f"missing is 'raise', 'keep' or 'mean', not {missing!r}")
        axes = (axis,) if isinstance(axis, int) else axis
        if axes is not None and 0 not in axes:
            raise ArgumentError(
                f"axis={axis!r} leaves out 0, which counts samples: nothing of one sample can be fitted"
            )
        self.axis: tuple[int, ...] | None = axes
        self.missing: str = missing
        self.field: Field = field
        self.center: Any = None
        self.scale: Any = None
        self.mean: Any = None

    def _statistics(self, mean: Any, deviation: Any, least: Any, most: Any) -> tuple[Any, Any]:
        """Center and scale, of a feature's mean, standard deviation, smallest and largest value."""
        raise NotImplementedError

    def fit(self: S, data: Any) -> S:
        """Take the statistics of the training part: an array, or a dataset, of which field `field` is taken."""
        count, mean, squares, least, most = 0.0, 0.0, 0.0, np.inf, -np.inf
        for chunk in self._chunks(data):
            there = ~np.isnan(chunk)
            axis = self._axes(chunk)
            few = there.sum(axis, keepdims=True)
            with np.errstate(all="ignore"):
                center = np.where(few > 0, np.where(there, chunk, 0).sum(axis, keepdims=True) / few, 0)
                off = np.where(there, chunk - center, 0)
                center = center + np.where(few > 0, off.sum(axis, keepdims=True) / few, 0)  # what rounding has left
                off = np.where(there, chunk - center, 0)
                # Chan, Golub and LeVeque 1979: sums of squares of two parts, by the distance of their means.
                total = count + few
                apart = np.where(total > 0, center - mean, 0)
                share = np.where(total > 0, few / total, 0)
                squares = squares + (off * off).sum(axis, keepdims=True) + apart * apart * share * count
                mean, count = mean + apart * share, total
            least = np.minimum(least, np.where(there, chunk, np.inf).min(axis, keepdims=True))
            most = np.maximum(most, np.where(there, chunk, -np.inf).max(axis, keepdims=True))
        if not np.all(np.asarray(count) > 0):
            column = np.flatnonzero(np.asarray(count).ravel() == 0)[0]
            raise DataError(f"feature {column} is NaN in all rows, so there is nothing to fit: leave it out")
        mean = np.where(least == most, least, mean)  # exactly, so that a constant feature becomes 0
        deviation = np.where(least == most, 0, np.sqrt(squares / count))
        center, scale = self._statistics(mean, deviation, least, most)
        if not (np.isfinite(center).all() and np.isfinite(scale).all()):
            raise DataError("the numbers are so large that their spread isn't a float64: divide them before")
        self.center, self.scale, self.mean = center, scale, mean
        return self

    def _axes(self, array: np.ndarray) -> Any:
        if self.axis is not None and not all(-array.ndim <= a < array.ndim for a in self.axis):
            raise ArgumentError(f"axis={self.axis} doesn't fit data of shape {array.shape}")
        return self.axis

    def _chunks(self, data: Any) -> Iterator[np.ndarray]:
        """The data in float64, with what is wrong in it said by row."""
        if (isinstance(data, np.ndarray) and not isinstance(data, np.memmap)) or isinstance(data, list):
            yield self._checked(np.asarray(data), lambda row: f"row {row}")
            return
        dataset = as_dataset(data)
        step = len(dataset) if isinstance(dataset, Arrays) and not dataset.mapped else CHUNK
        if not len(dataset):
            raise DataError("there is nothing to fit: the data has no samples")
        for start in range(0, len(dataset), step):
            batch = dataset[start : start + step]
            yield self._checked(self._field(batch), lambda row, start=start: dataset.name(start + row))

    def _field(self, batch: Any) -> np.ndarray:
        try:
            return np.asarray(batch[self.field])
        except (KeyError, IndexError):
            there = [*batch] if isinstance(batch, dict) else [*range(len(batch))]
            raise ArgumentError(f"field={self.field!r} isn't in the data, which has {there}") from None

    def _checked(self, array: np.ndarray, name: Any) -> np.ndarray:
        if array.dtype.kind not in "biuf":
            raise DataError(f"{type(self).__name__} scales real numbers, not {array.dtype}")
        if array.size == 0 or array.ndim == 0:
            raise DataError(f"there is nothing to fit in an array of shape {array.shape}")
        values = array.astype(np.float64)
        wrong = ~np.isfinite(values) if self.missing == "raise" else np.isinf(values)
        if wrong.any():
            row, *rest = np.argwhere(wrong)[0].tolist()
            value = values[(row, *rest)]
            hint = ' or say missing="keep" or "mean"' if np.isnan(value) else ""
            place = f", column {rest[0]}," if len(rest) == 1 else f" at {tuple(rest)}" if rest else ""
            raise DataError(f"{name(row)}{place} is {value}: {type(self).__name__} can't be fitted; replace it{hint}")
        return values

    def __call__(self, x: Any, rng: np.random.Generator | None = None) -> Any:
        """Scale an array, a batch (its field `field`), or a dataset of arrays; a transform of a Loader, too."""
        return self._apply(x, self._forward)

    def inverse(self, x: Any) -> Any:
        """Back to what it was before scaling."""
        return self._apply(x, self._backward)

    def _forward(self, x: np.ndarray) -> np.ndarray:
        if self.missing == "mean":
            x = np.where(np.isnan(x), self.mean, x)
        return (x - self.center) / self.scale

    def _backward(self, x: np.ndarray) -> np.ndarray:
        return x * self.scale + self.center

    def _apply(self, x: Any, function: Any) -> Any:
        if self.center is None:
            raise ArgumentError(f"this {type(self).__name__} isn't fitted: call .fit(training part) first")
        if isinstance(x, Arrays):
            place = x.keys.index(str(self.field)) if x.keys else self.field
            assert isinstance(place, int)
            arrays = [*x.arrays]
            arrays[place] = self._array(arrays[place], function)
            return x.replaced(arrays)
        if isinstance(x, Dataset):
            raise ArgumentError(
                f"a {type(x).__name__} isn't in arrays: scale its batches, wl.data.Loader(..., transform=scaler)"
            )
        if isinstance(x, tuple):
            self._field(x)
            return tuple(self._array(v, function) if i == self.field else v for i, v in enumerate(x))
        if isinstance(x, Mapping):
            return {**x, self.field: self._array(self._field(x), function)}
        return self._array(x, function)

    def _array(self, x: Any, function: Any) -> np.ndarray:
        x = np.asarray(x)
        shape = self.center.shape
        try:
            fits = np.broadcast_shapes(x.shape, shape) == x.shape and x.ndim >= len(shape)
        except ValueError:
            fits = False
        if not fits:
            raise DataError(
                f"{type(self).__name__} was fitted on features of shape {shape[1:]}, not on an array of shape {x.shape}"
            )
        if self.missing == "raise" and x.dtype.kind == "f" and np.isnan(x).any():
            row = int(np.argwhere(np.isnan(x))[0][0])
            raise DataError(f'row {row} has NaN: replace it, or say {type(self).__name__}(missing="keep" or "mean")')
        out = function(x.astype(np.float64))
        return out.astype(x.dtype) if x.dtype.kind == "f" else out

    def state(self) -> dict[str, Any]:
        """What was fitted; it can be written as JSON."""
        if self.center is None:
            raise ArgumentError(f"this {type(self).__name__} isn't fitted, so it has no state")
        return {**self._settings(), **{name: getattr(self, name).tolist() for name in FITTED}}

    def _settings(self) -> dict[str, Any]:
        return {"scaler": type(self).__name__, "missing": self.missing}

    def load_state(self: S, state: Mapping[str, Any]) -> S:
        """Take what another one has fitted."""
        if state.get("scaler") != type(self).__name__ or not {*FITTED} <= {*state}:
            raise ArgumentError(f"this isn't the state of a fitted {type(self).__name__}: {[*state]}")
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise ArgumentError(f"the state is of {name}={state.get(name)!r}, this one has {name}={value!r}")
        for name in FITTED:
            setattr(self, name, np.array(state[name], np.float64))
        return self


class Standardize(Scaler):
    """Each feature with mean 0 and standard deviation 1 on the training part; a constant one becomes 0.

    scaler = wl.data.Standardize().fit(train)               # of the training part only
    train, test = scaler(train), scaler(test)               # arrays, or datasets of arrays
    loader = wl.data.Loader(images, transform=wl.data.Standardize(axis=(0, 2, 3)).fit(images))

    The arguments are those of `Scaler`.
    """

    def _statistics(self, mean: Any, deviation: Any, least: Any, most: Any) -> tuple[Any, Any]:
        return mean, np.where(deviation == 0, 1, deviation)


class MinMax(Scaler):
    """Each feature from `low` to `high` on the training part; a constant one becomes `low`.

    Values of other parts can be outside; with clip=True they are cut off there.

    scaler = wl.data.MinMax(-1, 1).fit(train)

    The other arguments are those of `Scaler`.
    """

    def __init__(
        self,
        low: float = 0.0,
        high: float = 1.0,
        clip: bool = False,
        axis: int | tuple[int, ...] | None = 0,
        missing: Literal["raise", "keep", "mean"] = "raise",
        field: Field = 0,
    ):
        super().__init__(axis, missing, field)
        if not low < high:
            raise ArgumentError(f"low is less than high, but they are {low} and {high}")
        self.low: float = float(low)
        self.high: float = float(high)
        self.clip: bool = bool(clip)

    def _statistics(self, mean: Any, deviation: Any, least: Any, most: Any) -> tuple[Any, Any]:
        with np.errstate(over="ignore"):
            return least, np.where(most == least, 1, most - least)

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "low": self.low, "high": self.high, "clip": self.clip}

    def _forward(self, x: np.ndarray) -> np.ndarray:
        y = super()._forward(x) * (self.high - self.low) + self.low
        return np.clip(y, self.low, self.high) if self.clip else y

    def _backward(self, x: np.ndarray) -> np.ndarray:
        return super()._backward((x - self.low) / (self.high - self.low))
