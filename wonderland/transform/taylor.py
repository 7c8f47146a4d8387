"""The Taylor level: every value is a truncated power series x_0 + x_1 t + ... + x_n t^n of one real variable t.

Linear operations act on each coefficient, bilinear ones convolve, and a primitive may have a `taylor` rule of its own.
For all others the forward-mode rule is read as a differential equation: y' = jvp(x; x') says

    k y_k = coefficient k - 1 of jvp(x(t); x'(t)),

whose right side needs no more than y_0, ..., y_{k-1}. So coefficients are found one by one, on demand: the rule runs
once, on series whose coefficients aren't there yet, and gets `y` itself where it computes the primitive again (for exp,
y' = y x'; sin and cos find each other). One more order costs one more term of each convolution: O(n^2) in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonderland.core.level import Level, Traced, bind, bind_update, is_alone
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, run
from wonderland.core.types import PYTHON_SCALARS, ArrayType, is_differentiable, type_of
from wonderland.ops.elementwise import masked, masked_mul, mul
from wonderland.ops.series import convolve, integral
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.programs import cached, dense, record


class Series(Traced):
    """A power series: the coefficients that are `known`, and how to `find` the next; None is a structural zero."""

    __slots__ = ("_kind", "_slope", "find", "known")

    def __init__(self, level: Taylor, known: list[Any], find: Callable | None = None, kind: ArrayType | None = None):
        self.level = level
        self.known: list[Any] = known
        self.find: Callable | None = find  # k -> coefficient k; None when all are known, and what isn't there is zero
        self._kind = kind
        self._slope: Series | None = None

    def __getitem__(self, k: int) -> Any:
        known = self.known
        while len(known) <= k:
            if self.find is None:
                return None
            known.append(self.find(len(known)))
        return known[k]

    @property
    def primal(self) -> Any:
        return self[0]

    @property
    def tangent(self) -> Any:
        """None if it is known not to depend on t; something else says that a derivative would be lost."""
        return None if self.constant else self

    @property
    def type(self) -> ArrayType:
        return type_of(self.known[0]) if self.known else self._kind  # type: ignore[return-value]

    @property
    def constant(self) -> bool:
        """Is it known not to depend on t?"""
        return self.find is None and all(c is None for c in self.known[1:])

    def slope(self) -> Series:
        """The derivative with respect to t."""
        if self._slope is None:
            self._slope = self.shifted(lambda k, c: mul(float(k), c) if k > 1 else c)
        return self._slope

    def shifted(self, term: Callable = lambda k, c: c) -> Series:
        """The series without its first coefficient, each of the others as `term(order, coefficient)`."""

        def find(k: int) -> Any:
            c = self[k + 1]
            if c is None:
                return None if k else zero_like(self)  # a value has a first coefficient
            return term(k + 1, c)

        return Series(self.level, [], find, self.type)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"Series({self.known!r})"


class Taylor(Level):
    """Series up to t^order. Outside of a rule, what an operation returns is known at once, to the last order."""

    __slots__ = ("memo", "order", "solving")
    name = "a function of Taylor series (jet)"

    def __init__(self, order: int):
        self.order: int = order
        self.solving = False  # are coefficients being found? Then what rules compute can wait
        self.memo: dict[Any, tuple[Any, ...]] = {}  # what was computed while solving: (result, operands)

    def lift(self, primal: Any, terms: Sequence[Any]) -> Any:
        """The series with these coefficients of t, t^2, ..."""
        return primal if all(c is None for c in terms) else Series(self, [primal, *terms])

    def split(self, value: Any) -> list[Any]:
        """All coefficients of a value, which may be a constant at this level."""
        if type(value) is Series and value.level is self:
            return [value[k] for k in range(self.order + 1)]
        return [value, *[None] * self.order]

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> Any:
        if primitive.effect:  # it sees the value at t = 0
            series = [self.as_series(a) for a in args]
            slopes = tuple(None if s.constant else s[0] for s in series)
            return tuple(primitive.jvp(tuple(s[0] for s in series), slopes, **params)[0])  # type: ignore[misc]
        key = self.key(primitive, args, params)
        if key in self.memo:
            return self.memo[key][0]
        outs = self.expand(primitive, args, params)
        result = tuple(outs) if primitive.multiple else outs[0]
        if key is not None:
            self.memo[key] = (result, args)
        if self.solving:
            return result
        self.solving = True
        try:
            for k in range(self.order + 1):
                for out in outs:
                    out[k]
        except RecursionError:
            raise RecursionError(
                f"the derivative of {primitive.name} is another function, that one's another, and so on to order "
                f"{self.order}: too deep for Python. Allow it more with sys.setrecursionlimit(10000)."
            ) from None
        finally:
            self.solving: bool = False
            self.memo.clear()
        for out in outs:
            out.find = out._slope = None
        found = tuple([out.known[0] if out.constant else out for out in outs])
        return found if primitive.multiple else found[0]

    def key(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> Any:
        """What tells one operation from another: the primitive, the very operands, and the parameters."""
        operands = []
        for a in args:
            if type(a) is Series and a.level is self and a.find is None and len(a.known) == 1:
                a = a.known[0]
            operands.append((type(a), a) if type(a) in PYTHON_SCALARS else id(a))
        key = (primitive.name, *operands, *params.items())
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def as_series(self, a: Any) -> Series:
        return a if type(a) is Series and a.level is self else Series(self, [a])

    def expand(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> list[Series]:
        """The results of an operation, as series whose coefficients are found on demand."""
        series = [self.as_series(a) for a in args]
        held = primitive.multiple and primitive.taylor is not None  # it holds Programs: all orders in one call
        first: list = []  # the results at t = 0

        def value(number: int) -> Any:
            if not first:
                slope = primitive is masked_mul  # perhaps of the variable itself: times 1
                out = convolve(series[0], series[1], 0) if slope else bind(primitive, *[s[0] for s in series], **params)
                first.extend(out if primitive.multiple else [out])
            return first[number]

        if held or not all(s.known for s in series):
            kinds = primitive.infer(*[s.type for s in series], **params)
            kinds = list(kinds) if primitive.multiple else [kinds]
        else:
            value(0)
            kinds = [type_of(v) for v in first]
        rules: list = []  # of each result, found when the first coefficient is asked for: rules may lead on and on

        def find(number: int) -> Callable:
            def coefficient(k: int) -> Any:
                if k == 0 and not held:
                    return value(number)
                if not rules:
                    rules.extend(self.rules(primitive, args, series, outs, params))
                return rules[number](k)

            return coefficient

        outs: list[Series] = []
        for number, kind in enumerate(kinds):
            moves = held or is_differentiable(kind.dtype)
            known = first[number : number + 1]
            if moves or not known:
                outs.append(Series(self, known, find(number) if moves else _constant(value, number), kind))
            else:
                outs.append(Series(self, known))
        return outs

    def rules(
        self,
        primitive: Primitive,
        args: tuple[Any, ...],
        series: list[Series],
        outs: list[Series],
        params: dict[Any, Any],
    ) -> list[Callable[..., Any]]:
        """For each result the function that gives its coefficients."""
        moving = {
            i
            for i, a in enumerate(args)
            if type(a) is Series and a.level is self and is_differentiable(a.dtype) and not a.constant
        }
        if primitive.taylor is not None:
            if not primitive.multiple:
                return [primitive.taylor(outs[0], *series, **params)]
            rows = primitive.taylor(outs, *series, **params)
            return [lambda k, number=number: rows(k)[number] for number in range(len(outs))]
        if primitive.bilinear and moving <= {0, 1}:
            product = masked if primitive in (mul, masked_mul) else lambda x, y: bind(primitive, x, y, **params)
            return [lambda k: convolve(series[0], series[1], k, product)]
        linear = [i % len(args) for i in primitive.linear]
        if linear and moving <= {*linear}:
            return [lambda k: _linear_coefficient(primitive, series, linear, params, k)]
        if primitive.jvp is None:
            why = primitive.impossible.get("jvp", "it has no jvp rule")
            raise TypeError(f"{primitive.name} can't be differentiated: {why}")
        if primitive.piecewise_linear and all(series[i].dtype.kind == "f" for i in moving):
            tangents = tuple(series[i].shifted() if i in moving else None for i in range(len(args)))
            slopes = self.slopes(primitive, args, tangents, params)
            return [lambda k, s=s: None if s is None else s[k - 1] for s in slopes]
        tangents = tuple(series[i].slope() if i in moving else None for i in range(len(args)))
        return [lambda k, s=s: integral(s, k) for s in self.slopes(primitive, args, tangents, params)]

    def slopes(
        self, primitive: Primitive, args: tuple[Any, ...], tangents: tuple[Any, ...], params: dict[Any, Any]
    ) -> list[Any]:
        if all(t is None for t in tangents):
            return [None] * (len(primitive.infer(*map(type_of, args), **params)) if primitive.multiple else 1)
        _, found = primitive.jvp(args, tangents, **params)  # type: ignore[misc]
        return [None if t is None else self.as_series(t) for t in (found if primitive.multiple else [found])]

    def solution(self, start: Any, slope: Callable) -> Series:
        """The series y that begins with `start` and has y' = slope(y): for `taylor` rules."""
        y = Series(self, [start], lambda k: integral(z, k))
        z = slope(y)
        return y

    def process_update(
        self, primitive: Primitive, box: list[Any], args: tuple[Any, ...], params: dict[Any, Any]
    ) -> Any:
        if self.solving or type(box[0]) is not Series or box[0].level is not self:
            return self.process(primitive, (box[0], *args), params)
        alone = is_alone(box)
        coefficients, kind, out = self.split(box[0]), box[0].type, []
        if alone:
            box[0].known = []  # nobody else sees this value: its parts may be overwritten
        linear = {i % (len(args) + 1) - 1 for i in primitive.linear} - {-1}
        cell: list = []
        try:
            for k in range(self.order + 1):
                moved = [self.as_series(a)[k if i in linear else 0] for i, a in enumerate(args)]
                if coefficients[k] is None and all(moved[i] is None for i in linear):
                    out.append(None)
                    continue
                filled = [zero_like(a) if m is None else m for m, a in zip(moved, args, strict=True)]
                cell = [zeros_like_type(kind, real=True) if coefficients[k] is None else coefficients[k]]
                if alone:
                    coefficients[k] = None
                out.append(bind_update(primitive, cell, *filled, **params))
        except BaseException:
            if alone and not out:  # an index out of range, found by the first write
                box[0].known = [*cell, *coefficients[1:]]
            raise
        return self.lift(out[0], out[1:])


