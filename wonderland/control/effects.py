"""What a function does besides computing: `check`, `print`, and `host_call`, Python inside compiled code.

Effects belong to the Program that is being recorded, whatever their operands are, and stay in it though nobody reads a
result; compiled code keeps their order. Derivatives see them once, with the values of the forward pass.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.control.batched_loops import one_by_one
from wonderland.control.bodies import any_of, flat_operands, type_like
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, LostDerivativeError, check_function, user_line
from wonderland.core.functions import handles, is_array
from wonderland.core.kinds import kind_of
from wonderland.core.primitive import Primitive
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import NUMERIC_KINDS, ArrayType, is_python_scalar, shape_of, type_of
from wonderland.ops.elementwise import invert
from wonderland.ops.pattern import count, everything
from wonderland.transform.batch import materialize
from wonderland.transform.programs import record


class CheckError(ValueError):
    """A condition that `wl.check` was told must hold doesn't. `index` is where, in an array of conditions."""

    index: tuple[int, ...] = ()


# -- calls of Python ---------------------------------------------------------------------------------------------------


class HostCall:
    """A function of arrays that Python runs, and the types of its results. One that `watches` only looks at values."""

    function: Callable[..., Any]
    types: tuple[ArrayType, ...]
    watches: bool

    def __init__(self, name: str, function: Callable, types: Sequence[ArrayType] = (), watches: bool = False):
        self.__name__ = name
        self.function, self.types, self.watches = function, tuple(types), watches

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return self.function(*args)


def _host_jvp(primals: tuple, tangents: tuple, call: HostCall) -> tuple[Sequence, list]:
    if not call.watches:
        raise LostDerivativeError(
            f"host_call: {call.__name__} is Python, which has no derivative, and an argument of it is differentiated. "
            "Give it a rule: wrap the function that contains the host_call in wl.custom_jvp or wl.custom_vjp; or, if "
            "the derivative isn't wanted, pass wl.stop_gradient(x)."
        )
    return host_call_p(*primals, call=call), []


def _host_batch(size: int, args: tuple, batched: tuple, call: HostCall) -> tuple[Sequence, Sequence]:
    if call.watches:
        return host_call_p(*args, call=call), ()
    return one_by_one(host_call_p, size, args, batched, {"call": call})


def _host_pattern(types: tuple, params: dict) -> list:
    return [[everything(count(out), count(t)) for t in types] for out in params["call"].types]


host_call_p: Primitive = Primitive(
    "host_call",
    lambda *args, call: call(*args),
    lambda *types, call: call.types,
    jvp=_host_jvp,
    batch=_host_batch,
    pattern=_host_pattern,
    effect=True,
    multiple=True,
    impossible={"transpose": "Python is no linear operation", "lower": "compiled code calls Python"},
)


def host_call(f: Callable, result_types: Any, *args: Any) -> Any:
    """`f(*args)`, run by Python on NumPy arrays, also from inside compiled code and loops.

    `args` are trees of arrays; `f` gets arrays of its own in their places, and returns a tree like `result_types`. Its
    leaves are what the results are like: arrays or numbers, `(shape, dtype)` pairs, or anything with `.shape` and
    `.dtype`; `()` or None is for a function without result. Shapes and dtypes are checked. An exception that `f` raises
    comes out as it is. It runs each time, in order with other effects, even if nobody uses its result; under `vmap`
    once for each element. It has no derivative: give the function around it one, `wl.custom_jvp` or `wl.custom_vjp`.

        wl.host_call(lambda a: scipy.special.wofz(a).real, x, x)        # a result like x
        wl.host_call(lambda step, w: np.save(f"w{step}.npy", w), (), step, w)
    """
    check_function(f, "host_call")
    types, out_structure = _result_types(result_types)
    values, structure = flat_operands(args, "host_call")
    name = getattr(f, "__name__", type(f).__name__)

    def function(*arrays: Any) -> tuple:
        out = f(*structure.unflatten([np.array(a) for a in arrays]))
        return _checked_results(out, types, out_structure, name)

    outs = host_call_p(*values, call=HostCall(name, function, types))
    return out_structure.unflatten(handles(list(outs)))


def _result_types(given: Any) -> tuple[list[ArrayType], tree.Structure]:
    """The types at the leaves of a tree of examples, and its structure."""
    leaves, structure = tree.flatten(_typed(given))
    for leaf in leaves:
        if not isinstance(leaf, ArrayType) or leaf.dtype.kind not in NUMERIC_KINDS:
            raise ArgumentError(
                f"host_call: result_types has a leaf {leaf!r:.60}; it is a tree of arrays or numbers like the results, "
                "or of (shape, dtype) pairs: host_call(f, ((3,), np.float64), x)"
            )
    return leaves, structure


def _typed(given: Any) -> Any:
    if isinstance(given, tuple) and len(given) == 2 and _is_shape(given[0]):
        try:
            return ArrayType(tuple(map(int, given[0])), np.dtype(given[1]))
        except TypeError:
            pass
    kind = kind_of(given)
    if kind is not None and not kind.mutable:
        children, static = kind.flatten(given)
        return kind.unflatten(static, [_typed(child) for child in children])
    try:
        return type_like(given)
    except TypeError:
        return given


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in value)


