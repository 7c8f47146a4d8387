"""Functions whose captured values are arguments: what a function closes over comes in, a function of it goes out.

An implicit derivative has to know everything that a function depends on. The handles on traced values that it holds (in
closures, defaults, containers, attributes of objects such as Modules) are found by looking, not by recording: the
function may decide by values, where there are some. `fingerprint` tells which functions are the same: what was recorded
of one need not be recorded again.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from opcode import opmap
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from wonderland.control.captures import standing_for
from wonderland.core.statics import typed
from wonderland.core.tracer import Tracer
from wonderland.transform.closures import held_tracers


class Hoisted:
    """A function, and the traced values that it (and others beside it) closes over: `values` are what they are now."""

    def __init__(self, f: Callable, others: Iterable[Any] = ()):
        self.f = f
        self.name: str = getattr(f, "__name__", type(f).__name__)
        self.handles: list[Tracer] = held_tracers([f, *others])
        self.values: list[Any] = [handle._get() for handle in self.handles]

    def __call__(self, values: Sequence[Any], *args: Any) -> Any:
        """The function, with other values in the places of those that it captures."""
        return self.running(self.f, values, *args)

    def running(self, f: Callable, values: Sequence[Any], *args: Any) -> Any:
        """Another function that holds the same handles."""
        with standing_for(self.handles, values, self.name):
            return f(*args)


_NUMBERS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_LIBRARIES = frozenset({"numpy", "wonderland", "scipy", "math", "cmath", "operator"})  # nobody writes to these modules
_OTHER_TIMES = frozenset({"random"})  # what functions of them that aren't the same every time are named
_LOOKING = frozenset({"__import__", "eval", "exec", "globals", "input", "locals", "open", "print", "vars"})
_IMPORT = opmap["IMPORT_NAME"]


def fingerprint(f: Any) -> Any:
    """Equal for functions that do the same, whenever they are called; None if that can't be seen.

    It is the code, and the numbers, functions and libraries that it closes over or names. An array could be written to,
    and an object, a class or a module of the user's change: a function that holds one has none.
    """
    try:
        return _key(f, {})
    except TypeError:
        return None


def _key(value: Any, seen: dict[int, int]) -> Any:
    if type(value) in _NUMBERS or isinstance(value, np.dtype):
        return typed(value)
    if type(value) is tuple:
        return tuple(_key(v, seen) for v in value)
    if isinstance(value, FunctionType):
        return _function_key(value, seen)
    if isinstance(value, np.generic) and not isinstance(value, np.void) and type(value).__module__ == "numpy":
        return typed(value)
    if _is_fixed(value):
        return value
    raise TypeError


def _is_fixed(value: Any) -> bool:
    """A module, class or built-in function that is the same for good, as long as it is the same object."""
    if isinstance(value, ModuleType):
        name = value.__name__.split(".")
        return name[0] in _LIBRARIES and _OTHER_TIMES.isdisjoint(name)
    if isinstance(value, type):
        return value.__module__ in ("builtins", "numpy")
    if isinstance(value, BuiltinFunctionType):  # or a method of an object, such as a dict's `get`
        owner = value.__self__
        if not isinstance(owner, ModuleType) or owner.__name__ != "builtins":
            return owner is None or (isinstance(owner, ModuleType) and _is_fixed(owner))
        return value.__name__ not in _LOOKING
    if type(value) is np.ufunc:
        return value.ntypes > 1  # those of `np.frompyfunc` have one
    return type(value) is type(np.sum)  # functions that NumPy dispatches


def _function_key(f: FunctionType, seen: dict[int, int]) -> Any:
    if id(f) in seen:  # it calls itself, or is there twice
        return f.__code__, seen[id(f)]
    seen[id(f)] = len(seen)
    names = _names(f.__code__)
    if f.__dict__ or not _OTHER_TIMES.isdisjoint(names):
        raise TypeError
    try:
        cells = [_key(cell.cell_contents, seen) for cell in f.__closure__ or ()]
    except ValueError:  # not assigned yet
        raise TypeError from None
    scopes = f.__globals__, vars(builtins)
    named = [(name, _key(scope[name], seen)) for name in names for scope in scopes if name in scope]
    defaults = _key(f.__defaults__, seen), _key(tuple((f.__kwdefaults__ or {}).items()), seen)
    return f.__code__, tuple(cells), defaults, tuple(named)


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[str, ...]:
    """All names in code that aren't local: of globals, attributes, and methods."""
    if _IMPORT in code.co_code[::2]:
        raise TypeError
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))
