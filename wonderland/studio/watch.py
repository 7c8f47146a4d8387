"""A level that keeps everything: the equations of a computation, with their values, tangents and adjoints.

The call of a function comes in; out goes its evaluation trace, each variable with its numbers. The function runs on
real values, so Python control flow on them works. There is no second engine: the watching level hands each operation to
a Dual level whose tangents are recorded, and adds to each result's tangent a perturbation of its own, an input of the
linear Program. Tangents pushed through that Program give those of all variables; cotangents pulled back through it give
the perturbations' cotangents, which are the adjoints of all variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.core.functions import Call
from wonderland.core.level import Level, Traced, bind, constant_copy
from wonderland.core.primitive import Primitive
from wonderland.core.program import Atom, Equation, Literal, Record, Var, run
from wonderland.core.types import ArrayType, type_of
from wonderland.ops.elementwise import add
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.derivatives import quiet
from wonderland.transform.dual import Dual, linear_tape
from wonderland.transform.transpose import transpose


def add_tangents(a: Any, b: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be a structural zero."""
    if a is None:
        return b
    return a if b is None else add(a, b)


class WatchedValue(Traced):
    """A variable of the trace, and the Dual value that it has."""

    __slots__ = ("depth", "primal", "var")
    tangent = None  # it is the Dual value's

    def __init__(self, level: WatchLevel, primal: Any, var: Var, depth: int):
        self.level = level
        self.primal: Any = primal
        self.var: Var = var
        self.depth: int = depth  # operations on the longest way from an argument; 0 for an argument

    @property
    def type(self) -> ArrayType:
        return type_of(self.primal)


class WatchLevel(Level):
    """Records equations while they are evaluated."""

    __slots__ = ("carried", "constants", "direct", "dual", "equations", "perturbations", "tape", "values")
    name = "explain"

    def __init__(self, tape: Record, dual: Dual):
        self.tape: Record = tape
        self.dual: Dual = dual
        self.equations: list[Equation] = []
        self.constants: dict[int, tuple[Any, Any, Var]] = {}  # id -> (array, its copy, variable)
        self.values: dict[Var, Any] = {}  # plain values and Dual values
        self.perturbations: dict[Var, Var] = {}  # variable of the trace -> input of the linear Program
        self.carried: dict[Var, WatchedValue] = {}  # argument -> what stands for it after the first operations
        self.direct: set[Var] = set()  # arguments that are operands of a first operation

    def watch(self, below: Any, depth: int) -> WatchedValue:
        """A new variable of the trace; if a derivative flows to it, it is perturbed."""
        var = Var(self, type_of(below))
        primal, tangent = self.dual.split(below)
        if tangent is not None:
            self.perturbations[var] = epsilon = self.tape.variable(ArrayType(var.shape, var.dtype, var.type.weak))
            below = self.dual.lift(primal, add_tangents(tangent, epsilon))
        self.values[var] = below
        return WatchedValue(self, below, var, depth)

    def operand(self, value: Any, depth: int) -> tuple[Any, Atom]:
        """What an operation at this depth gets, and what its equation shows."""
        if isinstance(value, WatchedValue):
            if value.depth == 0 and depth > 1:  # as the notes do: s1 = x, then s3 = s1 + s2
                if value.var not in self.carried:
                    self.carried[value.var] = self.watch(value.primal, 0)
                value = self.carried[value.var]
            elif value.depth == 0:
                self.direct.add(value.var)
            return value.primal, value.var
        if not isinstance(value, np.ndarray):
            return value, Literal(value)
        known = self.constants.get(id(value))
        if known is None or not np.array_equal(known[1], value, equal_nan=value.dtype.kind in "fc"):
            known = self.constants[id(value)] = (value, constant_copy(value), Var(self, type_of(value)))
            self.values[known[2]] = known[1]
        return value, known[2]

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> Any:
        if primitive.transparent:  # what a jitted function does is more interesting than that it is compiled
            return run(primitive.inline(params), args)  # type: ignore[misc]
        depth = 1 + max(a.depth for a in args if isinstance(a, WatchedValue))
        below, atoms = zip(*(self.operand(a, depth) for a in args), strict=True)
        out = bind(primitive, *below, **params)
        results = [self.watch(o, depth) for o in (out if primitive.multiple else (out,))]
        self.equations.append(Equation(primitive, atoms, tuple(r.var for r in results), params))
        return tuple(results) if primitive.multiple else results[0]


