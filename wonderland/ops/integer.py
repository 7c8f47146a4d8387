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
    scale,
    sign,
    steps,
    sub,
    ufunc,
    unbroadcast,
)
from wonderland.ops.reading import reads_first, reads_nothing


def _rounded(name: str) -> Callable:
    return lambda e, x: e.intrinsic(name, x) if x.dtype.kind in "fc" else x


floor: Primitive = steps(np.floor, emit=_rounded("floor"))
ceil: Primitive = steps(np.ceil, emit=_rounded("ceil"))
trunc: Primitive = steps(np.trunc, emit=_rounded("trunc"))
rint: Primitive = steps(np.rint, also="scipy.special.round", emit=_rounded("rint"))

# Division with remainder ---------------------------------------------------------------------------------------------


def _result_dtype(types: tuple, out: np.dtype) -> tuple:
    return (out,) * len(types)


floor_divide: Primitive = steps(np.floor_divide, emit=code.floor_divide, compute=_result_dtype)
# x - floor(x / y) y, with the sign of y (Python's %).
remainder: Primitive = ufunc(
    np.remainder, (lambda out, x, y: 1.0, lambda out, x, y: neg(floor_divide(x, y))),
    emit=code.remainder, compute=_result_dtype, piecewise_linear=True,
)  # fmt: skip
# x - trunc(x / y) y, with the sign of x (C's %). The quotient is computed from the remainder: x / y may have been
# rounded up to the next whole number.
fmod: Primitive = ufunc(
    np.fmod, (lambda out, x, y: 1.0, lambda out, x, y: neg(rint(div(sub(x, out), y)))),
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


signbit: Primitive = steps(np.signbit, emit=_emit_signbit)
copysign: Primitive = ufunc(
    np.copysign, emit=lambda e, x, y: e.intrinsic("copysign", x, y),
    jvp=_first_operand(lambda: copysign, lambda x, y: mul(sign(x), copysign(1.0, y))),
    piecewise_linear=True, pattern=reads_first,
)  # fmt: skip
# The neighbour of x is x, up to rounding.
nextafter: Primitive = ufunc(
    np.nextafter, emit=code.nextafter, jvp=_first_operand(lambda: nextafter, lambda x, y: 1.0),
    piecewise_linear=True, pattern=reads_first,
)  # fmt: skip
spacing: Primitive = steps(np.spacing, emit=code.spacing)
exponent: Primitive = elementwise(
    "exponent", lambda x: np.frexp(x)[1], emit=code.exponent, pattern=reads_nothing,
    jvp=lambda primals, tangents: (exponent(*primals), None),
    compute=lambda types, out: (np.result_type(np.frexp(np.ones((), types[0].dtype))[0], np.float32),),
)  # fmt: skip


def _ldexp_transpose(ct: Any, x: Any, n: Any) -> tuple:
    return (unbroadcast(ldexp(ct, n), x) if isinstance(x, Linear) else None, None)


ldexp: Primitive = ufunc(
    np.ldexp, emit=code.ldexp, linear=(0,), transpose=_ldexp_transpose,
    compute=lambda types, out: (out, np.dtype(np.int64)),
)  # fmt: skip

# Bits ----------------------------------------------------------------------------------------------------------------


def _emit_shift(left: bool) -> Callable:
    """A shift as NumPy's: by as many bits as there are, or more, it leaves the sign; a negative one is a large one."""

    def emit(e: Any, x: Any, y: Any) -> Any:
        bits = 8 * x.dtype.itemsize
        inside = e.below(y, e.constant(bits, y))
        count = e.select(inside, y, e.constant(bits - 1, y))
        shifted = (e.shift_left if left else e.shift_right)(x, count)
        return shifted if not left and x.dtype.kind == "i" else e.select(inside, shifted, e.constant(0, x))

    return emit


left_shift: Primitive = steps(np.left_shift, emit=_emit_shift(True), compute=_result_dtype)
right_shift: Primitive = steps(np.right_shift, emit=_emit_shift(False), compute=_result_dtype)
bitwise_count: Primitive = steps(
    np.bitwise_count, emit=code.bitwise_count,
    compute=lambda types, out: (np.dtype(np.uint8) if types[0].dtype.kind == "b" else types[0].dtype,),
)  # fmt: skip
gcd: Primitive = steps(np.gcd, emit=code.gcd, compute=_result_dtype)
lcm: Primitive = steps(np.lcm, emit=code.lcm, compute=_result_dtype)
