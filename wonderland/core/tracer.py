"""Tracers: what user code holds while it is transformed.

A tracer is a mutable handle on an immutable value. It speaks NumPy's protocols, so code written for `numpy` runs on it;
writing in place replaces the handle's value by a functional update, and a write to a view reaches its base, as NumPy's.
What `np.sum(tracer)` or `tracer.reshape` mean is in tables that `wonderland.numpy` fills.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import LostDerivativeError, MutationError
from wonderland.core.later import filled
from wonderland.core.level import Traced, _state, concrete
from wonderland.core.tracebacks import annotated, doing, noted, user_line
from wonderland.core.types import ArrayType, is_differentiable, is_python_scalar, shape_of, type_of

UFUNCS: dict[Any, Callable[..., Any]] = {}  # NumPy ufunc -> function of tracers
FUNCTIONS: dict[Any, Callable[..., Any]] = {}  # NumPy function -> function of tracers
METHODS: dict[str, Callable[..., Any]] = {}  # method or operator name -> function of tracers
PROPERTIES: dict[str, Callable[..., Any]] = {}  # "T" and the like


class ViewPath:
    """A view path: how to read a view from its base's value, and how to write it back."""

    __slots__ = ("get", "put")

    def __init__(self, get: Callable[[Any], Any], put: Callable[[list[Any], Any], Any]):
        self.get: Callable[..., Any] = get  # base value -> view value
        self.put: Callable[..., Any] = put  # [base value], new view value -> new base value


