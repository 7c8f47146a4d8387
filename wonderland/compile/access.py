"""Flat leaves of a call's arguments without walking them: a function generated once per structure.

The generated function reads each leaf by its path (`args[0].__dict__['w'], args[1]['m'][0]`) and checks on the way that
the tree is still the one it was made for: same classes, same keys, same static attributes. If not it returns None, and
the caller flattens the slow way. Leaves themselves are checked by the native entry; the number of arguments, the names
of keywords and static arguments by the one who keeps the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.compile.arguments import Static
from wonderland.core import tree


def leaf_reader(structure: tree.Structure, args: tuple, kwargs: dict) -> Callable[[tuple, dict], tuple | None] | None:
    """A function from a call's arguments to the tuple of their leaves (None if a tree has changed its structure)."""
    positional, keywords = structure.children
    writer = _Writer()
    try:
        for i, child in enumerate(positional.children):
            writer.visit(child, f"args[{i}]", args[i])
        for name, child in zip(keywords.static[1], keywords.children, strict=True):
            writer.visit(child, f"kwargs[{name!r}]", kwargs[name])
    except _UnknownNodeError:
        return None
    lines = ["def read(args, kwargs):", "  try:", *(f"    {line}" for line in writer.lines)]
    lines.append(f"    return ({''.join(f'{leaf}, ' for leaf in writer.leaves)})")
    lines += ["  except (KeyError, IndexError, TypeError, ValueError, AttributeError):", "    return None"]
    namespace: dict[str, Any] = dict(writer.constants)
    exec("\n".join(lines), namespace)
    return namespace["read"]


class _UnknownNodeError(Exception):
    pass


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = value
        return name

    def require(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return None")

    def same(self, expression: str, value: Any) -> None:
        """A container as it is now, with numbers of the same types and signs in it."""
        self.require(f"{self.constant(tree.typed)}({expression}) == {self.constant(tree.typed(value))}")

    def visit(self, structure: tree.Structure, path: str, sample: Any) -> None:
        if structure.kind is None:
            self.leaves.append(path)
            return
        if isinstance(structure.static, Static):
            return
        here = f"node{len(self.lines)}"
        self.lines.append(f"{here} = {path}")
        self.require(f"type({here}) is {self.constant(type(sample))}")
        if structure.kind.mutable:
            self._object(structure, here, sample)
        elif isinstance(sample, dict):
            self.require(f"len({here}) == {len(sample)}")
            if any(type(key) is not str for key in sample):  # 1 finds True, too
                self.same(f"frozenset({here})", frozenset(sample))
            for key, child in zip(structure.static[1], structure.children, strict=True):
                self.visit(child, f"{here}[{self.constant(key)}]", sample[key])
        elif isinstance(sample, (tuple, list)):
            self.require(f"len({here}) == {len(sample)}")
            for i, child in enumerate(structure.children):
                self.visit(child, f"{here}[{i}]", sample[i])
        elif sample is not None:
            raise _UnknownNodeError

    def _object(self, structure: tree.Structure, here: str, sample: Any) -> None:
        _, names, static = structure.static
        attributes = f"{here}d"
        self.lines.append(f"{attributes} = {here}.__dict__")
        self.require(f"len({attributes}) == {len(names) + len(static)}")
        for name, value in static:
            found = f"{attributes}[{name!r}]"
            if type(value) in (tuple, list, dict, set):
                self.same(found, value)
            else:
                self.require(f"{found} is {self.constant(value)}")
        for name, child in zip(names, structure.children, strict=True):
            self.visit(child, f"{attributes}[{name!r}]", vars(sample)[name])
