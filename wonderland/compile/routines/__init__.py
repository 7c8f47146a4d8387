"""Routines, functions with control flow for each element: the name of one comes in, a function for LLVM goes out."""

from wonderland.compile.routines import laws, numbers, philox  # noqa: F401  (they register)
from wonderland.compile.vecmath.functions import written as function

__all__ = ["function"]
