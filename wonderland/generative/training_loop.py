"""A generator that trains a diffusion model: a network, an optimiser, data and noise levels come in; losses come out.

Each step is the compiled step of `wl.train`, with its guard against numbers that aren't finite. Who wants epochs,
validation and checkpoints calls `train.fit` with `score_matching_loss` and data whose batches have a key (`with_key`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wonderland import data as datasets
from wonderland import train
from wonderland.compile.jit import jit
from wonderland.generative.score_matching import Weighting, score_matching_loss
from wonderland.nn.module import Module


def with_key(batch: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """A batch and a key for its noise: `data.Loader(dataset, 64, shuffle=True, transform=with_key)`."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    return (*parts, rng.integers(2**32, size=2, dtype=np.uint32))


def training(
    network: Module, optimizer: Any, data: Any, sigmas: Any, *, epochs: int = 1, batch_size: int = 64, seed: int = 0,
    weighting: Weighting = 1.0, drop: float = 0.1, sigma_data: float = 0.5, average: train.Average | None = None,
    clip: float | None = None,
) -> Iterator[tuple[int, float]]:  # fmt: skip
    """Train a network in place, and yield (step, loss) after each step, for loops of one's own.

        average = train.Average(network, 0.999)
        for step, loss in training(network, train.Adam(network), data.moons(2000), sigmas, average=average):
            ...

    `data` is an array of samples, a tuple (samples, conditions), or a dataset of either; if the network takes no
    condition, hand in samples only. `average` follows the weights: sample with `average.model`. The rest are arguments
    of `score_matching_loss` and `train.steps`.
    """
    loader = datasets.Loader(data, batch_size, shuffle=True, seed=seed, transform=with_key, drop_last=True)

    def loss(network, x0, *rest):
        *condition, key = rest
        return score_matching_loss(
            network, x0, key, sigmas, weighting=weighting, condition=condition[0] if condition else None, drop=drop,
            sigma_data=sigma_data,
        )  # fmt: skip

    followers = [] if average is None else [Averaging(average)]
    for step in train.steps(network, loss, optimizer, loader, epochs=epochs, callbacks=followers, clip=clip):
        yield step.number, float(step.loss)


class Averaging(train.Callback):
    """Updates a `train.Average` after each step of `train.fit`, and keeps it in checkpoints."""

    def __init__(self, average: train.Average):
        self.average = average
        self._update = jit(_follow)

    def after_step(self, run: train.Run) -> None:
        """One native call."""
        self._update(self.average, run.model)

    def state(self) -> dict[str, Any]:
        """All arrays of the average."""
        return {name: np.array(value) for name, value in self.average.state().items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Those of a checkpoint."""
        for name, array in self.average.state().items():
            array[...] = state[name]


def _follow(average: train.Average, model: Module) -> None:
    average.update(model)
