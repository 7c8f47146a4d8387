"""A Module with other arrays in the places of some parameters, and parameters by patterns of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Module
from wonderland.nn.names import matches

Names = str | Sequence[str]


def with_arrays(model: Module, values: dict[str, Any], copied: bool = False) -> Any:
    """A clone of a Module that has these values for the parameters of these names.

    Its other arrays are the model's own, so that what is written to a buffer reaches it; or, if `copied`, copies.
    """
    names = {id(w): name for name, w in model.named_parameters()}
    leaves, structure = tree.flatten(model)
    chosen = [values.get(names.get(id(leaf), ""), leaf) for leaf in leaves]
    if copied:
        chosen = [c.copy() if c is leaf else c for c, leaf in zip(chosen, leaves, strict=True)]
    return structure.unflatten(chosen)


def matching(model: Module, names: Names = "*") -> dict[str, Any]:
    """The trainable parameters whose names match a glob, or one of several; none raises."""
    if not isinstance(model, Module):
        raise ArgumentError(f"expected an nn.Module, whose parameters have names, not {type(model).__name__}")
    patterns = (names,) if isinstance(names, str) else tuple(names)
    parameters = dict(model.named_parameters(trainable=True))
    for pattern in patterns:
        if not any(matches(name, pattern) for name in parameters):
            raise ArgumentError(
                f"no trainable parameter matches {pattern!r}; there are {', '.join(parameters) or 'none'}"
            )
    return {name: w for name, w in parameters.items() if any(matches(name, pattern) for pattern in patterns)}
