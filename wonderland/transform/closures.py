"""What functions close over: the mutable objects that they must not write to, and the traced values that they use."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, MutationError, check_function
from wonderland.core.functions import Call, handles
from wonderland.core.level import Traced
from wonderland.core.program import Program, hoist, run
from wonderland.core.tracebacks import inside_edge
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import PYTHON_SCALARS, type_of
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


def _mutable_objects(f: Callable, depth: int = 3) -> list:
    """The registered mutable objects that a function, or one that it holds, closes over."""
    found = []
    for cell in getattr(inside_edge(f), "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        kind = tree.kind_of(value)
        if kind is not None and kind.mutable:
            found.append(value)
        elif callable(value) and depth:
            found += _mutable_objects(value, depth - 1)
    return found


MOST_SEEN = 5_000  # objects that the search for tracers looks at: a list of a million numbers isn't worth it
_PLAIN = (np.ndarray, np.generic, str, bytes, type, types.ModuleType, types.BuiltinFunctionType, np.ufunc, np.dtype)


def held_tracers(roots: Iterable[Any], seen: set[int] | None = None) -> list[Tracer]:
    """The handles on living traced values that functions hold: in closures, defaults, containers and attributes.

    The nearest first: beyond a number of objects nobody looks. `seen` has the ids of those that were looked at.
    """
    seen = set() if seen is None else seen
    found: list[Tracer] = []
    todo = list(roots)
    for thing in todo:  # which grows
        if len(seen) > MOST_SEEN:
            break
        kind = type(thing)
        if kind in PYTHON_SCALARS or thing is None or isinstance(thing, _PLAIN) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if kind is Tracer:
            value = thing._get()
            if isinstance(value, Traced) and value.level.alive:
                found.append(thing)
        else:
            todo += _parts(thing)
    return found


def _parts(thing: Any) -> list:
    """What a function or an object holds."""
    if isinstance(thing, types.FunctionType):
        parts = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
        for cell in thing.__closure__ or ():
            try:
                parts.append(cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        names = (thing.__globals__.get(name) for name in thing.__code__.co_names)
        return parts + [value for value in names if type(value) is Tracer]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set, frozenset)):
        return list(thing)
    if isinstance(thing, (Program, types.CodeType, types.FrameType)):
        return []
    if type(thing).__module__.startswith("wonderland.compile"):  # a jitted function, whose caches hold no tracers
        return [thing.__wrapped__] if hasattr(thing, "__wrapped__") else []
    slots = [getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ()) if isinstance(name, str)]
    return [*getattr(thing, "__dict__", {}).values(), *slots]


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
