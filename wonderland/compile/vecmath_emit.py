"""Python arithmetic comes in, textual LLVM IR of branch-free scalar code goes out.

A `Value` is one SSA value. Its operators append instructions to its `Block`, so that a function of `vecmath`
reads like the formula it computes. Python numbers become constants of the other operand's type. Nothing here
has fast-math flags: every operation rounds once, as written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

FLOATS = {"f32": "float", "f64": "double"}
# For each float type: the integer type of its bits, mantissa bits, exponent bias.
INTEGER = {"float": "i32", "double": "i64"}
MANTISSA = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}


def float_constant(value: float, kind: str) -> str:
    """LLVM's spelling: the bits of a double, also for float (then exactly representable in float)."""
    if kind == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Block:
    """The body of one function: numbered instructions and the intrinsics that they call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.intrinsics: set[str] = set()
        self.globals: dict[str, str] = {}  # tables and functions that it uses, by name

    def emit(self, kind: str, instruction: str) -> Value:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return Value(self, kind, name)

    def call(self, name: str, *arguments: Value) -> Value:
        """An LLVM intrinsic that returns the type of its first argument."""
        kind = arguments[0].kind
        function = f"@llvm.{name}.{ {'float': 'f32', 'double': 'f64'}.get(kind, kind) }"
        self.intrinsics.add(f"declare {kind} {function}({', '.join(a.kind for a in arguments)})")
        return self.emit(kind, f"call {kind} {function}({', '.join(f'{a.kind} {a.text}' for a in arguments)})")


class Value:
    """One SSA value of type `float`, `double`, `i32`, `i64` or `i1`."""

    def __init__(self, block: Block, kind: str, text: str) -> None:
        self.block = block
        self.kind = kind
        self.text = text

    def like(self, other: Value | float) -> Value:
        """`other` as a value of this type."""
        if isinstance(other, Value):
            if other.kind != self.kind:
                raise TypeError(f"vecmath: {self.kind} meets {other.kind}")
            return other
        text = float_constant(other, self.kind) if self.kind in INTEGER else str(int(other))
        return Value(self.block, self.kind, text)

    def _binary(self, other: Value | float, of_floats: str, of_integers: str) -> Value:
        operation = of_floats if self.kind in INTEGER else of_integers
        if not operation:
            raise TypeError(f"vecmath: no such operation on {self.kind}")
        return self.block.emit(self.kind, f"{operation} {self.kind} {self.text}, {self.like(other).text}")

    def __add__(self, other: Value | float) -> Value:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Value | float) -> Value:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Value | float) -> Value:
        return self._binary(other, "fmul", "mul")

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary(other, "fdiv", "")

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    def __rtruediv__(self, other: float) -> Value:
        return self.like(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __and__(self, other: Value | int) -> Value:
        return self._binary(other, "", "and")

    def __or__(self, other: Value | int) -> Value:
        return self._binary(other, "", "or")

    def __xor__(self, other: Value | int) -> Value:
        return self._binary(other, "", "xor")

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary(other, "", "shl")

    def __rshift__(self, other: Value | int) -> Value:
        """Logical: zeros come in (AVX2 has no arithmetic shift of 64-bit integers)."""
        return self._binary(other, "", "lshr")

    def __neg__(self) -> Value:
        if self.kind in INTEGER:
            return self.block.emit(self.kind, f"fneg {self.kind} {self.text}")
        return self.like(0) - self

    def __invert__(self) -> Value:
        return self.block.emit("i1", f"xor i1 {self.text}, true")

    def _compare(self, other: Value | float, predicate: str, signed: str) -> Value:
        operation = f"fcmp o{predicate}" if self.kind in INTEGER else f"icmp {signed}"
        return self.block.emit("i1", f"{operation} {self.kind} {self.text}, {self.like(other).text}")

    def __lt__(self, other: Value | float) -> Value:
        return self._compare(other, "lt", "slt")

    def __gt__(self, other: Value | float) -> Value:
        return self._compare(other, "gt", "sgt")

    def __ge__(self, other: Value | float) -> Value:
        return self._compare(other, "ge", "sge")

    def equals(self, other: Value | float) -> Value:
        return self._compare(other, "eq", "eq")

    def is_nan(self) -> Value:
        return self.block.emit("i1", f"fcmp uno {self.kind} {self.text}, {self.text}")

    def bits(self) -> Value:
        kind = INTEGER[self.kind]
        return self.block.emit(kind, f"bitcast {self.kind} {self.text} to {kind}")

    def as_float(self) -> Value:
        """These bits as a float of the same width."""
        kind = {"i32": "float", "i64": "double"}[self.kind]
        return self.block.emit(kind, f"bitcast {self.kind} {self.text} to {kind}")

    def convert(self, kind: str) -> Value:
        """Between float and double, between integers (unsigned), or from a signed integer to a float type."""
        if kind == self.kind:
            return self
        operation = {
            ("float", "double"): "fpext",
            ("double", "float"): "fptrunc",
            ("i64", "i32"): "trunc",
            ("i64", "i128"): "zext",
            ("i128", "i64"): "trunc",
        }.get((self.kind, kind), "sitofp")
        return self.block.emit(kind, f"{operation} {self.kind} {self.text} to {kind}")

    def load(self, table: str, values: Sequence[int]) -> Value:
        """Element `self` of a constant table of 64-bit integers."""
        items = ", ".join(f"i64 {value}" for value in values)
        self.block.globals[table] = f"@{table} = private unnamed_addr constant [{len(values)} x i64] [{items}]"
        place = self.block.emit("ptr", f"getelementptr inbounds i64, ptr @{table}, i64 {self.text}")
        return self.block.emit("i64", f"load i64, ptr {place.text}, align 8")


def fma(x: Value, y: Value | float, z: Value | float) -> Value:
    """x * y + z, rounded once."""
    return x.block.call("fma", x, x.like(y), x.like(z))


def funnel_shift(high: Value, low: Value, amount: Value) -> Value:
    """The upper half of (high, low) << (amount mod width)."""
    return high.block.call("fshl", high, low, amount)


def leading_zeros(x: Value) -> Value:
    """Zero bits above the highest one."""
    return x.block.call("ctlz", x, Value(x.block, "i1", "false"))


def fabs(x: Value) -> Value:
    """x without its sign bit."""
    return x.block.call("fabs", x)


def sqrt(x: Value) -> Value:
    """The square root, correctly rounded."""
    return x.block.call("sqrt", x)


def floor(x: Value) -> Value:
    """The largest integer that isn't above x."""
    return x.block.call("floor", x)


