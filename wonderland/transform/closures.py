"""What functions close over: the mutable objects that they must not write to, and the traced values that they use."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, MutationError, check_function
from wonderland.core.functions import Call, handles
from wonderland.core.kinds import kind_of
from wonderland.core.level import Level, Traced
from wonderland.core.program import Program, hoist, run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.transformed import ByName
from wonderland.core.types import type_of
from wonderland.transform.derivatives import named
from wonderland.transform.programs import record


@contextmanager
def unwritten(f: Callable, what: str, remedy: str) -> Iterator[None]:
    """While this runs `f`, the mutable objects that f closes over stay as they are; otherwise it raises."""
    held = _mutable_objects(f)
    before = [dict(vars(m)) for m in held]
    written = []
    try:
        yield
    finally:
        for m, attributes in zip(held, before, strict=True):
            if any(vars(m).get(k) is not v for k, v in attributes.items()):
                vars(m).update(attributes)  # as it was: what was written has no value outside
                written.append(type(m).__name__)
    if written:
        raise MutationError(f"{what} wrote to a {written[0]} that it doesn't get as an argument. {remedy}")


def _mutable_objects(f: Callable) -> list:
    """The registered mutable objects that a function holds."""
    kinds = [(thing, kind_of(thing)) for thing in held([f])]
    return [thing for thing, kind in kinds if kind is not None and kind.mutable]


def held_tracers(roots: Iterable[Any], seen: set[int] | None = None) -> list[Tracer]:
    """The handles on living traced values that functions hold. `seen` has the ids of what was looked at."""
    found = [(thing, thing._get()) for thing in held(roots, seen) if type(thing) is Tracer]
    return [handle for handle, value in found if isinstance(value, Traced) and value.level.alive]


MOST_SEEN = 5_000  # objects that a search looks at: a list of a million objects isn't worth it
_PLAIN = (
    np.ndarray, int, float, complex, str, type(None), np.generic, bytes, type, types.ModuleType,
    types.BuiltinFunctionType, np.ufunc, np.dtype,
)  # fmt: skip
_CONTAINERS = frozenset({dict, list, tuple})  # by far the most, beside plain values
_OURS = (Program, Level, Traced, types.CodeType, types.FrameType)  # nothing of the user's is in them

Holder = types.CellType | dict | list
Part = tuple[Holder | None, Any, Any]  # the holder of a value, if it can change, the key there, the value


def held(roots: Iterable[Any], seen: set[int] | None = None) -> Iterator[Any]:
    """What functions hold in closures, defaults, containers and attributes: the nearest first, and no plain values."""
    seen = set() if seen is None else seen
    todo = list(roots)
    for thing in todo:  # which grows
        if len(seen) > MOST_SEEN:
            return
        if (type(thing) not in _CONTAINERS and isinstance(thing, _PLAIN)) or id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        todo += [value for _, _, value in parts(thing)]
        if isinstance(thing, types.FunctionType):
            names = (thing.__globals__.get(name) for name in thing.__code__.co_names)
            todo += [value for value in names if type(value) is Tracer]


def parts(thing: Any) -> Iterable[Part]:
    """What a function (without its globals) or an object holds, and where; the first of many."""
    if isinstance(thing, dict):
        return [(thing, key, value) for key, value in islice(list(thing.items()), MOST_SEEN)]
    if isinstance(thing, list):
        return [(thing, i, value) for i, value in enumerate(thing[:MOST_SEEN])]
    if isinstance(thing, (tuple, set, frozenset, deque)):
        return [(None, i, value) for i, value in enumerate(islice(thing, MOST_SEEN))]
    if isinstance(thing, types.FunctionType):
        defaults = (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        attributes = [  # what it wraps, if it is called, is in a cell, too
            (thing.__dict__, name, value) for name, value in list(thing.__dict__.items()) if name != "__wrapped__"
        ]
        return [*_cells(thing), *((None, thing.__name__, value) for value in defaults), *attributes]
    if isinstance(thing, types.MethodType):
        return [(None, None, thing.__func__), (None, "self", thing.__self__)]
    if isinstance(thing, functools.partial):
        return [(None, None, value) for value in (thing.func, *thing.args, *thing.keywords.values())]
    if isinstance(thing, ByName) and thing.only_wraps:
        return [(None, None, thing.__wrapped__)]  # type: ignore[attr-defined]
    if isinstance(thing, (Tracer, *_PLAIN, *_OURS)):
        return []
    attributes = getattr(thing, "__dict__", {})
    declared = (vars(cls).get("__slots__", ()) for cls in type(thing).__mro__)
    slots = [name for names in declared for name in ((names,) if isinstance(names, str) else names)]
    return [
        *((attributes, name, value) for name, value in list(attributes.items())),
        *((None, name, getattr(thing, name, None)) for name in slots),
    ]


def _cells(f: types.FunctionType) -> Iterator[Part]:
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield cell, name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def closure_convert(f: Callable, *args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`(g, captured)` with `g(*args, *captured) == f(*args)`: the traced values that `f` closes over as arguments.

    A rule of `custom_jvp` or `custom_vjp` knows the derivatives of a function with respect to its arguments alone. So
    what the function closes over, if it is to be differentiated, has to become an argument of it. `args` are examples
    of the arguments: `f` is recorded for their shapes and dtypes (so it decides by `wl.cond`, not by `if`), and `g`
    takes arguments of these. Arrays and numbers that aren't traced stay inside, as they are.

        def root(f, guess):
            g, captured = wl.closure_convert(f, guess)
            solve = wl.custom_vjp(lambda guess, *captured: newton(lambda x: g(x, *captured), guess))
            solve.defvjp(forward, backward)    # of which `backward` has a cotangent for each of `captured`
            return solve(guess, *captured)
    """
    check_function(f, "closure_convert")
    call = Call(f, args, {})
    name = getattr(f, "__name__", "the function")
    with unwritten(f, f"closure_convert: {name}", "Pass the object to the function."):
        program = record(lambda *values: call.run(values), call.types, f"closure_convert({name})")
    if call.written:
        raise MutationError(f"closure_convert: {name} writes to an argument. Return the new values instead.")
    traced = [(v, value) for v, value in program.constants if isinstance(value, Traced)]
    rest = [(v, value) for v, value in program.constants if not isinstance(value, Traced)]
    opened, values = hoist(Program(program.inputs, program.equations, program.outputs, traced))
    closed = Program(opened.inputs, opened.equations, opened.outputs, rest)
    arguments, result = call.structure.children[0], call.out_structure
    assert result is not None

    def converted(*given: Any) -> Any:
        count = len(arguments.children)
        if len(given) != count + len(values):
            raise ArgumentError(
                f"{name}, converted, takes {count} arguments and the {len(values)} captured values, got {len(given)}"
            )
        leaves, structure = tree.flatten(given[:count])
        if structure != arguments:
            raise ArgumentError(f"{name} was converted for arguments {arguments}, got {structure}")
        flat = [unwrap(leaf) for leaf in (*given[count:], *leaves)]
        for i, (value, v) in enumerate(zip(flat, closed.inputs, strict=True)):
            if (type_of(value).shape, type_of(value).dtype) != (v.shape, v.dtype):
                what = f"captured value {i}" if i < len(values) else f"argument leaf {i - len(values)}"
                raise ArgumentError(f"{name} was converted for {v.type} as {what}, got {type_of(value)}")
        outs = list(run(closed, flat))
        return result.unflatten(handles(outs))

    return named(converted, f, "closure_convert"), handles(values)
