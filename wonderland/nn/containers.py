"""Layers made of layers: one after the other, around a shortcut, beside each other. Functions are layers, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wonderland.nn.arguments import array
from wonderland.nn.module import Module
from wonderland.nn.placing import place_of, placed


class Sequential(Module):
    """Layers and functions, one after the other: `nn.Sequential(nn.Linear(784, 256), nn.relu, nn.Linear(256, 10))`.

    `model[0]` is a layer, `model[:2]` a Sequential of the same layers, `model[2] = layer` replaces one, `append` adds
    one at the end. Names of parameters are PyTorch's: "0.weight", "2.weight".
    """

    _unprefixed = ("layers",)

    def __init__(self, *layers: Any):
        self.layers: list[Any] = _callables("Sequential", layers)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __getitem__(self, index: int | slice) -> Any:
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __setitem__(self, index: int, layer: Any) -> None:
        layers = list(self.layers)
        layers[index] = layer
        self.layers = _callables("Sequential", layers)

    def append(self, *layers: Any) -> Any:
        """Add layers at the end; returns the Sequential."""
        self.layers = _callables("Sequential", [*self.layers, *layers])
        return self


class Residual(Module):
    """y = shortcut(x) + scale * inner(x); without a shortcut, x itself.

    `scale` is None, a number, or an array, which is then trained. He et al. 2015, Deep residual learning.
    """

    scale: Any

    def __init__(self, inner: Any, shortcut: Any = None, scale: Any = None):
        self.inner: Any
        (self.inner,) = _callables("Residual", [inner])
        self.shortcut: Any | None = None if shortcut is None else _callables("Residual", [shortcut])[0]
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        x = array(x)
        around = x if self.shortcut is None else self.shortcut(x)
        change = self.inner(x)
        if self.scale is not None:
            change = self.scale * change
        if around.shape != change.shape:
            way = "the input" if self.shortcut is None else "the shortcut"
            raise ValueError(
                f"{place_of(self)}: inner made {change.shape} of an input of shape {x.shape}, {way} has "
                f"{around.shape}; they are added, so give a shortcut= that makes them the same"
            )
        return around + change


class Parallel(Module):
    """Layers and functions of the same input, whose results are summed, or concatenated along an axis.

    y = sum_i f_i(x), or with `join="concat"` (f_1(x), f_2(x), ...) along `axis` (-3 are the channels of images). `join`
    may also be a function of the list of results. Names of parameters are numbered, as those of `Sequential`.
    """

    _unprefixed = ("branches",)

    def __init__(self, *branches: Any, join: str | Callable[[list[Any]], Any] = "sum", axis: int = -1):
        if join not in ("sum", "concat") and not callable(join):
            raise ValueError(f'Parallel: join is "sum", "concat" or a function of the list of results, not {join!r}')
        if not branches:
            raise ValueError("Parallel has no branches")
        self.branches: list[Any] = _callables("Parallel", branches)
        self.join = join
        self.axis = axis

    def __call__(self, x: Any) -> Any:
        results = [branch(x) for branch in self.branches]
        if callable(self.join):
            return self.join(results)
        shapes = [result.shape for result in results]
        if self.join == "concat":
            with placed(self):
                return np.concatenate(results, axis=self.axis)
        if len({*shapes}) > 1:
            raise ValueError(
                f"{place_of(self)}: the branches are summed, but have shapes {', '.join(map(str, shapes))}"
            )
        total = results[0]
        for result in results[1:]:
            total = total + result
        return total


def _callables(name: str, layers: Any) -> list[Any]:
    for i, layer in enumerate(layers):
        if isinstance(layer, type) and issubclass(layer, Module):
            raise TypeError(f"{name}: number {i} is the class {layer.__name__}; make a layer of it: {layer.__name__}()")
        if isinstance(layer, (list, tuple)):
            raise TypeError(f"{name}: number {i} is a {type(layer).__name__}; write {name}(*layers)")
        if not callable(layer):
            raise TypeError(f"{name}: number {i} is {layer!r}, which can't be called")
    return list(layers)
