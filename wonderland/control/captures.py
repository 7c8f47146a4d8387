"""The inside of a custom function: the traced values that it works with are operands, also those that it captures.

A custom function, or a rule of it, may run long after it was called and at other levels: when a Program that holds the
call is differentiated or batched. So the handles on traced values that it closes over (`held_tracers`) are found when
it is called, their values become leading operands of the call, and while it runs the handles stand for the
operands' values at that time.

A rule has derivatives with respect to the arguments alone. `Inside`, the level at which it runs, notes which results
depend on which captured values; differentiating with respect to one of those raises (`captured_p`), now or when a level
further out gets at it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.control.linear import LINEAR, UNKNOWN, NotLinear, dependence_of, equation_dependences
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, MutationError, TracingError, user_line
from wonderland.core.functions import handles
from wonderland.core.level import Level, Traced, bind
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops.work import view
from wonderland.transform.batch import materialize

NOTHING: frozenset[int] = frozenset()
_lock = threading.RLock()  # handles stand for one thread's values at a time


@contextmanager
def standing_for(handles: Sequence[Tracer], values: Sequence[Any], name: str) -> Iterator[None]:
    """Let handles have other values for a while."""
    if not handles:
        yield
        return
    with _lock:
        before = [(h._value, h._base) for h in handles]
        for h, v in zip(handles, values, strict=True):
            h._value, h._base = v, None
        try:
            yield
        finally:
            changed = any(h._value is not v for h, v in zip(handles, values, strict=True))
            for h, (value, base) in zip(handles, before, strict=True):
                h._value, h._base = value, base
    if changed:
        raise MutationError(
            f"{name} or a rule of it writes to an array that it captures. Copy it inside, or pass it as an argument."
        )


class Held(Traced):
    """An operand, or what was computed from operands: which captured values it depends on, and is it a tangent?"""

    __slots__ = ("captured", "linear", "primal")

    captured: frozenset[int]
    linear: bool
    primal: Any

    def __init__(self, level: Inside, primal: Any, captured: frozenset[int], linear: bool):
        self.level, self.primal, self.captured, self.linear = level, primal, captured, linear

    @property
    def type(self) -> ArrayType:
        return type_of(self.primal)

    def __repr__(self) -> str:
        return f"Held({self.primal!r})"


class Inside(Level):
    """A custom function or a rule of it, while it runs."""

    __slots__ = ("effects", "of", "rule")
    of: str
    rule: str
    name = "a custom function"

    def __init__(self, of: str, rule: str):
        self.of, self.rule = of, rule
        self.effects: bool = True  # what comes of an effect is ours, and no traced value from elsewhere

    def hold(self, value: Any, captured: frozenset[int] = NOTHING, linear: bool = False) -> Any:
        """A value as one of ours; plain ones that depend on nothing stay as they are."""
        if not isinstance(value, Traced) and not captured and not linear:
            return value
        return Held(self, value, captured, linear)

    def split(self, value: Any) -> tuple[Any, frozenset[int], bool]:
        if type(value) is Held and value.level is self:
            return value.primal, value.captured, value.linear
        if isinstance(value, Traced):
            self.refuse(value)
        return value, NOTHING, False

    def refuse(self, value: Any) -> None:
        raise unseen(value, self.of)

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> Any:
        values, captured, linear = zip(*map(self.split, args), strict=True) if args else ((), (), ())
        stopped = () if primitive.stops is None else primitive.stops(params)
        depends = NOTHING.union(*(c for i, c in enumerate(captured) if i not in stopped))
        self.effects = False  # an effect goes on to where it belongs
        try:
            out = bind(primitive, *values, **params)
        finally:
            self.effects = True
        outs = out if primitive.multiple else (out,)
        flags = self._linear(primitive, values, linear, params, len(outs)) if any(linear) else [False] * len(outs)
        held = [
            self.hold(o, *((depends, flag) if is_differentiable(type_of(o).dtype) else (NOTHING, False)))
            for o, flag in zip(outs, flags, strict=True)
        ]
        return tuple(held) if primitive.multiple else held[0]

    def _linear(self, primitive: Primitive, values: tuple, linear: tuple, params: dict, n: int) -> list[bool]:
        # Only what certainly isn't linear is refused.
        dependences = [LINEAR if flag else dependence_of(v, UNKNOWN) for v, flag in zip(values, linear, strict=True)]
        try:
            return [d is LINEAR for d in equation_dependences(primitive, dependences, params, n)]
        except NotLinear as why:
            raise ArgumentError(
                f"the {self.rule} of {self.of} isn't linear in its tangents: it {why}{user_line()}. Reverse mode "
                "transposes it, so a tangent may only be added, multiplied by what isn't one, and go through linear "
                "functions; or give the rule for reverse mode itself: wl.custom_vjp, with .defvjp(forward, backward)."
            ) from None


def unseen(value: Any, name: str) -> TracingError:
    """The error for a traced value in a custom function that isn't an operand of it."""
    return TracingError(
        f"{name} or a rule of it uses a traced value {value.type}{user_line()} that is neither an argument nor found "
        "in what it closes over. Pass it as an argument (wl.closure_convert makes arguments of captured values)."
    )


