"""`train.Progress`: what people see while a model is trained. A bar in a terminal, lines in a log, HTML in a notebook.

Here is what is shown: where training is, its pace, and when it will be done. How it looks is in `progress_views.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from wonderland.train.progress_views import Moment, ProgressView, view_for


class Progress:
    """Shows how training goes on: a bar in a terminal, lines in a log, HTML in a notebook.

    `style` is "bar", "lines", "notebook", "none", or "auto", which looks at `out` (standard error, unless given).
    `batches_per_epoch` may be None where nobody knows. With `counted=(768, "tokens")` the pace is that of what a step
    has so many of, instead of steps. Epochs and batches count from 1: `step(3, 10, ...)` says that
    the tenth batch of the third epoch is done. Values are numbers by name; they are only looked at when something is
    drawn, which happens about ten times a second, so that a step costs well under a microsecond.

        with train.Progress(10, len(loader)) as progress:
            for epoch in range(1, 11):
                for batch, data in enumerate(loader, 1):
                    progress.step(epoch, batch, {"loss": loss})
                progress.epoch(epoch, {"loss": mean, "accuracy": accuracy}, seconds)
    """

    def __init__(
        self, total_epochs: int, batches_per_epoch: int | None = None, out: TextIO | None = None, style: str = "auto",
        *, counted: tuple[int, str] = (1, "steps"),
    ):  # fmt: skip
        self.total_epochs = total_epochs
        self.counted: tuple[int, str] = counted
        self.batches_per_epoch = batches_per_epoch or None
        self._view: ProgressView = view_for(style, sys.stderr if out is None else out)
        self._clock = time.monotonic
        self._next = float("inf")  # when to draw again; not before start()
        self._began = self._epoch_began = 0.0
        self._epoch, self._batch = 0, 0
        self._mark: tuple[float, int] | None = None  # a time, and the batches that were done then
        self._pace: float | None = None  # seconds of a step
        self._epoch_seconds: float | None = None
        self._warming = 0.0  # seconds before the first step was done: compiling, mostly
        self._open = False

    def start(self) -> None:
        """Begin: the clock starts."""
        if not self._open:
            self._open = True
            self._began = self._epoch_began = self._clock()
            self._next = float("-inf")
            self._view.open()

    def step(self, epoch: int, batch: int, values: Mapping[str, Any]) -> None:
        """A step was done: `batch` of this epoch are."""
        self._batch = batch
        now = self._clock()
        if now >= self._next:
            self._step(epoch, batch, values, now)

    def _step(self, epoch: int, batch: int, values: Mapping[str, Any], now: float) -> None:
        self._epoch = epoch
        if self._mark is None:
            if self._pace is None:
                self._warming = now - self._began
            self._mark = now, batch
        elif batch > self._mark[1]:
            measured = (now - self._mark[0]) / (batch - self._mark[1])
            self._pace = measured if self._pace is None else 0.7 * self._pace + 0.3 * measured
            self._mark = now, batch
        self._next = now + self._view.draw(self._moment(epoch, batch, values, now))

    def epoch(self, epoch: int, values: Mapping[str, Any], seconds: float | None = None) -> None:
        """An epoch is done, with these values, in so many seconds (measured here, unless given)."""
        if not self._open:
            return
        now = self._clock()
        seconds = now - self._epoch_began if seconds is None else seconds
        if self.batches_per_epoch is None or self._batch > self.batches_per_epoch:
            self.batches_per_epoch = self._batch or None
        measured = max(seconds - self._warming, 0.0)
        self._epoch_seconds = measured if self._epoch_seconds is None else (self._epoch_seconds + measured) / 2
        self._warming = 0.0
        row = {"epoch": epoch, **{name: v for name, v in values.items() if name != "epoch"}, "seconds": seconds}
        moment = self._moment(epoch, self.batches_per_epoch or 0, {}, now)
        self._epoch, self._batch, self._epoch_began, self._mark = epoch, 0, now, (now, 0)
        self._next = now + self._view.row(moment, row)

    def message(self, text: str) -> None:
        """Say something, on lines of its own."""
        self._view.say(text)
        if self._open:
            self._next = min(self._next, self._clock())

    def close(self) -> None:
        """The end, reached or not; may be called more than once."""
        if self._open:
            self._open, self._next = False, float("inf")
            self._view.close()

    def __enter__(self) -> Progress:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _moment(self, epoch: int, batch: int, values: Mapping[str, Any], now: float) -> Moment:
        batches, rest = self.batches_per_epoch, self.total_epochs - epoch
        remaining: float | None = None
        if batches and self._epoch_seconds is not None:
            remaining = self._epoch_seconds * (rest + 1 - min(1.0, batch / batches))
        elif batches and self._pace is not None:
            remaining = self._pace * (rest * batches + max(0, batches - batch))
        return Moment(
            epoch=epoch, epochs=self.total_epochs, batch=batch, batches=batches, values=values,
            rate=1 / self._pace if self._pace else None, remaining=remaining, epoch_elapsed=now - self._epoch_began,
            now=now, counted=self.counted,
        )  # fmt: skip
