"""Ufuncs that are one primitive, as the primitives' blocks say, and the dtypes in which ufuncs compute.

What comes in is a module of NumPy's or SciPy's; the functions of it that primitives name, those in their slot `ufunc`
and those in `also`, are registered. One that the installed version doesn't have registers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive, registry, told
from wonderland.core.types import type_of
from wonderland.numpy.dispatch import implements
from wonderland.ops.shape import convert

_PYTHON_ONES = {"b": True, "i": 1, "f": 1.0, "c": 1j}


def result_dtype(ufunc: np.ufunc, *operands: Any) -> np.dtype:
    """The dtype of NumPy's or SciPy's result (of the first one); Python scalars among the operands are weak."""
    types = [type_of(a) for a in operands]
    with np.errstate(all="ignore"):
        made = ufunc(*(_PYTHON_ONES[t.dtype.kind] if t.weak else np.ones(1, t.dtype) for t in types))
    return (made[0] if isinstance(made, tuple) else made).dtype


def of_dtype(x: Any, dtype: np.dtype) -> Any:
    """Converted, if need be; a Python scalar stays one."""
    return x if type_of(x).dtype == dtype or type_of(x).weak else convert(x, dtype=dtype)


def composed(ufunc: np.ufunc) -> Callable:
    """Register a function whose operands come in the dtype of the ufunc's result."""

    def register(f: Callable) -> Callable:
        def function(*args: Any) -> Any:
            dtype = result_dtype(ufunc, *args)
            return f(*(of_dtype(a, dtype) for a in args))

        implements(ufunc)(function)
        return f

    return register


def implement_primitives(name: str, module: Any) -> None:
    """Register the primitives that are functions of a module, those made later too."""

    def register(primitive: Primitive) -> None:
        for full in (primitive.ufunc, *primitive.also):
            home, _, function = full.rpartition(".")
            ufunc = getattr(module, function, None) if home == name else None
            if ufunc is not None:
                (implements if full == primitive.ufunc else composed)(ufunc)(primitive)

    for primitive in registry.values():
        register(primitive)
    told.append(register)
