"""`import wonderland.numpy as np`: NumPy's names, on traced arrays too; constructors hold tracers.

What isn't here is NumPy's own function; on a traced array that raises an error that says so.
"""

import sys as _sys
from typing import Any

import numpy as _np

from wonderland.core.tracer import PROPERTIES
from wonderland.numpy import construct as _construct  # noqa: F401
from wonderland.numpy import elementwise as _elementwise  # noqa: F401  (registers its functions)
from wonderland.numpy import index as _index  # noqa: F401
from wonderland.numpy import reduce as _reduce  # noqa: F401
from wonderland.numpy import shape as _shape  # noqa: F401
from wonderland.numpy import sparse as _sparse  # noqa: F401
from wonderland.numpy.dispatch import namespace as _namespace

_ALIASES = {"amax": "max", "amin": "min", "abs": "absolute", "true_divide": "divide", "conj": "conjugate"}
for _alias, _name in _ALIASES.items():
    _namespace[_alias] = _namespace[_name]
shape = _namespace["shape"]  # NumPy's function, which the module of the same name would hide


def __getattr__(name: str) -> Any:
    if name in _namespace:
        return _namespace[name]
    return getattr(_np, name)


def __dir__() -> list[str]:
    return sorted(_namespace)


PROPERTIES["__array_namespace__"] = lambda self: _sys.modules[__name__]
