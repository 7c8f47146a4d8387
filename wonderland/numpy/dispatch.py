"""How NumPy's functions reach ours: `implements(np.sum)` registers a function of values under NumPy's name.

The function is written on values with `ops`; the wrapper takes tracers off and puts them on again. The same wrapper is
the function of the `wonderland.numpy` namespace, where a call without tracers goes to NumPy itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.level import Traced
from wonderland.core.primitive import Primitive
from wonderland.core.tracebacks import noted
from wonderland.core.tracer import FUNCTIONS, METHODS, UFUNCS, Tracer, ViewPath, in_place, set_on_class
from wonderland.core.types import PYTHON_SCALARS, type_of
from wonderland.numpy.missing import Missing
from wonderland.ops.shape import convert

_SUBMODULES = ("numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg", "scipy.signal")
# Name of NumPy's or SciPy's module -> our functions of its names.
spaces: dict[str, dict[str, Any]] = {name: {} for name in ("numpy", *_SUBMODULES)}
namespace: dict[str, Any] = spaces["numpy"]


def space_of(original: Any) -> dict[str, Any]:
    """The namespace that a function belongs to: np.linalg.norm is no name of np's; a missing one is a name of none."""
    if isinstance(original, Missing):
        return {}
    module = getattr(original, "__module__", None) or "scipy.special"  # whose ufuncs don't say
    for name in _SUBMODULES:
        if module.startswith(name):
            return spaces[name]
    return namespace


def present(originals: Iterable[Any]) -> list[Any]:
    """The functions that the installed NumPy and SciPy have."""
    return [f for f in originals if not isinstance(f, Missing)]


def values(tree: Any) -> Any:
    """Tracers replaced by their values, in nested lists and tuples too (np.stack([x, y]))."""
    if type(tree) is Tracer:
        return tree._get()
    if type(tree) in (list, tuple):
        return type(tree)(values(item) for item in tree)
    return tree


_HOLDERS = frozenset({Tracer, list, tuple})  # what `values` looks into; it isn't asked about other arguments


def has_tracer(tree: Any) -> bool:
    """Is there a tracer in this argument?"""
    if type(tree) in (list, tuple):
        return any(has_tracer(item) for item in tree)
    return isinstance(tree, Tracer)


def wrapped(result: Any, handle: Callable = Tracer) -> Any:
    """Results become tracers; several results each."""
    if type(result) in (tuple, list):
        return type(result)(wrapped(item, handle) for item in result)
    if isinstance(result, tuple):  # a named one
        return type(result)(*(wrapped(item, handle) for item in result))
    return handle(result)


# NumPy's functions whose results without axes are arrays, not numbers: `out += 1` writes to them.
ARRAYS = frozenset(
    """
    where select piecewise zeros_like ones_like empty_like full_like copy real_if_close i0 roll pad tile resize block
    isin cov tensordot tensorsolve apply_along_axis broadcast_arrays
""".split()
)


def array_handle(value: Any) -> Tracer:
    """A handle on a value that is an array, also without axes."""
    handle = Tracer(value)
    handle._array = True
    return handle