class Tracer:
    """A handle on a traced value, possibly a view of another handle."""

    __slots__ = ("__weakref__", "_array", "_base", "_born", "_seen", "_value", "_version", "_view")
    __array_priority__ = 1000

    def __init__(self, value: Any, base: Tracer | None = None, view: ViewPath | None = None):
        self._value = value
        self._base = base
        self._version = 0
        self._array = False  # is it an array without axes, where there could be a number?
        self._born = len(_state.levels)
        if base is not None:  # a view without a value reads it when it is asked for
            self._view = view
            self._seen = -1 if value is None else base._root()._version

    def _root(self) -> Tracer:
        handle = self
        while handle._base is not None:
            handle = handle._base
        return handle

    def _get(self) -> Any:
        """The current value; a view re-reads its base if that was written."""
        if self._base is not None:
            version = self._root()._version
            if version != self._seen:
                value = self._view.get(self._base._get())  # type: ignore[union-attr]
                if _state.floor is not None and self._born < _state.floor.depth:
                    return value  # read inside a branch: it belongs to that, and not to this handle
                self._value, self._seen = value, version
        return self._value

    def _update(self, make: Callable[[list], Any]) -> None:
        """Replace the value by `make([value])`; the list is the only owner, so that `make` may work in place."""
        if self._base is not None:
            new = make([self._get()])
            self._base._update(lambda box: self._view.put(box, new))  # type: ignore[union-attr]
            return
        for level in _state.levels[self._born :]:
            if level.once:
                raise MutationError(
                    f"an array that was made outside of {level.name} is written{user_line()} inside: that would happen "
                    "once, while the function is recorded, and not in every run. Make the array inside, or return the "
                    "new values (from a loop: carry them)."
                )
        _state.writes += 1
        box = [self._value]
        self._value = None
        try:
            self._value = make(box)
        except BaseException:
            self._value = box[0]
            raise
        self._version += 1

    def _is_number(self) -> bool:
        """Does it stand for a NumPy scalar, which nothing can be a view of?"""
        return self._base is None and shape_of(self._value) == () and not self._array

    def _replace(self, new: Any) -> None:
        self._update(lambda box: new)

    @property
    def type(self) -> ArrayType:
        return type_of(self._get())

    @property
    def shape(self) -> tuple[Any, ...]:
        return shape_of(self._get())

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(shape_of(self._get()))

    @property
    def size(self) -> int:
        return self.type.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, index: Any) -> Any:
        return annotated("reading a part", METHODS["__getitem__"], (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        annotated("writing a part", METHODS["__setitem__"], (self, index, value), {})

    def __getattr__(self, name: str) -> Any:
        method = METHODS.get(name)
        if method is not None:
            return lambda *args, **kwargs: annotated(name, method, (self, *args), kwargs)
        get = PROPERTIES.get(name)
        if get is not None:
            return get(self)
        if hasattr(np.ndarray, name):
            known = ", ".join(m for m in METHODS if m[0] != "_")
            raise AttributeError(f"traced arrays have no .{name} yet{user_line()}; they have {known}")
        raise AttributeError(f"a traced array has no attribute {name!r}")

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return PROPERTIES["__array_namespace__"](self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not kwargs and method == "__call__" and ufunc in UFUNCS:  # by far the most
            try:
                return UFUNCS[ufunc](*inputs)
            except (TypeError, ValueError, IndexError) as error:
                noted(error, ufunc, inputs)
                raise
        out = kwargs.pop("out", None)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        key = ufunc if method == "__call__" else (ufunc, method)
        f = UFUNCS.get(key)
        if f is None:
            home = "np" if hasattr(np, ufunc.__name__) else "scipy.special"
            f = filled(UFUNCS, "scipy.special").get(key) or _plain(getattr(ufunc, method), f"{home}.{name}", inputs)
        if out is not None and len(out) > 1:
            found = annotated(ufunc, f, inputs, kwargs)
            return tuple(r if o is None else _into(o, r, f"np.{name}(...)") for o, r in zip(out, found, strict=True))
        target = None if out is None else out[0]
        where = kwargs.pop("where", True) if target is not None and method == "__call__" else True
        result = annotated(ufunc if method == "__call__" else f"np.{name}", f, inputs, kwargs)
        if where is not True:  # elsewhere the output keeps what it has
            result = FUNCTIONS[np.where](where, result, target)
        return result if target is None else _into(target, result, f"np.{name}(..., out=array)")

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        f = FUNCTIONS.get(func)
        if f is None:
            module = getattr(func, "__module__", None) or "numpy"
            name = f"{module}.{getattr(func, '__name__', func)}".replace("numpy.", "np.")
            f = filled(FUNCTIONS, module).get(func) or _plain(func, name, (args, kwargs))
        out = kwargs.pop("out", None)
        try:
            result = f(*args, **kwargs)
        except (TypeError, ValueError, IndexError) as error:
            noted(error, func, args)
            raise
        return result if out is None else _into(out, result, f"np.{func.__name__}(..., out=array)")

    def _concrete(self, what: str) -> Any:
        """The plain value below, for decisions in Python; raises where there is none."""
        return concrete(self._get(), what)

    def _exact(self, what: str) -> Any:
        """The plain value, if handing it out loses no derivative."""
        value = self._get()
        plain = concrete(value, what)
        if is_differentiable(type_of(value).dtype) and carries_derivative(value):
            raise LostDerivativeError(
                f"{doing(f'{what} of a traced array')}{user_line()} would drop its derivative. Keep it an array: use "
                "wonderland.numpy (import wonderland.numpy as np), wrap the function in wl.lift, or, if the "
                "derivative isn't wanted, use wl.stop_gradient first."
            )
        return plain

    def __bool__(self) -> bool:
        return bool(self._concrete("a decision (if, while, and, or, not)"))

    def __int__(self) -> int:
        return int(self._concrete("int()"))

    def __index__(self) -> int:
        return operator.index(self._concrete("an index of Python's, a range, or a list's repetition"))

    def __float__(self) -> float:
        return float(self._exact("float()"))

    def __complex__(self) -> complex:
        return complex(self._exact("complex()"))

    def item(self, *index: Any) -> Any:
        """As NumPy's `item`; refused where it would drop a derivative."""
        value = self._exact(".item()")
        return value if is_python_scalar(value) else value.item(*index)

    def tolist(self) -> Any:
        """As NumPy's `tolist`; refused where it would drop a derivative."""
        return np.asarray(self._exact(".tolist()")).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        answer = PROPERTIES["__array__"](sys._getframe(1))
        what = "np.asarray, or an index into a plain array (wonderland.numpy.take(array, i) takes a traced one)"
        return np.array(self._exact(what), dtype=dtype) if answer is None else answer

    def __repr__(self) -> str:
        return f"Tracer({self._get()!r})"

    def __format__(self, spec: str) -> str:
        return repr(self) if not spec else format(concrete(self._get(), "formatting"), spec)

    def __hash__(self) -> int:
        raise TypeError("traced arrays, like arrays, are not hashable")


tree.ARRAYS.append(Tracer)


def _plain(function: Callable, name: str, inputs: Any) -> Callable:
    """NumPy's own function, for tracers that hold plain values without derivatives; refuses other ones."""
    for leaf in tree.leaves(inputs):
        value = unwrap(leaf)
        while hasattr(value, "primal") and value.tangent is None:
            value = value.primal
        if isinstance(value, Traced):
            raise TypeError(_unsupported(name))

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree.tree_map(lambda leaf: concrete(unwrap(leaf), name), (args, kwargs))
        return function(*args, **kwargs)

    return call


def _unsupported(name: str) -> str:
    return (
        f"{name} isn't supported on traced arrays yet{user_line()}. Write it with the functions listed by "
        "dir(wonderland.numpy), or give it a rule with wl.custom_jvp or wl.custom_vjp."
    )


def _into(out: Any, result: Any, what: str) -> Any:
    if not isinstance(out, Tracer):
        raise LostDerivativeError(
            f"{what}{user_line()} would write a traced value into a plain array of shape {np.shape(out)}, which can't "
            "hold it. Write `a = a + b` instead of `a += b`, make the array with wonderland.numpy, or wrap the "
            "function in wl.lift."
        )
    out[...] = result
    return out


def in_place(name: str) -> Callable:
    """The operator that writes what the operator `name` gives."""

    def method(self: Tracer, other: Any) -> Any:
        result = METHODS[name](self, other)
        if result.shape != self.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {self.shape} doesn't match the broadcast shape "
                f"{result.shape}"
            )
        if self._is_number():
            _state.writes += 1
            return result  # a NumPy scalar is replaced, not written
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            raise TypeError(f"cannot cast the result of {name}, {result.dtype}, into the array, {self.dtype}, in place")
        self[...] = result
        return self

    return method


def set_on_class(name: str, attribute: Any) -> None:
    """Give tracers an operator or a property: Python looks these up in the class, and not in a table."""
    setattr(Tracer, name, attribute)


def unwrap(value: Any) -> Any:
    """A tracer's current value; anything else as it is."""
    return value._get() if isinstance(value, Tracer) else value


def carries_derivative(value: Any) -> bool:
    """Does any of the Dual levels on the way down hold a tangent for this value?"""
    while isinstance(value, Traced):
        if getattr(value, "tangent", None) is not None:
            return True
        value = value.level.below(value)
    return False
