"""Transformed functions cross to other processes: each is pickled and copied as how it was made, or by its name.

`wl.grad(f)` becomes "`grad` of `f`", and the receiver makes it anew; compiled code isn't sent. A decorated function is
found under its own name, as plain functions are: then what is sent is that name.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

from wonderland.core.errors import check_function
from wonderland.core.tracebacks import edge


class ByName:
    """Pickled by name, if it is what its function's name means in its module: the result of a decorator."""

    __slots__ = ()
    only_wraps = False  # is its function all of the user's that it holds (a compiled one: its caches hold no tracers)?

    def __reduce_ex__(self, protocol: Any) -> Any:
        f: Any = self
        while hasattr(f, "__wrapped__"):
            f = f.__wrapped__
        module, name = getattr(f, "__module__", None), getattr(f, "__qualname__", None)
        if module in sys.modules and name is not None and _found(module, name, None) is self:
            return _found, (module, name)
        return super().__reduce_ex__(protocol)


def _found(module: str, name: str, *default: Any) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, *default)
    return found


class Transformed(ByName, functools.partial[Any]):
    """What a transformation returns: called like its function, with its name, docstring and signature."""

    made: tuple[Any, Any, tuple[Any, ...], dict[str, Any]]  # the transformation, the function, and its options

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, self.made

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)  # in a class, a method

    def __repr__(self) -> str:
        return f"<wl.{self.__name__}>"  # type: ignore[attr-defined]


def _make(make: Callable, f: Callable, options: tuple, keywords: dict) -> Any:
    return make(f, *options, **keywords)


def transformed(wrapper: Callable, make: Callable, f: Callable, *options: Any, **keywords: Any) -> Transformed:
    """`wrapper`, which `make(f, *options, **keywords)` returns, as an object that remembers this."""
    out = Transformed(edge(wrapper))
    out.made = make, f, options, keywords
    return out


def named(wrapper: Any, f: Callable, prefix: str, make: Any = None, *options: Any, **keywords: Any) -> Any:
    """A transformed function, with the name, docstring and signature of the one it comes from, which is checked.

    It can be pickled if `make` says that `make(f, *options, **keywords)` returns it.
    """
    check_function(f, prefix)
    if make is not None:
        wrapper = transformed(wrapper, make, f, *options, **keywords)
    wrapper.__name__ = f"{prefix}({getattr(f, '__name__', 'function')})"
    wrapper.__doc__ = getattr(f, "__doc__", None)
    wrapper.__wrapped__ = f
    return wrapper
