"""Models with other layers in the places of some: found by name, by order of calls, replaced wherever they are held."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.level import running
from wonderland.nn.layout import attributes, is_child
from wonderland.nn.module import Module
from wonderland.nn.names import matches
from wonderland.nn.shapes import Identity


def check_model(model: Any, what: str) -> None:
    """Refuse what is no Module, and to change one inside a transformation."""
    if not isinstance(model, Module):
        raise ArgumentError(f"{what} takes a Module, got {type(model).__name__}")
    if running():
        raise ArgumentError(f"{what} changes layers: call it outside of transformations")


def modules_like(model: Any, patterns: str | Sequence[str], kinds: Any, what: str) -> list[tuple[str, Any]]:
    """The Modules of some classes whose dotted names match; a pattern without a match raises."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]
    chosen: dict[int, tuple[str, Any]] = {}
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        fitting = [(name, module) for name, module in found if matches(name, pattern)]
        if not fitting:
            names = ", ".join(name or "(the model itself)" for name, _ in found) or "none"
            raise ArgumentError(f"{what}: no layer matches {pattern!r}. There are {names}.")
        chosen.update({id(module): (name, module) for name, module in fitting})
    return [pair for pair in found if id(pair[1]) in chosen]


def replaced(model: Any, change: Callable[[Any], Any]) -> Any:
    """The model after `change(module)` for every Module in it, inner ones first; attributes are assigned in place.

    A Module that is held in several places is changed once, and its replacement is in all of them.
    """
    done: dict[int, tuple[Any, Any]] = {}

    def visit(value: Any) -> Any:
        if isinstance(value, Module):
            if id(value) not in done:
                for name, held in list(attributes(value)):
                    if is_child(held) and (new := visit(held)) is not held:
                        setattr(value, name, new)
                done[id(value)] = value, change(value)
            return done[id(value)][1]
        if isinstance(value, (list, tuple)):
            new = [visit(item) for item in value]
            if all(a is b for a, b in zip(new, value, strict=True)):
                return value
            return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
        if isinstance(value, dict):
            changed = {key: visit(item) for key, item in value.items()}
            return value if all(changed[key] is value[key] for key in value) else changed
        return value

    return visit(model)


def with_attributes(layer: Any, **values: Any) -> Any:
    """A layer like another one, with other values, possibly traced, for some attributes; for one call."""
    clone = object.__new__(type(layer))
    vars(clone).update(vars(layer))
    vars(clone).update(values)
    return clone


def shared_arrays(model: Any) -> set[int]:
    """The ids of the arrays that have several places in a model."""
    leaves, structure = tree.flatten(model)
    numbers = [number for _, number, _ in tree.places(structure)]
    return {id(leaf) for number, leaf in enumerate(leaves) if numbers.count(number) > 1}


@contextmanager
def watching(model: Any, seen: Callable[[Any, tuple[Any, ...], Any], None]) -> Iterator[Any]:
    """While this is in force, `seen(module, args, result)` is called after each call of a Module in the model."""
    classes = [(module, type(module)) for _, module in model.named_modules()]

    def watched(cls: Any) -> type:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            out = cls.__call__(self, *args, **kwargs)
            seen(self, args, out)
            return out

        return type(cls.__name__, (cls,), {"__call__": call, "__module__": cls.__module__})

    made = {cls: watched(cls) for cls in {cls for _, cls in classes}}
    try:
        for module, cls in classes:
            module.__class__ = made[cls]
        yield model
    finally:
        for module, cls in classes:
            module.__class__ = cls


def delete_paths(model: Any, *patterns: str) -> Any:
    """A copy of a model in which the Modules whose dotted names match return their input: residual blocks, deleted.

        nn.delete_paths(model, "blocks.3", "blocks.7")

    A block y = x + f(x) that returns its input is one without its path through f. Deleting one of many changes a
    residual network little, as most of its paths don't go through it; the same in a plain network destroys it.

    A. Veit, M. Wilber and S. Belongie, Residual networks behave like ensembles of relatively shallow networks, 2016.
    """
    check_model(model, "nn.delete_paths")
    new = copy.deepcopy(model)
    chosen = {id(module) for _, module in modules_like(new, patterns, Module, "nn.delete_paths")}
    return replaced(new, lambda module: Identity() if id(module) in chosen else module)
