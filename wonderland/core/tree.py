"""Pytrees: nested tuples, lists, dicts, None and registered classes of leaves.

A tree comes in; its leaves (in a fixed order) and its `Structure` go out; `Structure.unflatten` goes back. A class
registered as *mutable* (`register_mutable`) is a node whose attributes are its children; a transformation hands the
function a clone of it and writes changed arrays back (see `core.functions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np


class NodeKind:
    """How to take a node apart and put it together again."""

    __slots__ = ("flatten", "mutable", "name", "unflatten")

    def __init__(self, name: str, flatten: Callable, unflatten: Callable, mutable: bool = False):
        self.name: str = name
        self.flatten: Callable[..., Any] = flatten  # node -> (children, static data)
        self.unflatten: Callable[..., Any] = unflatten  # static data, children -> node
        self.mutable: bool = mutable


_kinds: dict[type, NodeKind] = {}


def register_node(cls: type, flatten: Callable, unflatten: Callable) -> type:
    """Make `cls` a pytree node: `flatten(node) -> (children, static)`, `unflatten(static, children) -> node`."""
    _kinds[cls] = NodeKind(cls.__name__, flatten, unflatten)
    return cls


def register_mutable(cls: type) -> type:
    """Make instances of `cls` mutable pytree nodes: array attributes are children, the others are static.

    Usable as a class decorator. Transformations write arrays that the function replaced back into the caller's
    arrays, so a jitted training step updates weights in place.
    """

    def flatten(node: Any) -> tuple[list, Any]:
        children, names, static = [], [], []
        for name, value in vars(node).items():
            if is_data(value):
                names.append(name)
                children.append(value)
            else:
                static.append((name, value))
        return children, (cls, _Keys.of(names, vars(node)), tuple(static))

    def unflatten(static: Any, children: Sequence) -> Any:
        node: Any = object.__new__(cls)
        found = {**dict(static[2]), **dict(zip(static[1], children, strict=True))}
        vars(node).update([(name, found[name]) for name in static[1].order])
        return node

    _kinds[cls] = NodeKind(cls.__name__, flatten, unflatten, mutable=True)
    return cls


def is_data(value: Any) -> bool:
    """Is an attribute of a mutable object data (an array, or a container with an array in it), or static?"""
    if isinstance(value, (str, bytes, type)):  # NumPy's among them; its numbers are data, though float64 is a float too
        return False
    kind = kind_of(value)
    if kind is not None:
        return kind.mutable or any(is_data(child) for child in kind.flatten(value)[0])
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _sorted_keys(node: dict) -> list:
    try:
        return sorted(node)
    except TypeError:
        return list(node)


class _Keys(tuple):
    """The keys of a dict, sorted: dicts with the same keys have the same structure, whatever their order.

    Or the attributes of a mutable object that are data.
    """

    order: tuple  # of all keys or attributes, as the dict or the object has them
    factory: Any  # of a defaultdict

    @classmethod
    def of(cls, keys: Iterable, node: dict) -> _Keys:
        found = cls(keys)
        found.order, found.factory = tuple(node), getattr(node, "default_factory", None)
        return found


def _flatten_dict(node: dict) -> tuple[list, Any]:
    keys = _Keys.of(_sorted_keys(node), node)
    return [node[key] for key in keys], (type(node), keys)


def _unflatten_dict(static: Any, children: Iterable) -> Any:
    cls, keys = static
    found = dict(zip(keys, children, strict=True))
    items = [(key, found[key]) for key in keys.order]
    return cls(keys.factory, items) if issubclass(cls, defaultdict) else cls(dict(items))  # a Counter would count items


_TUPLE = NodeKind("tuple", lambda node: (node, None), lambda static, children: tuple(children))
_LIST = NodeKind("list", lambda node: (node, None), lambda static, children: list(children))
_DICT = NodeKind("dict", _flatten_dict, _unflatten_dict)
_NONE = NodeKind("None", lambda node: ((), None), lambda static, children: None)
_NAMED = NodeKind("namedtuple", lambda node: (node, type(node)), lambda static, children: static(*children))
_HELD = NodeKind("held", lambda node: ((), node), lambda static, children: static)
_kinds.update({tuple: _TUPLE, list: _LIST, dict: _DICT, type(None): _NONE})


def kind_of(node: Any) -> NodeKind | None:
    """The node kind of a value, None for a leaf."""
    cls = type(node)
    kind = _kinds.get(cls)
    if kind is not None:
        return kind
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return _NAMED
    for base in cls.__mro__[1:-1]:  # subclasses of mutable classes and of dict are nodes too
        kind = _kinds.get(base)
        if kind is not None and base not in (tuple, list):
            if kind.mutable:
                register_mutable(cls)
                return _kinds[cls]
            return kind if base is dict else None
    return None


class Structure:
    """The shape of a tree with its leaves removed. Compares and hashes by content."""

    __slots__ = ("children", "has_mutable", "kind", "leaf_count", "static")

    def __init__(self, kind: NodeKind | None, static: Any, children: tuple[Structure, ...]):
        self.kind: NodeKind | None = kind
        self.static: Any = static
        self.children: tuple[Structure, ...] = children
        self.leaf_count: int = (kind is None) + sum([child.leaf_count for child in children])
        self.has_mutable: bool = kind is not None and (kind.mutable or any(child.has_mutable for child in children))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put leaves back in place."""
        return self._build(iter(leaves))

    def _build(self, leaves: Any) -> Any:
        if self.kind is None:
            return next(leaves)
        parts = [next(leaves) if child.kind is None else child._build(leaves) for child in self.children]
        return self.kind.unflatten(self.static, parts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Structure)
            and self.kind is other.kind
            and (self.static is other.static or typed(self.static) == typed(other.static))
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return hash((id(self.kind), self.children))

    def __repr__(self) -> str:
        if self.kind is None or self.kind is _NONE:
            return "array" if self.kind is None else "None"
        if self.kind is _DICT:
            inner = ", ".join(f"{k!r}: {c}" for k, c in zip(self.static[1], self.children, strict=True))
            return "{" + inner + "}"
        inner = ", ".join(map(repr, self.children))
        if self.kind is _TUPLE:
            return f"({inner},)" if len(self.children) == 1 else f"({inner})"
        if self.kind is _LIST:
            return f"[{inner}]"
        return f"{self.kind.name}({inner})"


