"""Functions that are recorded must not write to a mutable object that they don't get as an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wonderland.core import tree
from wonderland.core.errors import MutationError
from wonderland.core.tracebacks import inside_edge


@contextmanager
def unwritten(f: Callable, what: str, remedy: str) -> Iterator[None]:
    """While this runs `f`, the mutable objects that f closes over stay as they are; otherwise it raises."""
    held = _mutable_objects(f)
    before = [dict(vars(m)) for m in held]
    written = []
    try:
        yield
    finally:
        for m, attributes in zip(held, before, strict=True):
            if any(vars(m).get(k) is not v for k, v in attributes.items()):
                vars(m).update(attributes)  # as it was: what was written has no value outside
                written.append(type(m).__name__)
    if written:
        raise MutationError(f"{what} wrote to a {written[0]} that it doesn't get as an argument. {remedy}")


def _mutable_objects(f: Callable, depth: int = 3) -> list:
    """The registered mutable objects that a function, or one that it holds, closes over."""
    found = []
    for cell in getattr(inside_edge(f), "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        kind = tree.kind_of(value)
        if kind is not None and kind.mutable:
            found.append(value)
        elif callable(value) and depth:
            found += _mutable_objects(value, depth - 1)
    return found
