"""Random bits from counters: Philox4x32-10, a key in, as many bits as asked out.

A key is an array of two uint32. The bits at a position are a function of the key and the position and of nothing else,
so they don't depend on the order of evaluation, on threads, or on what else is drawn. A block of Philox turns a counter
of four words into four random words; the last word of our counters says what the block is for, so that bits, children
of a key and samples by rejection never share a block:

    (block, block >> 32, 0, BITS)            the bits of `random_bits`, four words a block
    (data, data >> 32, 0, SPLIT | FOLD ...)  the key made of a key and an integer by `random_fold`
    (place, place >> 32, attempt, DRAW ...)  what `random_sample` (ops/random_laws.py) uses for one element

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, broadcast_shapes, shape_of
from wonderland.ops.shape import reshape
from wonderland.ops.work import each

BITS, SPLIT, FOLD, SEED, DRAW, BOOST = range(6)

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_MASK = 0xFFFFFFFF
_NUMBERS = tuple(int(n) for n in (*_MULTIPLIERS, *_WEYL))
_FEW = 8  # blocks that Python's integers are faster for
_CHUNK = 1 << 15  # blocks worked on at a time: their words stay in the cache
_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)


def philox(counter: tuple[Any, ...], key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Ten rounds of Philox4x32 on vectors: four uint32 arrays (n,), two of shape (n,) or (1,); four come out."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = np.multiply(c0, _MULTIPLIERS[0], dtype=np.uint64).view(np.uint32)
        p1 = np.multiply(c2, _MULTIPLIERS[1], dtype=np.uint64).view(np.uint32)
        c0, c1 = p1[_HIGH::2] ^ c1 ^ k0, p1[_LOW::2]
        c2, c3 = p0[_HIGH::2] ^ c3 ^ k1, p0[_LOW::2]
        k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
    return c0, c1, c2, c3


def _few(counters: list, keys: list) -> tuple:
    """`philox` of a few blocks, by Python's integers: NumPy's calls would take longer."""
    out = []
    m0, m1, w0, w1 = _NUMBERS
    keys = keys * len(counters) if len(keys) == 1 else keys
    for (c0, c1, c2, c3), (k0, k1) in zip(counters, keys, strict=True):
        for _ in range(10):
            p0, p1 = c0 * m0, c2 * m1
            c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & _MASK, p0 >> 32 ^ c3 ^ k1, p0 & _MASK
            k0, k1 = k0 + w0 & _MASK, k1 + w1 & _MASK
        out.append((c0, c1, c2, c3))
    return tuple(np.array(out, np.uint32).T)


def blocks(keys: np.ndarray, rows: Any, places: np.ndarray, attempt: int, purpose: int) -> tuple[Any, ...]:
    """The four words of a block for each of `places` (uint64), with the key `keys[row]` of each."""
    rows = np.zeros(1, np.intp) if len(keys) == 1 else rows
    if 0 < len(places) <= _FEW:
        each_place = places.tolist()
        return _few([(n & _MASK, n >> 32, attempt, purpose) for n in each_place], keys[rows].tolist())
    high = (places >> np.uint64(32)).astype(np.uint32)
    words = (np.full(1, word, np.uint32) for word in (attempt, purpose))
    counter = np.broadcast_arrays(places.astype(np.uint32), high, *words)
    return philox(tuple(map(np.ascontiguousarray, counter)), (keys[rows, 0], keys[rows, 1]))


def _random_bits(key: Any, shape: tuple, width: int) -> Any:
    size = 1 if width <= 32 else 2  # words of an element
    count = math.prod(shape)
    per_key = -(-count * size // 4)
    keys = np.asarray(key).reshape(-1, 2)
    words = np.empty((len(keys) * per_key, 4), "<u4")
    for start in range(0, len(words), _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, len(words)), dtype=np.uint64)
        rows, places = (None, numbers) if len(keys) == 1 else np.divmod(numbers, np.uint64(per_key))
        for lane, word in enumerate(blocks(keys, rows, places, 0, BITS)):
            words[start : start + _CHUNK, lane] = word
    words = words.reshape(len(keys), per_key * 4)[:, : count * size]
    whole = f"<u{4 * size}"
    out = np.ascontiguousarray(words).view(whole).astype(np.dtype(whole).newbyteorder("="), copy=False)
    if width < 32 * size:
        out = out >> out.dtype.type(32 * size - width)
    return out.reshape((*shape_of(key)[:-1], *shape))[()]


def _check_key(key: ArrayType) -> None:
    if key.dtype != np.uint32 or key.shape[-1:] != (2,):
        raise TypeError(f"a random key is a uint32 array of shape (2,), not {key}: make a key with wl.random.key(0)")


def _bits_infer(key: ArrayType, shape: tuple, width: int) -> ArrayType:
    _check_key(key)
    return ArrayType((*key.shape[:-1], *shape), np.uint32 if width <= 32 else np.uint64)


@functools.cache
def _words_code(width: int, purpose: int, few: bool) -> Callable:
    """The scalar code of the bits of a key at (block, lane)."""
    dtype = np.dtype(np.uint32 if width <= 32 else np.uint64)
    return lambda e, *args: e.routine("random_bits", (width, purpose, few), dtype, *args)


def key_words(builder: Any, key: Any, shape: tuple[Any, ...], trailing: int) -> list[Any]:
    """The two words of keys over a shape that has so many axes behind those of the keys."""
    lead = key.shape[:-1]
    words = (builder.slice(key, (*(slice(0, n, 1) for n in lead), word)) for word in range(2))
    return [builder.broadcast(builder.reshape(w, (*lead, *(1,) * trailing)), shape) for w in words]


def _words(builder: Any, key: Any, place: Any, shape: tuple, width: int, purpose: int, few: bool) -> Any:
    """Words over `shape`, whose last axis is that of the words of a block.

    What is the same for all words of a block (all but a selection) is computed in the loop around that over the words;
    LLVM then unrolls the inner loop, and vectorises the outer one.
    """
    keys = key_words(builder, key, shape, len(shape) - len(key.shape) + 1)
    lane = builder.index(shape, (*(0,) * (len(shape) - 1), 1))
    dtype = np.dtype(np.uint32 if width <= 32 else np.uint64)
    made = builder.map(_words_code(width, purpose, few), [*keys, place, lane], dtype)
    made.base.cost //= shape[-1]  # what a word costs, of a block that is computed once
    return made


def _bits_lower(builder: Any, key: Any, shape: tuple, width: int) -> Any:
    lead, count, lanes = key.shape[:-1], math.prod(shape), 4 if width <= 32 else 2
    per_key = -(-count // lanes)
    full = (*lead, per_key, lanes)
    place = builder.index(full, (*(0,) * len(lead), 1, 0))
    words = _words(builder, key, place, full, width, BITS, per_key < 1 << 32)
    flat = builder.reshape(words, (*lead, per_key * lanes))
    part = builder.slice(flat, (*(slice(0, n, 1) for n in lead), slice(0, count, 1)))
    return builder.reshape(part, (*lead, *shape))


# `width` random bits for each element of `shape`, as uint32, or uint64 if they are more than 32. Of keys with leading
# axes each has its own bits: (..., 2) keys give (..., *shape).
random_bits: Primitive = Primitive(
    "random_bits",
    _random_bits,
    _bits_infer,
    batch=lambda size, args, batched, shape, width: random_bits(args[0], shape=shape, width=width),
    pattern=lambda types, params: [None],
    lower=_bits_lower,
    impossible={"jvp": "keys are integers"},
    cost=each(calls=1),
)


def _random_fold(key: Any, data: Any, purpose: int) -> Any:
    data = np.asarray(data).astype(np.uint64)
    key = np.asarray(key)
    shape = np.broadcast_shapes(key.shape[:-1], data.shape)
    keys = np.broadcast_to(key, (*shape, 2)).reshape(-1, 2)
    words = blocks(keys, np.arange(len(keys)), np.broadcast_to(data, shape).ravel(), 0, purpose)
    return np.stack(words[:2], axis=-1).reshape(*shape, 2)


def _fold_infer(key: ArrayType, data: ArrayType, purpose: int) -> ArrayType:
    _check_key(key)
    if data.dtype.kind not in "iu":
        raise TypeError(f"a key is combined with integers, not with {data}")
    return ArrayType((*broadcast_shapes(key.shape[:-1], data.shape), 2), np.uint32)


def _fold_batch(size: int, args: tuple, batched: tuple, purpose: int) -> Any:
    key, data = args
    ranks = len(shape_of(key)) - 1 - batched[0], len(shape_of(data)) - batched[1]
    if batched[0]:
        key = _spread(key, 1, max(ranks) - ranks[0])
    if batched[1]:
        data = _spread(data, 1, max(ranks) - ranks[1])
    return random_fold(key, data, purpose=purpose)


def _spread(x: Any, axis: int, count: int) -> Any:
    """Singleton axes put in at a place."""
    shape = shape_of(x)
    return reshape(x, shape=(*shape[:axis], *(1,) * count, *shape[axis:])) if count else x


def _fold_lower(builder: Any, key: Any, data: Any, purpose: int) -> Any:
    shape = (*np.broadcast_shapes(key.shape[:-1], data.shape), 2)
    key = builder.broadcast(key, shape)
    place = builder.reshape(builder.convert(data, np.dtype(np.uint64)), (*data.shape, 1))
    return _words(builder, key, builder.broadcast(place, shape), shape, 32, purpose, False)


# The child of a key that an integer names: keys (..., 2) and integers broadcast to (..., 2).
random_fold: Primitive = Primitive(
    "random_fold",
    _random_fold,
    _fold_infer,
    batch=_fold_batch,
    pattern=lambda types, params: [None, None],
    lower=_fold_lower,
    impossible={"jvp": "keys are integers"},
    cost=each(calls=1),
)
