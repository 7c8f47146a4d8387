"""Functions of batches in a row: transforms come in, one transform goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError

Transform = Callable[[Any, np.random.Generator], Any]


class Composed:
    """Transforms one after another; made by `compose`. It pickles if they do."""

    def __init__(self, transforms: tuple[Transform, ...]):
        self.transforms = transforms

    def __call__(self, batch: Any, rng: np.random.Generator) -> Any:
        for transform in self.transforms:
            batch = transform(batch, rng)
        return batch

    def __repr__(self) -> str:
        return f"compose({', '.join(getattr(t, '__name__', repr(t)) for t in self.transforms)})"


def compose(*transforms: Transform) -> Transform:
    """One transform that does these one after another: each is a function `t(batch, rng) -> batch`.

    `rng` is a NumPy Generator; all of them draw from the same one, in order.

    shift = lambda batch, rng: (batch[0] + rng.normal(size=batch[0].shape), *batch[1:])
    halve = lambda batch, rng: (batch[0] / 2, *batch[1:])
    loader = wl.data.Loader((x, y), transform=wl.data.compose(shift, halve))
    """
    for place, transform in enumerate(transforms):
        if not callable(transform):
            raise ArgumentError(
                f"compose takes functions t(batch, rng), but its argument {place} is {type(transform).__name__} "
                f"({str(transform)[:60]}): pass the function itself, not what it returns"
            )
    return Composed(transforms)
