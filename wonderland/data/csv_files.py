"""CSV files: a path comes in, a dict of columns goes out, each an array of whole numbers, floats, bools or strings.

pandas reads them where it is there, being several times as fast. The standard library does where it isn't, and where
pandas stumbles: it knows the line. Both give the same columns; a missing cell is NaN in a column of numbers, and None
in one of strings.
"""

from __future__ import annotations

import csv
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wonderland.data.faults import DataError

# What spreadsheets, databases and pandas write for a missing cell; the same as pandas reads.
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip

BOOLS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV file whose first line has their names."""
    if importlib.util.find_spec("pandas") is not None:
        columns = _read_by_pandas(path)
        if columns is not None:
            return columns
    return _read_by_csv(path)


def _read_by_pandas(path: Path) -> dict[str, np.ndarray] | None:
    """By pandas; None where the file isn't quite regular."""
    import pandas

    # Until version 4 the last bit of a float has to be asked for.
    exact: dict[str, Any] = {"float_precision": "round_trip"} if int(pandas.__version__.split(".")[0]) < 4 else {}
    try:
        header = next(_records(path))[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frame = pandas.read_csv(
                path, header=0, index_col=False, na_values=[*MISSING], keep_default_na=False, skipinitialspace=True,
                low_memory=False, encoding="utf-8-sig", dtype_backend="numpy_nullable", **exact,
            )  # fmt: skip
    except Exception:
        return None
    if [*frame.columns] != header or not len(frame):
        return None
    return {name: _of_series(frame[name]) for name in header}


def _of_series(series: Any) -> np.ndarray:
    gone = series.isna().to_numpy()
    kind = series.dtype.kind
    if kind == "b" and not gone.any():
        return series.to_numpy(dtype=bool)
    if kind == "i" and not gone.any():
        return series.to_numpy(dtype=np.int64)
    if kind in "biuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return _column(["" if no else str(value) for value, no in zip(series.to_numpy(dtype=object), gone)])


def _read_by_csv(path: Path) -> dict[str, np.ndarray]:
    """By the standard library; errors name the line."""
    records = _records(path)
    _, names = next(records, (0, []))
    if not names:
        raise DataError(f"{path} is empty: its first line has to have the names of the columns")
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}, line 1: the column {twice!r} is there twice")
    cells: list[list[str]] = []
    for line, record in records:
        if len(record) > len(names):
            raise DataError(
                f"{path}, line {line} has {len(record)} cells, but line 1 names {len(names)} columns: a cell with a "
                "comma in it is written in quotes"
            )
        cells.append(record + [""] * (len(names) - len(record)))
    return {name: _column([row[place] for row in cells]) for place, name in enumerate(names)}


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines that aren't empty, each with the number of its (last) line."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            try:
                for record in reader:
                    if record:
                        yield reader.line_num, record
            except csv.Error as error:
                raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} isn't UTF-8 text (byte {error.start}): is it a CSV file?") from error


def _column(cells: list[str]) -> np.ndarray:
    """The cells of a column as what they all are."""
    gone = [cell in MISSING for cell in cells]
    there = [cell for cell, no in zip(cells, gone) if not no]
    complete = len(there) == len(cells)
    try:
        if complete and all("_" not in cell for cell in cells):
            return np.array([int(cell) for cell in cells], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        if not any("_" in cell for cell in there):
            return np.array([np.nan if no else float(cell) for cell, no in zip(cells, gone)])
    except ValueError:
        pass
    if all(cell in BOOLS for cell in there):
        return np.array([np.nan if no else BOOLS[cell] for cell, no in zip(cells, gone)], bool if complete else float)
    return (
        np.array([None if no else cell for cell, no in zip(cells, gone)], object) if not complete else np.array(cells)
    )


def line_of(path: Path, row: int) -> int:
    """The line of a file that has a row, counted from 1."""
    records = _records(path)
    next(records)
    for place, (line, _) in enumerate(records):
        if place == row:
            return line
    raise AssertionError(f"{path} has no row {row}")
