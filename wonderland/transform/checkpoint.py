"""Checkpointing: reverse mode that keeps little of a function and computes the rest again in the backward pass.

A checkpointed call is one equation that holds the function's Program. Linearised, it keeps its operands, and of the
inside what a policy says; its linear part is another equation, `recompute`, whose Program computes the residuals again
and then uses them. Transposing that Program gives the backward pass of the call. Compiled code contains the first
Program like any other call, and the second as a region of its own: nothing in it is shared with equations outside, and
none of it runs before the cotangents are there. So the memory plan sees residuals that live as long as the region does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast, overload

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, NoValueError, check_function
from wonderland.core.functions import Call, is_array, mutable_leaves
from wonderland.core.level import Level, Traced, bind, concrete, running
from wonderland.core.primitive import Primitive
from wonderland.core.program import Equation, Program, Record, Var, eliminate_dead, hoist, run, subprograms
from wonderland.core.statics import typed
from wonderland.core.tracer import Tracer
from wonderland.core.types import PYTHON_SCALARS, ArrayType, P, R
from wonderland.ops.work import Runs, view
from wonderland.transform.closures import unwritten
from wonderland.transform.derivatives import named, quiet
from wonderland.transform.dual import DualValue
from wonderland.transform.holding import Holding
from wonderland.transform.programs import cached, linearize_program, pick, record, scatter_flags

Policy = Callable[[Equation], bool]  # is what this equation makes kept?


# -- policies ----------------------------------------------------------------------------------------------------------


def _nothing(equation: Equation) -> bool:
    return False


def _everything(equation: Equation) -> bool:
    return True


def _products(equation: Equation) -> bool:
    return equation.primitive.bilinear and not equation.primitive.elementwise


@dataclass(frozen=True)
class save_names:
    """The policy that keeps what `wl.checkpoint_name` gave one of these names."""

    names: tuple[str, ...]

    def __init__(self, *names: str):
        object.__setattr__(self, "names", names)
        for name in names:
            if not isinstance(name, str):
                raise ArgumentError(f'save_names takes names, save_names("a", "b"), not {name!r}')

    def __call__(self, equation: Equation) -> bool:
        return equation.primitive is name_p and equation.params["name"] in self.names


POLICIES: dict[str, Policy] = {"nothing": _nothing, "everything": _everything, "products": _products}


def as_policy(policy: Any) -> Policy:
    """A policy by its name, or the function itself."""
    if callable(policy):
        return cast(Policy, policy)
    found = POLICIES.get(policy) if isinstance(policy, str) else None
    if found is None:
        raise ArgumentError(
            f"checkpoint: policy={policy!r}. It is one of {', '.join(map(repr, POLICIES))}, wl.save_names(...) with "
            "names given by wl.checkpoint_name, or a function that says of an equation whether its results are kept."
        )
    return found


def checkpoint_name(x: Any, name: str) -> Any:
    """`x` (an array or a tree of them), under a name by which `wl.save_names` keeps it."""
    if not isinstance(name, str):
        raise ArgumentError(f'checkpoint_name(x, "name"): the name is a string, not {name!r}')
    return tree.tree_map(lambda v: Tracer(name_p(v._get(), name=name)) if isinstance(v, Tracer) else v, x)


def _name_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    return [(np.arange(types[0].size), np.arange(types[0].size))]


name_p: Primitive = Primitive(
    "checkpoint_name",
    lambda x, name: x,
    lambda x, name: x,
    linear=(0,),
    transpose=lambda ct, x, name: [ct],
    batch=lambda size, args, batched, name: name_p(args[0], name=name),
    pattern=_name_pattern,
    lower=lambda builder, x, name: x,
    cost=view,
)


# -- the primitives ----------------------------------------------------------------------------------------------------


@cached
def silent(program: Program) -> Program:
    """A Program to be run again: without what it did the first time besides computing its outputs."""
    if not program.effects:
        return program
    equations = [_silent_equation(e) for e in program.equations]
    return eliminate_dead(Program(program.inputs, equations, program.outputs, program.constants), effects=False)


def _silent_equation(equation: Equation) -> Equation:
    def change(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(change, value)) if any(isinstance(v, Program) for v in value) else value
        return silent(value) if isinstance(value, Program) else value

    params = {key: change(value) for key, value in equation.params.items()}
    return Equation(equation.primitive, equation.inputs, equation.outputs, params)


@cached
def divided(
    program: Program, nonzero: tuple[Any, ...], policy: Policy
) -> tuple[Program, Program, bool, tuple[Any, ...], tuple[Any, ...]]:
    """Linearise a Program: (forward, linear, does linear recompute?, which inputs it takes, which outputs it gives).

    forward: inputs -> (outputs, what is kept); linear: (the inputs it takes, what is kept, tangents) -> tangents.
    """
    count = len(program.outputs)
    whole, linear, flags, _ = linearize_program(program, nonzero, (False,) * count)
    residuals = whole.outputs[count:]
    may = _keepable(whole, policy)
    needed = {a for a in residuals if isinstance(a, Var)}
    kept: dict[Var, None] = {}
    again: list[Equation] = []
    for equation in reversed(whole.equations):
        wanted = [v for v in equation.outputs if v in needed]
        if not wanted:
            continue
        keep = equation.primitive is not name_p and all(v in may for v in wanted)
        if keep or _silent_equation(equation).has_effects():  # what Python returned is no matter of computing it again
            kept.update(dict.fromkeys(wanted))
        else:
            again.append(equation)
            needed.update(a for a in equation.inputs if isinstance(a, Var))
    used = tuple(v in needed for v in whole.inputs)
    forward = program  # where nothing is kept: loops and branches in it don't compute what nobody reads
    if kept:
        outputs = (*whole.outputs[:count], *kept)
        forward = eliminate_dead(Program(whole.inputs, whole.equations, outputs, whole.constants))
    given = [*pick(whole.inputs, used), *kept]
    constants = [(v, value) for v, value in whole.constants if v in needed]
    recomputed = silent(Program(given, again[::-1], residuals, constants))

    def f(*args: Any) -> Sequence[Any]:
        return run(linear, (*run(recomputed, args[: len(given)]), *args[len(given) :]))

    types = [*(v.type for v in given), *pick(program.input_types, nonzero)]
    return forward, record(f, types), bool(again), used, flags


def _keepable(program: Program, policy: Policy) -> set[Var]:
    """The variables that the policy keeps; through the results of inner Programs too (a loop's stacked values)."""
    found: set[Var] = set()
    for equation in program.equations:
        for inner in subprograms(equation):
            if len(inner.outputs) == len(equation.outputs):
                inside = _keepable(inner, policy)
                pairs = zip(equation.outputs, inner.outputs, strict=True)
                found.update(v for v, a in pairs if a in inside)
        if policy(equation):
            found.update(equation.outputs)
            if equation.primitive is name_p:  # the same value without its name
                found.update(a for a in equation.inputs if isinstance(a, Var))
    return found


def _linearize(primitive: Primitive, primals: tuple, tangents: tuple, program: Program, policy: Policy) -> tuple:
    """What is kept is the policy's matter, and the linear part is a `recompute`, whichever of the two this is."""
    nonzero = tuple(t is not None for t in tangents)
    forward, linear, recomputes, used, flags = divided(program, nonzero, policy)
    count = len(program.outputs)
    outs = primitive(*primals, program=forward, policy=policy)
    operands = [*pick(primals, used), *outs[count:], *pick(tangents, nonzero)]
    if recomputes:
        tangents_out = recompute_p(*operands, program=linear, policy=policy)
    else:
        tangents_out = run(linear, operands)
    return outs[:count], scatter_flags(tangents_out, flags)


def _apart(builder: Any, *operands: Any, program: Program, policy: Policy) -> Any:
    """A branch of one: a region that the compiler neither merges with others nor starts early."""
    return builder.branch(builder.constant(np.array(0)), (program,), operands)


def _call(name: str, **slots: Any) -> Primitive:
    primitive = Holding("program").primitive(
        name,
        lambda *args, program, policy: run(program, args),
        linearize=lambda primals, tangents, **params: _linearize(primitive, primals, tangents, **params),
        **slots,
    )
    return primitive


checkpoint_p: Primitive = _call(
    "checkpoint",
    inline=lambda params: params["program"],
    impossible={"lower": "compiled code contains its Program"},
)
recompute_p: Primitive = _call(
    "recompute",
    calls=lambda params: (params["program"],),
    lower=_apart,
    cost=lambda types, outs, params: Runs([params["program"]]),
)


def has_value(values: Sequence[Any]) -> bool:
    """Are there plain values below the levels of all of these?"""
    for value in values:
        while isinstance(value, Traced):
            value = getattr(value, "primal", None)
            if value is None:
                return False
    return True


# -- for users ---------------------------------------------------------------------------------------------------------


@overload
def checkpoint(f: Callable[P, R], policy: Any = "nothing") -> Callable[P, R]: ...
@overload
def checkpoint(f: None = None, policy: Any = "nothing") -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(f: Any = None, policy: Any = "nothing") -> Any:
    """`f`, whose reverse mode keeps its arguments and computes what else it needs again in the backward pass.

    `policy` says what is kept of the inside: "nothing", "everything", "products" (results of matrix products, which
    cost the most to compute again), `wl.save_names("a", "b")` (what `wl.checkpoint_name` named), or a function that
    says of an equation whether its results are kept: `lambda equation: equation.primitive.name == "exp"`.
    Values and derivatives of any order are those of `f`. Usable as a decorator: `@wl.checkpoint`, or
    `@wl.checkpoint(policy="products")`.
    """
    if f is None:
        return lambda g: checkpoint(g, policy)
    check_function(f, "checkpoint")
    keep = as_policy(policy)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return checkpointed_call(f, args, kwargs, _by_policy(keep))

    return named(checkpointed, f, "checkpoint", checkpoint, policy)


def _by_policy(policy: Policy) -> Callable[[Program, Sequence[Any]], Sequence[Any]]:
    return lambda program, operands: checkpoint_p(*operands, program=known(program, policy), policy=policy)


_known: dict[Any, Program] = {}
_lock = threading.Lock()
MOST_KNOWN = 64


def known(program: Program, purpose: Any) -> Program:
    """An equal Program that was recorded before, with the transformed forms that it has by now; or this one."""
    try:
        key = (purpose, fingerprint(program))
        found = _known.get(key)
    except TypeError:  # it has params that can't be compared
        return program
    if found is None:
        with _lock:
            found = _known.setdefault(key, program)
            if len(_known) > MOST_KNOWN:
                del _known[next(iter(_known))]
    return found


def fingerprint(program: Program, literals: bool = True) -> tuple[Any, ...]:
    """What makes Programs equal: equations with numbered variables, literals by their bits (or types only), params."""
    if program.constants and literals:
        raise TypeError("constants are compared by nobody")
    numbers: dict[Any, int] = {v: i for i, v in enumerate((*program.inputs, *dict(program.constants)))}

    def atom(a: Any) -> Any:
        return numbers[a] if isinstance(a, Var) else (a.type, literals and np.asarray(a.value).tobytes())

    rows = []
    for e in program.equations:
        operands = tuple(map(atom, e.inputs))
        for v in e.outputs:
            numbers[v] = len(numbers)
        params = _param(tuple(e.params.items()), literals)
        rows.append((e.primitive, operands, params, tuple(v.type for v in e.outputs)))
    return program.input_types, tuple(rows), tuple(map(atom, program.outputs))


def _param(value: Any, literals: bool) -> Any:
    if isinstance(value, Program):
        return fingerprint(value, literals)
    if isinstance(value, tuple):
        return tuple(_param(v, literals) for v in value)
    if isinstance(value, slice):
        return slice, value.start, value.stop, value.step
    return typed(value)


def checkpointed_call(f: Callable, args: tuple[Any, ...], kwargs: dict[Any, Any], perform: Callable) -> Any:
    """One call of `f`, recorded: `perform(program, operands)`, where what it captures are operands too.

    A mutable object that is called is an argument, and so is the one that a method belongs to.
    """
    function, owner = getattr(f, "__func__", f), getattr(f, "__self__", None)
    if owner is not None and function is not f:
        args = (owner, *args)
    call = _ArrayCall(lambda g, *rest, **named: g(*rest, **named), (function, *args), kwargs, ())
    name = getattr(f, "__name__", type(f).__name__)
    if running():
        try:
            program, captured = _recorded(call, function, f"the checkpointed function {name}", False)
        except NoValueError:  # it decides by a value: with values it is followed where it goes this time
            if not has_value(call.values):
                raise
            program, captured = _recorded(call, function, f"the checkpointed function {name}", True)
        outs = perform(program, [*captured, *call.values])
    else:
        outs = call.run(call.values)
    results, new = call.split(outs)
    outs = None
    call.write_back(new, results)
    return call.result(results)


class _ArrayCall(Call):
    """A call whose arguments that are Python's numbers stay what they are: `train=True` decides, `n=3` is a size."""

    def __init__(self, f: Callable, args: tuple, kwargs: dict, differentiated: Sequence[int]):
        super().__init__(f, args, kwargs, differentiated)
        self.is_leaf = _is_operand
        self.structure, kept = tree.hold(self.structure, iter(self.owners), _is_operand)
        self._take(kept)
        self.mutable = mutable_leaves(self.structure)


def _is_operand(leaf: Any) -> bool:
    return type(leaf) not in PYTHON_SCALARS and is_array(leaf)


def _recorded(call: Call, f: Callable, what: str, follow: bool) -> tuple[Program, list]:
    """The call's Program and what it captures."""
    level = Record(what)
    with level, unwritten(f, what, "Pass the object to the function."):
        inputs = [level.variable(t) for t in call.types]
        if not follow:
            return hoist(level.finish(inputs, call.run(inputs)))
        with _Follow(level) as inner:
            values = [concrete(v, "a value") for v in call.values]
            outs = call.run([DualValue(inner, v, x) for v, x in zip(values, inputs, strict=True)])
            outs = [inner.recorded(o) for o in outs]
        return hoist(level.finish(inputs, outs))


class _Follow(Level):
    """Records a function while it runs on values; each of ours is a pair (value, variable)."""

    __slots__ = ("record",)
    name = "a checkpointed function"

    def __init__(self, record: Record):
        self.record = record

    def recorded(self, value: Any) -> Any:
        return value.tangent if type(value) is DualValue and value.level is self else value

    def process(self, primitive: Primitive, args: tuple, params: dict) -> Any:
        with quiet():
            out = bind(primitive, *(concrete(a, "a value") for a in args), **params)
        names = self.record.process(primitive, tuple(map(self.recorded, args)), params)
        if primitive.multiple:
            return tuple(DualValue(self, o, n) for o, n in zip(out, names, strict=True))
        return DualValue(self, out, names)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int, x: Any, policy: Any = "nothing"
) -> Any:
    """`x` through the functions in order, in `segments` parts of which all but the last are checkpointed.

    The last part isn't: it would be computed again at once. With n functions and about sqrt(n) segments, reverse mode
    keeps about 2 sqrt(n) values instead of n, for one more evaluation of the functions.
    """
    functions = list(functions)
    if not functions:
        raise ArgumentError("checkpoint_sequential: there are no functions")
    if not isinstance(segments, (int, np.integer)) or not 1 <= segments <= len(functions):
        raise ArgumentError(
            f"checkpoint_sequential: segments={segments!r} for {len(functions)} functions: it is an integer from 1 to "
            "the number of functions"
        )
    perform = _by_policy(as_policy(policy))
    bounds = [len(functions) * i // segments for i in range(segments + 1)]
    for start, stop in pairwise(bounds[:-1]):
        x = checkpointed_call(_in_order, (tuple(functions[start:stop]), x), {}, perform)
    return _in_order(functions[bounds[-2] :], x)


def _in_order(functions: Sequence[Callable], x: Any) -> Any:
    for f in functions:
        x = f(x)
    return x