def _constant(value: Callable, number: int) -> Callable:
    return lambda k: None if k else value(number)


def zero_like(a: Any) -> Any:
    """A zero that can stand in the place of an operand: weak where that is."""
    kind = type_of(a)
    return kind.dtype.type(0).item() if kind.weak else zeros_like_type(kind)


def _linear_coefficient(primitive: Primitive, series: list[Series], linear: list[int], params: dict, k: int) -> Any:
    operands = [s[k] if i in linear else s[0] for i, s in enumerate(series)]
    if all(operands[i] is None for i in linear):
        return None
    for i in linear:
        if operands[i] is None:
            operands[i] = zero_like(series[i])
    return bind(primitive, *operands, **params)


# Primitives that hold Programs ----------------------------------------------------------------------------------------

Rows = tuple[tuple[bool, ...], ...]  # for each value, which of its coefficients 1, ..., n aren't structurally zero


@cached
def taylor_program(program: Program, order: int, nonzero: Rows, fill: Rows) -> tuple[Program, Rows]:
    """(inputs, their nonzero coefficients) -> (outputs, their nonzero coefficients), and which those are.

    `fill` forces coefficients of outputs that are structurally zero (loop carries).
    """
    flags: list[tuple[bool, ...]] = []

    def f(*args: Any) -> list:
        with Taylor(order) as level:
            rows = unpacked(args, nonzero)
            outs = [level.split(o) for o in run(program, [level.lift(row[0], row[1:]) for row in rows])]
        for row, forced in zip(outs, fill, strict=True):
            real = is_differentiable(type_of(row[0]).dtype)
            flags.append(tuple([real and (c is not None or f) for c, f in zip(row[1:], forced, strict=True)]))
        pairs = [(c, row[0]) for row, own in zip(outs, flags, strict=True) for c, f in zip(row[1:], own) if f]
        return [row[0] for row in outs] + [dense(c, primal) for c, primal in pairs]

    types = [*program.input_types, *repeated(program.input_types, nonzero)]
    return record(f, types), tuple(flags)


