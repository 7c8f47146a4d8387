"""How the entry's functions are written: the records of `entry_layout` come in, loads and stores of fields go out."""

from __future__ import annotations

from wonderland.compile.entry_layout import INPUT_WORDS, OFFSETS, OUTPUT_WORDS, TYPES
from wonderland.compile.ir import BOOL, BYTE, LONG, POINTER, VOID, Function, Number, Value, array, constant

NULL, YES, NO = constant(None, POINTER), constant(True, BOOL), constant(False, BOOL)


class Struct:
    """Something in memory whose fields have names: `record["field"]` reads one."""

    kind: str
    place: Value

    def __init__(self, kind: str, place: Value):
        self.kind, self.place = kind, place

    def at(self, field: str) -> Value:
        return self.place.code.element(BYTE, self.place, OFFSETS[f"{self.kind}.{field}"])

    def __getitem__(self, field: str) -> Value:
        return self.place.code.load(TYPES.get(f"{self.kind}.{field}", LONG), self.at(field))


def function(name: str, parameters: str, returns: str = VOID, exported: bool = False) -> tuple[Function, list[Value]]:
    """A function, and its parameters: pointers have a `*`, the others are numbers."""
    words = parameters.split()
    types = [(word.rstrip("*"), POINTER if word.endswith("*") else LONG) for word in words]
    f = Function(name, types, returns, exported=exported)
    return f, f.parameters


def input_of(inputs: Value, i: Value) -> Struct:
    """The record of an input."""
    return Struct("input", i.code.element(array(LONG, INPUT_WORDS), inputs, i))


def output_of(outputs: Value, o: Value) -> Struct:
    """The record of an output."""
    return Struct("output", o.code.element(array(LONG, OUTPUT_WORDS), outputs, o))


def item(f: Function, type: str, items: Value, index: Number) -> Value:
    """An item of an array."""
    return f.load(type, f.element(type, items, index))


def within(block: Value, offset: Value) -> Value:
    """The place in a block whose offset is in a field."""
    return block.code.element(BYTE, block, offset)


def fill(f: Function, place: Value, byte: int, size: Number) -> None:
    """Set all bytes."""
    args = (place, f.constant(byte, BYTE), f.integer(size), NO)
    f.intrinsic("memset", *args, returns=VOID, over=(POINTER, LONG))
