"""Patterns to colour: random ones of all shapes and densities, and those with a structure."""

from itertools import product

import numpy as np

# Partitions and decompressions; of columns and rows the latter doesn't matter.
KINDS = [("column", "direct"), ("row", "substitution")]
KINDS += product(("symmetric", "bidirectional"), ("direct", "substitution"))


def band(n: int, r: int) -> np.ndarray:
    return abs(np.subtract.outer(np.arange(n), np.arange(n))) <= r


def frame(m: int, n: int) -> np.ndarray:
    """Dense first and last rows and columns."""
    pattern = np.zeros((m, n), bool)
    pattern[[0, -1]] = pattern[:, [0, -1]] = True
    return pattern


def arrow(n: int) -> np.ndarray:
    pattern = np.eye(n, dtype=bool)
    pattern[0] = pattern[:, 0] = True
    return pattern


def blocks(*sizes: int) -> np.ndarray:
    number = np.repeat(np.arange(len(sizes)), sizes)
    return np.equal.outer(number, number)


STRUCTURED = {
    "0x0": np.zeros((0, 0), bool),
    "0x4": np.zeros((0, 4), bool),
    "3x0": np.zeros((3, 0), bool),
    "1x1": np.ones((1, 1), bool),
    "1x1 empty": np.zeros((1, 1), bool),
    "empty": np.zeros((4, 6), bool),
    "dense": np.ones((4, 6), bool),
    "one row": np.ones((1, 7), bool),
    "one column": np.ones((7, 1), bool),
    "diagonal": np.eye(6, dtype=bool),
    "diagonal, rectangular": np.eye(5, 8, dtype=bool),
    "antidiagonal": np.eye(6, dtype=bool)[::-1],
    "lower triangle": np.tri(5, dtype=bool),
    "band 1": band(9, 1),
    "band 2": band(9, 2),
    "band without diagonal": band(8, 1) & ~np.eye(8, dtype=bool),
    "arrow": arrow(8),
    "arrow without diagonal": arrow(8) & ~np.eye(8, dtype=bool),
    "arrow backwards": arrow(8)[::-1, ::-1],
    "blocks": blocks(2, 3, 1, 2),
    "frame": frame(5, 7),
    "cycle": np.roll(np.eye(7, dtype=bool), 1, 0) | np.roll(np.eye(7, dtype=bool), -1, 0),
}


def random_pattern(generator: np.random.Generator, largest: int = 9) -> np.ndarray:
    """Any shape and density; sometimes with dense or empty rows and columns."""
    m, n = generator.integers(0, largest, 2)
    pattern = generator.random((m, n)) < generator.random()
    for _ in range(generator.integers(0, 3)):
        fill = bool(generator.integers(0, 2))
        if generator.integers(0, 2):
            pattern[generator.integers(0, m, min(m, 1))] = fill
        else:
            pattern[:, generator.integers(0, n, min(n, 1))] = fill
    return pattern


def symmetric(pattern: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A symmetric pattern from any: its lower triangle, with some, all or no diagonal entries."""
    n = min(pattern.shape)
    lower = np.tril(pattern[:n, :n], -1)
    diagonal = np.diag(generator.random(n) < generator.choice([0.0, 0.5, 1.0]))
    return lower | lower.T | diagonal
