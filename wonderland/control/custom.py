"""Rules given by the user: `custom_jvp` and `custom_vjp`.

A call of such a function is one equation that keeps the function and its rules. The Dual level uses the rule instead of
looking inside; `custom_vjp` puts a linear primitive into the linear Program that can only be transposed. What function
and rules capture are the leading operands (`control.captures`). What a call holds are functions, and not Programs to be
transformed (`transform.holding`): a derivative is what the user's rule says, and batched is each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from wonderland.control.captures import mapped, run_inside, run_plain, standing_for, unseen
from wonderland.control.linear import LINEAR, UNKNOWN, NotLinear, dependence_of, program_dependences
from wonderland.control.returned import checked, shown
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, NoValueError, check_function
from wonderland.core.forks import loading
from wonderland.core.functions import handles
from wonderland.core.level import Traced, running
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Program
from wonderland.core.tracebacks import edges
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.transformed import ByName
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops.pattern import as_type, known, propagate
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.batch import Batch, BatchedValue, materialize
from wonderland.transform.closures import held_tracers
from wonderland.transform.programs import pick, record, scatter_flags
from wonderland.transform.transpose import transpose

Flat = Callable[..., Any]  # of values; returns a list, or a pair of lists


@dataclass(eq=False)
class CustomCall:
    """One call: flat functions of values, of which the first `count` are captured.

    `jvp(*captured, *primals, *tangents) -> (outs, tangents)`, `forward(*captured, *args) -> (outs, residuals)`,
    `backward(*captured, *residuals, *cts) -> cts`. The captured values `for_rules` are those the function doesn't hold.
    A jvp rule that takes `exact_zeros` gets None for a tangent that is zero, and arrays of zeros otherwise.
    """

    name: str
    count: int
    for_rules: range
    function: Flat
    jvp: Flat | None
    forward: Flat | None
    backward: Flat | None
    exact_zeros: bool = False
    _program: Program | None = None

    def program(self, types: Sequence[ArrayType]) -> Program:
        if self._program is None:
            program = record(self.function, types, f"the custom function {self.name}")
            for _, value in program.constants:
                if isinstance(value, Traced):
                    raise unseen(value, self.name)
            self._program = program
        return self._program

    def run(self, rule: str, operands: Sequence[Any], moved: Sequence[bool] = (), linear: int | None = None) -> Any:
        """The function ("function") or a rule ("jvp", "forward", "backward") on these values; see `run_inside`."""
        moved = moved or (False,) * self.count
        return run_inside(getattr(self, rule), operands, self.count, moved, self.name, f"{rule} rule", linear)

    def batched(self, size: int, flags: tuple[bool, ...]) -> CustomCall:
        """The call on a batch: every function runs at a Batch level."""
        captured, own = flags[: self.count], flags[self.count :]

        def over_batch(f: Flat | None, given: Callable[[tuple], Sequence[bool]]) -> Flat | None:
            def g(*args: Any) -> Any:
                with Batch(size) as level:
                    pairs = zip(args, given(args), strict=True)
                    lifted = [BatchedValue(level, a) if b and a is not None else a for a, b in pairs]
                    return mapped(f(*lifted), lambda o: materialize(size, *level.split(o)))  # type: ignore[misc]

            return f and g

        pull = over_batch(self.backward, lambda args: [*captured, *(True for _ in args[self.count :])])

        def backward(*args: Any) -> list:  # an argument that all entries of the batch share gets the sum
            found = zip(pull(*args), own, strict=True)  # type: ignore[misc]
            return [ct if ct is None or flag else reduce_sum(ct, axes=(0,)) for ct, flag in found]

        return CustomCall(
            self.name,
            self.count,
            self.for_rules,
            over_batch(self.function, lambda args: flags),  # type: ignore[arg-type]
            over_batch(self.jvp, lambda args: [*captured, *own, *own]),
            over_batch(self.forward, lambda args: flags),
            pull and backward,
            self.exact_zeros,
        )


def _unmoved(primals: tuple, tangents: tuple, call: CustomCall) -> tuple[list, list] | None:
    """What to return if no argument has a tangent, but captured values have; nothing depends on them, or it raises."""
    if any(t is not None for t in tangents[call.count :]):
        return None
    moved = [t is not None and i not in call.for_rules for i, t in enumerate(tangents[: call.count])]
    if any(moved):
        call.run("function", primals, moved)
    outs = custom_p(*primals, call=call)
    return outs, [None] * len(outs)


def _moved(tangents: tuple, call: CustomCall) -> list[bool]:
    return [t is not None for t in tangents[: call.count]]


def _jvp(primals: tuple, tangents: tuple, call: CustomCall, linear: bool = False) -> tuple[list, list]:
    unmoved = _unmoved(primals, tangents, call)
    if unmoved is not None:
        return unmoved
    if call.jvp is None:
        raise TypeError(
            f"{call.name} has a custom vjp only: forward mode (wl.jvp, jacobian in forward mode) needs a jvp rule. "
            "Give one with .defjvp, or use reverse mode."
        )
    pairs = zip(primals[call.count :], tangents[call.count :], strict=True)
    filled = [zeros_like_type(type_of(p)) if t is None and not call.exact_zeros else t for p, t in pairs]
    return call.run("jvp", (*primals, *filled), _moved(tangents, call), len(primals) if linear else None)


def _linearize(primals: tuple, tangents: tuple, call: CustomCall) -> tuple[list, list]:
    if call.forward is None:
        return _jvp(primals, tangents, call, linear=True)
    unmoved = _unmoved(primals, tangents, call)
    if unmoved is not None:
        return unmoved
    outs, residuals = call.run("forward", primals, _moved(tangents, call))
    kept, own = [*primals[: call.count], *residuals], tangents[call.count :]
    tangents_out = custom_linear_p(
        *kept, *(t for t in own if t is not None), call=call, used=tuple(t is not None for t in own),
        n_residuals=len(kept), types=tuple(type_of(o) for o in outs),
        in_types=tuple(type_of(p) for p in primals[call.count :]),
    )  # fmt: skip
    return outs, [t if is_differentiable(type_of(o).dtype) else None for t, o in zip(tangents_out, outs, strict=True)]


def _batch(size: int, args: tuple, batched: tuple, call: CustomCall) -> tuple[list, list]:
    outs = custom_p(*args, call=call.batched(size, tuple(batched)))
    return outs, [True] * len(outs)


def _pattern(types: tuple, params: dict) -> Any:
    """The rule's, whatever the function itself reads."""
    call: CustomCall = params["call"]
    array_types, n = [as_type(t) for t in types], len(types)
    if call.jvp is None:
        outs = call.program(array_types).output_types

        def pulled(*args: Any) -> list:
            residuals = call.forward(*args[:n])[1]  # type: ignore[misc]
            return call.backward(*args[: call.count], *residuals, *args[n:])  # type: ignore[misc]

        return lambda reads: _transposed_reads(pulled, types, outs, reads)
    flags: list[bool] = []

    def pushed(*args: Any) -> list:
        tangents = call.jvp(*args)[1]  # type: ignore[misc]
        flags.extend(t is not None for t in tangents)
        return [t for t in tangents if t is not None]

    program = record(pushed, [*array_types, *array_types[call.count :]])

    def answer(reads: Sequence[Any]) -> tuple[list, list]:
        own = reads[call.count :]
        pairs = zip(types[call.count :], own, strict=True)
        zeros = [np.zeros(t.shape, t.dtype) if s is None else None for t, s in pairs]
        found, _ = propagate(program, [*(None for _ in types), *own], [*map(known, types), *zeros])
        return scatter_flags(found, flags), []

    return answer


