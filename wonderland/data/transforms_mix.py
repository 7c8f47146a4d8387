"""Augmentation that mixes samples, images and labels alike: mixup and cutmix. Labels come back soft, (n, classes).

    train.fit(model, loss, optimizer, data.Loader((x, y), transform=data.mixup(0.2, classes=10)), ...)

`nn.cross_entropy` takes soft labels. With labels that are soft already, or targets of regression (floating-point
numbers), `classes` isn't needed. What else is in the batch passes unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.transforms import BatchTransform, Rng, box


def mixup(alpha: float = 0.2, classes: int | None = None) -> BatchTransform:
    """lambda x_i + (1 - lambda) x_j, and labels alike: j of a random permutation, lambda ~ Beta(alpha, alpha).

    Of arrays of any shape; each sample has a lambda of its own. H. Zhang et al., mixup: beyond empirical risk
    minimization, 2018.

    x, soft = data.mixup(0.2, classes=10)((images, labels), np.random.default_rng(0))
    """
    return BatchTransform("mixup", _mixup, _arguments("mixup", alpha, classes), takes="pairs", floats=True)


def _mixup(x: np.ndarray, rest: list[Any], rng: Rng, alpha: float, classes: int | None) -> tuple[Any, Any]:
    y = soft_labels(rest, len(x), classes, x.dtype, "mixup")
    part, other = rng.beta(alpha, alpha, len(x)), rng.permutation(len(x))
    return _blend(x, x[other], part), _blend(y, y[other], part)


def cutmix(alpha: float = 1.0, classes: int | None = None, *, channels_last: bool = False) -> BatchTransform:
    """A rectangle of each image is another image's; labels are mixed as the areas are, exactly.

    lambda ~ Beta(alpha, alpha) is the area that should stay: the sides of the rectangle are those of the image times
    sqrt(1 - lambda), its centre is any pixel. What is outside of the image is cut off, and then lambda is the fraction
    of pixels that stayed. S. Yun et al., CutMix, 2019.
    """
    function = _cutmix_last if channels_last else _cutmix
    return BatchTransform(
        "cutmix", function, _arguments("cutmix", alpha, classes), "pairs", channels_last=channels_last
    )


def _cutmix(x: np.ndarray, rest: list[Any], rng: Rng, alpha: float, classes: int | None) -> tuple[Any, Any]:
    if x.ndim != 4:
        raise ArgumentError(f"cutmix takes images (n, c, h, w), and got an array of shape {x.shape}")
    height, width = x.shape[2:]
    y = soft_labels(rest, len(x), classes, x.dtype, "cutmix")
    side, other = np.sqrt(1 - rng.beta(alpha, alpha, len(x))), rng.permutation(len(x))
    h, w = (height * side).astype(int), (width * side).astype(int)
    top, left = rng.integers(height, size=len(x)) - h // 2, rng.integers(width, size=len(x)) - w // 2
    inside = box(top, left, top + h, left + w, (height, width))
    return np.where(inside, x[other], x), _blend(y, y[other], 1 - inside.mean((1, 2, 3)))


def _cutmix_last(x: np.ndarray, rest: list[Any], rng: Rng, alpha: float, classes: int | None) -> tuple[Any, Any]:
    if x.ndim != 4:
        raise ArgumentError(f"cutmix takes images (n, h, w, c), and got an array of shape {x.shape}")
    mixed, y = _cutmix(np.moveaxis(x, -1, 1), rest, rng, alpha, classes)
    return np.ascontiguousarray(np.moveaxis(mixed, 1, -1)), y


def _arguments(name: str, alpha: float, classes: int | None) -> tuple[tuple[str, Any], ...]:
    if not alpha > 0:
        raise ArgumentError(f"{name}: alpha is positive, not {alpha!r}")
    if classes is not None and classes < 1:
        raise ArgumentError(f"{name}: classes is the number of classes, not {classes!r}")
    return ("alpha", float(alpha)), ("classes", classes)


def _blend(first: np.ndarray, second: np.ndarray, part: np.ndarray) -> np.ndarray:
    part = part.astype(first.dtype).reshape(-1, *[1] * (first.ndim - 1))
    return part * first + (1 - part) * second


def soft_labels(rest: list[Any], n: int, classes: int | None, dtype: Any, name: str) -> np.ndarray:
    """The labels that follow the first array of a batch, as numbers to be mixed; class numbers as one-hot rows."""
    if not rest:
        raise ArgumentError(f"{name} mixes labels, too: the batch is (x, labels, ...), and there is only x")
    y = np.asarray(rest[0])
    if len(y) != n:
        raise ArgumentError(f"{name}: there are {n} samples and {len(y)} labels")
    if y.dtype.kind == "f":
        return y
    dtype = dtype if np.dtype(dtype).kind == "f" else np.float32
    if y.dtype.kind not in "iub" or y.ndim != 1:
        raise ArgumentError(
            f"{name}: labels are class numbers (n,) or floating-point numbers of any shape, not {y.dtype} {y.shape}"
        )
    if classes is None:
        raise ArgumentError(f"{name}: say how many classes there are, {name}(..., classes=10), for labels of {y.dtype}")
    if n and not 0 <= y.min() <= y.max() < classes:
        wrong = int(np.argmax((y < 0) | (y >= classes)))
        raise ArgumentError(
            f"{name}: label {y[wrong]} of sample {wrong} isn't one of {classes} classes, 0 to {classes - 1}"
        )
    return np.eye(classes, dtype=dtype)[y.astype(np.intp)]
