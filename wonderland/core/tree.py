"""Pytrees: nested tuples, lists, dicts, None and registered classes of leaves.

A tree comes in; its leaves (in a fixed order) and its `Structure` go out; `Structure.unflatten` goes back. A class
registered as *mutable* (`register_mutable`, or `nn.Module`) is a node whose attributes are its children; a
transformation hands the function a clone of it and writes changed arrays back (see `core.functions`). An array, or an
object, that mutable objects hold in several places is one leaf, or one node: the later places refer to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from wonderland.core.kinds import (
    ARGUMENT,
    DICT,
    HELD,
    KINDS,
    LIST,
    NONE,
    SHARED,
    TUPLE,
    Layout,
    NodeKind,
    flatten_dict,
    kind_of,
)
from wonderland.core.statics import typed


class Structure:
    """The shape of a tree with its leaves removed. Compares and hashes by content."""

    __slots__ = ("children", "has_mutable", "kind", "leaf_count", "static")

    def __init__(self, kind: NodeKind | None, static: Any, children: tuple[Structure, ...]):
        self.kind: NodeKind | None = kind
        self.static: Any = static
        self.children: tuple[Structure, ...] = children
        self.leaf_count: int = (kind is None) + sum([child.leaf_count for child in children])
        self.has_mutable: bool = kind is not None and (
            kind.mutable or kind is ARGUMENT or any(child.has_mutable for child in children)
        )

    def unflatten(self, leaves: Iterable[Any], objects: Sequence[Any] = ()) -> Any:
        """Put leaves back in place; `objects` are those of the caller's that the tree refers to."""
        return self._build_objects(iter(leaves), [], [], objects) if self.has_mutable else self._build(iter(leaves))

    def _build(self, leaves: Any) -> Any:
        if self.kind is None:
            return next(leaves)
        parts = [next(leaves) if child.kind is None else child._build(leaves) for child in self.children]
        return self.kind.unflatten(self.static, parts)

    def _build_objects(self, leaves: Any, done: list, nodes: list, objects: Sequence) -> Any:
        """`done` and `nodes` are the leaves and the mutable objects so far."""
        if self.kind is None:
            leaf = next(leaves)
            if self.static is not None and isinstance(leaf, (np.generic, float, int, complex)):
                leaf = np.asarray(leaf)  # what a Module holds stays an array
            done.append(leaf)
            return leaf
        if self.kind is SHARED:
            what, distance, _ = self.static
            return (done if what == "array" else nodes)[-distance]
        if self.kind is ARGUMENT:
            return objects[self.static]
        parts = [child._build_objects(leaves, done, nodes, objects) for child in self.children]
        node = self.kind.unflatten(self.static, parts)
        if self.kind.mutable:
            nodes.append(node)
        return node

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
        if self.kind is None or self.kind in (NONE, SHARED, ARGUMENT):
            return "array" if self.kind is None else self.kind.name
        if self.kind is DICT:
            inner = ", ".join(f"{k!r}: {c}" for k, c in zip(self.static[1], self.children, strict=True))
            return "{" + inner + "}"
        inner = ", ".join(map(repr, self.children))
        if self.kind is TUPLE:
            return f"({inner},)" if len(self.children) == 1 else f"({inner})"
        if self.kind is LIST:
            return f"[{inner}]"
        return f"{self.kind.name}({inner})"


LEAF = Structure(None, None, ())
_ROLES = {None: LEAF} | {role: Structure(None, role, ()) for role in ("parameter", "buffer", "frozen")}  # in Modules
_row = cache(lambda kind, count: Structure(kind, None, (LEAF,) * count))  # of a tuple or list of arrays and numbers
_LEAVES = frozenset({np.ndarray, np.float32, np.float64, int, float})  # what most leaves are: no need to ask further


ARRAYS: list[type] = [np.ndarray]  # what mutable objects can share; tracers are the other one
_COUNT = "count"


