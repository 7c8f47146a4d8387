"""RandAugment: a few operations drawn for each image from a list, all of one strength.

E. Cubuk et al., RandAugment: practical automated data augmentation with a reduced search space, 2020. Ranges are those
of AutoAugment (2019); values of images are between 0 and `high`, as of 256 levels where an operation counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.transforms import BatchTransform, Rng, grey
from wonderland.data.warp import resample, rotation, shearing, shifting

LEVELS = 255  # 256 values, as in images of 8 bits


def rand_augment(
    n: int = 2,
    m: float = 5.0,
    *,
    operations: Sequence[str] | None = None,
    high: float = 1.0,
    fill: float = 0.0,
    channels_last: bool = False,
) -> BatchTransform:
    """`n` operations one after another, drawn for each image, each of strength `m` between 0 and 10.

    Images have values between 0 and `high`: normalise them afterwards. `operations` are names of identity,
    autocontrast, equalize, rotate, solarize, color, posterize, contrast, brightness, sharpness, shear_x, shear_y,
    translate_x, translate_y: without it, all of them. Choose those that keep the meaning of your images.

    data.rand_augment(2, 5, operations=["identity", "rotate", "shear_x", "translate_x", "translate_y"])
    """
    names = tuple(OPERATIONS) if operations is None else tuple(operations)
    if unknown := [name for name in names if name not in OPERATIONS]:
        raise ArgumentError(f"rand_augment: there is no operation {unknown[0]!r}; there are {', '.join(OPERATIONS)}")
    if not names:
        raise ArgumentError("rand_augment: operations is an empty list; leave it away for all of them")
    if n < 0 or not 0 <= m <= 10:
        raise ArgumentError(f"rand_augment: n operations of strength m between 0 and 10, not n={n!r}, m={m!r}")
    if not high > 0:
        raise ArgumentError(f"rand_augment: high is the largest value of an image, not {high!r}")
    arguments = (("n", int(n)), ("m", float(m)), ("operations", names), ("high", float(high)), ("fill", float(fill)))
    return BatchTransform("rand_augment", _rand_augment, arguments, floats=True, channels_last=channels_last)


def _rand_augment(
    x: np.ndarray, rng: Rng, n: int, m: float, operations: tuple[str, ...], high: float, fill: float
) -> np.ndarray:
    if x.size and not -1e-3 * high <= x.min() <= x.max() <= 1.001 * high:
        raise ArgumentError(
            f"rand_augment: values are between 0 and high={high}, not {x.min():.4g} and {x.max():.4g}; give high=, and "
            "normalise after it, not before"
        )
    out = np.clip(x / x.dtype.type(high), 0, 1)
    for _ in range(n):
        chosen = rng.integers(len(operations), size=len(x))
        for k in np.unique(chosen):
            mine = chosen == k
            sign = rng.choice([-1.0, 1.0], int(mine.sum()))
            changed = OPERATIONS[operations[k]](out[mine], m / 10 * sign, fill / high)
            out[mine] = np.clip(changed, 0, 1)
    return out * x.dtype.type(high)


# The operations. Images have values between 0 and 1, strengths (n,) are between -1 and 1 -----------------------------


def _blended(x: np.ndarray, plain: Any, strength: np.ndarray) -> np.ndarray:
    """Further from or nearer to a plain version: at most 1.9 times, at least a tenth of the difference."""
    return plain + (1 + 0.9 * strength).astype(x.dtype).reshape(-1, 1, 1, 1) * (x - plain)


def autocontrast(x: np.ndarray, strength: Any = None, fill: float = 0) -> np.ndarray:
    """Each channel from 0 to 1."""
    low, high = x.min((2, 3), keepdims=True), x.max((2, 3), keepdims=True)
    return np.where(high > low, (x - low) / np.where(high > low, high - low, 1), x)


def equalize(x: np.ndarray, strength: Any = None, fill: float = 0) -> np.ndarray:
    """Each channel with all levels about equally often: a level is mapped to the fraction of pixels below it."""
    levels = np.rint(x * LEVELS).astype(np.intp).reshape(x.shape[0] * x.shape[1], -1)
    planes = np.arange(len(levels))[:, None]
    counts = np.bincount((levels + (LEVELS + 1) * planes).ravel(), minlength=len(levels) * (LEVELS + 1))
    counts = counts.reshape(-1, LEVELS + 1)
    last = counts[planes[:, 0], levels.max(1)]
    step = (counts.sum(1) - last) // LEVELS  # 0: there is only one level, or fewer pixels than levels
    below = np.cumsum(counts, 1) - counts
    table = np.clip((below + (step // 2)[:, None]) // np.maximum(step, 1)[:, None], 0, LEVELS)
    equal = (table[planes, levels] / LEVELS).astype(x.dtype).reshape(x.shape)
    return np.where((step > 0).reshape(*x.shape[:2], 1, 1), equal, x)


def posterize(x: np.ndarray, strength: np.ndarray, fill: float = 0) -> np.ndarray:
    """The upper 8 to 4 bits of 8."""
    unit = 2.0 ** np.rint(4 * np.abs(strength)).reshape(-1, 1, 1, 1)
    return (np.floor(np.rint(x * LEVELS) / unit) * unit / LEVELS).astype(x.dtype)


def solarize(x: np.ndarray, strength: np.ndarray, fill: float = 0) -> np.ndarray:
    """Values from 1 - |strength| on are inverted."""
    return np.where(x > (1 - np.abs(strength)).astype(x.dtype).reshape(-1, 1, 1, 1), 1 - x, x)


def sharpness(x: np.ndarray, strength: np.ndarray, fill: float = 0) -> np.ndarray:
    """Further from or nearer to the image smoothed by [1 1 1; 1 5 1; 1 1 1] / 13, except at the border."""
    if min(x.shape[2:]) < 3:
        return x
    h, w = x.shape[2] - 2, x.shape[3] - 2
    inner = sum(x[:, :, i : i + h, j : j + w] for i in range(3) for j in range(3)) + 4 * x[:, :, 1:-1, 1:-1]
    smooth = x.copy()
    smooth[:, :, 1:-1, 1:-1] = inner / 13
    return _blended(x, smooth, strength)


def _contrast(x: np.ndarray, strength: np.ndarray, fill: float) -> np.ndarray:
    return _blended(x, grey(x).mean((1, 2, 3), keepdims=True), strength)


def _moved(maps: Callable[..., np.ndarray], down: float, across: float) -> Callable[..., np.ndarray]:
    def operation(x: np.ndarray, strength: np.ndarray, fill: float) -> np.ndarray:
        size = x.shape[2:] if maps is shifting else (1, 1)
        return resample(x, maps(down * size[0] * strength, across * size[1] * strength), fill)

    return operation


OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "identity": lambda x, strength, fill: x,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "rotate": lambda x, strength, fill: resample(x, rotation(np.deg2rad(30 * strength)), fill),
    "solarize": solarize,
    "color": lambda x, strength, fill: _blended(x, grey(x), strength),
    "posterize": posterize,
    "contrast": _contrast,
    "brightness": lambda x, strength, fill: _blended(x, x.dtype.type(0), strength),
    "sharpness": sharpness,
    "shear_x": _moved(shearing, 0.0, 0.3),
    "shear_y": _moved(shearing, 0.3, 0.0),
    "translate_x": _moved(shifting, 0.0, 0.45),
    "translate_y": _moved(shifting, 0.45, 0.0),
}
