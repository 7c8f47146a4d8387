"""How NumPy's functions reach ours: `implements(np.sum)` registers a function of values under NumPy's name.

The function is written on values with `ops`; the wrapper takes tracers off and puts them on again. The same wrapper is
the function of the `wonderland.numpy` namespace, where a call without tracers goes to NumPy itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.tracer import FUNCTIONS, LATER, METHODS, UFUNCS, Tracer, View, unwrap
from wonderland.core.types import is_python_scalar, type_of
from wonderland.ops.shape import convert

spaces: dict[str, dict[str, Any]] = {"numpy": {}}  # name of NumPy's or SciPy's module -> our functions of its names
namespace = spaces["numpy"]

LATER.update({
    "numpy.linalg": "wonderland.numpy.linear_algebra", "numpy.fft": "wonderland.numpy.fourier",
    "scipy.special": "wonderland.scipy.special_functions",
})  # fmt: skip


def space_of(original: Any) -> dict[str, Any]:
    """The namespace that a function belongs to: np.linalg.norm is no name of np's."""
    module = getattr(original, "__module__", None) or "scipy.special"  # whose ufuncs don't say
    for name in ("numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg"):
        if module.startswith(name):
            return spaces.setdefault(name, {})
    return namespace


def values(tree: Any) -> Any:
    """Tracers replaced by their values, in nested lists and tuples too (np.stack([x, y]))."""
    if isinstance(tree, Tracer):
        return tree._get()
    if type(tree) in (list, tuple):
        return type(tree)(values(item) for item in tree)
    return tree


def has_tracer(tree: Any) -> bool:
    """Is there a tracer in this argument?"""
    if type(tree) in (list, tuple):
        return any(has_tracer(item) for item in tree)
    return isinstance(tree, Tracer)


def wrapped(result: Any) -> Any:
    """Results become tracers; several results each."""
    if type(result) in (tuple, list):
        return type(result)(wrapped(item) for item in result)
    return Tracer(result)


def implements(*targets: Any, method: str | tuple[str, ...] = ()) -> Callable:
    """Register a function of values for NumPy functions or ufuncs, and as methods of traced arrays."""

    def register(f: Callable) -> Callable:
        original = targets[0]

        def function(*args: Any, **kwargs: Any) -> Any:
            if not (has_tracer(args) or (kwargs and has_tracer(tuple(kwargs.values())))):
                return original(*args, **kwargs)
            kwargs = {k: values(v) for k, v in kwargs.items()} if kwargs else kwargs
            return wrapped(f(*map(values, args), **kwargs))

        function.__name__ = original.__name__
        function.__doc__ = f"NumPy's `{original.__name__}`, on traced arrays too."
        ufunc = _strengthened(function, original)
        for target in targets:
            if isinstance(target, np.ufunc):
                UFUNCS[target] = ufunc
            else:
                FUNCTIONS[target] = function
        for name in (method,) if isinstance(method, str) else method:
            METHODS[name] = function
        space_of(original)[original.__name__] = ufunc if isinstance(original, np.ufunc) else function
        return f

    return register


def _cast(value: Any, dtype: np.dtype, name: str) -> Any:
    kind = type_of(value)
    if not (kind.weak or np.can_cast(kind.dtype, dtype, "same_kind")):
        raise TypeError(f"np.{name}(..., dtype={dtype}) can't convert an operand of dtype {kind.dtype} to it")
    return convert(value, dtype=dtype)


def _strengthened(function: Callable, original: Any) -> Callable:
    """A ufunc called on Python scalars alone gives a NumPy scalar, which is not weak (operators keep them weak)."""

    def ufunc(*args: Any, **kwargs: Any) -> Any:
        if not has_tracer(args):
            return original(*args, **kwargs)
        if kwargs:
            dtype = kwargs.pop("dtype", None)
            if kwargs.pop("where", True) is not True or kwargs:
                raise TypeError(f"np.{function.__name__} on traced arrays takes no {', '.join(kwargs) or 'where'}=")
            if dtype is not None:
                args = tuple(Tracer(_cast(unwrap(a), np.dtype(dtype), function.__name__)) for a in args)
        raw = [unwrap(a) for a in args]
        if all(is_python_scalar(a) or (not isinstance(a, np.ndarray) and type_of(a).weak) for a in raw):
            args = tuple(Tracer(convert(a, dtype=type_of(a).dtype)) for a in raw)
        return function(*args)

    ufunc.__name__ = function.__name__
    ufunc.__doc__ = function.__doc__
    return ufunc


def view_function(original: Any, method: str | None = None) -> Any:
    """Register a function of a tracer that returns a view."""

    def register(f: Any) -> Any:
        def function(a: Any, *args: Any, **kwargs: Any) -> Any:
            return f(a, *args, **kwargs) if isinstance(a, Tracer) else original(a, *args, **kwargs)

        function.__name__ = original.__name__
        function.__doc__ = f"NumPy's `{original.__name__}`, on traced arrays too."
        FUNCTIONS[original] = function
        space_of(original)[original.__name__] = function
        if method:
            METHODS[method] = f
        return f

    return register


def operator(name: str, f: Callable, reverse: bool = True) -> None:
    """Register a binary operator and its reflection."""
    METHODS[f"__{name}__"] = _binary(f)
    if reverse:
        METHODS[f"__r{name}__"] = _binary(lambda x, y: f(y, x))


def _binary(f: Callable) -> Callable:
    def method(self: Tracer, other: Any) -> Any:
        other = unwrap(other)
        if isinstance(other, list):
            other = np.asarray(other)
        elif not (isinstance(other, (np.ndarray, np.generic)) or is_python_scalar(other) or hasattr(other, "type")):
            return NotImplemented
        return Tracer(f(self._get(), other))

    return method


def make_view(base: Tracer, get: Callable, put: Callable) -> Tracer:
    """A tracer that is a view of another."""
    return Tracer(get(base._get()), base, View(get, put))
