"""UniPC (Zhao et al. 2023): a multistep predictor, and a corrector that costs no evaluation of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.samplers.dpm_solver import data_table, data_weights, log_levels
from wonderland.generative.samplers.multistep import back, growing
from wonderland.generative.samplers.solver import DiffusionSolver


@dataclass(frozen=True)
class UniPC(DiffusionSolver):
    """The predictor is that of DPM-Solver++; the data that it leads to then correct the step that led there.

    At each level the denoiser is asked once. What it says goes into the step before, whose integral now has the
    polynomial through one place more, and then into the prediction of the next. One evaluation a step, order
    `order` + 1 where the denoiser is smooth (the last step isn't corrected).
    """

    order: int = 2

    def __post_init__(self) -> None:
        if self.order not in (1, 2, 3):
            raise ArgumentError(f"UniPC has the order 1, 2 or 3: got order={self.order}")

    def table(self, sigmas: Any) -> Any:
        """(sigma, sigma' / sigma, weights to predict (N, order), sigma / sigma_before, to correct (N, order + 1))."""
        sigma, ratio, predict = data_table(sigmas, self.order)
        places = log_levels(sigmas)
        h = places[1:] - places[:-1]
        steps = np.shape(sigma)[0]

        def of(rows: slice, q: int) -> list[Any]:
            """Of the data where these steps end, where they begin, and before."""
            known = [back(places, rows, k) for k in range(q)]
            *begun, end = data_weights([*known, back(places, rows, -1)], h[rows])
            return [end, *begun]

        first = np.zeros((1, self.order + 1))  # nothing to correct at the start
        if steps == 1:
            return sigma, ratio, predict, np.ones(1), first
        # A step is corrected in the row of the next one.
        correct = np.concatenate([first, growing(self.order, steps - 1, of, self.order + 1)])
        return sigma, ratio, predict, np.concatenate([np.ones(1), ratio[:-1]]), correct

    def begin(self, x: Any) -> Any:
        """Where the last step began, and the data seen there and before."""
        return x, (np.zeros_like(x),) * self.order

    def step(self, denoiser: Callable[..., Any], x: Any, state: Any, row: Any, noise: Any) -> tuple[Any, Any]:
        """Evaluate at the predicted x, correct the step before, predict the next."""
        sigma, ratio, predict, ratio_before, correct = row
        before, seen = state
        seen = (x - sigma * denoiser(x, sigma), *seen)
        start = ratio_before * before
        for k, data in enumerate(seen):
            start = start + correct[k] * data
        seen = seen[: self.order]
        x = ratio * start
        for k, data in enumerate(seen):
            x = x + predict[k] * data
        return x, (start, seen)
