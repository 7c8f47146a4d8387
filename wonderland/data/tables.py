"""Tables with named columns, of files or data frames: columns come in, arrays of features and targets go out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import Arrays
from wonderland.data.csv_files import line_of, read_csv
from wonderland.data.faults import DataError, package_missing, unmasked

Missing = Literal["raise", "drop", "keep"] | float


class Table(Arrays):
    """A table: sample i is (features, target) of row i, or (features,) without a target.

    source: the path of a .csv or .parquet file, a data frame (pandas, polars, pyarrow) or a dict of columns.
    features: the names of the columns that are inputs; all but target and groups if not given. They become one array
    (rows, columns) of `dtype`. target: the name of the column to predict, or a list of names. Strings become the
    numbers of `classes`, which are sorted; whole numbers stay, others are floats of `dtype`.
    one_hot: feature columns whose values are kinds, not amounts: each becomes a column of 0 and 1 for each kind.
    `categories`, a dict from such a column to its kinds, is an attribute, and an argument for a table of new data.
    classes: the classes of the target in order, if they shouldn't be those that occur.
    groups: a column for splits, that of patients say.
    missing: what to do with empty cells and NaN. "raise" is an error that names row and column, "drop" leaves the row
    out, "keep" leaves NaN in the features, a number replaces them there. A missing target is an error or is dropped.
    To fill with means of the training part, keep them and use Standardize(missing="mean").

    t = wl.data.Table("iris.csv", target="species")
    t.names, t.classes, t.arrays
    """

    def __init__(
        self,
        source: Any,
        features: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
        missing: Missing = "raise",
        one_hot: Sequence[str] = (),
        categories: Mapping[str, Sequence[Any]] | None = None,
        classes: Sequence[str] | None = None,
        groups: str | None = None,
        dtype: Any = np.float64,
    ):
        _check_missing(missing)
        columns, called, self._line = _columns_of(source)
        self.source: str = called
        self.classes: list[str] | None = None
        if np.dtype(dtype).kind != "f":
            raise ArgumentError(f"dtype is a floating-point one, not {np.dtype(dtype)}")
        targets: list[str] = [] if target is None else np.array(target, object).reshape(-1).tolist()
        kinds = [one_hot] if isinstance(one_hot, str) else [*one_hot]
        if isinstance(features, str):
            features = [features]
        if features is None:
            features = [name for name in columns if name not in {*targets, groups}]
        _check_columns(self.source, columns, [*features, *targets, *([groups] if groups else [])])
        for given in (features, targets, (classes or ()), *(categories or {}).values()):
            if twice := [one for one in given if [*given].count(one) > 1]:
                raise ArgumentError(f"{twice[0]!r} is there twice among {[*given]}")
        for name in {*features} & {*targets}:
            raise DataError(
                f"column {name!r} is among the features and the targets: the model would be told the answer"
            )
        for name in kinds:
            if name not in features:
                raise ArgumentError(f"one_hot has {name!r}, which isn't one of the features {[*features]}")
        if not features:
            raise DataError(f"{self.source} has no column for the features: its columns are {[*columns]}")
        count = len(next(iter(columns.values())))
        keep = np.ones(count, bool)
        if missing == "drop":
            for name in [*features, *targets, *([groups] if groups else [])]:
                keep &= ~_missing(columns[name])
            if count and not keep.any():
                raise DataError(f"{self.source}: each of its {count} rows has something missing, so none is left")
        elif not count:
            raise DataError(f"{self.source} has no rows, only the columns {[*columns]}")
        rows = np.flatnonzero(keep)
        chosen = {name: np.asarray(columns[name])[keep] for name in columns}
        self.categories: dict[str, list[Any]] = {k: [*v] for k, v in (categories or {}).items()}
        inputs, names = self._features(chosen, features, kinds, rows, missing, np.dtype(dtype))
        found = [
            self._target(
                chosen[name],
                name,
                rows,
                classes,
                len(targets) == 1,
                bool(_missing(columns[name]).any()),
                np.dtype(dtype),
            )
            for name in targets
        ]
        answers = [] if not found else found if len(found) == 1 else [np.stack(found, 1)]
        if groups is not None and _missing(chosen[groups]).any():
            raise DataError(
                f"{self._cell(int(_missing(chosen[groups]).argmax()), rows, groups)} (the group) is missing"
            )
        known = self.classes
        super().__init__(
            inputs,
            *answers,
            names=names,
            classes=known,
            groups=None if groups is None else chosen[groups],
            missing="keep",
        )
        self.rows: np.ndarray | None = rows

    def _features(
        self,
        columns: Mapping[str, np.ndarray],
        features: Sequence[str],
        kinds: Sequence[str],
        rows: np.ndarray,
        missing: Missing,
        dtype: np.dtype,
    ) -> tuple[np.ndarray, list[str]]:
        """The array of features, and the names of its columns."""
        found, names = [], []
        for name in features:
            values, gone = columns[name], _missing(columns[name])
            if gone.any() and (missing == "raise" or name in kinds):
                kind = " (one_hot columns can't be filled)" if name in kinds and missing != "raise" else ""
                raise DataError(
                    f"{self._cell(int(gone.argmax()), rows, name)} is missing{_more(gone)}{kind}: "
                    'missing="drop" leaves such rows out, "keep" leaves NaN, a number fills them'
                )
            if name in kinds:
                known = self.categories.get(name) or self._kinds(values, name, rows)
                self.categories[name] = known
                hot = values[:, None] == np.array(known)[None, :]
                if not hot.any(1).all():
                    row = int((~hot.any(1)).argmax())
                    raise DataError(
                        f"{self._cell(row, rows, name)} is {_shown(values[row])}, which isn't one of its kinds {known}"
                    )
                found += [*hot.T.astype(dtype)]
                names += [f"{name}={kind}" for kind in known]
                continue
            numbers = _numbers(values, gone, dtype, lambda row, name=name: self._cell(row, rows, name))
            if gone.any() and not isinstance(missing, str):
                numbers = np.where(gone, missing, numbers).astype(dtype)
            found.append(numbers)
            names.append(str(name))
        return np.stack(found, 1), names

    def _kinds(self, values: np.ndarray, name: str, rows: np.ndarray) -> list[Any]:
        """The different values of a column, sorted."""
        try:
            return np.unique(values).tolist()
        except TypeError:
            first = values[0]
            row = next(row for row, value in enumerate(values.tolist()) if type(value) is not type(first))
            raise DataError(
                f"{self._cell(row, rows, name)} is {_shown(values[row])}, and row {rows[0]} has {_shown(first)}: the "
                "kinds of a column are all text, or all numbers"
            ) from None

    def _target(
        self, values: np.ndarray, name: str, rows: np.ndarray, classes: Any, alone: bool, dropped: bool, dtype: np.dtype
    ) -> np.ndarray:
        gone = _missing(values)
        if gone.any():
            raise DataError(
                f"{self._cell(int(gone.argmax()), rows, name)} (the target) is missing{_more(gone)}: a label can't be "
                'filled in; missing="drop" leaves such rows out'
            )
        if values.dtype.kind in "OUST" or classes is not None:
            if not alone:
                raise DataError(
                    f"the targets are several columns, so {name!r} has to be of numbers, not {_shown(values[0])}"
                )
            known = self._kinds(values, name, rows) if classes is None else [*classes]
            self.classes = [str(value) for value in known]
            number = {value: place for place, value in enumerate(known)}
            for row, value in enumerate(values.tolist()):
                if value not in number:
                    raise DataError(f"{self._cell(row, rows, name)} is {value!r}, which isn't one of {known}")
            return np.array([number[value] for value in values.tolist()], np.int64)
        if values.dtype.kind in "biu":
            return values.astype(np.int64)
        if values.dtype.kind == "f" and dropped and (values == np.floor(values)).all() and np.abs(values).max() < 2**53:
            return values.astype(np.int64)  # whole numbers, which were floats for the NaN among them
        if values.dtype.kind != "f":
            raise DataError(f"{self._cell(0, rows, name)} is {_shown(values[0])}: a target is numbers or strings")
        return values.astype(dtype)

    def _cell(self, row: int, rows: np.ndarray, name: str) -> str:
        return f"{self._row(int(rows[row]))}, column {name!r},"

    def _row(self, row: int) -> str:
        line = "" if self._line is None else f" (line {self._line(row)})"
        return f"{self.source}, row {row}{line}"

    def name(self, index: int) -> str:
        """Its row, and its line in the file."""
        return self._row(index if self.rows is None else int(self.rows[index]))


def _check_missing(missing: Any) -> None:
    number = isinstance(missing, (int, float, np.integer, np.floating)) and not isinstance(missing, bool)
    if not number and not (isinstance(missing, str) and missing in ("raise", "drop", "keep")):
        raise ArgumentError(f"missing is 'raise', 'drop', 'keep' or a number to fill with, not {missing!r}")


def _check_columns(source: str, columns: Mapping[str, Any], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in columns:
            close = get_close_matches(str(name), [*map(str, columns)], 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise DataError(f"{source} has no column {name!r}{hint}: its columns are {[*columns]}")


def _numbers(values: np.ndarray, gone: np.ndarray, dtype: np.dtype, cell: Callable[[int], str]) -> np.ndarray:
    """A column of numbers; `cell(row)` says where one is that isn't."""
    if values.dtype.kind in "biuf":
        return values.astype(dtype)
    row = int((~gone).argmax())
    if values.dtype.kind in "OUST":
        for row, value in enumerate(values.tolist()):  # the first that isn't a number
            try:
                float(value)
            except (TypeError, ValueError):
                if not gone[row]:
                    break
    raise DataError(
        f"{cell(row)} is {_shown(values[row])}, not a number: leave the column out of features=, or put it into "
        "one_hot= if its values are kinds"
    )


