"""MNIST-1D: ten digits as signals of 40 samples. Hard for a linear model, easy for a convolution, fast for all.

S. Greydanus, Scaling down deep learning with MNIST-1D, 2020. With its seed, 42, it is the published set to rounding:
NumPy's `RandomState`, whose numbers never change, is asked in the order of the original.
Published accuracies: linear 32 %, MLP 68 %, CNN 94 %, GRU 91 %, people 96 %.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter1d

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import Arrays
from wonderland.data.sets import DIGITS

# The shapes of the digits, twelve points each.
TEMPLATES: np.ndarray = np.array([
    [5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5],
    [5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5],
    [5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5],
    [5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5],
    [5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5],
    [5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5],
    [5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5],
    [5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5],
    [5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5],
    [5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5],
])  # fmt: skip


def mnist1d(
    n: int = 5000,
    seed: int = 42,
    *,
    train: float = 0.8,
    length: int = 40,
    padding: tuple[int, int] = (36, 60),
    scale: float = 0.4,
    translation: int = 48,
    correlated_noise: float = 0.25,
    noise: float = 0.02,
    shear: float = 0.75,
) -> tuple[Arrays, Arrays]:
    """Signals (n, 40) in float32 and digits: 4000 for training and 1000 for testing.

    Each is a template, padded (so it is shorter or longer in the result), scaled, translated, with smooth noise where
    there is no digit and some noise everywhere, sheared, and subsampled to `length`. The whole has mean 0 and
    standard deviation 1.

    train, test = data.mnist1d()
    """
    if n < 10 or n % 10:
        raise ArgumentError(f"mnist1d: n is a multiple of the ten classes, not {n!r}")
    if not 0 < train < 1:
        raise ArgumentError(f"mnist1d: train is the fraction for training, between 0 and 1, not {train!r}")
    low, high = padding
    if not 0 <= low <= high or translation < 1 or length < 2:
        raise ArgumentError(
            "mnist1d: padding is a pair (low, high) of lengths, translation at least 1 and length at least 2, not "
            f"{padding!r}, {translation!r}, {length!r}"
        )
    points = TEMPLATES.shape[1]
    total = points + high
    drawn = _draws(n, seed, total, padding, translation)
    digit = np.repeat(np.arange(10), n // 10)

    shapes = TEMPLATES - TEMPLATES.mean(1, keepdims=True)
    shapes = shapes / shapes.std(1, keepdims=True)
    shapes = (shapes - shapes[:, :1]) / 6 + 1e-8  # never exactly 0, which marks the padding below
    x = np.pad(shapes, [(0, 0), (0, high)])[digit]
    x = _interpolated(x, np.linspace(0, 1, total) * (points + drawn["padding"][:, None] - 1))
    x = x * (1 + scale * (drawn["scale"][:, None] - 0.5))
    x = np.take_along_axis(x, (np.arange(total) - drawn["shift"][:, None]) % total, 1)
    x = np.where(x != 0, x, gaussian_filter1d(correlated_noise * drawn["smooth"], 2, axis=1))
    x = x + noise * drawn["noise"]
    x = x - shear * (drawn["shear"][:, None] - 0.5) * np.linspace(-0.5, 0.5, total)
    x = _interpolated(x, np.tile(np.linspace(0, 1, length) * (total - 1), (n, 1)))

    x, digit = x[drawn["order"]], digit[drawn["order"]]
    x = ((x - x.mean()) / x.std()).astype(np.float32)
    cut = int(n * train)
    return Arrays(x[:cut], digit[:cut], classes=DIGITS), Arrays(x[cut:], digit[cut:], classes=DIGITS)


def _draws(n: int, seed: int, total: int, padding: tuple[int, int], translation: int) -> dict[str, np.ndarray]:
    """All random numbers, in the order of the original: sample by sample, then the permutation."""
    random, (low, high) = np.random.RandomState(seed), padding
    rows = [
        (
            low + int(random.rand() * (high - low + 1)),
            random.rand(),
            random.choice(translation),
            random.randn(total),
            random.randn(total),
            random.rand(),
        )
        for _ in range(n)
    ]
    names = ("padding", "scale", "shift", "smooth", "noise", "shear")
    return {**{name: np.array(column) for name, column in zip(names, zip(*rows), strict=True)},
            "order": random.permutation(n)}  # fmt: skip


def _interpolated(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rows of x read at places between their points, in straight lines."""
    left = np.minimum(places.astype(np.intp), x.shape[1] - 2)
    a, b = np.take_along_axis(x, left, 1), np.take_along_axis(x, left + 1, 1)
    return a + (b - a) * (places - left)