def _transposed_reads(pulled: Flat, types: Sequence[Any], outs: Sequence[ArrayType], reads: Sequence[Any]) -> tuple:
    """What results of these types read if `pulled(*values, *their cotangents)` gives the operands' cotangents."""
    with loading():
        from wonderland.ops.sets import identity, separate, union

    flags: list[bool] = []

    def f(*args: Any) -> list:
        cts = pulled(*args)
        flags.extend(ct is not None for ct in cts)
        return [ct for ct in cts if ct is not None]

    program = record(f, [*map(as_type, types), *outs])
    sizes = [t.size if is_differentiable(t.dtype) else 0 for t in outs]
    seeds = [s if n else None for s, n in zip(identity(sizes), sizes, strict=True)]
    zeros = [None if is_differentiable(t.dtype) else np.zeros(t.shape, t.dtype) for t in outs]
    found, _ = propagate(program, [*(None for _ in types), *seeds], [*map(known, types), *zeros])
    terms = []
    for back, own in zip(scatter_flags(found, flags), reads[len(reads) - len(flags) :], strict=True):
        if back is not None and own is not None:
            elements, rows = back.matrix().nonzero()
            terms.append((rows, own.index[elements], own.table))
    return separate(union(sum(sizes), terms), sizes), []


def _transpose_inside(cts: Sequence[Any], *args: Any, call: CustomCall) -> list:
    """Of a call on tangents, in somebody's rule: its function's, which has to be linear in them."""
    flags = [isinstance(a, Linear) for a in args]
    program = call.program([a if isinstance(a, Linear) else type_of(a) for a in args])
    try:
        program_dependences(program, [LINEAR if isinstance(a, Linear) else dependence_of(a, UNKNOWN) for a in args])
    except NotLinear as why:
        raise TypeError(
            f"reverse mode has to transpose {call.name}, which a rule calls on tangents, but it isn't linear in them: "
            f"it {why}. Call it on primals only, or give the rule's function a rule for reverse mode: wl.custom_vjp."
        ) from None
    known, nonzero = [a for a in args if not isinstance(a, Linear)], [ct is not None for ct in cts]

    def pulled(*values: Any) -> list:
        inputs = dict(zip(pick(program.inputs, [not f for f in flags]), values[: len(known)], strict=True))
        found = transpose(program, inputs, scatter_flags(values[len(known) :], nonzero))
        return pick(found, flags)

    count = len([f for f in flags[: call.count] if not f])
    operands = (*known, *pick(cts, nonzero))
    return scatter_flags(run_inside(pulled, operands, count, (False,) * count, call.name, "transpose"), flags)