def _shown(value: Any) -> str:
    """A cell as one would write it in Python."""
    return str(value) if isinstance(value, np.datetime64) else repr(getattr(value, "item", lambda: value)())


def _more(gone: np.ndarray) -> str:
    """How many others of a column are missing, in words."""
    count = int(gone.sum()) - 1
    return f", as {'is' if count == 1 else 'are'} {count} more of this column" if count else ""


def _missing(values: Any) -> np.ndarray:
    """Where a column has nothing: NaN or None."""
    values = np.asarray(values)
    if values.dtype.kind in "fcmM":
        return np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values)
    if values.dtype.kind == "O":
        return np.array([value is None or value != value for value in values.tolist()], bool)
    return np.zeros(len(values), bool)


def _columns_of(source: Any) -> tuple[dict[str, np.ndarray], str, Callable[[int], int] | None]:
    """The columns of a table, what to call it, and its lines by row where it has some."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise DataError(f"{path} isn't there" if not path.exists() else f"{path} is a folder, not a file")
        if path.suffix.lower() in (".parquet", ".pq"):
            return _of_frame(_read_parquet(path)), str(path), None
        return read_csv(path), str(path), partial(line_of, path)
    if isinstance(source, Mapping):
        columns = {str(name): _plain(values) for name, values in source.items()}
    elif hasattr(source, "column_names") or hasattr(source, "columns"):
        columns = _of_frame(source)
    else:
        raise ArgumentError(
            f"Table takes the path of a .csv or .parquet file, a data frame or a dict of columns, not "
            f"{type(source).__name__}; an array goes into wl.data.Arrays"
        )
    what = "the table" if isinstance(source, Mapping) else f"the {type(source).__name__}"
    if not columns:
        raise DataError(f"{what} has no columns")
    lengths = {name: len(values) for name, values in columns.items()}
    if len({*lengths.values()}) > 1:
        raise DataError(f"the columns of {what} have different lengths: {lengths}")
    return columns, what, None


def _of_frame(frame: Any) -> dict[str, np.ndarray]:
    """The columns of a frame of pandas, polars or pyarrow: they agree on this much."""
    if hasattr(frame, "column_names"):
        return {name: _plain(frame.column(name).to_numpy()) for name in frame.column_names}
    names = [*map(str, frame.columns)]
    if len({*names}) < len(names):
        raise DataError(f"the {type(frame).__name__} has a column twice: {names}")
    return {name: _plain(frame[column]) for name, column in zip(names, frame.columns)}


def _plain(values: Any) -> np.ndarray:
    """A column as an array of numbers, or of strings and None."""
    array = unmasked(values, "a column of the table")
    if array.ndim != 1:
        raise DataError(f"a column of a table has one axis, not shape {array.shape}")
    if array.dtype.kind != "O":
        return array
    gone = np.array([v is None or v is _not_available(v) or v != v for v in array.tolist()], bool)
    rest = {type(value) for value, no in zip(array.tolist(), gone) if not no}
    if rest and all(issubclass(kind, (bool, np.bool_, int, float, np.integer, np.floating)) for kind in rest):
        if not gone.any():
            return np.array(array.tolist())
        return np.array([np.nan if no else float(v) for v, no in zip(array.tolist(), gone)])
    return np.array([None if no else v for v, no in zip(array.tolist(), gone)], object)


def _not_available(value: Any) -> Any:
    """The value itself if it is pandas' NA, which is neither equal nor unequal to anything."""
    return value if type(value).__name__ == "NAType" else _not_available


def _read_parquet(path: Path) -> Any:
    try:
        try:
            from pyarrow import parquet  # pyright: ignore[reportMissingImports]

            return parquet.read_table(path)
        except ImportError:
            import pandas

            return pandas.read_parquet(path)
    except ImportError as error:
        package_missing("pyarrow", f"{path}: reading Parquet", error)
    except Exception as error:
        raise DataError(f"{path} can't be read as a Parquet file: {error}") from error
