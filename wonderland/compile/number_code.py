"""Routines about numbers: greatest common divisors, and the zeta function."""

from __future__ import annotations

import math
import struct
from functools import cache

from wonderland.compile.routine import Routine

_BERNOULLI = ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798),
              (-174611, 330), (854513, 138), (-236364091, 2730))  # fmt: skip


def number(value: float) -> str:
    """A double as LLVM spells it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@cache
def zeta() -> Routine:
    """The sum of (q + k)^-s over k >= 0 by Euler and Maclaurin, until a term no longer counts.

    The first ones are added up to a = q + k > 9 (nine of them at least); the rest is a^-s times a / (s - 1) + 1/2 and
    the sum over j of B_2j / (2j)! s (s + 1) ... (s + 2j - 2) / a^(2j - 1).
    """
    lines = f"""\
define internal double @wl_zeta(double %s, double %q) nounwind {{
entry:
  %power = fneg double %s
  %first = call double @wl_pow_f64(double %q, double %power)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %step ]
  %a = phi double [ %q, %entry ], [ %a.next, %step ]
  %b = phi double [ %first, %entry ], [ %b.next, %step ]
  %total = phi double [ %first, %entry ], [ %total.next, %step ]
  %few = icmp ult i64 %i, 9
  %low = fcmp ole double %a, {number(9.0)}
  %more = or i1 %few, %low
  br i1 %more, label %step, label %rest
step:
  %i.next = add i64 %i, 1
  %a.next = fadd double %a, {number(1.0)}
  %b.next = call double @wl_pow_f64(double %a.next, double %power)
  %total.next = fadd double %total, %b.next
  %ratio = fdiv double %b.next, %total.next
  %share = call double @llvm.fabs.f64(double %ratio)
  %tiny = fcmp olt double %share, {number(2.0**-53)}
  br i1 %tiny, label %early, label %loop
early:
  ret double %total.next
rest:
  %s1 = fsub double %s, {number(1.0)}
  %ab = fmul double %a, %b
  %integral = fdiv double %ab, %s1
  %half = fmul double %b, {number(0.5)}
  %with = fadd double %total, %integral
  %t0 = fsub double %with, %half
  br label %n0
""".splitlines()
    factor, power, total = number(1.0), "%b", "%t0"
    for j, (above, below) in enumerate(_BERNOULLI):
        scale = math.factorial(2 * j + 2) * below / above
        lines += [
            f"n{j}:",
            f"  %u{j} = fadd double %s, {number(2.0 * j)}",
            f"  %f{j} = fmul double {factor}, %u{j}",
            f"  %p{j} = fdiv double {power}, %a",
            f"  %product{j} = fmul double %f{j}, %p{j}",
            f"  %term{j} = fdiv double %product{j}, {number(scale)}",
            f"  %t{j + 1} = fadd double {total}, %term{j}",
            f"  %ratio{j} = fdiv double %term{j}, %t{j + 1}",
            f"  %share{j} = call double @llvm.fabs.f64(double %ratio{j})",
            f"  %tiny{j} = fcmp olt double %share{j}, {number(2.0**-53)}",
            f"  br i1 %tiny{j}, label %end{j}, label %more{j}",
            f"end{j}:",
            f"  ret double %t{j + 1}",
            f"more{j}:",
            f"  %v{j} = fadd double %s, {number(2.0 * j + 1.0)}",
            f"  %g{j} = fmul double %f{j}, %v{j}",
            f"  %d{j} = fdiv double %p{j}, %a",
            f"  br label %n{j + 1}",
        ]
        factor, power, total = f"%g{j}", f"%d{j}", f"%t{j + 1}"
    text = "\n".join([*lines, f"n{len(_BERNOULLI)}:", f"  ret double {total}", "}"])
    return Routine("wl_zeta", text, 3000, ["declare double @llvm.fabs.f64(double)"], [("pow", "f64")])


@cache
def gcd(kind: str) -> Routine:
    """Euclid's algorithm on unsigned numbers."""
    text = f"""\
define internal {kind} @wl_gcd_{kind}({kind} %a, {kind} %b) nounwind memory(none) {{
  br label %loop
loop:
  %x = phi {kind} [ %a, %0 ], [ %y, %step ]
  %y = phi {kind} [ %b, %0 ], [ %rest, %step ]
  %end = icmp eq {kind} %y, 0
  br i1 %end, label %done, label %step
step:
  %rest = urem {kind} %x, %y
  br label %loop
done:
  ret {kind} %x
}}"""
    return Routine(f"wl_gcd_{kind}", text, 1000)
