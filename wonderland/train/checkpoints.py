"""Checkpoints: everything that a run of training needs to go on, to the bit, in one file; when they are written, which
are kept, and how they are read again.

Holds the model, the optimiser, the position in the data, the state of random numbers, the history and the callbacks'
states. Functions aren't saved: their names are compared when a run is resumed.
"""

from __future__ import annotations

import glob
import os
import random as python_random
import re
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracebacks import warn_user
from wonderland.nn.module import Module
from wonderland.random.keys import load_stream_state, stream_state
from wonderland.train.gradients import Accumulate
from wonderland.train.records import CheckpointError, read_record, write_record
from wonderland.train.running import Callback, Run
from wonderland.train.schedules import RateSchedule
from wonderland.train.stopping import check_mode, watched

ARRAY = re.compile(r": \w+\[[\d, ]*\]")  # in what a Module shows
NAME = re.compile(r"step-(\d{8,})\.safetensors")


class CheckpointWarning(UserWarning):
    """A checkpoint that can't be used as it is: damaged, or of functions of other names."""


class Checkpoint(Callback):
    """Saves a run of training in a folder, so that it can be resumed, to the bit: `train.fit(..., checkpoint=...)`.

    A file is written every `every` epochs, and also every `every_steps` steps and `every_seconds` seconds, if these are
    given (None is never). The last `keep` are kept (None keeps all), and the `best` ones by `monitor`, which are saved
    in any case: a name of the history, without one "validation_loss", or "loss" if there is no validation. A folder
    belongs to one run: a new run in a folder with checkpoints raises, unless `overwrite` removes them. Of ranks that
    train in parallel all but one have `writes=False`: they resume, and change nothing there.

        checkpoint = train.Checkpoint("runs/digits", every_seconds=60)
        train.fit(model, loss, optimizer, data, epochs=100, checkpoint=checkpoint, resume=True)
        checkpoint.restore(model, best=True)               # the weights of the best epoch

    A file is written beside its place, flushed to the disk, and then moved there: whatever happens, those that are
    there are whole. One that is damaged afterwards is found by its checksum.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: int | None = 1,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int | None = 2,
        best: int = 1,
        monitor: str | None = None,
        mode: str = "min",
        overwrite: bool = False,
        writes: bool = True,
    ):
        check_mode(mode, "Checkpoint")
        for name, value in (("every", every), ("every_steps", every_steps), ("keep", keep)):
            if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
                raise ArgumentError(f"Checkpoint: {name} is a whole number, at least 1, or None, not {value!r}")
        if every_seconds is not None and not every_seconds > 0:
            raise ArgumentError(f"Checkpoint: every_seconds is positive, not {every_seconds!r}")
        if int(best) != best or best < 0:
            raise ArgumentError(f"Checkpoint: best is how many of the best are kept, not {best!r}")
        if not isinstance(folder, (str, os.PathLike)):
            raise ArgumentError(f"checkpoint is a train.Checkpoint, or the path of a folder, not {folder!r}")
        self.folder: str = os.fspath(folder)
        self.every: int | None = every
        self.every_steps: int | None = every_steps
        self.every_seconds: float | None = every_seconds
        self.keep: int | None = keep
        self.best: int = int(best)
        self.monitor: str | None = monitor
        self.mode: str = mode
        self.overwrite: bool = bool(overwrite)
        self.writes: bool = bool(writes)
        self.ranked: list[tuple[float, str]] = []  # the best values so far and their files, the best first
        self._saved = (-1, -1)  # step and epoch of what was saved last
        self._next = float("inf")  # when to save by the clock

    # When ------------------------------------------------------------------------------------------------------------

    def begin(self, run: Run) -> None:
        """Make the folder."""
        if not run.resumed:
            self.ranked = []
            if self.writes:
                self._clear()
        self._saved = (run.step, run.epoch) if run.resumed else (-1, -1)
        self._next = time.monotonic() + (self.every_seconds or float("inf"))

    def after_step(self, run: Run) -> None:
        """Save if it is time."""
        due = self.every_steps is not None and run.step % self.every_steps == 0
        if due or time.monotonic() >= self._next:
            self.save(run)

    def after_epoch(self, run: Run) -> None:
        """Save if it is time, or one of the best epochs."""
        due = self.every is not None and run.epoch % self.every == 0
        if self.best:
            value = watched(run, self.monitor, "Checkpoint")[1]
            ranked = [pair for pair in self.ranked if pair[1] != file_name(run.step)]
            ranked = sorted([*ranked, (value, file_name(run.step))], key=self._rank)[: self.best]
            due = due or (value, file_name(run.step)) in ranked
            self.ranked = ranked
        if due or run.epoch == run.epochs or run.stopped:
            self.save(run)

    def _rank(self, pair: tuple[float, str]) -> tuple[bool, float, str]:
        value = pair[0] if self.mode == "min" else -pair[0]
        return value != value, value, pair[1]  # NaN is the worst, and of equal ones the first is best

    def save(self, run: Run) -> str:
        """Write a checkpoint of the run as it is now; returns the file's path."""
        path = os.path.join(self.folder, file_name(run.step))
        if self._saved == (run.step, run.epoch) or not self.writes:
            return path
        try:
            os.makedirs(self.folder, exist_ok=True)
            write_record(path, run_arrays(run), run_state(run))
        except OSError as error:
            last = [name for name in self.files() if name != path][-1:]
            left = f"the last one, {last[0]}, is as it was" if last else "there is none yet"
            raise OSError(error.errno, f"the checkpoint {path} can't be written ({error.strerror}); {left}") from error
        self._saved = run.step, run.epoch
        self._next = time.monotonic() + (self.every_seconds or float("inf"))
        self._prune()
        return path

    def _prune(self) -> None:
        """Remove what is neither among the last nor among the best."""
        files = self.files()
        chosen = {*files[-self.keep :]} if self.keep is not None else {*files}
        chosen |= {os.path.join(self.folder, name) for _, name in self.ranked}
        for path in files:
            if path not in chosen:
                remove(path)

    def _clear(self) -> None:
        files = self.files()
        if files and not self.overwrite:
            raise ArgumentError(
                f"there are checkpoints in {self.folder}, of another run: pass resume=True to go on from the last one, "
                "Checkpoint(..., overwrite=True) to remove them, or another folder"
            )
        for path in files:
            remove(path)
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove what a run left that was killed while it wrote."""
        for path in (
            () if not self.writes else glob.glob(os.path.join(glob.escape(self.folder), "step-*.safetensors.*.tmp"))
        ):
            remove(path)

    def state(self) -> dict[str, Any]:
        """Which files are the best."""
        return {"ranked": [[value, name] for value, name in self.ranked]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.ranked = [(float(value), str(name)) for value, name in state["ranked"]]

    # Reading ---------------------------------------------------------------------------------------------------------

    def files(self) -> list[str]:
        """The checkpoints of the folder, the last one last."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise ArgumentError(f"checkpoint is the path of a folder, and {self.folder} is a file") from None
        found = [(int(match.group(1)), name) for name in names if (match := NAME.fullmatch(name))]
        return [os.path.join(self.folder, name) for _, name in sorted(found)]

    def latest(self) -> tuple[str, dict[str, np.ndarray], dict[str, Any]] | None:
        """Path, arrays and state of the last checkpoint that is whole; damaged ones are put aside, with a warning."""
        damaged: dict[str, CheckpointError] = {}
        for path in reversed(self.files()):
            try:
                found = read_record(path)
            except CheckpointError as error:
                damaged[path] = error
                continue
            for other, error in damaged.items():
                aside = os.path.basename(put_aside(other)) if self.writes else other
                warn(f"{error}. It is kept as {aside}, and {os.path.basename(path)} is used.")
            return path, *found
        if damaged:  # they stay where they are: the next try mustn't find an empty folder, and begin anew
            raise CheckpointError(
                f"all {len(damaged)} checkpoints in {self.folder} are damaged, and none can be resumed: "
                f"{next(iter(damaged.values()))}. Pass another folder, or Checkpoint(..., overwrite=True) and "
                "resume=False, to begin anew."
            )
        return None

    def restore(self, model: Module, optimizer: Any = None, best: bool = False) -> str:
        """Load the model (and the optimiser) of the last checkpoint, or of the best; returns the file's path."""
        found = self.latest()
        if found is None:
            raise CheckpointError(f"there are no checkpoints in {self.folder}")
        path, arrays, state = found
        if best:
            ranked = state["checkpoint"]["ranked"] if state["checkpoint"] else []
            if not ranked:
                raise CheckpointError(f"no checkpoint in {self.folder} is said to be the best: there was no epoch yet")
            path = os.path.join(self.folder, ranked[0][1])
            if not os.path.exists(path):
                raise CheckpointError(
                    f"the best checkpoint, by what {found[0]} says, is {ranked[0][1]}, which isn't there any more: "
                    "restore(model) loads the last one"
                )
            arrays, state = read_record(path)
        load_arrays(path, arrays, {"model": model} if optimizer is None else {"model": model, "optimizer": optimizer})
        return path


