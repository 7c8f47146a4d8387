"""The laws of `random_sample` (ops/random_laws.py, with the references) as routines of compiled code.

A routine takes the two words of a key, the place of the element and the law's operands. Operands that a law refuses
(the run then raises) are replaced by ones that it takes: every loop ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from wonderland.compile.ir import DOUBLE, INT, LONG, Value, table
from wonderland.compile.routines.philox import counter, pairs, words
from wonderland.compile.vecmath.formula import fabs, floor, sqrt, where
from wonderland.compile.vecmath.functions import call, routine
from wonderland.ops.random import BOOST, DRAW

LAW_COST = 1000  # a block, some logarithms, and then again
SMALL_COUNT = 16  # below, factorials come from a table


Draw = Callable[..., list[Value]]  # of an attempt (and a purpose): two numbers of 64 bits


def law(sample: Callable[..., Value]) -> Callable[..., Value]:
    """Register the routine of a law: a function that draws the random numbers of one element, and takes operands."""

    def write(k0: Value, k1: Value, place: Value, *operands: Value) -> Value:
        draw = lambda attempt, purpose=DRAW: pairs(words(counter(place, attempt, purpose), (k0, k1)))
        return sample(draw, *operands)

    routine(LAW_COST, f"random_{sample.__name__}")(write)
    return sample


def integer(x: Value) -> Value:
    """A float that is an integer as one; NaN and what doesn't fit are some integer."""
    return x.code.intrinsic("fptosi.sat", x, returns=LONG, over=(LONG, DOUBLE))


def signed_tail(bits: Value) -> Value:
    """Uniform in (-1/2, 1/2), fine around 0."""
    return (bits.convert(DOUBLE) + 0.5) * 2.0**-64


def unit(bits: Value) -> Value:
    """Uniform in (0, 1]."""
    return (bits.convert(DOUBLE, signed=False) + 0.5) * 2.0**-64


exp, log = partial(call, "exp"), partial(call, "log")


def larger(x: Value, y: Value | float) -> Value:
    """The larger of two numbers."""
    return where(x > y, x, y)


# The laws ------------------------------------------------------------------------------------------------------------


@law
def loggamma(draw: Draw, a: Value) -> Value:
    """Marsaglia and Tsang."""
    f = a.code
    valid = (a > 0.0) & (a.like(math.inf) > a)
    small = valid & (a < 1.0)
    safe = where(valid, where(small, a + 1.0, a), 1.0)
    d = safe - 1 / 3
    c = 1.0 / sqrt(d * 9.0)

    def step(attempt: Value, _: Value) -> tuple:
        first, second = draw(attempt)
        tail, u = signed_tail(first), unit(second)
        size = call("normal_quantile", fabs(tail))
        x = where(tail > 0.0, size, -size)
        t = larger(c * x, -1.0)
        log_v = call("log1p", t) * 3.0
        square, side = x * x, t + 1.0

        def exactly() -> Value:
            bound = square * 0.5 + d * (1.0 - side * side * side + log_v)
            return (log(u) < bound) & (t > -1.0)

        accepted = f.choose(u < 1.0 - square * square * 0.0331, lambda: t > -1.0, exactly)
        return (attempt + 1, log_v), ~accepted

    log_v = f.repeat([f.constant(0, INT), safe], step)[1]
    out = log(d) + log_v
    boosted = f.choose(small, lambda: out + log(unit(draw(0, BOOST)[0])) / a, lambda: out)
    return where(valid, boosted, log(where(a >= 0.0, a, math.nan)))


def log_stirling(k: Value) -> Value:
    """log k! - (k log k - k)."""
    f = k.code

    def exact() -> Value:
        values = [math.lgamma(i + 1) - i * math.log(max(i, 1)) + i for i in range(SMALL_COUNT)]
        return f.load(DOUBLE, f.element(DOUBLE, f.at(table("wl_log_stirling", values, DOUBLE)), integer(k)))

    def series() -> Value:
        square = 1.0 / (k * k)
        return log(k * (2 * math.pi)) * 0.5 + (1 / 12 - (1 / 360 - square * (1 / 1260)) * square) / k

    return f.choose(k < float(SMALL_COUNT), exact, series)


