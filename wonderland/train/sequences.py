"""Training of sequence models one step at a time: with true inputs, with its own outputs, or with some of both.

A model is any function `step(state, input) -> (state, output)`, where an output predicts the next input; also a Module,
or a method of one. Time is axis 0 of a sequence, as in `wl.scan`; axes before `axis` count samples: `axis=1` for
batches (n, time, ...).

    state, outputs = train.teacher_forcing(cell, start, sequence)
    loss = np.mean((outputs - sequence[1:]) ** 2)

All of it is one `wl.scan`: it can be compiled and differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import bound_object, rebound
from wonderland.core.tracer import Tracer
from wonderland.core.tree import tree_map
from wonderland.nn.arguments import array
from wonderland.random.keys import split
from wonderland.random.samplers import uniform
from wonderland.transform.derivatives import stop_gradient
from wonderland.transform.trees import tree_leaves, tree_structure

Step = Callable[[Any, Any], tuple[Any, Any]]


def teacher_forcing(step: Step, state: Any, sequence: Any, *, axis: int = 0) -> tuple[Any, Any]:
    """Every input is the true one: `(state, outputs)` of t + 1 inputs, where output i predicts input i + 1.

    `sequence` is an array, or a tree of arrays, with t + 1 entries along `axis`; outputs have t there. Compare them
    with `sequence[1:]`.

    decay = lambda state, x: (state, 0.5 * x)
    train.teacher_forcing(decay, (), np.array([8.0, 4.0, 3.0]))         # outputs [4., 2.]
    """
    inputs, _ = _in_time(sequence, axis, "teacher_forcing")
    run = _Body(step, "teacher_forcing")
    carry, outputs = scan(run, run.carried(state), inputs)
    return run.state(carry), _moved(outputs, axis)


def scheduled_sampling(
    step: Step,
    state: Any,
    sequence: Any,
    probability: Any,
    key: Any,
    *,
    feed: Callable[[Any, Any], Any] | None = None,
    axis: int = 0,
    stop: bool = False,
) -> tuple[Any, Any]:
    """As `teacher_forcing`, but each input after the first is the true one with a probability, else the last output.

    `probability` of the true input is a number, also a traced one: that of a schedule at this step of training,
    `train.inverse_sigmoid(500)(i)`, `train.linear(1.0, 1000, end=0.1)(i)` or `train.exponential(1.0, 0.999)(i)`. 1 is
    teacher forcing. With `axis=1`, each sample of the batch has coins of its own.

    `feed(output, key)` makes an input of an output, as `lambda logits, key: wl.random.categorical(key, logits=logits)`;
    without it, that is the output itself. `stop=True` takes no derivative through what is fed back.

    S. Bengio et al., Scheduled sampling for sequence prediction with recurrent neural networks, 2015.
    """
    if not isinstance(probability, Tracer) and not np.all(
        (np.asarray(probability) >= 0) & (np.asarray(probability) <= 1)
    ):
        raise ArgumentError(f"scheduled_sampling: a probability is between 0 and 1, not {probability!r}")
    inputs, (count, *lead) = _in_time(sequence, axis, "scheduled_sampling")
    run = _Body(step, "scheduled_sampling", feed, stop)
    coins, keys = split(key)
    true = (uniform(coins, (count, *lead)) < probability) | (np.arange(count) == 0).reshape(-1, *[1] * len(lead))

    def mixed(carry: Any, x: Any) -> Any:
        (carry, own), (value, coin, key) = carry, x
        carry, output = run(carry, tree_map(lambda a, b: np.where(_like(coin, a), a, b), value, own))
        return (carry, run.fed(output, key, value)), output

    first = tree_map(lambda x: x[0], inputs)
    (carry, _), outputs = scan(mixed, (run.carried(state), first), (inputs, true, split(keys, count)))
    return run.state(carry), _moved(outputs, axis)


def free_running(
    step: Step,
    state: Any,
    first: Any,
    length: int,
    *,
    key: Any = None,
    feed: Callable[[Any, Any], Any] | None = None,
    axis: int = 0,
    stop: bool = False,
) -> tuple[Any, Any]:
    """Every input after the first is the model's own output: `length` outputs, and the state after them.

    What a trained model does when it forecasts or generates. `feed` and `stop` are those of `scheduled_sampling`; a
    `feed` that draws needs a `key`. `first` is one input, for all samples of a batch; outputs have time at `axis`.
    """
    if length < 1:
        raise ArgumentError(f"free_running: length is a number of steps, not {length!r}")
    run = _Body(step, "free_running", feed, stop)
    first = tree_map(array, first)

    def own(carry: Any, key: Any) -> Any:
        carry, output = run(carry[0], carry[1])
        return (carry, run.fed(output, key, first)), output

    keys = None if key is None else split(key, length)
    (carry, _), outputs = scan(own, (run.carried(state), first), keys, length)
    return run.state(carry), _moved(outputs, axis)


class _Body:
    """A step as the body of a scan, which carries the state, and the object that the step is or belongs to, if any."""

    def __init__(self, step: Step, name: str, feed: Callable | None = None, stop: bool = False):
        check_function(step, name)
        if feed is not None:
            check_function(feed, name)
        self.step, self.feed, self.stop, self.name = step, feed, stop, name
        self.owner = bound_object(step)

    def carried(self, state: Any) -> Any:
        return state if self.owner is None else (self.owner, state)

    def state(self, carry: Any) -> Any:
        return carry if self.owner is None else carry[1]

    def __call__(self, carry: Any, x: Any) -> tuple[Any, Any]:
        owner, state = (None, carry) if self.owner is None else carry
        out = (self.step if self.owner is None else rebound(self.step, owner))(state, x)
        if not isinstance(out, tuple) or len(out) != 2:
            raise ArgumentError(
                f"{self.name}: step(state, input) returns a pair (state, output), not {type(out).__name__}"
            )
        return (out[0] if self.owner is None else (owner, out[0])), out[1]

    def fed(self, output: Any, key: Any, like: Any) -> Any:
        """The input that is made of an output."""
        made = output if self.feed is None else self.feed(output, key)
        found, wanted = tree_structure(made), tree_structure(like)
        if found != wanted or [x.shape for x in tree_leaves(made)] != [x.shape for x in tree_leaves(like)]:
            raise ArgumentError(
                f"{self.name}: an output becomes an input of {_shown(like)}, and {_shown(made)} came: give feed=, a "
                "function of (output, key) that makes such an input"
            )
        made = tree_map(lambda a, b: a.astype(b.dtype), made, like)
        return tree_map(stop_gradient, made) if self.stop else made


def _in_time(sequence: Any, axis: int, name: str) -> tuple[Any, tuple[int, ...]]:
    """All entries but the last, with time first, and the shape of their leading axes: time and samples."""
    found = {x.shape[: axis + 1] for x in tree_leaves(tree_map(array, sequence))}
    if axis < 0 or len(found) != 1 or len(shape := found.pop()) <= axis:
        raise ArgumentError(
            f"{name}: arrays of a sequence have the same axes up to time, axis={axis}: {_shown(sequence)} came"
        )
    if shape[axis] < 2:
        raise ArgumentError(f"{name}: a sequence has at least two entries along axis {axis}: {_shown(sequence)} came")
    inputs = tree_map(lambda x: np.moveaxis(array(x), axis, 0)[:-1], sequence)
    return inputs, (shape[axis] - 1, *shape[:axis])


def _like(coin: Any, x: Any) -> Any:
    return coin.reshape(*coin.shape, *[1] * (x.ndim - coin.ndim))


def _moved(outputs: Any, axis: int) -> Any:
    """Outputs with time where it was in the sequence."""
    return tree_map(lambda x: np.moveaxis(x, 0, min(axis, x.ndim - 1)), outputs)


def _shown(tree: Any) -> str:
    return ", ".join(f"{x.dtype}{[*x.shape]}" for x in map(array, tree_leaves(tree)))
