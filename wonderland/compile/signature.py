"""Which arguments of a function options of `jit` mean: given by position or by name, known by both."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import Any

from wonderland.core.errors import ArgumentError

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def chosen(f: Callable, option: str, numbers: Iterable[Any], names: Iterable[str]) -> tuple[set[int], set[str]]:
    """The positions and names of chosen arguments, each by both where it has both; refuses those that `f` doesn't take.

    Negative positions count from the end of the positional parameters; if there are `*args`, from that of a call's.
    """
    try:
        found, called = {operator.index(n) for n in numbers}, set(names)
    except TypeError as error:
        raise ArgumentError(f"{option} takes positions: {error}") from None
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # builtins have none to look at
        return found, called
    positional = [p.name for p in parameters if p.kind in POSITIONAL]
    kinds = {p.kind for p in parameters}
    count = len(positional)
    if Parameter.VAR_POSITIONAL not in kinds:
        _refuse(f, option, [n for n in found if not -count <= n < count], parameters)
        found = {n % count for n in found}
    if Parameter.VAR_KEYWORD not in kinds:
        known = {p.name for p in parameters if p.kind is not Parameter.VAR_POSITIONAL}
        _refuse(f, option, [n for n in called if n not in known], parameters)
    called |= {positional[n] for n in found if 0 <= n < count}
    return found | {positional.index(name) for name in called if name in positional}, called


def _refuse(f: Callable, option: str, wrong: list, parameters: Iterable[Parameter]) -> None:
    if wrong:
        name = getattr(f, "__name__", type(f).__name__)
        taken = [f"{p.name} ({i})" if p.kind in POSITIONAL else p.name for i, p in enumerate(parameters)]
        raise ArgumentError(
            f"{option} has {', '.join(map(repr, sorted(wrong)))}, which {name} doesn't take. It takes "
            f"{', '.join(taken) or 'nothing'}."
        )
