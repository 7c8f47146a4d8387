"""Trees for users: parameters in dicts, tuples and objects, as lists of leaves or as one vector, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.tree import Structure, flatten, trainable
from wonderland.core.types import type_of


def tree_flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree, in a fixed order, and its structure: `wl.tree_unflatten` puts them together again.

    Tuples, lists, dicts (by sorted keys), None, named tuples and registered classes are nodes; all else is a leaf.

        leaves, structure = wl.tree_flatten({"b": 2.0, "a": (1.0, None)})
        # [1.0, 2.0] and {'a': (array, None), 'b': array}
    """
    return flatten(tree)


def tree_unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of a structure, with these leaves: the inverse of `wl.tree_flatten`."""
    if not isinstance(structure, Structure):
        raise ArgumentError(
            f"tree_unflatten takes a structure (the second thing that tree_flatten returns) and leaves, got "
            f"{type(structure).__name__} first: tree_unflatten(structure, leaves)"
        )
    try:
        given = list(leaves)
    except TypeError:
        raise ArgumentError(f"tree_unflatten takes a list of leaves, got {type(leaves).__name__}") from None
    if len(given) != structure.leaf_count:
        raise ArgumentError(f"the structure {structure} has {structure.leaf_count} leaves, got {len(given)}")
    return structure.unflatten(given)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in the order of `wl.tree_flatten`."""
    return flatten(tree)[0]


def tree_structure(tree: Any) -> Structure:
    """The structure of a tree: what it is without its leaves. Structures compare and hash by content."""
    return flatten(tree)[1]


def tree_ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """`(vector, unravel)`: all numbers of a tree of arrays as one vector, and the function that goes back.

    The vector is new memory, of the dtype to which those of the leaves are promoted; `unravel(vector)` is a tree of
    the same structure whose leaves have their shapes and dtypes again (Python's numbers come back as NumPy's). Both
    work inside every transformation, so that functions of vectors, as SciPy wants them, can have parameters in a tree:

        x0, unravel = wl.tree_ravel(params)
        found = scipy.optimize.minimize(wl.value_and_grad(lambda x: loss(unravel(x))), x0, jac=True)
        best = unravel(found.x)

    Of Modules it has the trainable parameters; what else they hold is copied, as it is now. Integers beside
    floating-point numbers are refused: an optimiser would move them, without a derivative.
    """
    everything, structure = flatten(tree)
    flags = trainable(structure)
    leaves = [leaf for leaf, flag in zip(everything, flags, strict=True) if flag]
    rest: list[Any] = [None if flag else leaf.copy() for leaf, flag in zip(everything, flags, strict=True)]
    types = []
    for number, leaf in enumerate(leaves):
        try:
            types.append(type_of(unwrap(leaf)))
        except TypeError as error:
            raise ArgumentError(f"tree_ravel: leaf {number} of {structure} is no array: {error}") from None
    kinds = {t.dtype.kind for t in types}
    if kinds & {*"biu"} and kinds & {*"fc"}:
        number = next(i for i, t in enumerate(types) if t.dtype.kind in "biu")
        raise ArgumentError(
            f"tree_ravel: leaf {number} of {structure} is {types[number]}, others are floating-point numbers. In one "
            "vector it would be moved like them, without a derivative: keep integers out of the tree, or make them "
            "floating-point numbers (.astype(float), 2.0 instead of 2)."
        )
    dtype = np.result_type(*(t.dtype for t in types)) if types else np.dtype(float)
    ends = np.cumsum([0, *(t.size for t in types)]).tolist()
    numbers = [leaf._is_number() if isinstance(leaf, Tracer) else not isinstance(leaf, np.ndarray) for leaf in leaves]
    parts = [_copy_as(np.ravel(leaf), dtype) for leaf in leaves]
    vector = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype)

    def unravel(vector: Any) -> Any:
        """The tree of a vector."""
        given: Any = vector if isinstance(vector, Tracer) else np.asarray(vector)
        if given.shape != (ends[-1],):
            raise ArgumentError(f"unravel: a vector of {ends[-1]} numbers makes {structure}, got shape {given.shape}")
        if not np.can_cast(given.dtype, dtype, "same_kind"):
            raise ArgumentError(f"unravel: the vector has dtype {dtype}, got {given.dtype}")
        parts = []
        for start, end, kind, number in zip(ends[:-1], ends[1:], types, numbers, strict=True):
            part = given[start] if number else given[start:end].reshape(kind.shape)
            real = given.dtype.kind == "c" and kind.dtype.kind != "c"
            parts.append(_copy_as(part.real if real else part, kind.dtype))
        given = iter(parts)
        return structure.unflatten([next(given) if f else leaf.copy() for leaf, f in zip(rest, flags, strict=True)])

    return vector, unravel


def _copy_as(x: Any, dtype: np.dtype) -> Any:
    """`x.astype(dtype)`; a traced value that has that dtype never changes, and needs a handle of its own alone."""
    return Tracer(unwrap(x)) if isinstance(x, Tracer) and x.dtype == dtype else x.astype(dtype)
