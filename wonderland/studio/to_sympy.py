"""`to_sympy`: a computation as SymPy's expressions, symbolic differentiation's side of the comparison.

A function with its arguments, or a Program, comes in; the Program is evaluated on arrays whose elements are symbols,
equation by equation: elementwise primitives by SymPy's functions (`sympy_functions`), linear ones by NumPy on arrays of
objects, others by the rules below. Expressions go out: one for a number, a NumPy array of them for an array. What
doesn't depend on the arguments is computed as ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from wonderland.control.cond import clamped
from wonderland.control.scan import Parts
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import Call, is_array
from wonderland.core.level import bind
from wonderland.core.printing import Printer
from wonderland.core.program import Equation, Literal, Program, Var
from wonderland.core.types import ArrayType
from wonderland.ops import index as indexing
from wonderland.studio.explain import input_names
from wonderland.studio.memory import called
from wonderland.studio.sympy_functions import exceptions, function_of
from wonderland.transform.programs import record


def to_sympy(f: Callable | Program, *args: Any) -> Any:
    """The results of `f(*args)` as SymPy expressions, in a tree like the function's result.

    An argument that is a SymPy symbol (or expression, matrix, or NumPy array of them) stands for itself. One that is a
    number or an array says only what comes there: symbols named after the parameter, `x` or `x_0_1`, stand for it. Of a
    Program all inputs are symbols unless given, and the result is a tuple. What is to be a number is closed over:
    `wl.to_sympy(lambda x: f(x, 2.0), x)`.

    Rounding, dtypes and `stop_gradient` leave no trace in the expressions.
    """
    sp = _sympy()
    if isinstance(f, Program):
        if args and len(args) != len(f.inputs):
            raise ArgumentError(f"to_sympy: the Program has {len(f.inputs)} inputs, {len(args)} were given")
        printer = Printer()
        names = [printer.name(v) for v in f.inputs]
        given = [a if _is_symbolic(sp, a) else None for a in args] or [None] * len(names)
        return tuple(_plain(o) for o in _evaluate(f, _inputs(names, f.input_types, given)))
    check_function(f, "to_sympy")
    leaves, structure = tree.flatten(args)
    given = [_expressions(leaf) if _is_symbolic(sp, leaf) else None for leaf in leaves]
    models = [leaf if g is None else np.zeros(g.shape, _dtype(g))[()] for leaf, g in zip(leaves, given, strict=True)]
    models = [m if g is None or g.shape else m.item() for m, g in zip(models, given, strict=True)]
    call = Call(f, structure.unflatten(models), {}, [])
    program = record(lambda *values: call.split(call.run(values))[0], call.types)
    flags = [is_array(m) for m in models]
    names = [n for n, flag in zip(input_names(f, structure.unflatten(models)), flags, strict=True) if flag]
    values = _inputs(names, call.types, [g for g, flag in zip(given, flags, strict=True) if flag])
    assert call.out_structure is not None
    return call.out_structure.unflatten([_plain(o) for o in _evaluate(program, values)])


def _sympy() -> Any:
    try:
        import sympy
    except ImportError:
        raise ImportError("wl.to_sympy needs SymPy, which isn't installed: pip install sympy") from None
    return sympy


def _is_symbolic(sp: Any, leaf: Any) -> bool:
    return isinstance(leaf, (sp.Basic, sp.MatrixBase)) or (isinstance(leaf, np.ndarray) and leaf.dtype == object)


def _dtype(expressions: np.ndarray) -> type:
    return complex if any(getattr(e, "is_real", None) is False for e in expressions.flat) else float


def _inputs(names: Sequence[str], types: Sequence[ArrayType], given: Sequence[Any]) -> list:
    """For each input the array of symbols that was given, or one named after it; no name means two things."""
    arrays = [None if symbols is None else _expressions(symbols) for symbols in given]
    taken = {s.name for array in arrays if array is not None for e in array.flat for s in e.free_symbols}
    out = []
    for name, kind, symbols in zip(names, types, arrays, strict=True):
        if symbols is None:
            name = re.sub(r"\W+", "_", name).strip("_")
            places = ["".join(f"_{i}" for i in place) for place in np.ndindex(kind.shape)]
            while not taken.isdisjoint(name + place for place in places):
                name += "_"
            taken.update(name + place for place in places)
            symbols = _symbols([name + place for place in places], kind)
        elif symbols.shape != kind.shape:
            raise ArgumentError(f"to_sympy: {name} has shape {kind.shape}, symbols of shape {symbols.shape} were given")
        out.append(symbols)
    return out


def _symbols(names: Sequence[str], kind: ArrayType) -> np.ndarray:
    facts = {"f": {"real": True}, "i": {"integer": True}, "u": {"integer": True, "nonnegative": True}}
    out = np.empty(len(names), object)
    out[:] = [_sympy().Symbol(name, **facts.get(kind.dtype.kind, {})) for name in names]
    return out.reshape(kind.shape)


def _expressions(value: Any) -> np.ndarray:
    """An array of SymPy's objects, also of numbers."""
    array = np.asarray(value)
    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        out[place] = _number(array[place])
    return out


