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
from wonderland.core.program import Atom, Equation, Literal, Program, Var, eliminate_dead
from wonderland.core.tree import typed
from wonderland.core.types import PYTHON_SCALARS
from wonderland.ops import elementwise as ops
from wonderland.ops import reduce, shape
from wonderland.ops.dot import dot
from wonderland.ops.math import pow


def optimize(program: Program) -> list[tuple[str, Program]]:
    """The Program after each pass: (name, Program)."""
    stages = [("recorded", program)]
    program = inline(program)
    stages.append(("inlined", program))
    program = simplified(program)
    stages.append(("simplified", program))
    return stages


def map_programs(params: dict[Any, Any], transform: Callable[[Program], Program]) -> dict[Any, Any]:
    """Params with every Program in them transformed."""

    def change(value: Any) -> Any:
        if isinstance(value, Program):
            return transform(value)
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            return tuple(change(v) for v in value)
        return value

    return {key: change(value) for key, value in params.items()}


def inline(program: Program) -> Program:
    """Replace calls of Programs (`jit` in `jit`) by their equations, everywhere."""
    env: dict[Var, Atom] = {}
    equations: list[Equation] = []
    constants = list(program.constants)

    def atom(a: Atom, names: dict[Var, Atom]) -> Atom:
        return names.get(a, a) if isinstance(a, Var) else a

    def walk(body: tuple[Equation, ...], names: dict[Var, Atom], copy: bool) -> None:
        for equation in body:
            inputs = tuple(atom(a, names) for a in equation.inputs)
            called: Callable[[dict], Program] | None = getattr(equation.primitive, "inline", None)
            if called is not None:
                inner = called(equation.params)
                inside: dict[Var, Atom] = dict(zip(inner.inputs, inputs, strict=True))
                for v, value in inner.constants:
                    fresh = Var(None, v.type)
                    inside[v] = fresh
                    constants.append((fresh, value))
                walk(inner.equations, inside, True)
                for v, a in zip(equation.outputs, inner.outputs, strict=True):
                    names[v] = atom(a, inside)
                continue
            outputs = equation.outputs
            if copy:  # the same Program may be called twice: its variables must differ
                outputs = tuple(Var(None, v.type) for v in outputs)
                names.update(zip(equation.outputs, outputs, strict=True))
            equations.append(Equation(equation.primitive, inputs, outputs, map_programs(equation.params, inline)))

    walk(program.equations, env, False)
    return Program(program.inputs, equations, [atom(a, env) for a in program.outputs], constants)


class Definitions(dict[Any, Any]):
    """The equation that made each variable; and, in `uses`, how often each variable is read."""

    def __init__(self, program: Program):
        super().__init__()
        self.uses: Counter = Counter(a for e in program.equations for a in e.inputs if isinstance(a, Var))
        self.uses.update(a for a in program.outputs if isinstance(a, Var))


def simplified(program: Program) -> Program:
    """Without what folds, is there twice or is dead; then by the rules that ask how often a value is read."""
    program = eliminate_dead(simplify(program, RULES))
    return eliminate_dead(simplify(program, LATE_RULES)) if _has_transposed_product(program) else program


def _has_transposed_product(program: Program) -> bool:
    products = {e.outputs[0] for e in program.equations if e.primitive is dot}
    return any(e.primitive is shape.transpose and e.inputs[0] in products for e in program.equations)


def simplify(program: Program, rules: Rules) -> Program:
    """One walk: fold scalars, apply the rules, share equal equations."""
    names: dict[Var, Atom] = {}
    made = Definitions(program)
    known: dict[Any, tuple[Var, ...]] = {}
    equations: list[Equation] = []

    def atom(a: Atom) -> Atom:
        return names.get(a, a) if isinstance(a, Var) else a

    def add(equation: Equation) -> None:
        if equation.has_effects():  # it happens as often as it is written
            made.update((v, equation) for v in equation.outputs)
            equations.append(equation)
            return
        for _ in range(8):  # a rule's result may be the subject of the next
            replaced = _replacement(equation, made, rules)
            if isinstance(replaced, Equation):
                equation = replaced
            elif replaced is not None:
                names[equation.outputs[0]] = replaced
                return
            else:
                break
        key = (equation.primitive, tuple(map(_key, equation.inputs)), _key(equation.params))
        earlier = known.get(key)
        if earlier is not None and tuple(v.type for v in earlier) == tuple(v.type for v in equation.outputs):
            names.update(zip(equation.outputs, earlier, strict=True))
            return
        known[key] = equation.outputs
        made.update((v, equation) for v in equation.outputs)
        equations.append(equation)

    for e in program.equations:
        params = map_programs(e.params, simplified if rules is RULES else lambda p: p)
        add(Equation(e.primitive, tuple(atom(a) for a in e.inputs), e.outputs, params))
    return Program(program.inputs, equations, [atom(a) for a in program.outputs], program.constants)


