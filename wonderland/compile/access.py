"""Flat leaves of a call's arguments, and its results from flat ones, without walking trees: code generated once.

A reader takes each leaf by its path (`args[0].__dict__['w'], args[1]['m'][0]`) and checks on the way that the tree is
still the one it was made for: same classes, same keys, equal static attributes. If not it returns None, and the caller
flattens the slow way. Leaves themselves are checked by the native entry; the number of arguments, the names of keywords
and static arguments by the one who keeps the function.

Static values are compared as `tree.typed` does: by type and value. One that can't change is mostly the same object as
before, and `is` says so at once; the last equal one that was another object (of a second model, of an unpickled one) is
remembered, so that two models in turn cost what one does.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.compile.arguments import Static
from wonderland.core import tree
from wonderland.core.kinds import DICT, HELD, LIST, SHARED, TUPLE, Layout
from wonderland.core.statics import is_fixed, typed

MOST_UNROLLED = 16  # items of a static container that are compared one by one, in generated code
SIMPLE = (int, str, bytes)  # equal and of the same type is all there is to compare
_FLAT = frozenset({*SIMPLE, bool, type(None)})


def leaf_reader(
    structure: tree.Structure, args: tuple[Any, ...], kwargs: dict[Any, Any], objects: Sequence[Any] = ()
) -> Callable[[tuple[Any, ...], dict[Any, Any]], tuple[Any, ...] | None]:
    """A function from a call's arguments to the tuple of their leaves (None if a tree has changed its structure).

    If there are `objects`, mutable ones of this call, to the pair of the leaves and of those objects of another call.
    """
    positional, keywords = structure.children
    writer = _LeafReader()
    for i, child in enumerate(positional.children):
        writer.visit(child, f"args[{i}]", args[i])
    for name, child in zip(keywords.static[1], keywords.children, strict=True):
        writer.visit(child, f"kwargs[{name!r}]", kwargs[name])
    lines = ["def read(args, kwargs):", *(f"  global {other}" for other in writer.others), "  try:"]
    lines += [f"    {line}" for line in writer.lines]
    leaves = f"({''.join(f'{leaf}, ' for leaf in writer.leaves)})"
    found = [next(node for node, other in writer.nodes if other is wanted) for wanted in objects]
    lines.append(f"    return {leaves}, ({', '.join(found)},)" if objects else f"    return {leaves}")
    lines += ["  except (KeyError, IndexError, TypeError, ValueError, AttributeError):", "    return None"]
    exec("\n".join(lines), writer.constants)
    return writer.constants["read"]


def telling(read: Callable | None, arrays: Sequence[tuple[int, bool]], objects: bool = False) -> Callable:
    """A reader for calls alone in which these leaves are arrays (True), or are numbers (False)."""

    def checked(args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[Any, ...] | None:
        found = args if read is None else read(args, kwargs)
        leaves = found[0] if objects and found is not None else found
        if leaves is None or any(isinstance(leaves[i], np.ndarray) is not array for i, array in arrays):
            return None
        return found

    return checked


class _LeafReader:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.paths: list[str] = []  # of each leaf
        self.nodes: list[tuple[str, Any]] = []  # of each mutable object that is finished, and the object
        self.constants: dict[str, Any] = {"typed": typed, "copysign": math.copysign}
        self.others: list[str] = []  # names of the last values that were equal but not the same
        self.numbers = itertools.count()

    def constant(self, value: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = value
        return name

    def require(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return None")

    def visit(self, structure: tree.Structure, path: str, sample: Any) -> None:
        if structure.kind is None:
            self.leaves.append(path)
            self.paths.append(path)
            return
        if isinstance(structure.static, Static):
            return
        if structure.kind is HELD:
            self.require(self.same(structure.static, path))
            return
        if structure.kind is SHARED:
            self._shared(structure, path)
            return
        here = f"node{next(self.numbers)}"
        self.lines.append(f"{here} = {path}")
        if isinstance(structure.static, Layout):
            self._module(structure, here, sample)
            self.nodes.append((here, sample))
            return
        self.require(f"type({here}) is {self.constant(type(sample))}")
        if structure.kind.mutable:
            self._object(structure, here, sample)
            self.nodes.append((here, sample))
        elif isinstance(sample, dict):
            self.require(f"[*{here}] == {self.constant([*sample])}")  # the order, too
            if any(type(key) is not str for key in sample):  # 1, 1.0 and True are one key, and three structures
                known = self.constant({key: typed(key) for key in sample})
                self.require(f"all([{known}[key] == typed(key) for key in {here}])")
            keys = structure.static[1]
            if len(sample) > 1 and all(child.kind is None for child in structure.children):
                sorted_already = type(sample) is dict and keys.order == tuple(keys)
                get = self.constant(operator.itemgetter(*keys))
                self.leaves.append(f"*{here}.values()" if sorted_already else f"*{get}({here})")
                self.paths += [f"{here}[{self.constant(key)}]" for key in keys]
                return
            for key, child in zip(keys, structure.children, strict=True):
                self.visit(child, f"{here}[{self.constant(key)}]", sample[key])
        elif isinstance(sample, (tuple, list)):
            self.require(f"len({here}) == {len(sample)}")
            self._items(structure, here, sample)
        elif sample is not None:
            children, static = structure.kind.flatten(sample)
            flatten = self.constant(structure.kind.flatten)
            self.lines.append(f"{here}, {here}s = {flatten}({here})")
            self.require(f"{self.same(static, f'{here}s')} and len({here}) == {len(children)}")
            self._items(structure, here, children)

    def _items(self, structure: tree.Structure, here: str, sample: Sequence) -> None:
        if all(child.kind is None for child in structure.children):
            self.leaves.append(f"*{here}")
            self.paths += [f"{here}[{i}]" for i in range(len(structure.children))]
            return
        for i, child in enumerate(structure.children):
            self.visit(child, f"{here}[{i}]", sample[i])

    def _object(self, structure: tree.Structure, node: str, sample: Any) -> None:
        _, names, static = structure.static
        here = f"node{next(self.numbers)}"
        self.lines.append(f"{here} = {node}.__dict__")
        self.require(f"[*{here}] == {self.constant([*names.order])}")
        for name, value in static:
            self.require(self.same(value, f"{here}[{name!r}]"))
        for name, child in zip(names, structure.children, strict=True):
            self.visit(child, f"{here}[{name!r}]", vars(sample)[name])

    def _module(self, structure: tree.Structure, node: str, sample: Any) -> None:
        """A Module knows its layout, which says everything but what can change in place."""
        layout = structure.static
        here, found = f"node{next(self.numbers)}", self.constant(layout)
        self.lines.append(f"{here} = {node}.__dict__")
        self.constants["layout_of"] = layout.read
        self.require(f"{here}['_wl'].layout is {found} or layout_of({node}) is {found}")
        for name, value in layout.loose:
            self.require(self.same(value, f"{here}[{name!r}]"))
        for name, child in zip(layout[1], structure.children, strict=True):
            self.visit(child, f"{here}[{name!r}]", vars(sample)[name])

    def _shared(self, structure: tree.Structure, path: str) -> None:
        """The same array, or object, as in an earlier place."""
        what, distance, _ = structure.static
        self.require(f"{path} is {self.paths[-distance] if what == 'array' else self.nodes[-distance][0]}")

    def same(self, value: Any, path: str, remember: bool = True) -> str:
        """A condition: what is at `path` has the type and the value that `value` has now."""
        kind = type(value)
        if value is None or kind is bool or kind.__eq__ is object.__eq__:
            return f"{path} is {self.constant(value)}"
        here = f"value{next(self.numbers)}"
        fixed = is_fixed(value)
        equal = f"type({here}) is {self.constant(kind)} and {self._equal(value, here, not fixed)}"
        if not fixed:
            return f"({here} := {path}, {equal})[1]"
        if not remember:
            return f"(({here} := {path}) is {self.constant(value)} or {equal})"
        other, known = f"other{next(self.numbers)}", self.constant(value)
        self.others.append(other)
        self.constants[other] = value
        return f"(({here} := {path}) is {known} or {here} is {other} or {equal} and ({other} := {here}) is {here})"

    def _equal(self, value: Any, here: str, remember: bool) -> str:
        kind = type(value)
        if kind is float and math.isnan(value):
            return f"{here} != {here}"
        if kind in SIMPLE or (kind is float and value):
            return f"{here} == {self.constant(value)}"
        if kind is float:
            return f"{here} == 0.0 and copysign(1.0, {here}) == {math.copysign(1.0, value)}"
        if kind in (tuple, list) and len(value) <= MOST_UNROLLED:
            items = [self.same(item, f"{here}[{i}]", remember) for i, item in enumerate(value)]
            return " and ".join([f"len({here}) == {len(value)}", *items])
        if kind in (list, dict) and _FLAT.issuperset(map(type, value)):  # long ones, by loops of Python's own
            types = self.constant([*map(type, value)])
            same = f"{here} == {self.constant(kind(value))} and [*map(type, {here})] == {types}"
            if kind is list:
                return same
            if _FLAT.issuperset(map(type, value.values())):
                types = self.constant([*map(type, value.values())])
                return f"{same} and [*{here}] == {self.constant([*value])} and [*map(type, {here}.values())] == {types}"
        return f"typed({here}) == {self.constant(typed(value))}"


def result_builder(structure: tree.Structure, weak: Sequence[bool]) -> Callable[[Any], Any] | None:
    """How to turn what a native entry returns into the tree of results; None if it is that already.

    Leaves that are `weak` become Python numbers.
    """
    count = structure.leaf_count
    if structure.has_mutable:
        each = lambda out: [v.item() if w else v for v, w in zip((out,) if count == 1 else out, weak, strict=True)]
        return lambda out: structure.unflatten(each(out))
    is_plain = structure.kind is None or (count != 1 and structure is tree.flatten((0,) * count)[1])
    if is_plain and not any(weak):
        return None
    left = [f"out{'' if count == 1 else f'[{i}]'}{'.item()' if weak[i] else ''}" for i in reversed(range(count))]
    constants: dict[str, Any] = {"zip": zip, "dict": dict}

    def constant(value: Any) -> str:
        constants[f"constant{len(constants)}"] = value
        return f"constant{len(constants) - 1}"

    def row(children: Sequence[tree.Structure]) -> str:
        """A tuple of these."""
        first = count - len(left)
        parts = [build(child) for child in children]
        last = count - len(left)
        if count != 1 and parts and all(child.kind is None for child in children) and not any(weak[first:last]):
            return f"out[{first}:{last}]"
        return f"({''.join(f'{part}, ' for part in parts)})"

    def build(node: tree.Structure) -> str:
        if node.kind is None:
            return left.pop()
        if node.kind is DICT and node.static[0] is dict:
            keys = node.static[1]
            if keys.order != tuple(keys):
                found = dict(zip(keys, map(build, node.children), strict=True))
                return f"{{{', '.join(f'{constant(key)}: {found[key]}' for key in keys.order)}}}"
            return f"dict(zip({constant(keys.order)}, {row(node.children)}))"
        parts = row(node.children)
        if node.kind is TUPLE:
            return parts
        if node.kind is LIST:
            return f"[*{parts}]"
        return f"{constant(node.kind.unflatten)}({constant(node.static)}, {parts})"

    return eval(f"lambda out: {build(structure)}", constants)
