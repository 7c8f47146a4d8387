"""OptNet's Sudoku: a layer that is a quadratic program learns the rules of 4x4 Sudoku from solved puzzles alone."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, nn, recipes, train


class Rules(nn.Module):
    """x(p) minimises weight / 2 |x|^2 - p'x subject to A x = A x0, x >= 0, for a puzzle p (64,). Learned: A, x0 > 0.

    The right-hand side A x0 makes every A feasible (Amos and Kolter, 2017).
    """

    def __init__(self, rules: int, rng: np.random.Generator, weight: float = 0.1):
        cells = 64  # unknowns: is digit d in cell (i, j)?
        self.A: Any = nn.Parameter(rng.normal(size=(rules, cells)) / np.sqrt(cells))
        self.x0: Any = nn.Parameter(np.full(cells, np.log(1 / 4)))
        self.weight = weight

    def __call__(self, puzzle: Any) -> Any:
        Q = self.weight * np.eye(64)
        return wl.implicit.qp(Q, -puzzle, self.A, self.A @ np.exp(self.x0), lower=0.0, full=True).x


def run(
    epochs: int = 60,
    batch_size: int = 24,
    rate: float = 0.05,
    rules: int = 40,  # the true ones have rank 40
    given: int = 10,  # cells that aren't empty
    samples: int = 288,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train on three quarters of the boards; count the cells that are right on the others."""
    rng = np.random.default_rng(seed)
    some = rng.permutation(288)[:samples]
    pairs = [v[some].reshape(-1, 64) for v in data.sudoku(given, seed)]
    training, test = data.split(data.Arrays(*pairs), [0.75, 0.25], seed=seed)
    model = Rules(rules, rng)

    def loss(model, puzzle, solved):
        return nn.mse_loss(model(puzzle), solved)

    history = train.fit(
        model, loss, train.Adam(model, rate), training, epochs=epochs, batch_size=batch_size, seed=seed, **options
    )
    numbers = {}
    for name, part in (("test", test), ("training", training)):
        puzzle, solved = part[:]
        digits, right = (v.reshape(-1, 16, 4).argmax(2) for v in (model(puzzle), solved))
        empty = puzzle.reshape(-1, 16, 4).sum(2) == 0
        numbers[f"{name}: empty cells that are right"] = float(np.mean((digits == right)[empty]))
        numbers[f"{name}: boards that are right"] = float(np.mean(np.all(digits == right, axis=1)))
    return recipes.Outcome(model, history, numbers, text=__doc__ or "")
