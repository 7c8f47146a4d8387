"""`finite_difference`: derivatives by difference quotients, the numerical differentiation that the notes set beside AD.

A function and its arguments come in; it is called at neighbouring points, as often as the scheme says, and quotients go
out, in the shapes of `jacobian`. Nothing is asked of the function but that it can be called: code that can't be traced
has approximate derivatives, too.

    forward        (f(x + h) - f(x)) / h          error O(h) + O(eps / h)     h = eps^(1/2)
    central        (f(x + h) - f(x - h)) / 2h     error O(h^2) + O(eps / h)   h = eps^(1/3)
    complex_step   Im f(x + ih) / h               error O(h^2), and rounding  h = 1e-20
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, NoValueError, TracingError, check_function
from wonderland.core.functions import Call, handles
from wonderland.core.level import Traced, constant_copy
from wonderland.core.program import Equation, Program
from wonderland.core.types import ArrayType, P, is_differentiable, shape_of, type_of
from wonderland.numpy.join import stack
from wonderland.ops.elementwise import abs, add, div, eq, imag, like, maximum, mul, real, stop_gradient, sub, where
from wonderland.ops.math import complex
from wonderland.ops.reduce import max as largest_of
from wonderland.ops.shape import convert, reshape, zeros_like_type
from wonderland.transform.chunks import element
from wonderland.transform.derivatives import argument_numbers, flat_tangents, named, quiet
from wonderland.transform.jacobian import all_equations
from wonderland.transform.programs import record

EXPONENTS = {"forward": 1 / 2, "central": 1 / 3}  # eps to this power is the step where rounding and truncation balance
SCHEMES = (*EXPONENTS, "complex_step")


def finite_difference(
    f: Callable[P, Any], argnums: int | Sequence[int] = 0, scheme: str = "central", step: float | str = "auto"
) -> Callable[P, Any]:
    """The Jacobian of `f` by difference quotients: for each pair of leaves an array of shape `out.shape + in.shape`.

    With n elements to differentiate, scheme "forward" calls f n + 1 times and "central" 2n + 1 times. "complex_step"
    calls it n + 1 times, and has no error but rounding; it needs a function that is analytic (no abs) and computes with
    complex numbers, which another 5 calls check. A `step` of "auto" follows from the precision and the size of each
    element; a number is the step itself. What `f` writes to mutable arguments is dropped.
    """
    _check_options(scheme, step)
    single = isinstance(argnums, (int, np.integer))

    def compute(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, len(args))
        call = Call(f, args, kwargs, numbers)
        counts = [child.leaf_count for child in call.structure.children[0].children]
        chosen = [leaf for n in numbers for leaf in range(sum(counts[:n]), sum(counts[: n + 1]))]
        trained = [leaf for leaf in chosen if call.trainable[leaf]]
        moving = [leaf for leaf in trained if is_differentiable(call.types[leaf].dtype)] or trained
        quotients = _Quotients(call, moving, scheme, step)
        columns = {leaf: quotients.columns(leaf) for leaf in moving}
        structure = tree.flatten_call(tuple(args[n] for n in numbers), {})[1].children[0]
        trees = []
        for k, out in enumerate(quotients.out_types):
            row = [
                _joined([column[k] for column in columns.get(leaf, ())], out, quotients.types[leaf])
                if call.trainable[leaf]
                else None
                for leaf in chosen
            ]
            per_argument = structure.unflatten(handles(row))
            trees.append(per_argument[0] if single else per_argument)
        assert call.out_structure is not None
        return call.out_structure.unflatten(trees)

    return named(compute, f, "finite_difference", finite_difference, argnums, scheme, step)


def finite_difference_jvp(
    f: Callable, primals: Sequence[Any], tangents: Sequence[Any], scheme: str = "central", step: float | str = "auto"
) -> Any:
    """The derivative of `f` at `primals` along `tangents` by one difference quotient: the tangent that `jvp` computes.

    `primals` and `tangents` are tuples with one tree per argument; a tangent of None is zero.
    """
    _check_options(scheme, step)
    check_function(f, "finite_difference_jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError("finite_difference_jvp takes tuples of arguments and of tangents: (f, (x,), (t,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"finite_difference_jvp got {len(primals)} primals and {len(tangents)} tangents")
    call = Call(f, tuple(primals), {}, [i for i, t in enumerate(tangents) if t is not None])
    directions = {i: t for i, t in enumerate(flat_tangents(tangents, call)) if t is not None}
    return call.result(_Quotients(call, list(directions), scheme, step).along(directions))


def _check_options(scheme: str, step: Any) -> None:
    if scheme not in SCHEMES:
        raise ArgumentError(f"finite_difference: scheme is one of {', '.join(map(repr, SCHEMES))}, not {scheme!r}")
    number = type(step) in (int, float) or isinstance(step, (np.integer, np.floating))
    if not (0 < float(step) < math.inf if number else isinstance(step, str) and step == "auto"):
        raise ArgumentError(f'finite_difference: step is "auto" or a positive number, not {step!r}')


class _Quotients:
    """The difference quotients of one call with respect to its leaves at the places `chosen`."""

    def __init__(self, call: Call, chosen: Sequence[int], scheme: str, step: float | str):
        self.call, self.chosen, self.scheme = call, chosen, scheme
        self.step: float | str = "auto"  # for the check of a complex step, whatever is to be used then
        self.types = [type_of(v) for v in call.values]
        self.points = {i: call.values[i] for i in chosen}
        self.base: list | None = None
        self.out_types: list[ArrayType] = []
        self._check_types([self.types[i] for i in chosen])
        if scheme != "central" or step == "auto" or not any(type_of(x).size for x in self.points.values()):
            self.base = self.run({})
        if scheme == "complex_step":
            if any(t.dtype.kind == "c" for t in self.out_types):
                raise ArgumentError(
                    'scheme="complex_step" reads the derivative off the imaginary part, but this function of real '
                    'arguments has complex results: use scheme="central"'
                )
            self.points = {i: complex(x, zeros_like_type(type_of(x))) for i, x in self.points.items()}
            self._check_analytic()
        self.step = step

    def _check_types(self, types: list[ArrayType]) -> None:
        for t in types:
            if not is_differentiable(t.dtype):
                raise ArgumentError(
                    f"finite_difference needs floating-point arguments, this one has dtype {t.dtype}: use 2.0 instead "
                    "of 2, or .astype(float)"
                )
            if self.scheme == "complex_step" and (t.dtype.kind == "c" or t.dtype == np.float16):
                why = "is complex already" if t.dtype.kind == "c" else "has no complex counterpart"
                raise ArgumentError(
                    f'scheme="complex_step" needs real arguments; {t.dtype} {why}: use scheme="central"'
                )

    def run(self, moved: Any) -> list:
        """The function's results with some leaves moved. It may write to leaves that are differentiated."""
        values = list(self.call.values)
        for i in self.chosen:
            value = moved.get(i, self.points[i])
            values[i] = value.copy() if type(value) is np.ndarray else value
        self.call.types = [type_of(v) for v in values]  # of what is written to a mutable argument, complex or not
        results = [constant_copy(o) for o in self.call.split(self.call.run(values))[0]]  # it may use its array again
        self.out_types = self.out_types or [type_of(o) for o in results]
        return results

    def run_complex(self, moved: Any) -> list:
        """`run`, on complex numbers, which the function mustn't refuse nor lose."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)
                return self.run(moved)
        except TracingError:
            raise
        except (TypeError, np.exceptions.ComplexWarning) as error:
            raise ArgumentError(
                'scheme="complex_step" calls the function with complex arguments, and this one can\'t compute with '
                f'them: {str(error).rstrip(".")}. Use scheme="central".'
            ) from error

    def relative_step(self) -> float:
        """By the coarsest precision among arguments and results."""
        types = [*(self.types[i] for i in self.chosen), *self.out_types]
        eps = max([float(np.finfo(t.dtype).eps) for t in types if is_differentiable(t.dtype)])
        return eps ** EXPONENTS[self.scheme] if self.scheme in EXPONENTS else 1e-20 if eps < 1e-10 else 1e-10

    def steps(self, size: Any) -> Any:
        """The step for each number of this size."""
        if self.step != "auto":
            return like(float(self.step), size)
        if self.scheme == "complex_step":
            # Nothing is subtracted: small numbers may have small steps, as long as products with them don't underflow.
            floor = float(np.finfo(type_of(size).dtype).tiny) ** 0.5
            size = where(eq(size, 0.0), 1.0, maximum(size, floor))
        else:
            size = maximum(size, 1.0)
        return mul(self.relative_step(), stop_gradient(size))

    def columns(self, leaf: int) -> list[list]:
        """For each element of a leaf the derivatives of the results with respect to it."""
        kind = self.types[leaf]
        if not kind.size:
            return []
        h = self.steps(abs(self.call.values[leaf]))
        columns = self._columns(leaf, h)
        if kind.dtype.kind == "c" and any(t.dtype.kind == "f" for t in self.out_types):
            # A real result of a complex argument has a derivative along i as well.
            for column, other in zip(columns, self._columns(leaf, mul(h, 1j)), strict=True):
                for number, t in enumerate(self.out_types):
                    if t.dtype.kind == "f":
                        column[number] = add(column[number], mul(other[number], 1j))
        return columns

    def _columns(self, leaf: int, h: Any) -> list[list]:
        """The same for given steps, real or imaginary ones."""
        x = self.points[leaf]
        if self.scheme == "complex_step":
            ahead, behind, widths = complex(real(x), h), None, h
        else:
            ahead, behind = add(x, h), sub(x, h) if self.scheme == "central" else None
            widths = sub(ahead, x if behind is None else behind)  # what the steps have become in floating point
            if not isinstance(widths, Traced) and np.any(np.equal(widths, 0)):
                raise ArgumentError(f"finite_difference: x + h is x for a step of {self.step}: use a larger one")
            if type_of(x).dtype.kind == "c":
                widths = imag(widths) if type_of(h).dtype.kind == "c" else real(widths)
        shape = shape_of(x)
        numbers = np.arange(math.prod(shape)).reshape(shape)
        columns = []
        for k in range(numbers.size):
            forth, back = (
                None if point is None else {leaf: where(numbers == k, point, x) if shape else point}
                for point in (ahead, behind)
            )
            width = element(widths, k)
            if self.scheme == "complex_step":
                columns.append(self._parts(self.run_complex(forth), width))
            else:
                columns.append(self._difference(self.run(forth), self.run(back) if back else self.base, width))
        return columns

    def along(self, directions: dict[int, Any]) -> list:
        """The derivatives of the results along directions of the chosen leaves."""
        if not any(type_of(t).size for t in directions.values()):
            return [zeros_like_type(t) for t in self.out_types]
        h = self.steps(_largest([self.call.values[i] for i in directions]))
        if self.step == "auto":
            length = stop_gradient(_largest(list(directions.values())))
            h = div(h, where(eq(length, 0.0), 1.0, length))
        h = h if isinstance(h, Traced) else float(h)

        def moved(combine: Callable) -> dict[int, Any]:
            return {i: combine(self.points[i], like(mul(h, t), t)) for i, t in directions.items()}

        if self.scheme == "complex_step":
            return self._parts(self.run_complex(moved(lambda x, t: complex(real(x), t))), h)
        if self.scheme == "forward":
            return self._difference(self.run(moved(add)), self.base, h)
        return self._difference(self.run(moved(add)), self.run(moved(sub)), mul(2.0, h))

    def _difference(self, ahead: list, behind: Any, width: Any) -> list:
        return [
            like(div(sub(p, m), width), p) if is_differentiable(t.dtype) else zeros_like_type(t)
            for p, m, t in zip(ahead, behind, self.out_types, strict=True)
        ]

    def _parts(self, outs: list, h: Any) -> list:
        """Imaginary parts over the step; a result that stays real doesn't depend on the argument."""
        return [
            convert(div(imag(o), h), dtype=t.dtype) if type_of(o).dtype.kind == "c" else zeros_like_type(t)
            for o, t in zip(outs, self.out_types, strict=True)
        ]

    def _check_analytic(self) -> None:
        """Refuse a function that isn't: by its numbers, or inside another transformation by its equations."""
        if any(isinstance(v, Traced) for v in self.call.values):
            types = [type_of(x) for x in self.points.values()]
            try:
                program = record(lambda *zs: self.run_complex(dict(zip(self.chosen, zs, strict=True))), types)
            except NoValueError:  # it decides by values: there isn't one Program
                return
            for equation in not_analytic(program):
                raise ArgumentError(
                    f'scheme="complex_step" needs an analytic function, and `{equation}` isn\'t: use scheme="central"'
                )
            return
        rng = np.random.default_rng(0)
        directions = {i: rng.uniform(-1, 1, shape_of(x)).astype(real(x).dtype)[()] for i, x in self.points.items()}
        scale = max(1.0, float(_largest([self.call.values[i] for i in directions])))
        found = self.along(directions)
        with quiet():
            coarse, fine = (
                _Quotients(self.call, self.chosen, "central", scale * h).along(directions) for h in (2**-8, 2**-9)
            )
        for a, b, c in zip(found, coarse, fine, strict=True):
            # Differences of two steps agree, and not with this: then it isn't the steps that are wrong.
            if is_differentiable(type_of(a).dtype) and np.any(_far(a, c, 0.1) & ~_far(b, c, 0.01)):
                raise ArgumentError(
                    f'scheme="complex_step" needs an analytic function (no np.abs, np.conj, np.real or np.sign of an '
                    f"argument): along a random direction it gives {a}, central differences {c}. "
                    'Use scheme="central".'
                )