def _key(value: Any) -> Any:
    """What makes operands and params equal: variables and Programs by identity, numbers by their bits."""
    if isinstance(value, Literal):
        number = np.asarray(value.value)
        return (value.type, number.tobytes())
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    if isinstance(value, np.ndarray):
        return id(value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    return typed(value)


def _replacement(equation: Equation, made: Definitions, rules: Rules) -> Atom | Equation | None:
    """What an equation simplifies to: an operand, another equation, or nothing."""
    primitive, out = equation.primitive, equation.outputs[0]
    if primitive.elementwise and all(isinstance(a, Literal) for a in equation.inputs):
        return _folded(equation, out)
    for rule in rules.get(primitive, ()):
        found = rule(equation, made)
        if isinstance(found, (Var, Literal)):
            if found.type == out.type:
                return found
        elif found is not None:
            return found
    return None


def _folded(equation: Equation, out: Var) -> Literal | None:
    values = tuple(a.value for a in equation.inputs)  # type: ignore[union-attr]
    with np.errstate(all="ignore"):
        try:
            value = evaluate(equation.primitive, values, equation.params)
        except (ValueError, OverflowError):  # what raises does so when it runs
            return None
    if type(value) not in PYTHON_SCALARS:
        value = np.asarray(value)[()]
    literal = Literal(value)
    return literal if literal.type == out.type else None


# -- the rules ------------------------------------------------------------------------------------

Rule = Callable[[Equation, Definitions], Any]
Rules = dict[Primitive, tuple[Rule, ...]]


def _is(a: Atom, number: float) -> bool:
    """Is this operand the number, with its sign?"""
    if not isinstance(a, Literal) or a.type.dtype.kind == "c":
        return False
    return bool(a.value == number and np.signbit(a.value) == np.signbit(number))


def _made_by(a: Atom, primitive: Primitive, made: Definitions) -> Equation | None:
    equation = made.get(a) if isinstance(a, Var) else None
    return equation if equation is not None and equation.primitive is primitive else None


def _is_integer(equation: Equation) -> bool:
    return equation.outputs[0].type.dtype.kind in "iu"


def _like(equation: Equation, primitive: Primitive, inputs: tuple[Atom, ...], **params: Any) -> Equation | None:
    """Another equation for the same variable, if it has the same type."""
    out = primitive.infer(*(a.type for a in inputs), **params)
    return Equation(primitive, inputs, equation.outputs, params) if out == equation.outputs[0].type else None


def _is_complex(equation: Equation) -> bool:
    """Is it complex arithmetic, without units? The imaginary zero of a real number counts: (4+0j) * -1 is -4+0j."""
    return equation.outputs[0].type.dtype.kind == "c"


def _unit(number: float, sides: tuple[int, ...]) -> Rule:
    """Operand `number` on one of the sides leaves the other as it is."""

    def rule(equation: Equation, made: Definitions) -> Atom | None:
        for side in () if _is_complex(equation) else sides:
            if _is(equation.inputs[side], number):
                return equation.inputs[1 - side]
        return None

    return rule


def _integer(rule: Rule) -> Rule:
    return lambda equation, made: rule(equation, made) if _is_integer(equation) else None


def _double_negation(equation: Equation, made: Definitions) -> Atom | None:
    inner = _made_by(equation.inputs[0], ops.neg, made)
    return inner.inputs[0] if inner else None


def _minus_one(equation: Equation, made: Definitions) -> Equation | None:
    for i in () if _is_complex(equation) else (0, 1):
        if _is(equation.inputs[i], -1.0) and equation.outputs[0].type.dtype.kind != "u":  # NumPy refuses those
            return _like(equation, ops.neg, (equation.inputs[1 - i],))
    return None


def _add_negative(equation: Equation, made: Definitions) -> Equation | None:
    x, y = equation.inputs
    inner = _made_by(y, ops.neg, made)
    if inner:
        return _like(equation, ops.sub, (x, inner.inputs[0]))
    inner = _made_by(x, ops.neg, made)
    return _like(equation, ops.sub, (y, inner.inputs[0])) if inner else None


def _subtract_negative(equation: Equation, made: Definitions) -> Equation | None:
    inner = _made_by(equation.inputs[1], ops.neg, made)
    return _like(equation, ops.add, (equation.inputs[0], inner.inputs[0])) if inner else None


def _power(equation: Equation, made: Definitions) -> Atom | Equation | None:
    x, y = equation.inputs
    if not isinstance(y, Literal) or (not y.type.weak and y.type.dtype != x.type.dtype):
        return None
    if equation.outputs[0].type.dtype != x.type.dtype:  # powers of bools are small integers
        return None
    if y.value == 1:
        return x
    if y.value == 2:  # a product rounds once; so does a correctly rounded power
        return _like(equation, ops.mul, (x, x))
    if y.value == -1 and x.type.dtype.kind == "f":
        return _like(equation, ops.div, (Literal(1.0), x))
    return None


def _same_branches(equation: Equation, made: Definitions) -> Atom | None:
    _, x, y = equation.inputs
    return x if x is y else None


def _operand(equation: Equation, made: Definitions) -> Atom:
    """The operand, where the type says that nothing happens (checked by the caller)."""
    return equation.inputs[0]


def _real_conjugate(equation: Equation, made: Definitions) -> Atom | None:
    return equation.inputs[0] if equation.outputs[0].type.dtype.kind != "c" else None


def _transposed_twice(equation: Equation, made: Definitions) -> Atom | Equation | None:
    outer = equation.params["permutation"]
    inner = _made_by(equation.inputs[0], shape.transpose, made)
    if inner:
        first = inner.params["permutation"]
        return _like(equation, shape.transpose, inner.inputs, permutation=tuple(first[p] for p in outer))
    return equation.inputs[0] if outer == tuple(range(len(outer))) else None


def _transposed_product(equation: Equation, made: Definitions) -> Equation | None:
    # (x y)^T = y^T x^T, the same sums: GEMM reads its operands in any layout, the result would have to be copied.
    inner = _made_by(equation.inputs[0], dot, made)
    if inner is None or made.uses[equation.inputs[0]] != 1:
        return None
    x, y = inner.inputs
    contract, batch = inner.params["contract"], inner.params["batch"]
    first, rank = len(batch[0]), len(equation.params["permutation"])
    split = len(x.type.shape) - len(contract[0])
    if equation.params["permutation"] != (*range(first), *range(split, rank), *range(first, split)):
        return None
    return _like(equation, dot, (y, x), contract=contract[::-1], batch=batch[::-1])


def _reshaped_twice(equation: Equation, made: Definitions) -> Equation | None:
    inner = _made_by(equation.inputs[0], shape.reshape, made)
    return _like(equation, shape.reshape, inner.inputs, **equation.params) if inner else None


def _broadcast_twice(equation: Equation, made: Definitions) -> Equation | None:
    inner = _made_by(equation.inputs[0], shape.broadcast, made)
    return _like(equation, shape.broadcast, inner.inputs, **equation.params) if inner else None


def _converted_there_and_back(equation: Equation, made: Definitions) -> Atom | None:
    # Exact if the type in between holds every value: float32 through float64, int32 through int64 or float64.
    inner = _made_by(equation.inputs[0], shape.convert, made)
    if inner is None:
        return None
    x, middle = inner.inputs[0], inner.outputs[0].type.dtype
    return x if x.type.dtype == equation.params["dtype"] and np.can_cast(x.type.dtype, middle, "safe") else None


def _no_axes(equation: Equation, made: Definitions) -> Atom | None:
    return equation.inputs[0] if not equation.params["axes"] else None


RULES: Rules = {
    ops.add: (_unit(-0.0, (0, 1)), _integer(_unit(0, (0, 1))), _add_negative),  # x + (-y) rounds as x - y does
    ops.sub: (_unit(0.0, (1,)), _subtract_negative),  # -0.0 - 0.0 is -0.0
    ops.mul: (_unit(1.0, (0, 1)), _minus_one),
    ops.div: (_unit(1.0, (1,)),),
    ops.neg: (_double_negation,),
    pow: (_power,),
    ops.where: (_same_branches,),
    ops.stop_gradient: (_operand,),
    ops.conj: (_real_conjugate,),
    ops.real: (_operand,),
    shape.convert: (_operand, _converted_there_and_back),
    shape.broadcast: (_operand, _broadcast_twice),
    shape.reshape: (_operand, _reshaped_twice),
    shape.transpose: (_transposed_twice,),
    reduce.sum: (_no_axes,),
    reduce.max: (_no_axes,),
}
LATE_RULES: Rules = {shape.transpose: (_transposed_product,)}
