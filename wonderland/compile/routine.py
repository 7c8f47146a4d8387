"""Scalar functions with control flow: a Python function that writes one comes in, a `Routine` goes out.

The scalar code of a kernel is straight; what needs a loop or a branch for each element (a rejection, a series until it
ends) is a function of its own, which the kernel calls. A routine is written with the values of `vecmath_emit`, so it
reads like the formula it computes, and with `repeat` and `choose`; or its text is given. The text is in every module
that uses it, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from wonderland.compile.vecmath_emit import Block, Value

LIBRARY = {
    "gcd": "number_code",
    "zeta": "number_code",
    "random_bits": "random_code",
    "random_law": "random_laws_code",
}  # routine -> the module that writes it
FUNCTIONS = {"float": "f32", "double": "f64"}


class Routine:
    """The text of `define internal ... @name`, and what it needs in its module."""

    name: str
    text: str

    def __init__(
        self, name: str, text: str, cost: int, declared: Iterable[str] = (), needed: Iterable[tuple[Any, ...]] = ()
    ):
        self.name, self.text = name, text
        self.cost = cost  # in additions; more than `CHEAP` in `fuse` if it should run once for each element
        self.declared: set[str] = set(declared)
        self.needed: set[tuple[Any, ...]] = set(needed)  # functions of the vector library


def find(name: str, of: tuple[Any, ...]) -> Routine:
    """The routine of this name, made for some values."""
    return getattr(import_module(f"wonderland.compile.{LIBRARY[name]}"), name)(*of)


def written(name: str, kinds: Sequence[str], result: str, write: Callable[..., Value], cost: int) -> Routine:
    """The routine that a function of values writes."""
    body = Body()
    out = write(*(Value(body, kind, f"%a{i}") for i, kind in enumerate(kinds)))
    inline = " noinline" if body.labels else " alwaysinline"
    arguments = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kinds))
    head = f"define internal {result} @{name}({arguments}){inline} {{"
    text = "\n".join([*body.globals.values(), head, "entry:", *body.lines, f"  ret {result} {out.text}", "}"])
    return Routine(name, text, cost, body.intrinsics, body.needed)


class Body(Block):
    """A function body with several blocks of code."""

    def __init__(self) -> None:
        super().__init__()
        self.label = "entry"
        self.labels: int = 0
        self.needed: set[tuple[str, str]] = set()

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label: str = label

    def fresh(self, prefix: str) -> str:
        self.labels += 1
        return f"{prefix}{self.labels}"


def body_of(x: Value) -> Body:
    """The body that a value is part of."""
    assert isinstance(x.block, Body)
    return x.block


def function(name: str, *args: Value) -> Value:
    """A function of the vector library, called."""
    body, kind = body_of(args[0]), args[0].kind
    body.needed.add((name, FUNCTIONS[kind]))
    operands = ", ".join(f"{kind} {a.text}" for a in args)
    return body.emit(kind, f"call {kind} @wl_{name}_{FUNCTIONS[kind]}({operands})")


def repeat(start: Sequence[Value], step: Callable[..., tuple[Sequence[Value], Value]]) -> list[Value]:
    """`values, more = step(*values)` at least once, and again as long as `more`; the values at the end."""
    body = body_of(start[0])
    before, head, exit = body.label, body.fresh("loop"), body.fresh("done")
    body.lines.append(f"  br label %{head}")
    body.start(head)
    at = len(body.lines)
    values = [body.emit(x.kind, "") for x in start]  # written when the step is
    following, more = step(*values)
    for i, (x, now, after) in enumerate(zip(start, values, following, strict=True)):
        body.lines[at + i] = f"  {now.text} = phi {x.kind} [ {x.text}, %{before} ], [ {after.text}, %{body.label} ]"
    body.lines.append(f"  br i1 {more.text}, label %{head}, label %{exit}")
    body.start(exit)
    return list(following)


def choose(condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
    """One of two values, of which only the one that is wanted is computed."""
    body = body_of(condition)
    labels = [body.fresh("case"), body.fresh("case")]
    join = body.fresh("join")
    body.lines.append(f"  br i1 {condition.text}, label %{labels[0]}, label %{labels[1]}")
    found = []
    for label, side in zip(labels, (yes, no), strict=True):
        body.start(label)
        value = side()
        found.append((value, body.label))
        body.lines.append(f"  br label %{join}")
    body.start(join)
    sources = ", ".join(f"[ {value.text}, %{label} ]" for value, label in found)
    return body.emit(found[0][0].kind, f"phi {found[0][0].kind} {sources}")
