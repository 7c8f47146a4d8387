"""`train.History`: what training did, number by number. The loop writes it; people read it, draw it and keep it."""

from __future__ import annotations

import html
import json
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from wonderland.train.formats import cell, number, text_table, thinned
from wonderland.train.pictures import curves

MOST_STEPS = 16384
ROWS = 20  # of a table in a notebook


class History(dict[str, np.ndarray]):
    """What was measured in each epoch: a dict of arrays, `history["loss"]`, all of one length.

    The names are "epoch" (1 for the first), those of losses and metrics, "rate" and "seconds". Where a value was not
    measured in an epoch there is NaN. `history.steps` is the same per step, with "epoch" and "step"; of more than
    `most_steps` steps only every second is kept, then every fourth and so on, so that memory and checkpoints stay
    small (None keeps all). `history.notes` are lines about what happened: why it stopped, what was resumed.
    `history.stopped` is why training ended before its last epoch, "interrupted" for one; None if it didn't.

        history = train.fit(model, loss, optimizer, data, epochs=10)
        history["loss"][-1], history.steps["loss"], print(history.table()), history.plot()
    """

    def __init__(self, most_steps: int | None = MOST_STEPS):
        if most_steps is not None and most_steps < 2:
            raise ValueError(f"History: most_steps is at least 2, or None for all of them, got {most_steps!r}")
        super().__init__()
        self.most_steps: int | None = most_steps
        self.notes: list[str] = []
        self.stopped: str | None = None
        self.last_step: dict[str, Any] = {}
        self._steps: dict[str, array] = {}
        self._kept = 0
        self._seen = 0  # steps that were added
        self._stride = 1  # of which every _stride-th is kept

    # What the loop calls

    def add_step(self, epoch: int, step: int, values: Mapping[str, Any]) -> None:
        """Append what was measured in a step: `epoch` and `step` count from 1; values are numbers."""
        self.last_step = {"epoch": epoch, "step": step, **values}
        seen, self._seen = self._seen, self._seen + 1
        if seen % self._stride:
            return
        columns, kept = self._steps, self._kept
        if kept == self.most_steps:
            self._thin()
            columns, kept = self._steps, self._kept
            if seen % self._stride:
                return
        row = self.last_step
        if columns.keys() != row.keys():
            for name in row:
                if name not in columns:
                    columns[name] = array("d", [float("nan")]) * kept
            row = dict.fromkeys(columns, float("nan")) | row
        for name, value in row.items():
            columns[name].append(value)
        self._kept = kept + 1

    def add_epoch(self, epoch: int, values: Mapping[str, Any]) -> None:
        """Append what was measured in an epoch, which counts from 1; values are numbers."""
        count = self.epochs
        row = {"epoch": epoch, **values}
        for name, value in row.items():
            value = _plain(value, name)
            old = self.get(name, np.full(count, np.nan) if count else np.zeros(0, np.asarray(value).dtype))
            self[name] = np.append(old, value)
        for name in self.keys() - row.keys():
            self[name] = np.append(self[name], np.nan)

    def _thin(self) -> None:
        for name, column in self._steps.items():
            self._steps[name] = column[::2]
        self._kept = (self._kept + 1) // 2
        self._stride *= 2

    # What people read

    @property
    def epochs(self) -> int:
        """How many epochs were finished."""
        return len(next(iter(self.values()))) if self.keys() else 0

    @property
    def steps(self) -> dict[str, np.ndarray]:
        """What was measured in each step, as a dict of arrays."""
        whole = ("epoch", "step")
        return {n: np.array(c, np.int64 if n in whole else np.float64) for n, c in self._steps.items()}

    @property
    def last(self) -> dict[str, Any]:
        """The values of the last epoch, as Python's numbers; empty if there is none."""
        return {name: values[-1].item() for name, values in self.items()} if self.epochs else {}

    def best(self, name: str = "validation_loss", mode: str = "min") -> dict[str, Any]:
        """The values of the epoch in which `name` was smallest (or largest, with `mode="max"`)."""
        if mode not in ("min", "max"):
            raise ValueError(f'History.best: mode is "min" or "max", got {mode!r}')
        if name not in self:
            raise KeyError(f"History.best: there is no {name!r}, only {', '.join(self) or 'nothing yet'}")
        values = np.asarray(self[name], np.float64) * (1 if mode == "min" else -1)
        if np.isnan(values).all():
            raise ValueError(f"History.best: all values of {name!r} are NaN")
        i = int(np.nanargmin(values))
        return {key: column[i].item() for key, column in self.items()}

    def table(self, most: int | None = None) -> str:
        """The epochs as text, one a line; of more than `most` some are left out, evenly."""
        rows = thinned(self.epochs, most or self.epochs)
        if not rows:
            return "no epochs yet"
        return text_table({name: [cell(name, values[i]) for i in rows] for name, values in self.items()})

    def plot(self, dark: bool = False) -> Any:
        """The curves as a matplotlib Figure; see `train.pictures.curves`."""
        return curves(self, dark=dark)

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {number(value)}" for name, value in self.last.items() if name != "epoch")
        return f"History({self.epochs} epoch{'s' * (self.epochs != 1)}{': ' * bool(said)}{said})"

    def _repr_html_(self) -> str:
        return html_table(self, most=ROWS)

    # What is kept

    def state(self) -> dict[str, Any]:
        """Everything as a dict that JSON can write, exactly; `load_state` reads it."""
        return {
            "epochs": {name: [_written(v) for v in values.tolist()] for name, values in self.items()},
            "steps": {name: [_written(v) for v in column] for name, column in self._steps.items()},
            "last_step": {name: _written(_plain(v, name)) for name, v in self.last_step.items()},
            "most_steps": self.most_steps, "seen": self._seen, "stride": self._stride, "notes": [*self.notes],
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Become what `state` was made of."""
        missing = {"epochs", "steps", "last_step", "most_steps", "seen", "stride", "notes"} - {*state}
        if missing:
            raise ValueError(f"this isn't the state of a History: {sorted(missing)} is missing")
        columns = {name: np.array([_read(v) for v in values]) for name, values in state["epochs"].items()}
        steps = {name: array("d", [_read(v) for v in values]) for name, values in state["steps"].items()}
        for what, found in (("epochs", columns), ("steps", steps)):
            if len({len(column) for column in found.values()}) > 1:
                lengths = {name: len(column) for name, column in found.items()}
                raise ValueError(f"this isn't the state of a History: its {what} have different lengths, {lengths}")
        self.clear()
        self.update(columns)
        self._steps, self._kept = steps, len(next(iter(steps.values()), ()))
        self.most_steps, self._seen, self._stride = state["most_steps"], state["seen"], state["stride"]
        self.last_step = {name: _read(v) for name, v in state["last_step"].items()}
        self.notes = [*state["notes"]]

    def to_json(self) -> str:
        """Everything as text; `from_json` reads it. Strict JSON: what isn't finite is written as text."""
        return json.dumps(self.state(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> History:
        """The History that `to_json` wrote."""
        history = cls()
        history.load_state(json.loads(text))
        return history


def _plain(value: Any, name: str) -> int | float:
    """A number of an epoch as Python's."""
    if isinstance(value, (int, float)):
        return value
    if np.ndim(value) != 0 or np.asarray(value).dtype.kind not in "biuf":
        raise TypeError(f"History keeps numbers: {name!r} is {type(value).__name__} of shape {np.shape(value)}")
    return np.asarray(value).item()


def _written(value: float) -> float | str:
    return value if value - value == 0 else repr(float(value))  # "nan", "inf", "-inf"


def _read(value: Any) -> float:
    return float(value) if isinstance(value, str) else value


def html_table(columns: Mapping[str, Any], most: int | None = None) -> str:
    """Columns of equal length as an HTML table; of more than `most` rows some are left out, evenly."""
    count = max((len(values) for values in columns.values()), default=0)
    if not count:
        return "<p>no epochs yet</p>"
    rows = thinned(count, most or count)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell(name, v[i]))}</td>" for name, v in columns.items()) + "</tr>"
        for i in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