def file_name(step: int) -> str:
    """What the file of a step is called."""
    return f"step-{step:08d}.safetensors"


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def put_aside(path: str) -> str:
    """Give a damaged file another name, so that it counts no more."""
    aside = f"{path}.damaged"
    try:
        os.replace(path, aside)
    except OSError:
        return path
    return aside


# What is in one ------------------------------------------------------------------------------------------------------


def run_arrays(run: Run) -> dict[str, Any]:
    """The arrays of the model and the optimiser by name."""
    parts = {"model": run.model, "optimizer": run.optimizer}
    return {f"{part}.{name}": array for part, node in parts.items() for name, array in node.state().items()}


def run_state(run: Run) -> dict[str, Any]:
    """All the rest."""
    own = next((c for c in run.callbacks if isinstance(c, Checkpoint)), None)
    return {
        "run": run.state(),
        "names": run.names,
        "history": run.history.state(),
        "random": random_state(),
        "callbacks": [[type(c).__name__, c.state() if hasattr(c, "state") else None] for c in others(run)],
        "checkpoint": None if own is None else own.state(),
    }


def others(run: Run) -> list[Any]:
    """The callbacks that aren't the checkpoint itself."""
    return [c for c in run.callbacks if not isinstance(c, Checkpoint)]


def random_state() -> dict[str, Any]:
    """Where the global streams of random numbers are: ours, NumPy's and Python's."""
    version, numbers, gauss = python_random.getstate()
    return {
        "wonderland": stream_state(),
        "numpy": np.random.get_state(legacy=False),
        "python": [version, np.array(numbers, np.uint32), gauss],
    }