def implements(*targets: Any, method: str | tuple[str, ...] = ()) -> Callable:
    """Register a function of values for NumPy functions or ufuncs, and as methods of traced arrays."""

    def register(f: Callable) -> Callable:
        original = targets[0]
        handle = array_handle if original.__name__ in ARRAYS else Tracer

        def traced(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                kwargs = {k: values(v) if type(v) in _HOLDERS else v for k, v in kwargs.items()}
            out = f(*[values(a) if type(a) in _HOLDERS else a for a in args], **kwargs)
            return handle(out) if isinstance(out, Traced) else wrapped(out, handle)

        if isinstance(original, np.ufunc):
            traced = _ufunc(f, original.__name__)
        for target in present(targets):
            (UFUNCS if isinstance(target, np.ufunc) else FUNCTIONS)[target] = traced
        for name in (method,) if isinstance(method, str) else method:
            METHODS[name] = traced
        space_of(original)[original.__name__] = _drop_in(original, traced)
        return f

    return register


def _cast(value: Any, dtype: np.dtype, name: str) -> Any:
    kind = type_of(value)
    if not (kind.weak or np.can_cast(kind.dtype, dtype, "same_kind")):
        raise TypeError(f"np.{name}(..., dtype={dtype}) can't convert an operand of dtype {kind.dtype} to it")
    return convert(value, dtype=dtype)


def _drop_in(original: Any, traced: Callable) -> Callable:
    """The function of the drop-in namespace: NumPy's own where no argument is traced."""

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            if has_tracer(args) or (kwargs and has_tracer(tuple(kwargs.values()))):
                return traced(*args, **kwargs)
            return original(*args, **kwargs)
        except (TypeError, ValueError, IndexError) as error:
            noted(error, original, args)
            raise

    function.__name__ = original.__name__
    function.__doc__ = f"NumPy's `{original.__name__}`, on traced arrays too."
    for name in ("reduce", "accumulate", "reduceat", "outer", "at") if isinstance(original, np.ufunc) else ():
        setattr(function, name, getattr(original, name))  # NumPy's own: they reach ours when they meet a tracer
    return function


def _ufunc(f: Callable, name: str) -> Callable:
    """A function of values as a ufunc of tracers, with the options that all ufuncs have."""

    def ufunc(*args: Any, **kwargs: Any) -> Any:
        raw = [a._get() if type(a) is Tracer else np.asarray(a) if type(a) in (list, tuple) else a for a in args]
        if kwargs:
            dtype = kwargs.pop("dtype", None)
            if kwargs.pop("where", True) is not True or kwargs:
                raise TypeError(
                    f"np.{name} on traced arrays takes no {', '.join(kwargs) or 'where'}=. For a part of the elements "
                    f"write np.where(mask, np.{name}(...), other)."
                )
            if dtype is not None:
                raw = [_cast(a, np.dtype(dtype), name) for a in raw]
        for a in raw:
            if type(a) is np.ndarray or (type(a) not in PYTHON_SCALARS and a.shape):
                break
        else:  # on Python scalars alone it gives a NumPy scalar, which is not weak (operators keep them weak)
            if all(type_of(a).weak for a in raw):
                raw = [convert(a, dtype=type_of(a).dtype) for a in raw]
        out = f(*raw)
        return Tracer(out) if isinstance(out, Traced) else wrapped(out)

    return ufunc


def as_function(primitive: Primitive) -> Callable:
    """A primitive as a function of arrays, traced or not: `f(*operands, **params)`."""

    def function(*args: Any, **params: Any) -> Any:
        out = primitive(*[np.asarray(a) if type(a) in (list, tuple) else values(a) for a in args], **params)
        return tuple(handles(list(out))) if primitive.multiple else handles([out])[0]

    function.__name__ = primitive.name
    return function


def on_handles(original: Any, method: str | None = None) -> Callable:
    """Register a function that takes tracers as they are, not their values: it returns views of them, or writes."""

    def register(f: Callable) -> Callable:
        if original.__name__ in ARRAYS:
            f = _returning_arrays(f)
        for target in present([original]):
            FUNCTIONS[target] = space_of(target)[target.__name__] = _drop_in(target, f)
        if method:
            METHODS[method] = f
        return f

    return register


def _returning_arrays(f: Callable) -> Callable:
    def function(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if type(part) is Tracer:
                part._array = True
        return out

    return function


BINARY: list[str] = []  # the binary operators of tracers and their reflections: __add__, __radd__
# Methods that change the array they belong to: a plain array can't be made to hold a traced value afterwards.
IN_PLACE: set[str] = set()


def writing_method(name: str, method: Callable) -> None:
    """Register a method of traced arrays that changes its array."""
    METHODS[name] = method
    IN_PLACE.add(name)


def operator(name: str, f: Callable, reverse: bool = True) -> None:
    """Register a binary operator, and its reflection and in-place form unless it is a comparison."""
    BINARY.append(f"__{name}__")
    set_operator(BINARY[-1], _binary(BINARY[-1], f))
    if reverse:
        set_operator(f"__i{name}__", in_place(BINARY[-1]))
        BINARY.append(f"__r{name}__")
        set_operator(BINARY[-1], _binary(BINARY[-1], lambda x, y: f(y, x)))


def set_operator(name: str, method: Callable) -> None:
    """Make a method an operator of tracers: in the table, and on the class, where Python looks operators up."""
    METHODS[name] = method
    set_on_class(name, method)


# operator -> what it does with operands that aren't arrays (sparse matrices)
FOREIGN: dict[str, Callable[..., Any]] = {}
_OPERANDS = PYTHON_SCALARS | {np.ndarray}  # by far the most, beside tracers


def _binary(name: str, f: Callable) -> Callable:
    def method(self: Tracer, other: Any) -> Any:
        if type(other) is Tracer:
            other = other._get()
        elif isinstance(other, list):
            if name in ("__mul__", "__rmul__") and self._is_number():
                return NotImplemented  # Python repeats the list, and asks for an index
            other = values(namespace["array"](other))
        elif type(other) not in _OPERANDS and not isinstance(other, (np.ndarray, np.generic, Traced)):
            return FOREIGN[name](self, other) if name in FOREIGN else NotImplemented
        try:
            return Tracer(f(self._get(), other))
        except (TypeError, ValueError, IndexError) as error:
            noted(error, name, (self._get(), other))
            raise

    return method


def make_view(base: Tracer, get: Callable, put: Callable) -> Tracer:
    """A tracer that is a view of another."""
    return Tracer(get(base._get())) if base._is_number() else Tracer(get(base._get()), base, ViewPath(get, put))