custom_p: Primitive = Primitive(
    "custom",
    lambda *args, call: call.run("function", args),
    lambda *types, call: call.program(types).output_types,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose_inside,
    batch=_batch,
    pattern=_pattern,
    inline=lambda params: params["call"]._program,
    stops=lambda params: params["call"].for_rules,  # what a rule alone captures isn't in its function's value
    multiple=True,
    impossible={"lower": "compiled code contains its Program"},
)


def _only_reverse(*args: Any, call: CustomCall, **params: Any) -> Any:
    if call.jvp is not None:
        raise TypeError(
            f"the linear part of {call.name} (linearize, jacfwd) comes from its custom vjp: it can be transposed "
            "(reverse mode) but not evaluated. Its jvp rule is what wl.jvp uses."
        )
    raise TypeError(
        f"{call.name} has a custom vjp only, so its linear part can be transposed (reverse mode) but not evaluated "
        "(forward mode). Give a jvp rule with .defjvp."
    )


def _transpose(cts: Sequence[Any], *args: Any, call: CustomCall, used: tuple, **params: Any) -> list:
    residuals, linear = args[: params["n_residuals"]], args[params["n_residuals"] :]
    filled = [zeros_like_type(t) if ct is None else ct for ct, t in zip(cts, params["types"], strict=True)]
    found = call.run("backward", (*residuals, *filled))
    wanted = [ct for ct, u in zip(found, used, strict=True) if u]
    return [
        *(None for _ in residuals),
        *(c if isinstance(x, Linear) else None for c, x in zip(wanted, linear, strict=True)),
    ]


def _linear_batch(size: int, args: tuple, batched: tuple, call: CustomCall, **params: Any) -> tuple[list, list]:
    full = [materialize(size, a, b) for a, b in zip(args, batched, strict=True)]
    lead = {k: tuple(ArrayType((size, *t.shape), t.dtype) for t in params[k]) for k in ("types", "in_types")}
    new = call.batched(size, (True,) * (call.count + len(params["in_types"])))
    outs = custom_linear_p(*full, call=new, **{**params, **lead})
    return outs, [True] * len(outs)


def _linear_jvp(primals: tuple, tangents: tuple, **params: Any) -> tuple:
    return _only_reverse(**params)


def _linear_pattern(types: tuple, params: dict) -> Any:
    call, n, used = params["call"], params["n_residuals"], params["used"]

    def pulled(*args: Any) -> list:
        found = call.backward(*args)
        return [ct for ct, u in zip(found, used, strict=True) if u]

    return lambda reads: _transposed_reads(pulled, types[:n], params["types"], reads)


