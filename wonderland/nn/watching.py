"""Where a model looks: `attention_maps` runs it once, and keeps the weights of every attention layer that is called."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.level import running
from wonderland.nn.module import Module, evaluating

watching: ContextVar[list[tuple[Any, Any]] | None] = ContextVar("watching", default=None)


def attention_maps(model: Module, *inputs: Any, **options: Any) -> dict[str, np.ndarray]:
    """The weights of each attention layer of `model(*inputs, **options)`, (..., heads, T, S), by the layer's name.

    Row t says how much query t looks at each key, and sums to 1. Dropout is off. A layer that is called several times
    has "name", "name 2", ... in the order of the calls.

        maps = nn.attention_maps(model, tokens)                     # {"blocks.0.attention": (B, H, T, T), ...}
        train.pictures.attention(maps["blocks.0.attention"][0], labels)
    """
    if running():  # before a model that isn't an argument is told to stop training, which has an error of its own
        raise ArgumentError("attention_maps looks at values: call it with arrays, outside of jit, grad and vmap")
    names = {id(layer): name for name, layer in model.named_modules()}
    seen: list[tuple[Any, Any]] = []
    token = watching.set(seen)
    try:
        with evaluating(model):
            model(*inputs, **options)  # type: ignore[operator]
    finally:
        watching.reset(token)
    found: dict[str, np.ndarray] = {}
    for layer, weights in seen:
        name = names.get(id(layer), type(layer).__name__)
        count = sum(one.partition(" ")[0] == name for one in found)
        found[f"{name} {count + 1}" if count else name] = np.asarray(weights)
    if not found:
        raise ArgumentError(f"attention_maps: {type(model).__name__} called no nn.MultiHeadAttention")
    return found
