"""Constructors that can hold tracers: `array`, `asarray`, `zeros` and friends of the `wonderland.numpy` namespace.

NumPy offers no hook in `np.array([tracer])` or `np.zeros(n)[i] = tracer`; these functions do what those mean. `wl.lift`
puts them in the place of NumPy's while a function runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.level import freeze
from wonderland.core.tracer import Tracer, concrete, unwrap
from wonderland.core.types import NUMERIC_KINDS
from wonderland.numpy import elementwise as _elementwise  # noqa: F401  (registers np.copy)
from wonderland.numpy.dispatch import has_tracer, namespace
from wonderland.numpy.shape import broadcast_to, reshape_value, stack
from wonderland.ops.shape import convert


def _held(made: Any) -> Any:
    """A new array of numbers, as one that can be written with traced values."""
    if type(made) is not np.ndarray or made.dtype.kind not in NUMERIC_KINDS:
        return made
    return Tracer(freeze(made))  # nobody else has it: as an operand it needn't be copied


def array(object: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0, **kwargs: Any) -> Any:
    """NumPy's `array`; nested lists with traced entries are stacked. Without `copy=True`, a tracer is itself."""
    if not has_tracer(object):
        return np.array(object, dtype, copy=copy, ndmin=ndmin, **kwargs)
    same = isinstance(object, Tracer) and (dtype is None or np.dtype(dtype) == object.dtype)
    if same and not copy and object.ndim >= ndmin:
        return object
    value = _stacked(object)
    if dtype is not None and np.dtype(dtype) != value.dtype:
        value = convert(value, dtype=np.dtype(dtype))
    return Tracer(reshape_value(value, (1,) * (ndmin - len(value.shape)) + value.shape))


def _stacked(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return stack([_stacked(i) for i in item])
    value = unwrap(item)
    return value if hasattr(value, "dtype") else np.asarray(value)


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asarray`; a tracer comes back as itself."""
    return array(a, dtype, order=order, copy=copy)


def asanyarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asanyarray`; a tracer comes back as itself."""
    return array(a, dtype, order=order, copy=copy, subok=True)


def ascontiguousarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """NumPy's `ascontiguousarray`, which makes numbers arrays of one element."""
    return array(a, dtype, order="C", copy=None, ndmin=1)


def asfortranarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asfortranarray`; the order of a traced array's memory isn't the user's to choose."""
    return array(a, dtype, order="F", copy=None)


def _holding(make: Any) -> Any:
    """A constructor whose result can be written with traced values."""

    def constructor(*args: Any, **kwargs: Any) -> Any:
        if has_tracer(args) or has_tracer(tuple(kwargs.values())):
            if make is np.full:
                return _traced_full(*args, **kwargs)
            args, kwargs = _numbers(make, (args, kwargs))
        return _held(make(*args, **kwargs))

    constructor.__name__ = make.__name__
    constructor.__doc__ = f"NumPy's `{make.__name__}`; the result can be written with traced values."
    return constructor


def _numbers(make: Any, item: Any) -> Any:
    """Sizes: traced integers that have a value will do."""
    if isinstance(item, (list, tuple)):
        return type(item)(_numbers(make, i) for i in item)
    if isinstance(item, dict):
        return {name: _numbers(make, i) for name, i in item.items()}
    if isinstance(item, Tracer) and item.dtype.kind in "iu":
        return concrete(item._get(), f"a size in np.{make.__name__}")
    if isinstance(item, Tracer):
        raise TypeError(f"np.{make.__name__}: sizes must be integers, not {item.type}")
    return item


def _traced_full(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    value = unwrap(fill_value)
    if dtype is not None:
        value = convert(value, dtype=np.dtype(dtype))
    shape = _numbers(np.full, shape)
    return Tracer(broadcast_to(value, tuple(shape) if np.ndim(shape) else (int(shape),)))


def held_result(make: Any, owner: Any = None) -> Any:
    """Of a function (or a method of `owner`) that makes arrays from arrays: new ones hold traced values."""

    def constructor(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        source = (*args, *kwargs.values())[0] if owner is None else owner
        # np.asarray(a) of a plain array is that array: a write to it must reach a.
        return made if isinstance(source, np.ndarray) and np.may_share_memory(source, made) else _held(made)

    constructor.__name__ = make.__name__
    return constructor


LIFTED: dict[Any, Any] = {}  # NumPy's constructor -> ours
for _name in "zeros ones empty full eye identity".split():
    namespace[_name] = LIFTED[getattr(np, _name)] = _holding(getattr(np, _name))
for _convert in (array, asarray, asanyarray, ascontiguousarray, asfortranarray):
    namespace[_convert.__name__] = _convert
_NAMES = "array asarray asanyarray ascontiguousarray asfortranarray copy zeros_like ones_like empty_like full_like"
for _name in _NAMES.split():
    LIFTED[getattr(np, _name)] = held_result(namespace[_name])