def _linearity(operands: Sequence[str], params: dict) -> Sequence[str]:
    if LINEAR in operands[: params["n_residuals"]]:
        raise NotLinear(f"uses the derivative of {params['call'].name}")
    return [LINEAR] * len(params["types"])


custom_linear_p: Primitive = Primitive(
    "custom_linear",
    _only_reverse,
    lambda *args, types, **params: types,
    jvp=_linear_jvp,
    transpose=_transpose,
    batch=_linear_batch,
    multiple=True,
    pattern=_linear_pattern,
    linearity=_linearity,
    reverse_only=True,
    impossible={"lower": "it only occurs inside reverse mode"},
)


@edges
class _Custom(ByName):
    """A function with rules; what `custom_jvp` and `custom_vjp` return."""

    def __init__(self, f: Callable, name: str):
        check_function(f, name)
        self.f = self.__wrapped__ = f
        self.__name__ = getattr(f, "__name__", "function")
        self.__doc__ = getattr(f, "__doc__", None)
        self.jvp_rule: Callable | None = None
        self.forward_rule: Callable | None = None
        self.backward_rule: Callable | None = None

    def defjvp(self, rule: Callable) -> Callable:
        """`rule(primals, tangents) -> (out, tangent_out)`, both arguments tuples."""
        check_function(rule, f"{self.__name__}.defjvp")
        self.jvp_rule = rule
        return rule

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)  # in a class, a method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            names = ", ".join(kwargs)
            raise ArgumentError(f"{self.__name__} has rules that take positional arguments: pass {names} by position")
        if self.jvp_rule is None and self.forward_rule is None:
            raise ArgumentError(f"{self.__name__} has no rule yet: use .defjvp(rule) or .defvjp(forward, backward)")
        if not running():
            return self.f(*args)
        leaves, structure = tree.flatten(args)
        values = [unwrap(leaf) for leaf in leaves]
        rules = _FlatRules(self, structure)
        captured = [unwrap(handle) for handle in rules.handles]
        if not any(isinstance(v, Traced) for v in (*captured, *values)):
            return run_plain(self.f, args, self.__name__)
        call = rules.call()
        if _in_a_body((*captured, *values)):
            with suppress(NoValueError):  # a decision of Python's: then it runs where its operands are
                call.program([type_of(v) for v in (*captured, *values)])
        outs = custom_p(*captured, *values, call=call)
        return rules.out.unflatten(handles(list(outs)))


def _in_a_body(operands: Sequence[Any]) -> bool:
    """Is something recorded further in than these live, to which effects of a function of them belong?"""
    depth = max(v.level.depth for v in operands if isinstance(v, Traced))
    return any(level.effects for level in running()[depth:])


