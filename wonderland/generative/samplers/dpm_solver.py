"""DPM-Solver++ (Lu et al. 2022): multistep in lambda = -log sigma, on the expected data.

With D = x - sigma epsilon, the flow from sigma to sigma' is exactly

    x' = (sigma' / sigma) x + integral over u from 0 to h of e^-(h - u) D(lambda + u),     h = log(sigma / sigma'),

so that only D, which varies little, is extrapolated. One evaluation a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.samplers.multistep import back, exponentials, growing, weights
from wonderland.generative.samplers.solver import DiffusionSolver


def log_levels(sigmas: Any) -> Any:
    """lambda = -log sigma of a schedule; a last level of 0 counts as the one before (steps to it need no lambda)."""
    return -np.log(np.where(sigmas > 0, sigmas, np.concatenate([sigmas[:1], sigmas[:-1]])))


def data_weights(places: list[Any], h: Any) -> list[Any]:
    """Weights of the expected data at the places (in lambda) for steps h.

    Of two, the published ones: the mean value h / 2 stands for the place where the line is taken (the choice of
    DPM-Solver++ 2M, and of UniPC's B(h) = e^h - 1). Of more, the polynomial's exact integral.
    """
    moments = exponentials(h, len(places))
    if len(places) == 2:
        moments[1] = 0.5 * h * moments[0]
    return weights(places, moments)


def data_table(sigmas: Any, order: int) -> Any:
    """(sigma, sigma' / sigma, weights (N, order)). A step to 0 is the expected data, where nothing is extrapolated."""
    sigma, after, places = sigmas[:-1], sigmas[1:], log_levels(sigmas)
    h = places[1:] - places[:-1]

    def of(rows: slice, q: int) -> list[Any]:
        found = data_weights([back(places, rows, k) for k in range(q)], h[rows])
        last = after[rows] == 0
        return [np.where(last, 1.0 if k == 0 else 0.0, w) for k, w in enumerate(found)]

    return sigma, after / sigma, growing(order, np.shape(sigma)[0], of)


@dataclass(frozen=True)
class DPMSolver(DiffusionSolver):
    """DPM-Solver++ of order 1 (DDIM), 2 ("2M") or 3 ("3M"). The first steps have a lower order; the step to 0 has 1.

    Order 3 differs from the published 3M in two places, without which it would be of order 2: it integrates the
    parabola through the last three data exactly (there, half of its second difference), and corrects the first step,
    which is one of DDIM's, when the data at its end are known.
    """

    order: int = 2

    def __post_init__(self) -> None:
        if self.order not in (1, 2, 3):
            raise ArgumentError(f"DPMSolver has the order 1, 2 or 3: got order={self.order}")

    def table(self, sigmas: Any) -> Any:
        """(sigma, sigma' / sigma, weights, the correction)."""
        sigma, ratio, weight = data_table(sigmas, self.order)
        # The first step took the data where it began; half of what they change by over it is missing.
        second = np.arange(np.shape(sigma)[0]) == 1
        return sigma, ratio, weight, np.where(second, 0.5 * (1 - ratio[0]), 0.0)

    def begin(self, x: Any) -> Any:
        """No data were seen yet; their weight is 0."""
        return (np.zeros_like(x),) * (self.order - 1)

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """(sigma' / sigma) x + sum_k w_k D_k."""
        sigma, ratio, weight, correction = row
        seen = (x - sigma * denoiser(x, sigma), *state)
        if self.order == 3:
            x = x + correction * (seen[0] - seen[1])
        x = ratio * x
        for k, data in enumerate(seen):
            x = x + weight[k] * data
        return x, seen[: self.order - 1]
