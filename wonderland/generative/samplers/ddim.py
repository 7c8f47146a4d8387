"""The samplers of the notes that look at one noise level a step: DDIM (3.6) and DDPM by mu (3.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.samplers.solver import DiffusionSolver


@dataclass(frozen=True)
class DDIM(DiffusionSolver):
    """x' = x + (sigma' - sigma) epsilon(x, sigma): Euler's method for the probability flow. One evaluation, order 1."""

    def table(self, sigmas: Any) -> Any:
        """(sigma, sigma' - sigma)."""
        return sigmas[:-1], sigmas[1:] - sigmas[:-1]

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """The notes' 3.6."""
        sigma, change = row
        return x + change * denoiser(x, sigma), state


@dataclass(frozen=True)
class DDPM(DiffusionSolver):
    """x' = x + (lower - sigma) epsilon(x, sigma) + eta w, where sigma' = sigma^mu lower^(1 - mu), 0 <= mu < 1.

    It goes below sigma' and adds noise eta = sqrt(sigma'^2 - lower^2). mu = 0 is DDIM; mu = 1/2 is DDPM, whose steps
    are the posterior of x' given x and x0, with the expected x0 in its place. Few steps lose variance: it wants more of
    them than DDIM. One evaluation a step.
    """

    mu: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.mu < 1:
            raise ArgumentError(f"DDPM's mu is in [0, 1), 0 without noise: got mu={self.mu}")

    @property
    def stochastic(self) -> bool:
        """Unless mu is 0."""
        return self.mu > 0

    def table(self, sigmas: Any) -> Any:
        """(sigma, lower - sigma, eta)."""
        sigma, after = sigmas[:-1], sigmas[1:]
        lower = after * (after / sigma) ** (self.mu / (1 - self.mu))
        return sigma, lower - sigma, np.sqrt(after**2 - lower**2)

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """The notes' 3.7."""
        sigma, change, eta = row
        x = x + change * denoiser(x, sigma)
        return (x + eta * noise if self.stochastic else x), state
