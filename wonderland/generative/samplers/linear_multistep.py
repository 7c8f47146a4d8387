"""Linear multistep methods in sigma: LMS, and the acceleration by gamma of the notes (3.8).

x' = x + sum_k w_k epsilon_k, over the noise seen at this level and those before. One evaluation a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.samplers.multistep import back, growing, powers, weights
from wonderland.generative.samplers.solver import DiffusionSolver


class _NoiseHistory(DiffusionSolver):
    """Steps by weights of the noise: `table` returns (sigmas, weights (N, order))."""

    order: int

    def begin(self, x: Any) -> Any:
        """No noise was seen yet; its weight is 0."""
        return (np.zeros_like(x),) * (self.order - 1)

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """x + sum_k w_k epsilon_k."""
        sigma, weight = row
        seen = (denoiser(x, sigma), *state)
        for k, epsilon in enumerate(seen):
            x = x + weight[k] * epsilon
        return x, seen[: self.order - 1]


@dataclass(frozen=True)
class LMS(_NoiseHistory):
    """Adams-Bashforth in sigma: integrates the polynomial through the last `order` noises (at first, through fewer)."""

    order: int = 4

    def __post_init__(self) -> None:
        if self.order not in (1, 2, 3, 4):
            raise ArgumentError(f"LMS has the order 1, 2, 3 or 4: got order={self.order}")

    def table(self, sigmas: Any) -> Any:
        """(sigma, the weights)."""
        sigma, h = sigmas[:-1], sigmas[1:] - sigmas[:-1]

        def of(rows: slice, q: int) -> list[Any]:
            return weights([back(sigma, rows, k) for k in range(q)], powers(h[rows], q))

        return sigma, growing(self.order, np.shape(h)[0], of)


@dataclass(frozen=True)
class Accelerated(_NoiseHistory):
    """x' = x + (sigma' - sigma) (gamma epsilon + (1 - gamma) epsilon_before), the notes' 3.8.

    For steps h after h_before, gamma = 1 + h / (2 h_before) integrates the line through both noises: order 2, and what
    `gamma=None` takes (1.5 for even steps). A constant gamma > 1 is of order 1, and often a better one than DDIM. The
    first step is DDIM's.
    """

    gamma: float | None = None
    order = 2

    def table(self, sigmas: Any) -> Any:
        """(sigma, the weights)."""
        h = sigmas[1:] - sigmas[:-1]

        def of(rows: slice, q: int) -> list[Any]:
            if q == 1:
                return [h[rows]]
            gamma = 1 + h[rows] / (2 * back(h, rows, 1)) if self.gamma is None else self.gamma
            return [h[rows] * gamma, h[rows] * (1 - gamma)]

        return sigmas[:-1], growing(2, np.shape(h)[0], of)
