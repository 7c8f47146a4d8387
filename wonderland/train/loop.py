"""The training loop: `train.fit` and, as a generator, `train.steps`.

A model, a loss, an optimiser and data come in; the model is trained in place, and a `History` goes out. Each step is
one compiled call (`compiled_step.py`); what is around it costs a few microseconds.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple, cast

from wonderland.core.errors import ArgumentError, check_function
from wonderland.data.faults import DataError, count_of
from wonderland.data.loaders import Loader
from wonderland.nn.module import Module
from wonderland.nn.noise import part_of_batch
from wonderland.nn.statistics import synchronize
from wonderland.train.batches import (
    Source,
    as_batches,
    check_batch,
    is_once,
    length_of,
    parts_of,
    sample_names,
    sample_of,
    share,
    size_of,
)
from wonderland.train.checkpoints import Checkpoint, names_of
from wonderland.train.checkpoints import resume as resume_run
from wonderland.train.compiled_step import Clip, check_optimizer, compiled_step
from wonderland.train.evaluation import (
    BATCH,
    Interrupted,
    Outputs,
    check_model,
    checked_metrics,
    compiled_evaluation,
    evaluated,
)
from wonderland.train.gradients import Accumulate
from wonderland.train.history import History
from wonderland.train.logs import CSVLog, TensorBoardLog
from wonderland.train.nonfinite import NonFiniteError, explained
from wonderland.train.optimizers_curvature import VectorOptimizer
from wonderland.train.parallel import Ranks
from wonderland.train.parallel import ranks as found_ranks
from wonderland.train.progress import Progress
from wonderland.train.running import Run, check_callbacks

INTERRUPTED = "interrupted"


class TrainingStep(NamedTuple):
    """What `train.steps` yields after each step."""

    run: Run
    epoch: int  # that of this step, 1 for the first
    number: int  # of this step in the whole run, 1 for the first
    loss: Any
    values: dict[str, Any]  # what the loss function told besides
    finite: bool  # False: the step was skipped


def fit(
    model: Module,
    loss: Callable,
    optimizer: Any,
    data: Any,
    *,
    epochs: int = 1,
    validation: Any = None,
    metrics: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    resume: bool = False,
    batch_size: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    clip: Clip = None,
    nonfinite: str | None = None,
    outputs: Outputs = None,
    ranks: Ranks | None = None,
    progress: bool | Progress = True,
) -> History:
    """Train a model in place, and return the history: a dict of arrays, one number an epoch.

    `loss(model, *batch)` returns a number, or a number and a dict of more numbers, whose means over each epoch are in
    the history by name. `data` is a `wl.data.Loader`, a dataset or a tuple of arrays (then `batch_size`, 32 without
    one, `shuffle` and `seed` count), an iterable of batches, or a function of the epoch that returns one.
    Floating-point arrays of a batch are cast to the model's dtype.

        history = train.fit(model, loss, train.Adam(model), (x, y), epochs=10, validation=(x_val, y_val))

    - `validation`: data whose loss ("validation_loss") and `metrics` ("validation_accuracy") are computed after each
      epoch, as by `train.evaluate`, which explains `metrics` and `outputs`.
    - `callbacks`: `train.EarlyStopping`, logs, and what a `train.Callback` of one's own does.
    - `checkpoint`: a `train.Checkpoint`, or its folder. With `resume` the run goes on from the last one, to the bit as
      if it hadn't ended; `epochs` counts from its beginning. Where there is none, it begins.
    - `clip`: the largest norm of all gradients together, or a function from gradients to gradients.
    - `nonfinite`: a step whose loss or new weights aren't finite changes nothing. "raise" (unless the optimiser was
      made with `skip_nonfinite`) raises `NonFiniteError`, which names the operation that made the NaN; "skip" goes on.
    - `ranks`: those of `mpiexec`, if it started this process; each has its part of every batch, only the first writes
      and shows. `train.Ranks()` is this process alone.
    - `progress`: a bar, unless False; or a `train.Progress`.

    The model is in training mode meanwhile: if it wasn't, it is put there, and back. Ctrl-C finishes the step, saves,
    and returns the history so far, with `stopped == "interrupted"`; a second one stops at once.
    """
    run, loop = _prepared(
        model, loss, optimizer, data, epochs, validation, metrics, callbacks, checkpoint, resume, batch_size, shuffle,
        seed, clip, nonfinite, outputs, ranks, progress,
    )  # fmt: skip
    with _catching_interrupts(loop):
        for _ in loop.steps():
            pass
    return run.history


def steps(
    model: Module,
    loss: Callable,
    optimizer: Any,
    data: Any,
    *,
    epochs: int = 1,
    validation: Any = None,
    metrics: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    resume: bool = False,
    batch_size: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    clip: Clip = None,
    nonfinite: str | None = None,
    outputs: Outputs = None,
    ranks: Ranks | None = None,
    progress: bool | Progress = False,
) -> Iterator[TrainingStep]:
    """`train.fit` as a generator, for loops of one's own: yields a record after each step.

    for step in train.steps(model, loss, optimizer, (x, y), epochs=10):
        if step.number % 100 == 0:
            print(step.number, step.loss, step.run.history.last)

    A record has `run`, `epoch` and `number` (from 1), `loss`, `values` and `finite`. A checkpoint that is due is
    written after what the loop's body does. `step.run.stop("reason")`, or `break`, ends it.
    """
    _, loop = _prepared(
        model, loss, optimizer, data, epochs, validation, metrics, callbacks, checkpoint, resume, batch_size, shuffle,
        seed, clip, nonfinite, outputs, ranks, progress,
    )  # fmt: skip
    return loop.steps()


def _prepared(
    model: Any, loss: Any, optimizer: Any, data: Any, epochs: Any, validation: Any, metrics: Any, callbacks: Any,
    checkpoint: Any, resume: Any, batch_size: Any, shuffle: Any, seed: Any, clip: Any, nonfinite: Any, outputs: Any,
    ranks: Any, progress: Any,
) -> tuple[Run, TrainingLoop]:  # fmt: skip
    """Arguments, checked, as a run and its loop."""
    check_model(model, "train.fit")
    check_function(loss, "train.fit")
    check_optimizer(optimizer, model, clip)
    epochs = count_of(epochs, "epochs")
    if outputs is not None:
        check_function(outputs, "outputs= of train.fit")
    if nonfinite not in ("raise", "skip", None):
        raise ArgumentError(f'nonfinite is "raise" or "skip", not {nonfinite!r}')
    inner = optimizer.optimizer if isinstance(optimizer, Accumulate) else optimizer
    nonfinite = nonfinite or ("skip" if inner.skip_nonfinite else "raise")
    metrics = checked_metrics(metrics)
    if metrics and validation is None:
        raise ArgumentError(
            "metrics are computed on the validation data: pass validation=. What is known in a training step, the loss "
            "function returns: `return loss, {'accuracy': ...}`."
        )
    ranks = found_ranks() if ranks is None else ranks
    batches = as_batches(data, batch_size, shuffle, seed)
    if ranks.count > 1:
        share(batches, ranks)
        if isinstance(inner, VectorOptimizer):
            raise ArgumentError(f"{type(inner).__name__} trains in one process, and there are {ranks.count} ranks")
    if is_once(batches) and epochs > 1:
        raise ArgumentError(
            f"data is a {type(data).__name__}, which gives its batches once, and epochs={epochs}: pass a list, a "
            "wl.data.Loader, or a function of the epoch that makes a new one"
        )
    if validation is not None:
        validation = as_batches(validation, None, False, 0, max(BATCH, batch_size or 0))
        if is_once(validation) and epochs > 1:
            raise ArgumentError(f"validation gives its batches once, and epochs={epochs}: pass a list or a Loader")
    callbacks = check_callbacks(callbacks)
    own = [c for c in callbacks if isinstance(c, Checkpoint)]
    if len(own) + (checkpoint is not None) > 1:
        raise ArgumentError("a run has one Checkpoint: pass it as checkpoint=")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    checkpoint = checkpoint or (own[0] if own else None)
    if resume and checkpoint is None:
        raise ArgumentError("resume=True needs checkpoint=, the folder to resume from")
    callbacks = [c for c in callbacks if c is not checkpoint]  # it comes last: it saves what the others know
    if not ranks.is_first:
        progress, callbacks = False, [c for c in callbacks if not isinstance(c, (CSVLog, TensorBoardLog))]
        if checkpoint is not None:
            checkpoint.writes = False
    shown = progress if isinstance(progress, Progress) else Progress(epochs, length_of(batches)) if progress else None
    history = History()
    run = Run(
        model, optimizer, batches, int(epochs), history, shown, [*callbacks, *([checkpoint] if checkpoint else [])]
    )
    run.names, run.ranks = names_of(model, loss, optimizer, clip), ranks
    return run, TrainingLoop(run, loss, clip, nonfinite, validation, metrics, outputs, checkpoint, bool(resume))


class TrainingLoop:
    """The steps of a run."""

    def __init__(
        self, run: Run, loss: Callable, clip: Clip, nonfinite: str, validation: Source | None,
        metrics: dict[str, Any], outputs: Outputs, checkpoint: Checkpoint | None, resume: bool,
    ):  # fmt: skip
        self.run: Run = run
        self.loss: Callable[..., Any] = loss
        self.clip: Clip = clip
        self.nonfinite: str = nonfinite
        self.validation: Source | None = validation
        self.metrics: dict[str, Any] = metrics
        self.outputs: Outputs = outputs
        self.checkpoint: Checkpoint | None = checkpoint
        self.resume: bool = resume
        self.interrupted: bool = False
        self.ranks: Ranks | None = run.ranks if run.ranks.count > 1 else None
        self._step = compiled_step(loss, run.model, run.optimizer, clip, self.ranks)
        self._evaluation = None if validation is None else compiled_evaluation(run.model, loss, metrics, outputs)
        self._begun = False  # callbacks were told, and will be told about the end
        self._began = 0.0  # this epoch, or what there is of it since a resume

    def steps(self) -> Iterator[TrainingStep]:
        """Train, and yield after each step."""
        run = self.run
        with run.ranks.together(), _training(run.model), self._synchronized():
            try:
                self._begin()
                while run.epoch < run.epochs and run.stopped is None:
                    self._began = time.perf_counter() - run.seconds
                    yield from self._epoch()
            except GeneratorExit:
                run.stop("left")
                raise
            except BaseException as error:
                run.error = error
                run.stop(type(error).__name__)
                raise
            finally:
                run.history.stopped = run.stopped
                with ExitStack() as stack:  # one that raises keeps nothing from the others
                    if run.progress is not None:
                        stack.callback(run.progress.close)
                    for method in reversed(run.listeners("end")) if self._begun else ():
                        stack.callback(method, run)

    def _begin(self) -> None:
        run = self.run
        with run.ranks.first_before_others():  # it may put damaged files aside
            after = resume_run(run, self.checkpoint) if self.resume and self.checkpoint is not None else None
        run.ranks.equalize(run.model, run.optimizer)
        if run.progress is not None:
            run.progress.start()
        self._begun = True
        for method in run.listeners("begin"):
            method(run)
        if after is not None:
            after()
        if self._is_interrupted():
            run.stop(INTERRUPTED)

    def _epoch(self) -> Iterator[TrainingStep]:
        """The rest of this epoch, and what comes after its last step."""
        run = self.run
        model, optimizer, history = run.model, run.optimizer, run.history
        step = self._step if self.ranks is None else self._shared_step
        own = self.checkpoint
        listeners = [m for m in run.listeners("after_step") if getattr(m, "__self__", None) is not own]
        save = None if own is None else own.after_step
        show = None if run.progress is None else run.progress.step
        sums, weights, number = run.sums, run.weights, run.epoch + 1
        unchecked = not run.batch
        batches = iter(run.data)
        try:
            for batch in batches:
                parts = parts_of(batch)
                if unchecked:
                    check_batch(parts, self.loss)
                    unchecked = False
                try:
                    value, extra, fine = step(model, optimizer, *parts)
                except Exception as error:
                    error.add_note(f"in {self._place()}{sample_of(error, run.data, parts)}")
                    raise
                run.loss = value
                values = {"loss": value, **extra} if extra else {"loss": value}
                if fine:
                    size = size_of(parts) if self.ranks is None else self._samples_of_all()
                    for name, held in values.items():
                        sums[name] = sums.get(name, 0.0) + float(held) * size
                        weights[name] = weights.get(name, 0) + size
                else:
                    self._failed(parts)
                run.step += 1
                run.batch += 1
                history.add_step(number, run.step, values)
                for method in listeners:
                    method(run)
                if show is not None:
                    show(number, run.batch, values)
                yield TrainingStep(run, number, run.step, value, extra, bool(fine))
                if self._is_interrupted():
                    self._interrupt()
                if run.stopped is not None:
                    return
                if save is not None:
                    run.seconds = time.perf_counter() - self._began
                    save(run)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
        run.ended_data = True
        self._finish()

    def _is_interrupted(self) -> bool:
        """Did somebody press Ctrl-C? Several ranks stop together, also if a callback stopped one of them."""
        if self.ranks is None:
            return self.interrupted
        run = self.run
        wish = self.ranks.most(2 if self.interrupted else int(run.stopped is not None))
        if wish == 1 and run.stopped is None:
            run.stop("another rank stopped")
        return wish == 2

    def _synchronized(self) -> Any:
        """Batch norms have the statistics of all ranks."""
        return nullcontext() if self.ranks is None else synchronize(self.run.model, self.ranks.sum)

    def _samples_of_all(self) -> int:
        """How many samples the last batch had, all ranks together."""
        loader = cast(Loader, self.run.data)
        return loader.samples(loader.position - 1)

    def _shared_step(self, model: Any, optimizer: Any, *parts: Any) -> tuple[Any, dict[str, Any], Any]:
        """The step of one of several ranks: random layers draw for its samples."""
        loader = cast(Loader, self.run.data)
        number = loader.position - 1
        with part_of_batch(model, loader.share(number).start - number * loader.batch_size, size_of(parts)):
            return self._step(model, optimizer, *parts)

    def _finish(self) -> None:
        """After the last step of an epoch: its means, the validation, callbacks."""
        run = self.run
        if run.skipped == run.batch:
            raise NonFiniteError(f"no step of epoch {run.epoch + 1} was finite, all {run.batch} were skipped")
        values: dict[str, Any] = {name: total / run.weights[name] for name, total in run.sums.items()}
        run.ranks.equalize(run.model, run.optimizer)
        asked = lambda: self.interrupted and self.ranks is None  # several ranks stop together
        if self.validation is not None:
            try:
                found = evaluated(
                    run.model, self.validation, self.loss, self.metrics, self.outputs, None, asked, self._evaluation
                )
            except Interrupted:
                self._interrupt()
                return
            values |= {f"validation_{name}": value for name, value in found.items()}
        seconds = time.perf_counter() - self._began
        values |= {"rate": run.rate, "seconds": seconds} | ({"skipped": run.skipped} if run.skipped else {})
        run.values = values
        run.epoch += 1
        run.history.add_epoch(run.epoch, values)
        run.sums, run.weights, run.skipped, run.batch, run.seconds, run.ended_data = {}, {}, 0, 0, 0.0, False
        if run.progress is not None:
            run.progress.epoch(run.epoch, {n: v for n, v in values.items() if n != "seconds"}, seconds)
        if self._is_interrupted():
            run.stop(INTERRUPTED)
        for method in run.listeners("after_epoch"):
            method(run)
        if self._is_interrupted() and run.stopped is None:  # or a callback of another rank stopped that one
            run.stop(INTERRUPTED)
        if run.stopped is not None:
            run.message(self._farewell())

    def _failed(self, parts: tuple[Any, ...]) -> None:
        """A step whose numbers aren't finite: everything is as before it."""
        run = self.run
        if self.nonfinite == "skip":
            run.skipped += 1
            inner = run.optimizer.optimizer if isinstance(run.optimizer, Accumulate) else run.optimizer
            inner.skipped += 1
            return
        if not size_of(parts):
            raise DataError(f"{self._place()}: the batch has no samples")
        names = sample_names(run.data, parts)
        why = explained(self.loss, self.clip, self.ranks, run.model, run.optimizer, parts, names)
        raise NonFiniteError(
            f"{self._place()}: {why}. Model and optimiser are as before this step. A smaller rate, clip=1.0, or "
            'another formula may help; nonfinite="skip" passes over such steps.'
        )

    def _place(self) -> str:
        """Which step this is."""
        run = self.run
        return f"step {run.step + 1} (batch {run.batch + 1} of epoch {run.epoch + 1})"

    def _interrupt(self) -> None:
        """Save, and stop."""
        run = self.run
        run.stop(INTERRUPTED)
        if self.checkpoint is not None:
            run.seconds = time.perf_counter() - self._began
            self.checkpoint.save(run)
        run.message(self._farewell())

    def _farewell(self) -> str:
        run = self.run
        where = f" in epoch {run.epoch + 1}, after {run.batch} batches" if run.batch else f" after epoch {run.epoch}"
        saved = f"; resume=True goes on from {self.checkpoint.folder}" if self.checkpoint is not None else ""
        return f"{run.stopped}{where}{saved if run.stopped == INTERRUPTED else ''}"


@contextmanager
def _training(model: Module) -> Iterator[None]:
    """In training mode, if the model wasn't; afterwards every layer is as it was."""
    if model.training:
        yield
        return
    before = [(node, node.training) for _, node in model.named_modules()]
    model.train()
    try:
        yield
    finally:
        for node, mode in before:
            if node.training is not mode:
                node.training = mode


@contextmanager
def _catching_interrupts(loop: TrainingLoop) -> Iterator[None]:
    """The first Ctrl-C asks the loop to stop, the second raises KeyboardInterrupt; only in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def caught(number: int, frame: Any) -> None:
        if loop.interrupted:
            raise KeyboardInterrupt
        loop.interrupted = True

    signal.signal(signal.SIGINT, caught)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
