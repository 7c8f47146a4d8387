"""Mean and variance along axes, for the layers that normalise: of what a mask counts, and over several ranks.

An array comes in, means and variances that broadcast with it go out. With a mask, what isn't counted may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.control.custom import custom_vjp
from wonderland.control.effects import host_call
from wonderland.nn.arguments import array
from wonderland.nn.placing import numbers, place_of

Axes = tuple[int, ...]
Reduce = Callable[[np.ndarray], np.ndarray]

# The sums over ranks that are in force, which layers name by number: a function may hold arrays, which no static
# attribute does.
REDUCTIONS: dict[int, Reduce] = {}


def reduction(number: int) -> Reduce | None:
    """The sum over ranks of a number; None of 0."""
    if number and number not in REDUCTIONS:
        raise ValueError("a copy of a model that was made inside nn.synchronize is called after it has ended")
    return REDUCTIONS[number] if number else None


class Moments(NamedTuple):
    """Mean and variance (divided by the count) with extents of 1 along the axes, and how many numbers they are of."""

    mean: Any
    variance: Any
    count: Any

    def unbiased(self) -> Any:
        """The variance divided by the count less one; of one number, 0."""
        return self.variance * (self.count / _at_least_one(self.count - 1))


def _at_least_one(count: Any) -> Any:
    return max(count, 1.0) if isinstance(count, float) else np.maximum(count, 1)


def moments(x: Any, axes: Axes, mask: Any = None, reduce: Reduce | None = None) -> Moments:
    """The mean and variance of x along axes: mu = sum x / n, sigma^2 = sum (x - mu)^2 / n.

    `mask`, of bools, broadcasts with x. `reduce` sums an array over the ranks of training in parallel; n, sum x and
    sum (x - mu)^2 go through it, and so do their derivatives.
    """
    counted = x if mask is None else np.where(mask, x, 0)
    total = np.sum(counted, axis=axes, keepdims=True)
    count: Any = float(math.prod(x.shape[a] for a in axes))
    if mask is not None:
        inside = tuple(a for a in axes if mask.shape[a] > 1 or x.shape[a] == 1)
        repeated = math.prod(x.shape[a] for a in axes if a not in inside)
        count = np.sum(mask, axis=inside, keepdims=True).astype(x.dtype) * repeated
    if reduce is not None:
        numbers = np.concatenate([np.reshape(total, -1), np.reshape(array(count).astype(x.dtype), -1)])
        numbers = summed(numbers, reduce)
        split = math.prod(total.shape)
        total, count = numbers[:split].reshape(total.shape), numbers[split:].reshape(np.shape(count))
    safe = _at_least_one(count)
    mean = total / safe
    deviation = x - mean if mask is None else np.where(mask, x - mean, 0)
    squares = np.sum(deviation * deviation, axis=axes, keepdims=True)
    if reduce is not None:
        squares = summed(squares, reduce)
    return Moments(mean, squares / safe, count)


def pooled(found: Moments, axis: int, groups: int) -> Moments:
    """Moments of groups along an axis, which each member has: of members that are of equally many numbers each.

    A group's variance is the mean of its members' and of the squares of how far their means are from the group's.
    """

    def mean_of_group(a: Any) -> Any:
        members = a.reshape(*a.shape[:axis], groups, a.shape[axis] // groups, *a.shape[axis + 1 :])
        return np.broadcast_to(np.mean(members, axis + 1, keepdims=True), members.shape).reshape(a.shape)

    mean = mean_of_group(found.mean)
    return found._replace(mean=mean, variance=mean_of_group(found.variance + (found.mean - mean) ** 2))


def summed(x: Any, reduce: Reduce) -> Any:
    """The sum over ranks, in eager and compiled code. It is linear and its own transpose: so are its derivatives."""
    over_ranks = custom_vjp(lambda a: host_call(reduce, a, a))
    over_ranks.defjvp(lambda primals, tangents: (over_ranks(*primals), over_ranks(*tangents)))
    over_ranks.defvjp(lambda a: (over_ranks(a), None), lambda _, cotangent: (over_ranks(cotangent),))
    return over_ranks(x)


def standardized(x: Any, found: Moments, eps: float, weight: Any = None, bias: Any = None) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias, the factors first: they are few."""
    scale = 1 / np.sqrt(found.variance + eps)
    y = (x - found.mean) * (scale if weight is None else scale * weight)
    return y if bias is None else y + bias


def real_numbers(layer: Any, x: Any, weight: Any = None) -> Any:
    """The input of a layer as an array of floating-point numbers; integers become float64."""
    x = numbers(layer, x, weight)
    if x.dtype.kind not in "biuf":
        raise TypeError(f"{place_of(layer)}: expected an input of real numbers, got dtype {x.dtype}")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def along(values: Any, axis: int, ndim: int) -> Any:
    """Values of channels, to broadcast with an array that has channels on an axis."""
    shape = [1] * ndim
    shape[axis] = -1
    return values.reshape(shape)


def mask_along(mask: Any, shape: Sequence[int], axis: int, name: str) -> Any:
    """A mask (batch, *spatial) to broadcast with an array that has channels on an axis as well."""
    mask = array(mask)
    wanted = tuple(n for i, n in enumerate(shape) if i != axis)
    if mask.dtype != bool:
        raise TypeError(f"{name}: a mask is an array of bools, True for what counts, got dtype {mask.dtype}")
    if mask.shape != wanted:
        raise ValueError(f"{name}: x has shape {tuple(shape)}, so its mask has shape {wanted}, not {mask.shape}")
    return np.expand_dims(mask, axis)
