"""`wl.save` and `wl.load`: a Module, an optimiser or any tree of arrays to a safetensors file, and back.

    wl.save(model, "model.safetensors")
    wl.load(model, "model.safetensors")                # copies into the model's arrays; a report
    wl.save({"model": model, "optimizer": optimizer, "epoch": np.array(3)}, "training.safetensors")
    arrays = wl.load("model.safetensors")              # a dict by name, mapped from the file

Names are those of `model.state()`: PyTorch's. In trees the keys of dicts, the numbers of list elements and the names of
attributes come before, with dots between. An array that is in several places is written once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import is_data, kind_of
from wonderland.core.tracer import Tracer
from wonderland.nn.module import Module
from wonderland.nn.names import COUNTER, is_key, places
from wonderland.nn.safetensors import read, write

PREFIXES = ("module.", "_orig_mod.")  # of PyTorch's DataParallel and compile
Path = str | os.PathLike[str]


class Loaded(NamedTuple):
    """What `wl.load` did: names it loaded, names the file lacks, names the target lacks, and those that don't fit."""

    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    mismatched: dict[str, str]  # name -> what is there and what the file has

    @property
    def complete(self) -> bool:
        """Was everything there, and nothing more?"""
        return not (self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        return "; ".join([f"{len(self.loaded)} arrays loaded", *self.faults()])

    def faults(self) -> list[str]:
        """What didn't fit, in words."""
        parts = [f"the file lacks {_few(self.missing)}"] if self.missing else []
        parts += [f"the file has {_few(self.unexpected)}, and the target not"] if self.unexpected else []
        return [*parts, *(f"{name}: {what}" for name, what in self.mismatched.items())]


def save(tree: Any, path: Path, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a Module, an optimiser or a tree of arrays to a safetensors file, all or nothing.

    The file is written beside `path`, flushed to the disk, and then takes its place: a crash leaves the old one.
    `metadata` is a dict of strings. Numbers become arrays without axes.
    """
    arrays, shared = _named(tree)
    if not arrays:
        raise ArgumentError(f"there are no arrays in this {type(tree).__name__} to save")
    write(path, arrays, {**shared, **(metadata or {})})


def load(
    target: Any, path: Path | None = None, *, strict: bool = True, rename: Callable[[str], str] | None = None
) -> Any:
    """Copy the arrays of a file into those of a Module, an optimiser or a tree; or, of a path alone, return them.

    `load(path)` gives a dict of read-only arrays by name, mapped from the file: only what is used is read.

    `load(target, path)` copies, cast to the dtype that is there, and returns what it found (`Loaded`). `strict`: if a
    name is missing, unexpected or of another shape it raises, and nothing is changed; without it, what fits is loaded.
    `rename` turns names of the file into those of the target. PyTorch's names fit: the prefixes "module." and
    "_orig_mod." are taken off if all names have them, and its `num_batches_tracked` needn't be there.
    """
    if path is None:
        if not isinstance(target, (str, os.PathLike)):
            raise ArgumentError(f"load(target, path) or load(path): here is no path, but {type(target).__name__}")
        return _with_aliases(*read(target))
    arrays, metadata = read(path)
    owners = dict(_owners(target))
    arrays = _renamed(arrays, metadata, owners, rename)
    report, chosen = _compared(owners, arrays)
    if strict and not report.complete:
        raise ArgumentError(
            f"{os.fspath(path)} doesn't fit this {type(target).__name__}, and nothing is loaded: "
            f"{'; '.join(report.faults())}. With strict=False, what fits is loaded."
        )
    for node, state in _by_node(target, chosen).values():
        node.load_state(state, strict=False)
    for name, value in chosen.items():
        if not isinstance(owners[name], Owner):
            np.copyto(owners[name], value, casting="same_kind")
    return report


# Names ---------------------------------------------------------------------------------------------------------------


class Owner(NamedTuple):
    """An array that a Module loads by itself: the Module, the array's name in it, the array; is that a second name?"""

    node: Module
    name: str
    array: Any
    second: bool


def _parts(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The Modules and arrays of a tree, with their dotted names."""
    below = lambda key: f"{name}.{key}" if name else str(key)
    kind = kind_of(node)
    if isinstance(node, Module) or kind is None:
        yield name, node
    elif isinstance(node, dict):
        for key, child in node.items():
            if not isinstance(key, (str, int)):
                raise ArgumentError(
                    f"{name or 'a dict'} has the key {key!r}: names in files come from strings and integers"
                )
            yield from _parts(child, below(key))
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        for key, child in node._asdict().items():  # type: ignore[attr-defined]
            yield from _parts(child, below(key))
    elif isinstance(node, (list, tuple)):
        for key, child in enumerate(node):
            yield from _parts(child, below(key))
    elif kind.mutable:
        for key, child in vars(node).items():
            if is_data(child):
                yield from _parts(child, below(key))
    elif node is not None:
        raise ArgumentError(
            f"{name or 'the tree'}: {type(node).__name__} has no names for what it holds, so it can't be saved"
        )


def _named(node: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrays by name, each once, and other names of the same arrays."""
    arrays: dict[str, Any] = {}
    shared: dict[str, str] = {}
    first: dict[int, str] = {}
    for prefix, part in _parts(node):
        below = part.state() if isinstance(part, Module) else {"": part}
        for name, array in below.items():
            full = ".".join(filter(None, (prefix, name)))
            if not full:
                raise ArgumentError("a single array has no name: save a dict, {'x': array}")
            if isinstance(array, Tracer):
                raise ArgumentError(f"{full} is traced: save outside of transformations")
            if not isinstance(array, (np.ndarray, np.generic, bool, int, float, complex)):
                raise ArgumentError(f"{full} is a {type(array).__name__}: files hold arrays and numbers")
            if full in arrays or full in shared:
                raise ArgumentError(f"two arrays have the name {full!r}, by keys with dots")
            if isinstance(array, np.ndarray) and id(array) in first:
                shared[full] = first[id(array)]
            else:
                first[id(array)] = full
                arrays[full] = np.asarray(array)
        if isinstance(part, Module):
            full_name = lambda name, prefix=prefix: f"{prefix}.{name}" if prefix else name
            shared.update({full_name(other): full_name(name) for other, name in _aliases(part).items()})
    return arrays, shared


def _aliases(module: Module) -> dict[str, str]:
    """Other names of a Module's shared arrays, with the first names."""
    first: dict[int, str] = {}
    return {name: first[i] for name, i, _ in places(module)[1] if first.setdefault(i, name) != name}


def _owners(target: Any) -> Iterator[tuple[str, Any]]:
    """The arrays to write into, by name."""
    for prefix, part in _parts(target):
        if isinstance(part, Module):
            state = part.state()
            others = {other: state[name] for other, name in _aliases(part).items() if name in state}
            for name, array in {**state, **others}.items():
                yield f"{prefix}.{name}" if prefix else name, Owner(part, name, array, name in others)
        elif isinstance(part, np.ndarray) and part.flags.writeable:
            yield prefix, part
        else:
            raise ArgumentError(
                f"{prefix or 'the target'} is a {type(part).__name__}: load copies into writable arrays. Load a dict "
                "of new arrays with load(path)."
            )


# Comparing -----------------------------------------------------------------------------------------------------------


def _with_aliases(arrays: dict[str, Any], metadata: dict[str, str]) -> dict[str, Any]:
    """The arrays of a file under all of their names."""
    return {**arrays, **{other: arrays[name] for other, name in metadata.items() if name in arrays}}


def _renamed(
    arrays: dict[str, Any], metadata: dict[str, str], owners: dict[str, Any], rename: Callable[[str], str] | None
) -> dict[str, Any]:
    names = _with_aliases(arrays, metadata)
    if rename is not None:
        renamed = {rename(name): array for name, array in names.items()}
        if len(renamed) < len(names):
            raise ArgumentError("rename gives two arrays of the file the same name")
        return renamed
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in names) and not names.keys() & owners.keys():
            names = {name.removeprefix(prefix): array for name, array in names.items()}
    return names


def _compared(owners: dict[str, Any], arrays: dict[str, Any]) -> tuple[Loaded, dict[str, np.ndarray]]:
    """What fits, and a report of what doesn't."""
    chosen: dict[str, np.ndarray] = {}
    mismatched: dict[str, str] = {}
    first: dict[int, str] = {}  # an array of the target -> the name under which the file has it
    for name, value in arrays.items():
        if name not in owners:
            continue
        own = _array_of(owners[name])
        other = first.setdefault(id(own), name)
        if own.shape != value.shape:
            mismatched[name] = f"has shape {own.shape}, the file {value.shape}"
        elif not np.can_cast(value.dtype, own.dtype, "same_kind"):
            mismatched[name] = f"has dtype {own.dtype}, the file {value.dtype}"
        elif other != name and not np.array_equal(value, arrays[other], equal_nan=value.dtype.kind in "fc"):
            mismatched[name] = f"is one array with {other}, the file has different values for them"
        elif not own.flags.writeable:
            mismatched[name] = "is a read-only array"
        else:
            chosen[name] = value
    missing = [
        name for name, owner in owners.items() if id(_array_of(owner)) not in first and not _needless(name, owner)
    ]
    is_counter = lambda name: name.split(".")[-1] == COUNTER
    known = {id(array) for name, array in arrays.items() if name in owners}  # under another name
    unexpected = [n for n, array in arrays.items() if n not in owners and not is_counter(n) and id(array) not in known]
    return Loaded([*chosen], missing, unexpected, mismatched), chosen


def _array_of(owner: Any) -> Any:
    return owner.array if isinstance(owner, Owner) else owner


def _needless(name: str, owner: Any) -> bool:
    """A state may lack second names, PyTorch's counters, and keys of random numbers."""
    of_module = isinstance(owner, Owner)
    return name.split(".")[-1] == COUNTER or (of_module and (owner.second or is_key(owner.array)))


def _by_node(target: Any, chosen: dict[str, np.ndarray]) -> dict[int, tuple[Any, dict[str, np.ndarray]]]:
    """For each Module of the target, the state to load into it."""
    nodes: dict[int, tuple[Any, dict[str, np.ndarray]]] = {}
    for name, owner in _owners(target):
        if isinstance(owner, Owner) and name in chosen:
            nodes.setdefault(id(owner.node), (owner.node, {}))[1][owner.name] = chosen[name]
    return nodes


def _few(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
