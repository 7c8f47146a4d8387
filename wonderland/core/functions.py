"""From user functions to flat functions: pytrees in and out, tracers as handles, mutable arguments written back.

A user function takes trees of arrays and mutable objects. A transformation wants a function of flat values. `Call` is
one call of a user function: its flat argument values, and, after it ran, its flat results and what it wrote to the
mutable objects it was given (SEMANTICS 6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, LeakedTracerError, MutationError, user_line
from wonderland.core.kinds import kind_of
from wonderland.core.level import Traced, freeze, own, read_only
from wonderland.core.statics import typed
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, type_of

SELF = "the object that the function belongs to"  # the keyword of a hidden argument


class Call:
    """One call of `f(*args, **kwargs)`: flatten, run on given values, write back.

    A mutable object that is called, or that a method belongs to, is an argument as well, a hidden one.
    """

    def __init__(self, f: Callable, args: Any, kwargs: dict[str, Any], differentiated: Sequence[int] | None = None):
        """With `differentiated`, arguments at other positions may hold what isn't an array; the function gets it."""
        self.f = f
        owner = bound_object(f)
        kwargs = kwargs if owner is None or SELF in kwargs else {**kwargs, SELF: owner}
        self.arguments: tuple[Any, dict[str, Any]] = args, kwargs
        leaves, structure = tree.flatten_call(args, kwargs)
        self.structure: tree.Structure = structure
        self.keywords: tuple[Any, ...] = self.structure.children[1].static[1]
        try:
            self._take(leaves)
        except TypeError as error:
            held, kept = tree.hold(self.structure, iter(leaves), is_array)
            if differentiated is None or any(tree.holds(held.children[0].children[i]) for i in differentiated):
                raise self._located(error) from None
            self.structure = held
            self._take(kept)
        self.mutable: list[bool] = mutable_leaves(self.structure)
        self.trainable: list[bool] = tree.trainable(self.structure)
        if self.structure.has_mutable:
            self._check_overlaps()
        self.out_structure: tree.Structure | None = None
        self.written: list[int] = []  # leaves of mutable arguments whose value the function replaced

    def _take(self, leaves: list) -> None:
        self.owners = leaves  # what the caller passed: arrays and tracers, to be written back to
        self.values: list[Any] = [read_only(unwrap(leaf)) for leaf in leaves]
        self.types: list[ArrayType] = [type_of(v) for v in self.values]

    def parts(self) -> list[tree.Structure]:  # of the arguments, those of `keywords` last
        return [part for child in self.structure.children for part in child.children]

    def _located(self, error: TypeError) -> TypeError:
        """The error of a leaf that is no array, with the argument that it is in."""
        names = [f"argument {i}" for i in range(len(self.structure.children[0].children))] + [*map(repr, self.keywords)]
        places = [name for name, part in zip(names, self.parts(), strict=True) for _ in range(part.leaf_count)]
        for place, value in zip(places, self.values, strict=True):
            if not is_array(value):
                return type(error)(f"{place} of {getattr(self.f, '__name__', 'the function')}: {error}")
        return error

    def run(self, values: Sequence[Any], all_tracers: bool = False) -> list[Any]:
        """Call the function on these values: its flat results, then the new values of the written leaves.

        Plain values are handed in as they are, or, with `all_tracers`, as tracers (which traced integers can index).
        """
        handles = [
            Tracer(v) if all_tracers or m or isinstance(v, Traced) else v
            for v, m in zip(values, self.mutable, strict=True)
        ]
        for handle, owner in zip(handles, self.owners, strict=True):
            if type(owner) is np.ndarray and owner.ndim == 0 and type(handle) is Tracer:
                handle._array = True  # an array without axes, not a number: `x += 1` writes to it
        plain = self.structure is tree.plain_call(len(handles))  # arrays and numbers alone: nothing to put together
        arguments: Any = (handles, {}) if plain else self.structure.unflatten(handles)
        out = apply(self.f, *arguments)
        results, self.out_structure = tree.flatten(out)
        if self.out_structure.has_mutable and self.structure.has_mutable:  # an argument is the caller's object again
            results, self.out_structure = tree.flatten(out, tree.objects(arguments))
        self.written = []
        new: list = []
        if self.structure.has_mutable:
            after: list = []
            for part, before in zip((*arguments[0], *map(arguments[1].get, self.keywords)), self.parts(), strict=True):
                after += read_again(part, before) if before.has_mutable else [None] * before.leaf_count
            for i, (handle, leaf) in enumerate(zip(handles, after, strict=True)):
                if self.mutable[i] and (leaf is not handle or unwrap(leaf) is not values[i]):
                    self.written.append(i)
                    new.append(checked_write(type_of(values[i]), leaf))
            self.check_written()
        flat = [unwrap(r) for r in results]
        for r in flat:
            if isinstance(r, Traced) and not r.level.alive:
                raise LeakedTracerError(r)
            try:
                type_of(r)
            except TypeError:
                name = getattr(self.f, "__name__", "the function")
                raise ArgumentError(
                    f"{name} returned {type(r).__name__} {str(r)[:60]!r} inside {self.out_structure}: a transformed "
                    "function returns arrays, numbers, and (nested) tuples, lists and dicts of them."
                ) from None
        return flat + new

    def split(self, outs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Separate what `run` returned (or a transformed form of it) into results and written values."""
        count = len(outs) - len(self.written)
        return list(outs[:count]), list(outs[count:])

    def write_back(self, new: list[Any], *kept: list[Any]) -> None:
        """Put new values into the caller's arrays (or the enclosing level's handles), keeping their identity.

        Values in `new` and `kept` that share memory with what is overwritten are copied first.
        """
        if not self.written:
            return
        targets = [self.owners[i] for i in self.written if isinstance(self.owners[i], np.ndarray)]
        for group in (new, *kept):
            for k, value in enumerate(group):
                if isinstance(value, np.ndarray) and any(np.may_share_memory(value, t) for t in targets):
                    group[k] = freeze(value.copy())
        for i, value in zip(self.written, new, strict=True):
            write_into(self.owners[i], value)

    def plain_owners(self) -> list[Any]:
        """The caller's own arrays (not read-only views of them), for code that writes into them itself."""
        return [unwrap(owner) for owner in self.owners]

    def check_written(self) -> None:
        """Refuse to write to what can't be written, or to what another leaf of a mutable argument holds as well."""
        for owner in [self.owners[i] for i in self.written]:
            if not isinstance(owner, Tracer) and not (isinstance(owner, np.ndarray) and owner.flags.writeable):
                raise MutationError(
                    f"a mutable argument holds a {type_of(owner)} that the function changes{user_line()}, but it "
                    "is a scalar or a read-only array. Make it a writable array: np.array(value)."
                )
        clash = overlap([o if m else None for o, m in zip(self.owners, self.mutable, strict=True)], self.written)
        if clash is not None:
            raise MutationError(
                f"the function changes an array{user_line()} that its mutable arguments hold in two places (leaves "
                f"{clash[0]} and {clash[1]}: in two arguments, or arrays that share memory). Pass it once."
            )

    def _check_overlaps(self) -> None:
        """Refuse arrays that share memory without being the same object: each would have its own derivative."""
        start = 0
        for part in self.parts():
            stop = start + part.leaf_count
            held = [o if m else None for o, m in zip(self.owners[start:stop], self.mutable[start:stop], strict=True)]
            start = stop
            if not any(isinstance(owner, np.ndarray) and owner.base is not None for owner in held):
                continue
            clash = overlap(held, range(len(held)))
            if clash is not None and np.shares_memory(held[clash[0]], held[clash[1]]):
                one, other = (tree.names(part)[i] for i in clash)
                raise MutationError(
                    f"{one} and {other} of an argument of {getattr(self.f, '__name__', 'the function')} are different "
                    "arrays that share memory. To share a parameter, hold the same array object in both places; "
                    "otherwise copy one of them."
                )

    def result(self, outs: list[Any]) -> Any:
        """The user's result tree."""
        assert self.out_structure is not None
        return self.out_structure.unflatten(handles(outs), self.objects())

    def objects(self) -> list[Any]:
        """The caller's mutable objects that the result refers to."""
        found = self.out_structure is not None and self.out_structure.has_mutable and self.structure.has_mutable
        return tree.objects(self.arguments) if found else []


