"""How layers get their parameters: when they are made, or, if a size is None, when `build` sees an input.

A layer with parameters has a method `_make(self, recipe)`, which assigns them once all sizes are known. `start` calls
it at once, or leaves the recipe on the layer; `fill` takes the sizes that were missing from an input, while `build`
runs.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.core.level import running
from wonderland.core.tracer import Tracer
from wonderland.nn import init as initialisers
from wonderland.nn.module import Module, evaluating
from wonderland.nn.placing import place_of

Init = Callable[..., Any]


class Recipe(NamedTuple):
    """How the parameters of a layer are drawn: by which initialiser, with which key, in which dtype."""

    init: Init | None
    bias: bool | Init
    key: Any  # None, two integers, or a traced key
    dtype: Any

    def keys(self, count: int) -> list[Any]:
        """As many keys: of the layer's key, or of the next of the global stream."""
        key = random.next_key() if self.key is None else self.key
        return list(random.split(np.array(key, np.uint32) if isinstance(key, tuple) else key, count))

    def weight(self, key: Any, shape: tuple[int, ...], default: Init = initialisers.fan_in_uniform) -> Any:
        """A weight (out, in, *kernel)."""
        return _drawn(self.init or default, key, shape, self.dtype)

    def bias_of(self, key: Any, shape: tuple[int, ...], fan_in: int) -> Any:
        """A bias, or None: by the initialiser that was given as `bias`, or as PyTorch's of a weight with this fan."""
        if self.bias is False:
            return None
        if self.bias is True:
            return initialisers.fan_in_uniform(key, shape, self.dtype, fan_in=fan_in)
        return _drawn(self.bias, key, shape, self.dtype)


def _drawn(init: Init, key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    found = init(key, shape, dtype)
    if not isinstance(found, (np.ndarray, Tracer)) or found.shape != tuple(shape):
        name = getattr(init, "__name__", repr(init))
        raise ValueError(
            f"{name}, the initialiser, returned {getattr(found, 'shape', type(found).__name__)} for shape {shape}: "
            "initialisers are functions init(key, shape, dtype) that return an array of this shape"
        )
    return found if found.dtype == dtype else found.astype(dtype)


def recipe(layer: Any, init: Init | None, bias: Any, key: Any, dtype: Any) -> Recipe:
    """A recipe of the arguments that all layers have."""
    name = type(layer).__name__
    if init is not None and not callable(init):
        raise TypeError(f"{name}: init={init!r} is a function init(key, shape, dtype), such as nn.init.he_normal")
    if isinstance(bias, (int, np.bool_)):
        bias = bool(bias)
    elif not callable(bias):
        raise TypeError(f"{name}: bias={bias!r} is True, False, or a function init(key, shape, dtype)")
    dtype = np.dtype(dtype)
    if dtype.kind not in "fc":
        raise TypeError(f"{name}: dtype={dtype} is one of floating-point or complex numbers: parameters are trained")
    return Recipe(init, bias, key, dtype.type)


def start(layer: Any, sizes: dict[str, int | None], how: Recipe, known: bool = True) -> None:
    """Store the sizes of a layer, and make its parameters, if none is missing and all else is known."""
    for name, size in sizes.items():
        setattr(layer, name, None if size is None else positive(size, f"{type(layer).__name__}: {name}"))
    if known and None not in sizes.values():
        layer._make(how)
        return
    if isinstance(how.key, Tracer):
        raise ArgumentError(f"{type(layer).__name__}: sizes that are None are filled outside of transformations")
    if how.key is not None:
        random.split(how.key, 1)  # says what a key is
        how = how._replace(key=tuple(int(n) for n in how.key))
    layer._recipe = how


def positive(value: Any, what: str) -> int:
    """A size."""
    try:
        size = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}={value!r} is an integer of at least 1") from None
    if size < 1:
        raise ValueError(f"{what}={value!r} is an integer of at least 1")
    return size


class _Building(threading.local):
    active = False


_building = _Building()


def fill(layer: Any, **sizes: Any) -> None:
    """Give a layer the sizes that it lacks, found in an input, while `build` runs; otherwise say what to call."""
    missing = [name for name in sizes if getattr(layer, name) is None]
    if not _building.active:
        raise ValueError(
            f"{place_of(layer)}: its size {missing[0]} isn't known yet. Call nn.build(model, x) before, with an input "
            "of the model, or give the size."
        )
    if running():
        raise ValueError(
            f"{place_of(layer)}: its size {missing[0]} isn't known, and it is called inside {running()[-1].name}, "
            "where parameters can't be made. Give the size."
        )
    for name in missing:
        setattr(layer, name, sizes[name])
    how = layer._recipe
    del layer._recipe
    layer._make(how)


def build(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Fill the sizes of layers that are None, and make their parameters: `model(*args, **kwargs)` says what they are.

        model = nn.build(nn.Sequential(nn.Linear(None, 64), nn.relu, nn.Linear(None, 10)), x)

    Runs the model once, in evaluation mode, outside of transformations; buffers are afterwards what they were.
    Parameters are as if the sizes had been given, with `key=` the same. Returns the model.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"nn.build takes a Module and the arguments of a call, got {type(model).__name__}")
    if running():
        raise ArgumentError(
            f"nn.build is called inside {running()[-1].name}: parameters are made outside of transformations. Build "
            "the model before."
        )
    before = [(buffer, buffer.copy()) for _, buffer in model.named_buffers() if buffer.flags.writeable]
    active, _building.active = _building.active, True
    try:
        with evaluating(model):
            model(*args, **kwargs)
    finally:
        _building.active = active
        for buffer, value in before:
            np.copyto(buffer, value)
    return model
