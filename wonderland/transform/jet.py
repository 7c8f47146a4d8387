"""Taylor mode: `jet` pushes a truncated power series through a function; `nth_derivative` is its n-th coefficient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import Call, handles
from wonderland.core.kinds import kind_of
from wonderland.core.level import Traced, freeze
from wonderland.core.tracer import unwrap
from wonderland.core.types import P, R, is_differentiable, type_of
from wonderland.ops.elementwise import div, mul
from wonderland.transform.derivatives import argument_numbers, matched, named, quiet, selected
from wonderland.transform.programs import dense
from wonderland.transform.taylor import Taylor

LARGEST_FACTORIAL = 170  # 171! isn't a float


def jet(f: Callable, primals: Sequence[Any], series: Sequence[Any], factorial_scaled: bool = True) -> tuple[Any, Any]:
    """The derivatives of `f(x(t))` at t = 0 from those of a path x(t): `(out, series_out)`.

    `primals` is x(0), a tuple with one tree per argument; `series` is like it with a list `[x', x'', ...]` of n
    derivatives at t = 0 in the place of each array. A list, or a term, of None is zero. `out` is `f(*primals)`, and
    `series_out` like it with a list of n derivatives in the place of each array. As in `jax.experimental.jet`, terms
    are derivatives; with `factorial_scaled=False` they are Taylor coefficients, x'' / 2 and so on.

    One run of f on series: the cost grows as n^2.
    """
    check_function(f, "jet")
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)):
        raise ArgumentError("jet takes a tuple of arguments and a tuple of series: jet(f, (x,), ([x1, x2],))")
    if len(primals) != len(series):
        raise ArgumentError(f"jet got {len(primals)} primals and {len(series)} series")
    call = Call(f, tuple(primals), {}, [i for i, s in enumerate(series) if s is not None])
    found: list = []
    for number, (terms, structure) in enumerate(zip(series, call.structure.children[0].children, strict=True)):
        found += _lists(terms, structure, f"the series of argument {number}")
    found += [None] * (len(call.types) - len(found))
    order = _common_length(found)
    factors = _factorials(order) if factorial_scaled else [1] * order
    rows = []
    for i, (terms, kind) in enumerate(zip(found, call.types, strict=True)):
        row = [None] * order if terms is None else [unwrap(c) for c in terms]
        row = [matched(c, kind, f"term {k} of the series of leaf {i}") for k, c in enumerate(row, 1)]
        rows.append([_scaled(div, c, factor) for c, factor in zip(row, factors, strict=True)])
    results = _expand(call, rows, order)
    assert call.out_structure is not None
    for row in results:
        row[1:] = [_scaled(mul, c, factor) for c, factor in zip(row[1:], factors, strict=True)]
    terms_out = [handles([dense(c, row[0]) for c in row[1:]]) for row in results]
    return call.result([row[0] for row in results]), call.out_structure.unflatten(terms_out)


def nth_derivative(f: Callable[P, R], n: int, argnum: int = 0) -> Callable[P, R]:
    """The n-th derivative of `f` with respect to a scalar argument, in one run of f with O(n^2) operations.

    f may return any tree of arrays. Of an array (or a tree) x it is the n-th derivative of f(x + t) with respect to
    the number t: of an elementwise function, the n-th derivative of each element.
    """
    if isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)) or n < 0:
        raise ArgumentError(f"nth_derivative: n is an integer from 0 on, not {n!r}")
    if not isinstance(argnum, (int, np.integer)):
        raise ArgumentError(f"nth_derivative: argnum is the position of one argument, not {argnum!r}")
    (factor,) = _factorials(int(n))[-1:] or [1]

    def derivative(*args: Any, **kwargs: Any) -> Any:
        (number,) = argument_numbers(argnum, len(args))
        call = Call(f, args, kwargs, [number])
        rows: list = []
        for kind, chosen in zip(call.types, selected(call, [number]), strict=True):
            one = np.broadcast_to(freeze(np.ones((), kind.dtype)), kind.shape)[()]  # one number, seen many times
            rows.append(([matched(one, kind, "") if chosen else None] + [None] * n)[:n])
        results = _expand(call, rows, int(n))
        return call.result([dense(_scaled(mul, row[-1], factor), row[0]) if n else row[0] for row in results])

    return named(derivative, f, f"nth_derivative({n})", nth_derivative, n, argnum)


def _expand(call: Call, rows: list[list], order: int) -> list[list]:
    """Run the function on series (coefficients 1, ..., n of each leaf): coefficients 0, ..., n of each result."""
    with quiet(), Taylor(order) as level:
        outs = call.run([level.lift(v, row) for v, row in zip(call.values, rows, strict=True)])
        results, written = call.split([level.split(o) for o in outs])
    flat = [c for row in results for c in row]
    call.write_back([row[0] for row in written], flat)
    return [flat[i * (order + 1) : (i + 1) * (order + 1)] for i in range(len(results))]


def _lists(terms: Any, structure: tree.Structure, what: str) -> list:
    """For each leaf of an argument its list of terms, or None."""
    if terms is None or not structure.leaf_count:
        return [None] * structure.leaf_count
    if structure.kind is None:
        if not isinstance(terms, (list, tuple)):
            raise ArgumentError(f"jet: {what} must be a list of terms [x1, x2, ...], not {type(terms).__name__}")
        return [terms]
    kind = kind_of(terms)
    fits, children = kind is structure.kind, []
    if fits and structure.kind.mutable:  # whose attributes are static when they hold no array
        children = [getattr(terms, name, None) for name in structure.static[1]]
    elif fits:
        found, static = structure.kind.flatten(terms)
        fits, children = len(found) == len(structure.children) and static == structure.static, list(found)
    if not fits:
        raise ArgumentError(
            f"jet: {what} must be like the argument, {structure}, with a list of terms in the place of each array, "
            f"not {tree.flatten(terms)[1]}"
        )
    return [leaf for c, s in zip(children, structure.children, strict=True) for leaf in _lists(c, s, what)]


def _common_length(lists: list) -> int:
    lengths = {len(terms) for terms in lists if terms is not None}
    if len(lengths) != 1:
        which = f"series of different lengths: {sorted(lengths)}" if lengths else "no series at all"
        raise ArgumentError(f"jet got {which}. Give each argument the same number of terms (None for zeros).")
    return lengths.pop()


def _factorials(order: int) -> list[float]:
    if order > LARGEST_FACTORIAL:
        raise ArgumentError(
            f"derivatives of order {order} are multiples of {order}!, which isn't a float: ask for Taylor "
            "coefficients, jet(..., factorial_scaled=False)"
        )
    return [float(math.factorial(k)) for k in range(1, order + 1)]


def _scaled(operation: Callable, c: Any, factor: float) -> Any:
    """A coefficient times or over a factorial; what is plainly zero becomes a structural zero."""
    if c is None or (not isinstance(c, Traced) and not np.any(c)):
        return None
    dtype = type_of(c).dtype
    if factor == 1 or not is_differentiable(dtype):
        return c
    if factor * float(np.finfo(dtype).tiny) >= 1:  # coefficients of that size have no digits left, or none at all
        order = next(k for k in range(LARGEST_FACTORIAL) if math.factorial(k + 1) > 1 / float(np.finfo(dtype).tiny))
        raise ArgumentError(
            f"derivatives in {dtype} go up to order {order}: of higher ones the Taylor coefficients underflow, the "
            "factorials overflow. Use float64, or ask for coefficients, jet(..., factorial_scaled=False)."
        )
    return operation(c, factor)
