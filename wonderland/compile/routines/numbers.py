"""Routines about numbers: greatest common divisors, and the zeta function."""

from __future__ import annotations

import math

from wonderland.compile.ir import DOUBLE, Value, table
from wonderland.compile.vecmath.formula import fabs
from wonderland.compile.vecmath.functions import call, routine

_BERNOULLI = ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798),
              (-174611, 330), (854513, 138), (-236364091, 2730))  # fmt: skip
_SCALES = [math.factorial(2 * j) * below / above for j, (above, below) in enumerate(_BERNOULLI, 1)]


@routine(cost=3000)
def zeta(s: Value, q: Value) -> Value:
    """The sum of (q + k)^-s over k >= 0 by Euler and Maclaurin, until a term no longer counts.

    The first ones are added up to a = q + k > 9 (nine of them at least); the rest is a^-s times a / (s - 1) + 1/2 and
    the sum over j of B_2j / (2j)! s (s + 1) ... (s + 2j - 2) / a^(2j - 1).
    """
    f = s.code
    counts = lambda term, total: ~(fabs(term / total) < 2.0**-53)

    def add_power(k: Value, a: Value, power: Value, total: Value) -> tuple:
        k, a = k + 1, a + 1.0
        power = call("pow", a, -s)
        total = total + power
        return (k, a, power, total), counts(power, total) & (k.below(9) | (a <= 9.0))

    first = call("pow", q, -s)
    _, a, power, total = f.repeat([f.constant(0), q, first, first], add_power)

    def add_term(j: Value, factor: Value, power: Value, total: Value) -> tuple:
        even = (j * 2).convert(DOUBLE)
        factor, power = factor * (s + even), power / a
        term = factor * power / f.load(DOUBLE, f.element(DOUBLE, scales, j))
        total, j = total + term, j + 1
        return (j, factor * (s + (even + 1.0)), power / a, total), counts(term, total) & j.below(len(_SCALES))

    def rest() -> Value:
        start = total + a * power / (s - 1.0) - power * 0.5
        return f.repeat([f.constant(0), s.like(1.0), power, start], add_term)[-1]

    scales = f.at(table("wl_zeta_scales", _SCALES, DOUBLE))
    return f.choose(counts(power, total), rest, lambda: total)


@routine(cost=1000)
def gcd(a: Value, b: Value) -> Value:
    """Euclid's algorithm on unsigned numbers."""

    def step(x: Value, y: Value) -> tuple:
        rest = x % y
        return (y, rest), rest.differs(0)

    return a.code.choose(b.equals(0), lambda: a, lambda: a.code.repeat([a, b], step)[0])
