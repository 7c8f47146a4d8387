"""How native functions are written: functions of Python that write code come in, functions of LLVM IR go out.

What they read and write are the records and objects of `entry_layout`, by the names of their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.compile.entry_layout import FIELDS, RECORDS, WORDS
from wonderland.compile.ir import BOOL, BYTE, LONG, POINTER, VOID, Function, Number, Value, array, constant

NULL, YES, NO = constant(None, POINTER), constant(True, BOOL), constant(False, BOOL)


class Struct(Value):
    """A pointer to something whose fields have names: `record["field"]` reads one."""

    __slots__ = ("kind",)

    def __init__(self, kind: str, place: Value):
        super().__init__(POINTER, place.text, place.code)
        self.kind: str = kind

    def at(self, field: str) -> Value:
        return self.code.element(BYTE, self, FIELDS[f"{self.kind}.{field}"][0])

    def __getitem__(self, field: str) -> Value:
        return self.code.load(FIELDS[f"{self.kind}.{field}"][1], self.at(field))


def native(parameters: str, returns: str = VOID, exported: str = "", attributes: str = "") -> Any:
    """Decorates `write(f, *parameters, *given)`, which writes code into f: `write(*given)` is the finished function.

    Of the parameters, pointers have a `*` (one with the name of a record is a `Struct`), the others are numbers. A
    value that `write` returns is what the function returns at its end. It is `exported` under that name, if any.
    """

    def decorate(write: Callable[..., Value | None]) -> Callable[..., Function]:
        def finished(*given: Any) -> Function:
            names = [name.rstrip("*") for name in parameters.split()]
            types = [POINTER if name.endswith("*") else LONG for name in parameters.split()]
            own = exported or write.__name__.removeprefix("_")
            f = Function(own, zip(names, types), returns, exported=bool(exported), attributes=attributes)
            values = [Struct(name, x) if name in RECORDS else x for name, x in zip(names, f.parameters)]
            result = write(f, *values, *given)
            if result is not None:
                f.ret(result)
            return f

        return finished

    return decorate


def record(kind: str, records: Value, i: Value) -> Struct:
    """One of the inputs' or outputs' records."""
    return Struct(kind, i.code.element(array(LONG, WORDS[kind]), records, i))


def item(f: Function, type: str, items: Value, index: Number) -> Value:
    """An item of an array."""
    return f.load(type, f.element(type, items, index))


def within(block: Value, offset: Value) -> Value:
    """The place in a block whose offset is in a field."""
    return block.code.element(BYTE, block, offset)


def fill(f: Function, place: Value, byte: int, size: Number) -> None:
    """Set all bytes."""
    f.intrinsic("memset", place, f.constant(byte, BYTE), f.integer(size), NO, returns=VOID, over=(POINTER, LONG))
