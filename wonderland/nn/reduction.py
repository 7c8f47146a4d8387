"""From the losses of elements to a loss: weights, masks and reductions, the same for every loss function.

A weight or mask of fewer axes than the losses belongs to the leading ones: (n,) has one for each sample. With as many
axes it is broadcast. What is masked out contributes exactly nothing, to derivatives either, whatever its value is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.nn.arguments import array, floating

REDUCTIONS = ("mean", "sum", "none")


def reduced(
    loss: Any, reduction: str, name: str, weight: Any = None, mask: Any = None, *, per_weight: bool = True
) -> Any:
    """The weighted losses, their sum, or their mean.

    The mean is that sum divided by the sum of the weights of what isn't masked out; by its number if not `per_weight`.
    It is 0 if there is nothing (everything is masked out), so that such a batch adds nothing.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction is one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")
    if weight is not None:
        weight = leading(floating(weight, f"{name}: weight"), loss.shape, f"{name}: weight").astype(loss.dtype)
        loss = loss * weight
    if mask is not None:
        mask = mask_of(mask, loss.shape, name)
        loss = np.where(mask, loss, 0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return np.sum(loss)
    weight = weight if per_weight else None
    if weight is None and mask is None:
        return np.mean(loss)
    counted: Any = np.ones((1,) * len(loss.shape), loss.dtype) if weight is None else weight
    counted = counted if mask is None else np.where(mask, counted, 0)
    total = np.sum(counted) * (math.prod(loss.shape) // max(counted.size, 1))
    return np.sum(loss) / np.where(total == 0, 1, total)


def mask_of(mask: Any, shape: tuple[int, ...], name: str) -> Any:
    """A mask, to broadcast with losses of a shape."""
    mask = array(mask)
    if mask.dtype != bool:
        raise TypeError(f"{name}: a mask is an array of bools, True for what counts, got dtype {mask.dtype}")
    return leading(mask, shape, f"{name}: mask")


def or_masked(fits: Any, mask: Any, shape: tuple[int, ...], name: str) -> Any:
    """True for what fits, and for what is masked out of losses of a shape, which may be anything."""
    return fits if mask is None else fits | ~mask_of(mask, shape, name)


def leading(x: Any, shape: tuple[int, ...], what: str) -> Any:
    """An array for the leading axes of a shape, with ones for the others."""
    if x.ndim > len(shape) or any(n not in (1, of) for n, of in zip(x.shape, shape, strict=False)):
        raise ValueError(
            f"{what} has shape {x.shape}, the losses {shape}: it has their leading axes (one for each sample), or as "
            "many axes, 1 where it is the same for all"
        )
    return x.reshape(*x.shape, *(1,) * (len(shape) - x.ndim))
