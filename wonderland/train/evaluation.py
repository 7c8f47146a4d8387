"""What a model gives after training: losses and metrics of whole data sets, and predictions.

All in evaluation mode, compiled, batch by batch; the model and the position of a Loader are as they were afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.data.loaders import Loader
from wonderland.nn.module import Module, evaluating
from wonderland.nn.substitute import with_arrays
from wonderland.train.batches import as_batches, check_batch, once_through, parts_of, sample_of, size_of
from wonderland.train.compiled_step import cast_batch, checked_loss, remembered

Outputs = Callable[..., Any] | None  # (model, *batch) -> outputs
BATCH = 256


class Interrupted(Exception):
    """An evaluation was left before its end."""


def first_part(model: Any, *batch: Any) -> Any:
    """The model's outputs for the first part of a batch."""
    return model(batch[0])


def _evaluation(loss: Callable | None, outputs: Callable | None) -> Callable:
    """Loss and outputs of a batch; what the model writes is lost."""

    def run(model: Any, *batch: Any) -> tuple[Any, Any, Any]:
        model, batch = with_arrays(model, {}, copied=True), cast_batch(model, batch)
        value, extra = checked_loss(loss, model, batch) if loss is not None else (None, {})
        return value, extra, None if outputs is None else outputs(model, *batch)

    return run


def compiled_evaluation(model: Any, loss: Callable | None, metrics: Mapping[str, Any], outputs: Outputs) -> Any:
    """The jitted function that `evaluated` calls for each batch."""
    return remembered(_evaluation, loss, (outputs or first_part) if metrics else None, like=model)


def check_model(model: Any, what: str) -> None:
    """Refuse what isn't a Module."""
    if not isinstance(model, Module):
        came = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ArgumentError(f"{what} takes an nn.Module as its model, not {came}")


def evaluate(
    model: Module,
    data: Any,
    *,
    loss: Callable | None = None,
    metrics: Mapping[str, Any] | None = None,
    outputs: Outputs = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """The mean loss over data, what else the loss function tells, and metrics: a dict by name.

    `metrics` are metrics of `train.metrics` by name, or functions of (outputs, targets), which get those of all data at
    once. Outputs are model(x), for the first part x of a batch, or `outputs(model, *batch)`; targets are the last part.
    In evaluation mode; nothing is changed.

        train.evaluate(model, (x, y), loss=loss, metrics={"accuracy": train.metrics.Accuracy()})
    """
    check_model(model, "train.evaluate")
    return evaluated(model, data, loss, checked_metrics(metrics), outputs, batch_size)


def evaluated(
    model: Module, data: Any, loss: Callable | None, metrics: Mapping[str, Any], outputs: Outputs,
    batch_size: int | None, interrupted: Callable[[], bool] = lambda: False, compiled: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """`evaluate`, with a function that is asked after each batch whether to go on, and `compiled_evaluation`'s."""
    if loss is None and not metrics:
        raise ArgumentError("train.evaluate needs a loss, metrics, or both")
    if loss is not None:
        check_function(loss, "train.evaluate")
    run = compiled or compiled_evaluation(model, loss, metrics, outputs)
    made = {name: metric() if isinstance(metric, type) else metric for name, metric in metrics.items()}
    streams = {name: metric for name, metric in made.items() if hasattr(metric, "update")}
    collected: list[tuple[Any, Any]] = []
    sums: dict[str, float] = {}
    weight = 0
    for metric in streams.values():
        metric.reset()
    with evaluating(model), once_through(as_batches(data, batch_size, False, 0, BATCH)) as batches:
        for batch in batches:
            parts = parts_of(batch)
            if not weight:
                check_batch(parts, loss)
            try:
                value, extra, out = run(model, *parts)
            except Exception as error:
                place = f"in batch {batches.position} of the data that is evaluated"
                error.add_note(f"{place}{sample_of(error, batches, parts)}")
                raise
            size = size_of(parts)
            weight += size
            for name, number in {**({} if value is None else {"loss": value}), **extra}.items():
                sums[name] = sums.get(name, 0.0) + float(number) * size
            for metric in streams.values():
                metric.update(out, parts[-1])
            if len(streams) < len(made):
                collected.append((out, parts[-1]))
            if interrupted():
                raise Interrupted
    found: dict[str, Any] = {name: total / weight for name, total in sums.items()}
    whole = [joined([pair[i] for pair in collected]) for i in (0, 1)] if collected else []
    for name, metric in made.items():
        if name in found:
            raise ArgumentError(f"metrics has the name {name!r}, which the loss has already: call it something else")
        found[name] = metric.value if name in streams else metric(*whole)
    return found


def checked_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metrics by name: objects or classes with `update`, `reset` and `value`, or functions."""
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ArgumentError(
            f"metrics are a dict, {{'accuracy': train.metrics.Accuracy()}}, not {type(metrics).__name__}"
        )
    for name, metric in (metrics or {}).items():
        stream = all(hasattr(metric, part) for part in ("update", "reset", "value"))
        if not isinstance(name, str) or not (stream or callable(metric)):
            raise ArgumentError(
                f"metrics[{name!r}] is a metric of wl.train.metrics, or a function of (outputs, targets), not "
                f"{type(metric).__name__}"
            )
    return dict(metrics or {})


def predict(model: Module, data: Any, *, outputs: Outputs = None, batch_size: int | None = None) -> Any:
    """The model's outputs for all data, batch by batch, in evaluation mode; nothing is changed.

    Outputs are model(x) for the first part x of each batch, or `outputs(model, *batch)`; those of all batches are put
    together along their first axis.

        probabilities = nn.softmax(train.predict(model, x))
    """
    check_model(model, "train.predict")
    run = remembered(_evaluation, None, outputs or first_part, like=model)
    batches = as_batches(data, batch_size, False, 0, BATCH)
    if isinstance(batches, Loader) and batches.shuffle:
        raise ArgumentError("this Loader shuffles, and predictions would be in another order: make one without")
    found: list[Any] = []
    with evaluating(model), once_through(batches):
        for batch in batches:
            parts = parts_of(batch)
            if not found:
                check_batch(parts)
            found.append(run(model, *parts)[2])
    return joined(found)


def joined(parts: list[Any]) -> Any:
    """Trees of arrays, put together along the first axis."""
    return tree.tree_map(lambda *arrays: np.concatenate([np.atleast_1d(a) for a in arrays]), parts[0], *parts[1:])
