"""What a Module is besides its arrays: its `Book` and its interned `Layout`; how it is taken apart and cloned.

The book of a Module says which of its arrays are parameters and which buffers, which are frozen, and the depth of the
level under which the Module was made. Its layout (class, names, static values, roles) is made when it is first asked
for, and again after an attribute changed its kind; equal layouts are the same object, so that a compiled call compares
one thing per Module.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from wonderland.compile.arguments import snapshot
from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import KINDS, Keys, Layout, NodeKind, kind_of
from wonderland.core.level import running
from wonderland.core.statics import is_fixed, typed
from wonderland.core.tracer import Tracer
from wonderland.nn.captured import as_input

BOOK = "_wl"  # the attribute that holds a Module's book
ARRAY = (np.ndarray, Tracer)


class Book:
    """What a Module knows of its attributes."""

    __slots__ = ("born", "fixed", "frozen", "known", "layout", "marked", "roles")

    def __init__(
        self, roles: Any = (), frozen: Iterable[str] = (), marked: Iterable[str] = (), fixed: Iterable[str] = ()
    ):
        self.roles: dict[str, str] = dict(roles)  # of attributes that are arrays
        self.frozen: set[str] = set(frozen)  # dotted names below the Module
        self.marked: set[str] = set(marked)  # containers that were assigned as a Buffer
        self.fixed: set[str] = set(fixed)  # arrays in containers that are read-only, or were in what this is a copy of
        self.born: int = len(running())
        self.layout: Layout | None = None
        self.known: Layout | None = None  # of a clone: what it was made from


class OwnMethod:
    """A Module's own bound method among its attributes: the clone's own, in a clone."""

    __slots__ = ("function",)

    def __init__(self, function: Any):
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnMethod) and self.function is other.function

    def __hash__(self) -> int:
        return hash(self.function)


def book_of(module: Any) -> Book:
    """A Module's book; one that was made without `__new__` gets it here."""
    found = vars(module).get(BOOK)
    if found is None:
        found = vars(module)[BOOK] = Book()
    return found


def attributes(module: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a Module, in order of assignment."""
    return ((name, value) for name, value in vars(module).items() if name != BOOK)


def is_child(value: Any) -> bool:
    """Is an attribute's value data: an array, a mutable object, or a container with such in it?"""
    if isinstance(value, ARRAY):
        return True
    kind = kind_of(value)
    return kind is not None and (kind.mutable or any(map(is_child, kind.flatten(value)[0])))


def role_of(value: Any) -> str:
    """What an array is when it is assigned without saying."""
    read_only = isinstance(value, np.ndarray) and not value.flags.writeable
    return "parameter" if value.dtype.kind in "fc" and not read_only else "buffer"


_layouts: WeakValueDictionary[Any, Layout] = WeakValueDictionary()


def layout_of(module: Any) -> Layout:
    """The layout of a Module as it is now."""
    book = book_of(module)
    layout = book.layout
    if layout is not None:
        own = vars(module)
        whole = len(own) == len(layout[1].order) + 1  # a cached property comes without being assigned
        if whole and all(typed(own.get(name)) == typed(value) for name, value in layout.loose):
            return layout
    book.layout = layout = _interned(module, book)
    return layout


def _interned(module: Any, book: Book) -> Layout:
    cls = type(module)
    names, static, order, fixed, roles = [], [], [], set(), {}
    for name, value in attributes(module):
        cached = isinstance(getattr(cls, name, None), functools.cached_property)
        if cached and book.known is not None and name not in book.known[1].order:
            continue  # computed while the function ran, on a clone: nobody else has it
        order.append(name)
        if isinstance(value, ARRAY):
            if name not in book.roles:  # not by assignment: a cached property, or through vars()
                book.roles[name] = "buffer" if cached else role_of(value)
            roles[name] = book.roles[name]
            names.append(name)
        elif is_child(value):
            if name in book.marked:
                roles[name] = "buffer"
            fixed |= _read_only(value, name)
            names.append(name)
        else:
            own = isinstance(value, MethodType) and value.__self__ is module
            static.append((name, OwnMethod(value.__func__) if own else value))
    fixed |= book.fixed
    held = tuple([(name, snapshot(value)) for name, value in static])
    loose = tuple([(name, value) for name, value in held if not is_fixed(value)])
    frozen = frozenset(book.frozen)
    parts = cls, Keys.of(names, dict.fromkeys(order)), held
    key = cls, tuple(order), tuple(names), typed(held), tuple(roles.items()), frozen, frozenset(fixed)
    made = Layout(parts, roles, frozen, frozenset(fixed), loose, layout_of)
    try:
        return _layouts.setdefault(key, made)
    except TypeError as error:
        wrong = next((name for name, value in held if not _hashable(value)), names)
        raise ArgumentError(
            f"{cls.__name__}.{wrong} can't be a static attribute of a Module ({error}): it is part of what is "
            "compiled, and compared by value. Use a tuple, a frozen dataclass, or make it an array."
        ) from None


def _hashable(value: Any) -> bool:
    try:
        hash(typed(value))
    except TypeError:
        return False
    return True


def _read_only(value: Any, path: str) -> set[str]:
    """The read-only arrays in a container."""
    if isinstance(value, np.ndarray):
        return set() if value.flags.writeable else {path}
    kind = kind_of(value)
    if kind is None or kind.mutable:
        return set()
    children, static = kind.flatten(value)
    keys = static[1] if isinstance(value, dict) else range(len(children))
    parts = [_read_only(child, f"{path}.{key}") for key, child in zip(keys, children, strict=True)]
    return set().union(*parts)


def register(cls: type) -> None:
    """Make a subclass of Module a mutable node of trees."""
    KINDS[cls] = NodeKind(cls.__name__, _flatten, _unflatten, mutable=True)


def _flatten(module: Any) -> tuple[list[Any], Layout]:
    layout = layout_of(module)
    own = vars(module)
    try:
        children = [own[name] for name in layout[1]]
    except KeyError:  # deleted through vars()
        book_of(module).layout = None
        return _flatten(module)
    for name, child in zip(layout[1], children, strict=True):
        if not isinstance(child, ARRAY) and not is_child(child):  # a list that was emptied
            book_of(module).layout = None
            return _flatten(module)
    born = own[BOOK].born
    return [as_input(child, born) for child in children], layout


def _unflatten(layout: Layout, children: Sequence[Any]) -> Any:
    cls, names, static = layout.parts
    module = object.__new__(cls)
    own = vars(module)
    book = own[BOOK] = Book(frozen=layout.frozen, fixed=layout.fixed)
    found = dict(zip(names, children, strict=True))
    for name, value in static:
        found[name] = MethodType(value.function, module) if type(value) is OwnMethod else value
    for name, value in layout.loose:
        found[name] = snapshot(value)
    own.update([(name, found[name]) for name in names.order])
    book.known = layout
    whole = True
    for name, child in zip(names, children, strict=True):
        if isinstance(child, ARRAY) and name in layout.roles:
            book.roles[name] = layout.roles[name]
        elif is_child(child) and not isinstance(child, ARRAY):
            if layout.roles.get(name) == "buffer":
                book.marked.add(name)
        else:  # of a derivative, which has None where nothing is trained
            whole = False
    book.layout = layout if whole else None
    return module
