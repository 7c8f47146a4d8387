"""Heun's method with churn: the sampler of Karras et al. 2022 (EDM), algorithm 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.control.cond import cond
from wonderland.core.errors import ArgumentError
from wonderland.generative.samplers.solver import DiffusionSolver


@dataclass(frozen=True)
class Heun(DiffusionSolver):
    """A step of Euler's, then one with the mean of the noise at both ends. Two evaluations a step, order 2.

    With `churn` > 0 each step from a sigma in [s_min, s_max] first goes up to sigma (1 + min(churn / N, sqrt(2) - 1))
    by adding noise, times `s_noise`: errors of the steps before are forgotten. The step to 0 is one of Euler's.
    """

    churn: float = 0.0
    s_min: float = 0.0
    s_max: float = math.inf
    s_noise: float = 1.0

    def __post_init__(self) -> None:
        if not self.churn >= 0:
            raise ArgumentError(f"churn isn't below 0: got churn={self.churn}")

    @property
    def stochastic(self) -> bool:
        """With churn."""
        return self.churn > 0

    def table(self, sigmas: Any) -> Any:
        """(sigma with churn, the noise it takes, sigma')."""
        sigma, after = sigmas[:-1], sigmas[1:]
        share = min(self.churn / np.shape(sigma)[0], math.sqrt(2) - 1)
        inside = (sigma >= self.s_min) & (sigma <= self.s_max)
        up = np.where(inside, sigma * (1 + share), sigma)
        return up, self.s_noise * np.sqrt(up**2 - sigma**2), after

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """Algorithm 2, lines 4 to 11."""
        sigma, added, after = row
        if self.stochastic:
            x = x + added * noise
        slope = denoiser(x, sigma)
        ahead = x + (after - sigma) * slope

        def corrected(x: Any, slope: Any, ahead: Any) -> Any:
            return x + (after - sigma) * 0.5 * (slope + denoiser(ahead, after))

        # Nothing is asked of the denoiser at sigma = 0, where it need not have a value.
        return cond(after > 0, corrected, lambda x, slope, ahead: ahead, x, slope, ahead), state
