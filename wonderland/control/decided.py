"""Loops whose derivative is lost: a bisection depends on its parameters through comparisons alone.

The interval of a bisection is halved until it is small, on the side that a comparison chooses. Nothing in it depends
smoothly on the parameters of the function whose root is sought, so the derivative along the iterations is zero, while
the root's isn't. That is read off the Programs of the loop: a differentiated value reaches what the exit depends on,
but by no way that has a derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wonderland.core.program import Program
from wonderland.core.tracebacks import warn_user
from wonderland.core.types import is_differentiable
from wonderland.transform.surprises import LostDerivativeWarning

# In the cache of a batch's body, which holds still by `where` the entries that are done: the loop it is a batch of.
UNBATCHED = "unbatched loop"


def warn_if_decided_by_comparisons(consts: Sequence[Any], carry: Sequence[Any], params: dict[Any, Any]) -> None:
    """Warn if values with tangents decide where a while loop goes, and do no more than that.

    All of them: `a` and `0.1 * a` are two, of which one may decide where the loop goes and the other what it computes.
    """
    body, condition = params["body"].cache.get(UNBATCHED, (params["body"], params["condition"]))
    n = len(consts)
    kept = [out is v for out, v in zip(_origins(body), body.inputs[n:], strict=False)]
    flags = [t is not None for t in consts] + [t is not None and k for t, k in zip(carry, kept, strict=False)]
    if not any(flags):
        return
    exits = {
        j for j in range(len(body.inputs) - n) if is_differentiable(body.inputs[n + j].type.dtype)
        and _reached(condition, {condition.inputs[n + j]}, smooth=False) & {*condition.outputs}
    }  # fmt: skip
    moved = [i for i, flag in enumerate(flags) if flag]
    if any(_carries(body, i, n, smooth=True) for i in moved):
        return
    if any(exits & _carries(body, i, n, smooth=False) for i in moved):
        warn_user(
            "a while_loop is differentiated with respect to a value that only decides, by comparisons, where the "
            "loop goes, as in a bisection: its derivative through the iterations is zero. If the result solves an "
            "equation f(x, a) = 0, its derivative is that of the implicit function theorem, "
            "dx = -(df/da) / (df/dx) da: give it with wl.custom_jvp (docs/control-flow.md has the example).",
            LostDerivativeWarning,
        )


def _origins(program: Program) -> list:
    """The outputs; for those that calls hand on from the inputs, the inputs."""
    origins: dict[Any, Any] = {}
    for equation in program.equations:
        inner = equation.params.get("program")
        if isinstance(inner, Program):
            given = dict(zip(inner.inputs, equation.inputs, strict=True))
            origins |= {v: given[a] for v, a in zip(equation.outputs, _origins(inner), strict=True) if a in given}
    return [origins.get(v, v) for v in program.outputs]


def _carries(body: Program, start: int, n_consts: int, smooth: bool) -> set[int]:
    """The carries, other than itself, that an input of the body reaches in any number of steps."""
    carry = body.inputs[n_consts:]
    reached: set[int] = {start - n_consts} if start >= n_consts else set()
    while True:
        found = _reached(body, {body.inputs[start], *(carry[j] for j in reached)}, smooth)
        new = {j for j in range(len(carry)) if body.outputs[j] in found} | reached
        if new == reached:
            return reached - {start - n_consts}
        reached = new


def _reached(program: Program, start: Iterable[Any], smooth: bool) -> set:
    """The variables that depend on some; `smooth` follows floating-point numbers alone, which have derivatives."""
    reached = {v for v in start if not smooth or is_differentiable(v.type.dtype)}
    for equation in program.equations:
        if reached.isdisjoint(equation.inputs):
            continue
        inner, outputs = equation.params.get("program"), equation.outputs
        if isinstance(inner, Program):  # a call: what it does is what its Program does
            given = zip(inner.inputs, equation.inputs, strict=True)
            found = _reached(inner, [v for v, a in given if a in reached], smooth)
            outputs = [v for v, a in zip(outputs, inner.outputs, strict=True) if a in found]
        reached.update(v for v in outputs if not smooth or is_differentiable(v.type.dtype))
    return reached
