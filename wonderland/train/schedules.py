"""Schedules: rates as functions of the step, to be handed to an optimiser as `rate=` (or `momentum=`, `weight_decay=`).

    optimizer = train.Adam(model, rate=train.cosine(1e-3, steps=2000, warmup=100))

The step is the number of updates made before: 0 for the first. A schedule takes it as a number, as an array (for a
plot) or traced, and computes in float64; it is what PyTorch's scheduler of that name gives when its `step` is called
after every update. Schedules with the same arguments are equal, so that a new optimiser doesn't compile anew.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import numpy as np

from wonderland.core.tracer import Tracer

__all__ = [
    "RateSchedule", "constant", "cosine", "cosine_restarts", "cyclic", "exponential", "inverse_sigmoid", "inverse_sqrt",
    "linear", "multi_step", "one_cycle", "piecewise", "polynomial", "running_mean", "step", "warmup",
]  # fmt: skip

P = ParamSpec("P")


@dataclass(frozen=True)
class RateSchedule:
    """A function of the step: `schedule(step)`. Two of the same name and arguments are equal."""

    name: str
    arguments: tuple[tuple[str, Any], ...]

    def __call__(self, step: Any) -> Any:
        """The value at a step: a number for a number, an array for an array."""
        traced = isinstance(step, (np.ndarray, Tracer))
        t = step.astype(np.float64) if traced else np.float64(step)
        out = _FORMULAS[self.name](t, **dict(self.arguments))
        return out if traced else float(out)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments)})"


_FORMULAS: dict[str, Callable] = {}


def _schedule(formula: Callable[Concatenate[Any, P], Any]) -> Callable[P, RateSchedule]:
    """Make `formula(t, *arguments)` a function of the arguments that returns a function of the step."""
    name = formula.__name__
    signature = inspect.signature(formula)
    own = signature.replace(parameters=[*signature.parameters.values()][1:], return_annotation="RateSchedule")
    _FORMULAS[name] = formula

    @functools.wraps(formula)
    def make(*args: P.args, **kwargs: P.kwargs) -> RateSchedule:
        bound = own.bind(*args, **kwargs)
        bound.apply_defaults()
        schedule = RateSchedule(name, tuple((k, _plain(v)) for k, v in bound.arguments.items()))
        _check(schedule)
        return schedule

    make.__signature__ = own  # type: ignore[attr-defined]
    return make  # type: ignore[return-value]


def _plain(value: Any) -> Any:
    """Sequences as tuples and NumPy's numbers as Python's: what can be compared."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(_plain(v) for v in value)
    return value.item() if isinstance(value, np.generic) else value


def _check(schedule: RateSchedule) -> None:
    arguments = dict(schedule.arguments)
    for name in ("steps", "size", "period"):
        if name in arguments and not arguments[name] > 0:
            raise ValueError(f"{schedule.name}: {name} is positive, not {arguments[name]!r}")
    if isinstance(held := arguments.get("warmup", 0), (int, float)) and held < 0:
        raise ValueError(f"{schedule.name}: warmup is a number of steps, not {held!r}")
    if "steps" in arguments and "warmup" in arguments and not arguments["warmup"] < arguments["steps"]:
        raise ValueError(
            f"{schedule.name}: warmup is part of all the {arguments['steps']} steps, and must be shorter: "
            f"{arguments['warmup']!r}"
        )
    for name in ("milestones", "boundaries"):
        if name in arguments and list(arguments[name]) != sorted(arguments[name]):
            raise ValueError(f"{schedule.name}: {name} grow, unlike {arguments[name]!r}")
    if schedule.name == "piecewise":
        count = len(arguments["boundaries"]) + (not arguments["interpolate"])
        if len(arguments["values"]) != count:
            raise ValueError(
                f"piecewise: {len(arguments['boundaries'])} boundaries go with {count} values, not "
                f"{len(arguments['values'])}"
            )
    if schedule.name == "inverse_sigmoid" and not arguments["k"] >= 1:
        raise ValueError(f"inverse_sigmoid: k is at least 1, not {arguments['k']!r}")
    if schedule.name == "cosine_restarts" and arguments["factor"] < 1:
        raise ValueError(
            f"cosine_restarts: a cycle is at least as long as the one before, not {arguments['factor']} times"
        )
    if schedule.name in ("one_cycle", "cyclic") and arguments["anneal"] not in ("cosine", "linear"):
        raise ValueError(f'{schedule.name}: anneal is "cosine" or "linear", not {arguments["anneal"]!r}')


