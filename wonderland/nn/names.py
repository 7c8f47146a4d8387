"""Dotted names of a Module's arrays and Modules: states to save and load, patterns to freeze, and how it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import kind_of
from wonderland.core.tracer import Tracer
from wonderland.nn.layout import ARRAY, BOOK, attributes, book_of, is_child, layout_of

COUNTER = "num_batches_tracked"  # of PyTorch's batch norm: known, and needed by nobody


class LoadReport(NamedTuple):
    """What `load_state` found: names that the state lacks, and names that the Module lacks."""

    missing: list[str]
    unexpected: list[str]


def places(module: Any) -> tuple[list[Any], list[tuple[str, int, str]]]:
    """The arrays of a Module, and all their places: dotted name, number of the array, role there."""
    leaves, structure = tree.flatten(module)
    return leaves, [(".".join(path), number, role or "parameter") for path, number, role in tree.places(structure)]


def arrays(module: Any) -> list[tuple[str, Any, str]]:
    """The arrays of a Module, each once, with its first name and its role: frozen, or a buffer, if so at any place."""
    leaves, found = places(module)
    names: dict[int, str] = {}
    roles: dict[int, str] = {}
    for name, number, role in found:
        names.setdefault(number, name)
        roles[number] = role if roles.get(number, "parameter") == "parameter" else roles[number]
    if len({*names.values()}) < len(names):
        again = next(name for name in names.values() if [*names.values()].count(name) > 1)
        raise ArgumentError(
            f"two arrays of this {type(module).__name__} have the same dotted name, {again!r}: attributes and keys of "
            "dicts with dots in them are ambiguous. Rename one."
        )
    return [(names[i], leaf, roles[i]) for i, leaf in enumerate(leaves)]


def cached(module: Any) -> Callable[[str], bool]:
    """Tells of the dotted name of an array whether a cached property holds it, which is no part of a state."""
    found = [
        f"{name}.{key}" if name else key
        for name, node in named_modules(module)
        for key in vars(node)
        if isinstance(getattr(type(node), key, None), cached_property)
    ]
    return lambda name: any(name == one or name.startswith(f"{one}.") for one in found)


def named_modules(module: Any) -> Iterator[tuple[str, Any]]:
    """A Module and those in it, each once, with its dotted name."""
    seen: set[int] = set()
    for name, node in _nodes(module, ""):
        if id(node) not in seen:
            seen.add(id(node))
            yield name, node


def _nodes(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The Modules of a tree."""
    if BOOK in getattr(node, "__dict__", ()):
        yield name, node
    for key, child in _children(node):
        yield from _nodes(child, name if key is None else f"{name}.{key}" if name else str(key))


def _children(node: Any) -> list[tuple[Any, Any]]:
    if BOOK in getattr(node, "__dict__", ()):
        hidden = type(node)._unprefixed
        return [(None if key in hidden else key, child) for key, child in attributes(node)]
    if isinstance(node, dict):
        return [(key, node[key]) for key in kind_of(node).flatten(node)[1][1]] if is_child(node) else []  # type: ignore
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def load_state(module: Any, state: Mapping[str, Any], strict: bool) -> LoadReport:
    """Copy the arrays of a state into those of a Module."""
    if not isinstance(state, Mapping):
        raise ArgumentError(f"load_state takes a dict of arrays by dotted name, got {type(state).__name__}")
    leaves, found = places(module)
    by_name = {name: number for name, number, _ in found}
    given: dict[int, tuple[str, Any]] = {}
    for name, value in state.items():
        if name not in by_name:
            continue
        number, value = by_name[name], np.asarray(value)
        _check_fits(name, leaves[number], value)
        if number in given and not np.array_equal(given[number][1], value, equal_nan=value.dtype.kind in "fc"):
            raise ArgumentError(
                f"load_state: {given[number][0]} and {name} are one array of this {type(module).__name__}, but the "
                "state has different values for them. Load it into a model that doesn't share them, or drop one."
            )
        given.setdefault(number, (name, value))
    first = {number: name for name, number in reversed(by_name.items())}
    missing = [first[i] for i, leaf in enumerate(leaves) if i not in given and not is_key(leaf)]
    computed = cached(module)
    missing = [name for name in missing if name.split(".")[-1] != COUNTER and not computed(name)]
    unexpected = [name for name in state if name not in by_name and name.split(".")[-1] != COUNTER]
    if strict and (missing or unexpected):
        raise ArgumentError(
            f"load_state: the state doesn't fit this {type(module).__name__}."
            + (f" It lacks {_few(missing)}." if missing else "")
            + (f" It has {_few(unexpected)}, which the model lacks." if unexpected else "")
            + " With strict=False, what fits is loaded."
        )
    for number, (name, _) in given.items():
        if not leaves[number].flags.writeable:
            raise ArgumentError(f"load_state: {name} is a read-only array. Replace it: nn.Buffer(np.array(value)).")
    for number, (_, value) in given.items():
        np.copyto(leaves[number], value, casting="same_kind")
    return LoadReport(missing, unexpected)