class WatchedCall:
    """A call that ran at the watching level: its trace, and numbers for every variable of it."""

    def __init__(self, call: Call, select: Sequence[bool]):
        tape = linear_tape()
        with quiet(), tape:
            seeds = [tape.variable(t) if s else None for t, s in zip(call.types, select, strict=True)]
            with Dual(tape) as dual, WatchLevel(tape, dual) as watch:
                lifted = [v if t is None else dual.lift(v, t) for v, t in zip(call.values, seeds, strict=True)]
                arguments = [watch.watch(value, 0) for value in lifted]
                outs, _ = call.split(call.run(arguments))
                self.inputs: list[Any] = [a.var for a in arguments]
                self.outputs: list[Any] = [o.var if isinstance(o, WatchedValue) else o for o in outs]
                self.result: list[Any] = [dual.split(o.primal)[0] if isinstance(o, WatchedValue) else o for o in outs]
                pairs = {var: dual.split(value) for var, value in watch.values.items()}
            self.values: dict[Any, Any] = {var: primal for var, (primal, _) in pairs.items()}
            self._followed = [var for var, (_, tangent) in pairs.items() if tangent is not None]
            self._perturbed = list(watch.perturbations)
            self._seeds = [seed for seed in seeds if seed is not None]
            inputs = [*self._seeds, *watch.perturbations.values()]
            self._program = tape.finish(inputs, [pairs[var][1] for var in self._followed])
        self.constants: list[Any] = [var for _, _, var in watch.constants.values()]
        self.carried: dict[Any, Any] = {var: copy.var for var, copy in watch.carried.items() if var in watch.direct}
        unused = {copy.var: var for var, copy in watch.carried.items() if var not in watch.direct}
        self.equations: list[Equation] = _live(watch.equations, self.outputs, unused)

    def tangents(self, seeds: Sequence[Any]) -> dict[Var, Any]:
        """The tangent of each variable that a derivative flows to, for tangents of the selected leaves."""
        still = [zeros_like_type(var.type) for var in self._perturbed]
        with quiet():
            return dict(zip(self._followed, run(self._program, [*seeds, *still]), strict=True))

    def adjoints(self, cotangents: Sequence[Any]) -> dict[Var, Any]:
        """The adjoint of each such variable, for cotangents of the outputs."""
        given: dict[Var, Any] = {}
        for var, ct in zip(self.outputs, cotangents, strict=True):
            if isinstance(var, Var):
                given[var] = add_tangents(given.get(var), ct)
        with quiet():
            cts = transpose(self._program, {}, [given.get(var) for var in self._followed])[len(self._seeds) :]
        pairs = zip(self._perturbed, cts, strict=True)
        return {var: zeros_like_type(var.type) if ct is None else ct for var, ct in pairs}


def _live(equations: Sequence[Equation], outputs: Sequence[Any], names: dict[Var, Var]) -> list[Equation]:
    """The equations that the outputs need, with variables replaced that are only other names."""
    kept, live = [], {out for out in outputs if isinstance(out, Var)}
    for e in reversed(equations):
        if live.intersection(e.outputs):
            inputs = tuple(names.get(a, a) if isinstance(a, Var) else a for a in e.inputs)
            kept.append(Equation(e.primitive, inputs, e.outputs, e.params))
            live.update(a for a in inputs if isinstance(a, Var))
    return kept[::-1]