def _after_warmup(t: Any, warmup: float, rate: float, rest: Callable[[Any], Any]) -> Any:
    """Up in a straight line: rate * (t + 1) / (warmup + 1), never 0, the rate itself at t = warmup; then the rest."""
    if not warmup:
        return rest(t)
    return np.where(t < warmup, rate * ((t + 1.0) / (warmup + 1.0)), rest(np.maximum(t - warmup, 0.0)))


@_schedule
def constant(t: Any, rate: float, factor: float = 1.0, steps: int = 1) -> Any:
    """`rate` at every step; or, as PyTorch's ConstantLR, `factor * rate` in the first `steps`."""
    return np.where(t < steps, rate * factor, rate) if factor != 1.0 else rate + 0.0 * t


@_schedule
def linear(t: Any, rate: float, steps: int, start: float = 1.0, end: float = 0.0) -> Any:
    """From `start * rate` to `end * rate` in a straight line over `steps`, then at the latter (LinearLR)."""
    return rate * (start + (end - start) * np.minimum(t, steps) / steps)


@_schedule
def step(t: Any, rate: float, size: int, gamma: float = 0.1) -> Any:
    """rate * gamma^floor(t / size): less every `size` steps (StepLR)."""
    return rate * gamma ** np.floor(t / size)


@_schedule
def multi_step(t: Any, rate: float, milestones: Sequence[int], gamma: float = 0.1) -> Any:
    """rate * gamma^(milestones that are reached) (MultiStepLR)."""
    return rate * gamma ** sum([(t >= m) * 1.0 for m in milestones], 0.0 * t)


@_schedule
def exponential(t: Any, rate: float, gamma: float) -> Any:
    """rate * gamma^t (ExponentialLR)."""
    return rate * gamma**t


@_schedule
def polynomial(t: Any, rate: float, steps: int, power: float = 1.0, end: float = 0.0) -> Any:
    """end + (rate - end) * (1 - t / steps)^power, then `end` (PolynomialLR)."""
    return end + (rate - end) * (1.0 - np.minimum(t, steps) / steps) ** power


@_schedule
def cosine(t: Any, rate: float, steps: int, warmup: int = 0, end: float = 0.0) -> Any:
    """Half a cosine from `rate` down to `end`, which it keeps: end + (rate - end) * (1 + cos(pi t / T)) / 2.

    T = steps - warmup (CosineAnnealingLR). In the `warmup` steps before, the rate grows in a straight line,
    rate * (t + 1) / (warmup + 1).
    I. Loshchilov and F. Hutter, SGDR: stochastic gradient descent with warm restarts, 2017.
    """
    length = steps - warmup
    down = lambda u: end + (rate - end) * (1.0 + np.cos(np.pi * np.minimum(u, length) / length)) / 2.0
    return _after_warmup(t, warmup, rate, down)


@_schedule
def cosine_restarts(t: Any, rate: float, period: int, factor: float = 1, end: float = 0.0) -> Any:
    """Half cosines from `rate` to `end`, each `factor` times as long as the one before, the first of `period` steps.

    CosineAnnealingWarmRestarts. I. Loshchilov and F. Hutter, SGDR, 2017.
    """
    if factor == 1:
        part = np.mod(t, period) / period
    else:  # cycle n begins at period * (factor^n - 1) / (factor - 1)
        n = np.floor(np.log1p(t * (factor - 1.0) / period) / math.log(factor) + 1e-9)
        length = period * factor**n
        part = (t - (length - period) / (factor - 1.0)) / length
    return end + (rate - end) * (1.0 + np.cos(np.pi * part)) / 2.0


