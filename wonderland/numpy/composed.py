"""`composed`: NumPy functions that are written in NumPy.

Many functions of NumPy's are a few lines of other ones. Written here in the same way, on tracers and arrays as a user
would, they inherit every rule from what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.core.tracer import FUNCTIONS, Tracer, unwrap
from wonderland.numpy.dispatch import ARRAYS, array_handle, has_tracer, present, space_of


def composed(original: Any) -> Callable:
    """Register a function of arrays and tracers under NumPy's name; calls without tracers go to NumPy."""

    handle = array_handle if original.__name__ in ARRAYS else Tracer

    def register(f: Callable) -> Callable:
        def function(*args: Any, **kwargs: Any) -> Any:
            if not (has_tracer(args) or has_tracer(tuple(kwargs.values()))):
                return original(*args, **kwargs)
            return fresh(f(*args, **kwargs), handle)

        function.__name__ = original.__name__
        function.__doc__ = f.__doc__ or f"NumPy's `{original.__name__}`, on traced arrays too."
        for target in present([original]):
            FUNCTIONS[target] = space_of(target)[target.__name__] = function
        return f

    return register


def fresh(result: Any, handle: Callable = Tracer) -> Any:
    """Results as handles of their own: they are no views of the arguments."""
    if isinstance(result, (tuple, list)):
        return type(result)(fresh(item, handle) for item in result)
    return handle(unwrap(result))
