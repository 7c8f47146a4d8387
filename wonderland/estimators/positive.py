"""Positive definite systems of least squares: a Gram matrix comes in, solutions and a condition number go out.

All of it is NumPy's own linear algebra. SciPy has triangular solves, but its BLAS is another library with threads of
its own, and for a small system the threads of the two waiting on each other take longer than the work.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

BLOCK = 128


class PositiveFactor:
    """A = S L L' S with S = diag(A)^(1/2), so that L L' has a diagonal of ones, whatever the units of the columns.

    Raises `numpy.linalg.LinAlgError` if A isn't positive definite to working precision.
    """

    scale: np.ndarray
    lower: np.ndarray
    largest: float
    inverses: np.ndarray

    def __init__(self, A: np.ndarray):
        diagonal = np.diagonal(A)
        if not np.all(diagonal > 0) or not np.all(np.isfinite(diagonal)):
            raise np.linalg.LinAlgError("a diagonal that isn't positive")
        self.scale = np.sqrt(diagonal)
        scaled = A / self.scale
        scaled /= self.scale[:, None]
        self.lower = np.linalg.cholesky(scaled)
        self.largest = float(np.linalg.norm(scaled))  # at least the largest eigenvalue
        # Triangular systems are solved block by block: by the inverses of the blocks on the diagonal.
        if len(A) <= BLOCK:
            self.inverses = np.linalg.inv(self.lower)[None]
        else:
            blocks = np.tile(np.eye(BLOCK), (-(-len(A) // BLOCK), 1, 1))
            for k, part in enumerate(self._parts()):
                blocks[k, : part.stop - part.start, : part.stop - part.start] = self.lower[part, part]
            self.inverses = np.linalg.inv(blocks)

    def _parts(self) -> list[slice]:
        size = len(self.lower)
        return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]

    def _inverse(self, k: int, part: slice) -> np.ndarray:
        return self.inverses[k, : part.stop - part.start, : part.stop - part.start]

    def forward(self, b: np.ndarray) -> np.ndarray:
        """L^-1 b."""
        x = np.array(b)
        for k, part in enumerate(self._parts()):
            rest = x[part] - self.lower[part, : part.start] @ x[: part.start] if k else x[part]
            x[part] = self._inverse(k, part) @ rest
        return x

    def backward(self, b: np.ndarray) -> np.ndarray:
        """L'^-1 b."""
        x = np.array(b)
        parts = self._parts()
        for k in reversed(range(len(parts))):
            part = parts[k]
            rest = x[part] - self.lower[part.stop :, part].T @ x[part.stop :] if part.stop < len(x) else x[part]
            x[part] = self._inverse(k, part).T @ rest
        return x

    def solve(self, b: np.ndarray) -> np.ndarray:
        """A^-1 b, of b (size, columns)."""
        scale = self.scale[:, None]
        return self.backward(self.forward(b / scale)) / scale

    @cached_property
    def condition(self) -> float:
        """About the condition number of L L', rather more: its norm over the smallest eigenvalue.

        That is found by the trace of the inverse if it is at hand, and otherwise by a few inverse steps.
        """
        size = len(self.lower)
        if size <= BLOCK:
            return self.largest * float(np.sum(self.inverses**2))
        x = np.random.default_rng(0).normal(size=(size, 4))
        x[:, 0] = self.backward(np.eye(size)[:, int(np.argmin(np.diagonal(self.lower)))])  # where a pivot is smallest
        for _ in range(2):
            x = x / np.linalg.norm(x, axis=0)
            x = self.backward(self.forward(x))
        return self.largest * float(np.max(np.linalg.norm(x, axis=0)))

    @property
    def root(self) -> np.ndarray:
        """R upper triangular with R'R = A."""
        return self.lower.T * self.scale


def solve_definite(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A^-1 b, b (size,), of A that is positive semidefinite but for rounding: a little is added where it must be."""
    more, scale = 0.0, np.maximum(np.diagonal(A), np.finfo(np.float64).tiny)
    while True:
        try:
            return PositiveFactor(A + np.diag(more * scale)).solve(b[:, None])[:, 0]
        except np.linalg.LinAlgError:
            more = max(1e-14, 10 * more)
            if not more < 1e3:
                raise
