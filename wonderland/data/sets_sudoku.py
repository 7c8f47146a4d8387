"""Sudoku of 4x4 cells: all boards that the rules allow, as puzzles and their solutions; nothing is downloaded."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from wonderland.core.errors import ArgumentError

SIDE = 4


def sudoku(given: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The 288 puzzles of 4x4 Sudoku with `given` of 16 cells left, and their solutions, (288, 4, 4, 4) both.

    Along the last axis a cell is one-hot, by its digit, or zero where it is empty. Which cells are left is random.
    """
    if not 0 <= given <= SIDE**2:
        raise ArgumentError(f"sudoku: of 16 cells 0 to 16 can be given, not {given}")
    solved = np.eye(SIDE)[_boards()]
    cells = np.tile(np.arange(SIDE**2), (len(solved), 1))
    order = np.random.default_rng(seed).permuted(cells, axis=1).reshape(-1, SIDE, SIDE)
    return solved * (order < given)[..., None], solved


def _boards() -> np.ndarray:
    """All boards, (288, 4, 4), digits 0 to 3."""
    rows = list(permutations(range(SIDE)))
    found = []

    def extend(board: list) -> None:
        if len(board) == SIDE:
            found.append(board)
            return
        above = board[-1:] if len(board) % 2 else []  # the other row of its boxes
        for row in rows:
            columns = all(a != b for other in board for a, b in zip(other, row, strict=True))
            boxes = all(set(up[k : k + 2]).isdisjoint(row[k : k + 2]) for up in above for k in (0, 2))
            if columns and boxes:
                extend([*board, row])

    extend([])
    return np.array(found)
