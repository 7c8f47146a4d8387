"""Samplers of integers, bools and selections. They have no derivative: what they give doesn't change smoothly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.level import Traced
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import type_of
from wonderland.random import keys
from wonderland.random.arguments import (
    REQUIRED,
    Shape,
    array,
    common_shape,
    integer_dtype,
    known_dtype,
    sampler,
    shape_tuple,
)
from wonderland.random.samplers import samples, standard_exponential, standard_uniform, word_bits
from wonderland.transform.derivatives import stop_gradient

_FLOAT = np.dtype(np.float64)


@sampler
def bernoulli(key: Any = None, shape: Shape | None = None, p: Any = 0.5) -> Any:
    """True with probability `p`."""
    return standard_uniform(key, shape=common_shape("bernoulli", shape, p), dtype=_FLOAT) < array(p)


@sampler
def rademacher(key: Any = None, shape: Shape = (), *, dtype: Any = np.int64) -> Any:
    """-1 or 1."""
    dtype = known_dtype("rademacher", dtype, np.int64)
    if dtype.kind not in "ifc":
        raise TypeError(f"rademacher: random signs have a dtype with negative numbers, not {dtype}")
    bit = word_bits(key, shape=shape_tuple("rademacher", shape), width=1)
    return bit.astype(dtype) * dtype.type(2) - dtype.type(1)


@sampler
def randint(
    key: Any = None,
    shape: Shape | None = None,
    minval: Any = REQUIRED,
    maxval: Any = REQUIRED,
    *,
    dtype: Any = np.int64,
) -> Any:
    """Integers from `minval` to `maxval - 1`, all with exactly the same probability.

    The bounds may be arrays, and anything that fits the dtype: `randint(key, n, -2**63, 2**63)` is any int64.
    """
    dtype = integer_dtype("randint", dtype)
    shape = common_shape("randint", shape, minval, maxval)
    low, last = _bound(minval, dtype, 0), _bound(maxval, dtype, 1)
    out = samples(key, unwrap(low), unwrap(last), shape=shape, law="integers", dtype=np.uint64)
    return out.astype(dtype)


def _bound(value: Any, dtype: np.dtype, less: int) -> Any:
    """A bound of `randint`, minus `less`, as int64 or uint64: it must fit the dtype of the result."""
    info = np.iinfo(dtype)
    wide = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    if isinstance(unwrap(value), Traced):
        if value.dtype.kind not in "iu":
            raise TypeError(f"randint: bounds are integers, not {value.dtype}")
        value = value.astype(wide)
        return np.maximum(value, wide.type(info.min + less)) - wide.type(less)
    plain = np.asarray(unwrap(value))
    if plain.dtype.kind not in "iu" and not all(isinstance(v, int) for v in plain.ravel().tolist()):
        raise TypeError(f"randint: bounds are integers, not {plain.dtype}")
    numbers = [v - less for v in plain.ravel().tolist()]
    for v in numbers:
        if not info.min - less <= v <= info.max:
            raise ValueError(f"randint: the bound {v + less} is out of bounds for {dtype}")
    # A maxval at the lower end of the dtype makes the range empty; the comparison with minval says so.
    if less and any(v < info.min for v in numbers):
        raise ValueError(f"randint: the range that ends at {info.min} is empty for {dtype}")
    return np.array(numbers, wide).reshape(plain.shape)


@sampler
def categorical(key: Any = None, shape: Shape | None = None, logits: Any = REQUIRED, axis: int = -1) -> Any:
    """Indices along `axis`, with probabilities proportional to exp(logits).

    Without `shape`, one for each of the other axes of `logits`; otherwise `shape` ends with those axes.
    """
    logits = stop_gradient(array(logits))
    if logits.ndim == 0:
        raise ValueError("categorical: logits have at least one axis, that of the categories")
    if not -logits.ndim <= axis < logits.ndim:
        raise np.exceptions.AxisError(axis, logits.ndim)
    axis = axis % logits.ndim - logits.ndim
    batch = logits.shape[:axis] + logits.shape[axis:][1:]
    wanted = batch if shape is None else shape_tuple("categorical", shape)
    if wanted[len(wanted) - len(batch) :] != batch:
        raise ValueError(f"categorical: shape {shape} doesn't end with the shape {batch} of logits without axis {axis}")
    full = list(wanted)
    full.insert(len(full) + axis + 1, logits.shape[axis])
    # The largest of logits + Gumbel variables; -inf is never it.
    noise = -np.log(standard_exponential(key, shape=tuple(full), dtype=_FLOAT))
    return np.argmax(logits + noise, axis=axis)


@sampler
def permutation(key: Any = None, x: Any = REQUIRED, axis: int = 0, independent: bool = False) -> Any:
    """The numbers below `x`, or the entries of the array `x` along `axis`, in random order.

    With `independent` every line along the axis is shuffled on its own.
    """
    if np.ndim(x) == 0:
        size = _size(x, "permutation")
        return np.argsort(_sorting_bits(key, (size,)), kind="stable")
    x = array(x)
    if independent:
        order = np.argsort(_sorting_bits(key, x.shape), axis=axis, kind="stable")
        return np.take_along_axis(x, order, axis)
    order = np.argsort(_sorting_bits(key, (x.shape[axis],)), kind="stable")
    return _take(x, order, axis)


def _sorting_bits(key: Any, shape: tuple) -> Any:
    """64 bits each: that two are equal is so rare that no order is preferred measurably."""
    return word_bits(key, shape=shape, width=64)


def _size(x: Any, name: str) -> int:
    kind = type_of(unwrap(x))
    if kind.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected an array or a number of elements, not {kind}")
    size = int(x)
    if size < 0:
        raise ValueError(f"{name}: the number of elements can't be negative: {size}")
    return size


def _take(x: Any, order: Any, axis: int) -> Any:
    """np.take, where the indices may be traced and the array not."""
    x = Tracer(x) if isinstance(order, Tracer) and not isinstance(x, Tracer) else x
    return np.take(x, order, axis=axis)


@sampler
def choice(
    key: Any = None, a: Any = REQUIRED, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0
) -> Any:
    """Entries of the array `a` along `axis`, or numbers below the integer `a`; `p` gives their probabilities."""
    if isinstance(a, tuple):
        raise TypeError(f"choice: a is an array, a list or a number, not the tuple {a}: choice(key, a, shape)")
    is_number = np.ndim(a) == 0
    a = a if is_number else array(a)
    size = _size(a, "choice") if is_number else a.shape[axis]
    shape = shape_tuple("choice", shape)
    count = math.prod(shape)
    if size == 0 and count:
        raise ValueError("choice: a has no elements to choose from")
    if not replace and count > size:
        raise ValueError(f"choice: {count} different elements are asked for, and there are {size}")
    if p is not None:
        p = stop_gradient(array(p, _FLOAT))
        if p.shape != (size,):
            raise ValueError(f"choice: p has shape {p.shape}, and there are {size} elements")
        if not isinstance(unwrap(p), Traced) and not (np.all(p >= 0) and 0 < np.sum(p) < np.inf):
            raise ValueError("choice: probabilities p must be finite, not negative, and not all zero")
    if p is None and replace:
        out = samples(key, np.array(0), np.array(size - 1), shape=shape, law="integers", dtype=np.int64)
    elif p is None:
        out = np.argsort(_sorting_bits(key, (size,)), kind="stable")[:count].reshape(shape)
    elif replace:
        out = _by_cumulative(key, p, shape)
    else:
        if not isinstance(unwrap(p), Traced) and np.count_nonzero(p) < count:
            raise ValueError(f"choice: {count} different elements are asked for, and fewer have a probability above 0")
        # Exponential variables with rates p finish in the order of draws without replacement.
        times = np.where(
            p > 0, standard_exponential(key, shape=(size,), dtype=_FLOAT) / np.where(p > 0, p, 1.0), np.inf
        )
        out = np.argsort(times, kind="stable")[:count].reshape(shape)
    return out if is_number else _take(a, out, axis)


def _by_cumulative(key: Any, p: Any, shape: tuple) -> Any:
    """The first place where the added-up probabilities reach a uniform number in (0, total]."""
    total = np.cumsum(p)
    mark = (1 - standard_uniform(key, shape=shape, dtype=_FLOAT)) * total[-1]
    if isinstance(mark, Tracer) or isinstance(total, Tracer):
        return np.sum((total < mark[..., None]).astype(np.int64), axis=-1)
    return np.searchsorted(total, mark)


@sampler
def poisson(key: Any = None, shape: Shape | None = None, lam: Any = REQUIRED, *, dtype: Any = np.int64) -> Any:
    """Poisson with mean `lam`."""
    dtype, shape = integer_dtype("poisson", dtype), common_shape("poisson", shape, lam)
    mean = unwrap(stop_gradient(array(lam, _FLOAT)))
    return samples(key, mean, shape=shape, law="poisson", dtype=np.int64).astype(dtype)


@sampler
def binomial(
    key: Any = None, shape: Shape | None = None, n: Any = REQUIRED, p: Any = REQUIRED, *, dtype: Any = np.int64
) -> Any:
    """How many of `n` trials succeed, each with probability `p`."""
    return _binomial(key, n, p, common_shape("binomial", shape, n, p)).astype(integer_dtype("binomial", dtype))


def _binomial(key: Any, n: Any, p: Any, shape: tuple) -> Any:
    n, p = (unwrap(stop_gradient(array(x, _FLOAT))) for x in (n, p))
    return samples(key, n, p, shape=shape, law="binomial", dtype=np.int64)


@sampler
def multinomial(
    key: Any = None, shape: Shape | None = None, n: Any = REQUIRED, p: Any = REQUIRED, *, dtype: Any = np.int64
) -> Any:
    """How often each of the categories comes up in `n` trials: probabilities (..., k) give counts (*shape, k).

    `n` broadcasts to `shape`, by default its shape and that of `p` without the last axis.
    """
    p = stop_gradient(array(p, _FLOAT))
    if p.ndim < 1 or p.shape[-1] == 0:
        raise ValueError(f"multinomial: p is (..., k), a probability for each category, not of shape {p.shape}")
    shape = common_shape("multinomial", shape, n, np.broadcast_to(0.0, p.shape[:-1]))
    left = np.broadcast_to(array(n, np.int64), shape)
    rest = np.flip(np.cumsum(np.flip(p, -1), axis=-1), -1)  # of this category and the later ones
    counts = []
    for i in range(p.shape[-1] - 1):
        fraction = np.where(rest[..., i] > 0, p[..., i] / np.where(rest[..., i] > 0, rest[..., i], 1.0), 0.0)
        counts.append(_binomial(unwrap(keys.fold_in(key, i)), left, np.minimum(fraction, 1.0), shape))
        left = left - counts[-1]
    return np.stack([*counts, left], axis=-1).astype(integer_dtype("multinomial", dtype))
