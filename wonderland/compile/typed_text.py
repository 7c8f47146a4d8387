"""The text of one LLVM function, as it grows: numbers, arithmetic, slots, labels. It knows nothing of Python's syntax.

Three kinds of numbers: bools, ints of 64 bits, floats of 64 bits. Locals live in slots of the stack, which LLVM turns
into registers; so no phi is written here.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

BOOL, INT, FLOAT = KINDS = ("i1", "i64", "double")  # the later hold the earlier
NAMES = {BOOL: "a bool", INT: "an int", FLOAT: "a float"}
WIDENINGS = {(BOOL, INT): "zext", (BOOL, FLOAT): "uitofp", (INT, FLOAT): "sitofp"}
ARITHMETIC = {"+": ("add", "fadd"), "-": ("sub", "fsub"), "*": ("mul", "fmul")}
COMPARISONS = {
    "<": ("slt", "olt"), "<=": ("sle", "ole"), ">": ("sgt", "ogt"), ">=": ("sge", "oge"),
    "==": ("eq", "oeq"), "!=": ("ne", "une"),
}  # fmt: skip


class Element(NamedTuple):
    """How elements of an array lie in memory: LLVM's type, the kind of number they are, conversions on the way."""

    memory: str
    kind: str
    load: str = ""
    store: str = ""


ELEMENTS = {
    np.dtype(np.bool_): Element("i8", BOOL, store="zext"),
    np.dtype(np.uint8): Element("i8", INT, "zext", "trunc"),
    np.dtype(np.int32): Element("i32", INT, "sext", "trunc"),
    np.dtype(np.int64): Element("i64", INT),
    np.dtype(np.float32): Element("float", FLOAT, "fpext", "fptrunc"),
    np.dtype(np.float64): Element("double", FLOAT),
}


class Value(NamedTuple):
    """A number in the text: its name or literal, and what kind it is."""

    text: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


ZERO = Value("0", INT)


class Text:
    """Lines of a function; each method adds some."""

    def __init__(self) -> None:
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.open = True  # does control reach the end of what is written so far?
        self.targets: set[str] = set()  # labels that something jumps to
        self.numbers = itertools.count()

    def write(self, line: str) -> None:
        self.lines.append(f"  {line}")
        self.open = not line.startswith(("ret ", "br "))

    def emit(self, kind: str, code: str) -> Value:
        name = f"%.{next(self.numbers)}"
        self.write(f"{name} = {code}")
        return Value(name, kind)

    def slot(self, kind: str) -> str:
        """A place on the stack that holds 0 when the function starts."""
        name = f"%.{next(self.numbers)}"
        self.slots += f"  {name} = alloca {kind}", f"  store {kind} zeroinitializer, ptr {name}"
        return name

    def load(self, slot: str, kind: str) -> Value:
        return self.emit(kind, f"load {kind}, ptr {slot}")

    def store(self, value: Value, slot: str) -> None:
        self.write(f"store {value}, ptr {slot}")

    # Where control goes

    def label(self) -> str:
        return f"L{next(self.numbers)}"

    def jump(self, label: str) -> None:
        if self.open:
            self.targets.add(label)
            self.write(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        self.targets |= {yes, no}
        self.write(f"br {condition}, label %{yes}, label %{no}")

    def place(self, label: str) -> None:
        """Go on at a label, if anything goes there."""
        self.jump(label)
        if label in self.targets:
            self.lines.append(f"{label}:")
            self.open = True

    # Numbers

    def convert(self, value: Value, kind: str) -> Value:
        """To the same or a wider kind."""
        return value if value.kind == kind else self.emit(kind, f"{WIDENINGS[value.kind, kind]} {value} to {kind}")

    def alike(self, *values: Value, least: str = INT) -> list[Value]:
        """Converted to the widest kind among them and `least`."""
        kind = max([least, *(v.kind for v in values)], key=KINDS.index)
        return [self.convert(v, kind) for v in values]

    def truth(self, value: Value) -> Value:
        return value if value.kind == BOOL else self.compare("!=", value, ZERO)

    def compare(self, op: str, x: Value, y: Value) -> Value:
        x, y = self.alike(x, y)
        floats = x.kind == FLOAT
        return self.emit(BOOL, f"{'fcmp' if floats else 'icmp'} {COMPARISONS[op][floats]} {x}, {y.text}")

    def extreme(self, op: str, x: Value, y: Value) -> Value:
        """The first of the two, unless the second is `op` (< or >) it: Python's `min` and `max`."""
        x, y = self.alike(x, y)
        return self.emit(x.kind, f"select {self.compare(op, y, x)}, {y}, {x}")

    def negative(self, value: Value) -> Value:
        (value,) = self.alike(value)
        return self.emit(value.kind, f"fneg {value}" if value.kind == FLOAT else f"sub i64 0, {value.text}")

    def absolute(self, value: Value) -> Value:
        if value.kind == FLOAT:
            return self.emit(FLOAT, f"call double @llvm.fabs.f64({value})")
        return self.extreme(">", value, self.negative(value))

    def integer(self, value: Value) -> Value:
        """Rounded to zero; a float out of range becomes the nearest int of 64 bits, NaN becomes 0."""
        if value.kind == FLOAT:
            return self.emit(INT, f"call i64 @llvm.fptosi.sat.i64.f64({value})")
        return self.convert(value, INT)

    def arithmetic(self, op: str, x: Value, y: Value) -> Value | None:
        """None for what there isn't."""
        x, y = self.alike(x, y, least=FLOAT if op == "/" else INT)
        if op == "/":
            return self.emit(FLOAT, f"fdiv {x}, {y.text}")
        if op in ARITHMETIC:
            return self.emit(x.kind, f"{ARITHMETIC[op][x.kind == FLOAT]} {x}, {y.text}")
        return self.floor(x, y, op == "%") if op in ("//", "%") and x.kind == INT else None

    def floor(self, x: Value, y: Value, remainder: bool) -> Value:
        """Floor division of ints, or its remainder. Processors trap at a divisor of 0 and, for one dividend, of -1."""
        near = self.emit(INT, f"add {y}, 1")
        special = self.emit(BOOL, f"icmp ult {near}, 2")
        divisor = self.emit(INT, f"select {special}, i64 1, {y}")
        rest = self.emit(INT, f"srem {x}, {divisor.text}")
        signs = self.emit(INT, f"xor {rest}, {divisor.text}")
        apart, inexact = self.compare("<", signs, ZERO), self.compare("!=", rest, ZERO)
        below = self.emit(BOOL, f"and {apart}, {inexact.text}")
        if remainder:
            return self.emit(INT, f"add {rest}, {self.emit(INT, f'select {below}, {divisor}, {ZERO}').text}")
        quotient = self.emit(INT, f"sdiv {x}, {divisor.text}")
        quotient = self.emit(INT, f"sub {quotient}, {self.convert(below, INT).text}")
        product = self.emit(INT, f"mul {x}, {y.text}")  # 0 for 0, as NumPy has it; -x for -1
        return self.emit(INT, f"select {special}, {product}, {quotient}")
