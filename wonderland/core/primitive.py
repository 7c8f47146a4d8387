"""A primitive operation: a name and its rules.

The machinery (levels, transpose, compiler, sparsity) only ever looks at these slots; `ops/` fills them, every rule of a
primitive in one block. Signatures, where `x...` are values (arrays, scalars or traced values) and params are static:

- `evaluate(*arrays, **params)`: the NumPy meaning; a tuple when `multiple`.
- `infer(*types, **params)`: the result's `ArrayType` (a tuple when `multiple`).
- `jvp(primals, tangents, **params) -> (out, tangent)`: a tangent that is None is a structural zero, going in and out.
- `linearize(primals, tangents, **params)`: like `jvp`, for primitives that hold Programs, when the tangents are
  variables of a linear Program: what depends on primals only must stay outside of it.
- `transpose(cotangent, *args, **params)`: the operands to transpose with respect to arrive as their types; returns one
  cotangent per operand (None where there is none, or an `Accumulation`). A `multiple` or `update` primitive gets
  the list of its outputs' cotangents.
- `taylor(out, *operands, **params)`: `k -> coefficient k` of the result's Taylor series from those of the operands,
  `x[j]` (None: zero), and its own before k; without one it is derived from `jvp` (see `transform.taylor`).
- `batch(size, args, batched, **params)`: batched operands carry the batch at axis 0; returns the result with the batch
  at axis 0 (or `(outs, flags)` when `multiple`).
- `pattern(types, params)`: for each operand, which of its elements each output element reads: a pair of index arrays
  (output element, operand element), flat; or None for "reads nothing"; or more (see `ops.pattern`). Known: an array.
- `lower(builder, *nodes, **params)`: what the compiler makes of it; without one, compiled code calls `evaluate`.
- `update(array, *args, **params)`: for functional updates: do it in place on the first operand.
- `inline(params)`: the Program that compiled code contains in the place of the equation.
- `calls(params)`: the Programs of which it runs one, on its last operands, and whose results are its own. An operand
  before those says which. What it is by `inline` need not be said.
- `linearity(kinds, params)`: the kinds of the results from those of the operands, where facts don't tell (see
  `control.linear`).
- `stops(params)`: the numbers of operands through which no derivative goes.
- `cost(types, out_types, params)`: what an evaluation takes, an `ops.work.Work`, or `Runs` of Programs.
- `ufunc`: "np.log1p" or "scipy.special.erf", the function of NumPy's or SciPy's that it is, dtypes included: a call of
  that one on traced arrays is this primitive. `also` names others, of operands in the dtypes of their results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.level import bind
from wonderland.core.types import ArrayType, Params

registry: dict[str, Primitive] = {}
told: list[Callable[[Primitive], None]] = []  # called with every primitive that is made


class Primitive:
    """A name plus rule slots; see the module's docstring for each slot's signature."""

    def __init__(
        self,
        name: str,
        evaluate: Callable,
        infer: Callable,
        *,
        jvp: Callable | None = None,
        linearize: Callable | None = None,
        transpose: Callable | None = None,
        taylor: Callable | None = None,
        batch: Callable | None = None,
        pattern: Callable | None = None,
        lower: Callable | None = None,
        update: Callable | None = None,
        inline: Callable | None = None,
        cost: Callable | None = None,
        calls: Callable | None = None,
        linearity: Callable | None = None,
        stops: Callable | None = None,
        ufunc: str = "",
        also: str = "",
        multiple: bool = False,
        elementwise: bool = False,
        linear: tuple[int, ...] = (),
        bilinear: bool = False,
        piecewise_linear: bool = False,
        dynamic: bool = False,
        balanced: bool = False,
        analytic: bool | Callable = True,
        transparent: bool = False,
        reverse_only: bool = False,
        effect: bool = False,
        raises: bool | Callable = False,
        impossible: dict[str, str] | None = None,
    ):
        self.name = name
        self.evaluate = evaluate
        self.fresh: bool = isinstance(evaluate, np.ufunc)  # its result is a new array, never an operand
        self.infer = infer
        self.jvp = jvp
        self.linearize = linearize
        self.transpose = transpose
        self.taylor = taylor
        self.batch = batch
        self.pattern = pattern
        self.lower = lower
        self.update = update
        self.whole: bool = multiple or update is not None  # its transpose rule gets the list of cotangents
        self.inline = inline
        self.cost = cost
        self.calls: Any = calls if inline is None else lambda params: [p for p in (inline(params),) if p is not None]
        self.linearity: Callable[..., Any] | None = linearity
        self.stops: Callable[..., Any] | None = stops
        self.ufunc: str = ufunc
        self.also: tuple[str, ...] = tuple(also.split())
        self.multiple = multiple
        self.elementwise = elementwise  # output element i reads only element i of each (broadcast) operand
        self.linear = linear  # operands in which it is jointly linear, the others fixed
        self.bilinear = bilinear  # linear in each of its first two operands separately
        self.piecewise_linear = piecewise_linear  # of real operands: linear around almost every point
        self.dynamic = dynamic  # its lowering takes arrays of a length that only the run knows
        self.balanced = balanced  # its transpose takes the same multiplications
        self.analytic: bool | Callable[..., Any] = analytic  # in complex operands; or as `raises`
        self.transparent = transparent  # to perform the Program that it calls is all that it means
        self.reverse_only = reverse_only  # there is its transpose, and no evaluation
        self.effect = effect  # running it does something besides computing results
        self.pure: bool = not effect and linearize is None and inline is None  # nor does a Program that it holds
        self.raises = raises  # for some values of the operands; or a function of (types, params) that says so
        self.impossible: dict[str, str] = impossible or {}  # rule slot -> why there can't be one
        registry[name] = self
        for tell in told:
            tell(self)

    __call__ = bind

    def effects(self, params: Params) -> bool:
        """Does running it do something besides computing results, so that it stays though nobody reads them?"""
        if self.pure or self.effect:
            return self.effect
        held = [self.inline(params)] if self.inline is not None else params.values()
        programs = [v for value in held for v in (value if isinstance(value, tuple) else (value,))]
        return any(getattr(program, "effects", False) for program in programs)

    def __repr__(self) -> str:
        return self.name


Linear = ArrayType  # in a transpose rule the operand whose cotangent is wanted is a type, and has no value


class Accumulation:
    """A cotangent given as an update of an accumulator: `primitive(accumulator, *args, **params)`.

    Reading one element transposes to adding to one; by arrays of zeros with one number a loop would cost O(n^2).
    """

    __slots__ = ("args", "params", "primitive")

    def __init__(self, primitive: Primitive, *args: Any, **params: Any):
        self.primitive: Primitive = primitive
        self.args: tuple[Any, ...] = args
        self.params: Params = params