def deviance(k: Value, mean: Value) -> Value:
    """k log(k / mean) + mean - k."""
    x = (mean - k) / larger(k, 1.0)
    return where(k.equals(0.0), mean, k * (x - call("log1p", larger(x, -1 + 1e-16))))


def by_inversion(draw: Draw, start: Value, ratio: Callable) -> Value:
    """Counts by adding up probabilities from 0 on; `ratio(k)` is p(k) / p(k - 1)."""
    f, u = start.code, unit(draw(0)[0])

    def step(k: Value, p: Value, total: Value) -> tuple:
        k = k + 1.0
        p = p * ratio(k)
        total = total + p
        return (k, p, total), (u > total) & (p > 1e-20)

    zero = start.like(0.0)
    return f.choose(u > start, lambda: f.repeat([zero, start, start], step)[0], lambda: zero)


def transformed_rejection(
    draw: Draw, a: Value, b: Value, center: Value, sure: Value, alpha: Value, log_p: Callable, most: Value | float
) -> Value:
    """Hörmann's, of a count between 0 and `most`."""
    f = a.code

    def step(attempt: Value, _: Value) -> tuple:
        first, second = draw(attempt)
        tail, v = signed_tail(first), unit(second)
        s = fabs(tail)
        u = where(tail > 0.0, 0.5 - s, s - 0.5)
        k = floor((a * 2.0 / s + b) * u + center)
        inside = (k >= 0.0) & (k.like(most) >= k)
        squeezed = (s >= 0.07) & (sure >= v)

        exactly = lambda: (log_p(where(inside, k, 0.0)) >= log(v * alpha / (a / (s * s) + b))) & inside
        return (attempt + 1, k), ~f.choose(squeezed & inside, lambda: inside, exactly)

    return f.repeat([f.constant(0, INT), a], step)[1]


@law
def poisson(draw: Draw, mean: Value) -> Value:
    """By inversion, or by transformed rejection from a mean of 10 on."""
    mean = where((mean >= 0.0) & (mean.like(2.0**62) >= mean), mean, 0.0)

    def large() -> Value:
        b = sqrt(mean) * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        log_p = lambda k: -deviance(k, mean) - log_stirling(k)
        sure, alpha = 0.9277 - 3.6224 / (b - 2.0), 1.1239 + 1.1328 / (b - 3.4)
        return transformed_rejection(draw, a, b, mean + 0.43, sure, alpha, log_p, math.inf)

    few = lambda: by_inversion(draw, exp(-mean), lambda k: mean / k)
    return integer(mean.code.choose(mean >= 10.0, large, few))


@law
def binomial(draw: Draw, n: Value, p: Value) -> Value:
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

        mode = log_p(floor((n + 1.0) * rare))
        relative = lambda k: log_p(k) - mode
        alpha = (5.1 / b + 2.83) * deviation
        return transformed_rejection(draw, a, b, n * rare + 0.5, 0.92 - 4.2 / b, alpha, relative, n)

    def few() -> Value:
        odds = rare / (1.0 - rare)
        return by_inversion(draw, exp(n * call("log1p", -rare)), lambda k: (n - k + 1.0) / k * odds)

    counts = n.code.choose(n * rare >= 10.0, large, few)
    return integer(where(mirrored, floor(n) - counts, counts))


@law
def integers(draw: Draw, low: Value, last: Value) -> Value:
    """Uniform from `low` to `last`: what is beyond the last whole multiple of the count is rejected."""
    count = last - low + 1  # 0 stands for 2**64
    every = count.equals(0)
    divisor = where(every, 1, count)
    excess = -divisor % divisor

    def step(attempt: Value, _: Value) -> tuple:
        x = draw(attempt)[0]
        return (attempt + 1, where(every, x, x % divisor)), x.below(excess) & ~every

    f = low.code
    return f.repeat([f.constant(0, INT), low], step)[1] + low
