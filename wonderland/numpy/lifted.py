"""What `lift` makes of calls into NumPy, SciPy, `math` and `copy`.

A callable comes in as it stands at a call site; what to call in its place goes out, None if it is none of theirs.
Where a library has no hook for traced arrays (lists of tracers, results that are to be written, SciPy's Python
functions, `math.sin`), the replacement does what the call means; other calls go to the library's function unchanged.
"""

from __future__ import annotations

import copy
import itertools
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wonderland.core.later import filled
from wonderland.core.tracer import METHODS, Tracer
from wonderland.numpy.construct import _held, array, held_result
from wonderland.numpy.dispatch import IN_PLACE, has_tracer, spaces

_DISPATCHED = type(np.sum)  # functions that look for __array_function__
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
# These take several arrays in a list or tuple, in which the traced ones are found.
_TAKES_LISTS = frozenset(
    """
    concatenate concat stack vstack hstack dstack column_stack row_stack block select choose piecewise lexsort ix_
    broadcast_arrays multi_dot cho_solve
""".split()
)


def replacement(g: Any) -> Callable | None:
    """What to call in the place of a library's function or method; None if it is the user's or needs nothing."""
    kind = type(g)
    if kind in (np.ufunc, _DISPATCHED):
        return _of_numpy(g)
    if isinstance(g, type):
        return _enumerated if g is np.ndenumerate else _converter(g) if issubclass(g, np.inexact) else None
    if g is np.fromiter:
        return _from_iterator
    owner, module = getattr(g, "__self__", None), getattr(g, "__module__", None) or ""
    if kind is types.BuiltinFunctionType and isinstance(owner, np.ndarray):
        return _of_an_array(g, owner)
    if isinstance(owner, np.ufunc) or type(owner).__module__.startswith("numpy."):  # np.add.at, a random generator's
        return _of_numpy(g)
    if kind not in _FUNCTIONS:
        return None
    if module.startswith("numpy"):
        return _of_numpy(g)
    if module.startswith("scipy."):
        return _of_scipy(g, ".".join(module.split(".")[:2]))
    if module == "math":
        return _of_math(g)
    return held_result(g) if g is copy.copy or g is copy.deepcopy else None


def lasts(g: Any) -> bool:
    """Is it an object of a module, rather than a method bound a moment ago?"""
    return isinstance(getattr(g, "__self__", None), (types.ModuleType, type(None)))


def _of_numpy(g: Any) -> Callable:
    """NumPy's function: lists of traced numbers become arrays, new arrays of floats can be written."""
    takes_lists = getattr(g, "__name__", "") in _TAKES_LISTS

    def call(*args: Any, **kwargs: Any) -> Any:
        if not takes_lists and any(_is_list_of_traced(a) for a in (*args, *kwargs.values())):
            args = tuple(array(a) if _is_list_of_traced(a) else a for a in args)
            kwargs = {k: array(a) if k != "out" and _is_list_of_traced(a) else a for k, a in kwargs.items()}
        return _writable(g(*args, **kwargs), (args, tuple(kwargs.values())))

    return call


def _is_list_of_traced(item: Any) -> bool:
    """A list (or tuple) with traced floats in it; sizes and axes are integers."""
    if type(item) not in (list, tuple):
        return False
    return any(
        i.dtype.kind in "fc" if isinstance(i, Tracer) else type(i) in (list, tuple) and _is_list_of_traced(i)
        for i in item
    )


def _writable(out: Any, given: Any) -> Any:
    """Results that are new arrays of floats, as ones that can be written with traced values."""
    if type(out) in (list, tuple):
        return type(out)(_writable(o, given) for o in out)
    if type(out) is not np.ndarray or out.dtype.kind not in "fc":
        return out
    root = out
    while isinstance(root.base, np.ndarray):
        root = root.base
    # Part of an array there is (or of a file, or a buffer) stays that part.
    shared = not root.flags.owndata or any(np.may_share_memory(out, a) for a in _arrays(given))
    return out if shared else _held(out)


def _arrays(item: Any) -> Iterator[np.ndarray]:
    if isinstance(item, np.ndarray):
        yield item
    elif type(item) in (list, tuple):
        for i in item:
            yield from _arrays(i)


def _of_an_array(g: Any, owner: np.ndarray) -> Callable:
    """A method of a plain array, which may get traced arguments: `weights.dot(x)`."""
    if g.__name__ in ("copy", "astype"):
        return held_result(g, owner)
    ours = None if g.__name__ in IN_PLACE else METHODS.get(g.__name__)

    def call(*args: Any, **kwargs: Any) -> Any:
        if ours is not None and (has_tracer(args) or has_tracer(tuple(kwargs.values()))):
            return ours(Tracer(owner), *args, **kwargs)
        return _writable(g(*args, **kwargs), (owner, args, tuple(kwargs.values())))

    return call


def _converter(scalar: Any) -> Callable:
    """`np.float64(x)` and its like, which NumPy means as a conversion; without axes the result is a number."""

    def convert(*args: Any) -> Any:
        if len(args) != 1 or not has_tracer(args):
            return scalar(*args)
        made = array(args[0], scalar)
        return made if made.ndim else Tracer(made._get())

    return convert


def _enumerated(a: Any) -> Any:
    """`np.ndenumerate`, of traced arrays too."""
    return ((i, a[i]) for i in np.ndindex(a.shape)) if isinstance(a, Tracer) else np.ndenumerate(a)


def _from_iterator(iter: Any, dtype: Any, count: int = -1) -> Any:
    """`np.fromiter`, of traced numbers too."""
    items = list(iter if count < 0 else itertools.islice(iter, count))
    return array(items, dtype) if has_tracer(items) else _held(np.fromiter(items, dtype, count))


def _of_scipy(g: Any, module: str) -> Callable | None:
    """Ours, if the facade of SciPy's module has a function of that name; without traced arguments it calls SciPy's."""
    name = g.__name__
    if getattr(sys.modules.get(module), name, None) is not g:
        return None
    ours = filled(spaces, module).get(module, {}).get(name)
    return None if ours is None else _of_numpy(ours)


def _of_math(g: Any) -> Callable | None:
    """NumPy's function of the name for traced numbers; math's own roundings give Python's integers."""
    numpys = getattr(np, g.__name__, None)
    if not isinstance(numpys, np.ufunc):
        return None
    integer = g in (math.floor, math.ceil, math.trunc)

    def call(*args: Any) -> Any:
        if not has_tracer(args):
            return g(*args)
        if g is math.log and len(args) == 2:
            return np.log(args[0]) / np.log(args[1])
        out = numpys(*args)
        return int(out) if integer else out

    return call


def vectorized(g: np.vectorize, f: Callable) -> Callable:
    """A call of `np.vectorize(f)`, element by element where an argument is traced."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or g.signature or g.excluded or not has_tracer(args):
            return g(*args, **kwargs)
        whole = np.broadcast_shapes(*(np.shape(a) for a in args))
        flat = [np.reshape(np.broadcast_to(a, whole), (-1,)) for a in args]
        results = [f(*(column[i] for column in flat)) for i in range(math.prod(whole))]
        if results and isinstance(results[0], tuple):
            return tuple(np.reshape(array(list(column)), whole) for column in zip(*results, strict=True))
        return np.reshape(array(results), whole)

    return call
