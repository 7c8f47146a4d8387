"""The laws of `random_sample` (ops/random_laws.py, with the references) as routines of compiled code.

A routine takes the two words of a key, the place of the element and the law's operands. Operands that a law refuses
(the run then raises) are replaced by ones that it takes: every loop ends.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from wonderland.compile.random_code import counter, pair, words
from wonderland.compile.routine import Routine, body_of, choose, function, repeat, written
from wonderland.compile.vecmath_emit import Value, fabs, sqrt, where
from wonderland.ops.random import BOOST, DRAW

LAW_COST = 1000  # a block, some logarithms, and then again
SMALL_COUNT = 16  # below, factorials come from a table


class Element:
    """The random numbers of one element."""

    key: tuple[Value, Value]
    place: Value

    def __init__(self, k0: Value, k1: Value, place: Value):
        self.key, self.place = (k0, k1), place

    def bits(self, attempt: Value | int, purpose: int = DRAW) -> tuple[Value, Value]:
        """Two numbers of 64 bits."""
        found = words(counter(self.place, attempt, purpose), self.key)
        return pair(found[0], found[1]), pair(found[2], found[3])


def number(bits: Value, signed: bool) -> Value:
    """An integer as a float."""
    return bits.block.emit("double", f"{'sitofp' if signed else 'uitofp'} i64 {bits.text} to double")


def integer(x: Value) -> Value:
    """A float that is an integer as one; NaN and what doesn't fit are some integer."""
    x.block.intrinsics.add("declare i64 @llvm.fptosi.sat.i64.f64(double)")
    return x.block.emit("i64", f"call i64 @llvm.fptosi.sat.i64.f64(double {x.text})")


def unsigned(x: Value, operation: str, y: Value) -> Value:
    """`urem`, or a comparison like `icmp uge`."""
    kind = "i1" if operation.startswith("icmp") else x.kind
    return x.block.emit(kind, f"{operation} {x.kind} {x.text}, {y.text}")


def signed_tail(bits: Value) -> Value:
    """Uniform in (-1/2, 1/2), fine around 0."""
    return (number(bits, True) + 0.5) * 2.0**-64


def unit(bits: Value) -> Value:
    """Uniform in (0, 1]."""
    return (number(bits, False) + 0.5) * 2.0**-64


def log(x: Value) -> Value:
    """The natural logarithm."""
    return function("log", x)


def log1p(x: Value) -> Value:
    """log(1 + x)."""
    return function("log1p", x)


def larger(x: Value, y: Value | float) -> Value:
    """The larger of two numbers."""
    return where(x > y, x, y)


# The laws ------------------------------------------------------------------------------------------------------------


def loggamma(element: Element, a: Value) -> Value:
    """Marsaglia and Tsang."""
    valid = (a > 0.0) & (a.like(math.inf) > a)
    small = valid & (a < 1.0)
    safe = where(valid, where(small, a + 1.0, a), 1.0)
    d = safe - 1 / 3
    c = 1.0 / sqrt(d * 9.0)

    def step(attempt: Value, _: Value) -> tuple:
        first, second = element.bits(attempt)
        tail, u = signed_tail(first), unit(second)
        size = function("normal_quantile", fabs(tail))
        x = where(tail > 0.0, size, -size)
        t = larger(c * x, -1.0)
        log_v = log1p(t) * 3.0
        square, side = x * x, t + 1.0

        def exactly() -> Value:
            bound = square * 0.5 + d * (1.0 - side * side * side + log_v)
            return log(u) < bound

        accepted = choose(u < 1.0 - square * square * 0.0331, lambda: t > -1.0, lambda: exactly() & (t > -1.0))
        return (attempt + 1, log_v), ~accepted

    log_v = repeat([Value(a.block, "i32", "0"), safe], step)[1]
    out = log(d) + log_v
    boosted = choose(small, lambda: out + log(unit(element.bits(0, BOOST)[0])) / a, lambda: out)
    return where(valid, boosted, log(where(a >= 0.0, a, math.nan)))


def log_stirling(k: Value) -> Value:
    """log k! - (k log k - k)."""

    def exact() -> Value:
        values = [math.lgamma(i + 1) - i * math.log(max(i, 1)) + i for i in range(SMALL_COUNT)]
        table = [struct.unpack("<q", struct.pack("<d", value))[0] for value in values]
        return integer(k).load("wl_log_stirling", table).as_float()

    def series() -> Value:
        square = 1.0 / (k * k)
        return log(k * (2 * math.pi)) * 0.5 + (1 / 12 - (1 / 360 - square * (1 / 1260)) * square) / k

    return choose(k < float(SMALL_COUNT), exact, series)


def deviance(k: Value, mean: Value) -> Value:
    """k log(k / mean) + mean - k."""
    x = (mean - k) / larger(k, 1.0)
    return where(k.equals(0.0), mean, k * (x - log1p(larger(x, -1 + 1e-16))))


