"""Before training: which learning rate to begin with, and whether a model can learn one batch by heart.

Both train copies, of the model and of the optimiser: what was passed is as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError, check_function
from wonderland.nn.module import Module
from wonderland.train.batches import Source, as_batches, check_batch, once_through, parts_of
from wonderland.train.compiled_step import Clip, check_optimizer, compiled_step
from wonderland.train.evaluation import check_model
from wonderland.train.gradients import Accumulate
from wonderland.train.optimizers_base import Optimizer

SMOOTHING = 0.9  # of the losses so far
WIDTH = 0.04  # of the bell curve that smooths them all, as a part of the steps


@dataclass(frozen=True)
class RateCurve:
    """Losses over rates, of `train.find_rate`: `suggestion` is a rate to begin with, `plot()` draws the curve."""

    rates: np.ndarray
    losses: np.ndarray
    smoothed: np.ndarray
    suggestion: float

    def plot(self) -> Any:
        """The curve with the suggestion, as a matplotlib Figure."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("plots need matplotlib: pip install matplotlib") from None
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(self.rates, self.losses, color="0.7", linewidth=1, label="loss")
        axes.plot(self.rates, self.smoothed, color="C0", label="smoothed")
        axes.axvline(self.suggestion, color="C1", linestyle="--", label=f"suggestion {self.suggestion:.2g}")
        low, high = float(np.min(self.smoothed)), float(self.smoothed[0])
        axes.set(xscale="log", xlabel="rate", ylabel="loss", ylim=(low - 0.1 * (high - low), high + (high - low)))
        axes.legend()
        return figure


def find_rate(
    model: Module,
    loss: Callable,
    optimizer: Any,
    data: Any,
    *,
    low: float = 1e-6,
    high: float = 10.0,
    steps: int = 100,
    stop: float = 4.0,
    clip: Clip = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> RateCurve:
    """Train a copy with a rate that grows from `low` to `high`, by the same factor at each of `steps` steps.

    It ends before where the loss is `stop` times its least so far, or not finite. The suggestion is the rate at which
    the loss, smoothed, falls most steeply. Groups of parameters with rates of their own keep the ratios.

        curve = train.find_rate(model, loss, optimizer, (x, y))
        optimizer.rate = curve.suggestion

    L. Smith, Cyclical learning rates for training neural networks, 2017.
    """
    if not 0 < low < high or steps < 5:
        raise ArgumentError(f"find_rate takes 0 < low < high and at least 5 steps, not {low!r}, {high!r}, {steps!r}")
    model, optimizer = _copies(model, loss, optimizer, clip, "train.find_rate")
    set_rate = _rate_setter(optimizer.optimizer if isinstance(optimizer, Accumulate) else optimizer)
    step = compiled_step(loss, model, optimizer, clip)
    rates, losses = np.geomspace(low, high, steps), []
    mean, least = 0.0, float("inf")
    with once_through(as_batches(data, batch_size, True, seed)) as batches:
        for count, (rate, parts) in enumerate(zip(rates, _endless(batches, loss), strict=False)):
            set_rate(float(rate))
            value, _, fine = step(model, optimizer, *parts)
            if not fine:
                break
            losses.append(float(value))
            mean = SMOOTHING * mean + (1 - SMOOTHING) * losses[-1]
            least = min(least, mean / (1 - SMOOTHING ** (count + 1)))
            if mean > stop * least:
                break
    if len(losses) < 5:
        raise ArgumentError(
            f"the loss isn't finite or grows from the beginning, at rate {rates[max(len(losses) - 1, 0)]:.2g}: pass a "
            "smaller low, or look at the loss"
        )
    used, curve = rates[: len(losses)], _smoothed(np.array(losses), WIDTH * steps)
    lowest = max(int(np.argmin(curve)), 2)
    slopes = np.gradient(curve[: lowest + 1], np.log(used[: lowest + 1]))
    return RateCurve(used, np.array(losses), curve, float(used[int(np.argmin(slopes))]))


@dataclass(frozen=True)
class OneBatch:
    """What came of learning one batch by heart, of `train.overfit_one_batch`; true if it worked."""

    reached: bool
    losses: np.ndarray
    message: str

    def __bool__(self) -> bool:
        return self.reached

    def __str__(self) -> str:
        return self.message


def overfit_one_batch(
    model: Module,
    loss: Callable,
    optimizer: Any,
    data: Any,
    *,
    steps: int = 300,
    below: float = 0.01,
    clip: Clip = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> OneBatch:
    """Can the model learn one batch by heart? A copy is trained on the first one, for at most `steps` steps.

    It can if the loss comes down to `below` times what it was. If it can't, something is wrong: the loss, the labels,
    the rate, a layer without gradient; no amount of data will help. Dropout and label smoothing keep a loss up, too.

        check = train.overfit_one_batch(model, loss, optimizer, (x, y))
        print(check)
    """
    model, optimizer = _copies(model, loss, optimizer, clip, "train.overfit_one_batch")
    step = compiled_step(loss, model, optimizer, clip)
    with once_through(as_batches(data, batch_size, True, seed)) as batches:
        parts = next(_endless(batches, loss))
    losses: list[float] = []
    fine: Any = True
    while fine and len(losses) <= steps and not (losses and losses[-1] <= below * losses[0]):
        value, _, fine = step(model, optimizer, *parts)
        losses.append(float(value))
    reached = bool(fine and losses[-1] <= below * losses[0])
    made = f"the loss of one batch went from {losses[0]:.4g} to {losses[-1]:.4g} in {len(losses) - 1} steps"
    if reached:
        message = f"{made}: the model can learn it by heart"
    elif not fine:
        message = f"{made}, which isn't finite: try a smaller rate, or train.fit, which says where that comes from"
    else:
        message = (
            f"{made}, and not below {below:g} times the first: look at the loss, the labels and the rate, or pass more "
            "steps; dropout and label smoothing keep it up as well"
        )
    return OneBatch(reached, np.array(losses), message)


def _smoothed(values: np.ndarray, width: float) -> np.ndarray:
    """Means with the weights of a bell curve around each place."""
    places = np.arange(len(values))
    weights = np.exp(-0.5 * ((places[:, None] - places) / width) ** 2)
    return weights @ values / weights.sum(axis=1)


def _copies(model: Module, loss: Callable, optimizer: Any, clip: Clip, what: str) -> tuple[Any, Any]:
    check_model(model, what)
    check_function(loss, what)
    check_optimizer(optimizer, model, clip)
    model, optimizer = copy.deepcopy((model, optimizer))
    if not model.training:
        model.train()
    return model, optimizer


def _rate_setter(optimizer: Optimizer) -> Callable[[float], None]:
    """A function that sets the rate, and those of groups in the ratio that they have now."""

    def now(held: Any) -> float:
        value: Any = held.rate(np.array(optimizer.updates)) if callable(held.rate) else held.rate
        return float(value)

    own = [group for group in optimizer.groups if group.has("rate")]
    first = now(optimizer.defaults) or 1.0
    ratios = [now(group) / first for group in own]

    def set_rate(rate: float) -> None:
        optimizer.defaults.change("rate", rate)
        for group, ratio in zip(own, ratios, strict=True):
            group.change("rate", rate * ratio)

    return set_rate


def _endless(batches: Source, loss: Callable) -> Iterator[tuple[Any, ...]]:
    """The parts of batches, epoch after epoch."""
    first = True
    while True:
        for batch in batches:
            parts = parts_of(batch)
            if first:
                check_batch(parts, loss)
            first = False
            yield parts