class _FlatRules:
    """The user's function and rules as functions of flat values, with checks of what they return."""

    def __init__(self, custom: _Custom, structure: tree.Structure):
        self.custom, self.structure = custom, structure
        self.out: tree.Structure = tree.LEAF
        self.own: tuple[tree.Structure, list[ArrayType]] | None = None  # what the function returns, once that is known
        self.residual_structure: tree.Structure = tree.LEAF
        seen: set[int] = set()
        own = held_tracers([custom.f], seen)
        of_rules = held_tracers([custom.jvp_rule, custom.forward_rule, custom.backward_rule], seen)
        self.handles, self.for_rules = [*own, *of_rules], range(len(own), len(own) + len(of_rules))

    def call(self) -> CustomCall:
        c = self.custom
        rules = [self.jvp if c.jvp_rule else None, *([self.forward, self.backward] if c.forward_rule else [None] * 2)]
        closed = [rule and partial(self._closed, rule) for rule in (self.function, *rules)]
        return CustomCall(c.__name__, len(self.handles), self.for_rules, *closed)  # type: ignore[arg-type]

    def _closed(self, rule: Callable, *values: Any) -> Any:
        """A rule as a function of what it captures, too."""
        n = len(self.handles)
        with standing_for(self.handles, values[:n], self.custom.__name__):
            return rule(*values[n:])

    def _arguments(self, values: Sequence[Any]) -> tuple:
        return self.structure.unflatten([Tracer(v) if isinstance(v, Traced) else v for v in values])

    def function(self, *values: Any) -> list:
        leaves, self.out = tree.flatten(self.custom.f(*self._arguments(values)))
        outs = [unwrap(leaf) for leaf in leaves]
        self.own = self.out, [type_of(o) for o in outs]
        return outs

    def _like_function(self, out: Any, rule: str) -> list:
        """The values of a rule's first result, which is what the function returns."""
        leaves, self.out = tree.flatten(out)
        outs = [unwrap(leaf) for leaf in leaves]
        structure, types = self.own or (self.out, [type_of(o) for o in outs])
        what = f"the first result of the {rule} of {self.custom.__name__} is what the function returns; it"
        if structure != self.out:
            raise ArgumentError(f"{what} has structure {self.out}, the function's {structure}")
        return [checked(o, t, what) if is_differentiable(t.dtype) else o for o, t in zip(outs, types, strict=True)]

    def jvp(self, *values: Any) -> tuple[list, list]:
        n = len(values) // 2
        result = self.custom.jvp_rule(self._arguments(values[:n]), self._arguments(values[n:]))  # type: ignore[misc]
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentError(
                f"the jvp rule of {self.custom.__name__} must return (out, tangent_out), it returned {shown(result)}"
            )
        outs, (tangents, structure) = self._like_function(result[0], "jvp rule"), tree.flatten(result[1])
        tangents = [unwrap(t) for t in tangents]
        what = f"the tangent that the jvp rule of {self.custom.__name__} returned"
        if structure != self.out:
            raise ArgumentError(
                f"{what} has structure {structure}, its output {self.out}; a zero tangent is np.zeros_like(out)"
            )
        return outs, [checked(t, type_of(o), what) for t, o in zip(tangents, outs, strict=True)]

    def forward(self, *values: Any) -> tuple[list, list]:
        result = self.custom.forward_rule(*self._arguments(values))  # type: ignore[misc]
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentError(
                f"the forward rule of {self.custom.__name__} must return (out, residuals), it returned {shown(result)}"
            )
        outs = self._like_function(result[0], "forward rule")
        residuals, self.residual_structure = tree.flatten(result[1])
        for r in residuals:
            try:
                type_of(unwrap(r))
            except TypeError as error:
                what = f"a residual that the forward rule of {self.custom.__name__} keeps"
                raise ArgumentError(f"{what}: {error}") from None
        self.in_types = [type_of(v) for v in values]
        return outs, [unwrap(r) for r in residuals]

    def backward(self, *values: Any) -> list:
        n = self.residual_structure.leaf_count
        wrapped = [Tracer(v) if isinstance(v, Traced) else v for v in values]
        residuals, ct = self.residual_structure.unflatten(wrapped[:n]), self.out.unflatten(wrapped[n:])
        found = self.custom.backward_rule(residuals, ct)  # type: ignore[misc]
        what = f"the cotangent that the backward rule of {self.custom.__name__} returned"
        if not isinstance(found, tuple) or len(found) != len(self.structure.children):
            count = len(self.structure.children)
            raise ArgumentError(
                f"{what} must be a tuple with one entry per argument ({count}; None for zero), not {shown(found)}"
            )
        flat: list = []
        for entry, structure in zip(found, self.structure.children, strict=True):
            leaves, actual = tree.flatten(entry)
            if entry is None:
                leaves = [None] * structure.leaf_count
            elif actual != structure:
                raise ArgumentError(f"{what} has structure {actual}, the argument {structure}")
            flat += [unwrap(leaf) for leaf in leaves]
        return [checked(ct, t, what) for ct, t in zip(flat, self.in_types, strict=True)]


def custom_jvp(f: Callable) -> _Custom:
    """Replace the derivative of `f` by a rule: `@f.defjvp` on `rule(primals, tangents) -> (out, tangent_out)`.

    The rule must be linear in the tangents; reverse mode is derived from it.
    """
    return _Custom(f, "custom_jvp")


class _CustomVJP(_Custom):
    def defvjp(self, forward: Callable, backward: Callable) -> None:
        """`forward(*args) -> (out, residuals)` and `backward(residuals, ct) -> one cotangent per argument`."""
        check_function(forward, f"{self.__name__}.defvjp")
        check_function(backward, f"{self.__name__}.defvjp")
        self.forward_rule, self.backward_rule = forward, backward


def custom_vjp(f: Callable) -> _CustomVJP:
    """Replace reverse mode of `f` by a pair of rules: `f.defvjp(forward, backward)`; `f.defjvp` may be given too."""
    return _CustomVJP(f, "custom_vjp")
