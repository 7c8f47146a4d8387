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
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from wonderland.compile.arguments import snapshot
from wonderland.core.kinds import KINDS, Keys, Layout, NodeKind, kind_of
from wonderland.core.level import running
from wonderland.core.statics import is_fixed, typed
from wonderland.core.tracer import Tracer
from wonderland.nn.captured import as_input, is_recording

BOOK = "_wl"  # the attribute that holds a Module's book
ARRAY = (np.ndarray, Tracer)


class Book:
    """What a Module knows of its attributes. What it holds is replaced and never changed in place: clones share it."""

    __slots__ = ("born", "fixed", "frozen", "known", "layout", "marked", "roles")

    def __init__(
        self, roles: dict[str, str] | None = None, frozen: Iterable[str] = (), marked: Iterable[str] = (),
        fixed: Iterable[str] = (),
    ):  # fmt: skip
        self.roles: dict[str, str] = {} if roles is None else roles  # of attributes that are arrays
        self.frozen: frozenset[str] = frozenset(frozen)  # dotted names below the Module
        self.marked: frozenset[str] = frozenset(marked)  # containers that were assigned as a Buffer
        self.fixed: frozenset[str] = frozenset(fixed)  # read-only arrays in containers, also of what this is a copy of
        self.born: int = len(running())
        self.layout: Layout | None = None
        self.known: Layout | None = None  # of a clone: what it was made from

    def set_role(self, name: str, role: str | None, marked: bool = False) -> None:
        """An attribute becomes an array of a role (None: it is no array), or a container of buffers."""
        if role is not None:
            self.roles = {**self.roles, name: role}
        elif name in self.roles:
            self.roles = {other: role for other, role in self.roles.items() if other != name}
        if marked or name in self.marked:
            self.marked = self.marked | {name} if marked else self.marked - {name}
        self.layout = None


class OwnMethod:
    """A Module's own bound method among its attributes: the clone's own, in a clone."""

    __slots__ = ("function",)

    def __init__(self, function: Any):
        self.function: Any = function

    @staticmethod
    def of(value: Any, module: Any) -> Any:
        """The value of an attribute, as this if it is a bound method of the Module itself."""
        return OwnMethod(value.__func__) if isinstance(value, MethodType) and value.__self__ is module else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnMethod) and self.function is other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


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
_unhashable: WeakSet[Layout] = WeakSet()


def layout_of(module: Any) -> Layout:
    """The layout of a Module as it is now."""
    book = book_of(module)
    layout = book.layout
    if layout is not None:
        own = vars(module)
        if len(own) == len(layout.template) + 1:  # a cached property comes without being assigned
            if not layout.loose or all(typed(own.get(name)) == typed(value) for name, value in layout.loose):
                return layout
    book.layout = layout = _interned(module, book)
    return layout


def _interned(module: Any, book: Book) -> Layout:
    cls = type(module)
    names, static, order, roles = [], [], [], {}
    fixed = set(book.fixed)
    for name, value in attributes(module):
        cached = isinstance(getattr(cls, name, None), functools.cached_property)
        if cached and book.known is not None and name not in book.known.template:
            continue  # computed while the function ran, on a clone: nobody else has it
        order.append(name)
        if isinstance(value, ARRAY):
            if name not in book.roles:  # not by assignment: a cached property, or through vars()
                book.set_role(name, "buffer" if cached else role_of(value))
            roles[name] = book.roles[name]
            names.append(name)
        elif is_child(value):
            fixed |= _read_only(value, name)
            names.append(name)
        else:
            static.append((name, OwnMethod.of(value, module)))
    held = tuple([(name, snapshot(value)) for name, value in static])
    loose = tuple([(name, value) for name, value in held if not is_fixed(value)])
    parts = cls, Keys.of(names, dict.fromkeys(order)), held
    template = {**dict.fromkeys(order), **dict(held)}
    made = Layout(parts, roles, book.marked, book.frozen, frozenset(fixed), loose, template, layout_of)
    key = cls, tuple(order), tuple(names), tuple(roles.items()), made.marked, made.frozen, made.fixed
    value = typed(held)
    try:
        return _layouts.setdefault((key, value), made)
    except TypeError:  # a static value without a hash: compared one by one
        for other in list(_unhashable):
            same = (other[0], tuple(other.template), tuple(other[1]), tuple(other.roles.items()))
            if (*same, other.marked, other.frozen, other.fixed) == key and typed(other[2]) == value:
                return other
        _unhashable.add(made)
        return made


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
    layout, own = layout_of(module), vars(module)
    try:
        children = [own[name] for name in layout[1]]
    except KeyError:  # deleted through vars()
        own[BOOK].layout = None
        return _flatten(module)
    if len(layout.roles) < len(children):
        pairs = zip(layout[1], children, strict=True)
        if not all(is_child(child) for name, child in pairs if name not in layout.roles):  # a list that was emptied
            own[BOOK].layout = None
            return _flatten(module)
    if is_recording():
        children = [as_input(child, own[BOOK].born) for child in children]
    return children, layout


def _unflatten(layout: Layout, children: Sequence[Any]) -> Any:
    module = object.__new__(layout[0])
    book = Book(layout.roles, layout.frozen, layout.marked, layout.fixed)
    own = vars(module)
    own[BOOK] = book
    own.update(layout.template)
    for name, value in layout.loose:
        own[name] = snapshot(value)
    for name, value in layout[2]:
        if type(value) is OwnMethod:
            own[name] = MethodType(value.function, module)
    book.known = book.layout = layout
    for name, child in zip(layout[1], children, strict=True):
        own[name] = child
        if name in layout.roles and not isinstance(child, ARRAY):  # of a derivative: None where nothing is trained
            book.set_role(name, None)
    return module