def _far(a: Any, b: Any, tolerance: float) -> Any:
    return ~(np.abs(a - b) <= tolerance * np.abs(b))


def not_analytic(program: Program) -> Iterator[Equation]:
    """The equations that lose or turn an imaginary part."""
    for equation in all_equations(program):
        types = tuple(a.type for a in equation.inputs)
        if any(t.dtype.kind == "c" for t in types):
            fact = equation.primitive.analytic
            analytic = fact(types, equation.params) if callable(fact) else fact
            if not analytic or any(v.type.dtype.kind == "f" for v in equation.outputs):
                yield equation


def _largest(values: list) -> Any:
    """The largest absolute value among the elements of arrays; 0 if there are none."""
    out: Any = 0.0
    for v in values:
        if type_of(v).size:
            rank = len(shape_of(v))
            out = maximum(out, largest_of(abs(v), axes=tuple(range(rank))) if rank else abs(v))
    return out


def _joined(columns: list, out: ArrayType, kind: ArrayType) -> Any:
    """Derivatives by each element of an argument, as one array of shape `out.shape + in.shape`."""
    shape = (*out.shape, *kind.shape)
    if not columns:  # it has no elements, or they are integers
        return zeros_like_type(ArrayType(shape, out.dtype))
    return reshape(stack(columns, axis=-1), shape=shape) if kind.shape else columns[0]