def _check_fits(name: str, own: Any, value: np.ndarray) -> None:
    if isinstance(own, Tracer):
        raise ArgumentError("load_state copies into arrays: call it outside of transformations")
    if own.shape != value.shape or not np.can_cast(value.dtype, own.dtype, "same_kind"):
        raise ArgumentError(
            f"load_state: {name} has shape {own.shape} and dtype {own.dtype} in the model, "
            f"{value.shape} and {value.dtype} in the state"
        )


def is_key(array: Any) -> bool:
    """Is a buffer a key of random numbers, which a layer advances at each call?"""
    return array.dtype == np.uint32 and array.shape == (2,)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def matches(name: str, pattern: str) -> bool:
    """Does a dotted name match a glob? `*` crosses dots; `*.bias` also matches `bias`."""
    return fnmatchcase(name, pattern) or (pattern.startswith("*.") and fnmatchcase(name, pattern[2:]))


def set_frozen(module: Any, patterns: Sequence[str], frozen: bool) -> None:
    """Mark the parameters whose names match as frozen, or not; a pattern without a match raises."""
    found = [(name, number) for name, number, role in places(module)[1] if role != "buffer"]
    chosen: set[int] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise ArgumentError(f"freeze takes patterns of dotted names, such as 'encoder.*', got {pattern!r}")
        fitting = {number for name, number in found if matches(name, pattern)}
        if not fitting:
            below = [name for name, _ in found if name.startswith(f"{pattern}.")]
            names = _few([name for name, _ in found]) or "none"
            advice = f" For all of it, write {pattern + '.*'!r}." if below else ""
            raise ArgumentError(f"no parameter matches {pattern!r}.{advice} The names are {names}.")
        chosen |= fitting
    for owner, path, number in _owners(module):
        if number in chosen:
            book = book_of(owner)
            book.frozen = book.frozen | {path} if frozen else book.frozen - {path}
            book.layout = None


def _owners(module: Any) -> list[tuple[Any, str, int]]:
    """For each place of an array: the Module that holds it, the dotted name below that, the number of the array."""
    numbers = {id(leaf): i for i, leaf in enumerate(tree.leaves(module))}
    out: list = []

    def walk(owner: Any, value: Any, path: str) -> None:
        if isinstance(value, ARRAY):
            if id(value) in numbers:
                out.append((owner, path, numbers[id(value)]))
        elif (kind := kind_of(value)) is not None and not kind.mutable:
            children, static = kind.flatten(value)
            keys = static[1] if isinstance(value, dict) else range(len(children))
            for key, child in zip(keys, children, strict=True):
                walk(owner, child, f"{path}.{key}")

    for _, node in named_modules(module):
        for name, value in attributes(node):
            walk(node, value, name)
    return out


def shown(module: Any) -> str:
    """A Module as an indented tree, with shapes; what is no plain parameter says so."""
    seen: dict[int, str] = {}
    lines: list[str] = []

    def show(label: str, value: Any, name: str, indent: int, role: str | None) -> None:
        lead = "  " * indent + (f"{label}: " if label else "")
        if isinstance(value, ARRAY):
            first = seen.setdefault(id(value), name)
            mark = f" ({role})" if role != "parameter" else ""
            mark += f" = {first}" if first != name else ""
            lines.append(f"{lead}{value.dtype}[{', '.join(map(str, value.shape))}]{mark}")
        elif BOOK in getattr(value, "__dict__", ()):
            if id(value) in seen:
                lines.append(f"{lead}{type(value).__name__} = {seen[id(value)] or 'the Module itself'}")
                return
            seen[id(value)] = name
            layout = layout_of(value)
            mode = "" if vars(value).get("training", True) else ", evaluating"
            static = [f"{k}={_brief(v)}" for k, v in layout[2] if k != "training" and k[0] != "_"]
            lines.append(f"{lead}{type(value).__name__}({', '.join(static)}){mode}")
            for key in layout[1]:
                below(key, vars(value)[key], name, indent + 1, layout, key)
        else:
            lines.append(f"{lead}{_brief(value)}")

    def below(label: str, value: Any, name: str, indent: int, layout: Any, path: str) -> None:
        full = f"{name}.{label}" if name else label
        kind = kind_of(value)
        if kind is not None and not kind.mutable and is_child(value):
            lines.append("  " * indent + f"{label}:")
            children, static = kind.flatten(value)
            keys = static[1] if isinstance(value, dict) else range(len(children))
            for key, child in zip(keys, children, strict=True):
                below(str(key), child, full, indent + 1, layout, f"{path}.{key}")
            return
        role = layout.role(value, path) if isinstance(value, ARRAY) else None
        show(label, value, full, indent, role)

    show("", module, "", 0, None)
    return "\n".join(lines)


def _brief(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
