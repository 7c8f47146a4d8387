"""`random_sample`: variables that need an unknown number of random numbers each, because some are rejected.

An element of the result has a stream of its own: its key, its place in the array and the number of the attempt make the
counters (ops/random.py). How often one element is rejected is therefore nothing to the others, and a batch of keys
gives exactly what each key gives alone.

A law is a function `(stream, *operands)` of flat arrays. Gamma variables come as their logarithms: for a small shape
parameter most of them are far below the smallest number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, broadcast_shapes, is_differentiable, shape_of
from wonderland.ops.elementwise import scale
from wonderland.ops.gamma_slope import gamma_slope
from wonderland.ops.quantile import normal_quantile
from wonderland.ops.random import BOOST, DRAW, blocks, key_words
from wonderland.ops.shape import broadcast, reshape
from wonderland.ops.work import each

_CHUNK = 1 << 16  # elements sampled at a time
POISSON_BOUNDS = "poisson: lam must be between 0 and 2**62 (it is negative, NaN or larger somewhere)"
BINOMIAL_BOUNDS = "binomial: n must be between 0 and 2**53, and p between 0 and 1"


class Stream:
    """The random numbers of a run of elements: `places` in the arrays of the keys `rows`."""

    keys: np.ndarray
    rows: np.ndarray
    places: np.ndarray

    def __init__(self, keys: np.ndarray, rows: np.ndarray, places: np.ndarray):
        self.keys, self.rows, self.places = keys, rows, places

    def bits(self, chosen: Any, attempt: int, purpose: int = DRAW) -> tuple[np.ndarray, np.ndarray]:
        """Two uint64 for each of the chosen elements."""
        words = blocks(self.keys, self.rows[chosen], self.places[chosen], attempt, purpose)
        low, low2, high, high2 = (w.astype(np.uint64) for w in (words[0], words[2], words[1], words[3]))
        return low | high << np.uint64(32), low2 | high2 << np.uint64(32)


def signed_tail(bits: np.ndarray) -> np.ndarray:
    """Uniform in (-1/2, 1/2), with the resolution of floating point around 0: there stand the tails of a law."""
    return (bits.astype(np.int64) + 0.5) * 2.0**-64


def unit(bits: np.ndarray) -> np.ndarray:
    """Uniform in (0, 1]."""
    return (bits + 0.5) * 2.0**-64


def _rejected_until_done(count: int, propose: Callable, dtype: Any = np.float64) -> np.ndarray:
    """`propose(elements, attempt) -> values, accepted` for the elements that are left, until none is."""
    out = np.empty(count, dtype)
    left, attempt = np.arange(count), 0
    while left.size:
        values, accepted = propose(left, attempt)
        out[left[accepted]] = values[accepted]
        left, attempt = left[~accepted], attempt + 1
    return out


# The laws ------------------------------------------------------------------------------------------------------------


def _loggamma(stream: Stream, a: np.ndarray) -> np.ndarray:
    """Marsaglia and Tsang (2000): a cube of a normal variable; a shape below 1 by that of a + 1 and a power."""
    valid = (a > 0) & (a < np.inf)
    small = valid & (a < 1)
    safe = np.where(valid, a + small, 1.0)
    d = safe - 1 / 3
    c = 1 / np.sqrt(9 * d)

    def propose(left: np.ndarray, attempt: int) -> tuple:
        first, second = stream.bits(left, attempt)
        tail, u = signed_tail(first), unit(second)
        x, d_left = np.sign(tail) * normal_quantile.evaluate(np.abs(tail)), d[left]
        t = np.maximum(c[left] * x, -1.0)
        log_v = 3 * np.log1p(t)  # -inf, and rejected, where v <= 0
        bound = 0.5 * x * x + d_left * (1 - (1 + t) ** 3 + log_v)
        return log_v, (t > -1) & ((u < 1 - 0.0331 * x**4) | (np.log(u) < bound))

    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.log(d) + _rejected_until_done(len(a), propose)
        boosted = np.flatnonzero(small)
        out[boosted] += np.log(unit(stream.bits(boosted, 0, BOOST)[0])) / a[boosted]
        return np.where(valid, out, np.log(np.where(a >= 0, a, np.nan)))  # of 0 and of infinity: their logarithms


def _log_stirling(k: np.ndarray) -> np.ndarray:
    """log k! - (k log k - k)."""
    with loading():
        from scipy.special import gammaln

    big = np.maximum(k, 16.0)
    series = (1 / 12 - (1 / 360 - 1 / (1260 * big * big)) / (big * big)) / big
    small = np.minimum(k, 16.0)
    exact = gammaln(small + 1) - small * np.log(np.maximum(small, 1.0)) + small
    return np.where(k < 16, exact, 0.5 * np.log(2 * np.pi * big) + series)


def _deviance(k: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """k log(k / mean) + mean - k, without cancellation where they are close (Loader 2000)."""
    x = (mean - k) / np.maximum(k, 1.0)
    return np.where(k == 0, mean, k * (x - np.log1p(np.maximum(x, -1 + 1e-16))))


def _by_inversion(stream: Stream, start: np.ndarray, ratio: Callable) -> np.ndarray:
    """Counts by adding up probabilities from 0 on; `ratio(k, elements)` is p(k) / p(k - 1)."""
    u = unit(stream.bits(slice(None), 0)[0])
    out = np.zeros(len(u))
    left = np.flatnonzero(u > start)
    p, total, k = start[left], start[left], 0
    while left.size:
        k += 1
        out[left] = k
        p = p * ratio(k, left)
        total = total + p
        more = (u[left] > total) & (p > 1e-20)  # what is left beyond isn't seen by any u
        left, p, total = left[more], p[more], total[more]
    return out


def _split_by_size(stream: Stream, large: np.ndarray, few: Callable, many: Callable, *operands: np.ndarray) -> Any:
    """Two methods, each for its elements; each element keeps its stream."""
    out = np.empty(len(large), np.int64)
    for chosen, law in ((np.flatnonzero(~large), few), (np.flatnonzero(large), many)):
        if chosen.size:
            part = Stream(stream.keys, stream.rows[chosen], stream.places[chosen])
            out[chosen] = law(part, *(o[chosen] for o in operands))
    return out


def _poisson(stream: Stream, mean: np.ndarray) -> np.ndarray:
    if not np.all((mean >= 0) & (mean <= 2.0**62)):
        raise ValueError(POISSON_BOUNDS)
    few = lambda stream, mean: _by_inversion(stream, np.exp(-mean), lambda k, left: mean[left] / k)
    return _split_by_size(stream, mean >= 10, few, _poisson_large, mean)


def _poisson_large(stream: Stream, mean: np.ndarray) -> np.ndarray:
    """Hörmann's PTRS (1993): a transformed uniform whose histogram is close to the law."""
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    log_p = lambda k, left: -_deviance(k, mean[left]) - _log_stirling(k)
    return _transformed_rejection(stream, a, b, mean + 0.43, 0.9277 - 3.6224 / (b - 2), inverse_alpha, log_p, np.inf)