def mapped(out: Any, f: Callable) -> Any:
    """`f` of each value in a list or in a tuple of lists; None stays."""
    if isinstance(out, tuple):
        return tuple(mapped(group, f) for group in out)
    return [None if o is None else f(o) for o in out]


def run_inside(
    f: Callable, operands: Sequence[Any], count: int, moved: Sequence[bool], name: str, rule: str,
    linear: int | None = None,
) -> Any:  # fmt: skip
    """`f(*operands)`, of which the first `count` are captured values, and those `moved` have a tangent here.

    `f` returns a list of results, or a tuple of lists of which the first has the results. Operands from number `linear`
    on are tangents, in which it must be linear.
    """
    with Inside(name, rule) as level:
        held = [
            level.hold(v, frozenset((i,)) if i < count else NOTHING, linear is not None and i >= linear)
            if isinstance(v, Traced) or (i < count and moved[i]) else v
            for i, v in enumerate(operands)
        ]  # fmt: skip
        out = mapped(f(*held), level.split)
    results = out[0] if isinstance(out, tuple) else out
    if any(moved[i] for r in results if r is not None for i in r[1]):
        raise not_known(name)

    def guarded(split: tuple) -> Any:
        value, captured, _ = split
        behind = [operands[i] for i in sorted(captured) if isinstance(operands[i], Traced)]
        return captured_p(value, *behind, name=name) if behind else value

    return mapped(out, guarded)


def run_plain(f: Callable, args: Sequence[Any], name: str) -> Any:
    """`f(*args)`, a custom function whose operands are all plain; its result has traced values only of effects."""
    with Inside(name, "function") as level:
        out = f(*args)
        leaves, structure = tree.flatten(out)
        if not any(isinstance(leaf, Tracer) for leaf in leaves):
            return out
        values = [level.split(unwrap(leaf))[0] for leaf in leaves]
    return structure.unflatten(handles(values))


def not_known(name: str) -> ArgumentError:
    """The error for a derivative with respect to a captured value."""
    return ArgumentError(
        f"{name} is differentiated{user_line()} with respect to a value that it captures, but its rule has derivatives "
        f"with respect to the arguments of {name} alone. Pass the value as an argument (wl.closure_convert makes "
        "arguments of captured values), or, if it is meant to be a constant, capture wl.stop_gradient(value)."
    )


def _captured_jvp(primals: tuple, tangents: tuple, name: str) -> tuple:
    if any(t is not None for t in tangents[1:]):
        raise not_known(name)
    tangent = captured_p(tangents[0], *primals[1:], name=name)
    return captured_p(*primals, name=name), tangent


def _captured_transpose(ct: Any, x: Any, *behind: Any, name: str) -> list:
    known = [b for b in behind if not isinstance(b, Linear)]
    return [captured_p(ct, *known, name=name) if known else ct, *(None for _ in behind)]


def _captured_batch(size: int, args: tuple, batched: tuple, name: str) -> Any:
    return captured_p(materialize(size, args[0], batched[0]), *args[1:], name=name)


def _captured_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    return [(np.arange(types[0].size), np.arange(types[0].size)), *(None for _ in types[1:])]


# A result of a rule, beside the captured values that it depends on: the result itself, whose derivative isn't known.
captured_p: Primitive = Primitive(
    "captured",
    lambda x, *behind, name: x,
    lambda x, *behind, name: x,
    jvp=_captured_jvp,
    transpose=_captured_transpose,
    batch=_captured_batch,
    pattern=_captured_pattern,
    lower=lambda builder, x, *behind, name: x,
    cost=view,
    linear=(0,),
)
