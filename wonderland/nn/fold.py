"""Batch norms of a trained model as part of the layer before them: the same function with fewer operations."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.nn.batch_norm import BatchStatistics
from wonderland.nn.containers import Sequential
from wonderland.nn.convolutions import _Filter, _TransposedConvolution
from wonderland.nn.linear import Linear
from wonderland.nn.module import evaluating
from wonderland.nn.shapes import Identity
from wonderland.nn.surgery import check_model, replaced, shared_arrays, watching

Pairs = list[tuple[Any, Any]]  # a layer with weights, and the batch norm of its result


def fold(model: Any, *args: Any, **kwargs: Any) -> Any:
    """A copy of a model for inference whose batch norms are part of the Linear or convolution before each.

        s = weight / sqrt(running_var + eps),    W' = s W,    b' = s (b - running_mean) + bias

    In their places are `nn.Identity` layers; the copy is in evaluation mode. Without further arguments, these are the
    batch norms that follow a layer directly in a `Sequential`. With arguments of a call, `nn.fold(model, x)`, the model
    is run to see which batch norm gets the result of which layer, wherever they are; if the result then differs from
    the model's, because a layer's result is used elsewhere as well, that is an error. Layers that are used in several
    places stay as they are.
    """
    check_model(model, "nn.fold")
    new = copy.deepcopy(model).eval()
    pairs = _by_running(new, args, kwargs) if args or kwargs else _in_sequence(new)
    pairs = _used_once(new, pairs)
    for layer, norm in pairs:
        _absorb(layer, norm)
    gone = {id(norm) for _, norm in pairs}
    new = replaced(new, lambda module: Identity() if id(module) in gone else module).eval()
    if args or kwargs:
        _compare(model, new, args, kwargs)
    return new


def _fits(layer: Any, norm: Any) -> bool:
    """Does a batch norm apply to the channels that a layer makes, by numbers that stay?"""
    if not isinstance(norm, BatchStatistics) or not norm.track_running_stats or norm.channels is None:
        return False
    if not isinstance(layer, (Linear, _Filter)) or layer.weight is None:
        return False
    channels = layer.out_features if isinstance(layer, Linear) else layer.out_channels
    rank = 0 if isinstance(layer, Linear) else layer.rank
    axes = rank + 2  # of a batch
    last = isinstance(layer, Linear) or layer.channels_last
    axis = norm.channel_axis(np.empty((0,) * axes))
    return channels == norm.channels and axis % axes == (axes - 1 if last else axes - 1 - rank)


def _in_sequence(model: Any) -> Pairs:
    found = []
    for _, module in model.named_modules():
        if isinstance(module, Sequential):
            found += [(a, b) for a, b in zip(module.layers, module.layers[1:], strict=False) if _fits(a, b)]
    return found


def _by_running(model: Any, args: Any, kwargs: Any) -> Pairs:
    calls: list[tuple[Any, Any, Any]] = []  # (module, its input, its result); they stay alive, so ids tell them apart
    with watching(model, lambda module, given, out: calls.append((module, given[0] if given else None, out))):
        model(*args, **kwargs)
    makers = {id(out): module for module, _, out in calls if isinstance(module, (Linear, _Filter))}
    pairs = [(makers.get(id(x)), module) for module, x, _ in calls if isinstance(module, BatchStatistics)]
    counts: dict[int, int] = {}
    for module, _, _ in calls:
        counts[id(module)] = counts.get(id(module), 0) + 1
    return [(a, b) for a, b in pairs if a is not None and _fits(a, b) and counts[id(a)] == counts[id(b)] == 1]


def _used_once(model: Any, pairs: Pairs) -> Pairs:
    """Pairs whose layers are in one place of the model, with weights that nothing else has."""
    held = [id(layer) for _, module in model.named_modules() if isinstance(module, Sequential) for layer in module]
    many = shared_arrays(model)
    own = lambda layer: not any(id(w) in many for w in (layer.weight, layer.bias))
    return [(a, b) for a, b in pairs if own(a) and held.count(id(a)) < 2 and held.count(id(b)) < 2]


def _absorb(layer: Any, norm: Any) -> None:
    """Give a layer the weight and bias that make the batch norm after it the identity."""
    wide = np.float64
    scale = 1 / np.sqrt(norm.running_var.astype(wide) + norm.eps)
    scale = scale if norm.weight is None else scale * norm.weight
    shift = np.zeros_like(scale) if norm.bias is None else norm.bias.astype(wide)
    bias = np.zeros_like(scale) if layer.bias is None else layer.bias.astype(wide)
    weight = layer.weight.astype(wide)
    if isinstance(layer, _TransposedConvolution):  # (in, out / groups, *kernel)
        groups = layer.groups
        parts = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        each = scale.reshape(groups, 1, -1, *(1,) * layer.rank)
        weight = (parts * each).reshape(weight.shape)
    else:
        weight = weight * scale.reshape(-1, *(1,) * (weight.ndim - 1))
    dtype = layer.weight.dtype
    layer.weight = weight.astype(dtype)
    layer.bias = ((bias - norm.running_mean) * scale + shift).astype(dtype)


def _compare(model: Any, folded: Any, args: Any, kwargs: Any) -> None:
    with evaluating(model):
        wanted = tree.leaves(model(*args, **kwargs))
    for a, b in zip(wanted, tree.leaves(folded(*args, **kwargs)), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "fc" and a.size:
            tolerance = np.sqrt(np.finfo(a.dtype).eps) * max(1.0, float(np.max(np.abs(a))))
            if not np.max(np.abs(a - b)) <= tolerance:
                raise ArgumentError(
                    f"nn.fold: the folded model's result differs by up to {np.max(np.abs(a - b)):.2g}: the result of a "
                    "layer before a batch norm is used elsewhere, too. Fold the parts where it isn't."
                )
