"""`Module`: an object whose arrays are parameters and buffers, and whose methods are the model.

A subclass is a mutable pytree node by being one. What is assigned to an attribute decides what it is: a writable array
of floating-point or complex numbers is a parameter; what was assigned as `nn.Buffer(x)`, integers, bools and read-only
arrays are buffers; Modules, and lists, tuples and dicts with such in them, are children; everything else is static.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer


class Buffer:
    """Marks what is assigned to an attribute of a Module as no parameter: `self.mean = nn.Buffer(np.zeros(3))`."""

    def __init__(self, value: Any):
        self.value = value


class Parameter:
    """Marks what is assigned to an attribute of a Module as a parameter, also where it was a buffer before."""

    def __init__(self, value: Any):
        self.value = value


class Book:
    """What a Module knows of its attributes."""

    __slots__ = ("buffers", "frozen")

    def __init__(self) -> None:
        self.buffers: set[str] = set()
        self.frozen: set[str] = set()


class Module:
    """A model, or a part of one: subclass it, assign arrays and other Modules to attributes, write `__call__`."""

    training = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = object.__new__(cls)
        vars(self)["_wl"] = Book()
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _register(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        book = vars(self)["_wl"]
        if isinstance(value, (Buffer, Parameter)):
            (book.buffers.add if isinstance(value, Buffer) else book.buffers.discard)(name)
            value = value.value if isinstance(value.value, Tracer) else np.asarray(value.value)
            vars(self)[name] = value
            return
        old = vars(self).get(name)
        if _is_array(old) and _is_array(value) and not _trainable(book, name, old):
            old[...] = value
            return
        vars(self)[name] = value

    def train(self, mode: bool = True) -> Any:
        """Set `training` of this Module and of all in it."""
        for _, module in self.named_modules():
            vars(module)["training"] = bool(mode)
        return self

    def eval(self) -> Any:
        """`train(False)`."""
        return self.train(False)

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """This Module, named "", and those in it, each with its dotted name."""
        seen: set[int] = set()
        for name, node in _walk(self, ""):
            if isinstance(node, Module) and id(node) not in seen:
                seen.add(id(node))
                yield name, node

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The parameters, each once, with their dotted names."""
        return _arrays(self, True)

    def parameters(self) -> list[Any]:
        """The parameters, each once."""
        return [array for _, array in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """The buffers, each once, with their dotted names."""
        return _arrays(self, False)

    def state(self) -> dict[str, Any]:
        """Parameters and buffers by dotted name: PyTorch's state dict."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def load_state(self, state: dict[str, Any], strict: bool = True) -> Any:
        """Copy arrays into those of these names."""
        own = self.state()
        missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if strict and (missing or unexpected):
            raise ArgumentError(f"load_state: missing {missing}, unexpected {unexpected}")
        for name in own.keys() & state.keys():
            np.copyto(own[name], state[name], casting="same_kind")
        return self


@contextmanager
def evaluating(model: Module) -> Iterator[Any]:
    """`with nn.evaluating(model):` runs it in evaluation mode, and then restores what was."""
    modules = [module for _, module in model.named_modules()]
    before = [module.training for module in modules]
    model.eval()
    try:
        yield model
    finally:
        for module, mode in zip(modules, before, strict=True):
            vars(module)["training"] = mode


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, Tracer, int, float, complex))


def _trainable(book: Book, name: str, value: Any) -> bool:
    if name in book.buffers or not isinstance(value, (np.ndarray, Tracer)):
        return name not in book.buffers
    return value.dtype.kind in "fc" and (isinstance(value, Tracer) or value.flags.writeable)


def _walk(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, node
    for key, child in _items(node):
        yield from _walk(child, f"{name}.{key}" if name else str(key))


def _items(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, Module):
        for key, child in vars(node).items():
            hidden = key in getattr(node, "_unprefixed", ())
            if key != "_wl":
                yield from _items(child) if hidden else [(key, child)]
    elif isinstance(node, dict):
        yield from node.items()
    elif isinstance(node, (list, tuple)):
        yield from enumerate(node)


def _arrays(module: Module, trainable: bool) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for attribute, value in vars(owner).items():
            for name, leaf in _walk(value, attribute):
                is_array = isinstance(leaf, (np.ndarray, Tracer)) and id(leaf) not in seen
                if is_array and _trainable(vars(owner)["_wl"], attribute, leaf) == trainable:
                    seen.add(id(leaf))
                    yield f"{prefix}.{name}" if prefix else name, leaf


def _register(cls: type) -> None:
    tree.register_mutable(cls)
    kind: Any = tree.kind_of(object.__new__(cls))
    flatten, unflatten = kind.flatten, kind.unflatten

    def without_book(node: Any) -> tuple[list, Any]:
        shown = object.__new__(cls)
        vars(shown).update({k: v for k, v in vars(node).items() if k != "_wl"})
        children, (_, names, static) = flatten(shown)
        book = vars(node)["_wl"]
        marks = "_wl", (tuple(sorted(book.buffers)), tuple(sorted(book.frozen)))
        return children, (cls, names, (*static, marks))

    def with_book(static: Any, children: Sequence) -> Any:
        node = unflatten(static, children)
        book = vars(node)["_wl"] = Book()
        marks = dict(static[2])["_wl"]
        book.buffers, book.frozen = set(marks[0]), set(marks[1])
        return node

    kind.flatten, kind.unflatten = without_book, with_book
