"""Langevin dynamics: samples of a density by its score, with noise and without a flow (the notes' 3.3).

In: a score or a log-density, x (B, ...), a key. Out: x after so many steps, which forgets where it began. The noise of
a sample depends on the key, its number and the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.generative.denoising import as_sigma
from wonderland.generative.samplers.noise import noise_of
from wonderland.generative.samplers.sampling import start_of
from wonderland.generative.samplers.solver import like_x
from wonderland.generative.schedules import check_sigmas
from wonderland.random import fold_in, split, uniform
from wonderland.transform.derivatives import vjp
from wonderland.transform.vmap import vmap


def langevin(
    score: Callable[[Any], Any], x: Any, steps: int, step_size: Any, key: Any, trajectory: bool = False
) -> Any:
    """x (B, ...) after `steps` of y' = y + delta score(y) + sqrt(2 delta) w.

    `step_size` is delta, a number or one for each step (steps,). The density that comes out isn't quite the score's: of
    N(0, s2) it is N(0, s2 / (1 - delta / (2 s2))). With `trajectory` all of them come back, (steps + 1, B, ...).
    """
    x = start_of(x)
    _check_steps(steps, step_size)
    score = like_x(score, "a score(x) is a gradient")
    keys = split(key, np.shape(x)[0])
    sizes = np.broadcast_to(step_size, (steps,))

    def step(x: Any, row: Any) -> Any:
        index, delta = row
        x = x + delta * score(x) + np.sqrt(2 * delta) * noise_of(keys, index + 1, np.shape(x)[1:], x.dtype)
        return x, (x if trajectory else None)

    last, xs = scan(step, x, (np.arange(steps), sizes.astype(x.dtype)))
    return np.concatenate([x[None], xs]) if trajectory else last


def annealed_langevin(
    denoiser: Callable[..., Any], shape_or_x: Any, sigmas: Any, key: Any, steps: int = 20, step_size: float = 0.1,
    dtype: Any = None,
) -> Any:  # fmt: skip
    """Samples (B, ...) by Langevin dynamics at one noise level after the other (Song & Ermon 2019).

    At each sigma > 0 of the schedule there are `steps` with delta = step_size sigma^2 and the score -epsilon / sigma.
    Where the schedule ends with 0, what comes out is the expected data of the last level. `shape_or_x` is `sample`'s.
    """
    sigmas = check_sigmas(sigmas)
    if isinstance(sigmas, Tracer):
        raise ArgumentError("annealed_langevin looks at the schedule: close over the sigmas, don't give them to jit")
    x = start_of(shape_or_x, sigmas, key, dtype)
    _check_steps(steps, step_size)
    denoiser = like_x(denoiser)
    keys = split(key, np.shape(x)[0])
    levels = np.repeat(sigmas[sigmas > 0], steps).astype(x.dtype)

    def step(x: Any, row: Any) -> Any:
        index, sigma = row
        # delta score = -step_size sigma epsilon, and sqrt(2 delta) = sigma sqrt(2 step_size)
        noise = noise_of(keys, index + 1, np.shape(x)[1:], x.dtype)
        return x - sigma * (step_size * denoiser(x, sigma) - (2 * step_size) ** 0.5 * noise), None

    x, _ = scan(step, x, (np.arange(len(levels)), levels))
    return x - levels[-1] * denoiser(x, levels[-1]) if sigmas[-1] == 0 else x


def mala(log_prob: Callable[[Any], Any], x: Any, steps: int, step_size: float, key: Any) -> tuple[Any, Any]:
    """(x, accepted): the Metropolis-adjusted Langevin algorithm, whose samples are exactly those of the density.

    `log_prob` takes x (B, ...) to (B,), up to a constant; the score is its gradient. A step of `langevin` is a
    proposal, taken with the probability that keeps the density; else x stays. `accepted` (B,) is the share that was
    taken: 0.57 is best in many dimensions.
    """
    x = start_of(x)
    _check_steps(steps, step_size)
    inner = tuple(range(1, np.ndim(x)))
    keys = split(key, np.shape(x)[0])

    def look(x: Any) -> tuple[Any, Any]:
        value, pull = vjp(log_prob, x)
        if np.shape(value) != np.shape(x)[:1]:
            raise ArgumentError(f"log_prob takes x {np.shape(x)} to {np.shape(x)[:1]}: it returned {np.shape(value)}")
        return value, pull(np.ones_like(value))[0]

    def log_proposal(y: Any, x: Any, slope: Any) -> Any:
        """log q(y | x), without its constant."""
        return -np.sum(np.square(y - x - step_size * slope), axis=inner) / (4 * step_size)

    def step(carry: Any, index: Any) -> Any:
        x, value, slope, accepted = carry
        noise = noise_of(keys, 2 * index + 1, np.shape(x)[1:], x.dtype)
        y = x + step_size * slope + (2 * step_size) ** 0.5 * noise
        value_y, slope_y = look(y)
        ratio = value_y + log_proposal(x, y, slope_y) - value - log_proposal(y, x, slope)
        draw = vmap(lambda key: uniform(fold_in(key, 2 * index + 2), (), dtype=x.dtype))(keys)
        good = np.log(1 - draw) < ratio  # 1 - u is in (0, 1]
        here = as_sigma(good, x)
        x, slope = np.where(here, y, x), np.where(here, slope_y, slope)
        return (x, np.where(good, value_y, value), slope, accepted + good), None

    value, slope = look(x)
    (x, _, _, accepted), _ = scan(step, (x, value, slope, np.zeros_like(value)), np.arange(steps))
    return x, accepted / steps


def _check_steps(steps: int, step_size: Any) -> None:
    if steps < 1:
        raise ArgumentError(f"there is at least one step: got steps={steps}")
    if not isinstance(step_size, Tracer) and not np.all(np.asarray(step_size) > 0):
        raise ArgumentError(f"a step size is above 0: got step_size={step_size}")