def typed(value: Any) -> Any:
    """A key that tells 1, 1.0 and True apart, and 0.0 from -0.0, also inside containers; a NaN is like another one."""
    if isinstance(value, (tuple, list, dict)):
        return type(value), tuple(map(typed, value.items() if isinstance(value, dict) else value))
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(typed, value))
    if isinstance(value, slice):
        return slice, typed((value.start, value.stop, value.step))
    held = contents(value)
    if held is not None:
        return type(value), typed(held)
    if isinstance(value, np.ndarray):
        return type(value), _Same(value)
    return type(value), repr(value) if isinstance(value, (float, complex, np.inexact)) else value


class _Same:
    """An array that something static holds: it is equal to itself alone, and no static value by itself."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return hash(self.array)  # which raises


def contents(value: Any) -> dict[str, Any] | None:
    """What a record holds, by name, if that is how it compares: a dataclass or a SimpleNamespace. None for others."""
    cls = type(value)
    if cls is SimpleNamespace:
        return vars(value)
    fields = getattr(cls, "__dataclass_fields__", None)
    if fields is None or cls is type or not cls.__dataclass_params__.eq:
        return None
    return {name: getattr(value, name) for name, field in fields.items() if field.compare and hasattr(value, name)}


LEAF = Structure(None, None, ())
_row = cache(lambda kind, count: Structure(kind, None, (LEAF,) * count))  # of a tuple or list of arrays and numbers
_LEAVES = frozenset({np.ndarray, np.float32, np.float64, int, float})  # what most leaves are: no need to ask further


def flatten_call(args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[list[Any], Structure]:
    """`flatten((args, kwargs))`, quick where the arguments are plain arrays and numbers."""
    if kwargs:
        return flatten((args, kwargs))
    if _LEAVES.issuperset(map(type, args)):
        return list(args), plain_call(len(args))
    leaves, structure = flatten(args)
    return leaves, Structure(_TUPLE, None, (structure, plain_call(0).children[1]))


@cache
def plain_call(count: int) -> Structure:
    """The structure of a call with arrays and numbers alone."""
    return flatten(((0,) * count, {}))[1]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree and its structure."""
    leaves: list = []
    return leaves, _flatten(tree, leaves, ())