def flatten_call(args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[list[Any], Structure]:
    """`flatten((args, kwargs))`, quick where arguments are plain; arrays are shared inside of one argument alone."""
    if not kwargs and _LEAVES.issuperset(map(type, args)):
        return list(args), plain_call(len(args))
    leaves: list = []
    positional = Structure(TUPLE, None, tuple([_flatten(a, leaves, {}) for a in args]))
    if not kwargs:
        return leaves, Structure(TUPLE, None, (positional, plain_call(0).children[1]))
    values, static = flatten_dict(kwargs)
    named = Structure(DICT, static, tuple([_flatten(value, leaves, {}) for value in values]))
    return leaves, Structure(TUPLE, None, (positional, named))


@cache
def plain_call(count: int) -> Structure:
    """The structure of a call with arrays and numbers alone."""
    return flatten(((0,) * count, {}))[1]


def flatten(tree: Any, objects: Sequence[Any] = (), share: bool = True) -> tuple[list[Any], Structure]:
    """The leaves of a tree and its structure, which refers to `objects` by number."""
    leaves: list = []
    seen = {id(node): Structure(ARGUMENT, i, ()) for i, node in enumerate(objects)} if objects else {}
    return leaves, _flatten(tree, leaves, seen if share else _Forgetful())


def flatten_each(tree: Any) -> tuple[list[Any], Structure]:
    """`flatten`, with nothing shared between the items of a tuple: each of them is used by itself."""
    if type(tree) is not tuple or _LEAVES.issuperset(map(type, tree)):
        return flatten(tree)
    leaves: list = []
    return leaves, Structure(TUPLE, None, tuple([_flatten(item, leaves, {}) for item in tree]))


def merged(original: Any, structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of a structure with other leaves, and with the mutable objects of the original."""
    given = iter(leaves)

    def walk(node: Any, s: Structure) -> Any:
        if s.kind is None:
            return next(given)
        if s.kind.mutable:
            for _ in range(s.leaf_count):
                next(given)
            return node
        children = s.kind.flatten(node)[0]
        return s.kind.unflatten(s.static, [walk(c, child) for c, child in zip(children, s.children, strict=True)])

    return walk(original, structure) if structure.has_mutable else structure.unflatten(given)


class _Forgetful(dict):
    """Of what was seen it knows only how much, and so finds nothing twice."""

    def get(self, key: Any, default: Any = None) -> Any:
        return default


def _flatten(tree: Any, leaves: list, seen: dict) -> Structure:
    """`seen`: by id, the number of an array among the leaves and that of a finished mutable object; None inside it."""
    kind = None if type(tree) in _LEAVES else KINDS.get(type(tree)) or kind_of(tree)
    if kind is None:
        leaves.append(tree)
        return LEAF
    if kind.mutable:
        return _flatten_object(tree, kind, leaves, seen)
    children, static = kind.flatten(tree)
    if static is None and _LEAVES.issuperset(map(type, children)):
        leaves.extend(children)
        return _row(kind, len(children))
    return Structure(kind, static, tuple([_flatten(child, leaves, seen) for child in children]))


def _flatten_object(node: Any, kind: NodeKind, leaves: list, seen: dict) -> Structure:
    count = seen.setdefault(_COUNT, 0)
    known = seen.get(id(node), -1)
    if known is None:
        raise ValueError(f"a {kind.name} contains itself: a tree of arguments can't have cycles")
    if known != -1:
        return known if type(known) is Structure else Structure(SHARED, ("object", count - known, None), ())
    seen[id(node)] = None
    children, static = kind.flatten(node)
    layout = static if type(static) is Layout else None
    parts = []
    direct = {} if layout is None else layout.direct
    for name, child in zip(static[1], children, strict=True):
        if name in direct and id(child) not in seen:  # by far the most
            seen[id(child)] = len(leaves)
            leaves.append(child)
            parts.append(_ROLES[direct[name]])
        else:
            parts.append(_flatten_inside(child, leaves, seen, layout, name))
    seen[id(node)] = seen[_COUNT]
    seen[_COUNT] += 1
    return Structure(kind, static, tuple(parts))


def _flatten_inside(value: Any, leaves: list, seen: dict, layout: Layout | None, path: str) -> Structure:
    """What a mutable object holds. Of a Module, what is no array is static, inside of containers too."""
    if isinstance(value, tuple(ARRAYS)):
        role = None if layout is None else layout.role(value, path)
        known = seen.get(id(value))
        if known is not None:
            return Structure(SHARED, ("array", len(leaves) - known, role), ())
        seen[id(value)] = len(leaves)
        leaves.append(value)
        return _ROLES[role]
    kind = KINDS.get(type(value)) or kind_of(value)
    if kind is None:
        if layout is not None:
            return Structure(HELD, value, ())
        leaves.append(value)
        return LEAF
    if kind.mutable:
        return _flatten_object(value, kind, leaves, seen)
    children, static = kind.flatten(value)
    keys = static[1] if kind is DICT else range(len(children))
    parts = [
        _flatten_inside(child, leaves, seen, layout, f"{path}.{key}") for key, child in zip(keys, children, strict=True)
    ]
    return Structure(kind, static, tuple(parts))


def objects(tree: Any) -> list[Any]:
    """The mutable objects in a tree, each once, in the order in which they are finished."""
    found: dict[int, Any] = {}

    def walk(node: Any) -> None:
        kind = kind_of(node)
        if kind is not None and id(node) not in found:
            for child in kind.flatten(node)[0]:
                walk(child)
            if kind.mutable:
                found[id(node)] = node

    walk(tree)
    return list(found.values())


Place = tuple[tuple[str, ...], int, str | None]  # where a leaf is, its number, and its role there


def places(structure: Structure) -> list[Place]:
    """The places of all leaves; a shared leaf has several, of which the first names it."""
    out: list[Place] = []
    nodes: list[tuple[int, int, int]] = []
    count = 0

    def walk(s: Structure, path: tuple) -> None:
        nonlocal count
        if s.kind is None:
            out.append((path, count, s.static))
            count += 1
        elif s.kind is SHARED:
            what, distance, role = s.static
            if what == "array":
                out.append((path, count - distance, role))
            else:
                start, stop, depth = nodes[-distance]
                out.extend([(path + where[depth:], i, role) for where, i, role in out[start:stop]])
        elif s.children:
            start = len(out)
            for key, child in zip(keys_of(s), s.children, strict=True):
                walk(child, path if key is None else (*path, str(key)))
            if s.kind.mutable:
                nodes.append((start, len(out), len(path)))

    walk(structure, ())
    return out


def unshared(structure: Structure) -> tuple[Structure, list[int]]:
    """A structure with a leaf for each place of a shared one, and for each leaf the number of the original one."""
    nodes: list[Structure] = []

    def walk(s: Structure) -> Structure:
        if s.kind is SHARED:
            what, distance, role = s.static
            return _ROLES[role] if what == "array" else nodes[-distance]
        out = Structure(s.kind, s.static, tuple(map(walk, s.children)))
        if s.kind is not None and s.kind.mutable:
            nodes.append(out)
        return out

    return walk(structure), [number for _, number, _ in places(structure)]


def keys_of(structure: Structure) -> Sequence[Any]:
    """What the children of a node are called; None for an attribute whose name isn't part of names."""
    assert structure.kind is not None
    if structure.kind is DICT:
        return structure.static[1]
    if structure.kind.mutable:
        hidden = getattr(structure.static[0], "_unprefixed", ())
        return [None if name in hidden else name for name in structure.static[1]]
    return range(len(structure.children))


def trainable(structure: Structure) -> list[bool]:
    """For each leaf: is it differentiated? Buffers and frozen parameters of Modules aren't, nor what is shared so."""
    flags = [True] * structure.leaf_count
    for _, number, role in places(structure) if structure.has_mutable else ():
        flags[number] &= role in (None, "parameter")
    return flags


def names(structure: Structure) -> list[str]:
    """The dotted name of each leaf: its first place."""
    found: dict[int, str] = {}
    for path, number, _ in places(structure):
        found.setdefault(number, ".".join(path))
    return [found[i] for i in range(structure.leaf_count)]


def paired(structure: Structure, other: Any) -> list[Any]:
    """The leaves of another tree, for those of a structure: by trainable names, if there are Modules; else None."""
    leaves, found = flatten(other)
    if found == structure and not structure.has_mutable:
        return leaves
    flags = trainable(structure)
    if found == structure:
        return [leaf if flag else None for leaf, flag in zip(leaves, flags, strict=True)]
    if not (structure.has_mutable and found.has_mutable):
        raise ValueError(f"trees differ in structure: {structure} and {found}")
    given = dict(zip(names(found), zip(leaves, trainable(found), strict=True), strict=True))
    given = {name: leaf for name, (leaf, flag) in given.items() if flag}
    wanted = [name for name, flag in zip(names(structure), flags, strict=True) if flag]
    if [*given] != wanted and {*given} != {*wanted}:
        missing, more = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
        raise ValueError(f"trees differ in what is trained: one has {missing or 'no'} more names, the other {more}")
    return [given[name] if flag else None for name, flag in zip(names(structure), flags, strict=True)]


def orders(structure: Structure) -> tuple[Any, ...]:
    """The orders of keys and attributes in it. Equal structures may differ in them, and functions see them."""
    kind = structure.kind
    own = (structure.static[1].order,) if kind is not None and (kind is DICT or kind.mutable) else ()
    return (*own, *(order for child in structure.children if child.kind is not None for order in orders(child)))


def hold(structure: Structure, leaves: Iterable[Any], is_array: Callable[[Any], bool]) -> tuple[Structure, list[Any]]:
    """A structure that holds the leaves that are no arrays (strings, functions, objects), and the other leaves."""
    kept: list = []
    numbers: list[int] = []  # of the leaves among those that are kept

    def walk(s: Structure) -> Structure:
        if s.kind is None:
            leaf = next(leaves)  # type: ignore[call-overload]
            numbers.append(len(kept))
            if not is_array(leaf):
                return Structure(HELD, leaf, ())
            kept.append(leaf)
            return s
        if s.kind is SHARED and s.static[0] == "array":
            what, distance, role = s.static
            return Structure(SHARED, (what, len(kept) - numbers[-distance], role), ())
        return Structure(s.kind, s.static, tuple(map(walk, s.children)))

    return walk(structure), kept


def holds(structure: Structure) -> bool:
    """Is there something in it that is no array?"""
    return structure.kind is HELD or any(holds(child) for child in structure.children)


def refers(structure: Structure) -> bool:
    """Is there an object of the caller's in it?"""
    return structure.kind is ARGUMENT or (structure.has_mutable and any(map(refers, structure.children)))


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return flatten(tree)[0]


def tree_map(f: Callable, tree: Any, *rest: Any) -> Any:
    """Apply `f` to corresponding leaves of trees of the same structure.

    Of Modules it visits the trainable parameters, which are paired by name, and copies what else they hold.
    """
    first, structure = flatten(tree)
    rows = zip(first, *(paired(structure, other) for other in rest), strict=True)
    if not structure.has_mutable:
        return structure.unflatten([f(*row) for row in rows])
    flags = trainable(structure)
    return structure.unflatten([f(*row) if flag else row[0].copy() for row, flag in zip(rows, flags, strict=True)])


def broadcast_prefix(prefix: Any, structure: Structure, what: str) -> list[Any]:
    """A prefix tree (such as `in_axes`) repeated over the leaves of `structure`; None is a leaf of the prefix."""
    kind = None if prefix is None else kind_of(prefix)
    if kind is None:
        return [prefix] * structure.leaf_count
    children, static = kind.flatten(prefix)
    fits = kind is structure.kind and len(children) == len(structure.children)
    if not fits or (kind is DICT and static[1] != structure.static[1]):
        raise ValueError(f"{what} {prefix!r} doesn't match the structure {structure} of its argument")
    pairs = zip(children, structure.children, strict=True)
    return [leaf for child, below in pairs for leaf in broadcast_prefix(child, below, what)]
