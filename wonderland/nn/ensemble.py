"""Ensembles: several Modules of one structure as one, with an axis before those of every array, for `vmap`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.compile.arguments import difference
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Module
from wonderland.nn.names import is_key
from wonderland.random.keys import fold_in


def stack(models: Sequence[Any]) -> Any:
    """Modules of the same structure as one whose arrays have one more axis, the first: an ensemble.

        models = nn.stack([Net() for _ in range(8)])
        y = wl.vmap(lambda model, x: model(x), in_axes=(0, None))(models, x)    # (8, ...)

    Its arrays are new. Keys of random numbers (of dropout) that are the same in several Modules become different.
    """
    if isinstance(models, Module):
        raise ArgumentError(f"nn.stack takes a list of Modules, got one {type(models).__name__}")
    models = list(models)
    if not models or not all(isinstance(model, Module) for model in models):
        raise ArgumentError(f"nn.stack takes a list of Modules, got {[type(model).__name__ for model in models]}")
    parts = [tree.flatten(model) for model in models]
    structure = parts[0][1]
    for number, (leaves, found) in enumerate(parts):
        if found != structure:
            raise ArgumentError(
                f"nn.stack: model {number} has another structure than the first: it {difference(structure, found)}. "
                "Classes, static attributes, `training`, what is frozen and what is shared must agree."
            )
        for name, a, b in zip(tree.names(structure), parts[0][0], leaves, strict=True):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                raise ArgumentError(
                    f"nn.stack: {name} has shape {a.shape} and dtype {a.dtype} in the first model, {b.shape} and "
                    f"{b.dtype} in model {number}"
                )
    rows = zip(*(leaves for leaves, _ in parts), strict=True)
    return structure.unflatten([np.stack(_different(row) if is_key(row[0]) else row) for row in rows])


def _different(keys: Sequence[Any]) -> list[Any]:
    """Keys, of which those that were there before are replaced by their children."""
    out: list = []
    for number, key in enumerate(keys):
        again = any(np.array_equal(key, other) for other in keys[:number])
        out.append(fold_in(key, number) if again else key)
    return out


def unstack(models: Any) -> list[Any]:
    """The Modules of an ensemble, with arrays of their own: the inverse of `nn.stack`."""
    if not isinstance(models, Module):
        raise ArgumentError(f"nn.unstack takes an ensemble, which nn.stack makes, got {type(models).__name__}")
    leaves, structure = tree.flatten(models)
    sizes = {leaf.shape[:1] for leaf in leaves}
    if len(sizes) != 1 or sizes == {()}:
        raise ArgumentError(
            f"nn.unstack: the arrays have no common first axis: {sorted(sizes)}. Was it made by nn.stack?"
        )
    ((size,),) = sizes
    return [structure.unflatten([leaf[i].copy() for leaf in leaves]) for i in range(size)]
