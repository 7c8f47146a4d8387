"""Primitives about whole numbers: rounding, division with remainder, the bits of integers, the parts of a float.

Integers are NumPy's: they wrap, and division by zero gives 0 and a warning. What is piecewise constant has a derivative
of zero, known to be zero: nothing flows back through `floor(x)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.ops import scalar_code as code
from wonderland.ops.elementwise import (
    div,
    elementwise,
    mul,
    neg,
    reads_first,
    reads_nothing,
    scale,
    sign,
    sub,
    unbroadcast,
)


def steps(name: str, evaluate: Callable, **rest: Any) -> Primitive:
    """An elementwise primitive whose derivative is zero wherever there is one."""
    jvp = lambda primals, tangents: (primitive(*primals), None)
    primitive = elementwise(name, evaluate, jvp=jvp, pattern=reads_nothing, **rest)
    return primitive


def _rounded(name: str) -> Callable:
    return lambda e, x: e.intrinsic(name, x) if x.dtype.kind in "fc" else x


floor: Primitive = steps("floor", np.floor, emit=_rounded("floor"), monotone=True, zero_preserving=True)
ceil: Primitive = steps("ceil", np.ceil, emit=_rounded("ceil"), monotone=True, zero_preserving=True)
trunc: Primitive = steps("trunc", np.trunc, emit=_rounded("trunc"), monotone=True, zero_preserving=True)
rint: Primitive = steps("rint", np.rint, emit=_rounded("rint"), monotone=True, zero_preserving=True)

# Division with remainder ---------------------------------------------------------------------------------------------


def _result_dtype(types: tuple, out: np.dtype) -> tuple:
    return (out,) * len(types)


floor_divide: Primitive = steps("floor_divide", np.floor_divide, emit=code.floor_divide, compute=_result_dtype)
# x - floor(x / y) y, with the sign of y (Python's %).
remainder: Primitive = elementwise(
    "remainder", np.remainder, (lambda out, x, y: 1.0, lambda out, x, y: neg(floor_divide(x, y))),
    emit=code.remainder, compute=_result_dtype, piecewise_linear=True,
)  # fmt: skip
# x - trunc(x / y) y, with the sign of x (C's %). The quotient is computed from the remainder: x / y may have been
# rounded up to the next whole number.
fmod: Primitive = elementwise(
    "fmod", np.fmod, (lambda out, x, y: 1.0, lambda out, x, y: neg(rint(div(sub(x, out), y)))),
    emit=code.fmod, compute=_result_dtype, piecewise_linear=True,
)  # fmt: skip

# The parts of a floating-point number --------------------------------------------------------------------------------


def _first_operand(primitive: Callable, derivative: Callable) -> Callable:
    """A jvp for functions that are piecewise constant in their second operand."""

    def jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        out = primitive()(*primals)
        return out, None if tangents[0] is None else scale(tangents[0], derivative(*primals), out)

    return jvp


def _emit_signbit(e: Any, x: Any) -> Any:
    if x.dtype.kind == "f":  # -0.0 isn't less than 0
        x = e.intrinsic("copysign", e.constant(1.0, x), x)
    return e.compare("lt", x, e.constant(0, x))


signbit: Primitive = steps("signbit", np.signbit, emit=_emit_signbit)
copysign: Primitive = elementwise(
    "copysign", np.copysign, emit=lambda e, x, y: e.intrinsic("copysign", x, y),
    jvp=_first_operand(lambda: copysign, lambda x, y: mul(sign(x), copysign(1.0, y))),
    zero_preserving=True, piecewise_linear=True, pattern=reads_first,
)  # fmt: skip
# The neighbour of x is x, up to rounding.
nextafter: Primitive = elementwise(
    "nextafter", np.nextafter, emit=code.nextafter, jvp=_first_operand(lambda: nextafter, lambda x, y: 1.0),
    piecewise_linear=True, pattern=reads_first,
)  # fmt: skip
spacing: Primitive = steps("spacing", np.spacing, emit=code.spacing)
exponent: Primitive = steps(
    "exponent", lambda x: np.frexp(x)[1], emit=code.exponent,
    compute=lambda types, out: (np.result_type(np.frexp(np.ones((), types[0].dtype))[0], np.float32),),
)  # fmt: skip


def _ldexp_transpose(ct: Any, x: Any, n: Any) -> tuple:
    return (unbroadcast(ldexp(ct, n), x) if isinstance(x, Linear) else None, None)


ldexp: Primitive = elementwise(
    "ldexp", np.ldexp, emit=code.ldexp, linear=(0,), transpose=_ldexp_transpose,
    compute=lambda types, out: (out, np.dtype(np.int64)),
)  # fmt: skip

# Bits ----------------------------------------------------------------------------------------------------------------


def _emit_shift(left: bool) -> Callable:
    """A shift as NumPy's: by as many bits as there are, or more, it leaves the sign; a negative one is a large one."""

    def emit(e: Any, x: Any, y: Any) -> Any:
        bits = 8 * x.dtype.itemsize
        arithmetic = not left and x.dtype.kind == "i"
        operation = "shl" if left else "ashr" if arithmetic else "lshr"
        inside = e.let(f"icmp ult {y.typed}, {bits}", np.dtype(bool))
        count = e.select(inside, y, e.constant(bits - 1, y))
        shifted = e.let(f"{operation} {x.typed}, {count.text}", x.dtype)
        return shifted if arithmetic else e.select(inside, shifted, e.constant(0, x))

    return emit


left_shift: Primitive = steps("left_shift", np.left_shift, emit=_emit_shift(True), compute=_result_dtype)
right_shift: Primitive = steps("right_shift", np.right_shift, emit=_emit_shift(False), compute=_result_dtype)
bitwise_count: Primitive = steps(
    "bitwise_count", np.bitwise_count, emit=code.bitwise_count,
    compute=lambda types, out: (np.dtype(np.uint8) if types[0].dtype.kind == "b" else types[0].dtype,),
)  # fmt: skip
gcd: Primitive = steps("gcd", np.gcd, emit=code.gcd, compute=_result_dtype)
lcm: Primitive = steps("lcm", np.lcm, emit=code.lcm, compute=_result_dtype)