def bound_object(f: Any) -> Any:
    """The mutable object that a function is, or belongs to, also inside of transformations; None if there is none."""
    made = getattr(f, "made", None)
    if isinstance(made, tuple):
        return bound_object(made[1])
    owner = f.args[0] if getattr(f, "binds", False) else f.__self__ if isinstance(f, MethodType) else f
    kind = None if type(owner) is _FUNCTION else kind_of(owner)
    return owner if kind is not None and kind.mutable else None


def rebound(f: Any, owner: Any) -> Any:
    """The function, of another object than its own."""
    made = getattr(f, "made", None)
    if isinstance(made, tuple):
        make, inner, options, keywords = made
        return make(rebound(inner, owner), *options, **keywords)
    if getattr(f, "binds", False):
        return type(f)(f.func, owner)
    return MethodType(f.__func__, owner) if isinstance(f, MethodType) else owner


def apply(f: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`f(*args, **kwargs)`, of the object that is a hidden argument."""
    if SELF in kwargs:
        kwargs = dict(kwargs)
        f = rebound(f, kwargs.pop(SELF))
    return f(*args, **kwargs)


_FUNCTION = type(apply)


def overlap(values: Sequence[Any], written: Sequence[int]) -> tuple[int, int] | None:
    """The positions of two arrays that share memory (or of one tracer twice), of which at least one is written."""
    spans, chosen = [], {*written}
    for i, value in enumerate(values if written else ()):
        if isinstance(value, Tracer) or (isinstance(value, np.ndarray) and value.size):
            spans.append((*((id(value), id(value) + 1) if isinstance(value, Tracer) else byte_bounds(value)), i))
    ends = {False: (0, -1), True: (0, -1)}  # how far arrays reach and which one, and so those that are written
    for start, end, i in sorted(spans):
        reach, other = ends[i not in chosen]
        if start < reach:
            return min(other, i), max(other, i)
        for only_written in (False, True) if i in chosen else (False,):
            ends[only_written] = max(ends[only_written], (end, i))
    return None


def handles(values: list[Any]) -> list[Any]:
    """What the caller gets: tracers for traced values, writable arrays of its own, scalars."""
    return [Tracer(v) if isinstance(v, Traced) else v for v in own(values)]


def write_into(owner: Any, value: Any) -> None:
    """Write a new value into a caller's array or tracer."""
    if isinstance(owner, Tracer):
        owner._replace(value)
    elif isinstance(owner, np.ndarray):
        if isinstance(value, Traced):
            raise MutationError(
                f"a traced value would be written{user_line()} to a plain array that is not an argument of the "
                "transformation. Pass the object that holds it as an argument."
            )
        np.copyto(owner, value, casting="same_kind")


def is_array(leaf: Any) -> bool:
    """Is it an array, a number or a tracer?"""
    try:
        return isinstance(leaf, Tracer) or type_of(leaf) is not None
    except TypeError:
        return False


def mutable_leaves(structure: tree.Structure, inside: bool = False) -> list[bool]:
    """For each leaf: does it belong to a mutable object?"""
    if not (inside or structure.has_mutable):
        return [False] * structure.leaf_count
    if structure.kind is None:
        return [inside]
    inside = inside or structure.kind.mutable
    return [flag for child in structure.children for flag in mutable_leaves(child, inside)]


def checked_write(old: ArrayType, leaf: Any) -> Any:
    """A new value for a leaf of a mutable object must have the old one's shape and a dtype that fits."""
    new = unwrap(leaf)
    found = type_of(new)
    if found.shape != old.shape or not np.can_cast(found.dtype, old.dtype, "same_kind"):
        raise MutationError(
            f"an attribute of a mutable argument was {old} and became {found}{user_line()}: it is updated in place, so "
            "shape and dtype must stay. Convert the new value, or make a new object outside."
        )
    return new if found.dtype == old.dtype and not found.weak else unwrap(Tracer(new).astype(old.dtype))


def read_again(part: Any, before: tree.Structure) -> list[Any]:
    """The leaves of an argument after the function ran: only arrays on mutable objects may have changed."""
    found, after = tree.flatten(part)
    if after == before:
        return found
    found, after = tree.flatten(part, share=False)
    expected, numbers = tree.unshared(before)
    check_unchanged(expected, after)
    out: list = [None] * before.leaf_count
    for leaf, number, (path, _, _) in zip(found, numbers, tree.places(before), strict=True):
        if out[number] is not None and out[number] is not leaf:
            raise MutationError(
                f"{tree.names(before)[number]} and {'.'.join(path)} of an argument are one array, and one of them was "
                f"replaced{user_line()} inside a transformed function: the other would stay as it was. Write into it "
                "instead: `-=`, or `[...] =`."
            )
        out[number] = leaf
    return out


def check_unchanged(before: tree.Structure, after: tree.Structure) -> None:
    """Only arrays on mutable arguments may change; a changed Python attribute would be lost."""
    if before == after:
        return
    for old, new in _mutable_nodes(before, after):
        if typed(old.static) != typed(new.static):
            kind, names, static = (old.static[i] for i in range(3))
            new_names, new_static = new.static[1], new.static[2]
            was, now = dict(static), dict(new_static)
            changed = [n for n in {**was, **now} if typed(was.get(n)) != typed(now.get(n))]
            changed += [n for n in {*names} ^ {*new_names} if n not in changed]
            what = ", ".join(f"{kind.__name__}.{n}" for n in changed) or kind.__name__
            remedy = "Make it an array (np.array(0)), write `self.t = self.t + 1`; make all attributes in __init__."
            if not changed or changed == ["training"]:
                remedy = "Set the mode (train, eval, freeze) outside; inside, `with nn.evaluating(model):` restores it."
            raise MutationError(
                f"{what} changed inside a transformed function{user_line()}. Only arrays on an argument can: Python "
                f"attributes are read once, when the function is traced. {remedy}"
            )
        counts = [[child.leaf_count for child in node.children] for node in (old, new)]
        if counts[0] != counts[1] or old.children != new.children:
            name = getattr(old.static[0], "__name__", "an argument")
            raise MutationError(
                f"{name} holds other arrays, or more or fewer, than before the function ran{user_line()}: lists and "
                f"dicts of a mutable argument keep their length inside a transformation ({old} became {new}). Make "
                "them outside, or keep what grows in a variable of the function and return it."
            )
    raise MutationError("the structure of a mutable argument changed inside a transformed function")


def _mutable_nodes(before: tree.Structure, after: tree.Structure) -> list:
    pairs = []
    if before.kind is not None and after.kind is before.kind:
        if before.kind.mutable:
            pairs.append((before, after))
        for b, a in zip(before.children, after.children, strict=False):
            pairs += _mutable_nodes(b, a)
    return pairs
