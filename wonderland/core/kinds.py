"""Kinds of nodes of a tree: tuples, lists, dicts, None, registered classes, mutable objects and their attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
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


KINDS: dict[type, NodeKind] = {}


def register_node(cls: type, flatten: Callable, unflatten: Callable) -> type:
    """Make `cls` a pytree node: `flatten(node) -> (children, static)`, `unflatten(static, children) -> node`."""
    KINDS[cls] = NodeKind(cls.__name__, flatten, unflatten)
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
        return children, (cls, Keys.of(names, vars(node)), tuple(static))

    def unflatten(static: Any, children: Sequence) -> Any:
        node: Any = object.__new__(cls)
        found = {**dict(static[2]), **dict(zip(static[1], children, strict=True))}
        vars(node).update([(name, found[name]) for name in static[1].order])
        return node

    KINDS[cls] = NodeKind(cls.__name__, flatten, unflatten, mutable=True)
    return cls


class Layout:
    """What an `nn.Module` is besides its arrays and Modules; its static data, which reads (class, names, static).

    They are interned: equal ones are the same object. Array attributes have a role ("parameter", "buffer"); `marked`
    are containers of buffers. `frozen` are dotted names, below the Module, of parameters that aren't trained, `fixed`
    those of read-only arrays in containers.
    """

    __slots__ = ("__weakref__", "direct", "fixed", "frozen", "loose", "marked", "parts", "read", "roles", "template")

    def __init__(
        self, parts: tuple, roles: dict[str, str], marked: frozenset, frozen: frozenset, fixed: frozenset,
        loose: tuple, template: dict[str, Any], read: Callable,
    ):  # fmt: skip
        self.parts: tuple[Any, ...] = parts
        self.roles: dict[str, str] = roles
        self.marked: frozenset[str] = marked
        self.frozen: frozenset[str] = frozen
        self.fixed: frozenset[str] = fixed
        self.template: dict[str, Any] = template  # all attributes in order, with static values
        # The roles of array attributes, frozen ones as such.
        self.direct: dict[str, str] = {
            name: "frozen" if role == "parameter" and name in frozen else role for name, role in roles.items()
        }
        self.read: Callable[[Any], Layout] = read  # the layout of a Module
        self.loose: tuple[tuple[str, Any], ...] = loose  # static attributes that can change in place, as they were

    def __getitem__(self, number: int) -> Any:
        return self.parts[number]

    def role(self, value: Any, path: str) -> str:
        """The role of an array at a dotted name."""
        if path in self.direct:
            return self.direct[path]
        read_only = path in self.fixed or (isinstance(value, np.ndarray) and not value.flags.writeable)
        if value.dtype.kind not in "fc" or read_only or path.split(".")[0] in self.marked:
            return "buffer"
        return "frozen" if path in self.frozen else "parameter"


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


class Keys(tuple):
    """The keys of a dict, sorted: dicts with the same keys have the same structure, whatever their order.

    Or the attributes of a mutable object that are data.
    """

    order: tuple  # of all keys or attributes, as the dict or the object has them
    factory: Any  # of a defaultdict

    @classmethod
    def of(cls, keys: Iterable, node: dict) -> Keys:
        found = cls(keys)
        found.order, found.factory = tuple(node), getattr(node, "default_factory", None)
        return found


def flatten_dict(node: dict) -> tuple[list[Any], Any]:
    """The values of a dict, by sorted keys."""
    keys = Keys.of(_sorted_keys(node), node)
    return [node[key] for key in keys], (type(node), keys)


def _unflatten_dict(static: Any, children: Iterable) -> Any:
    cls, keys = static
    found = dict(zip(keys, children, strict=True))
    items = [(key, found[key]) for key in keys.order]
    return cls(keys.factory, items) if issubclass(cls, defaultdict) else cls(dict(items))  # a Counter would count items


TUPLE = NodeKind("tuple", lambda node: (node, None), lambda static, children: tuple(children))
LIST = NodeKind("list", lambda node: (node, None), lambda static, children: list(children))
DICT = NodeKind("dict", flatten_dict, _unflatten_dict)
NONE = NodeKind("None", lambda node: ((), None), lambda static, children: None)
NAMED = NodeKind("namedtuple", lambda node: (node, type(node)), lambda static, children: static(*children))
HELD = NodeKind("held", lambda node: ((), node), lambda static, children: static)
SHARED = NodeKind("shared", lambda node: ((), node), lambda static, children: static)  # an earlier leaf or object
ARGUMENT = NodeKind("argument", lambda node: ((), node), lambda static, children: static)  # an object of the caller's
KINDS.update({tuple: TUPLE, list: LIST, dict: DICT, type(None): NONE})


def kind_of(node: Any) -> NodeKind | None:
    """The node kind of a value, None for a leaf."""
    cls = type(node)
    kind = KINDS.get(cls)
    if kind is not None:
        return kind
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return NAMED
    for base in cls.__mro__[1:-1]:  # subclasses of mutable classes and of dict are nodes too
        kind = KINDS.get(base)
        if kind is not None and base not in (tuple, list):
            if kind.mutable:
                register_mutable(cls)
                return KINDS[cls]
            return kind if base is dict else None
    return None
