"""First derivatives: `jvp`, `linearize`, `vjp`, `grad`, `value_and_grad`.

Forward mode is the Dual level with known tangents; everything else linearises: the Dual level's tangents are recorded
as a linear Program, and reverse mode transposes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import Call, handles
from wonderland.core.later import load_module
from wonderland.core.level import constant_copy
from wonderland.core.program import Literal, Program, Var, run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.transformed import named
from wonderland.core.types import ArrayType, P, R, is_differentiable, type_of
from wonderland.ops.elementwise import stop_gradient as stop_gradient_p
from wonderland.ops.shape import convert, zeros_like_type
from wonderland.transform.dual import Dual, DualValue, linear_tape
from wonderland.transform.programs import dense, pick, record, scatter_flags
from wonderland.transform.residuals import keep
from wonderland.transform.transpose import pull_back


# A singular derivative is often computed where it isn't used (SEMANTICS 4): no warnings about those.
def quiet() -> np.errstate:
    """NumPy without warnings about division by zero, invalid values and overflow."""
    return np.errstate(divide="ignore", invalid="ignore", over="ignore")


def jvp(f: Callable, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Value and directional derivative of `f` at `primals` along `tangents`: `(out, tangent_out)`.

    `primals` and `tangents` are tuples with one tree per argument; a tangent of None is zero.
    With `has_aux`, f returns `(out, aux)` and the result is `(out, tangent_out, aux)`.
    """
    check_function(f, "jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError("jvp takes a tuple of arguments and a tuple of tangents: jvp(f, (x,), (t,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"jvp got {len(primals)} primals and {len(tangents)} tangents")
    call = Call(f, tuple(primals), {}, [i for i, t in enumerate(tangents) if t is not None])
    flat = flat_tangents(tangents, call)
    with quiet(), Dual() as level:
        outs = call.run([v if t is None else level.lift(v, t) for v, t in zip(call.values, flat, strict=True)])
        pairs = [level.split(o) for o in outs]
        results, written = call.split([p for p, _ in pairs])
        tangents_out = [dense(t, p) for p, t in pairs[: len(results)]]
    call.write_back(written, results, tangents_out)
    pairs = outs = None
    out, tangent = call.result(results), call.result(tangents_out)
    if has_aux and aux_structure(call.out_structure):
        return out[0], tangent[0], out[1]
    return out, tangent


def flat_tangents(tangents: Sequence[Any], call: Call) -> list[Any]:
    """A tangent, or None, for each leaf of a call's arguments, from one tree per argument."""
    flat: list = []
    for number, (tangent, structure) in enumerate(zip(tangents, call.structure.children[0].children, strict=True)):
        if tangent is None:
            flat += [None] * structure.leaf_count
            continue
        try:
            flat += [unwrap(leaf) for leaf in tree.paired(structure, tangent)]
        except ValueError as error:
            found = tree.flatten(tangent)[1]
            differ = f": {error}" if found.has_mutable else f" has structure {found}, its primal {structure}"
            raise ArgumentError(f"the tangent of argument {number}{differ}") from None
    flat += [None] * (len(call.types) - len(flat))
    return [matched(t, kind, f"tangent of leaf {i}") for i, (t, kind) in enumerate(zip(flat, call.types, strict=True))]


def matched(value: Any, kind: ArrayType, what: str) -> Any:
    """A given tangent or cotangent, checked against the type of what it belongs to; None for integers."""
    if value is None:
        return None
    actual = type_of(value)
    if not is_differentiable(kind.dtype):
        if is_differentiable(actual.dtype):
            raise ArgumentError(
                f"{what} is a {actual.dtype}, but belongs to a value of dtype {kind.dtype}, which has no derivative: "
                "pass 2.0 instead of 2 (or .astype(float)), or None as its tangent."
            )
        return None
    if actual.shape != kind.shape:
        raise ArgumentError(f"{what} has shape {actual.shape}, expected {kind.shape}")
    if actual.dtype.kind == "c" and kind.dtype.kind != "c":
        raise ArgumentError(f"{what} is complex ({actual.dtype}), but belongs to a real value ({kind.dtype})")
    if kind.weak and isinstance(value, (np.generic, np.ndarray)):
        return value.item()  # the tangent of a Python scalar is one too
    if actual.dtype != kind.dtype:
        value = convert(value, dtype=kind.dtype)
    return constant_copy(value)


class Linearized:
    """A call run once, and its derivative as a linear Program of the differentiated leaves; to be used `quiet()`ly."""

    def __init__(self, call: Call, select: Sequence[bool], prune: bool = True):
        self.call = call
        self.select: list[bool] = []  # which leaves are differentiated
        tape = linear_tape(call.values)
        with tape:
            lifted, variables = [], []
            with Dual(tape) as level:
                for value, kind, selected, trained in zip(call.values, call.types, select, call.trainable, strict=True):
                    selected = selected and trained and is_differentiable(kind.dtype)
                    self.select.append(selected)
                    if selected:
                        variables.append(Var(tape, kind))
                        value = DualValue(level, value, variables[-1])
                    lifted.append(value)
                pairs = [level.split(o) for o in call.run(lifted)]
            count = len(pairs) - len(call.written)
            self.values: list[Any] = [p for p, _ in pairs[:count]]
            self.types: list[ArrayType] = [type_of(v) for v in self.values]
            self.has_tangent: list[bool] = [t is not None for _, t in pairs[:count]]
            self.program: Program = tape.finish(variables, [t for _, t in pairs[:count] if t is not None], prune)
        if call.written:
            literals = [a for e in self.program.equations for a in e.inputs if type(a) is Literal]
            residuals = [a.value for a in literals]
            call.write_back([p for p, _ in pairs[count:]], residuals, self.values)
            for literal, value in zip(literals, residuals, strict=True):
                literal.value = value

    def push(self, tangents: Sequence[Any]) -> list[Any]:
        """Tangents of the outputs, for tangents of the selected leaves."""
        outs = scatter_flags(run(self.program, tangents), self.has_tangent)
        return [zeros_like_type(k) if t is None else t for t, k in zip(outs, self.types, strict=True)]

    def pull(self, cotangents: Sequence[Any], consume: bool = False) -> list[Any]:
        """Cotangents of all leaves (zeros where there is no dependence), for cotangents of the outputs.

        None for what isn't trained: buffers and frozen parameters.
        """
        cts = pull_back(self.program, pick(cotangents, self.has_tangent), consume)
        pairs = zip(scatter_flags(cts, self.select), self.call.types, self.call.trainable, strict=True)
        return [zeros_like_type(t) if ct is None and trained else ct for ct, t, trained in pairs]

    def take_value(self) -> Any:
        """The function's result, given away: from here on only its types are kept."""
        values, self.values = self.values, []
        return self.call.result(values)


def linearize(f: Callable[..., R], *primals: Any) -> tuple[R, Callable[..., R]]:
    """`(f(*primals), push)`: the value and the derivative at that point as a function of tangents.

    The function runs once; `push(*tangents)` then costs only its linear part.
    """
    check_function(f, "linearize")
    call = Call(f, primals, {})
    with quiet():
        lin = Linearized(call, [True] * len(call.values))
    keep(lin.program)
    value = lin.take_value()

    def push(*tangents: Any) -> Any:
        if len(tangents) != len(primals):
            raise ArgumentError(f"expected {len(primals)} tangents, got {len(tangents)}")
        flat = zip(flat_tangents(tangents, call), call.types, strict=True)
        given = [zeros_like_type(k) if t is None else t for t, k in flat]
        with quiet():
            return call.result(lin.push(pick(given, lin.select)))

    return value, push


def vjp(f: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """`(f(*primals), pull)`: the value and reverse mode at that point as a function of cotangents.

    `pull(cotangent)` takes a tree like the output and returns a tuple with one cotangent tree per argument; it can be
    called many times. With `has_aux`, f returns `(out, aux)`, and the result is `(out, pull, aux)`.
    """
    check_function(f, "vjp")
    call = Call(f, primals, {})
    with quiet():
        lin = Linearized(call, [True] * len(call.values))
    keep(lin.program)
    types, value = lin.types, lin.take_value()
    structure = aux_structure(call.out_structure) if has_aux else call.out_structure

    def pull(cotangent: Any) -> tuple:
        leaves, found = tree.flatten(cotangent)
        if found != structure:
            raise ArgumentError(f"the cotangent has structure {found}, the output {structure}")
        cts = [matched(unwrap(leaf), t, "the cotangent") for leaf, t in zip(leaves, types, strict=False)]
        cts += [None] * (len(types) - len(cts))
        with quiet():
            return call.structure.unflatten(handles(lin.pull(cts)))[0]

    return (value[0], pull, value[1]) if has_aux else (value, pull)


def aux_structure(structure: tree.Structure | None) -> tree.Structure:
    """The structure of `out` in that of a result `(out, aux)`."""
    if structure is None or structure.kind is None or len(structure.children) != 2:
        raise ArgumentError(f"with has_aux=True the function must return a pair (out, aux), not {structure}")
    return structure.children[0]


def grad(
    f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, memory_budget: float | None = None
) -> Callable[P, Any]:
    """The gradient of a function with a scalar result, by reverse mode.

    `argnums` says which argument(s) to differentiate (trees are fine; an int gives one gradient, a sequence a tuple);
    integer and bool leaves get zeros. With `has_aux`, f returns `(value, aux)` and the result is `(gradient, aux)`.
    For complex arguments the gradient is the direction of steepest ascent: |z|^2 has gradient 2 z.
    With a `memory_budget` in bytes, parts of f are computed again in the backward pass instead of being kept.
    """
    check_function(f, "grad")
    both = value_and_grad(f, argnums, has_aux, memory_budget)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return named(gradient, f, "grad", grad, argnums, has_aux, memory_budget)


def value_and_grad(
    f: Callable[P, R], argnums: int | Sequence[int] = 0, has_aux: bool = False, memory_budget: float | None = None
) -> Callable[P, tuple[R, Any]]:
    """Like `grad`, returning `(value, gradient)`; with `has_aux`, `((value, aux), gradient)`."""
    if memory_budget is not None:
        f = load_module("wonderland.transform.budget").within(f, memory_budget)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, len(args))
        call = Call(f, args, kwargs, numbers)
        select = selected(call, numbers)
        with quiet():
            lin = Linearized(call, select, prune=False)  # it is transposed once: what isn't needed is passed over
            seed = _seed(lin, has_aux)
            value = lin.take_value()
            cotangents = lin.pull(seed, consume=True)
        plain = call.structure is tree.plain_call(len(cotangents))
        trees = handles(cotangents) if plain else call.structure.children[0].unflatten(handles(cotangents))
        single = isinstance(argnums, (int, np.integer))
        return value, trees[numbers[0]] if single else tuple(trees[i] for i in numbers)

    return named(value_and_gradient, f, "value_and_grad", value_and_grad, argnums, has_aux)


def argument_numbers(argnums: Any, count: int) -> tuple[int, ...]:
    """`argnums` as non-negative positions."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    numbers = tuple(argnums) if np.iterable(argnums) and not isinstance(argnums, str) else (argnums,)
    out = []
    for n in numbers:
        if not isinstance(n, (int, np.integer)) or not -count <= n < count:
            raise ArgumentError(
                f"argnums={argnums!r}, but the function was called with {count} positional arguments: argnums are "
                "positions from 0 on; pass what is to be differentiated by position"
            )
        out.append(int(n) % count)
    return tuple(out)


def selected(call: Call, numbers: Sequence[int]) -> list[bool]:
    """Which leaves belong to the arguments at these positions; refused, if they are integers only."""
    counts = [structure.leaf_count for structure in call.structure.children[0].children]
    select = [i in numbers for i, count in enumerate(counts) for _ in range(count)]
    select += [False] * (len(call.types) - len(select))
    select = [flag and trained for flag, trained in zip(select, call.trainable, strict=True)]
    chosen = pick(call.types, select)
    if chosen and chosen[0].dtype.kind != "f" and not any(is_differentiable(t.dtype) for t in chosen):
        raise ArgumentError(
            f"can't differentiate with respect to argument {', '.join(map(str, numbers))}: it has dtype "
            f"{chosen[0].dtype}. Derivatives need floating point: pass 2.0 instead of 2, or use .astype(float)."
        )
    return select


def _seed(lin: Linearized, has_aux: bool) -> list:
    structure, types = lin.call.out_structure, lin.types
    assert structure is not None
    structure = aux_structure(structure) if has_aux else structure
    if structure.kind is not None or types[0].shape != ():
        shape = types[0].shape if structure.kind is None else structure
        raise ArgumentError(
            f"grad needs a function with a single scalar result, this one returned {shape}. Reduce it (np.sum), or "
            "use wl.jacobian or wl.vjp; for a function that returns (value, aux), say has_aux=True."
            + (" Is there a `return` in it?" if not types else "")
        )
    if types[0].dtype.kind != "f":
        way_out = "For a complex function take the real or imaginary part, or use wl.vjp."
        if types[0].dtype.kind != "c":
            way_out = "Integers and bools have no derivative; where did the floating-point numbers go?"
        raise ArgumentError(f"grad needs a real result, this one has dtype {types[0].dtype}. {way_out}")
    return [types[0].dtype.type(1), *[None] * (len(types) - 1)]


def trace(f: Callable[P, Any]) -> Callable[P, Program]:
    """`trace(f)(*args)` is the Program (evaluation trace) of `f` for arguments of these types; nothing is computed."""

    def traced(*args: Any, **kwargs: Any) -> Program:
        call = Call(f, args, kwargs)
        return record(lambda *values: call.run(values), call.types)

    return named(traced, f, "trace", trace)


def stop_gradient(x: R) -> R:
    """`x` (a tree) as a constant: derivatives don't see where it comes from."""

    def stopped(leaf: Any) -> Any:
        if not isinstance(leaf, Tracer) or not is_differentiable(leaf.dtype):  # a bool has no derivative to stop
            return leaf
        return Tracer(stop_gradient_p(leaf._get()))

    return tree.tree_map(stopped, x)
