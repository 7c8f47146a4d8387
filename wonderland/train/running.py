"""A run of training: what it is made of, where it is, and those who are told about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Module
from wonderland.train.batches import Source, length_of
from wonderland.train.gradients import Accumulate
from wonderland.train.history import History
from wonderland.train.parallel import Ranks
from wonderland.train.progress import Progress

MOMENTS = ("begin", "after_step", "after_epoch", "end")


class Callback:
    """What is told about a run of training; override what is wanted. A `Run` has all there is to know.

        class Stop(train.Callback):
            def after_epoch(self, run):
                if run.values["loss"] < 0.01:
                    run.stop("good enough")

    What has to survive a resume is returned by `state` (numbers, strings, lists, dicts, arrays) and taken up by
    `load_state`, which is called after `begin`.
    """

    def begin(self, run: Run) -> None:
        """Before the first step; `run.resumed` says whether a checkpoint was loaded."""

    def after_step(self, run: Run) -> None:
        """After each step."""

    def after_epoch(self, run: Run) -> None:
        """After each epoch: `run.values` are those of the epoch."""

    def end(self, run: Run) -> None:
        """At the end, whatever it was: `run.stopped` says why, `run.error` is the exception that ended it."""

    def state(self) -> Any:
        """What a checkpoint has to hold; None is nothing."""
        return None

    def load_state(self, state: Any) -> None:
        """Go on from what `state` returned."""


class Run:
    """A run of training, as callbacks see it.

    `model`, `optimizer`, `data`, `history`; `epoch` and `step` are how many were finished, `batch` how many steps of
    this epoch; `loss` is that of the last step, `values` those of the last epoch. `stop(reason)` ends it after this
    step.
    """

    def __init__(
        self, model: Module, optimizer: Any, data: Source, epochs: int, history: History, progress: Progress | None,
        callbacks: Sequence[Any],
    ):  # fmt: skip
        self.model: Any = model
        self.optimizer: Any = optimizer
        self.data: Source = data
        self.epochs: int = epochs
        self.history: History = history
        self.progress: Progress | None = progress
        self.callbacks: list[Any] = [*callbacks]
        self.epoch: int = 0
        self.step: int = 0
        self.batch: int = 0
        self.loss: Any = None
        self.values: dict[str, Any] = {}
        self.skipped: int = 0  # steps of this epoch that weren't finite
        self.sums: dict[str, float] = {}  # of this epoch: losses, each times the samples of its batch
        self.weights: dict[str, int] = {}  # and how many samples
        self.seconds: float = 0.0  # of this epoch, before a resume
        self.ended_data: bool = False  # all batches of this epoch were used, and what comes after them is to be done
        self.resumed: bool = False
        self.ranks: Ranks = Ranks()  # this process, or those that train together
        self.names: dict[str, Any] = {}  # of functions and settings, which checkpoints compare
        self.stopped: str | None = None
        self.error: BaseException | None = None

    def stop(self, reason: str) -> None:
        """End training after this step."""
        self.stopped = str(reason)

    def message(self, text: str) -> None:
        """Tell the person who waits, and the history."""
        self.history.notes.append(text)
        if self.progress is not None:
            self.progress.message(text)

    @property
    def rate(self) -> float:
        """The learning rate of the last update."""
        inner = self.optimizer.optimizer if isinstance(self.optimizer, Accumulate) else self.optimizer
        rate: Any = inner.defaults.rate
        value: Any = rate(np.array(max(int(inner.updates) - 1, 0))) if callable(rate) else rate
        return float(value)

    def listeners(self, moment: str) -> list[Callable[[Run], None]]:
        """The methods of callbacks that do something at a moment."""
        found = [(callback, getattr(callback, moment, None)) for callback in self.callbacks]
        own = getattr(Callback, moment)
        return [method for _, method in found if method is not None and getattr(method, "__func__", None) is not own]

    def state(self) -> dict[str, Any]:
        """Where it is, for a checkpoint."""
        data = self.data.state()
        if self.ended_data:  # the data is at the next epoch already
            data = {**data, "epoch": data["epoch"] - 1, "position": length_of(self.data)}
        return {
            "epoch": self.epoch, "step": self.step, "batch": self.batch, "skipped": self.skipped, "sums": self.sums,
            "weights": self.weights, "seconds": self.seconds, "data": data, "values": self.values,
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.data.load_state(state["data"])
        for name in ("epoch", "step", "batch", "skipped", "sums", "weights", "seconds", "values"):
            setattr(self, name, state[name])


def check_callbacks(callbacks: Any) -> list[Any]:
    """A list of callbacks."""
    if callbacks is None:
        return []
    several: Any = callbacks
    alone = isinstance(callbacks, Callback) or not hasattr(callbacks, "__iter__")
    found: list[Any] = [callbacks] if alone else [*several]
    for callback in found:
        if isinstance(callback, type) or not any(hasattr(callback, moment) for moment in MOMENTS):
            came = f"the class {callback.__name__}" if isinstance(callback, type) else type(callback).__name__
            raise ArgumentError(
                f"a callback is a train.Callback, or an object with the methods {', '.join(MOMENTS)}, not {came}"
            )
    return found
