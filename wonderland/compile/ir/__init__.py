"""LLVM IR: what the rest of the compiler says in Python comes in, text for LLVM goes out."""

# ruff: noqa: F401, I001
from wonderland.compile.ir.function import AS_IT_IS, INTERLEAVED, RARE, Block, Function, Variable
from wonderland.compile.ir.module import Module, Resident, together
from wonderland.compile.ir.values import (
    BOOL, BYTE, DOUBLE, FLOAT, FLOATS, INT, LONG, POINTER, SUFFIX, VOID, External, Global, Number, Value,
    array, bytes_of, constant, table, undefined, vector, zeros,
)  # fmt: skip