def _flatten(tree: Any, leaves: list, parents: tuple) -> Structure:
    kind = None if type(tree) in _LEAVES else _kinds.get(type(tree)) or kind_of(tree)
    if kind is None:
        leaves.append(tree)
        return LEAF
    if kind.mutable:
        if any(tree is parent for parent in parents):
            raise ValueError(f"a {kind.name} contains itself: a tree of arguments can't have cycles")
        parents = (*parents, tree)
    children, static = kind.flatten(tree)
    if static is None and _LEAVES.issuperset(map(type, children)):
        leaves.extend(children)
        return _row(kind, len(children))
    return Structure(kind, static, tuple([_flatten(child, leaves, parents) for child in children]))


def orders(structure: Structure) -> tuple[Any, ...]:
    """The orders of keys and attributes in it. Equal structures may differ in them, and functions see them."""
    kind = structure.kind
    own = (structure.static[1].order,) if kind is not None and (kind is _DICT or kind.mutable) else ()
    return (*own, *(order for child in structure.children if child.kind is not None for order in orders(child)))


def hold(structure: Structure, leaves: Iterable[Any], is_array: Callable[[Any], bool]) -> tuple[Structure, list[Any]]:
    """A structure that holds the leaves that are no arrays (strings, functions, objects), and the other leaves."""
    if structure.kind is None:
        leaf = next(leaves)  # type: ignore[call-overload]
        return (LEAF, [leaf]) if is_array(leaf) else (Structure(_HELD, leaf, ()), [])
    parts = [hold(child, leaves, is_array) for child in structure.children]
    children = tuple([child for child, _ in parts])
    return Structure(structure.kind, structure.static, children), [leaf for _, found in parts for leaf in found]


def holds(structure: Structure) -> bool:
    """Is there something in it that is no array?"""
    return structure.kind is _HELD or any(holds(child) for child in structure.children)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return flatten(tree)[0]


def tree_map(f: Callable, tree: Any, *rest: Any) -> Any:
    """Apply `f` to corresponding leaves of trees of the same structure."""
    first, structure = flatten(tree)
    columns = [first]
    for other in rest:
        values, other_structure = flatten(other)
        if other_structure != structure:
            raise ValueError(f"trees differ in structure: {structure} and {other_structure}")
        columns.append(values)
    return structure.unflatten([f(*row) for row in zip(*columns, strict=True)])


def broadcast_prefix(prefix: Any, structure: Structure, what: str) -> list[Any]:
    """A prefix tree (such as `in_axes`) repeated over the leaves of `structure`; None is a leaf of the prefix."""
    kind = None if prefix is None else kind_of(prefix)
    if kind is None:
        return [prefix] * structure.leaf_count
    children, static = kind.flatten(prefix)
    fits = kind is structure.kind and len(children) == len(structure.children)
    if not fits or (kind is _DICT and static[1] != structure.static[1]):
        raise ValueError(f"{what} {prefix!r} doesn't match the structure {structure} of its argument")
    pairs = zip(children, structure.children, strict=True)
    return [leaf for child, below in pairs for leaf in broadcast_prefix(child, below, what)]
