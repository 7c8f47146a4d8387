"""Functions that kernels call by name: Python functions on `ir.Value`s come in, `ir.Function`s with a cost go out.

A function registers itself by decorator and is written on first use, once for each combination of types. One without
control flow becomes part of the loop that calls it; the others (a rejection, a series until it ends) are calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from wonderland.compile.ir import DOUBLE, FLOATS, Function, Value
from wonderland.compile.ir.values import mangled

CALL_COST = 12  # of a vector function, in additions

Write = Callable[..., Value]

WRITERS: dict[str, tuple[Write, int]] = {}  # what writes a function, and what a call of it costs, in additions
VECTOR_FUNCTIONS: dict[str, int] = {}  # with the number of their arguments
_written: dict[tuple[Any, ...], Function] = {}


def routine(cost: int, name: str = "") -> Callable[[Write], Write]:
    """Register a function. A cost above `CHEAP` in `fuse`: it runs only once for each element."""

    def register(write: Write) -> Write:
        WRITERS[name or write.__name__] = write, cost
        return write

    return register


def vector_function(write: Write) -> Write:
    """Register a branch-free function whose arguments and result are of one float type."""
    VECTOR_FUNCTIONS[write.__name__] = len(signature(write).parameters)
    return routine(CALL_COST)(write)


def in_double(formula: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """The function of a double, for float too."""
    return wraps(formula)(lambda x: formula(x.convert(DOUBLE)).convert(x.type))


def written(name: str, types: tuple[str, ...], of: tuple[Any, ...] = ()) -> Function:
    """The function of this name for arguments of these types, made of some Python values that come before them."""
    key = (name, types, of)
    if key not in _written:
        write, cost = WRITERS[name]
        words = ["wl", name, *map(str, of), *dict.fromkeys(map(mangled, types))]
        function = Function("_".join(words), [(f"x{i}", type) for i, type in enumerate(types)])
        result = write(*of, *function.parameters)
        function.ret(result)
        function.returns, function.cost = result.type, cost
        function.attributes = "alwaysinline" if function.current.label == "entry" else "noinline"
        _written.setdefault(key, function)  # one for all threads
    return _written[key]


def function(name: str, dtype: str) -> Function:
    """A vector function of f32 or f64."""
    return written(name, (FLOATS[dtype],) * VECTOR_FUNCTIONS[name])


def call(name: str, *args: Value) -> Value:
    """A function by its name, called."""
    return args[0].code.call(written(name, tuple(a.type for a in args)), *args)
