"""Low-rank adapters: a trained model goes on learning by few new parameters, which can become part of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.nn import init
from wonderland.nn.building import positive
from wonderland.nn.convolutions import _Filter
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.surgery import check_model, modules_like, replaced, shared_arrays, with_attributes


class LoRA(Module):
    """A layer with a low-rank addition to its weight, of which only that is trained. `nn.lora` makes them.

        y = W x + b + (alpha / rank) B A x

    `base` is the layer, a Linear or a convolution; `lora_a` is (rank, in), or (rank, in / groups, *kernel), drawn as
    the layer's weight would be; `lora_b` is (out, rank) and begins with zeros, so that nothing changes at first.

    E. Hu et al., LoRA: low-rank adaptation of large language models, 2021.
    """

    def __init__(self, base: Any, rank: int, alpha: float | None = None, *, key: Any = None):
        if not isinstance(base, (Linear, _Filter)):
            raise ArgumentError(f"LoRA adapts nn.Linear and convolutions, got {type(base).__name__}")
        if base.weight is None:
            raise ArgumentError("LoRA: the sizes of the layer aren't known yet. Call nn.build(model, x) before.")
        self.rank: int = positive(rank, "LoRA: rank")
        self.scale: float = float(rank if alpha is None else alpha) / self.rank
        self.merged = False
        self.base = base
        shape, dtype = base.weight.shape, base.weight.dtype
        self.lora_a: Any = init.fan_in_uniform(key, (self.rank, *shape[1:]), dtype)
        self.lora_b: Any = np.zeros((shape[0], self.rank), dtype)

    def __call__(self, x: Any) -> Any:
        """x as the layer takes it."""
        if self.merged:
            return self.base(x)
        if isinstance(self.base, Linear):
            return self.base(x) + self.scale * ((x @ self.lora_a.T) @ self.lora_b.T)
        return with_attributes(self.base, weight=self.base.weight + self.change())(x)

    def change(self) -> Any:
        """What is added to the weight: (alpha / rank) B A, in its shape."""
        flat = self.lora_a.reshape(self.rank, -1)
        return self.scale * (self.lora_b @ flat).reshape(self.lora_b.shape[0], *self.lora_a.shape[1:])


def lora(
    model: Any, rank: int, pattern: str | Sequence[str] = "*", alpha: float | None = None, *, key: Any = None
) -> Any:
    """Give the Linear and convolution layers whose dotted names match a low-rank adapter, and freeze the rest.

        model = nn.lora(model, rank=8, pattern=["*.query", "*.value"], alpha=16)
        optimizer = train.AdamW(model, rate=1e-3)        # trains lora_a and lora_b alone

    Layers become `nn.LoRA` modules in place; the model is returned (another one if it is itself such a layer). Unfreeze
    what else is to be trained, such as a new head: `model.unfreeze("head.*")`. The scale of an adapter is alpha / rank;
    without `alpha` it is 1.
    """
    check_model(model, "nn.lora")
    inside = {id(module.base) for _, module in model.named_modules() if isinstance(module, LoRA)}
    chosen = modules_like(model, pattern, (Linear, _Filter), "nn.lora")
    for name, layer in chosen:
        if id(layer) in inside:
            raise ArgumentError(f"nn.lora: {name} has an adapter already; leave it out of the pattern")
    keys = random.split(random.next_key() if key is None else key, max(len(chosen), 1))
    adapters = {id(layer): LoRA(layer, rank, alpha, key=keys[i]) for i, (_, layer) in enumerate(chosen)}
    for (_, layer), adapter in zip(chosen, adapters.values(), strict=True):
        adapter.training = layer.training
    model = replaced(model, lambda module: adapters.get(id(module), module))
    model.freeze("*")
    model.unfreeze("*.lora_a", "*.lora_b")
    return model


def merge_lora(model: Any, *, discard: bool = False) -> Any:
    """Add the adapters to the weights, in place, so that a call costs what it did before; returns the model.

    `unmerge_lora` takes them out again, up to rounding. With `discard`, adapters are removed, and layers have the names
    that they had before `nn.lora`: what is saved then loads into a plain model.
    """
    shared = shared_arrays(model)
    for name, adapter in _adapters(model, "nn.merge_lora"):
        if id(adapter.base.weight) in shared:
            raise ArgumentError(f"nn.merge_lora: the weight of {name} is used elsewhere, too, where it would change")
        if not adapter.merged:
            adapter.base.weight += adapter.change()
            adapter.merged = True
    return replaced(model, lambda module: module.base if isinstance(module, LoRA) else module) if discard else model


def unmerge_lora(model: Any) -> Any:
    """Take adapters that were merged out of the weights, in place, to train on; returns the model."""
    for _, adapter in _adapters(model, "nn.unmerge_lora"):
        if adapter.merged:
            adapter.base.weight -= adapter.change()
            adapter.merged = False
    return model


def _adapters(model: Any, what: str) -> list[tuple[str, Any]]:
    check_model(model, what)
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, LoRA)]
    if not found:
        raise ArgumentError(f"{what}: this {type(model).__name__} has no adapters; nn.lora makes them")
    return found
