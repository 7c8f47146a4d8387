"""What happens to gradients before a step, and to weights after it: clipping, accumulation, averages.

grads = train.clip_by_norm(grads, 1.0)
optimizer = train.Accumulate(train.Adam(model), 4)      # one step for four batches
average = train.Average(model, 0.999)                   # average.update(model) after each step
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from wonderland.control.cond import cond
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Buffer, Module
from wonderland.train.optimizers_base import (
    Arrays,
    ArraysByName,
    Number,
    Optimizer,
    checked_number,
    get,
    keep,
    put,
    trainable,
    try_schedule,
)


def global_norm(grads: Any) -> Any:
    """The Euclidean norm of all gradients together."""
    total = sum([np.sum((g * np.conj(g)).real if g.dtype.kind == "c" else g * g) for g in tree.leaves(grads)])
    return np.sqrt(total)


def clip_by_norm(grads: Any, norm: float) -> Any:
    """Gradients scaled by min(1, norm / (|g| + 1e-6)), where |g| is the norm of all of them together.

    R. Pascanu, T. Mikolov and Y. Bengio, On the difficulty of training recurrent neural networks, 2013.
    """
    _check_bound("clip_by_norm", "norm", norm)
    scale = np.minimum(norm / (global_norm(grads) + 1e-6), 1.0)
    return tree.tree_map(lambda g: g * scale.astype(g.real.dtype), grads)


def clip_by_value(grads: Any, most: float) -> Any:
    """Gradients of which each number is between -most and most."""
    _check_bound("clip_by_value", "most", most)
    return tree.tree_map(lambda g: np.clip(g, -most, most), grads)


def _check_bound(function: str, name: str, bound: Any) -> None:
    if isinstance(bound, (int, float, np.number)) and not bound >= 0:  # a negative one would turn gradients around
        raise ArgumentError(f"{function}: {name} is not negative, unlike {bound!r}")


class Accumulate(Module):
    """An optimiser that makes a step with the mean of every `count` gradients; to be used like the optimiser itself.

    Equal to one step on a batch of all the data, for a loss that is a mean over batches of the same size.
    """

    def __init__(self, optimizer: Optimizer, count: int):
        if int(count) != count or count < 1:
            raise ArgumentError(f"count is how many gradients make a step, at least 1, not {count!r}")
        self.count: int
        self.optimizer: Any
        self.optimizer, self.count = optimizer, int(count)
        self.collected: Any = Buffer(np.array(0, np.int64))
        self.sums: Any = ArraysByName()
        self._follow()

    def __setattr__(self, name: str, value: Any) -> None:
        optimizer = vars(self).get("optimizer")
        if optimizer is not None and (optimizer.defaults.has(name) or name in ("lr", "learning_rate")):
            setattr(optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        optimizer = vars(self).get("optimizer")
        if optimizer is not None and optimizer.defaults.has(name):
            return getattr(optimizer, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _follow(self) -> None:
        names = [name for name, _, _ in self.optimizer.shapes]
        keep(self.sums, names)
        for name, shape, dtype in self.optimizer.shapes:
            held = vars(self.sums).get(name)
            if held is None or (held.shape, str(held.dtype)) != (shape, dtype):
                keep(self.sums, {*names} - {name} if held is not None else names)
                put(self.sums, name, np.zeros(shape, dtype))

    def track(self, model: Module) -> None:
        """The optimiser's; sums of parameters that stayed are kept."""
        self.optimizer.track(model)
        self._follow()

    def update(self, model: Module, grads: Any) -> None:
        """Add gradients; every `count`-th time, make a step."""
        optimizer = self.optimizer
        parameters, gradients = optimizer._matched(model, grads)
        sums = {name: get(self.sums, name) + g.astype(parameters[name].dtype) for name, g in gradients.items()}
        collected = self.collected + 1
        complete = collected >= self.count

        def step() -> Any:
            means = {name: total * (1.0 / self.count) for name, total in sums.items()}
            new, kept, others = optimizer.next(parameters, means)
            return new, kept, others, {name: np.zeros_like(total) for name, total in sums.items()}

        def wait() -> Any:
            new, kept, others, _ = tree.tree_map(lambda held: held, current)
            return new, kept, others, sums

        current = self._current(parameters)
        new, kept, others, sums = cond(complete, step, wait)
        optimizer.write(parameters, (new, kept, others))
        for name, value in sums.items():
            put(self.sums, name, value)
        self.collected = np.where(complete, 0, collected)

    def _current(self, parameters: Arrays) -> Any:
        """What `next` would return if it changed nothing."""
        held = self.optimizer
        kept = {slot: {n: a for n, a in vars(of).items() if n in parameters} for slot, of in held.kept.items()}
        own = {name: array for name, array in held.named_buffers() if "." not in name}
        others = {name: own[name] for name in held.written_by_next()}
        return {**parameters}, kept, others, {}


class Average(Module):
    """A copy of a model that follows its weights: w = decay w + (1 - decay) w_model; it shares no memory with it.

    `decay` is a number (an exponential moving average) or a function of how many models were averaged before:
    `train.running_mean()` is t / (t + 1), the plain mean (stochastic weight averaging). The first update copies the
    model, as PyTorch's `AveragedModel` does; buffers are always copied.

        average = train.Average(model, 0.999)
        average.update(model)              # after a step, inside jit or outside
        average.model(x)

    B. Polyak and A. Juditsky, 1992; P. Izmailov et al., Averaging weights leads to wider optima, 2018.
    """

    def __init__(self, model: Module, decay: Number = 0.999):
        trainable(model)
        if callable(decay):
            try_schedule("decay", decay)
        elif not 0 <= checked_number("decay", decay) <= 1:
            raise ArgumentError(f"decay is between 0 and 1, unlike {decay!r}")
        self.decay: Any = decay if callable(decay) else Buffer(np.array(decay, np.float64))
        self.count: Any = Buffer(np.array(0, np.int64))
        self.model: Any = copy.deepcopy(model)

    def update(self, model: Module) -> None:
        """Follow the model's weights as they are now."""
        decay: Any = self.decay
        decay = decay(self.count) if callable(decay) else decay
        decay = np.where(self.count == 0, 0.0, decay)
        theirs, own = model.state(), self.model.state()
        if [(n, a.shape) for n, a in theirs.items()] != [(n, a.shape) for n, a in own.items()]:
            raise ArgumentError(f"this Average was made for another {type(model).__name__}: names or shapes differ")
        averaged = {name for name, _ in model.named_parameters()}
        new = {
            n: own[n] + (1.0 - decay).astype(a.real.dtype) * (a - own[n]) for n, a in theirs.items() if n in averaged
        }
        for name, array in theirs.items():
            own[name][...] = new.get(name, array)
        self.count = self.count + 1