def load_random_state(state: dict[str, Any]) -> None:
    """Let them go on from there."""
    load_stream_state(state["wonderland"])
    np.random.set_state(state["numpy"])
    version, numbers, gauss = state["python"]
    python_random.setstate((version, tuple(int(n) for n in numbers), gauss))


def load_arrays(path: str, arrays: dict[str, np.ndarray], targets: dict[str, Any]) -> None:
    """Copy arrays into those of the same names; if names, shapes or dtypes differ, raise and change nothing."""
    check_arrays(path, arrays, targets)
    for part, node in targets.items():
        for name, array in node.state().items():
            np.copyto(array, arrays[f"{part}.{name}"])


def check_arrays(path: str, arrays: dict[str, np.ndarray], targets: dict[str, Any]) -> None:
    """Refuse arrays of other names, shapes or dtypes than those of a model or an optimiser."""
    for part, node in targets.items():
        own = node.state()
        theirs = {name[len(part) + 1 :]: a for name, a in arrays.items() if name.startswith(f"{part}.")}
        kind = lambda array: f"{array.dtype}{list(array.shape)}"
        wrong = [f"it lacks {name}" for name in own if name not in theirs]
        wrong += [f"it has {name}, which isn't in the {part}" for name in theirs if name not in own]
        wrong += [
            f"{name} is {kind(theirs[name])} there and {kind(own[name])} here"
            for name in own
            if name in theirs and kind(theirs[name]) != kind(own[name])
        ]
        if wrong:
            more = f"; and {len(wrong) - 4} more" if len(wrong) > 4 else ""
            raise ArgumentError(
                f"{path} was written for another {part} than this {type(node).__name__}: {'; '.join(wrong[:4])}{more}. "
                f"Make the {part} as it was, or start a new run in another folder."
            )


