"""Functions with sparse derivatives, of any size, from the literature: plain NumPy (or another namespace `xp`)."""

from __future__ import annotations

from typing import Any

import numpy as np


def brusselator(u: Any, alpha: float = 10.0, *, xp: Any = np) -> Any:
    """Right-hand side of the Brusselator PDE on a periodic N x N grid, two species (2, N, N), 5-point Laplacian.

    Each row of its Jacobian has 6 entries: the five points of the species, and the other species at the point.
    """
    n = u.shape[1]
    grid = np.linspace(0.0, 1.0, n)
    feed = 5.0 * ((grid[:, None] - 0.3) ** 2 + (grid[None, :] - 0.6) ** 2 <= 0.01)
    a, b = u[0], u[1]
    scale = alpha * (n - 1) ** 2
    reaction = a * a * b
    da = 1.0 + reaction - 4.4 * a + scale * _laplacian(a, xp) + feed
    db = 3.4 * a - reaction + scale * _laplacian(b, xp)
    return xp.stack([da, db])


def _laplacian(x: Any, xp: Any) -> Any:
    return xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1) - 4.0 * x


def brusselator_start(n: int) -> np.ndarray:
    """The usual initial state on an n x n grid."""
    x, y = np.meshgrid(np.linspace(0.0, 1.0, n), np.linspace(0.0, 1.0, n), indexing="ij")
    return np.stack([22.0 * (y * (1 - y)) ** 1.5, 27.0 * (x * (1 - x)) ** 1.5])


def broyden_tridiagonal(x: Any, *, xp: Any = np) -> Any:
    """Residuals (3 - 2 x_i) x_i - x_{i-1} - 2 x_{i+1} + 1, zero beyond the ends."""
    wide = xp.pad(x, 1)
    return (3.0 - 2.0 * x) * x - wide[:-2] - 2.0 * wide[2:] + 1.0


def broyden_banded(x: Any, lower: int = 5, upper: int = 1, *, xp: Any = np) -> Any:
    """Residuals x_i (2 + 5 x_i^2) + 1 - sum of x_j (1 + x_j) over i - lower <= j <= i + upper, j != i."""
    n = x.shape[0]
    terms = xp.pad(x * (1.0 + x), (lower, upper))
    out = x * (2.0 + 5.0 * x * x) + 1.0
    for k in range(lower + upper + 1):
        if k != lower:
            out = out - terms[k : k + n]
    return out


def banded_least_squares(x: Any, *, xp: Any = np) -> Any:
    """Half the sum of squares of `broyden_banded`'s residuals: a Hessian of half-bandwidth 6."""
    return 0.5 * xp.sum(broyden_banded(x, xp=xp) ** 2)


def extended_rosenbrock(x: Any, *, xp: Any = np) -> Any:
    """Rosenbrock's function of n / 2 separate pairs (x, y): sum 100 (y - x^2)^2 + (1 - x)^2."""
    first, second = x[0::2], x[1::2]
    return xp.sum(100.0 * (second - first**2) ** 2 + (1.0 - first) ** 2)


def minimal_surface(heights: Any, border: Any = None, *, xp: Any = np) -> Any:
    """Area of the surface over the unit square with these heights inside and `border` (default 0) around them.

    A cell with corner heights a, b, c, d adds h^2 sqrt(1 + ((a - d)^2 + (b - c)^2) / (2 h^2)).
    """
    rows, columns = heights.shape
    step = 1.0 / (max(rows, columns) + 1)
    z = xp.pad(heights, 1)
    z = z if border is None else z + border
    across, back = z[:-1, :-1] - z[1:, 1:], z[:-1, 1:] - z[1:, :-1]
    return xp.sum(xp.sqrt(1.0 + (across**2 + back**2) / (2.0 * step**2))) * step**2


def log_barrier(x: Any, cost: Any, A: Any, b: Any, mu: float = 0.1, *, xp: Any = np) -> Any:
    """c'x - mu (sum log(b - A x) + sum log x): the barrier of min c'x subject to A x <= b, x >= 0. A may be sparse."""
    return cost @ x - mu * (xp.sum(xp.log(b - A @ x)) + xp.sum(xp.log(x)))


def convolution(images: Any, weights: Any, *, xp: Any = np) -> Any:
    """A 2-D convolution without padding: (H, W, C) with (kh, kw, C, D) gives (H - kh + 1, W - kw + 1, D)."""
    kh, kw = weights.shape[:2]
    h, w = images.shape[0] - kh + 1, images.shape[1] - kw + 1
    return sum(images[i : i + h, j : j + w] @ weights[i, j] for i in range(kh) for j in range(kw))