def _number(value: Any) -> Any:
    """A number as SymPy's: whole numbers and short binary fractions exactly, others as decimals."""
    sp = _sympy()
    if isinstance(value, (sp.Basic, bool, np.bool_)):
        return sp.sympify(bool(value) if isinstance(value, np.bool_) else value)
    if isinstance(value, (complex, np.complexfloating)):
        return _number(value.real) + sp.I * _number(value.imag)
    if not isinstance(value, (float, np.floating)) or not np.isfinite(value):
        return sp.sympify(float(value) if isinstance(value, (float, np.floating)) else int(value))
    ratio = sp.Rational(*float(value).as_integer_ratio())
    return ratio if ratio.q <= 1024 else sp.Float(float(value))


def _plain(value: Any) -> Any:
    array = _expressions(value)
    return array[()] if array.shape == () else array


def _evaluate(program: Program, args: Sequence[Any]) -> list:
    """Run a Program on arrays of expressions; what holds none stays an array of numbers."""
    env: dict[Var, Any] = {**dict(program.constants), **dict(zip(program.inputs, args, strict=True))}
    for equation in program.equations:
        if not equation.outputs:
            continue  # an effect: it is no part of the formula
        operands = [a.value if isinstance(a, Literal) else env[a] for a in equation.inputs]
        if any(_is_object(o) for o in operands):
            outs = _symbolic(equation, operands)
        else:
            out = bind(equation.primitive, *operands, **equation.params)
            outs = out if equation.primitive.multiple else [out]
        env.update(zip(equation.outputs, outs, strict=True))
    return [a.value if isinstance(a, Literal) else env[a] for a in program.outputs]


