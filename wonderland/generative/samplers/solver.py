"""What a solver of fixed steps is, and the loop that runs one.

In: a denoiser, x (B, ...) at sigmas[0], sigmas (N + 1,). Out: x at sigmas[-1]. A solver is a frozen dataclass of
settings with three methods: `table` turns the schedule into numbers for each step, once and in double precision;
`begin` makes what is carried along; `step` takes one step. The loop is a `scan`, so that it compiles once however many
steps there are; with a progress bar it is Python's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.core.tree import tree_map
from wonderland.generative.samplers.noise import noise_of
from wonderland.random import split
from wonderland.train.progress import Progress


class DiffusionSolver:
    """A way from noise level to noise level: solves dx/dsigma = epsilon(x, sigma), or adds noise as it goes.

    A solver of your own is a frozen dataclass with `table` and `step`; `stochastic` says that its steps want noise.
    """

    @property
    def stochastic(self) -> bool:
        """Whether steps add noise, and `sample` needs a key."""
        return False

    def table(self, sigmas: Any) -> Any:
        """Of the schedule (N + 1,) the numbers of each step: a tree of arrays (N, ...)."""
        raise NotImplementedError

    def begin(self, x: Any) -> Any:
        """What is carried along beside x: a tree of arrays, for instance earlier noise."""
        return ()

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """(x, state) after one step, whose numbers are `row`; `noise` is like x, or None."""
        raise NotImplementedError

    def run(self, denoiser: Callable[..., Any], x: Any, sigmas: Any, key: Any, trajectory: bool, progress: bool) -> Any:
        """All steps: x at the end, or (N + 1, B, ...), x before and after each step."""
        rows = tree_map(lambda a: _cast(a, x.dtype), self.table(sigmas.astype(np.float64)))
        keys = split(key, np.shape(x)[0]) if self.stochastic else None
        denoiser = like_x(denoiser)

        def step(carry: Any, item: Any) -> Any:
            x, state = carry
            index, row = item
            noise = noise_of(keys, index + 1, np.shape(x)[1:], x.dtype) if self.stochastic else None
            x, state = self.step(denoiser, x, state, row, noise)
            return (x, state), (x if trajectory else None)

        items = (np.arange(np.shape(sigmas)[0] - 1), rows)
        known = not any(isinstance(a, Tracer) for a in (x, sigmas, key))
        loop = _with_progress if progress and known else scan
        (last, _), xs = loop(step, (x, self.begin(x)), items)
        return np.concatenate([x[None], xs]) if trajectory else last


def _with_progress(step: Callable, carry: Any, items: Any) -> tuple[Any, Any]:
    """`scan`, in Python and with a bar."""
    indices, rows = items
    ys = []
    with Progress(1, len(indices)) as bar:
        for i in indices:
            carry, y = step(carry, (i, tree_map(lambda a, i=i: a[i], rows)))
            ys.append(y)
            bar.step(1, int(i) + 1, {})
    return carry, np.stack(ys) if ys[0] is not None else None


def _cast(a: Any, dtype: Any) -> Any:
    return a.astype(dtype) if a.dtype.kind == "f" else a


def like_x(
    function: Callable[..., Any], what: str = "a denoiser epsilon(x, sigma) returns noise"
) -> Callable[..., Any]:
    """The denoiser (or a score), with what it returns held to be like x."""
    if not callable(function):
        remedy = ": use its denoiser()" if hasattr(function, "denoiser") else ""
        raise ArgumentError(f"{what} like x: got {function!r}, which isn't a function{remedy}")

    def checked(x: Any, *sigma: Any) -> Any:
        out = function(x, *sigma)
        if np.shape(out) != np.shape(x):
            raise ArgumentError(f"{what} like x: of x {np.shape(x)} it returned {np.shape(out)}")
        return out if out.dtype == x.dtype else out.astype(x.dtype)

    return checked
