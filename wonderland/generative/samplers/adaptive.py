"""A solver that chooses its steps: Heun's method, with Euler's inside it as the measure of the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.control.loops import while_loop
from wonderland.core.errors import ArgumentError
from wonderland.generative.denoising import as_sigma
from wonderland.generative.samplers.solver import DiffusionSolver, like_x


@dataclass(frozen=True)
class AdaptiveHeun(DiffusionSolver):
    """Heun's method with steps in log sigma as long as the error allows, for each sample by itself.

    Of the schedule only the ends count: the first level, and the last above 0 (from there a step of DDIM goes to 0).
    A step is taken if the root mean square of the difference to Euler's step, divided by atol + tol |x|, is at most 1;
    else it is tried again, shorter. Each sample has its own steps, so that it doesn't depend on its batch; the
    denoiser is called with a sigma for each, (B,). After `max_steps` tries what isn't done is NaN.
    """

    tol: float = 1e-3
    atol: float = 1e-3
    max_steps: int = 1000

    def __post_init__(self) -> None:
        if not (self.tol >= 0 and self.atol >= 0 and self.tol + self.atol > 0):
            raise ArgumentError(f"tolerances aren't below 0, nor both 0: got tol={self.tol}, atol={self.atol}")

    def run(self, denoiser: Callable[..., Any], x: Any, sigmas: Any, key: Any, trajectory: bool, progress: bool) -> Any:
        """From the first level to the last; the levels between aren't looked at."""
        if trajectory:
            raise ArgumentError("the steps of AdaptiveHeun differ from sample to sample: it has no trajectory")
        denoiser = like_x(denoiser)
        sigmas = sigmas.astype(x.dtype)
        start, stop = sigmas[0], np.where(sigmas[-1] > 0, sigmas[-1], sigmas[-2])
        inner = tuple(range(1, np.ndim(x)))
        distance = np.log(stop) - np.log(start)

        def level(u: Any) -> Any:
            """The noise levels (B,) at u, from 0 at the start to 1 where it stops."""
            return np.where(u < 1, start * np.exp(u * distance), stop)

        def attempt(carry: Any) -> Any:
            x, u, step, count = carry
            ahead = np.minimum(u + step, 1.0)
            sigma, after = level(u), level(ahead)
            h = as_sigma(after - sigma, x)
            slope = denoiser(x, sigma)
            euler = x + h * slope
            heun = x + 0.5 * h * (slope + denoiser(euler, after))
            scale = self.atol + self.tol * np.maximum(np.abs(x), np.abs(heun))
            error = np.sqrt(np.mean(np.square((heun - euler) / scale), axis=inner))  # (B,)
            good = (error <= 1) & (u < 1)
            # The difference is of order h^2: this step would have made it 0.8^2.
            factor = np.clip(0.8 / np.sqrt(np.maximum(error, 1e-6)), 0.2, 5.0)
            step = step * np.where(np.isfinite(factor), factor, 0.2)
            return np.where(as_sigma(good, x), heun, x), np.where(good, ahead, u), step, count + 1

        def unfinished(carry: Any) -> Any:
            return np.any(carry[1] < 1) & (carry[3] < self.max_steps)

        zero = np.zeros_like(x[(slice(None), *(0 for _ in inner))])  # (B,)
        x, u, _, _ = while_loop(unfinished, attempt, (x, zero, zero + 0.05, 0))
        x = x + (sigmas[-1] - stop) * denoiser(x, stop)
        return np.where(as_sigma(u >= 1, x), x, np.nan)