def _is_object(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _symbolic(equation: Equation, operands: list) -> Sequence[Any]:
    primitive, name = equation.primitive, equation.primitive.name
    function = function_of(primitive, len(operands)) if primitive.elementwise else None
    rule = _rules().get(name)
    bits = name in ("bitwise_and", "bitwise_or", "bitwise_xor", "invert") and equation.outputs[0].dtype != bool
    try:
        if function is not None and not bits:
            out = np.frompyfunc(function, len(operands), 1)(*map(_expressions, operands))
            return [_expressions(np.broadcast_to(np.asarray(out, object), equation.outputs[0].shape))]
        if rule is not None:
            source = {"source": equation.inputs[0].type.dtype} if name in ("convert", "cond") else {}
            out = rule(*operands, **equation.params, **source)
            return list(out) if primitive.multiple else [_expressions(out)]
        program = called(primitive, equation.params)
        if program is not None:
            return _evaluate(program, operands)
        if primitive.linear or primitive.bilinear:
            with suppress(TypeError, AttributeError):  # LAPACK, say, takes no objects
                return [_expressions(_by_numpy(equation, operands))]
    except _NotKnown as error:
        raise ArgumentError(f"to_sympy: {error} in `{_line(equation)}`") from None
    raise ArgumentError(
        f"to_sympy: SymPy has no equivalent of {name}, in `{_line(equation)}`. Leave that part out of the function, or "
        "make it independent of the arguments."
    )


def _line(equation: Equation) -> str:
    return repr(equation).partition("\n")[0]


class _NotKnown(Exception):
    """Something that must be a number depends on a symbol."""


def _by_numpy(equation: Equation, operands: list) -> Any:
    """A linear operation: sums, products and moves of expressions, which NumPy evaluates on arrays of objects."""
    primitive, count = equation.primitive, len(operands)
    linear = {0, 1} if primitive.bilinear else {i % count for i in primitive.linear}
    if any(_is_object(operands[i]) and equation.inputs[i].type.dtype.kind in "iu" for i in {*range(count)} - linear):
        raise _NotKnown("an index depends on the arguments")
    if primitive.bilinear and not all(np.size(operands[i]) for i in linear):
        return np.zeros(equation.outputs[0].shape)  # sums of nothing
    given = [_expressions(x)[()] if i in linear else x for i, x in enumerate(operands)]
    return primitive.evaluate(*given, **equation.params)


# Everything else: rules on whole arrays -------------------------------------------------------------------------------


@cache
def _rules() -> dict[str, Callable]:
    sp = _sympy()
    largest = np.frompyfunc(lambda x, y: sp.Max(x, y), 2, 1)

    def convert(x: Any, dtype: np.dtype, source: np.dtype) -> Any:
        def one(e: Any) -> Any:
            if source.kind == "b":
                return e if dtype.kind == "b" else sp.Piecewise((1, e), (0, True))
            if dtype.kind == "b":
                return sp.Ne(e, 0)
            e = sp.re(e) if source.kind == "c" and dtype.kind != "c" else e
            return exceptions()["trunc"](e) if source.kind in "fc" and dtype.kind in "iu" else e

        return np.frompyfunc(one, 1, 1)(x)

    def reduced(join: Callable) -> Callable:
        def rule(x: Any, axes: tuple) -> Any:
            kept = tuple(i for i in range(x.ndim) if i not in axes)
            shape = tuple(x.shape[i] for i in kept)
            rows = x.transpose(kept + axes).reshape((*shape, int(np.prod([x.shape[i] for i in axes]))))
            out = np.empty(shape, object)
            for place in np.ndindex(shape):
                out[place] = join(*rows[place])
            return out

        return rule

    def accumulated(join: Any) -> Callable:
        def rule(x: Any, axis: int, reverse: bool) -> Any:
            rows = np.flip(x, axis) if reverse else x
            out = join.accumulate(rows, axis, dtype=object)
            return np.flip(out, axis) if reverse else out

        return rule

    def sparse_dot(data: Any, x: Any, structure: Any, transposed: bool) -> Any:
        rows, columns = structure.places(transposed)
        data, x = _expressions(data), _expressions(x)
        out = _expressions(np.zeros((structure.shape[transposed], *x.shape[1:]), int))
        for number, i, j in zip(data, rows, columns, strict=True):
            out[i] = out[i] + number * x[j]
        return out

    def sinc(x: Any, order: int) -> Any:
        t = sp.Dummy("t", real=True)
        return np.frompyfunc(lambda e: sp.sinc(t).diff(t, order).subs(t, e), 1, 1)(x)

    def known(*indices: Any) -> list:
        if any(map(_is_object, indices)):
            raise _NotKnown("an index depends on the arguments")
        return list(indices)

    def scatter_max(x: Any, *args: Any, axes: tuple) -> Any:
        *indices, u = args
        out = _expressions(x)
        largest.at(indexing.indexed_first(out, axes), tuple(known(*indices)), _expressions(u)[()])
        return out

    def per_matrix(f: Callable, shape: tuple, *stacks: Any) -> Any:
        stacks = tuple(map(_expressions, stacks))
        out = np.empty((*stacks[0].shape[:-2], *shape), object)
        for place in np.ndindex(stacks[0].shape[:-2]):
            found = f(*(sp.Matrix(*s.shape[-2:], s[place].ravel().tolist()) for s in stacks))
            out[(*place, ...)] = np.array(list(found) if shape else [found], object).reshape(shape)
        return out

    def triangular_solve(a: Any, b: Any, lower: bool, adjoint: bool, unit: bool) -> Any:
        def one(m: Any, right: Any) -> Any:
            n = m.shape[0]
            triangle = sp.Matrix(
                n, n, lambda i, j: 1 if unit and i == j else m[i, j] if (i >= j if lower else i <= j) else 0
            )
            return (triangle.H if adjoint else triangle).LUsolve(right)

        return per_matrix(one, b.shape[-2:], a, b)

    def cholesky(m: Any) -> Any:  # the lower triangle is read
        n = m.shape[0]
        return sp.Matrix(n, n, lambda i, j: m[i, j] if i >= j else sp.conjugate(m[j, i])).cholesky(hermitian=False)

    def cond(index: Any, *operands: Any, branches: tuple, source: np.dtype) -> list:
        if not _is_object(index):
            return _evaluate(branches[clamped(index, len(branches))], operands)
        choice, results = index[()], [_evaluate(b, operands) for b in branches]
        tests = [sp.Not(choice)] if source.kind == "b" else [sp.Le(choice, i) for i in range(len(branches) - 1)]
        pick = np.frompyfunc(lambda *es: sp.Piecewise(*zip(es, [*tests, True], strict=True)), len(branches), 1)
        return [_expressions(pick(*map(_expressions, outs))) for outs in zip(*results, strict=True)]

    def scan(*operands: Any, **params: Any) -> list:
        parts, body, condition, n = Parts(operands, params), params["body"], params["condition"], params["n_carry"]
        carry, ys = parts.carry, []

        def step(slices: list) -> None:
            outs = _evaluate(body, [*parts.consts, *carry, *slices])
            carry[:] = outs[:n]
            ys.append(outs[n:])

        def goes_on() -> bool:
            answer = _evaluate(condition, [*parts.consts, *carry])[0]
            if _is_object(answer) and answer[()] not in (sp.true, sp.false):
                raise _NotKnown("the number of steps depends on the arguments")
            return bool(answer[()] if _is_object(answer) else answer)

        if condition is not None:
            while goes_on():
                step([])
        else:
            length = params["length"] if params["length"] is not None else int(known(*parts.head)[0])
            for t in range(length - 1, -1, -1) if params["reverse"] else range(length):
                step([_expressions(x)[t, ...] for x in parts.xs])
        count = [] if condition is None else [np.int64(len(ys))]
        rows = ys[::-1] if params["reverse"] else ys
        stacks = [np.empty((len(rows), *t.shape), object) for t in body.output_types[n:]]
        for i, stacked in enumerate(stacks):
            for t, row in enumerate(rows):
                stacked[t, ...] = _expressions(row[i])
        return [*carry, *count, *stacks]

    return {
        "convert": convert,
        "scatter_max": scatter_max,
        "sum": reduced(sp.Add),
        "prod": reduced(sp.Mul),
        "max": reduced(sp.Max),
        "cumprod": accumulated(np.multiply),
        "cummax": accumulated(largest),
        "sparse_dot": sparse_dot,
        "sinc": sinc,
        "solve": lambda a, b: per_matrix(lambda m, r: m.LUsolve(r), b.shape[-2:], a, b),
        "triangular_solve": triangular_solve,
        "cholesky": lambda a: per_matrix(cholesky, a.shape[-2:], a),
        "det": lambda a: per_matrix(lambda m: m.det(), (), a),
        "slogdet": lambda a: [
            per_matrix(f, (), a) for f in (lambda m: sp.sign(m.det()), lambda m: sp.log(sp.Abs(m.det())))
        ],
        "adjugate": lambda a: per_matrix(lambda m: m.adjugate(), a.shape[-2:], a),
        "cond": cond,
        "scan": scan,
    }
