"""Plain typed loops: a function of arrays and numbers in a small subset of Python comes in, native code goes out.

For algorithms that no array operation expresses (colourings, orders, searches in graphs):

    @typed
    def count(indptr, indices, marked, v):
        total = 0
        for i in range(indptr[v], indptr[v + 1]):
            if marked[indices[i]]:
                total += 1
        return total

Arguments are one-dimensional contiguous arrays (bool, uint8, int32, int64, float32, float64), ints and floats. The
subset: assignment to local numbers and to elements, `for` over a `range` with a constant step, `while`, `if`, `break`,
`continue`, `return` of a number or of nothing; + - * / // % of ints, + - * / of floats, comparisons, `and or not`,
conditional expressions, `len min max abs int float`, numbers that the module defines, and calls of other typed
functions. No allocation: work arrays are arguments. Anything else is refused with its line.

What differs from Python:

- **Indices are not checked.** One out of bounds reads or destroys other memory. Only literal ones count from the end.
- Numbers are int64 and float64 whatever the dtypes of arrays; integers wrap; one divided by 0 gives 0, as in NumPy.
- A local keeps the type of its first assignment (and is 0 until then).

`f.python(...)` runs as plain Python: slow, with bounds checked, on lists as well. Nothing is compiled before the first
call with arguments of some types; while native code runs the GIL is released.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wonderland.compile.entry_layout import OFFSETS
from wonderland.compile.typed_syntax import Kind, Module
from wonderland.compile.typed_text import BOOL, ELEMENTS, FLOAT, INT, Element
from wonderland.core.errors import ArgumentError

_DATA = OFFSETS["array.data"]
_pointer_at = ctypes.c_void_p.from_address  # an array's `ctypes.data` takes fifteen times as long
C_TYPES = {INT: ctypes.c_int64, FLOAT: ctypes.c_double, BOOL: ctypes.c_bool, None: None}


class _Running(threading.local):
    plain = False  # inside `f.python`


_running = _Running()


class Native(NamedTuple):
    """Machine code for arguments of some kinds: how to call it, which arguments it writes, what keeps it alive."""

    call: Callable
    written: set[int]
    library: Any


class Typed:
    """A function that runs as native code, compiled on the first call with arguments of some types."""

    def __init__(self, function: Callable):
        self.function = function
        self._native: dict[tuple[Kind | None, ...], Native] = {}
        update_wrapper(self, function)

    def python(self, *args: Any) -> Any:
        """Call the plain function; the typed ones that it calls are plain, too."""
        outer, _running.plain = _running.plain, True
        try:
            return self.function(*args)
        finally:
            _running.plain = outer

    def __call__(self, *args: Any) -> Any:
        """Check the arguments and call the native function."""
        if _running.plain:
            return self.function(*args)
        kinds = tuple(map(_kind, args))
        native = self._native.get(kinds) or self._compile(kinds, args)
        flat = []
        for i, (value, kind) in enumerate(zip(args, kinds)):
            if isinstance(kind, Element):
                flags = value.flags
                if value.ndim != 1 or not flags.c_contiguous or not flags.aligned:
                    self._refuse(i, value, "a one-dimensional, contiguous array: np.ascontiguousarray of it, raveled")
                if i in native.written and not flags.writeable:
                    self._refuse(i, value, "an array to write into, this one is read-only: pass a copy")
                flat += _pointer_at(id(value) + _DATA).value, len(value)
            elif kind == INT and not -(2**63) <= value < 2**63:
                self._refuse(i, value, f"an int of 64 bits, not {value}")
            else:
                flat.append(int(value) if kind == INT else float(value))
        return native.call(*flat)

    def ir(self, *args: Any) -> str:
        """The text that LLVM gets for arguments of these types."""
        return self._translate(tuple(map(_kind, args)), args)[0]

    def _translate(self, kinds: tuple[Kind | None, ...], args: tuple) -> tuple[str, Any]:
        known = []
        for i, kind in enumerate(kinds):
            if kind is None:
                self._refuse(i, args[i], f"an int, a float or an array of {', '.join(map(str, ELEMENTS))}")
            known.append(kind)
        module = Module(Typed)
        function = module.function(self.function, tuple(known))
        return module.text(), function

    def _compile(self, kinds: tuple[Kind | None, ...], args: tuple) -> Native:
        from wonderland.compile import llvm  # LLVM is loaded on the first call, not on import

        with llvm.lock:
            if kinds not in self._native:
                text, function = self._translate(kinds, args)
                library = llvm.compile_library(text, ["run"], quick=True)
                types = []
                for kind in kinds:
                    types += (ctypes.c_void_p, ctypes.c_int64) if isinstance(kind, Element) else (C_TYPES[kind],)
                call = ctypes.CFUNCTYPE(C_TYPES[function.result], *types)(library.address("run"))
                self._native[kinds] = Native(call, function.written, library)
            return self._native[kinds]

    def _refuse(self, i: int, value: Any, expected: str) -> NoReturn:
        name = [*inspect.signature(self.function).parameters, *[f"number {i + 1}"] * (i + 1)][i]
        what = type(value).__name__
        if isinstance(value, np.ndarray):
            what = f"{'' if value.flags.c_contiguous else 'non-contiguous '}{value.dtype}{list(value.shape)}"
        raise ArgumentError(f"{self.function.__name__}: argument {name} is {what}; it takes {expected}")


def _kind(value: Any) -> Kind | None:
    if isinstance(value, np.ndarray):
        return ELEMENTS.get(value.dtype)
    if isinstance(value, (int, np.integer, np.bool_)):
        return INT
    return FLOAT if isinstance(value, (float, np.floating)) else None


def typed(function: Callable) -> Typed:
    """Make native code of a function of plain loops on arrays and numbers; see the text of this module."""
    if not inspect.isfunction(function):
        raise ArgumentError(f"typed takes a function written with def, not {type(function).__name__}")
    return Typed(function)
