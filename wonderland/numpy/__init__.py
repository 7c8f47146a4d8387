"""`import wonderland.numpy as np`: NumPy's names, on traced arrays too; constructors hold tracers.

What isn't here is NumPy's own function; on a traced array that raises an error that says so.
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import Any

import numpy as _np

from wonderland.core.later import load_module as _load_module
from wonderland.core.tracer import PROPERTIES
from wonderland.numpy.dispatch import namespace as _namespace

for _name in """
    construct elementwise reduce index shape join arrange select at sparse einsum products calculus
""".split():  # each registers its functions
    _import_module(f"wonderland.numpy.{_name}")

_ALIASES = {
    "amax": "max", "amin": "min", "abs": "absolute", "true_divide": "divide", "conj": "conjugate",
    "concat": "concatenate", "permute_dims": "transpose",
}  # fmt: skip
_namespace.update({alias: _namespace[name] for alias, name in _ALIASES.items() if name in _namespace})
globals().update({name: f for name, f in _namespace.items() if name in globals()})  # which modules' names would hide


def __getattr__(name: str) -> Any:
    if name in ("linalg", "fft"):  # loaded on first use
        return _load_module(f"wonderland.numpy.{name}")
    if name in _namespace:
        return _namespace[name]
    return getattr(_np, name)


def __dir__() -> list[str]:
    return sorted(_namespace)


PROPERTIES["__array_namespace__"] = lambda self: _sys.modules[__name__]
