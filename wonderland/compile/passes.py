"""Program to Program: inline calls, fold and simplify, share equal equations, drop dead ones.

Simplification is a table of rules, each exact: the result is the same number, bit for bit (the sign of a NaN apart),
for every argument. So `x * 1` goes and `x + 0` stays (it turns -0.0 into 0.0); for integers both go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.level import evaluate
from wonderland.core.primitive import Primitive
from wonderland.core.program import Atom, Equation, Literal, Program, Var, eliminate_dead, hoist
from wonderland.core.statics import typed
from wonderland.core.types import PYTHON_SCALARS
from wonderland.ops import elementwise as ops
from wonderland.ops import reduce, shape
from wonderland.ops.dot import dot
from wonderland.ops.math import pow

MOST_COMPARED = 1 << 20  # bytes of constants that are compared


def optimize(program: Program) -> list[tuple[str, Program]]:
    """The Program after each pass: (name, Program)."""
    inlined = inline(program)
    return [("recorded", program), ("inlined", inlined), ("simplified", simplified(inlined))]


def map_programs(params: dict[Any, Any], transform: Callable[[Program], Program]) -> dict[Any, Any]:
    """Params with every Program in them transformed."""

    def change(value: Any) -> Any:
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            return tuple(map(change, value))
        return transform(value) if isinstance(value, Program) else value

    return {key: change(value) for key, value in params.items()}


def inline(program: Program) -> Program:
    """Replace calls of Programs (`jit` in `jit`) by their equations, everywhere."""
    equations: list[Equation] = []
    constants: list[tuple[Var, Any]] = []
    held: dict[Any, Var] = {}  # one array has one name

    def constant(v: Var, value: Any) -> Var:
        key = _constant_key(v, value)
        if key not in held:
            held[key] = v
            constants.append((v, value))
        return held[key]

    def walk(body: Program, names: dict[Atom, Atom], copy: bool) -> list[Atom]:
        """Add the equations of a Program whose variables are called by these names; returns its outputs."""
        for equation in body.equations:
            inputs, outputs = tuple(names.get(a, a) for a in equation.inputs), equation.outputs
            if equation.primitive.inline is not None:
                inner, values = hoist(equation.primitive.inline(equation.params))
                fresh = [constant(Var(None, v.type), value) for v, value in zip(inner.inputs, values)]
                inside: dict[Atom, Atom] = dict(zip(inner.inputs, (*fresh, *inputs), strict=True))
                names.update(zip(outputs, walk(inner, inside, True), strict=True))
                continue
            if copy:  # the same Program may be called twice: its variables must differ
                outputs = tuple(Var(None, v.type) for v in outputs)
                names.update(zip(equation.outputs, outputs, strict=True))
            equations.append(Equation(equation.primitive, inputs, outputs, map_programs(equation.params, inline)))
        return [names.get(a, a) for a in body.outputs]

    outputs = walk(program, {v: constant(v, value) for v, value in program.constants}, False)
    return Program(program.inputs, equations, outputs, constants)


def _constant_key(v: Var, value: Any) -> Any:
    """Equal for constants that are the same for ever: one array, or small ones that nobody can write to."""
    fixed = type(value) is np.ndarray and not value.flags.writeable and value.base is None
    return v.type, value.tobytes() if fixed and value.nbytes <= MOST_COMPARED else id(value)


def simplified(program: Program) -> Program:
    """Without what folds, is there twice or is dead; then by the rule that asks how often a value is read."""
    program = eliminate_dead(simplify(program, RULES))
    products = {e.outputs[0] for e in program.equations if e.primitive is dot}
    if not any(e.primitive is shape.transpose and e.inputs[0] in products for e in program.equations):
        return program
    uses = Counter([*program.outputs, *(a for e in program.equations for a in e.inputs)])
    rule = _of(dot, lambda e, product: _transposed_product(e, product) if uses[e.inputs[0]] == 1 else None)
    return eliminate_dead(simplify(program, {shape.transpose: (rule,)}))


def simplify(program: Program, rules: Rules) -> Program:
    """One walk: fold scalars, apply the rules, share equal equations."""
    names: dict[Atom, Atom] = {}
    made: Definitions = {}
    known: dict[Any, tuple[Var, ...]] = {}
    equations: list[Equation] = []
    for e in program.equations:
        params = map_programs(e.params, simplified) if rules is RULES else e.params
        equation = Equation(e.primitive, tuple(names.get(a, a) for a in e.inputs), e.outputs, params)
        if not equation.has_effects():  # one with effects happens as often as it is written
            found = _simplest(equation, made, rules)
            if not isinstance(found, Equation):
                names[e.outputs[0]] = found
                continue
            equation = found
            key = (equation.primitive, tuple(map(_key, equation.inputs)), _key(equation.params))
            earlier = known.get(key)
            if earlier is not None and [v.type for v in earlier] == [v.type for v in equation.outputs]:
                names.update(zip(equation.outputs, earlier, strict=True))
                continue
            known[key] = equation.outputs
        made.update((v, equation) for v in equation.outputs)
        equations.append(equation)
    return Program(program.inputs, equations, [names.get(a, a) for a in program.outputs], program.constants)


def _simplest(equation: Equation, made: Definitions, rules: Rules) -> Atom | Equation:
    """What an equation simplifies to: an operand, a number, or an equation (mostly itself)."""
    for _ in range(8):  # a rule's result may be the subject of the next
        found = _replacement(equation, made, rules)
        if not isinstance(found, Equation):
            return equation if found is None else found
        equation = found
    return equation


def _replacement(equation: Equation, made: Definitions, rules: Rules) -> Atom | Equation | None:
    if equation.primitive.elementwise and all(isinstance(a, Literal) for a in equation.inputs):
        return _folded(equation)
    for rule in rules.get(equation.primitive, ()):
        found = rule(equation, made)
        if isinstance(found, Equation) or (found is not None and found.type == equation.outputs[0].type):
            return found
    return None


def _folded(equation: Equation) -> Literal | None:
    values = tuple(a.value for a in equation.inputs)  # type: ignore[union-attr]
    with np.errstate(all="ignore"):
        try:
            value = evaluate(equation.primitive, values, equation.params)
        except (ValueError, OverflowError):  # what raises does so when it runs
            return None
    literal = Literal(value if type(value) in PYTHON_SCALARS else np.asarray(value)[()])
    return literal if literal.type == equation.outputs[0].type else None


def _key(value: Any) -> Any:
    """What makes operands and params equal: variables and Programs by identity, numbers by their bits."""
    if isinstance(value, Literal):
        return value.type, np.asarray(value.value).tobytes()
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, slice):
        return "slice", value.start, value.stop, value.step
    try:
        hash(value)
    except TypeError:  # an array, say
        return id(value)
    return typed(value)


# -- the rules ------------------------------------------------------------------------------------

Definitions = dict[Atom, Equation]  # the equation that made each variable
Rule = Callable[[Equation, Definitions], Any]
Rules = dict[Primitive, tuple[Rule, ...]]


def _is(a: Atom, number: float) -> bool:
    """Is this operand the number, with its sign?"""
    if not isinstance(a, Literal) or a.type.dtype.kind == "c":
        return False
    return bool(a.value == number and np.signbit(a.value) == np.signbit(number))


def _like(equation: Equation, primitive: Primitive, *inputs: Atom, **params: Any) -> Equation | None:
    """Another equation for the same variable, if it has the same type."""
    out = primitive.infer(*(a.type for a in inputs), **params)
    return Equation(primitive, inputs, equation.outputs, params) if out == equation.outputs[0].type else None


def _kind(equation: Equation) -> str:
    return equation.outputs[0].type.dtype.kind


def _unit(number: float, *sides: int, kinds: str = "biuf") -> Rule:
    """Operand `number` on one of the sides leaves the other as it is, in results of these kinds.

    Complex arithmetic has no units: the imaginary zero of a real number counts, (4+0j) * -1 is -4+0j.
    """

    def rule(equation: Equation, made: Definitions) -> Atom | None:
        for side in sides if _kind(equation) in kinds else ():
            if _is(equation.inputs[side], number):
                return equation.inputs[1 - side]
        return None

    return rule


def _of(primitive: Primitive, then: Callable[[Equation, Equation], Any], operand: int = 0) -> Rule:
    """Where `primitive` made that operand: `then(equation, the one that made it)`."""

    def rule(equation: Equation, made: Definitions) -> Atom | Equation | None:
        inner = made.get(equation.inputs[operand])
        return then(equation, inner) if inner is not None and inner.primitive is primitive else None

    return rule


def _minus_one(equation: Equation, made: Definitions) -> Equation | None:
    for i in (0, 1) if _kind(equation) in "if" else ():  # NumPy refuses to negate unsigned ones
        if _is(equation.inputs[i], -1.0):
            return _like(equation, ops.neg, equation.inputs[1 - i])
    return None


def _power(equation: Equation, made: Definitions) -> Atom | Equation | None:
    x, y = equation.inputs
    if not isinstance(y, Literal) or (not y.type.weak and y.type.dtype != x.type.dtype):
        return None
    if equation.outputs[0].type.dtype != x.type.dtype:  # powers of bools are small integers
        return None
    if y.value == 1:
        return x
    if y.value == 2:  # a product rounds once; so does a correctly rounded power
        return _like(equation, ops.mul, x, x)
    return _like(equation, ops.div, Literal(1.0), x) if y.value == -1 and _kind(equation) == "f" else None


def _transposed_twice(equation: Equation, inner: Equation) -> Equation | None:
    first, then = inner.params["permutation"], equation.params["permutation"]
    return _like(equation, shape.transpose, *inner.inputs, permutation=tuple(first[p] for p in then))


def _transposed_product(equation: Equation, inner: Equation) -> Equation | None:
    # (x y)^T = y^T x^T, the same sums: GEMM reads its operands in any layout, the result would have to be copied.
    x, y = inner.inputs
    contract, batch = inner.params["contract"], inner.params["batch"]
    first, rank = len(batch[0]), len(equation.params["permutation"])
    split = len(x.type.shape) - len(contract[0])
    if equation.params["permutation"] != (*range(first), *range(split, rank), *range(first, split)):
        return None
    return _like(equation, dot, y, x, contract=contract[::-1], batch=batch[::-1])


def _there_and_back(equation: Equation, inner: Equation) -> Atom | None:
    # Exact if the type in between holds every value: float32 through float64, int32 through int64 or float64.
    x, middle = inner.inputs[0], inner.outputs[0].type.dtype
    return x if x.type.dtype == equation.params["dtype"] and np.can_cast(x.type.dtype, middle, "safe") else None


_operand: Rule = lambda e, made: e.inputs[0]  # where the type says that nothing happens (checked by the caller)
_real: Rule = lambda e, made: None if _kind(e) == "c" else e.inputs[0]
_no_axes: Rule = lambda e, made: None if e.params["axes"] else e.inputs[0]
_same_branches: Rule = lambda e, made: e.inputs[1] if e.inputs[1] is e.inputs[2] else None
_in_order: Rule = lambda e, made: e.inputs[0] if [*e.params["permutation"]] == sorted(e.params["permutation"]) else None
_at_once = lambda e, inner: _like(e, e.primitive, *inner.inputs, **e.params)

RULES: Rules = {
    ops.add: (
        _unit(-0.0, 0, 1), _unit(0, 0, 1, kinds="iu"),
        _of(ops.neg, lambda e, y: _like(e, ops.sub, e.inputs[0], y.inputs[0]), 1),  # x + (-y) rounds as x - y does
        _of(ops.neg, lambda e, x: _like(e, ops.sub, e.inputs[1], x.inputs[0])),
    ),
    ops.sub: (  # -0.0 - 0.0 is -0.0
        _unit(0.0, 1), _of(ops.neg, lambda e, y: _like(e, ops.add, e.inputs[0], y.inputs[0]), 1),
    ),
    ops.mul: (_unit(1.0, 0, 1), _minus_one),
    ops.div: (_unit(1.0, 1),),
    ops.neg: (_of(ops.neg, lambda e, inner: inner.inputs[0]),),
    pow: (_power,),
    ops.where: (_same_branches,),
    ops.stop_gradient: (_operand,),
    ops.conj: (_real,),
    ops.real: (_operand,),
    shape.convert: (_operand, _of(shape.convert, _there_and_back)),
    shape.broadcast: (_operand, _of(shape.broadcast, _at_once)),
    shape.reshape: (_operand, _of(shape.reshape, _at_once)),
    shape.transpose: (_of(shape.transpose, _transposed_twice), _in_order),
    reduce.sum: (_no_axes,),
    reduce.max: (_no_axes,),
}  # fmt: skip
