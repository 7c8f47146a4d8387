"""One step of training as one compiled call: loss, gradients, clipping, update, and a flag that guards all of it.

A model, an optimiser and a batch come in; the loss, what else the loss function tells, and the flag come out. If the
loss, or a new number of the model or the optimiser, isn't finite, the flag is False, and every array that the step
would have written (batch statistics and keys of dropout, too) has its old value, to the bit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from wonderland.compile.captured import found
from wonderland.compile.jit import jit
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer, unwrap
from wonderland.nn.module import Module
from wonderland.train.batches import size_of
from wonderland.train.gradients import Accumulate, clip_by_norm
from wonderland.train.optimizers_base import Optimizer
from wonderland.train.optimizers_curvature import GaussNewton, VectorOptimizer
from wonderland.train.parallel import Ranks
from wonderland.transform.derivatives import value_and_grad

RESERVED = ("epoch", "loss", "rate", "seconds", "skipped", "step")  # names that a history has anyway
Clip = float | Callable[[Any], Any] | None

MOST = 16  # compiled functions that are kept
_kept: OrderedDict[Any, Any] = OrderedDict()


def remembered(make: Callable[..., Callable], *key: Hashable, like: Any = None) -> Any:
    """`jit(make(*key))`, the same one for the same key and trees like `like`: a second `fit` compiles nothing.

    Each kind of model has its own, so that `jit` warns about many shapes of batches, and not about many models. A
    function whose globals, closure or attributes have changed since is compiled anew.
    """
    captured, alive = _captured(key)
    whole = (make, *key, captured, tree.flatten(like)[1])
    try:
        compiled, _ = _kept.pop(whole, None) or (jit(make(*key)), alive)
    except TypeError:  # a function that has no hash
        return jit(make(*key))
    _kept[whole] = compiled, alive
    while len(_kept) > MOST:
        _kept.popitem(last=False)
    return compiled


def _captured(functions: Sequence[Any]) -> tuple[Hashable, list[Any]]:
    """What functions get at without being given it, to be compared; and what has to live on, as its id is in there."""
    known: list[Hashable] = []
    alive = []
    for label, (_, _, value) in (part for f in functions if callable(f) for part in found(f)):
        if isinstance(value, (bool, int, float, complex, str, np.generic)):
            known.append((label, type(value), repr(value)))
        elif isinstance(value, (np.ndarray, FunctionType, BuiltinFunctionType, np.ufunc, type)):
            known.append((label, id(value)))
            alive.append(value)
        else:
            known.append((label, type(value)))
    return tuple(known), alive


def compiled_step(loss: Callable, model: Any, optimizer: Any, clip: Clip = None, ranks: Ranks | None = None) -> Any:
    """The jitted `step(model, optimizer, *batch) -> (loss, extra, fine)` for such a model and such an optimiser.

    `clip` is the largest norm of all gradients together, or a function from gradients to gradients. With `ranks`
    the loss and the gradients are the means over the samples of all of them.
    """
    return remembered(guarded_step, loss, clip, ranks, like=(model, optimizer))


def guarded_step(loss: Callable, clip: Clip, ranks: Ranks | None) -> Callable:
    """The function that is compiled."""
    attempt = plain_step(loss, clip, ranks)

    def step(model: Any, optimizer: Any, *batch: Any) -> tuple[Any, dict[str, Any], Any]:
        old = [[unwrap(leaf) for leaf in tree.leaves(node)] for node in (model, optimizer)]
        value, extra, _ = attempt(model, optimizer, *batch)
        changed = [
            (leaf, Tracer(before))
            for node, values in zip((model, optimizer), old, strict=True)
            for leaf, before in zip(tree.leaves(node), values, strict=True)
            if unwrap(leaf) is not before and isinstance(leaf, Tracer)
        ]
        buffers = {id(held) for _, held in model.named_buffers()}
        fine = all_fine(value, [_looked_at(leaf, before, id(leaf) in buffers) for leaf, before in changed])
        for leaf, before in changed:
            leaf._replace(unwrap(np.where(fine, leaf, before).astype(before.dtype)))
        return value, extra, fine

    return step


def _looked_at(leaf: Any, before: Any, buffer: bool) -> Any:
    """What has to be finite: parameters, all of an optimiser, and numbers of buffers that were finite before."""
    return np.where(np.isfinite(before), leaf, 0) if buffer and leaf.dtype.kind in "fc" else leaf


def all_fine(value: Any, arrays: Sequence[Any]) -> Any:
    """Are a number and all arrays finite? x * 0 is 0 for finite x, and NaN otherwise: one sum tells."""
    total = (value * 0).astype(np.float64)
    for array in arrays:
        if array.dtype.kind in "fc":
            nothing = np.sum(array * 0)
            total = total + (nothing.real if array.dtype.kind == "c" else nothing)
    return total == 0


def plain_step(loss: Callable, clip: Clip = None, ranks: Ranks | None = None) -> Callable:
    """A step without the guard: `attempt(model, optimizer, *batch) -> (loss, extra, gradients)`."""
    clipped = clip if callable(clip) or clip is None else (lambda grads: clip_by_norm(grads, clip))

    def attempt(model: Any, optimizer: Any, *batch: Any) -> tuple[Any, dict[str, Any], Any]:
        batch = cast_batch(model, batch)
        if isinstance(optimizer, VectorOptimizer):  # it looks at the loss several times, at copies of the buffers
            value, extra = checked_loss(loss, model, batch)
            optimizer.minimize(lambda m, *data: checked_loss(loss, m, data)[0], model, *batch)
            return value, extra, None
        told = lambda m: checked_loss(loss, m, batch)
        if ranks is None:
            (value, extra), grads = value_and_grad(told, has_aux=True)(model)
        else:
            value, extra, grads = ranks.value_and_grad(told, model, size_of(batch))
        if clipped is not None:
            grads = clipped(grads)
        optimizer.update(model, grads)
        return value, extra, grads

    return attempt


def checked_loss(loss: Callable, model: Any, batch: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """What a loss function returns, as a number and a dict of numbers."""
    out = loss(model, *batch)
    name = getattr(loss, "__name__", type(loss).__name__)
    value, extra = out if isinstance(out, tuple) and len(out) == 2 else (out, {})
    wanted = "a loss is a function of (model, *batch) that returns one number, or a number and a dict of numbers"
    if not isinstance(value, (Tracer, np.ndarray, np.generic, float)) or not isinstance(extra, dict):
        came = f"({type(value).__name__}, {type(extra).__name__})" if isinstance(out, tuple) else type(out).__name__
        raise ArgumentError(f"{name} returned {came}: {wanted}")
    if np.shape(value) != ():
        raise ArgumentError(
            f"{name} returned an array of shape {np.shape(value)}: {wanted}. Take its mean: np.mean({name}(...))."
        )
    if isinstance(value, float) or value.dtype.kind != "f":
        kind = "a Python float" if isinstance(value, float) else f"a number of dtype {value.dtype}"
        raise ArgumentError(f"{name} returned {kind}, which has no derivative with respect to the model: {wanted}")
    for key, held in extra.items():
        dtype = held.dtype if hasattr(held, "dtype") else np.asarray(held).dtype
        if not isinstance(key, str) or key in RESERVED or np.shape(held) != () or dtype.kind not in "biuf":
            raise ArgumentError(
                f"{name} returned {key!r} of shape {np.shape(held)} and dtype {dtype} in its dict: values are real "
                f"numbers, and their names are strings other than {', '.join(RESERVED)}"
            )
    return value, extra


def cast_batch(model: Any, batch: Sequence[Any]) -> tuple[Any, ...]:
    """A batch whose floating-point arrays have the dtype of the model's parameters; others are as they are."""
    kinds = {w.dtype for w in model.parameters()} if isinstance(model, Module) else set()
    if not kinds:
        return tuple(batch)
    dtype = np.result_type(*kinds)
    real = np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype

    def cast(array: Any) -> Any:
        kind = getattr(array, "dtype", np.dtype(bool)).kind
        if kind == "c" and array.dtype != np.result_type(real, np.complex64):
            return array.astype(np.result_type(real, np.complex64))
        return array.astype(real) if kind == "f" and array.dtype != real else array

    return tuple(tree.tree_map(cast, part) for part in batch)


def check_optimizer(optimizer: Any, model: Any, clip: Clip) -> None:
    """Refuse what a step can't use, before anything is compiled."""
    inner = optimizer.optimizer if isinstance(optimizer, Accumulate) else optimizer
    if not isinstance(inner, Optimizer):
        came = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
        raise ArgumentError(f"the optimizer is one of wl.train, made for the model, train.Adam(model), not {came}")
    if isinstance(inner, GaussNewton):
        raise ArgumentError(
            "GaussNewton minimises a loss of outputs, not of (model, *batch): write the loop yourself, with "
            "optimizer.minimize(loss, model, x)"
        )
    if isinstance(inner, VectorOptimizer) and (clip is not None or inner is not optimizer):
        what = "clip" if clip is not None else "train.Accumulate"
        raise ArgumentError(f"{type(inner).__name__} searches along its own direction: it doesn't go with {what}")
    if not (clip is None or callable(clip)) and not (isinstance(clip, (int, float)) and clip is not True and clip > 0):
        raise ArgumentError(f"clip is the largest norm of the gradients, or a function of them, not {clip!r}")
    inner._matched(model, dict(model.named_parameters(trainable=True)))
