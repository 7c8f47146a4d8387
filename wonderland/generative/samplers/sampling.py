"""`sample`: from noise to data with any denoiser, schedule and solver. `invert`: back from data to noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.generative.samplers.ddim import DDIM
from wonderland.generative.samplers.noise import sample_noise
from wonderland.generative.samplers.solver import DiffusionSolver, like_x
from wonderland.generative.schedules import check_sigmas
from wonderland.nn.arguments import floating


def sample(
    denoiser: Callable[..., Any], shape_or_x: Any, sigmas: Any, solver: DiffusionSolver | None = None, key: Any = None,
    trajectory: bool = False, progress: bool = False, dtype: Any = None,
) -> Any:  # fmt: skip
    """Samples (B, ...): from noise to data, along a schedule.

    `denoiser` is epsilon(x, sigma). `shape_or_x` is the shape of the samples, which start as sigmas[0] times noise, or
    x (B, ...) at noise level sigmas[0] to go on from. `sigmas` (N + 1,) decrease; the last is 0, or where to stop. The
    solver is DDIM() unless given. A `key` is needed for a shape and for solvers that add noise; the noise of a sample
    depends on the key, its number and the step, and not on the batch.

    With `trajectory` all x come back, (N + 1, B, ...), from the noise to the samples. `progress` shows a bar in a
    terminal or a notebook, and then the loop is Python's (under `jit` there is none). Samples have x's dtype; those of
    a shape have `dtype` (np.float32 for a network of that precision), or that of the sigmas.

        epsilon = wl.generative.GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], 0.01).denoiser()
        x = wl.generative.sample(epsilon, (1000, 1), wl.generative.karras(20), key=wl.random.key(0))
    """
    solver = _solver(solver)
    sigmas = check_sigmas(sigmas)
    x = start_of(shape_or_x, sigmas, key, dtype)
    if solver.stochastic and key is None:
        raise ArgumentError(f"{solver!r} adds noise: give it a key, sample(..., key=wl.random.key(0))")
    return solver.run(denoiser, x, sigmas, key, trajectory, progress)


def invert(
    denoiser: Callable[..., Any], x: Any, sigmas: Any, solver: DiffusionSolver | None = None, trajectory: bool = False
) -> Any:
    """The noise (B, ...) at sigmas[0] whose sample is x: the probability flow the other way, up a schedule.

    Noise / sigmas[0] is about standard normal. Where the schedule ends with 0, x counts as what one step of DDIM makes
    of the level before, for a denoiser needs no value at 0. With `trajectory` all x come back, (N + 1, B, ...), from
    x up to the noise. Only for solvers that add no noise, DDIM() unless given: with fewer steps or a lower order less
    comes back of x.
    """
    solver = _solver(solver)
    if solver.stochastic:
        raise ArgumentError(f"{solver!r} adds noise, which can't be undone: invert with DDIM(), Heun() or DPMSolver()")
    sigmas = check_sigmas(sigmas)
    x = start_of(x)
    if isinstance(sigmas, Tracer):
        raise ArgumentError("invert looks at the schedule: close over the sigmas instead of giving them to jit")
    if sigmas[-1] > 0:
        return solver.run(denoiser, x, sigmas[::-1], None, trajectory, False)
    up = sigmas[-2::-1]
    smallest = up[0].astype(x.dtype)
    after = x + smallest * like_x(denoiser)(x, smallest)
    if len(up) > 1:
        after = solver.run(denoiser, after, up, None, trajectory, False)
    elif trajectory:
        after = after[None]
    return np.concatenate([x[None], after]) if trajectory else after


def start_of(shape_or_x: Any, sigmas: Any = None, key: Any = None, dtype: Any = None) -> Any:
    """x as an array (B, ...); of a shape (where there are sigmas), the first of them times noise."""
    is_shape = isinstance(shape_or_x, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shape_or_x)
    if sigmas is not None and is_shape:
        if key is None:
            raise ArgumentError("samples begin with noise: give a key, sample(..., key=wl.random.key(0)), or x itself")
        if not shape_or_x or min(shape_or_x) < 0:
            raise ArgumentError(f"samples have a shape (B, ...): got {tuple(shape_or_x)}")
        dtype = np.dtype(sigmas.dtype if dtype is None else dtype)
        return sigmas[0].astype(dtype) * sample_noise(key, 0, tuple(shape_or_x), dtype)
    if sigmas is None and is_shape and isinstance(shape_or_x, tuple):
        raise ArgumentError(f"x itself is wanted, an array (B, ...), and not a shape: got {shape_or_x}")
    x = floating(shape_or_x)
    if np.ndim(x) < 1:
        raise ArgumentError("x is (B, ...), one sample a row; a shape is a tuple: sample(denoiser, (16, 2), sigmas)")
    return x if dtype is None else x.astype(dtype)


def _solver(solver: Any) -> DiffusionSolver:
    solver = DDIM() if solver is None else solver
    if not isinstance(solver, DiffusionSolver):
        raise ArgumentError(f"a solver is an object like DDIM() or Heun(): got {solver!r}")
    return solver
