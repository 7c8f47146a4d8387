"""Floats, or vectors of them, as their bits: what formulas do with exponents and mantissas."""

from __future__ import annotations

from wonderland.compile.ir import DOUBLE, FLOAT, INT, LONG, Value
from wonderland.compile.ir.values import alike

# For each float type: the integer type of its bits, mantissa bits, exponent bias.
INTEGER = {FLOAT: INT, DOUBLE: LONG}
FLOAT_OF = {INT: FLOAT, LONG: DOUBLE}  # the other way
MANTISSA = {FLOAT: 23, DOUBLE: 52}
BIAS = {FLOAT: 127, DOUBLE: 1023}


def bits_of(x: Value) -> Value:
    """The bits of a float as an integer of the same width."""
    return x.bitcast(alike(x.type, INTEGER[x.element]))


def float_of(bits: Value) -> Value:
    """These bits as a float of the same width."""
    return bits.bitcast(alike(bits.type, FLOAT_OF[bits.element]))


def power_of_two(n: Value) -> Value:
    """2**n, a float of the integer's width, for n within the normal exponents."""
    type = FLOAT_OF[n.type]
    return float_of((n + BIAS[type]) << MANTISSA[type])


def round_to_integer(x: Value) -> tuple[Value, Value]:
    """The nearest integer as a float and as an integer, for |x| < 2**22 (float) or 2**51 (double).

    Adding 1.5 * 2**mantissa leaves the integer in the low bits: no conversion instruction, and no undefined
    result for NaN (whose integer is some number, its float NaN).
    """
    shifter = x.like(1.5 * 2.0 ** MANTISSA[x.type])
    shifted = x + shifter
    return shifted - shifter, bits_of(shifted) - bits_of(shifter)
