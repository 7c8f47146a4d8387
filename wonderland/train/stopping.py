"""Early stopping: training ends when a number that is watched no longer gets better, with the best weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.train.running import Callback, Run


def watched(run: Run, monitor: str | None, who: str) -> tuple[str, float]:
    """The number of this epoch that is watched, with its name: the validation loss, or the loss where there is none."""
    name = monitor or ("validation_loss" if "validation_loss" in run.values else "loss")
    if name not in run.values:
        there = ", ".join(name for name in run.values)
        advice = " Pass validation= to train.fit." if name.startswith("validation_") else ""
        raise ArgumentError(f"{who} watches {name!r}, which isn't among the values of an epoch: {there}.{advice}")
    return name, float(run.values[name])


def check_mode(mode: str, who: str) -> None:
    """ "min" or "max"."""
    if mode not in ("min", "max"):
        raise ArgumentError(f'{who}: mode is "min", where less is better, or "max", not {mode!r}')


class EarlyStopping(Callback):
    """Stops when `monitor` hasn't become better by more than `min_delta` for `patience` epochs.

    `monitor` is a name of the history: without one, "validation_loss", or "loss" if there is no validation. `mode` is
    "min", where less is better, or "max". With `rollback`, the model has its best weights when training ends, by
    stopping or after the last epoch (not when it was interrupted, and goes on later). `best` and `best_epoch` tell.

    L. Prechelt, Early stopping, but when?, 1998.
    """

    def __init__(
        self, monitor: str | None = None, patience: int = 10, mode: str = "min", rollback: bool = True,
        min_delta: float = 0.0,
    ):  # fmt: skip
        check_mode(mode, "EarlyStopping")
        if int(patience) != patience or patience < 1:
            raise ArgumentError(f"EarlyStopping: patience is a number of epochs, at least 1, not {patience!r}")
        if not min_delta >= 0:
            raise ArgumentError(f"EarlyStopping: min_delta isn't negative, unlike {min_delta!r}")
        self.monitor: str | None = monitor
        self.mode: str = mode
        self.patience: int = int(patience)
        self.rollback: bool = bool(rollback)
        self.min_delta: float = float(min_delta)
        self.best: float | None = None
        self.best_epoch: int = 0
        self.waited: int = 0
        self._weights: dict[str, np.ndarray] = {}
        self._run: Run | None = None

    def begin(self, run: Run) -> None:
        """Nothing is known yet."""
        self._run = run
        self.best, self.best_epoch, self.waited, self._weights = None, 0, 0, {}

    def after_epoch(self, run: Run) -> None:
        """Compare, remember, or stop."""
        _, value = watched(run, self.monitor, "EarlyStopping")
        if self._is_better(value):
            self.best, self.best_epoch, self.waited = value, run.epoch, 0
            if self.rollback:
                self._weights = {name: array.copy() for name, array in run.model.state().items()}
        else:
            self.waited += 1
            self._stop_if_due(run)

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return value == value
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta

    def _stop_if_due(self, run: Run) -> None:
        if self.waited >= self.patience:
            what = self.monitor or ("validation_loss" if "validation_loss" in run.values else "the loss")
            since = f"hasn't become better since epoch {self.best_epoch}" if self.best_epoch else "was never a number"
            run.stop(f"early stopping: {what} {since}")

    def end(self, run: Run) -> None:
        """The best weights, if training is over."""
        if self._weights and run.error is None and run.stopped != "interrupted":
            run.model.load_state(self._weights)
        self._run = None

    def state(self) -> dict[str, Any]:
        """What it knows, and the best weights."""
        return {
            "best": self.best, "best_epoch": self.best_epoch, "waited": self.waited, "weights": self._weights,
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there; training that had stopped has stopped."""
        self.best, self.best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
        self._weights = state["weights"]
        if self._run is not None:
            self._stop_if_due(self._run)
