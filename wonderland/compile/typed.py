"""Plain typed loops: a function of arrays and numbers in a small subset of Python comes in, native code goes out.

For algorithms that no array operation expresses (colourings, orders, searches in graphs):

    @typed
    def count(indptr, indices, marked, v):
        total = 0
        for i in range(indptr[v], indptr[v + 1]):
            if marked[indices[i]]:
                total += 1
        return total

Arguments are one-dimensional contiguous arrays (int64, float32, float64) and ints. The subset: assignment to local
numbers and to elements, `for` over a `range` with a constant step, `while`, `if`, `break`, `continue`, `return` of an
int or of nothing; + - * (of floats, too), & and >> of ints, comparisons, `and or not`, conditional expressions, `len`,
`min` and `max` of two ints, and calls of typed functions of the module. No allocation: work arrays are arguments.
Anything else is refused with its line.

What differs from Python:

- **Indices are not checked.** One out of bounds reads or destroys other memory. None counts from the end.
- Ints have 64 bits, and wrap; `>>` brings zeros in, so that `x >> n & mask` has the bits of a product that wrapped.
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
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from wonderland.compile.entry_layout import FIELDS
from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading

if TYPE_CHECKING:
    from wonderland.compile.typed_syntax import Kind

_DATA, _ = FIELDS["array.data"]
_pointer_at = ctypes.c_void_p.from_address  # an array's `ctypes.data` takes fifteen times as long


class _Active(threading.local):
    plain = False  # inside `f.python`


_running = _Active()


class NativeCode(NamedTuple):
    """Machine code for arguments of some kinds: how to call it, which arguments it writes, what keeps it alive."""

    call: Callable
    written: set[int]
    library: Any


class Typed:
    """A function that runs as native code, compiled on the first call with arguments of some types."""

    def __init__(self, function: Callable):
        self.function = function
        self._native: dict[tuple[Kind, ...], NativeCode] = {}
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
        for i, value in enumerate(args):
            if kinds[i] is int:
                flat.append(int(value))
                continue
            flags = value.flags
            if value.ndim != 1 or not flags.c_contiguous or not flags.aligned:
                self._refuse(i, value, "a one-dimensional, contiguous array: np.ascontiguousarray of it, raveled")
            if i in native.written and not flags.writeable:
                self._refuse(i, value, "an array to write into, this one is read-only: pass a copy")
            flat += _pointer_at(id(value) + _DATA).value, len(value)
        return native.call(*flat)

    def _compile(self, kinds: tuple[Kind, ...], args: tuple) -> NativeCode:
        with loading():  # LLVM is loaded on the first call, not on import
            from wonderland.compile import ir, llvm
            from wonderland.compile.typed_syntax import ELEMENTS, Translation

        for i, kind in enumerate(kinds):
            if kind is not int and kind not in ELEMENTS:
                self._refuse(i, args[i], f"an int or an array of {', '.join(map(str, ELEMENTS))}")
        with llvm.lock:
            if kinds not in self._native:
                translation = Translation(self.function, kinds, Typed, {})
                library = ir.Module(translation.code).load()
                types = []
                for kind in kinds:
                    types += (ctypes.c_int64,) if kind is int else (ctypes.c_void_p, ctypes.c_int64)
                result = None if translation.code.returns == ir.VOID else ctypes.c_int64
                call = ctypes.CFUNCTYPE(result, *types)(library.address("run"))
                written = {i for i, name in enumerate(translation.parameters) if name in translation.written}
                self._native[kinds] = NativeCode(call, written, library)
            return self._native[kinds]

    def _refuse(self, i: int, value: Any, expected: str) -> NoReturn:
        name = [*inspect.signature(self.function).parameters, *[f"number {i + 1}"] * (i + 1)][i]
        what = type(value).__name__
        if isinstance(value, np.ndarray):
            what = f"{'' if value.flags.c_contiguous else 'non-contiguous '}{value.dtype}{list(value.shape)}"
        raise ArgumentError(f"{self.function.__name__}: argument {name} is {what}; it takes {expected}")


def _kind(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype
    return int if isinstance(value, (int, np.integer)) else type(value)


def typed(function: Callable) -> Typed:
    """Make native code of a function of plain loops on arrays and numbers; see the text of this module."""
    if not inspect.isfunction(function):
        raise ArgumentError(f"typed takes a function written with def, not {type(function).__name__}")
    return Typed(function)