def by_inversion(element: Element, start: Value, ratio: Callable) -> Value:
    """Counts by adding up probabilities from 0 on; `ratio(k)` is p(k) / p(k - 1)."""
    u = unit(element.bits(0)[0])

    def step(k: Value, p: Value, total: Value) -> tuple:
        k = k + 1.0
        p = p * ratio(k)
        total = total + p
        return (k, p, total), (u > total) & (p > 1e-20)

    zero = start.like(0.0)
    return choose(u > start, lambda: repeat([zero, start, start], step)[0], lambda: zero)


def transformed_rejection(
    element: Element, a: Value, b: Value, center: Value, sure: Value, alpha: Value, log_p: Callable, most: Value | float
) -> Value:
    """Hörmann's, of a count between 0 and `most`."""

    def step(attempt: Value, _: Value) -> tuple:
        first, second = element.bits(attempt)
        tail, v = signed_tail(first), unit(second)
        s = fabs(tail)
        u = where(tail > 0.0, 0.5 - s, s - 0.5)
        k = body_of(a).call("floor", (a * 2.0 / s + b) * u + center)
        inside = (k >= 0.0) & (k.like(most) >= k)
        squeezed = (s >= 0.07) & (sure >= v)

        def exactly() -> Value:
            exact = log_p(where(inside, k, 0.0)) >= log(v * alpha / (a / (s * s) + b))
            return exact & inside

        return (attempt + 1, k), ~choose(squeezed & inside, lambda: inside, exactly)

    return repeat([Value(a.block, "i32", "0"), a], step)[1]


def poisson(element: Element, mean: Value) -> Value:
    """By inversion, or by transformed rejection from a mean of 10 on."""
    mean = where((mean >= 0.0) & (mean.like(2.0**62) >= mean), mean, 0.0)

    def large() -> Value:
        b = sqrt(mean) * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        log_p = lambda k: -deviance(k, mean) - log_stirling(k)
        sure, alpha = 0.9277 - 3.6224 / (b - 2.0), 1.1239 + 1.1328 / (b - 3.4)
        return transformed_rejection(element, a, b, mean + 0.43, sure, alpha, log_p, math.inf)

    few = lambda: by_inversion(element, function("exp", -mean), lambda k: mean / k)
    return integer(choose(mean >= 10.0, large, few))


def binomial(element: Element, n: Value, p: Value) -> Value:
    """Like `poisson`; of a probability above 1/2 the failures."""
    n = where((n >= 0.0) & (n.like(2.0**53) >= n), n, 0.0)
    p = where((p >= 0.0) & (p.like(1.0) >= p), p, 0.0)
    mirrored = p > 0.5
    rare = where(mirrored, 1.0 - p, p)

    def large() -> Value:
        deviation = sqrt(n * rare * (1.0 - rare))
        b = deviation * 2.53 + 1.15
        a = b * 0.0248 - 0.0873 + rare * 0.01

        def log_p(k: Value) -> Value:
            stirling = log_stirling(n) - log_stirling(k) - log_stirling(n - k)
            return stirling - deviance(k, n * rare) - deviance(n - k, n * (1.0 - rare))

        mode = log_p(body_of(n).call("floor", (n + 1.0) * rare))
        relative = lambda k: log_p(k) - mode
        alpha = (5.1 / b + 2.83) * deviation
        return transformed_rejection(element, a, b, n * rare + 0.5, 0.92 - 4.2 / b, alpha, relative, n)

    def few() -> Value:
        odds = rare / (1.0 - rare)
        start = function("exp", n * log1p(-rare))
        return by_inversion(element, start, lambda k: (n - k + 1.0) / k * odds)

    counts = choose(n * rare >= 10.0, large, few)
    return integer(where(mirrored, body_of(n).call("floor", n) - counts, counts))


def integers(element: Element, low: Value, last: Value) -> Value:
    """Uniform from `low` to `last`: what is beyond the last whole multiple of the count is rejected."""
    count = last - low + 1  # 0 stands for 2**64
    every = count.equals(0)
    divisor = where(every, 1, count)
    excess = unsigned(-divisor, "urem", divisor)

    def step(attempt: Value, _: Value) -> tuple:
        x = element.bits(attempt)[0]
        rejected = unsigned(x, "icmp ult", excess)
        return (attempt + 1, where(every, x, unsigned(x, "urem", divisor))), rejected & ~every

    return repeat([Value(low.block, "i32", "0"), low], step)[1] + low


LAWS: dict[str, tuple[Callable[..., Any], str, int, str]] = {
    "loggamma": (loggamma, "double", 1, "double"),
    "poisson": (poisson, "double", 1, "i64"),
    "binomial": (binomial, "double", 2, "i64"),
    "integers": (integers, "i64", 2, "i64"),
}


@cache
def random_law(law: str) -> Routine:
    """`(key, key, place, *operands)`."""
    write, kind, count, result = LAWS[law]
    kinds = ("i32", "i32", "i64", *(kind,) * count)
    body = lambda k0, k1, place, *operands: write(Element(k0, k1, place), *operands)
    return written(f"wl_random_{law}", kinds, result, body, LAW_COST)
