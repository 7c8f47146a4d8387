"""Rows of the op table: random bits, keys, samples by rejection and the derivative of gamma variables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import wonderland.random as random
from wonderland.ops.random import BOOST, DRAW, FOLD
from wonderland.testing.op_table import add
from wonderland.testing.samples import Operand, between, case

_key = Operand(lambda rng, shape: rng.integers(0, 2**32, shape), dtype=np.uint32, differentiable=False)
_numbers = Operand(lambda rng, shape: rng.integers(-(2**40), 2**40, shape), dtype=np.int64, differentiable=False)
_no_derivative = {"derivatives": "its result is not a floating-point number"}


def philox_block(counter: Any, key: Any) -> list[int]:
    """Philox4x32-10 as its paper has it, on Python's integers."""
    c, k = list(map(int, counter)), list(map(int, key))
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def slow_bits(key: Any, shape: tuple[Any, ...], width: int) -> Any:
    """The bits of `random_bits`, one element after the other."""
    count, size = int(np.prod(shape)), 1 if width <= 32 else 2
    words = [w for block in range(count) for w in philox_block((block, 0, 0, 0), key)]
    whole = [sum(words[size * i + j] << 32 * j for j in range(size)) >> (32 * size - width) for i in range(count)]
    return np.array(whole, np.uint32 if size == 1 else np.uint64).reshape(shape)[()]


def _slow_fold(key: Any, data: Any, purpose: int) -> Any:
    children = [philox_block((d % 2**32, d // 2**32 % 2**32, 0, purpose), key)[:2] for d in np.ravel(data).tolist()]
    return np.array(children, np.uint32).reshape(*np.shape(data), 2)


add(
    "random_bits", _key, reference=slow_bits, dtypes="f", excluded=_no_derivative,
    cases=[
        case((2,), shape=(), width=32), case((2,), shape=(7,), width=24), case((2,), shape=(2, 3), width=64),
        case((2,), shape=(3,), width=53), case((2,), shape=(0, 3), width=32),
    ],
)  # fmt: skip
add(
    "random_fold", _key, _numbers, reference=_slow_fold, dtypes="f", excluded=_no_derivative,
    cases=[case((2,), (), purpose=FOLD), case((2,), (3,), purpose=FOLD), case((2,), (0, 2), purpose=FOLD)],
)  # fmt: skip

_double = {"higher precision": "it is computed in double precision"}
_implicit = {
    "central differences": "the sample moves with its probability kept; with its random bits kept it may jump",
    **_double,
}


def _attempts(key: Any, place: int) -> Iterator[tuple[int, int]]:
    """The pairs of 64 random bits that an element of `random_sample` gets, attempt by attempt."""
    for attempt in range(1000):
        words = philox_block((place, 0, attempt, DRAW), key)
        yield words[0] | words[1] << 32, words[2] | words[3] << 32


def slow_loggamma(key: Any, a: Any, shape: tuple[Any, ...]) -> Any:
    """Marsaglia and Tsang's method, one element after the other."""
    from scipy.special import ndtri

    out = np.empty(shape)
    for place, index in enumerate(np.ndindex(shape)):
        alpha = float(np.broadcast_to(a, shape)[index])
        d = alpha + (alpha < 1) - 1 / 3
        for first, second in _attempts(key, place):
            tail = ((first + 2**63) % 2**64 - 2**63 + 0.5) / 2**64
            x = -ndtri(tail) if tail > 0 else ndtri(-tail)
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log((second + 0.5) / 2**64) < x * x / 2 + d - d * v + d * math.log(v):
                break
        out[index] = math.log(d * v)
        if alpha < 1:
            words = philox_block((place, 0, 0, BOOST), key)
            out[index] += math.log(((words[0] | words[1] << 32) + 0.5) / 2**64) / alpha
    return out[()]


def _slow_integers(key: Any, low: Any) -> Any:
    """Seven numbers from `low` on: the first attempt that isn't among the few that would be one too many."""
    out = np.empty(np.shape(low), np.int64)
    for place, index in enumerate(np.ndindex(out.shape)):
        bits = next(first for first, _ in _attempts(key, place) if first >= 2**64 % 7)
        out[index] = bits % 7 + np.asarray(low)[index]
    return out[()]


def slow_slope(a: Any, w: Any, da: int, dw: int) -> Any:
    """-F_a / F_w by adaptive quadrature of one integral, whichever side of the mode it is on."""
    from scipy.integrate import quad
    from scipy.special import digamma

    def one(a: float, w: float) -> float:
        z, offset = math.exp(w), w - digamma(a)
        integrand = lambda y: (y - offset) * math.exp(-a * y - z * math.expm1(-y))
        return quad(integrand, 0, math.inf, epsabs=1e-12, epsrel=1e-12, limit=200)[0]

    return np.vectorize(one, otypes=[float])(np.float64(a), np.float64(w))[()]


add(
    "random_sample", _key, between(0.3, 3.0), reference=slow_loggamma, dtypes="f", excluded=_implicit,
    function=lambda key, a, shape: random.loggamma(key, shape, a), label="random_sample (loggamma)",
    cases=[
        case((2,), (), shape=()), case((2,), (3, 2), shape=(3, 2)), case((2,), (2,), shape=(3, 2)),
        case((2,), (0,), shape=(0,)),
    ],
)  # fmt: skip
add(
    "random_sample", _key, between(0.3, 30.0), dtypes="f", excluded=_no_derivative,
    function=lambda key, lam: random.poisson(key, lam=lam), label="random_sample (poisson)",
    cases=[case((2,), ()), case((2,), (2, 3)), case((2,), (0,))],
)  # fmt: skip
add(
    "random_sample", _key, between(0.0, 60.0), between(0.0, 1.0), dtypes="f", excluded=_no_derivative,
    function=lambda key, n, p: random.binomial(key, n=np.floor(n), p=p), label="random_sample (binomial)",
    cases=[case((2,), (), ()), case((2,), (2, 1), (3,)), case((2,), (0,), ())],
)  # fmt: skip
add(
    "random_sample", _key, _numbers, dtypes="f", excluded=_no_derivative, label="random_sample (integers)",
    function=lambda key, low: random.randint(key, None, low, low + 7), reference=_slow_integers,
    cases=[case((2,), ()), case((2,), (2, 3)), case((2,), (0,))],
)  # fmt: skip
add(
    "gamma_slope", between(0.5, 3.0), between(-1.0, 1.5), reference=slow_slope, dtypes="f", excluded=_double,
    cases=[
        case((), (), da=0, dw=0), case((3,), (3,), da=0, dw=0), case((2, 1), (3,), da=0, dw=0),
        case((0,), (), da=0, dw=0),
    ],
)  # fmt: skip
add(
    "gamma_slope", between(0.5, 3.0), between(-1.0, 1.5), dtypes="f", excluded=_double,
    label="gamma_slope (derivatives)",
    cases=[case((3,), (3,), da=1, dw=1), case((), (), da=2, dw=0), case((3,), (3,), da=0, dw=2)],
)  # fmt: skip