def copysign(magnitude: Value, sign: Value) -> Value:
    """`magnitude` with the sign bit of `sign`."""
    return magnitude.block.call("copysign", magnitude, sign)


def where(condition: Value, yes: Value | float, no: Value | float) -> Value:
    """A select: both sides are computed."""
    if isinstance(yes, Value):
        no = yes.like(no)
    elif isinstance(no, Value):
        yes = no.like(yes)
    else:
        raise TypeError("vecmath: where needs a Value")
    return condition.block.emit(yes.kind, f"select i1 {condition.text}, {yes.kind} {yes.text}, {no.kind} {no.text}")


def clamp(x: Value, low: float, high: float) -> Value:
    """NaN stays NaN: its comparisons are false."""
    x = where(x > high, high, x)
    return where(x < low, low, x)


def polynomial(x: Value, coefficients: Sequence[Value | float]) -> Value:
    """Horner's rule, constant first; long ones as even(x^2) + x odd(x^2), which halves the latency."""
    if len(coefficients) > 5:
        square = x * x
        return fma(polynomial(square, coefficients[1::2]), x, polynomial(square, coefficients[0::2]))
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def power_of_two(n: Value, kind: str) -> Value:
    """2**n for an integer within the normal exponents."""
    return ((n + BIAS[kind]) << MANTISSA[kind]).as_float()


def round_to_integer(x: Value) -> tuple[Value, Value]:
    """The nearest integer as a float and as an integer, for |x| < 2**22 (float) or 2**51 (double).

    Adding 1.5 * 2**mantissa leaves the integer in the low bits: no conversion instruction, and no undefined
    result for NaN (whose integer is some number, its float NaN).
    """
    shifter = x.like(1.5 * 2.0 ** MANTISSA[x.kind])
    shifted = x + shifter
    return shifted - shifter, shifted.bits() - shifter.bits()


def fast_two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """x + y as a rounded sum and its exact error, for |x| >= |y|."""
    total = x + y
    return total, y - (total - x)


def two_product(x: Value, y: Value | float) -> tuple[Value, Value]:
    """x * y as a rounded product and its exact error."""
    product = x * y
    return product, fma(x, y, -product)
