"""`vmap`: a function of one element becomes a function of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, MutationError
from wonderland.core.functions import SELF, Call
from wonderland.core.types import shape_of
from wonderland.ops.shape import transpose
from wonderland.transform.batch import Batch, BatchedValue, materialize
from wonderland.transform.derivatives import named


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Run `f` on every element along an axis of its arguments, at once.

    `in_axes` is an int or None (not batched) for all arguments, or a tuple with one per argument, each of which may be
    a tree matching the argument; keyword arguments are batched along axis 0. `out_axes` likewise for the results.
    """

    def batched(*args: Any, **kwargs: Any) -> Any:
        per_argument = list(in_axes) if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        call = Call(f, args, kwargs, [i for i, axes in enumerate(per_argument[: len(args)]) if axes is not None])
        axes = _leaf_axes(in_axes, call, len(args))
        size = _batch_size(axes, call)
        with Batch(size) as level:
            values = [
                v if axis is None else BatchedValue(level, move_axis(v, axis, 0))
                for v, axis in zip(call.values, axes, strict=True)
            ]
            pairs = [level.split(o) for o in call.run(values, all_tracers=True)]
        results, written = call.split(pairs)
        new = [_written(size, pair, axes[i], call, i) for pair, i in zip(written, call.written, strict=True)]
        values = [value for value, _ in results]
        call.write_back(new, values)
        results = [(value, flag) for value, (_, flag) in zip(values, results, strict=True)]
        assert call.out_structure is not None
        places = tree.broadcast_prefix(out_axes, call.out_structure, "out_axes")
        return call.result([_place(size, r, axis) for r, axis in zip(results, places, strict=True)])

    return named(batched, f, "vmap", vmap, in_axes, out_axes)


def _leaf_axes(in_axes: Any, call: Call, count: int) -> list:
    positional, keyword = call.structure.children
    if isinstance(in_axes, (tuple, list)) and len(in_axes) != count:
        raise ArgumentError(f"vmap: in_axes has {len(in_axes)} entries, the function was called with {count} arguments")
    per_argument = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * count
    axes: list = []
    for prefix, structure in zip(per_argument, positional.children, strict=True):
        axes += tree.broadcast_prefix(prefix, structure, "in_axes")
    for name, structure in zip(call.keywords, keyword.children, strict=True):
        axes += [None if name == SELF else 0] * structure.leaf_count
    return axes


def _written(size: int, pair: tuple[Any, bool], axis: int | None, call: Call, leaf: int) -> Any:
    """What a mutable argument is given: along its axis, if it is batched; otherwise it must be the same for all."""
    value, was_batched = pair
    if axis is not None:
        return move_axis(materialize(size, value, was_batched), 0, axis)
    name, role = next((".".join(path), role) for path, i, role in tree.places(call.structure) if i == leaf)
    if was_batched or role is not None:
        what = "given a value that differs along the batch" if was_batched else "written, once for the whole batch"
        where = name.split(".", 2)[-1]
        raise MutationError(
            f"inside vmap, a mutable argument that isn't batched was {what} ({where}). Return it from the function "
            "instead, reduce it over the batch outside, or batch the object, too: in_axes=0 with an ensemble, "
            "nn.stack([model, ...])."
        )
    return value


def _batch_size(axes: list, call: Call) -> int:
    sizes: dict[int, list[int]] = {}
    for i, (axis, kind) in enumerate(zip(axes, call.types, strict=True)):
        if axis is None:
            continue
        _check_axis(axis, kind.shape, f"argument leaf {i},", "in_axes")
        sizes.setdefault(kind.shape[axis], []).append(i)
    if not sizes:
        raise ArgumentError("vmap needs at least one argument to batch over: every in_axes entry is None")
    if len(sizes) > 1:
        found = ", ".join(f"{size} (leaves {leaves})" for size, leaves in sizes.items())
        raise ArgumentError(f"vmap: arguments have different batch sizes: {found}")
    return next(iter(sizes))


def _place(size: int, result: tuple[Any, bool], axis: int | None) -> Any:
    value, was_batched = result
    if axis is None:
        if was_batched:
            raise ArgumentError("vmap: out_axes=None, but the result depends on the batch")
        return value
    value = materialize(size, value, was_batched)
    _check_axis(axis, shape_of(value), "a result, with the batch,", "out_axes")
    return move_axis(value, 0, axis)


def _check_axis(axis: Any, shape: tuple, what: str, option: str) -> None:
    if not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"vmap: {option} are integers and None (and trees of them), not {axis!r}")
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(
            f"vmap: axis {axis} of {what} which has shape {shape}, doesn't exist. "
            f"Use {option}=None for what isn't batched."
        )


def move_axis(value: Any, source: int, target: int) -> Any:
    """`np.moveaxis` on values."""
    rank = len(shape_of(value))
    source, target = source % rank, target % rank
    if source == target:
        return value
    order = [i for i in range(rank) if i != source]
    order.insert(target, source)
    return transpose(value, permutation=tuple(order))
