"""Where the statistics of batch norms come from: all ranks of training in parallel, or a whole training set."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from wonderland.compile.jit import jit
from wonderland.core.errors import ArgumentError
from wonderland.nn.batch_norm import BatchStatistics
from wonderland.nn.module import Buffer, Module, evaluating
from wonderland.nn.moments import REDUCTIONS, Reduce

_numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of the reductions that are known
_fresh = itertools.count(1)
_users: Counter[int] = Counter()  # by the number of a reduction, how many contexts it is in force in
_lock = threading.Lock()


def batch_norms(model: Any, what: str) -> list[Any]:
    """The batch norms in a model."""
    if not isinstance(model, Module):
        raise ArgumentError(f"{what} takes a Module first, got {type(model).__name__}")
    return [module for _, module in model.named_modules() if isinstance(module, BatchStatistics)]


@contextmanager
def synchronize(model: Module, reduce: Reduce) -> Iterator[Any]:
    """`with nn.synchronize(model, reduce):` batch norms have the statistics of the batches of all ranks together.

    `reduce` gets a NumPy array and returns the sum, over all ranks, of the arrays that they give it in the same order
    of calls. Counts, sums and sums of squared deviations go through it, and in the backward pass the cotangents of
    these: each rank then has the derivative of the sum of all ranks' losses. It is called by compiled code, too. As a
    setting of the model's layers (and not of the process) it is part of what is compiled.
    """
    if not callable(reduce):
        raise ArgumentError(f"nn.synchronize: reduce is a function from arrays to arrays, got {type(reduce).__name__}")
    layers = batch_norms(model, "nn.synchronize")
    with _lock:
        number = _numbers.setdefault(reduce, next(_fresh))
        _users[number] += 1
        REDUCTIONS[number] = reduce
    before = [layer._ranks for layer in layers]
    try:
        for layer in layers:
            layer._ranks = number
        yield model
    finally:
        for layer, ranks in zip(layers, before, strict=True):
            layer._ranks = ranks
            if not ranks:
                del layer._ranks  # the class has it
        with _lock:
            _users[number] -= 1
            if not _users[number]:
                del _users[number], REDUCTIONS[number]


def _first(model: Any, batch: Any) -> Any:
    return model(batch[0] if isinstance(batch, (tuple, list)) else batch)


def update_statistics(
    model: Module, batches: Iterable[Any], call: Callable[[Any, Any], Any] | None = None, *, compiled: bool = True
) -> Any:
    """Set the running statistics of all batch norms to those of a training set; returns the model.

    They become the mean and the variance (divided by n - 1) of all values that a channel had in all batches, each of
    which is normalised by itself, as in training. Dropout is off, as when the statistics will be used.
    `call(model, batch)` runs the model; without it, a batch or its first part, of a tuple or list, is its argument.

    Y. Wu and J. Johnson, Rethinking "batch" in BatchNorm, 2021.
    """
    layers = [layer for layer in batch_norms(model, "nn.update_statistics") if layer.track_running_stats]
    if not layers:
        raise ArgumentError(
            f"nn.update_statistics: this {type(model).__name__} has no batch norm with running statistics"
        )
    run = jit(call or _first) if compiled else call or _first
    before = [{name: getattr(layer, name).copy() for name in _TRACKED} for layer in layers]
    found: list[Any] = []
    seen = 0
    with evaluating(model):
        try:
            for layer in layers:
                layer.training = True
                layer._sums = Buffer(np.zeros((3, layer.channels)))
            for batch in batches:
                run(model, batch)
                seen += 1
            found = [layer._sums.copy() for layer in layers]
        finally:
            for layer, values in zip(layers, before, strict=True):
                if "_sums" in vars(layer):
                    del layer._sums
                for name, value in values.items():
                    setattr(layer, name, value)
    if not seen:
        raise ArgumentError("nn.update_statistics got no batches")
    for layer, (count, mean, squares) in zip(layers, found, strict=True):
        if count.any():  # otherwise the calls didn't go through it
            layer.running_mean = mean
            layer.running_var = squares / np.maximum(count - 1, 1)
            layer.num_batches_tracked = seen
    return model


_TRACKED = ("running_mean", "running_var", "num_batches_tracked")
