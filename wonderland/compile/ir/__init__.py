"""LLVM IR: what the rest of the compiler says in Python comes in, text for LLVM goes out."""

from wonderland.compile.ir.function import AS_IT_IS, INTERLEAVED, RARE, Block, Function, Variable  # noqa: I001
from wonderland.compile.ir.module import Module
from wonderland.compile.ir.values import (
    BOOL, BYTE, DOUBLE, FLOAT, FLOATS, INT, LONG, POINTER, SUFFIX, VOID, External, Global, Number, Value,
    array, bytes_of, constant, table, undefined, vector, zeros,
)  # fmt: skip

__all__ = [
    "AS_IT_IS", "BOOL", "BYTE", "Block", "DOUBLE", "External", "FLOAT", "FLOATS", "Function", "Global", "INT",
    "INTERLEAVED", "LONG", "Module", "Number", "POINTER", "RARE", "SUFFIX", "VOID", "Value", "Variable", "array",
    "bytes_of", "constant", "table", "undefined", "vector", "zeros",
]  # fmt: skip
