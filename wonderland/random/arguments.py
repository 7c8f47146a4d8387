"""What all samplers do with their arguments: `(key, shape, *parameters, dtype=...)`, checked.

A key (without one, the next of the global stream), a shape to which the parameters broadcast (without one, theirs), and
a dtype, by keyword alone: after a shape there may be any number of parameters.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.level import Traced
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import P, shape_of, type_of
from wonderland.numpy.construct import asarray
from wonderland.random import keys

Shape = int | tuple[int, ...]
# The default of parameters that have none: they stand after the shape, which has.
REQUIRED: Any = inspect.Parameter.empty
_SAMPLERS: dict[str, Callable] = {}


def sampler(f: Callable[P, Any]) -> Callable[P, Any]:
    """A public sampler: without a key (or with None) it takes the next one of the global stream."""
    parameters = list(inspect.signature(f).parameters.values())
    required = [(i, p.name) for i, p in enumerate(parameters) if p.default is REQUIRED]
    second = parameters[1].name
    _SAMPLERS[f.__name__] = f

    @functools.wraps(f)
    def sample(*args: Any, **kwargs: Any) -> Any:
        for i, name in required:
            if i >= len(args) and name not in kwargs:
                raise TypeError(f"{f.__name__} needs the parameter {name!r}: {usage(f)}")
        if len(args) > 2:
            _check_order(args)
        key = args[0] if args else kwargs.pop("key", None)
        key = keys.next_key() if key is None else keys.checked(key)
        return handles([unwrap(f(key, *args[1:], **kwargs))])[0]  # type: ignore[call-arg]

    def _check_order(args: tuple) -> None:
        for value in args[2:]:
            if isinstance(value, (type, np.dtype, str)):
                raise TypeError(f"{f.__name__}: the dtype is given by keyword, dtype={_name(value)}: {usage(f)}")
            if second == "shape" and _is_shape(value) and not isinstance(args[1], (tuple, list, type(None))):
                raise TypeError(
                    f"{f.__name__}: the shape comes second, before the parameters: {usage(f)}. Here it is {args[1]!r}, "
                    f"and a parameter is {value}; if that is meant, write the parameter as a list or an array."
                )

    return sample  # type: ignore[return-value]


def usage(f: Callable) -> str:
    """How a sampler is called, for messages."""
    parts, keyword_only = [], False
    for i, p in enumerate(inspect.signature(f).parameters.values()):
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        shown = p.name if i < 2 or p.default is REQUIRED else f"{p.name}={_name(p.default)}"
        parts.append(shown)
    return f"{f.__name__}({', '.join(parts)})"


def _name(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)


def _is_shape(value: Any) -> bool:
    return type(value) is tuple and all(isinstance(n, (int, np.integer)) for n in value)


def handle(value: Any) -> Any:
    """A traced value as an array that NumPy's functions take; others as they are."""
    return Tracer(value) if isinstance(value, Traced) else value


def shape_tuple(name: str, shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence of ints."""
    if type(shape) is not tuple:
        try:
            shape = (operator.index(shape),)
        except TypeError:
            pass
    try:
        out = tuple([operator.index(n) for n in shape])
    except TypeError:
        raise TypeError(
            f"{name}: the second argument is the shape, an int or a tuple of ints, not {_shown(shape)}: "
            f"{usage(_SAMPLERS[name])}"
        ) from None
    if any(n < 0 for n in out):
        raise ValueError(f"{name}: negative dimensions are not allowed: shape {out}")
    return out


def _shown(value: Any) -> str:
    """A wrong argument, in few words."""
    if isinstance(value, (str, tuple, list)) or not hasattr(value, "dtype"):
        return repr(value)[:60]
    return str(type_of(unwrap(value)))


def common_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The result's shape: the one asked for, to which the parameters must broadcast, or theirs."""
    plain = all(type(p) in (int, float) for p in parameters)
    own = () if plain else np.broadcast_shapes(*(shape_of(unlisted(p)) for p in parameters))
    if shape is None:
        return own
    shape = shape_tuple(name, shape)
    try:
        fits = plain or np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name}: parameters of shape {own} don't broadcast to the shape {shape} that is asked for")
    return shape


def unlisted(value: Any) -> Any:
    """A list, of tracers too, as an array; other values as they are (Python's numbers adapt to their partners)."""
    return asarray(value) if isinstance(value, (list, tuple)) else value


def array(value: Any, dtype: Any = None) -> Any:
    """A parameter as an array or tracer."""
    value = asarray(value)
    return value if dtype is None or value.dtype == dtype else value.astype(dtype)


def known_dtype(name: str, dtype: Any, default: Any = np.float64) -> np.dtype:
    """A dtype, given as a dtype, a type or a name. NumPy takes anything that has one, a parameter out of place too."""
    if dtype is None:
        return np.dtype(default)
    if not isinstance(dtype, (np.dtype, type, str)):
        raise TypeError(f"{name}: dtype is a dtype such as np.float32, not {_shown(dtype)} of {type(dtype).__name__}")
    try:
        return np.dtype(dtype)
    except TypeError as e:
        raise TypeError(f"{name}: dtype={dtype!r} is no dtype: {e}") from None


def float_dtype(name: str, dtype: Any, *parameters: Any) -> np.dtype:
    """float32 or float64: the one asked for, or that of the parameters."""
    if dtype is None:
        kinds = [type_of(unwrap(unlisted(p))) for p in parameters if type(p) not in (int, float)]
        strong = [k.dtype for k in kinds if k.dtype.kind == "f" and not k.weak]
        dtype = np.float32 if strong and np.result_type(*strong).itemsize <= 4 else np.float64
    out = known_dtype(name, dtype)
    if out.char not in "fd":
        raise TypeError(f"{name}: random numbers have dtype float32 or float64, not {out}: convert with .astype")
    return out


def integer_dtype(name: str, dtype: Any) -> np.dtype:
    """An integer dtype."""
    out = known_dtype(name, dtype, np.int64)
    if out.kind not in "iu":
        raise TypeError(f"{name}: random integers have an integer dtype, not {out}: convert with .astype")
    return out