@_schedule
def warmup(t: Any, schedule: float | Callable[[Any], Any], steps: int, start: float | None = None) -> Any:
    """A schedule (or a number) that begins after `steps` steps, in which the rate grows to its first value.

    In a straight line from `start` times that value; without `start`, as (t + 1) / (steps + 1).
    """
    rest = schedule if callable(schedule) else (lambda u: schedule + 0.0 * u)
    first = rest(np.zeros_like(t) if isinstance(t, np.ndarray) else 0.0 * t)
    grown = (t + 1.0) / (steps + 1.0) if start is None else start + (1.0 - start) * t / steps
    return np.where(t < steps, first * grown, rest(np.maximum(t - steps, 0.0)))


@_schedule
def inverse_sqrt(t: Any, rate: float, warmup: int = 1) -> Any:
    """rate * min((t + 1) / warmup, sqrt(warmup / (t + 1))): the transformer's. A. Vaswani et al., 2017."""
    t, warmup = t + 1.0, max(warmup, 1)
    return rate * np.minimum(t / warmup, np.sqrt(warmup / t))


@_schedule
def inverse_sigmoid(t: Any, k: float) -> Any:
    """k / (k + exp(t / k)): near 1 at first, 1/2 at k log k, then near 0. For `scheduled_sampling`.

    S. Bengio et al., Scheduled sampling for sequence prediction with recurrent neural networks, 2015.
    """
    return 0.5 - 0.5 * np.tanh((t / k - math.log(k)) / 2.0)


@_schedule
def piecewise(t: Any, boundaries: Sequence[float], values: Sequence[float], interpolate: bool = False) -> Any:
    """values[i] between boundaries i - 1 and i (the next one from the boundary on): one value more than boundaries.

    `interpolate`: values *at* the boundaries, and straight lines between them.
    """
    if interpolate:
        return np.interp(t, np.array(boundaries, float), np.array(values, float))
    out = values[0] + 0.0 * t
    for boundary, value in zip(boundaries, values[1:], strict=True):
        out = np.where(t >= boundary, value, out)
    return out


@_schedule
def one_cycle(
    t: Any,
    rate: float,
    steps: int,
    start: float = 0.3,
    divide: float = 25.0,
    divide_end: float = 1e4,
    anneal: str = "cosine",
    three_phase: bool = False,
) -> Any:
    """From rate / divide up to `rate` in the fraction `start` of the steps, then down to rate / divide / divide_end.

    `three_phase`: down as long as up, to where it began, and then further. OneCycleLR.
    L. Smith and N. Topin, Super-convergence, 2018.
    """
    low = rate / divide
    if three_phase:
        ends = [start * steps - 1.0, 2.0 * start * steps - 2.0, steps - 1.0]
        values = [low, rate, low, low / divide_end]
    else:
        ends = [start * steps - 1.0, steps - 1.0]
        values = [low, rate, low / divide_end]
    out, begin = 0.0 * t, 0.0
    for i, end in enumerate(ends):
        part = np.clip((t - begin) / max(end - begin, 1e-12), 0.0, 1.0)
        piece = _between(values[i], values[i + 1], part, anneal)
        out = piece if i == 0 else np.where(t > begin, piece, out)
        begin = end
    return out


@_schedule
def cyclic(
    t: Any, low: float, high: float, size: int, down: int | None = None, gamma: float = 1.0, anneal: str = "linear"
) -> Any:
    """Up from `low` to `high` in `size` steps and down again in `down` (or as many), for ever; amplitude * gamma^t.

    CyclicLR ("triangular", "exp_range"). L. Smith, Cyclical learning rates for training neural networks, 2017.
    """
    down = size if down is None else down
    place = np.mod(t, size + down)
    part = np.where(place < size, place / size, (size + down - place) / down)
    return low + (_between(low, high, part, anneal) - low) * gamma**t


@_schedule
def running_mean(t: Any) -> Any:
    """t / (t + 1): with this decay an `Average` is the plain mean of all the weights it was given."""
    return t / (t + 1.0)


def _between(first: float, last: float, part: Any, anneal: str) -> Any:
    if anneal == "linear":
        return first + (last - first) * part
    return last + (first - last) / 2.0 * (1.0 + np.cos(np.pi * part))
