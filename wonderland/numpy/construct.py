"""Constructors that can hold tracers: `array`, `asarray`, `zeros` and friends of the `wonderland.numpy` namespace.

NumPy offers no hook in `np.array([tracer])` or `np.zeros(n)[i] = tracer`; these functions do what those mean. `wl.lift`
puts them in the place of NumPy's while a function runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.tracer import Tracer, unwrap
from wonderland.numpy.dispatch import has_tracer, namespace
from wonderland.numpy.shape import stack
from wonderland.ops.shape import convert


def array(object: Any, dtype: Any = None, *, copy: Any = True, **kwargs: Any) -> Any:
    """NumPy's `array`; nested lists with traced entries are stacked."""
    if not has_tracer(object):
        return np.array(object, dtype, copy=copy, **kwargs)
    value = _stacked(object)
    if dtype is not None and np.dtype(dtype) != value.dtype:
        value = convert(value, dtype=np.dtype(dtype))
    return Tracer(value)


def _stacked(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return stack([_stacked(i) for i in item])
    value = unwrap(item)
    return value if hasattr(value, "dtype") else np.asarray(value)


def asarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asarray`; a tracer comes back as itself."""
    if isinstance(a, Tracer) and (dtype is None or np.dtype(dtype) == a.dtype):
        return a
    return array(a, dtype) if has_tracer(a) else np.asarray(a, dtype, **kwargs)


def _holding(make: Any) -> Any:
    """A constructor whose result can be written with traced values."""

    def constructor(*args: Any, **kwargs: Any) -> Any:
        if has_tracer(args) or has_tracer(tuple(kwargs.values())):
            return _traced_full(make, *args, **kwargs)
        return Tracer(make(*args, **kwargs))

    constructor.__name__ = make.__name__
    constructor.__doc__ = f"NumPy's `{make.__name__}`; the result can be written with traced values."
    return constructor


def _traced_full(make: Any, shape: Any, fill_value: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    if make is not np.full:
        raise TypeError(f"np.{make.__name__}: sizes must be numbers, not traced values")
    from wonderland.numpy.shape import broadcast_to

    value = unwrap(fill_value)
    if dtype is not None:
        value = convert(value, dtype=np.dtype(dtype))
    return Tracer(broadcast_to(value, shape))


zeros, ones, empty, full = map(_holding, (np.zeros, np.ones, np.empty, np.full))
LIFTED = {np.array: array, np.asarray: asarray, np.zeros: zeros, np.ones: ones, np.empty: empty, np.full: full}
for _original, _ours in LIFTED.items():
    namespace[_original.__name__] = _ours


def _holding_like(name: str) -> Any:
    inner = namespace[name]

    def constructor(a: Any, *args: Any, **kwargs: Any) -> Any:
        out = inner(a, *args, **kwargs)
        return out if isinstance(out, Tracer) else Tracer(out)

    constructor.__name__ = name
    constructor.__doc__ = f"NumPy's `{name}`; the result can be written with traced values."
    return constructor


for _name in ("zeros_like", "ones_like", "empty_like", "full_like"):
    LIFTED[getattr(np, _name)] = _holding_like(_name)
