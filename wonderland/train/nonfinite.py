"""Where a NaN or an infinity comes from: a step that failed is run again, equation by equation, at a level that looks.

Everything is computed as in the step, on real values, by NumPy. Each result that isn't finite remembers the operation
that made it, its line, and those of its operands that weren't finite either. From the loss (or a gradient, or a new
weight) the way back leads to the operation whose operands were all finite: an infinity that was masked on the way
isn't blamed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.functions import Call
from wonderland.core.level import Level, Traced, bind
from wonderland.core.primitive import Primitive
from wonderland.core.program import run
from wonderland.core.tracebacks import user_line
from wonderland.core.types import ArrayType, type_of
from wonderland.nn.module import Module
from wonderland.nn.names import arrays
from wonderland.train.compiled_step import Clip, plain_step
from wonderland.train.gradients import clip_by_norm
from wonderland.train.parallel import Ranks
from wonderland.transform.derivatives import quiet


class NonFiniteError(FloatingPointError):
    """A step of training whose loss, gradients or new weights aren't finite; everything is as before that step."""


class Origin:
    """What made a value that isn't finite: an operation, or an argument of the step."""

    def __init__(self, what: str, bad: str, where: str = "", before: Sequence[Origin] = ()):
        self.what: str = what
        self.bad: str = bad  # "NaN" or "infinity"
        self.where: str = where
        self.before: list[Origin] = [*before]  # of the operands that aren't finite

    def first(self) -> Origin:
        """The origin of the origins, going along what is of its own kind, as far as there is such."""
        found = self
        while same := [origin for origin in found.before if origin.bad == found.bad]:
            found = same[0]
        return found

    def told(self) -> str:
        """In words, with where the infinity came from that became a NaN."""
        found = self.first()
        text = f"{found.bad} first in {found.what}{found.where}"
        if found.before:
            cause = found.before[0].first()
            text += f", of an {cause.bad} that came from {cause.what}{cause.where}"
        return text


class LookedAt(Traced):
    """A value, and its origin if it isn't finite."""

    __slots__ = ("origin", "primal")

    def __init__(self, level: LookingLevel, primal: Any, origin: Origin | None):
        self.level = level
        self.primal: Any = primal
        self.origin: Origin | None = origin

    @property
    def type(self) -> ArrayType:
        return type_of(self.primal)


class LookingLevel(Level):
    """Evaluates, and looks at what comes out."""

    __slots__ = ("model", "phase", "shared")
    name = "the search for what isn't finite"

    def __init__(self, shared: bool = False) -> None:
        self.phase: str = ""
        self.shared: bool = shared  # by several ranks, each of which looks at its part
        self.model: Any = None

    def argument(self, value: Any, name: str, sample: Callable[[int], str] | None = None) -> LookedAt:
        """A value that comes from outside; what its rows are called, if it is of a batch."""
        bad = nonfinite(value)
        if bad is None:
            return LookedAt(self, value, None)
        first = tuple(int(i) for i in np.argwhere(np.isnan(value) if bad == "NaN" else np.isinf(value))[0])
        where = f" at index {first[0] if len(first) == 1 else first}"
        return LookedAt(self, value, Origin(name, bad, where + (f" ({sample(first[0])})" if first and sample else "")))

    def place(self) -> str:
        """Where in the user's code, and in which layer, an operation is."""
        if self.phase:
            return f", in {self.phase}"
        layer = layer_name(self.model)
        return f"{f', in {layer}' if layer else ''}{user_line()}"

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> Any:
        if primitive.transparent:
            return run(primitive.inline(params), args)  # type: ignore[misc]
        below = [a.primal if isinstance(a, LookedAt) else a for a in args]
        out = bind(primitive, *below, **params)
        before = [o for a in args if (o := self.origin(a)) is not None]
        what = lambda: f"`{primitive.name}` of ({', '.join(str(type_of(b)) for b in below)})"
        if self.shared and not before and getattr(params.get("call"), "__name__", "") == Ranks.sum.__name__:
            what = lambda: "the part of another rank, which says why"
        made = lambda bad: None if bad is None else Origin(what(), bad, self.place(), before)
        results = [LookedAt(self, o, made(nonfinite(o))) for o in (out if primitive.multiple else (out,))]
        return tuple(results) if primitive.multiple else results[0]

    def origin(self, value: Any) -> Origin | None:
        if isinstance(value, LookedAt):
            return value.origin
        bad = nonfinite(value)
        return None if bad is None else Origin("a constant", bad)


def nonfinite(value: Any) -> str | None:
    """ "NaN" or "infinity" if there is such a number in an array."""
    if isinstance(value, Traced) or np.asarray(value).dtype.kind not in "fc" or np.isfinite(value).all():
        return None
    return "NaN" if np.isnan(value).any() else "infinity"


def layer_name(model: Any) -> str:
    """The innermost layer that is being called, by its dotted name and its class."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "__call__" else None
        if isinstance(owner, Module):
            names = {id(node): name for name, node in model.named_modules()} if isinstance(model, Module) else {}
            name = names.get(id(owner), "")
            return f"{name} ({type(owner).__name__})" if name else type(owner).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def explained(
    loss: Callable, clip: Clip, ranks: Ranks | None, model: Any, optimizer: Any, batch: Sequence[Any],
    sample: Callable[[int], str] | None = None,
) -> str:  # fmt: skip
    """Why the step of these arguments isn't finite, in words; `sample(row)` is what a row of the batch is called.

    Nothing is written.
    """
    level = LookingLevel(ranks is not None)

    def watched(own: Any, *data: Any) -> Any:
        level.phase, level.model = "", own
        out = loss(own, *data)
        level.phase = "the backward pass"
        return out

    def clipped(grads: Any) -> Any:
        level.phase = "clipping"
        grads = clip(grads) if callable(clip) else grads if clip is None else clip_by_norm(grads, clip)
        level.phase = "the optimiser's update"
        return grads

    attempt = plain_step(watched, clipped, ranks)
    call = Call(attempt, (model, optimizer, *batch), {})
    names = argument_names(model, optimizer, batch)
    with quiet(), level:
        own = len(model.state()) + len(optimizer.state())
        values = [
            level.argument(value, name, sample if i >= own else None)
            for i, (value, name) in enumerate(zip(call.values, names, strict=True))
        ]
        results, written = call.split(call.run(values))
        roles = ["the loss", *["a gradient"] * (len(results) - 1)]
        roles += [f"the new {names[i]}" for i in call.written]
        for role, value in zip(roles, [*results, *written], strict=True):
            origin = level.origin(value)
            if origin is not None:
                return f"{role} isn't finite: {origin.told()}"
    return "run again by NumPy all is finite: it is a matter of rounding, or of something random"


def argument_names(model: Any, optimizer: Any, batch: Sequence[Any]) -> list[str]:
    """What each leaf of the step's arguments is called in a message."""
    names = [f"{name!r} of the model" for name, _, _ in arrays(model)]
    names += [f"{name!r} of the optimiser" for name, _, _ in arrays(optimizer)]
    for i, part in enumerate(batch):
        names += [f"batch[{i}]"] * len(tree.leaves(part))
    return names
