"""Small data sets that need no download: four of scikit-learn's, and generated ones.

Each function returns `Arrays` of (inputs, targets): float32 inputs, class numbers in int64 or targets in float32.
`.names` are the names of the input's columns and `.classes` those of the classes, where there are such.

    train, test = data.split(data.digits(), [0.8, 0.2], stratify=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.arrays import Arrays
from wonderland.data.faults import count_of, package_missing

DIGITS = [str(digit) for digit in range(10)]


def _from_sklearn(name: str) -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        package_missing("scikit-learn", f"data.{name}()", error)
    return getattr(datasets, f"load_{name}")()


def digits() -> Arrays:
    """1797 handwritten digits: images (1, 8, 8) with values from 0 to 1, and the digit. Of scikit-learn (UCI)."""
    found = _from_sklearn("digits")
    return Arrays((found.images[:, None] / 16).astype(np.float32), found.target.astype(np.int64), classes=DIGITS)


def diabetes() -> Arrays:
    """442 patients, 10 numbers each, and how far the disease was after a year: a regression. Of scikit-learn.

    Columns have mean 0 and a sum of squares of 1; targets are between 25 and 346.
    """
    found = _from_sklearn("diabetes")
    return Arrays(found.data.astype(np.float32), found.target.astype(np.float32), names=found.feature_names)


def breast_cancer() -> Arrays:
    """569 cell samples, 30 numbers each: malignant (0) or benign (1). Of scikit-learn (UCI). Not scaled."""
    return _table(_from_sklearn("breast_cancer"))


def wine() -> Arrays:
    """178 wines, 13 numbers each, of one of three growers. Of scikit-learn (UCI). Not scaled."""
    return _table(_from_sklearn("wine"))


def _table(found: Any) -> Arrays:
    x, y = found.data.astype(np.float32), found.target.astype(np.int64)
    return Arrays(x, y, names=found.feature_names, classes=found.target_names)


# Generated -----------------------------------------------------------------------------------------------------------


def _shuffled(x: np.ndarray, y: np.ndarray, rng: np.random.Generator, names: Sequence[str], classes: int) -> Arrays:
    order = rng.permutation(len(x))
    return Arrays(
        x[order].astype(np.float32), y[order].astype(np.int64), names=names, classes=[str(k) for k in range(classes)]
    )


def moons(n: int = 200, noise: float = 0.1, seed: int = 0) -> Arrays:
    """Two half circles in the plane that reach into each other, (n, 2), and which of them: 0 or 1.

    (cos t, sin t) and (1 - cos t, 1/2 - sin t) for t from 0 to pi, with normal noise.
    """
    n, rng = count_of(n, "n", 2), np.random.default_rng(seed)
    y = np.arange(n) % 2
    t = np.pi * rng.random(n)
    x = np.where(y == 0, [np.cos(t), np.sin(t)], [1 - np.cos(t), 0.5 - np.sin(t)]).T
    return _shuffled(x + noise * rng.standard_normal(x.shape), y, rng, ("x", "y"), 2)


def swissroll(n: int = 200, noise: float = 0.05, seed: int = 0) -> Arrays:
    """Points of a rolled-up line in the plane, (n, 2), and where on it, (n,): scikit-learn's, without its width.

    t (cos t, sin t) / 5 for t from 3/2 pi to 9/2 pi, as likely everywhere, with normal noise: about 1.4 in size.
    """
    n, rng = count_of(n, "n"), np.random.default_rng(seed)
    t = 1.5 * np.pi * (1 + 2 * rng.random(n))
    x = np.stack([t * np.cos(t), t * np.sin(t)], 1) / 5 + noise * rng.standard_normal((n, 2))
    return Arrays(x.astype(np.float32), t.astype(np.float32), names=("x", "y"))


def spirals(n: int = 300, arms: int = 2, turns: float = 1.0, noise: float = 0.02, seed: int = 0) -> Arrays:
    """Points of spirals from the origin to radius 1, (n, 2), and the arm that each is of.

    Arm k is r (cos a, sin a), a = 2 pi (turns r + k / arms), with normal noise.
    """
    n, rng = count_of(n, "n", 2), np.random.default_rng(seed)
    y = np.arange(n) % count_of(arms, "arms")
    r = np.sqrt(rng.uniform(0.01, 1, n))  # as dense everywhere, but for the origin, where all arms meet
    angle = 2 * np.pi * (turns * r + y / arms)
    x = np.stack([r * np.cos(angle), r * np.sin(angle)], 1)
    return _shuffled(x + noise * rng.standard_normal(x.shape), y, rng, ("x", "y"), arms)


def sinusoids(
    n: int = 200, length: int = 64, noise: float = 0.0, seed: int = 0, frequency: Sequence[float] = (1.0, 4.0)
) -> Arrays:
    """Waves (n, length) over one unit of time, and what made them (n, 3): amplitude, frequency, phase.

    a sin(2 pi f t + p), t = 0, 1 / length, ...; a from 1/2 to 2, f between the two of `frequency`, p from 0 to 2 pi.
    For regression, and with `data.windows` for forecasting.
    """
    if np.shape(frequency) != (2,):
        raise ArgumentError(f"sinusoids: frequency is a pair (low, high), not {frequency!r}")
    n, length, rng = count_of(n, "n"), count_of(length, "length"), np.random.default_rng(seed)
    a, f, p = rng.uniform(0.5, 2, n), rng.uniform(frequency[0], frequency[1], n), rng.uniform(0, 2 * np.pi, n)
    t = np.arange(length) / length
    waves = a[:, None] * np.sin(2 * np.pi * f[:, None] * t + p[:, None]) + noise * rng.standard_normal((n, length))
    return Arrays(waves.astype(np.float32), np.stack([a, f, p], 1).astype(np.float32))


def xor(n: int = 200, noise: float = 0.1, seed: int = 0) -> Arrays:
    """Points about the corners of a square, (±1, ±1), (n, 2), and whether the signs differ: no line divides them."""
    n, rng = count_of(n, "n"), np.random.default_rng(seed)
    corner = np.arange(n) % 4
    signs = np.stack([corner // 2, corner % 2], 1)
    x = 2.0 * signs - 1 + noise * rng.standard_normal((n, 2))
    return _shuffled(x, signs[:, 0] ^ signs[:, 1], rng, ("x", "y"), 2)


def parity(bits: int = 8, n: int | None = None, seed: int = 0) -> Arrays:
    """Strings of bits, (n, bits) of 0 and 1, and whether their sum is odd.

    All 2^bits of them, in the order of binary numbers; with `n`, so many random ones.
    """
    bits = count_of(bits, "bits")
    if n is None and bits > 20:
        raise ArgumentError(f"parity: bits is between 1 and 20 (more with n=), not {bits!r}")
    if n is None:
        x = np.arange(2**bits)[:, None] >> np.arange(bits)[::-1] & 1
    else:
        x = np.random.default_rng(seed).integers(2, size=(count_of(n, "n"), bits))
    return Arrays(x.astype(np.float32), (x.sum(1) % 2).astype(np.int64), classes=["even", "odd"])