def _checked_results(out: Any, types: Sequence[ArrayType], structure: tree.Structure, name: str) -> tuple:
    leaves, found = tree.flatten(out)
    if not types and out is None:
        return ()
    if found != structure:
        raise ArgumentError(f"host_call: {name} returned {found}, and result_types has {structure}")
    results = []
    for i, (leaf, expected) in enumerate(zip(leaves, types, strict=True)):
        array = np.array(leaf)
        weak = is_python_scalar(leaf)  # takes the dtype of what it becomes, as in NumPy
        fits = np.can_cast(array.dtype, expected.dtype, "same_kind") if weak else array.dtype == expected.dtype
        if array.shape != expected.shape or not fits:
            raise ArgumentError(
                f"host_call: result {i} of {name} has shape {array.shape} and dtype {array.dtype}, and result_types "
                f"says shape {expected.shape} and dtype {expected.dtype}. Return np.asarray(result, dtype) of that "
                "shape, or change result_types."
            )
        results.append(array.astype(expected.dtype, copy=False)[()])
    return tuple(results)


# -- printing ----------------------------------------------------------------------------------------------------------


def print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    """Python's `print`, when the code runs: in compiled code, loops and branches too, with the values there are then.

    Values are printed in order. Under derivatives it is the forward pass that prints, once; under `vmap` the values
    of the whole batch are printed at once, but inside a `cond` or `while_loop` that elements of the batch take
    differently, each element for itself.

        wl.print("step", i, "loss", loss)
    """
    leaves, structure = tree.flatten(values)
    dynamic = [isinstance(leaf, Tracer) or (isinstance(leaf, np.ndarray) and is_array(leaf)) for leaf in leaves]
    fixed = [None if d else leaf for leaf, d in zip(leaves, dynamic, strict=True)]

    def function(*arrays: Any) -> tuple:
        given = iter(arrays)
        shown = structure.unflatten([next(given) if d else leaf for leaf, d in zip(fixed, dynamic, strict=True)])
        builtins.print(*shown, sep=sep, end=end, file=file, flush=flush)
        return ()

    operands = [unwrap(leaf) for leaf, d in zip(leaves, dynamic, strict=True) if d]
    host_call_p(*operands, call=HostCall("print", function, watches=True))


# -- assertions --------------------------------------------------------------------------------------------------------


def check(condition: Any, message: str = "a check failed", *values: Any) -> None:
    """Raise `wl.CheckError(message)` unless the condition, or each element of it, is true; in compiled code too.

    `values` are put into the `{}` fields of the message. A check stays where it is, also in a derivative, though
    nothing that is computed depends on it.

        wl.check(x > 0, "x must be positive, got {}", x)
    """
    if not isinstance(message, str):
        raise ArgumentError(f"check(condition, message): the message is a string, not {type(message).__name__}")
    leaves = [unwrap(v) for v in (condition, *values)]
    for i, leaf in enumerate(leaves):
        try:
            found = type_of(leaf)
        except TypeError as error:
            what = "the condition" if i == 0 else f"value {i} of the message"
            raise ArgumentError(f"check: {what}: {error}") from None
        if i == 0 and found.dtype != bool:
            raise ArgumentError(
                f"check: the condition is a bool or an array of bools, got {found}{user_line()}. Compare: `x != 0`."
            )
    try:
        message.format(*leaves[1:])
    except (IndexError, KeyError) as error:
        raise ArgumentError(f"check: the message {message!r} has a field without a value ({error})") from None
    except Exception:  # a format for the values that there will be
        pass
    check_p(_all(leaves[0]), *leaves, message=message, depth=0)


def _all(condition: Any) -> Any:
    """One bool for an array of them."""
    return condition if shape_of(condition) == () else invert(any_of(invert(condition)))


def _check(fine: Any, condition: Any, *values: Any, message: str, depth: int) -> tuple:
    if not fine:
        raise _failure(condition, values, message, depth)
    return ()


def _failure(condition: Any, values: Sequence[Any], message: str, depth: int) -> CheckError:
    """The error for the first element that fails; `depth` axes of all operands are those of batches."""
    first = tuple(int(i) for i in np.argwhere(np.logical_not(condition))[0])
    shown = [v[first[:depth]] if depth else v for v in values]
    try:
        text = message.format(*shown)
    except (TypeError, ValueError):  # a format that such values don't have: what failed matters more
        text = " ".join([message, *map(str, shown)])
    batch, index = first[:depth], first[depth:]
    if index:
        text += f" (at index {index[0] if len(index) == 1 else index})"
    if batch:
        text += f" (in element {batch[0] if len(batch) == 1 else batch} of the batch)"
    error = CheckError(text)
    error.index = index
    return error


def _check_batch(size: int, args: tuple, batched: tuple, message: str, depth: int) -> tuple:
    condition, *values = (materialize(size, a, b) for a, b in zip(args[1:], batched[1:], strict=True))
    return check_p(_all(condition), condition, *values, message=message, depth=depth + 1), ()


def _check_lower(builder: Any, fine: Any, *operands: Any, message: str, depth: int) -> Any:
    def raising(condition: Any, *values: Any) -> tuple:
        raise _failure(condition, values, message, depth)

    types = [node.type for node in operands]
    call = HostCall("check", raising, watches=True)
    branches = (record(lambda *args: host_call_p(*args, call=call), types), record(lambda *args: (), types))
    return builder.branch(fine, branches, operands)


check_p: Primitive = Primitive(
    "check",
    _check,
    lambda *types, message, depth: (),
    jvp=lambda primals, tangents, **params: (check_p(*primals, **params), []),
    batch=_check_batch,
    pattern=lambda types, params: [],
    lower=_check_lower,
    effect=True,
    multiple=True,
    impossible={"transpose": "it has no results"},
)