def _binomial(stream: Stream, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    if not (np.all((n >= 0) & (n <= 2.0**53)) and np.all((p >= 0) & (p <= 1))):
        raise ValueError(BINOMIAL_BOUNDS)
    rare = np.minimum(p, 1 - p)
    counts = _split_by_size(stream, n * rare >= 10, _binomial_few, _binomial_large, n, rare)
    return np.where(p > 0.5, n.astype(np.int64) - counts, counts)


def _binomial_few(stream: Stream, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    odds = p / (1 - p)
    return _by_inversion(stream, np.exp(n * np.log1p(-p)), lambda k, left: (n[left] - k + 1) / k * odds[left])


def _binomial_large(stream: Stream, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Hörmann's BTRS (1993)."""
    deviation = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * deviation

    def log_p(k: np.ndarray, left: Any) -> np.ndarray:
        n_left, p_left = n[left], p[left]
        stirling = _log_stirling(n_left) - _log_stirling(k) - _log_stirling(n_left - k)
        return stirling - _deviance(k, n_left * p_left) - _deviance(n_left - k, n_left * (1 - p_left))

    mode = log_p(np.floor((n + 1) * p), slice(None))
    relative = lambda k, left: log_p(k, left) - mode[left]
    return _transformed_rejection(stream, a, b, n * p + 0.5, 0.92 - 4.2 / b, alpha, relative, n)


def _transformed_rejection(
    stream: Stream, a: Any, b: Any, center: Any, sure: Any, alpha: Any, log_p: Callable, most: Any
) -> np.ndarray:
    """Hörmann's "transformed rejection with squeeze": u -> (2a / (1/2 - |u|) + b) u + center, rounded down."""
    most = np.broadcast_to(most, center.shape)

    def propose(left: np.ndarray, attempt: int) -> tuple:
        first, second = stream.bits(left, attempt)
        tail, v = signed_tail(first), unit(second)
        s = np.abs(tail)
        u = np.sign(tail) * (0.5 - s)
        k = np.floor((2 * a[left] / s + b[left]) * u + center[left])
        inside = (k >= 0) & (k <= most[left])
        k = np.where(inside, k, 0.0)
        exact = np.log(v * alpha[left] / (a[left] / (s * s) + b[left])) <= log_p(k, left)
        return k, inside & (((s >= 0.07) & (v <= sure[left])) | exact)

    return _rejected_until_done(len(center), propose)


def _integers(stream: Stream, low: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Uniform integers from `low` to `last`, both included, as offsets from `low` (uint64)."""
    if np.any(low > last):
        where = int(np.argmax(low > last))
        raise ValueError(f"randint: the range from {low[where]} to {int(last[where]) + 1} is empty")
    count = last.astype(np.uint64) - low.astype(np.uint64) + np.uint64(1)  # 0 stands for 2**64
    divisor = np.maximum(count, np.uint64(1))
    excess = (np.uint64(0) - divisor) % divisor  # 2**64 modulo the count: so many values have to be rejected

    def propose(left: np.ndarray, attempt: int) -> tuple:
        x = stream.bits(left, attempt)[0]
        return np.where(count[left] == 0, x, x % divisor[left]), (count[left] == 0) | (x >= excess[left])

    return _rejected_until_done(len(low), propose, np.uint64) + low.astype(np.uint64)


LAWS: dict[str, Callable[..., Any]] = {
    "loggamma": _loggamma,
    "poisson": _poisson,
    "binomial": _binomial,
    "integers": _integers,
}


# The primitive -------------------------------------------------------------------------------------------------------


def _random_sample(key: Any, *operands: Any, law: str, shape: tuple, dtype: np.dtype) -> Any:
    key = np.asarray(key)
    rank, count = len(shape), math.prod(shape)
    lead = np.broadcast_shapes(key.shape[:-1], *(np.shape(o)[: np.ndim(o) - rank] for o in operands))
    keys = np.broadcast_to(key, (*lead, 2)).reshape(-1, 2)
    flat = [np.broadcast_to(o, (*lead, *shape)).ravel() for o in operands]
    out = np.empty(len(keys) * count, dtype)
    for start in range(0, out.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, out.size))
        rows, places = np.divmod(np.arange(part.start, part.stop, dtype=np.uint64), np.uint64(max(count, 1)))
        out[part] = LAWS[law](Stream(keys, rows, places), *(o[part] for o in flat)).astype(dtype)
    return out.reshape((*lead, *shape))[()]


def _sample_infer(key: ArrayType, *operands: ArrayType, law: str, shape: tuple, dtype: np.dtype) -> ArrayType:
    lead = broadcast_shapes(key.shape[:-1], *(o.shape[: o.ndim - len(shape)] for o in operands))
    return ArrayType((*lead, *shape), dtype)


def _sample_jvp(primals: tuple, tangents: tuple, law: str, shape: tuple, dtype: np.dtype) -> tuple[Any, Any]:
    out = random_sample(*primals, law=law, shape=shape, dtype=dtype)
    if law != "loggamma":
        return out, None
    return out, scale(tangents[1], gamma_slope(primals[1], out, da=0, dw=0), out)


def _sample_batch(size: int, args: tuple, batched: tuple, law: str, shape: tuple, dtype: np.dtype) -> Any:
    # The batch goes before the axes that keys and operands may have in front already.
    trailing = [1, *(len(shape),) * (len(args) - 1)]
    leads = [len(shape_of(a)) - t - b for a, t, b in zip(args, trailing, batched, strict=True)]
    moved = [
        reshape(a, shape=(size, *(1,) * (max(leads) - lead), *shape_of(a)[1:])) if b else a
        for a, b, lead in zip(args, batched, leads, strict=True)
    ]
    return random_sample(*moved, law=law, shape=shape, dtype=dtype)


def _sample_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    out = _sample_infer(*types, **params)
    if params["law"] != "loggamma" or not is_differentiable(out.dtype):
        return [None] * len(types)
    numbers = [np.broadcast_to(np.arange(t.size).reshape(t.shape), out.shape).ravel() for t in types[1:]]
    return [None, *((np.arange(out.size), n) for n in numbers)]


def _sample_lower(builder: Any, key: Any, *operands: Any, law: str, shape: tuple, dtype: np.dtype) -> Any:
    full = _sample_infer(key.type, *(o.type for o in operands), law=law, shape=shape, dtype=dtype).shape
    kind = np.dtype(np.float64) if law != "integers" else operands[0].dtype
    operands = tuple(builder.broadcast(builder.convert(o, kind), full) for o in operands)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    place = builder.index(full, (*(0,) * (len(full) - len(shape)), *strides))
    nodes = [*key_words(builder, key, full, len(shape)), place, *operands]
    natural = np.dtype(np.float64 if law == "loggamma" else np.int64)
    return builder.convert(builder.map(_law_code(law), nodes, natural), dtype)


@functools.cache
def _law_code(law: str) -> Callable:
    """The scalar code of a law at (key, key, place, *operands)."""
    natural = np.dtype(np.float64 if law == "loggamma" else np.int64)

    def emit(e: Any, *args: Any) -> Any:
        _require(e, law, *args[3:])
        return e.routine(f"random_{law}", (), natural, *args)

    return emit


def _require(e: Any, law: str, *operands: Any) -> None:
    """What a law wants of its operands."""
    between = lambda x, low, high: e.bit_and(
        e.compare("ge", x, e.constant(low, x)), e.compare("le", x, e.constant(high, x))
    )
    if law == "integers":
        e.require(e.compare("le", *operands), ValueError, "randint: a range is empty (minval must be below maxval)")
    elif law == "poisson":
        e.require(between(operands[0], 0.0, 2.0**62), ValueError, POISSON_BOUNDS)
    elif law == "binomial":
        n, p = operands
        e.require(e.bit_and(between(n, 0.0, 2.0**53), between(p, 0.0, 1.0)), ValueError, BINOMIAL_BOUNDS)


# One sample of a law for each element of `shape`. The operands have that shape, the key is (2,); each may have further
# axes in front, which broadcast: the same key gives the same random numbers along them.
random_sample: Primitive = Primitive(
    "random_sample",
    _random_sample,
    _sample_infer,
    jvp=_sample_jvp,
    batch=_sample_batch,
    pattern=_sample_pattern,
    lower=_sample_lower,
    raises=lambda types, params: params["law"] != "loggamma",  # parameters out of bounds
    cost=each(calls=1),
)


def sampled(key: Any, *operands: Any, law: str, shape: tuple[Any, ...], dtype: Any) -> Any:
    """`random_sample` of operands that broadcast to `shape`."""
    full = [o if shape_of(o) == shape else broadcast(o, shape=shape) for o in operands]
    return random_sample(key, *full, law=law, shape=shape, dtype=np.dtype(dtype))
