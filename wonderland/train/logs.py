"""Logs of training as callbacks of `train.fit`: `CSVLog` for tables, `TensorBoardLog` for TensorBoard."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wonderland.core.errors import ArgumentError
from wonderland.train.events import EventFile, bytes_field, histogram, image, integer_field
from wonderland.train.ink import png
from wonderland.train.reports import write_atomically


class CSVLog:
    """A callback that writes a table of the epochs, one a row, as they end; what is there is always whole rows.

    A resumed training goes on where its checkpoint was: rows of epochs after it are removed, so none is there twice. A
    training that begins anew replaces the file when its first epoch is done.

        train.fit(..., callbacks=[train.CSVLog("runs/digits.csv")])
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path)
        self._names: list[str] | None = None  # of the columns, if the file is this training's

    def begin(self, run: Any) -> None:
        """Make the file hold what the history does, if that has something."""
        self._names = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if run.history.epochs:
            self._write(run.history)

    def after_step(self, run: Any) -> None:
        """Nothing."""

    def after_epoch(self, run: Any) -> None:
        """Append the epoch."""
        if self._names != [*run.history] or not self.path.exists():
            self._write(run.history)
            return
        with open(self.path, "a", encoding="utf-8", newline="") as out:
            out.write(_rows([run.history.last.values()]))  # in one piece

    def end(self, run: Any) -> None:
        """Nothing: every epoch is there."""

    def state(self) -> dict[str, Any]:
        """Nothing to be resumed: the history has it all."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""

    def _write(self, history: Any) -> None:
        self._names = [*history]
        columns = [values.tolist() for values in history.values()]
        write_atomically(self.path, _rows([self._names, *zip(*columns)]))


def _rows(rows: Any) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


class TensorBoardLog:
    """A callback that writes files for TensorBoard into a folder: `tensorboard --logdir runs` shows them.

    Scalars of each epoch ("loss/training", "loss/validation", "accuracy/validation" ...) and of every `every`-th step
    ("loss/step"; None: of no step) over the number of steps; with `histograms=True` those of all parameters after each
    epoch; `images`, a function of the run, returns arrays or matplotlib Figures by name, which are shown, too. Nothing
    needs to be installed. A resumed training goes on in a new file, and what came after its checkpoint doesn't count.

        train.fit(..., callbacks=[train.TensorBoardLog("runs/digits", histograms=True)])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: int | None = 10,
        histograms: bool = False,
        images: Callable[[Any], Mapping[str, Any]] | None = None,
    ):
        if every is not None and every < 1:
            raise ArgumentError(f"TensorBoardLog: every is a positive number of steps, or None for none, got {every!r}")
        self.folder: Path = Path(folder)
        self.every = every
        self.histograms = histograms
        self.images = images
        self._file: EventFile | None = None

    def begin(self, run: Any) -> None:
        """A new file."""
        if self._file is not None:
            self._file.close()
        self._file = EventFile(self.folder)
        if run.step:
            self._file.restart(run.step + 1)

    def after_step(self, run: Any) -> None:
        """The scalars of the step."""
        if self.every is None or run.step % self.every or self._file is None:
            return
        values = {f"{n}/step": v for n, v in run.history.last_step.items() if n not in ("epoch", "step")}
        self._file.scalars(run.step, values)

    def after_epoch(self, run: Any) -> None:
        """The scalars of the epoch; histograms and images."""
        if self._file is None:
            return
        measured = {name: value for name, value in run.history.last.items() if name != "epoch"}
        self._file.scalars(run.step, {_tag(name): value for name, value in measured.items()})
        if self.histograms:
            named = run.model.named_parameters()
            self._file.add(run.step, [histogram(name.replace(".", "/"), value) for name, value in named])
        if self.images is not None:
            self._file.add(run.step, [_image(name, shown) for name, shown in self.images(run).items()])
        self._file.flush()

    def end(self, run: Any) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def state(self) -> dict[str, Any]:
        """Nothing to be resumed: files are only appended to."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


def _tag(name: str) -> str:
    """Training and validation in one group of TensorBoard's."""
    if name.startswith("validation_"):
        return f"{name.removeprefix('validation_')}/validation"
    return f"{name}/training"


def _image(name: str, shown: Any) -> bytes:
    if not hasattr(shown, "savefig"):
        return image(name, shown)
    width, height = (round(side * 100) for side in shown.get_size_inches())
    proto = b"".join(integer_field(i, v) for i, v in enumerate((height, width, 4), 1))
    return bytes_field(1, name.encode()) + bytes_field(4, proto + bytes_field(4, png(shown, dpi=100)))