def resume(run: Run, checkpoint: Checkpoint) -> Callable[[], None] | None:
    """Let a run go on from the last checkpoint; returns what is to be done after `begin`; None: there is none."""
    checkpoint.remove_unfinished()
    found = checkpoint.latest()
    if found is None:
        return None
    path, arrays, state = found
    compare_names(path, state["names"], run.names, run.optimizer)
    targets = {"model": run.model, "optimizer": run.optimizer}
    check_arrays(path, arrays, targets)
    run.load_state(state["run"])  # refuses other data, before the model is changed
    load_arrays(path, arrays, targets)
    run.history.load_state(state["history"])
    run.resumed = True
    done = f"{run.epoch} epoch{'s' * (run.epoch != 1)} and {run.batch} batch{'es' * (run.batch != 1)}"
    run.message(f"resumed from {path}: {done} are done")

    def finish() -> None:
        load_random_state(state["random"])
        if state["checkpoint"] is not None:
            checkpoint.load_state(state["checkpoint"])
        own, saved = others(run), state["callbacks"]
        if [type(c).__name__ for c in own] != [name for name, _ in saved]:
            warn(f"{path} was written with the callbacks {[name for name, _ in saved]}; those that fit are resumed")
        for callback in own:
            place = next((i for i, (name, _) in enumerate(saved) if name == type(callback).__name__), None)
            held = None if place is None else saved.pop(place)[1]
            if held is not None and hasattr(callback, "load_state"):
                callback.load_state(held)

    return finish


def compare_names(path: str, saved: dict[str, Any], now: dict[str, Any], optimizer: Any) -> None:
    """Warn about functions and settings that aren't what they were."""
    loaded = {name for name, value in settings_of(optimizer) if isinstance(value, np.ndarray)}
    layers = zip_longest(saved.pop("layers", ()), now["layers"])
    differ = [("the layer", before, layer) for before, layer in layers if before != layer][:1]
    names = [name for name in {**saved, **now} if name != "layers"]
    differ += [(name, saved.get(name), now.get(name)) for name in names]
    for name, before, here in differ:
        if before != here:
            kept = ", and the number of the checkpoint is used" if name in loaded else ""
            warn(
                f"{path} was written with {name} {before!r}, and it is {here!r} now{kept}: what "
                "follows may differ from what one run would have done"
            )


def warn(text: str) -> None:
    """A warning about a checkpoint, at the line of the user's."""
    warn_user(text, CheckpointWarning)


def names_of(model: Any, loss: Any, optimizer: Any, clip: Any) -> dict[str, Any]:
    """What functions are called and which settings they have: what a checkpoint doesn't hold, and compares."""
    inner = optimizer.optimizer if isinstance(optimizer, Accumulate) else optimizer
    names: dict[str, Any] = {"the model": type(model).__name__, "the loss": called(loss)}
    names |= {"the optimizer": type(inner).__name__, "layers": layers_of(model)}
    names["clip"] = called(clip) if callable(clip) else clip
    if inner is not optimizer:
        names["the count of Accumulate"] = optimizer.count
    for name, value in settings_of(optimizer):
        names[name] = called(value) if callable(value) else np.asarray(value).tolist()
    return names


def layers_of(model: Any) -> list[str]:
    """The layers, their settings and functions, a line each; without arrays, and without what another run changes."""
    lines = re.sub(r" at 0x[0-9a-f.]*|, evaluating$", "", repr(model), flags=re.MULTILINE).splitlines()
    return [line.strip() for line in lines if not ARRAY.search(line)]


def settings_of(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """The settings of an optimiser and of its groups by name: numbers, functions, and arrays, which are its state."""
    inner = optimizer.optimizer if isinstance(optimizer, Accumulate) else optimizer
    for where, held in (("", inner.defaults), *((f" of {p!r}", g) for p, g in zip(inner.patterns, inner.groups))):
        for name, value in vars(held).items():
            if name not in ("_wl", "training"):
                yield f"{name}{where}", value


def called(function: Any) -> str:
    """The name of a function; a schedule's has its arguments."""
    if isinstance(function, RateSchedule):
        return repr(function)
    return getattr(function, "__qualname__", None) or type(function).__name__