def repeated(items: Sequence[Any], rows: Rows) -> list[Any]:
    """Each item as often as it has nonzero coefficients."""
    return [item for item, row in zip(items, rows, strict=True) for flag in row if flag]


def packed(operands: Sequence[Series], order: int) -> tuple[list[Any], Rows, list[Any]]:
    """Series as operands of a `taylor_program`: first coefficients, the flags of the others, and those."""
    rows = tuple(tuple(s[k] is not None for k in range(1, order + 1)) for s in operands)
    terms = [c for s, row in zip(operands, rows, strict=True) for k, flag in enumerate(row) if flag for c in [s[k + 1]]]
    return [s[0] for s in operands], rows, terms


def unpacked(values: Sequence[Any], rows: Rows) -> list[list[Any]]:
    """What a `taylor_program` takes or returns, as the coefficients of each value."""
    terms = iter(values[len(rows) :])
    return [[v, *(next(terms) if flag else None for flag in row)] for v, row in zip(values, rows, strict=False)]


def all_orders(outs: Sequence[Series], operands: Sequence[Series], compute: Callable) -> Callable:
    """A `taylor` rule by `compute(order)`, which returns the coefficients of each result up to that order.

    One call, if the operands are known; inside of another rule, where they are found order by order, one for each.
    """
    found: list[list] = []

    def coefficients(k: int) -> list:
        if not found or len(found[0]) <= k:
            known = all(s.find is None for s in operands)
            found[:] = compute(outs[0].level.order if known else k)  # type: ignore[attr-defined]
        return [row[k] for row in found]

    return coefficients
