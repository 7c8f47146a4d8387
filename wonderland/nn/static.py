"""Static attributes of Modules: what may be one, and what would hide arrays or Modules from transformations."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import ItemsView, KeysView, ValuesView
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import kind_of
from wonderland.core.statics import contents
from wonderland.core.tracebacks import warn_user
from wonderland.core.tracer import Tracer
from wonderland.transform.closures import parts

PLAIN = (
    type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, np.ufunc, type, slice, range, enum.Enum,
    ModuleType, BuiltinFunctionType, FunctionType, type(Ellipsis),
)  # fmt: skip
CONTAINERS = (deque, MappingProxyType, KeysView, ValuesView, ItemsView)  # that trees don't know, and `parts` neither
_warned: set[type] = set()
_MOST = 2000  # things looked at


def check_attribute(module: Any, name: str, value: Any) -> None:
    """Refuse what can't be an attribute of a Module; `value` is no array."""
    where = f"{type(module).__name__}.{name}"
    if isinstance(value, (bool, int, float, complex, str, type(None))):
        return
    _check_containers(where, value, module, set())


def _check_containers(where: str, value: Any, module: Any, seen: set[int]) -> None:
    """What is seen of a value: containers and Modules; each static thing in them is searched for what it hides."""
    if isinstance(value, (np.ndarray, Tracer)):
        return
    if isinstance(value, np.random.Generator):
        raise ArgumentError(
            f"{where} is a np.random.Generator, whose numbers would be drawn once, when the function is recorded. "
            "Keep a key: nn.Buffer(wl.random.key(0)), and split it at each use."
        )
    kind = kind_of(value)
    if kind is not None and kind.mutable:
        if value is module or _holds(value, module):
            raise ArgumentError(
                f"{where} would hold the Module that it belongs to: a Module can't contain itself. Pass what it needs "
                "as an argument of its methods."
            )
        return
    if kind is not None and value is not None:
        if id(value) in seen:
            raise ArgumentError(f"{where} is a container that contains itself")
        if isinstance(value, dict) and _shows_data(value):
            wrong = [key for key in value if not isinstance(key, str) or "." in key]
            if wrong:
                raise ArgumentError(
                    f"{where} is a dict of arrays or Modules with the key {wrong[0]!r}: keys are part of dotted names, "
                    f"so they are strings without dots. Write {str(wrong[0]).replace('.', '_')!r}."
                )
        for child in kind.flatten(value)[0]:
            _check_containers(where, child, module, seen | {id(value)})
        hidden = _hidden(value.keys(), module) if isinstance(value, dict) else None
    else:
        hidden = _hidden(value, module)
    if hidden is not None:
        raise ArgumentError(
            f"{where} is a {type(value).__name__} that holds {hidden} out of sight: its parameters would be constants, "
            "without derivatives and updates. Assign the Module or the array itself to an attribute, and call it in a "
            "method; a constant array can be made read-only (array.flags.writeable = False)."
        )
    known = kind is not None or isinstance(value, PLAIN) or callable(value) or type(value).__eq__ is not object.__eq__
    if not known and contents(value) is None and type(value) not in _warned:
        _warned.add(type(value))
        warn_user(
            f"{where} is a {type(value).__name__}, which doesn't say when two of them are equal: it is static, and "
            "compared by identity, so a function is compiled again for each. Give the class __eq__ and __hash__, or "
            "make it a dataclass, or an nn.Module if it has arrays."
        )


def _shows_data(value: Any) -> bool:
    if isinstance(value, (np.ndarray, Tracer)):
        return True
    kind = kind_of(value)
    return kind is not None and (kind.mutable or any(map(_shows_data, kind.flatten(value)[0])))


def _holds(node: Any, module: Any) -> bool:
    """Does a tree hold this Module?"""
    kind = kind_of(node)
    return node is module or (kind is not None and any(_holds(child, module) for child in kind.flatten(node)[0]))


def _hidden(value: Any, module: Any) -> str | None:
    """What a static value holds that transformations don't see: an array or a Module, if there is one."""
    if isinstance(value, MethodType) and value.__self__ is module:
        return None
    seen: set[int] = set()
    todo = [value]
    for thing in todo:
        if id(thing) in seen or len(seen) > _MOST or isinstance(thing, (str, bytes, int, float, type, ModuleType)):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tracer) or (isinstance(thing, np.ndarray) and thing.flags.writeable):
            return f"an array of shape {thing.shape}"
        if isinstance(thing, np.random.Generator):
            return "a np.random.Generator"
        kind = kind_of(thing)
        if kind is not None and kind.mutable:
            return f"a {type(thing).__name__}"
        if isinstance(thing, np.ndarray) or _is_library(thing):
            continue
        todo += [part for _, _, part in parts(thing)] if not isinstance(thing, CONTAINERS) else list(thing)
        todo += list(thing.values()) if isinstance(thing, MappingProxyType) else ()
    return None


def _is_library(thing: Any) -> bool:
    """A function of NumPy's or SciPy's holds nothing of the user's."""
    module = getattr(thing, "__module__", None) if isinstance(thing, FunctionType) else None
    return isinstance(module, str) and module.split(".")[0] in ("numpy", "scipy")
